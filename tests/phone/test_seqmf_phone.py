"""A phone that joined for the paper's model: what its server learns is what it predicts by."""

from __future__ import annotations

import random

import numpy as np
import pytest

from nextapp import model
from nextapp.phone import Phone, Store
from nextapp.phone.commands import main
from nextapp.phone.ledger import DAY
from nextapp.wire import Broadcast, ModelSettings

NOON = 1_790_000_000.0
APPS = tuple(f"app-{number}" for number in range(12))


@pytest.fixture
def seqmf_store(tmp_path):
    with Store.create(tmp_path / "seqmf.db", predictor="seqmf") as store:
        yield store


def launches(seed: int, n: int = 80) -> list[int]:
    chance = random.Random(seed)
    return [chance.randrange(len(APPS)) for _ in range(n)]


def played(store: Store, history: list[int]) -> Phone:
    """One launch a minute, all in one session."""
    phone = Phone(store, clock=lambda: NOON)
    for number, app in enumerate(history):
        phone.observe(APPS[app], NOON + 60 * number, zone=0)
    return phone


def broadcast(seed: int, round: int = 0) -> Broadcast:
    vectors = np.random.default_rng([seed, 7]).normal(0, 0.4, (len(APPS), 4))
    return Broadcast(round, vectors, ModelSettings(), APPS)


def ranking_by_the_equations(Q, history, settings=ModelSettings()) -> list[str]:
    """Eqs. (5) to (10), dense as printed, then (8) and (2)."""
    counts = np.bincount(history, minlength=len(Q))
    c = model.confidence(counts, settings.alpha, settings.gamma)
    h = model.short_term(model.transitions(history, len(Q), settings.reading), Q)
    p = model.user_vector(Q, c, (counts > 0) * 1.0, h, settings.lam)
    scores = Q @ p + Q @ Q[history].sum(axis=0)
    return [APPS[app] for app in model.top(scores, len(Q), np.flatnonzero(counts))]


def test_it_predicts_by_the_papers_equations(seqmf_store, seed):
    history = launches(seed)
    phone = played(seqmf_store, history)
    sent = broadcast(seed)
    phone.take(sent.to_bytes(), NOON)
    when = NOON + 60 * len(history)
    assert phone.predict(12, when, with_open=True) == ranking_by_the_equations(
        sent.app_vectors, history
    )
    for number, app in enumerate((3, 3, 5), len(history)):  # p is solved anew
        phone.observe(APPS[app], NOON + 60 * number, zone=0)
        history.append(app)
        expected = ranking_by_the_equations(sent.app_vectors, history)
        assert phone.predict(12, NOON + 60 * number + 30, with_open=True) == expected
    with Store(seqmf_store.path) as store:
        again = Phone(store, clock=lambda: NOON)
        assert again.predict(12, NOON + 60 * number + 30, with_open=True) == expected


def test_what_its_server_learns_changes_what_it_predicts(seqmf_store, store, seed):
    """Two servers' Q give two top fives; to the habits of a phone that predicts by them, none."""
    history = launches(seed)
    when = NOON + 60 * len(history)
    found = {}
    for kind, file in (("seqmf", seqmf_store), ("nextapp", store)):
        phone = played(file, history)
        tops = []
        for each in range(3):
            phone.store.drop_broadcast()
            phone._load()
            phone.take(broadcast(seed + each).to_bytes(), NOON)
            tops.append(tuple(phone.predict(5, when, with_open=True)))
        found[kind] = len(set(tops))
    assert found == {"seqmf": 3, "nextapp": 1}


def test_the_parts_of_a_light_score_add_up_to_it(seqmf_store, seed):
    history = launches(seed)
    phone = played(seqmf_store, history)
    phone.take(broadcast(seed).to_bytes(), NOON)
    when = NOON + 60 * len(history)
    told = phone.explain(12, when, with_open=True)
    assert [name for name, _ in told] == phone.predict(12, when, with_open=True)
    scores = np.array([reason.score for _, reason in told])
    apart = np.array([sum(reason.speaks.values()) for _, reason in told])
    np.testing.assert_allclose(apart, scores - scores.mean(), atol=1e-12)
    over = dict(
        phone.explain(12, when + DAY, with_open=True)
    )  # the session is over: p alone speaks
    assert all(abs(reason.speaks["session"]) < 1e-12 for reason in over.values())


def test_before_any_broadcast_it_names_its_latest_apps(seqmf_store):
    phone = played(seqmf_store, [1, 2, 3, 1])
    assert phone.predict(5, NOON + 300, with_open=True) == ["app-1", "app-3", "app-2"]
    assert [name for name, _ in phone.explain(5, NOON + 300, with_open=True)] == [
        "app-1",
        "app-3",
        "app-2",
    ]


def test_it_says_by_what_it_predicts(tmp_path, seed, capsys):
    def phone(*words):
        assert main(["--store", str(tmp_path / "p.db"), *words]) == 0
        return capsys.readouterr().out

    assert "reports a gradient under its ε, and nothing else" in phone(
        "init", "--predictor", "seqmf"
    )
    phone("log", "app-1", "app-2", "app-1")
    assert "no server has sent app vectors yet" in phone("predict", "--why")
    with Store(tmp_path / "p.db") as store:
        Phone(store).take(broadcast(seed, round=7).to_bytes())
    why = phone("predict", "--why")
    assert "By SeqMF: the light scores of eq. (8), with the app vectors of round 7." in why
    assert "score" in why.splitlines()[0]
    assert "user vector" in why.splitlines()[0]
    assert "SeqMF" not in phone("predict")
    assert "predicts by SeqMF" in phone("status")
    assert '"predictor": "seqmf"' in phone("export")
    phone("--store", str(tmp_path / "q.db"), "init")
    assert "predicts by its own habits" in phone("--store", str(tmp_path / "q.db"), "status")


def test_its_export_holds_the_user_vector(seqmf_store, seed):
    phone = played(seqmf_store, launches(seed))
    phone.take(broadcast(seed).to_bytes(), NOON)
    assert phone.export()["user_vector"] == phone._core.user_vector.tolist()


def test_an_unknown_predictor_is_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match="predictor"):
        Store.create(tmp_path / "p.db", predictor="oracle")
    assert not (tmp_path / "p.db").exists()
