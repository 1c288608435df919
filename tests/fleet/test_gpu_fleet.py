"""A fleet on a card plays the rounds that the processor plays.

The kernels' own source runs here on the processor (`EmulatedCard`); with NEXTAPP_TEST_DEVICE=gpu,
which `make gpu-test` sets, the same tests run on a card. Each length of app vectors is compiled
anew, so tests to which the length does not matter share one.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys

import numpy as np
import pytest
from emulated_card import EmulatedCard

from nextapp.data import synthetic
from nextapp.fleet import rounds
from nextapp.fleet.columns import Fleet
from nextapp.fleet.gpu import reporting as on_card
from nextapp.fleet.gpu.card import Card, NoGpu, first_card
from nextapp.fleet.gpu.reporting import ResidentFleet
from nextapp.fleet.rounds import check_device, fleet_phones
from nextapp.learners import SeqMFLearner, adam, run_rounds
from nextapp.privacy import mechanism
from nextapp.wire import Broadcast, ModelSettings

N_APPS = 90
HARMONIES = {
    "harmony": ("harmony", {"epsilon": 1.0, "clip": 0.05}),
    "k=5": ("harmony", {"epsilon": 3.0, "clip": 0.2, "k": 5}),
    "faint": ("harmony", {"epsilon": 2.0**-32, "clip": 1e-9}),
    "loud": ("harmony", {"epsilon": 200.0, "clip": 1e-3, "k": 1}),
}
BALLS = {
    "none": {},
    "linf": {"clip": 0.01, "ball": "linf"},
    "linf cuts the background": {"clip": 1e-6, "ball": "linf"},
    "l1": {"clip": 0.3, "ball": "l1"},
    "l2": {"clip": 0.05, "ball": "l2"},
}
BY_LAW = {
    "laplace": ({"epsilon": 2.0, "clip": 0.05}, [0.0, 0.3]),
    "walsh": ({"epsilon": 1.1, "clip": 0.1}, [0.0]),
}


@pytest.fixture(scope="module")
def card(tmp_path_factory):
    if os.environ.get("NEXTAPP_TEST_DEVICE") == "gpu":
        return Card()
    if shutil.which("g++") is None:
        pytest.skip("no g++ to run the kernels on the processor")
    return EmulatedCard(tmp_path_factory.mktemp("kernels"))


def random_fleet(rng, n_phones=24, n_apps=N_APPS, most=14, first_phone=0) -> Fleet:
    """Phones with up to `most` apps; one without a launch, one with a single one."""
    histories = []
    for phone in range(n_phones):
        own = rng.choice(n_apps, rng.integers(1, most + 1), replace=False)
        length = [0, 1][phone] if phone < 2 else rng.integers(1, 6 * most)
        histories.append(rng.choice(own, length).astype(np.int32))
    starts = np.concatenate([[0], np.cumsum([len(each) for each in histories])])
    return Fleet.of_histories(starts, np.concatenate(histories), n_apps, first_phone)


def broadcast_of(rng, d, n_apps=N_APPS, round=3, **settings) -> Broadcast:
    return Broadcast(round, rng.normal(0, 0.4, (n_apps, d)), ModelSettings(**settings))


def play_both(fleet, card, broadcast, made, seed, *, dtype=np.float64, **options):
    """Sums and user vectors of the processor, then of the card."""
    vectors = np.zeros((len(fleet), broadcast.dim))
    theirs = rounds.sum_reports(fleet, broadcast, made, seed, vectors, **options)
    resident = ResidentFleet(fleet, card)
    mine = on_card.sum_reports(resident, broadcast, made, seed, dtype=dtype, **options)
    solved = card.download(resident.user_vectors(broadcast.dim, np.dtype(dtype)))
    return theirs, mine, vectors, solved


def assert_same(mine, theirs, tolerance=1e-10) -> None:
    size = np.abs(theirs).max(initial=0.0)
    np.testing.assert_allclose(mine, theirs, rtol=0, atol=tolerance * max(size, 1e-30))


@pytest.mark.parametrize("reading", ["example", "equation", "authors", "none"])
@pytest.mark.parametrize(("d", "alpha"), [(1, 0.0), (6, 0.3), (16, 0.0), (16, 0.02), (21, 0.02)])
def test_the_step_is_that_of_the_processor(rng, card, d, alpha, reading):
    fleet = random_fleet(rng, first_phone=7)
    broadcast = broadcast_of(rng, d, alpha=alpha, reading=reading, gamma=0.7)
    made = mechanism("identity", n_apps=N_APPS, d=d)
    theirs, mine, p_theirs, p_mine = play_both(fleet, card, broadcast, made, 0)
    assert_same(p_mine, p_theirs)
    assert_same(mine.true_sum, theirs.true_sum)
    assert mine.loss == pytest.approx(theirs.loss, rel=1e-10)
    assert mine.n_reports == theirs.n_reports


@pytest.mark.parametrize("d", [40, 64])
def test_long_vectors(rng, card, d):
    fleet = random_fleet(rng, n_phones=9)
    made = mechanism("identity", n_apps=N_APPS, d=d)
    theirs, mine, p_theirs, p_mine = play_both(
        fleet, card, broadcast_of(rng, d, alpha=0.1), made, 0
    )
    assert_same(p_mine, p_theirs)
    assert_same(mine.true_sum, theirs.true_sum)


@pytest.mark.parametrize(("most", "n_apps"), [(40, N_APPS), (80, N_APPS), (300, 400)])
def test_phones_with_many_apps(rng, card, most, n_apps):
    """From shared memory for 16 apps to workspaces in the card's main memory."""
    fleet = random_fleet(rng, 40, n_apps, most)
    assert np.diff(fleet.columns.app_starts).max() > {40: 32, 80: 64, 300: 200}[most]
    made = mechanism("harmony", n_apps=n_apps, d=6, epsilon=9.0, clip=0.02)
    broadcast = broadcast_of(rng, 6, n_apps, alpha=0.01)
    theirs, mine, p_theirs, p_mine = play_both(fleet, card, broadcast, made, 5)
    assert_same(p_mine, p_theirs)
    assert_same(mine.true_sum, theirs.true_sum)
    assert np.array_equal(mine.state["tally"], theirs.state["tally"])


