"""Crowds learnt by gradients, in rounds, and the names they go by."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from nextapp import directed
from nextapp.cli.commands import app as command
from nextapp.data import LaunchLog, synthetic
from nextapp.fleet.columns import Fleet
from nextapp.learners import adam, random_vectors
from nextapp.predictors import pool_phones
from nextapp.privacy import mechanism
from nextapp.randomness import KeyedBits
from nextapp.studies import coldstart, crowd_rounds
from nextapp.studies.coldstart import OPEN, WITHOUT, ColdStart, run
from nextapp.studies.crowd_rounds import Plan, choose_plan, cohorts, crowd_of_log, train_vectors
from nextapp.studies.settings import Experiment
from nextapp.studies.static import run as evaluated

CIRCLE = [0, 4, 2, 7, 1, 5, 3, 6]
FEW = {"seqmf": ((5, 0.03),), "directed": ((5, 0.1),)}


@pytest.fixture
def quick(monkeypatch):
    """Rehearsals of one short training, before few phones."""
    monkeypatch.setattr(crowd_rounds, "STEPS", FEW)
    monkeypatch.setattr(coldstart, "_REHEARSING", 15)


def circling(n_users, n_launches, rng):
    """A log in which everyone goes round the same circle of apps, now and then astray."""
    step = np.tile(np.arange(n_launches), n_users) + np.repeat(
        rng.integers(0, 8, n_users), n_launches
    )
    astray = rng.random(len(step)) < 0.1
    apps = np.where(astray, rng.integers(0, 8, len(step)), np.array(CIRCLE)[step % 8])
    users, times = np.repeat(np.arange(n_users), n_launches), 60_000 * np.arange(len(step))
    names = [f"u{user}" for user in range(n_users)], [f"a{app}" for app in range(8)]
    return LaunchLog.from_columns(users.tolist(), apps.tolist(), times.tolist(), *names)


def test_the_rounds_are_those_of_phones_one_by_one(rng, seed):
    """Each phone encodes its own gradient with its own bits; the server decodes and steps."""
    log = circling(11, 20, rng)
    plan = Plan("directed", 3, 0.1, 1.0, clip=0.2)
    found = train_vectors(plan, Fleet.of_log(log), 2.0, seed)
    made = mechanism("codebook", n_apps=16, d=plan.dim, epsilon=2.0, clip=0.2)
    vectors = random_vectors(16, plan.dim, 0.1, KeyedBits(seed, purpose="Q").generator())
    optimiser = adam(0.1)
    state = optimiser.start(vectors)
    for number, phones in enumerate((range(0, 3), range(3, 7), range(7, 11))):
        Q, R = np.split(vectors, 2)
        reports = []
        for phone in phones:
            own = directed.transitions_of(log.app[log.user == phone].astype(np.int64), 8)
            p = directed.user_vector(Q, R, own, plan.model.lam)
            bits = KeyedBits(seed, phone, number, "report")
            reports.append(made.encode(directed.gradient(Q, R, p, own), bits, round=number))
        vectors, state = optimiser.step(vectors, made.decode(reports), state)
    np.testing.assert_allclose(found, vectors, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(("n", "rounds"), [(10, 3), (7, 7), (100, 20)])
def test_no_phone_reports_twice_and_none_is_left_out(n, rounds):
    plan = Plan("seqmf", rounds, 0.1, 1.0, clip=1.0)
    numbers = [
        cohort.first_phone + phone
        for cohort in cohorts(plan, Fleet.without_launches(n, 4), once=True)
        for phone in range(len(cohort))
    ]
    assert numbers == list(range(n))


def test_the_directed_model_learns_which_way_round(rng):
    """SeqMF cannot: its q_iᵀq_j is the same both ways."""
    crowd = crowd_of_log("directed", 0, circling(40, 40, rng))
    for j, i in zip(CIRCLE, CIRCLE[1:] + CIRCLE[:1], strict=True):
        assert crowd.after(j).argmax() == i
        assert crowd.after(j)[i] > 3 * crowd.after(i)[j]


def test_it_is_learnt_from_private_reports_too(rng):
    """3,000 phones, ε 8, law and exact: the follower stands out in most rows of both."""
    fleet = Fleet.of_log(circling(3_000, 20, rng))
    plan = Plan("directed", 20, 0.1, 1.0, clip=0.1)
    for mode in ("exact", "law"):
        crowd = plan.crowd(train_vectors(plan, fleet, 8.0, 0, mode=mode))
        right = [
            crowd.after(j).argmax() == i
            for j, i in zip(CIRCLE, CIRCLE[1:] + CIRCLE[:1], strict=True)
        ]
        assert sum(right) >= 6


def test_a_rehearsal_takes_the_plan_that_is_worth_most(monkeypatch):
    monkeypatch.setattr(crowd_rounds, "STEPS", {"directed": ((1, 0.1), (2, 0.1), (9, 0.1))})
    parameters = synthetic.fleet_parameters(1, 12)
    sharp = choose_plan(
        "directed", 5, parameters, 1.0, 1, lambda crowd: crowd.share.max(initial=0.0)
    )
    assert (sharp.rounds, sharp.sharpness) == (2, 2.0)  # 9 rounds are too many for 5 phones
    assert sharp.clip > 0
    flat = choose_plan(
        "directed", 5, parameters, None, 1, lambda crowd: -crowd.share.max(initial=0.0)
    )
    assert flat.sharpness == 0
    assert flat.clip is None


def test_a_plan_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match="did you mean 'directed'"):
        Plan("direct", 1, 0.1, 1.0)
    with pytest.raises(ValueError, match="rounds must be 1 or more"):
        Plan("seqmf", 0, 0.1, 1.0)


@pytest.mark.parametrize("name", ["seqmf", "directed"])
def test_nextapp_with_such_a_crowd_is_a_model_by_name(rng, name):
    log = circling(12, 40, rng)
    experiment = Experiment("log.csv", models=(f"nextapp-{name}",), seed=3)
    (model,) = experiment.predictors()
    model.fit(log)
    expected = crowd_of_log(name, 3, log)
    assert np.array_equal(model.crowd.share, expected.share)
    assert not np.array_equal(model.crowd.share, pool_phones(log).others(-1).share)
    rates = evaluated(experiment, log).as_json()["models"]
    assert rates[f"nextapp-{name}"]["HR@5"] > 0.7


@pytest.mark.parametrize("way", ["seqmf", "directed"])
def test_new_phones_with_such_a_crowd(rng, way, quick):
    settings = ColdStart("log.csv", draws=1, epsilons=(4.5,), way=way, launches=40)
    log = circling(30, 40, rng)
    result = run(settings, log)
    assert list(result["priors"]) == [WITHOUT, OPEN, "ε = 4.5"]
    assert result["guarantees"]["ε = 4.5"]["epsilon"] == 4.5
    assert result["guarantees"]["ε = 4.5"]["sent_in_clear"] == ()
    assert set(result["plans"]["ε = 4.5"]) >= {"rounds", "rate", "sharpness", "clip"}
    assert run(settings, log)["priors"] == result["priors"]
    if way == "directed":
        first = {name: prior["bins"][0]["HR@3"]["mean"] for name, prior in result["priors"].items()}
        assert first[OPEN] > first[WITHOUT] + 0.1


def test_the_command_names_the_ways(tmp_path, quick):
    out = CliRunner().invoke(
        command,
        ["coldstart", "synthetic:fleet,phones=300,apps=20", "--at-most", "4", "--launches", "30",
         "--epsilon", "4.5", "--way", "directed", "--json", str(tmp_path / "r.json")],
    )  # fmt: skip
    assert out.exit_code == 0, out.output
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["settings"]["way"] == "directed"
    wrong = CliRunner().invoke(command, ["coldstart", "synthetic:fleet", "--way", "codebook"])
    assert "from the gradients of seqmf or directed" in " ".join(wrong.output.split())
