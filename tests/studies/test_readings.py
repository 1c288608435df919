"""Readings of the score and of the weights, by the dense equations."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from nextapp.data.cutting import Split
from nextapp.data.loading import read_log
from nextapp.data.log import LaunchLog
from nextapp.evaluation import evaluate, exam, find_preset
from nextapp.evaluation.static import build_model
from nextapp.model import confidence
from nextapp.predictors.training import SEQMF
from nextapp.studies import readings
from nextapp.studies.readings import DenseSeqMF, HalfSR, Readings, run_readings, weights_of_shares

SMALL = "synthetic:lsapp,phones=15,days=12"


@pytest.fixture(scope="module")
def test_part():
    return exam(read_log(SMALL, seed=0), Split.parse("fraction:0.8,0,0.2"), find_preset("authors"))


def test_the_dense_equations_are_the_model_of_the_tables(test_part):
    dense = DenseSeqMF(SEQMF, 0, "dense")
    marks = evaluate(test_part, [dense, build_model("seqmf", 0)], 0).marks
    assert np.array_equal(marks[0].tables["all"], marks[1].tables["all"])


def test_relative_frequencies_are_counts_with_another_alpha():
    """By hand: (d/n + α) / (Σ d/n + α N) = (d + α n) / (Σ d + α n N)."""
    counts = np.array([5.0, 0.0, 15.0])
    found = weights_of_shares(counts, 0.001, 1.0)
    assert found == pytest.approx([(5 + 0.02) / 20.06, 0.02 / 20.06, (15 + 0.02) / 20.06])
    assert found == pytest.approx(confidence(counts, 0.02, 1.0))


def test_the_usual_weights_of_implicit_feedback():
    """Hu, Koren and Volinsky 2008: 1 + 40 d; divided by three apps."""
    found = readings.weights_of_hu(np.array([2.0, 0.0, 1.0]), 0.5, 0.1)
    assert found == pytest.approx([27.0, 1 / 3, 41 / 3])


def test_the_full_score_is_the_one_of_training(test_part):
    """One phone's first question by the equation (4) written out: q_i·p + Σ_j S_ij q_i·q_j."""
    model = DenseSeqMF(SEQMF, 0, "full", full_score=True)
    model.fit(test_part.history)
    questions = test_part.chunks[0].questions
    scores = model.score(questions)
    asked = list(questions)
    assert len(scores) == sum(len(question.candidates) for question in asked)
    question = asked[0]
    starts = test_part.history.starts
    launches = test_part.history.app[starts[question.user] : starts[question.user + 1]].tolist()
    q, p = model.app_vectors, model.user_vectors[question.user]
    for place, app in enumerate(question.candidates.tolist()):
        follows = [after for before, after in pairwise(launches)
                   if before == app]  # fmt: skip
        h = sum(q[app] @ q[after] for after in follows) / max(len(follows), 1)
        assert scores[place] == pytest.approx(q[app] @ p + h)


def test_a_study_has_what_its_claims_need():
    log = read_log(SMALL, seed=0)
    found = run_readings(Readings("fraction:0.8,0,0.2", dim=8), log)
    seqmf, full = (found["models"][name]["HR@1"] for name in ("seqmf", "seqmf-full-score"))
    gap = found["differences"]["seqmf"]["seqmf-full-score"]["HR@1"]
    assert gap["mean"] == pytest.approx(seqmf - full)
    assert gap["low"] <= gap["mean"] <= gap["high"]
    assert found["different"]["low"] <= found["different"]["mean"] <= found["different"]["high"]


def test_a_half_of_sr_counts_the_older_or_the_newer_launches():
    """Two phones, by hand: of five launches the older three, of two the older one."""
    log = LaunchLog.from_columns(
        [0] * 5 + [1] * 2, [0, 1, 0, 2, 0, 0, 1], [*range(5), 0, 1], ["a", "b"], ["x", "y", "z"]
    )
    found = []
    for newer in (False, True):
        half = HalfSR("half", newer=newer)
        half.fit(log)
        found.append({divmod(key, 3) for key in half.rules.keys.tolist()})
    assert found == [{(0, 1), (1, 0)}, {(2, 0)}]


def test_a_log_in_which_every_target_repeats_has_no_next_different_app(tmp_path):
    rows = [
        f"u{user},{1_600_000_000 + 60 * launch},{'B' if launch < 4 else 'A'}"
        for user in range(3)
        for launch in range(40)
    ]
    file = tmp_path / "same.csv"
    file.write_text("\n".join(["user_id,timestamp,app_name", *rows]), encoding="utf-8")
    found = run_readings(Readings("fraction:0.8,0,0.2", dim=2), read_log(file))
    assert found["different"]["mean"] is None
    assert found["n_predictions"] == 3 * 7