@pytest.mark.parametrize("alpha", [0.0, 0.3])
@pytest.mark.parametrize("ball", BALLS)
def test_clipped_sums_are_those_of_the_processor(rng, card, ball, alpha):
    fleet, broadcast = random_fleet(rng), broadcast_of(rng, 6, alpha=alpha)
    made = mechanism("identity", n_apps=N_APPS, d=6, **BALLS[ball])
    theirs, mine, *_ = play_both(fleet, card, broadcast, made, 0)
    assert_same(mine.true_sum, theirs.true_sum)
    assert_same(mine.mean(made), theirs.mean(made))
    assert mine.n_reports == theirs.n_reports


@pytest.mark.parametrize("alpha", [0.0, 0.3])
@pytest.mark.parametrize("name", HARMONIES)
def test_reports_are_those_of_the_processor(rng, card, seed, name, alpha):
    """All together, and each phone alone: positions and signs to the last bit."""
    kind, options = HARMONIES[name]
    fleet, broadcast = random_fleet(rng, first_phone=11), broadcast_of(rng, 6, alpha=alpha)
    made = mechanism(kind, n_apps=N_APPS, d=6, **options)
    for some in (fleet, *(fleet.shard(phone, phone + 1) for phone in range(len(fleet)))):
        theirs, mine, *_ = play_both(some, card, broadcast, made, seed)
        assert np.array_equal(mine.state["tally"], theirs.state["tally"])
        assert np.array_equal(mine.mean(made), theirs.mean(made))


@pytest.mark.parametrize(
    ("name", "alpha"), [(name, alpha) for name, (_, alphas) in BY_LAW.items() for alpha in alphas]
)
def test_sums_by_law_are_those_of_the_processor(rng, card, seed, name, alpha):
    fleet, broadcast = random_fleet(rng), broadcast_of(rng, 6, alpha=alpha)
    made = mechanism(name, n_apps=N_APPS, d=6, **BY_LAW[name][0])
    theirs, mine, *_ = play_both(fleet, card, broadcast, made, seed, law=True)
    assert mine.state.keys() == theirs.state.keys()
    assert_same(mine.mean(made), theirs.mean(made), 1e-8)


