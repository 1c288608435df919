"""Calibration, against loops over every prediction and candidate."""

from __future__ import annotations

import numpy as np
import pytest

from nextapp import plots
from nextapp.data.cutting import Split
from nextapp.data.log import LaunchLog
from nextapp.evaluation import evaluate, exam, find_preset
from nextapp.evaluation.metrics import EDGES, FACTORS
from nextapp.predictors.rivals import MRU, PPM


@pytest.fixture
def log(rng) -> LaunchLog:
    n_users, n_each, n_apps = 5, 90, 8
    return LaunchLog.from_columns(
        np.repeat(np.arange(n_users), n_each),
        rng.zipf(1.3, n_users * n_each) % n_apps,
        np.cumsum(rng.choice([20_000, 2_000_000], (n_users, n_each), p=[0.8, 0.2]), axis=1).ravel(),
        [f"u{k}" for k in range(n_users)],
        [f"a{k}" for k in range(n_apps)],
    )


def cells(test, model):
    """(chances of those that compete, place of the target among them or None), one by one."""
    scores = np.concatenate([model.score(chunk.questions) for chunk in test.chunks])
    cell = 0
    for row, within in zip(test.rows.tolist(), test.within.tolist(), strict=True):
        user = int(test.whole.user[row])
        v = int(np.searchsorted(test.users, user))
        own = slice(*test.candidate_starts[v : v + 2])
        apps, seen = test.candidates[own], test.seen_from[own]
        chances = np.exp(scores[cell : cell + len(apps)])
        cell += len(apps)
        if not within:
            continue
        target = test.whole.app[row]
        competes = seen < row
        if test.preset.candidates == "history+target":
            competes |= apps == target
        yield chances[competes], (apps[competes] == target)


@pytest.mark.parametrize("preset", ["paper", "honest", "authors"])
@pytest.mark.usefixtures("form")
def test_the_figures_are_those_of_plain_loops(log, preset):
    test = exam(log, Split.parse("fraction:0.6,0,0.4"), find_preset(preset))
    model = PPM()
    found = evaluate(test, [model], seed=0).summary()["models"]["ppm"]
    p, y, best_p, best_y, n = [], [], [], [], 0
    for chances, came in cells(test, model):
        n += 1
        p += chances.tolist()
        y += came.tolist()
        best = int(chances.argmax())
        best_p.append(chances[best])
        best_y.append(came[best])
    assert n == test.n_predictions
    p, y, best_p, best_y = map(np.array, (p, y, best_p, best_y))
    ends = np.append(EDGES[1:], np.inf)
    calibration = found["calibration"]
    for name, said, came in (("ece", p, y), ("ece_first", best_p, best_y)):
        expected = sum(
            abs((said - came)[(said >= low) & (said < high)].sum())
            for low, high in zip(EDGES, ends, strict=True)
        )
        assert calibration[name]["mean"] == pytest.approx(expected / n, rel=1e-9)
        assert calibration[name]["low"] <= calibration[name]["high"]
    reliability = calibration["reliability"]
    for low, apps, said, came in zip(
        *(reliability[key] for key in ("from", "apps", "said", "came")), strict=True
    ):
        inside = (p >= low) & (p < ends[EDGES.tolist().index(low)])
        assert apps == inside.sum()
        assert said == pytest.approx(p[inside].mean())
        assert came == pytest.approx(y[inside].mean())
    assert sum(reliability["apps"]) == len(p)


def test_chances_that_are_right_have_no_error_to_speak_of_and_flat_ones_much(rng):
    """A model that says the very odds by which launches are drawn; 4,000 of them."""
    odds = np.array([0.5, 0.3, 0.15, 0.05])
    n = 5000
    log = LaunchLog.from_columns(
        np.zeros(n, int), rng.choice(4, n, p=odds), 60_000 * np.arange(n), ["u"], list("abcd")
    )
    test = exam(log, Split.parse("fraction:0.2,0,0.8"), find_preset("paper"))

    class Says:
        in_expectation = False
        scores_are_log_chances = True

        def __init__(self, name, odds):
            self.name, self.odds = name, odds

        def fit(self, history):
            """Nothing."""

        def score(self, questions):
            return np.tile(np.log(self.odds), len(questions.launches))

    found = evaluate(test, [Says("right", odds), Says("flat", np.full(4, 0.25))], 0).summary()
    right, flat = (found["models"][name]["calibration"] for name in ("right", "flat"))
    assert right["ece"]["mean"] < 0.05  # four bins, each with a standard error below .008
    assert flat["ece"]["mean"] < 1e-9  # of all apps a quarter came: flat chances are right too
    skewed = evaluate(test, [Says("wrong", odds[::-1])], 0).summary()["models"]["wrong"]
    expected = np.abs(odds - odds[::-1]).sum()
    assert skewed["calibration"]["ece"]["mean"] == pytest.approx(expected, abs=0.05)


def test_the_plot_has_a_line_a_model(log):
    test = exam(log, Split.parse("fraction:0.6,0,0.4"), find_preset("paper"))
    result = evaluate(test, [MRU(), PPM()], seed=0).summary()
    assert result["models"]["mru"]["calibration"] is None
    figure = plots.calibration(result | {"data": {"source": "a log"}})
    reliability, steadiness = figure.axes
    drawn = [len(line.get_ydata()) for line in steadiness.lines]
    assert drawn == [1, len(FACTORS)]
    assert len(reliability.containers) == 1
