"""The fleet's reports are those of its phones: same bits, same bytes."""

from __future__ import annotations

import dataclasses
import statistics
from itertools import pairwise

import numpy as np
import pytest
from phone_reports import encode_reports

from nextapp.compiled import compiled
from nextapp.compiled_bits import stream
from nextapp.data.log import LaunchLog
from nextapp.fleet.columns import Fleet
from nextapp.fleet.encoders import distinct, is_positive, normal_quantile
from nextapp.fleet.rounds import sum_reports
from nextapp.privacy import mechanism
from nextapp.randomness import KeyedBits, response_floor, sign_threshold
from nextapp.randomness import distinct as distinct_in_python
from nextapp.wire import Broadcast, ModelSettings
from slow_seqmf import phones_of_log

N_APPS, DIM, N_PHONES = 25, 6, 30

FINITE = {
    "harmony": ("harmony", {"epsilon": 1.0, "clip": 0.05}),
    "harmony k=5": ("harmony", {"epsilon": 3.0, "clip": 0.2, "k": 5}),
    "harmony all": ("harmony", {"epsilon": 40.0, "clip": 1e-3, "k": N_APPS * DIM}),
    "harmony faint": ("harmony", {"epsilon": 2.0**-32, "clip": 1e-9}),
    "walsh": ("walsh", {"epsilon": 1.1, "clip": 0.1}),
    "walsh b=3": ("walsh", {"epsilon": 6.0, "clip": 5.0, "b": 3}),
    "walsh loud": ("walsh", {"epsilon": 100.0, "clip": 1e-9}),
    "kashin": ("kashin", {"epsilon": 4.5, "clip": 0.1}),
    "kashin tight": ("kashin", {"epsilon": 30.0, "clip": 0.02, "b": 5, "K": 1.3, "frame": 2}),
}
REAL = {  # and the numbers at the end of a payload
    "identity": ("identity", {}, "<f8"),
    "identity linf": ("identity", {"clip": 0.01, "ball": "linf"}, "<f8"),
    "identity l1": ("identity", {"clip": 0.3, "ball": "l1"}, "<f8"),
    "identity l2": ("identity", {"clip": 0.1, "ball": "l2"}, "<f8"),
    "printed": ("qharmony", {"epsilon": 4.5, "allow_unsafe": True}, "<f8"),
    "printed k=7": (
        "qharmony",
        {"epsilon": 2.0, "clip": 0.003, "k": 7, "allow_unsafe": True},
        "<f8",
    ),
    "laplace": ("laplace", {"epsilon": 2.0, "clip": 0.05}, "<f4"),
    "laplace l1": ("laplace", {"epsilon": 2.0, "clip": 0.05, "ball": "l1"}, "<f4"),
}
ALL = FINITE | REAL
ALPHAS = [0.0, 0.001, 0.3]


def made(name: str, n_apps: int = N_APPS, d: int = DIM):
    kind, options = ALL[name][:2]
    return mechanism(kind, n_apps=n_apps, d=d, **options)


def assert_close(kind, mine: bytes, theirs: bytes, numbers: str) -> None:
    """Equal but for the numbers at the end, which may differ in their last places."""
    if not numbers:
        assert mine == theirs
        return
    one = len(theirs) - np.dtype(numbers).itemsize
    head = {"identity": 0, "laplace": 0}.get(kind.name, one)
    assert len(mine) == len(theirs)
    assert mine[:head] == theirs[:head]
    # One unit in the last place; √(1 − ‖x‖²) at ‖x‖ = 1 is the root of a rounding error.
    rtol, atol = {"<f8": (1e-10, 1e-13), "<f4": (1.2e-7, 1e-7)}[numbers]
    mine, theirs = (np.frombuffer(data[head:], numbers) for data in (mine, theirs))
    np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=atol)


def random_log(rng: np.random.Generator, n_phones: int = N_PHONES, n_apps: int = N_APPS):
    lengths = rng.integers(0, 60, n_phones)
    lengths[:3] = [0, 1, 2]
    user = np.repeat(np.arange(n_phones), lengths)
    own = rng.integers(0, n_apps, (n_phones, 7))
    app = own[user, rng.integers(0, 7, len(user))]
    names = [str(k) for k in range(max(n_phones, n_apps))]
    return LaunchLog.from_columns(user, app, np.arange(len(user)), names[:n_phones], names[:n_apps])


@pytest.fixture
def world(rng):
    """A log, its fleet with phones numbered from 1000, and a round's broadcast for any α."""
    log = random_log(rng)
    fleet = dataclasses.replace(Fleet.of_log(log), first_phone=1000)
    vectors = rng.normal(0, 0.4, (N_APPS, DIM))

    def broadcast(alpha: float) -> Broadcast:
        return Broadcast(3, vectors, ModelSettings(lam=0.2, alpha=alpha, gamma=0.7))

    return log, fleet, broadcast


