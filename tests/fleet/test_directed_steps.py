"""The fleet's form of the directed model against `nextapp.directed`, phone by phone."""

from __future__ import annotations

import numpy as np
import pytest

from nextapp import directed
from nextapp.fleet.columns import Fleet
from nextapp.fleet.reporting import encode_reports, sum_reports
from nextapp.privacy import mechanism
from nextapp.randomness import KeyedBits
from nextapp.wire import Broadcast, ModelSettings

N_APPS, D = 13, 5


@pytest.fixture
def histories(rng):
    """With phones that launched nothing, once, twice, and one app only."""
    lengths = [0, 1, 2, *rng.integers(3, 60, 20).tolist()]
    own = [rng.choice(N_APPS, 6) for _ in lengths]
    return [*(rng.choice(apps, n) for apps, n in zip(own, lengths, strict=True)), np.full(7, 3)]


def fleet_of(histories):
    starts = np.concatenate([[0], np.cumsum([len(each) for each in histories])])
    return Fleet.of_histories(starts, np.concatenate(histories).astype(np.int32), N_APPS)


def broadcast_of(rng, scale, lam=0.4):
    return Broadcast(3, rng.normal(0, scale, (2 * N_APPS, D)), ModelSettings(lam=lam))


def of_phone(history, broadcast, p=None):
    """p, the gradient and the loss of one phone; 0 without a transition."""
    Q, R = np.split(broadcast.app_vectors, 2)
    lam, phone = broadcast.settings.lam, directed.transitions_of(history, N_APPS)
    p = directed.user_vector(Q, R, phone, lam) if p is None else p
    if len(history) < 2:
        return p, np.zeros((2 * N_APPS, D)), 0.0
    return p, directed.gradient(Q, R, p, phone), directed.loss(Q, R, p, phone, lam)


@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_the_step_is_that_of_the_phones(rng, histories, scale):
    fleet, broadcast = fleet_of(histories), broadcast_of(rng, scale)
    plain = mechanism("identity", n_apps=2 * N_APPS, d=D)
    users, everyone = np.zeros((len(fleet), D)), np.ones(len(fleet), bool)
    sums = sum_reports(fleet, broadcast, plain, 0, users, everyone, model="directed")
    alone = [of_phone(history, broadcast) for history in histories]
    np.testing.assert_allclose(users, [p for p, _, _ in alone], rtol=1e-10, atol=1e-11)
    total = sum(gradient for _, gradient, _ in alone)
    np.testing.assert_allclose(sums.true_sum, total, rtol=1e-10, atol=1e-10)
    assert sums.loss == pytest.approx(sum(loss for _, _, loss in alone), rel=1e-10)


def test_only_phones_that_report_count_and_a_given_p_is_taken_as_it_is(rng, histories):
    fleet, broadcast = fleet_of(histories), broadcast_of(rng, 0.5)
    plain = mechanism("identity", n_apps=2 * N_APPS, d=D)
    users, some = rng.normal(size=(len(fleet), D)), rng.random(len(fleet)) < 0.5
    kept = users.copy()
    sums = sum_reports(fleet, broadcast, plain, 0, users, some, model="directed", solving=False)
    expected = sum(of_phone(histories[u], broadcast, kept[u])[1] for u in np.flatnonzero(some))
    np.testing.assert_allclose(sums.true_sum, expected, rtol=1e-10, atol=1e-10)
    assert np.array_equal(users, kept)
    assert sums.n_reports == some.sum()


def test_scores_beyond_what_a_float_can_exponentiate(rng, histories):
    """exp(r_jᵀq_i) and exp(q_iᵀp) are each taken alone, and their product may vanish."""
    broadcast = broadcast_of(rng, 25.0)
    plain = mechanism("identity", n_apps=2 * N_APPS, d=D)
    users = rng.normal(0, 40, (len(histories), D))
    fleet, everyone = fleet_of(histories), np.ones(len(histories), bool)
    with np.errstate(divide="ignore", invalid="ignore"):
        sums = sum_reports(
            fleet, broadcast, plain, 0, users, everyone, model="directed", solving=False
        )
        alone = [of_phone(h, broadcast, p)[1] for h, p in zip(histories, users, strict=True)]
    np.testing.assert_allclose(sums.true_sum, sum(alone), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", ["codebook", "harmony", "laplace", "privunit", "identity"])
def test_a_report_is_that_of_the_phone_alone(rng, histories, name, seed):
    """The same bits, the same payload; the server decodes the same mean."""
    fleet, broadcast = fleet_of(histories), broadcast_of(rng, 0.5)
    clip = 0.1  # some gradients are longer, some shorter
    given = {"n_apps": 2 * N_APPS, "d": D}
    made = mechanism(name, **given, **({} if name == "identity" else {"epsilon": 2, "clip": clip}))
    users, everyone = np.zeros((len(fleet), D)), np.ones(len(fleet), bool)
    batch = encode_reports(fleet, broadcast, made, seed, users, everyone, model="directed")
    alone = [
        made.encode(of_phone(h, broadcast)[1], KeyedBits(seed, u, 3, "report"), round=3)
        for u, h in enumerate(histories)
    ]
    mean = made.decode(batch.reports())
    np.testing.assert_allclose(mean, made.decode(alone), rtol=1e-6, atol=1e-6)
    if name in ("codebook", "harmony"):
        assert batch.reports() == alone
    sums = sum_reports(fleet, broadcast, made, seed, users, everyone, model="directed")
    np.testing.assert_allclose(sums.mean(made), mean, rtol=1e-6, atol=1e-6)


def test_the_law_of_the_sum_has_the_mean_and_the_spread_of_the_reports(rng, histories, seed):
    """5 σ: over 400 rounds the mean errs by its σ/20, and the variance by a tenth of itself."""
    fleet, broadcast = fleet_of(histories), broadcast_of(rng, 0.5)
    made = mechanism("codebook", n_apps=2 * N_APPS, d=D, epsilon=2.0, clip=0.3)
    users, everyone = np.zeros((len(fleet), D)), np.ones(len(fleet), bool)
    found = {
        mode: np.array(
            [
                sum_reports(
                    fleet, broadcast, made, 1000 * seed + k, users, everyone, mode=mode,
                    model="directed", threads=1,
                ).mean(made)
                for k in range(400)
            ]
        ).reshape(400, -1)
        for mode in ("exact", "law")
    }  # fmt: skip
    sigma = found["exact"].std(axis=0)
    apart = found["law"].mean(axis=0) - found["exact"].mean(axis=0)
    assert np.abs(apart / sigma).max() < 5.5 * np.sqrt(2 / 400)
    ratio = found["law"].var(axis=0).sum() / found["exact"].var(axis=0).sum()
    assert ratio == pytest.approx(1.0, abs=5 * np.sqrt(4 / 400 / sigma.size) + 0.02)


def test_vectors_that_do_not_fit_are_refused(rng, histories):
    fleet = fleet_of(histories)
    users, everyone = np.zeros((len(fleet), D)), np.ones(len(fleet), bool)
    for n_rows, model, says in (
        (N_APPS, "directed", "every app needs a vector"),
        (2 * N_APPS + 1, "directed", "two rows per app"),
        (N_APPS, "mf", "model must be one of seqmf, directed"),
    ):
        made = mechanism("identity", n_apps=n_rows, d=D)
        broadcast = Broadcast(0, np.zeros((n_rows, D)), ModelSettings())
        with pytest.raises(ValueError, match=says):
            sum_reports(fleet, broadcast, made, 0, users, everyone, model=model)