def test_float32_is_near(rng, card, seed):
    fleet, broadcast = random_fleet(rng, 60), broadcast_of(rng, 16)
    made = mechanism("harmony", n_apps=N_APPS, d=16, epsilon=1.0, clip=0.05)
    theirs, mine, p_theirs, p_mine = play_both(fleet, card, broadcast, made, seed, dtype=np.float32)
    assert 0 < np.abs(p_mine - p_theirs).max() < 2e-5 * np.abs(p_theirs).max()
    assert_same(mine.true_sum, theirs.true_sum, 2e-5)
    assert np.array_equal(mine.state["tally"], theirs.state["tally"])


def test_sums_do_not_depend_on_the_order_of_the_phones(rng, card, seed):
    """Whole numbers: three shards in any order, to the last bit."""
    fleet, broadcast = random_fleet(rng, 30, most=30), broadcast_of(rng, 6, alpha=0.0)
    made = mechanism("walsh", n_apps=N_APPS, d=6, epsilon=1.0, clip=0.1)
    whole = on_card.sum_reports(ResidentFleet(fleet, card), broadcast, made, seed, law=True)
    again = on_card.sum_reports(ResidentFleet(fleet, card), broadcast, made, seed, law=True)
    assert np.array_equal(whole.true_sum, again.true_sum)
    assert np.array_equal(whole.state["sum"], again.state["sum"])
    parts = [
        on_card.sum_reports(
            ResidentFleet(fleet.shard(*ends), card), broadcast, made, seed, law=True
        )
        for ends in ((20, 30), (0, 7), (7, 20))
    ]
    assert_same(sum(part.true_sum for part in parts), whole.true_sum, 1e-12)
    assert_same(sum(part.state["sum"] for part in parts), whole.state["sum"], 1e-12)


def test_entries_taller_than_a_first_try_has_room_for(rng, card):
    """Unclipped gradients of long app vectors: the sum is made again with room for them."""
    fleet = random_fleet(rng)
    broadcast = Broadcast(0, rng.normal(0, 40.0, (N_APPS, 6)), ModelSettings(lam=0.3))
    made = mechanism("identity", n_apps=N_APPS, d=6)
    theirs, mine, *_ = play_both(fleet, card, broadcast, made, 0)
    assert np.abs(theirs.true_sum).max() > 2**10
    assert_same(mine.true_sum, theirs.true_sum)


def test_no_phones_at_all(rng, card):
    broadcast = broadcast_of(rng, 6)
    made = mechanism("harmony", n_apps=N_APPS, d=6, epsilon=1.0, clip=0.1)
    nobody = ResidentFleet(random_fleet(rng).shard(0, 0), card)
    sums = on_card.sum_reports(nobody, broadcast, made, 0)
    assert sums.n_reports == 0
    assert not sums.true_sum.any()


def test_a_gradient_that_is_not_finite_is_refused(rng, card):
    fleet = random_fleet(rng, first_phone=100)
    vectors = np.zeros((N_APPS, 6))
    vectors[fleet.columns.apps[-1]] = 1e110
    made = mechanism("harmony", n_apps=N_APPS, d=6, epsilon=1.0, clip=0.1)
    with pytest.raises(FloatingPointError, match="not finite"):
        on_card.sum_reports(
            ResidentFleet(fleet, card),
            Broadcast(0, vectors, ModelSettings()),
            made,
            0,
            dtype=np.float64,
        )


def test_transitions_that_no_word_has_room_for(rng, card, seed):
    """A phone with 300 apps, and one that goes back and forth 70,000 times."""
    histories = [rng.integers(0, 300, 2000), np.tile([0, 1], 70_000), rng.integers(0, 9, 50)]
    starts = np.concatenate([[0], np.cumsum([len(each) for each in histories])])
    fleet = Fleet.of_histories(starts, np.concatenate(histories).astype(np.int32), 300)
    assert ResidentFleet(fleet, card).columns[4] is None
    broadcast = Broadcast(0, rng.normal(0, 0.4, (300, 6)), ModelSettings(alpha=0.0))
    made = mechanism("identity", n_apps=300, d=6)
    theirs, mine, *_ = play_both(fleet, card, broadcast, made, seed)
    assert_same(mine.true_sum, theirs.true_sum)