def of_phones(log, broadcast, kind, seed):
    """What the phones report one by one, and their clipped gradients."""
    reports, vectors, clipped = [], [], np.zeros((broadcast.n_apps, broadcast.dim))
    for user, device in enumerate(phones_of_log(log)):
        device.take(broadcast)
        bits = KeyedBits(seed, phone=1000 + user, round=broadcast.round, purpose="report")
        reports.append(kind.encode(device.gradient(), bits, broadcast.round))
        clipped += kind.apply_clip(device.gradient().dense())
        vectors.append(device.user_vector)
    return reports, np.array(vectors), clipped


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("name", ALL)
def test_the_fleet_reports_what_its_phones_would_have_reported(world, seed, name, alpha):
    log, fleet, broadcast_for = world
    broadcast, kind = broadcast_for(alpha), made(name)
    expected, vectors, clipped = of_phones(log, broadcast, kind, seed)
    everyone = np.ones(len(fleet), bool)
    user_vectors = np.zeros((len(fleet), DIM))
    batch = encode_reports(fleet, broadcast, kind, seed, user_vectors, everyone)
    np.testing.assert_allclose(user_vectors, vectors, rtol=1e-10, atol=1e-12)
    reports = batch.reports
    assert batch.phones == list(range(1000, 1000 + len(fleet)))
    if name in FINITE:
        assert reports == expected
    else:
        for mine, theirs in zip(reports, expected, strict=True):
            assert (mine.mechanism, mine.round) == (theirs.mechanism, theirs.round)
            assert_close(kind, mine.payload, theirs.payload, ALL[name][2])

    sums = sum_reports(fleet, broadcast, kind, seed, user_vectors, everyone)
    decoded = kind.decode(reports)
    scale = np.abs(decoded).max()
    np.testing.assert_allclose(sums.mean(kind), decoded, rtol=1e-12, atol=1e-12 * scale)
    np.testing.assert_allclose(sums.true_sum, clipped, rtol=1e-10, atol=1e-12)
    assert sums.n_reports == len(expected)


@pytest.mark.parametrize(("n_apps", "d"), [(9, 16), (40, 1), (4, 32), (3, 5)])
@pytest.mark.parametrize("name", ["walsh", "kashin"])
def test_shapes_that_fit_words_and_groups_and_such_that_do_not(rng, seed, name, n_apps, d):
    log = random_log(rng, 8, n_apps)
    fleet = dataclasses.replace(Fleet.of_log(log), first_phone=1000)
    broadcast = Broadcast(1, rng.normal(0, 0.4, (n_apps, d)), ModelSettings(alpha=0.0))
    kind = made(name, n_apps, d)
    expected = of_phones(log, broadcast, kind, seed)[0]
    vectors, everyone = np.zeros((len(fleet), d)), np.ones(len(fleet), bool)
    assert encode_reports(fleet, broadcast, kind, seed, vectors, everyone).reports == expected


