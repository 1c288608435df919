"""What phones that lie can do to Q: no more than their mechanism and their coins allow a report."""

from __future__ import annotations

import numpy as np
import pytest
from servers import unsigned_token

from all_reports import apply_reports
from nextapp.learners import SeqMFLearner, sgd
from nextapp.privacy import mechanism
from nextapp.randomness import KeyedBits, TokenCoins, distinct
from nextapp.server.federation import Coordinator
from nextapp.server.vault import Outcome, RoundRules, Submission, Vault
from nextapp.wire import ModelSettings, Report

N_APPS, DIM, PHONES, HOSTILE = 10, 4, 1000, 10
RATE, LAM, CLIP, EPSILON = 0.001, 0.3, 1.0, 4.0
TARGET = np.zeros((N_APPS, DIM))
TARGET[3] = 1.0  # the app vector that they want to grow


def largest_report(m) -> float:
    """The largest entry of what one report adds to the sum, by hand for each mechanism."""
    if m.name == "harmony":
        return m.D / m.k * m.c * CLIP
    if m.name == "walsh":  # all 64 Walsh functions of a codeword with the same sign
        return CLIP / m.mu * 8.0
    # kashin: b signs of coefficients, each spread over all entries by a Hadamard row, 1/√N each
    return CLIP * m.K * 2**64 / m.threshold


def coins(number: int) -> TokenCoins:
    return unsigned_token(number).coins


def worst_report(m, number: int) -> Report:
    """Of some reports that a gateway takes the one that pushes hardest along the target."""
    rng = np.random.default_rng([9, number])
    legal = [
        m.encode(1e9 * TARGET, KeyedBits(int(rng.integers(2**60)), n), 0, coins(number))
        for n in range(40)
    ]
    assert all(m.matches_coins(report, coins(number)) for report in legal)
    assert all(np.isfinite(m.decode([report])).all() for report in legal)
    return max(legal, key=lambda report: float((m.decode([report]) * TARGET).sum()))


def honest_report(m, number: int) -> Report:
    gradient = 0.1 * np.random.default_rng([5, number]).normal(size=(N_APPS, DIM))
    return m.encode(gradient, KeyedBits(3, number, 0, "report"), 0)


def stepped(tmp_path, m, reports) -> np.ndarray:
    """Q after one round of these reports, through the vault and the coordinator."""
    start = np.random.default_rng(0).normal(0, 0.1, (N_APPS, DIM))
    server = SeqMFLearner(start, ModelSettings(lam=LAM), sgd(RATE), m)
    coordinator = Coordinator.start(server, tmp_path / "checkpoints")
    vault = Vault(tmp_path / "vault.sqlite")
    rules = RoundRules(10**6, 1, 60.0)
    vault.publish(rules.open_round(0, 0.0), b"")
    tokens = list(map(unsigned_token, range(len(reports))))
    outcomes = vault.admit(
        [Submission(token, 0, one.payload) for token, one in zip(tokens, reports, strict=True)]
    )
    assert set(outcomes) == {Outcome.ACCEPTED}
    again = [Submission(tokens[0], 0, reports[1].payload)] * 5  # nor does sending more help
    assert set(vault.admit(again)) <= {Outcome.ALREADY_SPENT, Outcome.REPEATED}
    vault.close_round(0)
    coordinator.absorb([vault.reduce(0, m)], 1, ())
    vault.close()
    return coordinator.learner.broadcast.app_vectors


@pytest.mark.parametrize("name", ["harmony", "walsh", "kashin"])
def test_one_percent_of_liars_move_q_by_no_more_than_their_reports_can_hold(tmp_path, name):
    """|ΔQ| ≤ β · m · 2B in every entry: m liars, each taking one report of size B for another."""
    m = mechanism(name, n_apps=N_APPS, d=DIM, epsilon=EPSILON, clip=CLIP)
    honest = [honest_report(m, number) for number in range(PHONES)]
    lying = [worst_report(m, number) for number in range(HOSTILE)]
    bound = RATE * HOSTILE * 2 * largest_report(m)
    (tmp_path / "honest").mkdir()
    (tmp_path / "mixed").mkdir()
    fair = stepped(tmp_path / "honest", m, honest)
    mixed = stepped(tmp_path / "mixed", m, [*lying, *honest[HOSTILE:]])
    moved = np.abs(mixed - fair).max()
    assert 0 < moved <= bound * (1 + 1e-9)
    for report in (*lying, *honest[:50]):  # and the bound is that of every report, not of these
        assert np.abs(m.decode([report])).max() <= largest_report(m) * (1 + 1e-9)


