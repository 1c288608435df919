"""How mechanisms are made and chosen, their clips, and what is special to one of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from catalogue import ALL, FINITE, gradients, made

from nextapp import model
from nextapp.phone.core import OPTIONS, Limits, PhoneCore
from nextapp.privacy import MECHANISMS, FiniteMechanism, mechanism
from nextapp.randomness import KeyedBits
from nextapp.wire import Broadcast, ModelSettings, Report, ReportRequest, WireError

SIZE = {"n_apps": 5, "d": 4}


def test_every_mechanism_has_its_name_and_says_what_it_promises():
    for name, options in ALL:
        m = made(name, options)
        assert m.name == name
        assert (m.n_apps, m.d) == (5, 4)
        assert isinstance(m, FiniteMechanism) == (name in FINITE)
        if m.unsafe:
            assert m.guarantee.epsilon == math.inf
            assert m.guarantee.sent_in_clear
        else:
            assert m.guarantee.epsilon == m.epsilon == 2.0
            assert m.guarantee.sent_in_clear == ()
            assert m.guarantee.covers
            assert m.guarantee.assumptions
    assert {name for name, _ in ALL} == set(MECHANISMS)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"name": "wolsh", "epsilon": 1.0, "clip": 1.0}, "did you mean 'walsh'"),
        ({"name": "zzz"}, "Known: identity, laplace"),
        ({"name": "harmony", "epsilon": 1.0, "clip": 1.0, "kk": 2}, "did you mean 'k'"),
        ({"name": "harmony", "clip": 1.0}, "harmony needs epsilon"),
        ({"name": "harmony", "epsilon": 1.0}, "harmony needs clip"),
        ({"name": "identity", "epsilon": 1.0}, "identity: unknown option 'epsilon'"),
        ({"name": "harmony", "epsilon": 1.0, "clip": 1.0, "z": 2}, "Known: epsilon, clip, k"),
        ({"name": "harmony", "epsilon": 0.0, "clip": 1.0}, "epsilon must be"),
        ({"name": "laplace", "epsilon": math.inf, "clip": 1.0}, "epsilon must be"),
        ({"name": "harmony", "epsilon": 1.0, "clip": 0.0}, "clip must be"),
        ({"name": "harmony", "epsilon": 1.0, "clip": math.nan}, "clip must be"),
        ({"name": "harmony", "epsilon": 1.0, "clip": 1.0, "k": 81}, "k must be"),
        ({"name": "laplace", "epsilon": 1.0, "clip": 1.0, "ball": "l2"}, "ball must be"),
        ({"name": "identity", "clip": 1.0, "ball": "l7"}, "ball must be"),
        ({"name": "walsh", "epsilon": 1.0, "clip": 1.0, "b": 0}, "b must be"),
        ({"name": "kashin", "epsilon": 1.0, "clip": 1.0, "b": 17}, "b must be"),
        ({"name": "kashin", "epsilon": 1.0, "clip": 1.0, "K": 0.5}, "K must be"),
        ({"name": "walsh", "epsilon": 1.0, "clip": 1.0, "b": 13}, "b must be"),
        ({"name": "walsh", "epsilon": 1.0, "clip": 1.0, "n_apps": 2**19}, "below 2\\^23"),
        ({"name": "qharmony", "epsilon": 1.0}, "allow_unsafe=True.* on phones use 'harmony'"),
        ({"name": "harmony", "epsilon": 1.0, "clip": 1.0, "n_apps": 0}, "n_apps must be"),
    ],
)
def test_a_mistake_is_named_with_its_remedy(arguments, says):
    with pytest.raises(ValueError, match=says):
        mechanism(**{"n_apps": 5, "d": 16, **arguments})


@pytest.mark.parametrize(("name", "options"), ALL)
@pytest.mark.parametrize("bad", [np.zeros((4, 5)), np.full((5, 4), np.nan), np.zeros(20)])
def test_a_gradient_that_does_not_fit_is_refused(name, options, bad):
    with pytest.raises(ValueError, match=r"gradients of|must be finite"):
        made(name, options).encode(bad, KeyedBits(0))


@pytest.mark.parametrize(("name", "options"), ALL)
def test_the_clip_is_the_nearest_way_into_the_ball(name, options, rng):
    m = made(name, options)
    norms = {
        "linf": lambda F: np.abs(F).max(),
        "l1": lambda F: np.abs(F).sum(),
        "l2": np.linalg.norm,
        "none": lambda F: 0.0,
    }
    for kind, F in gradients(rng).items():
        clipped = m.apply_clip(F)
        assert norms[m.ball](clipped) <= 2.0 * (1 + 1e-12)
        if norms[m.ball](F) <= 2.0:
            np.testing.assert_allclose(clipped, F, rtol=1e-14, err_msg=kind)
        assert (clipped * F >= 0).all()


@pytest.mark.parametrize(("name", "options"), ALL)
def test_the_largest_gradient_there_is_does_not_overflow(name, options, seed):
    m = made(name, options, clip=1e-3)
    F = np.full((5, 4), 1.7e308)
    F[2] *= -1
    m.encode(F, KeyedBits(seed))
    if m.ball != "none":
        assert np.isfinite(m.apply_clip(F)).all()
        assert np.abs(m.apply_clip(F)).max() > 1e-5


@pytest.mark.parametrize(("name", "options"), ALL)
@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_a_phones_own_form_of_the_gradient_gives_the_same_report(name, options, alpha, rng, seed):
    Q = rng.normal(0, 0.5, (5, 4))
    stats = model.phone_statistics(np.array([3, 1, 3, 3, 4]))
    c, c0 = model.phone_confidence(stats, 5, alpha, 1.0)
    p = rng.normal(size=4)
    F = model.phone_gradient(stats, Q, p, c, c0, model.phone_short_term(stats, Q[stats.apps]))
    m = made(name, options)
    own = [m.encode(F, KeyedBits(seed, number)) for number in range(20)]
    dense = [m.encode(F.dense(), KeyedBits(seed, number)) for number in range(20)]
    if name == "identity":
        np.testing.assert_allclose(m.decode(own), m.decode(dense), rtol=1e-12, atol=1e-15)
    else:
        assert own == dense


# --- on a phone --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in MECHANISMS if name != "identity"])
def test_a_phone_reports_by_what_is_finite_and_nothing_else(name, rng):
    """Whatever its owner allows: no real numbers, nothing in the clear."""
    limits = Limits(per_report=9.0, mechanisms=tuple(OPTIONS))
    request = ReportRequest(name, 2.0, None if name == "qharmony" else 1.0)
    broadcast = Broadcast(0, rng.normal(0, 0.3, (5, 4)), ModelSettings(), request=request)
    if name in FINITE:
        made_for = limits.mechanism_for(broadcast, "seqmf")
        phone = PhoneCore()
        for number, app in enumerate([3, 1, 3]):
            phone.observe(app, 10.0 * number)
        phone.take(broadcast)
        made_for.check(made_for.encode(phone.answer(), KeyedBits(1), 0))
        assert made_for.guarantee.epsilon == 2.0
    else:
        with pytest.raises(WireError, match="which no phone sends"):
            limits.mechanism_for(broadcast, "seqmf")


# --- one at a time -----------------------------------------------------------------------------


def paper_mechanism(**options):
    return mechanism("qharmony", epsilon=2.0, allow_unsafe=True, **SIZE, **options)


def test_the_printed_qharmony_by_hand(rng, seed):
    """Algorithm 2 with loops, on the reports of Algorithm 1."""
    m = paper_mechanism(k=3)
    gradients_ = rng.normal(0, 1, (30, 5, 4))
    reports = [m.encode(F, KeyedBits(seed, number)) for number, F in enumerate(gradients_)]
    s, z = np.zeros((5, 4)), np.zeros((5, 4))
    for report in reports:
        positions, signs, _ = m._parts([report])
        for position, sign in zip(positions[0], signs[0], strict=True):
            s[divmod(position, 4)] += sign
            z[divmod(position, 4)] += sign > 0
    f_max = max(F.max() for F in gradients_)
    np.testing.assert_allclose(m.decode(reports), f_max / z.max() * s, rtol=1e-12)


def test_the_printed_qharmony_gives_its_f_max_away(rng):
    m = paper_mechanism(k=1)
    F = np.abs(rng.normal(0, 1, (5, 4)))
    other = F.copy()
    other[np.unravel_index(F.argmax(), F.shape)] = 0.0  # one app less
    report = m.encode(F, KeyedBits(0))
    assert m.log_prob(report, F) > -math.inf
    assert m.log_prob(report, other) == -math.inf


def test_printed_probabilities_beyond_0_and_1_are_cut():
    m = paper_mechanism(k=20)
    F = np.full((5, 4), -90.0)
    F[0, 0] = 1.0
    report = m.encode(F, KeyedBits(0))
    assert m._parts([report])[1][0, 1:].tolist() == [-1] * 19


@pytest.mark.parametrize("entry", [0.0, -0.5])
def test_the_printed_qharmony_where_f_max_is_not_positive(entry):
    m = paper_mechanism()
    report = m.encode(np.full((5, 4), entry), KeyedBits(0))
    assert m._parts([report])[2][0] == entry


def test_no_positive_sign_gives_no_update_and_says_so():
    """R5: z_max = 0."""
    m = made("qharmony", {"k": 1, "allow_unsafe": True})
    n = len(m.encode(np.zeros((5, 4)), KeyedBits(0)).payload)
    with pytest.warns(RuntimeWarning, match="z_max = 0"):
        assert not m.decode([Report("qharmony", 0, bytes(n))]).any()


def test_one_hostile_phone_blows_up_the_printed_mean_but_not_the_mended_one(rng, seed):
    honest = [rng.normal(0, 0.1, (5, 4)) for _ in range(50)]
    hostile = np.full((5, 4), 1e12)
    for m, bound in ((paper_mechanism(), math.inf), (made("harmony", {}), 100.0)):
        reports = [m.encode(F, KeyedBits(seed, n)) for n, F in enumerate([*honest, hostile])]
        largest = np.abs(m.decode(reports)).max()
        assert largest < bound
        if m.unsafe:
            assert largest > 1e10


@pytest.mark.parametrize("size", [(3, 2), (20, 8), (87, 16)])
def test_kashin_coefficients_are_flat_and_give_the_gradient_back(size, rng):
    n_apps, d = size
    m = mechanism("kashin", epsilon=4.5, n_apps=n_apps, d=d, clip=1.0)
    D = n_apps * d
    kinds = [rng.normal(size=D), np.ones(D), np.eye(D)[0], rng.standard_t(2, size=D)]
    kinds += [np.where(np.arange(D) < min(n, D), 1.0, 0.0) for n in (2, 3)]
    for x in kinds:
        F = (x / np.linalg.norm(x)).reshape(n_apps, d)
        y = m.coefficients(F)
        back = m._synthesis(y * m.K / math.sqrt(m.N))
        np.testing.assert_allclose(back, F.ravel(), atol=1e-12)
        if D > 100:
            assert np.abs(y).max() <= 1.0


def test_identity_can_clip_as_another_mechanism_would(rng):
    F = rng.normal(0, 5, (5, 4))
    for ball in ("linf", "l1", "l2"):
        m = mechanism("identity", clip=1.0, ball=ball, **SIZE)
        np.testing.assert_allclose(
            m.decode([m.encode(F, KeyedBits(0))]), m.apply_clip(F), rtol=1e-15
        )
        assert m.log_prob(m.encode(F, KeyedBits(0)), F) == 0.0
        assert m.log_prob(m.encode(F, KeyedBits(0)), F / 1e3) == -math.inf