@pytest.mark.parametrize("name", ALL)
def test_neither_threads_nor_shards_nor_the_other_phones_matter(world, seed, name):
    _, fleet, broadcast_for = world
    broadcast, kind = broadcast_for(0.001), made(name)
    user_vectors = np.zeros((len(fleet), DIM))
    some = np.arange(len(fleet)) % 3 != 1
    everyone = np.ones(len(fleet), bool)
    alone = encode_reports(fleet, broadcast, kind, seed, user_vectors, everyone).reports
    reports = encode_reports(
        fleet, broadcast, kind, seed, user_vectors, some, solving=False
    ).reports
    assert reports == [report for report, here in zip(alone, some, strict=True) if here]

    whole = sum_reports(fleet, broadcast, kind, seed, user_vectors, some, threads=1)
    cuts = [0, 11, 11, 20, len(fleet)]
    parts = []
    for first, last in pairwise(cuts):
        shard, here = fleet.shard(first, last), slice(first, last)
        vectors = user_vectors[here]
        parts.append(sum_reports(shard, broadcast, kind, seed, vectors, some[here], threads=2))
    joined = parts[0] + parts[1] + parts[2] + parts[3]
    for field, array in whole.state.items():
        if array.dtype == np.int64 or field == "largest":
            assert np.array_equal(joined.state[field], array)
        np.testing.assert_allclose(joined.state[field], array, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(joined.mean(kind), whole.mean(kind), rtol=1e-12, atol=1e-14)
    assert joined.n_reports == some.sum()
    assert joined.loss == pytest.approx(whole.loss, rel=1e-12)


@pytest.mark.parametrize(
    ("kind", "law"), [("harmony", False), ("identity", False), ("walsh", True)]
)
def test_ranges_are_summed_in_their_order_whatever_the_threads(rng, seed, kind, law):
    n, length = 9000, 6  # three ranges, of several blocks each
    apps = rng.integers(0, N_APPS, n * length).astype(np.int32)
    fleet = Fleet.of_histories(np.arange(n + 1, dtype=np.int64) * length, apps, N_APPS)
    broadcast = Broadcast(0, rng.normal(0, 0.4, (N_APPS, DIM)), ModelSettings(alpha=0.0))
    some = rng.random(n) < 0.7
    vectors = np.zeros((n, DIM))

    def sums(threads: int):
        return sum_reports(
            fleet, broadcast, made(kind), seed, vectors, some, law=law, threads=threads
        )

    one, many = sums(1), sums(3)
    assert one.n_reports == some.sum()
    assert one.loss == many.loss
    assert np.array_equal(one.true_sum, many.true_sum)
    assert all(np.array_equal(one.state[name], many.state[name]) for name in one.state)

    if not law:
        batch = encode_reports(fleet, broadcast, made(kind), seed, vectors, some)
        assert batch.phones == np.flatnonzero(some).tolist()
        whole = batch.reports
        part = fleet.shard(4000, 4200)
        here = slice(4000, 4200)
        reports = encode_reports(
            part, broadcast, made(kind), seed, vectors[here], some[here]
        ).reports
        before = int(some[:4000].sum())
        assert reports == whole[before : before + len(reports)]


def test_nobody_has_no_mean(world, seed):
    _, fleet, broadcast_for = world
    user_vectors, everyone = np.zeros((len(fleet), DIM)), np.ones(len(fleet), bool)
    args = (fleet, broadcast_for(0.0), made("harmony"))
    nobody = sum_reports(*args, seed, user_vectors, ~everyone)
    with pytest.raises(ValueError, match="at least one report"):
        nobody.mean(args[2])


def test_bad_settings_are_refused_before_any_work(world, seed):
    _, fleet, broadcast_for = world
    broadcast, kind = broadcast_for(0.0), made("harmony")
    user_vectors, everyone = np.zeros((len(fleet), DIM)), np.ones(len(fleet), bool)
    small = Broadcast(0, np.ones((5, DIM)), ModelSettings())
    with pytest.raises(ValueError, match="knows 25 apps, the broadcast has vectors for 5"):
        sum_reports(fleet, small, kind, seed, user_vectors, everyone)
    with pytest.raises(ValueError, match=r"made for gradients of \(25, 7\)"):
        sum_reports(fleet, broadcast, made("harmony", d=7), seed, user_vectors, everyone)
    with pytest.raises(ValueError, match="user_vectors must be"):
        sum_reports(fleet, broadcast, kind, seed, user_vectors[1:], everyone)
    with pytest.raises(ValueError, match="reporting must be 30 bools"):
        sum_reports(fleet, broadcast, kind, seed, user_vectors, everyone[1:])
    with pytest.raises(ValueError, match="seed must be"):
        sum_reports(fleet, broadcast, kind, -1, user_vectors, everyone)


def test_a_gradient_that_is_not_finite_is_refused(world, seed):
    _, fleet, broadcast_for = world
    user_vectors, everyone = np.zeros((len(fleet), DIM)), np.ones(len(fleet), bool)
    user_vectors[7] = np.nan
    with pytest.raises(FloatingPointError, match="gradient of phone 1007 is not finite"):
        sum_reports(
            fleet, broadcast_for(0.0), made("harmony"), seed, user_vectors, everyone, solving=False
        )


def test_float32_is_near(world, seed):
    _, fleet, broadcast_for = world
    broadcast, kind = broadcast_for(0.001), made("identity l2")
    everyone, sums = np.ones(len(fleet), bool), []
    for dtype in (np.float32, np.float64):
        vectors = np.zeros((len(fleet), DIM), dtype)
        sums.append(sum_reports(fleet, broadcast, kind, seed, vectors, everyone, dtype=dtype))
    np.testing.assert_allclose(sums[0].true_sum, sums[1].true_sum, atol=1e-4)
    assert sums[0].loss == pytest.approx(sums[1].loss, rel=1e-4)


# --- the compiled draws, word for word -----------------------------------------------------------


@compiled
def _distinct(seed: int, n: int, bound: int):
    out = np.empty(n, np.int64)
    distinct(stream(seed, 0, 0, 0), bound, out)
    return out


@pytest.mark.parametrize(("n", "bound"), [(1, 1), (3, 3), (2, 5), (40, 41), (7, 32_000)])
def test_distinct_positions_are_those_of_python(seed, n, bound):
    for trial in range(20):
        expected = distinct_in_python(KeyedBits(seed + trial), n, bound)
        assert _distinct(seed + trial, n, bound).tolist() == expected


@pytest.mark.parametrize("floor", [0, 1, 12345, response_floor(1.0), response_floor(2.0**-32)])
def test_signs_turn_at_the_threshold_to_the_last_word(rng, floor):
    top = (1 << 64) - 1
    extremes = [-1.0, 1.0, 0.0, -0.0, 2.0**-60, -(2.0**-53), 1 - 2.0**-53, -1 + 2.0**-52]
    for x in [*extremes, *rng.uniform(-1, 1, 50)]:
        threshold = sign_threshold(float(x), floor)
        for word in {0, top, *(min(max(threshold + step, 0), top) for step in (-1, 0, 1))}:
            drawn = is_positive(np.uint64(word), float(x), np.uint64(floor))
            assert drawn == (word < threshold)


def test_the_normal_quantile_is_pythons(rng):
    law = statistics.NormalDist()
    for p in [*rng.uniform(0, 1, 200), 1e-300, 1e-20, 1e-9, 0.075, 0.925, 1 - 1e-16, 0.5]:
        assert normal_quantile(float(p)) == pytest.approx(law.inv_cdf(float(p)), rel=1e-14)