def test_liars_who_agree_reach_an_entry_by_those_whose_coins_give_it_and_no_others(tmp_path):
    """harmony with one entry: D c clip for each of them, which are k/D of all on average."""
    m = mechanism("harmony", n_apps=N_APPS, d=DIM, epsilon=EPSILON, clip=CLIP, k=1)
    n_liars, wanted = 200, 12
    up, down = (Report("harmony", 0, m._fields.pack([wanted], [sign])) for sign in (1, 0))
    able = [number for number in range(n_liars) if m.matches_coins(up, coins(number))]
    assert 0 < len(able) < 3 * n_liars / m.D  # the mean is 5
    rest = [honest_report(m, number) for number in range(PHONES - len(able))]
    (tmp_path / "up").mkdir()
    (tmp_path / "down").mkdir()
    high = stepped(tmp_path / "up", m, [*[up] * len(able), *rest])
    low = stepped(tmp_path / "down", m, [*[down] * len(able), *rest])
    moved = np.abs(high - low)
    assert moved.ravel().argmax() == wanted
    assert moved.max() == pytest.approx(RATE * len(able) * 2 * m.D * m.c * CLIP, rel=1e-9)


def test_over_rounds_a_liar_of_harmony_weighs_as_much_as_c_phones_at_the_clip():
    """In every entry, whatever it does: positions are k of D, and each counts D c clip/k."""
    m = mechanism("harmony", n_apps=N_APPS, d=DIM, epsilon=EPSILON, clip=CLIP)
    reach = np.zeros(m.D)
    rounds = 4000
    for number in range(rounds):
        reach[distinct(coins(number), m.k, m.D)] += m.D / m.k * m.c * CLIP
    error = 5 * m.D / m.k * m.c * CLIP * np.sqrt(m.k / m.D / rounds)
    assert np.abs(reach / rounds - m.c * CLIP).max() < error


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_the_coins_of_walsh_leave_a_liar_the_best_of_m_codewords(epsilon):
    """Along a row it weighs 2.8 clip/μ on average, where seeds of its choice gave 4 and more."""
    m = mechanism("walsh", n_apps=N_APPS, d=DIM, epsilon=epsilon, clip=CLIP)
    unit = TARGET / np.linalg.norm(TARGET)

    def push(seed: int) -> float:
        """The most that one of its m reports adds along the row, in units of clip/μ."""
        return float(m._alignments(CLIP * unit, seed).max()) / (8.0 * 2**22)

    one = list(m.outputs(7))[5]
    along = float((m.decode([one]) * unit).sum()) * m.mu / CLIP
    assert along == pytest.approx(m._alignments(CLIP * unit, 7)[5] / (8.0 * 2**22), rel=1e-9)
    drawn = [push(int(coins(number).words(1)[0])) for number in range(200)]
    of_normals = np.random.default_rng(1).normal(size=(5000, m.m)).max(axis=1)
    error = 4 * of_normals.std() / np.sqrt(len(drawn))
    assert abs(np.mean(drawn) - of_normals.mean()) < error  # the largest of m normals: 2.8
    assert max(push(seed) for seed in range(1000)) > 4.0


def test_one_hostile_f_max_breaks_the_printed_mechanism():
    """All phones' sum is scaled by the largest f_max: one liar multiplies it as it likes."""
    m = mechanism("qharmony", n_apps=N_APPS, d=DIM, epsilon=EPSILON, allow_unsafe=True)
    rng = np.random.default_rng(1)
    honest = [
        m.encode(0.1 * rng.normal(size=(N_APPS, DIM)), KeyedBits(3, number, 0, "report"))
        for number in range(PHONES)
    ]
    liar = Report(m.name, 0, honest[0].payload[:-8] + np.float64(1e12).tobytes())
    fair, broken = m.decode(honest), m.decode([liar, *honest[1:]])
    assert np.abs(broken).max() > 1e11 * np.abs(fair).max()
    start = rng.normal(0, 0.1, (N_APPS, DIM))
    server = SeqMFLearner(start, ModelSettings(lam=LAM), sgd(RATE), m)
    learnt = apply_reports(server, [liar, *honest[1:]])
    assert np.abs(learnt.app_vectors).max() > 1e9  # one phone of a thousand; Q is lost
    worst = Report(m.name, 0, honest[0].payload[:-8] + np.float64(1.7e308).tobytes())
    with np.errstate(over="ignore"):
        assert not np.isfinite(PHONES * m.decode([worst, *honest[1:]])).all()


def test_a_coordinator_takes_no_mechanism_that_phones_must_not_send(tmp_path):
    for name, options in (
        ("qharmony", {"epsilon": 1.0, "allow_unsafe": True}),
        ("identity", {}),
        ("laplace", {"epsilon": 1.0, "clip": 1.0}),
    ):
        m = mechanism(name, n_apps=N_APPS, d=DIM, **options)
        server = SeqMFLearner(np.zeros((N_APPS, DIM)), ModelSettings(), sgd(RATE), m)
        with pytest.raises(ValueError, match="finitely many reports"):
            Coordinator.start(server, tmp_path)