def test_synthetic_phones_on_the_card(card, seed):
    parameters = synthetic.fleet_parameters(200, 300)
    starts, apps = synthetic.histories(parameters, seed, 0, 200)
    fleet = Fleet.of_histories(starts, apps, 300)
    vectors = np.random.default_rng(seed).normal(0, 0.1, (300, 16))
    broadcast = Broadcast(0, vectors, ModelSettings())
    made = mechanism("harmony", n_apps=300, d=16, epsilon=1.0, clip=0.02)
    theirs, mine, p_theirs, p_mine = play_both(fleet, card, broadcast, made, seed)
    assert_same(p_mine, p_theirs)
    assert_same(mine.true_sum, theirs.true_sum)
    assert np.array_equal(mine.state["tally"], theirs.state["tally"])


@pytest.mark.parametrize("name", ["harmony", "walsh"])
def test_three_rounds_on_the_card_train_the_q_of_the_processor(rng, card, seed, monkeypatch, name):
    monkeypatch.setattr("nextapp.fleet.gpu.card.first_card", lambda: card)
    fleet, broadcast = random_fleet(rng, 60), broadcast_of(rng, 6, round=0, alpha=0.0)
    made = mechanism(name, n_apps=N_APPS, d=6, epsilon=4.0, clip=0.1)
    trained = {}
    for device in ("cpu", "gpu"):
        learner = SeqMFLearner(broadcast.app_vectors, broadcast.settings, adam(0.01), made)
        run_rounds(learner, fleet_phones(fleet, made, seed, device), 3)
        trained[device] = learner.broadcast.app_vectors
    assert_same(trained["gpu"], trained["cpu"], 1e-5)
    assert np.abs(trained["gpu"] - broadcast.app_vectors).max() > 0.01


def test_what_a_card_does_not_do_is_refused_in_words(rng, card):
    fleet = ResidentFleet(random_fleet(rng), card)
    long = mechanism("identity", n_apps=N_APPS, d=65)
    with pytest.raises(ValueError, match="at most 64"):
        on_card.sum_reports(fleet, broadcast_of(rng, 65), long, 0)
    walsh_ = mechanism("walsh", n_apps=N_APPS, d=6, epsilon=1.0, clip=0.1)
    with pytest.raises(ValueError, match="not walsh otherwise"):
        on_card.sum_reports(fleet, broadcast_of(rng, 6, alpha=0.0), walsh_, 0)
    with pytest.raises(ValueError, match="alpha = 0, walsh; not walsh"):
        on_card.sum_reports(fleet, broadcast_of(rng, 6, alpha=0.3), walsh_, 0, law=True)
    kashin = mechanism("kashin", n_apps=N_APPS, d=6, epsilon=1.0, clip=0.1)
    with pytest.raises(ValueError, match="not kashin"):
        on_card.sum_reports(fleet, broadcast_of(rng, 6, alpha=0.0), kashin, 0)


def test_without_the_library_the_error_has_the_install_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    first_card.cache_clear()
    with pytest.raises(NoGpu, match=r"install nextapp\[gpu\] \(docs/install.md\)"):
        check_device("gpu")
    with pytest.raises(ValueError, match="unknown device 'tpu'"):
        check_device("tpu")


def test_a_command_without_the_library_ends_at_once_with_the_install_line(monkeypatch):
    testing = pytest.importorskip("click.testing")
    monkeypatch.setitem(sys.modules, "cupy", None)
    first_card.cache_clear()
    app = importlib.import_module("nextapp.cli.commands").app
    out = testing.CliRunner().invoke(app, ["simulate", "--phones", "1000000", "--device", "gpu"])
    assert out.exit_code == 1
    assert out.output == "error: device 'gpu' needs CuPy: install nextapp[gpu] (docs/install.md)\n"
