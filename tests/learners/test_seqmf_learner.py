from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from all_reports import apply_reports
from nextapp import storage
from nextapp.learners import (
    SeqMFLearner,
    adam,
    momentum,
    read_checkpoint,
    sgd,
    starting_vectors,
    write_checkpoint,
)
from nextapp.phone.core import PhoneCore
from nextapp.privacy import mechanism
from nextapp.randomness import KeyedBits
from nextapp.storage import write_atomically
from nextapp.wire import ModelSettings, Report, WireError


def phones(rng, n, n_apps):
    devices, histories = [], []
    for _ in range(n):
        own = rng.choice(n_apps, rng.integers(1, 6), replace=False)
        history = rng.choice(own, rng.integers(0, 40)).tolist()
        device = PhoneCore()
        for number, app in enumerate(history):
            device.observe(app, 10.0 * number)
        devices.append(device)
        histories.append(history)
    return devices, histories


def straight_from_the_paper(Q, histories, settings, step, rounds):
    """Eqs. (5), (7), (9), (10), (12), (13) with dense matrices; no code of the package."""
    n_apps, d = Q.shape
    state = {}
    for _ in range(rounds):
        total = np.zeros_like(Q)
        for history in histories:
            counts = np.bincount(np.array(history, int), minlength=n_apps).astype(float)
            powers = np.where(counts > 0, counts**settings.gamma, 0.0)
            c = (powers + settings.alpha) / (powers.sum() + settings.alpha * n_apps or 1.0)
            a = (counts > 0).astype(float)
            S = np.zeros((n_apps, n_apps))
            for i, j in pairwise(history):
                S[i, j] += 1
            S /= np.maximum(S.sum(axis=1, keepdims=True), 1)
            h = np.diag(S @ Q @ Q.T)
            C = np.diag(c)
            p = np.linalg.inv(Q.T @ C @ Q + settings.lam * np.eye(d)) @ Q.T @ C @ (a - h)
            D = np.diag(c * (Q @ p + h - a))
            total += D @ np.outer(np.ones(n_apps), p) + (D @ S + S.T @ D) @ Q
        Q = step(Q, total + settings.lam * Q, state)
    return Q


def plain_sgd(Q, slope, state):
    return Q - 0.05 * slope


def plain_momentum(Q, slope, state):
    state["v"] = 0.9 * state.get("v", 0.0) + slope
    return Q - 0.02 * state["v"]


def plain_adam(Q, slope, state):
    t = state["t"] = state.get("t", 0) + 1
    state["m"] = 0.9 * state.get("m", 0.0) + 0.1 * slope
    state["s"] = 0.999 * state.get("s", 0.0) + 0.001 * slope * slope
    return Q - 0.01 * (state["m"] / (1 - 0.9**t)) / (np.sqrt(state["s"] / (1 - 0.999**t)) + 1e-8)


@pytest.mark.parametrize("alpha", [0.0, 0.3])
@pytest.mark.parametrize(
    ("optimiser", "plain"),
    [(sgd(0.05), plain_sgd), (momentum(0.02), plain_momentum), (adam(0.01), plain_adam)],
)
def test_phones_and_server_train_the_q_of_the_paper(rng, seed, alpha, optimiser, plain):
    settings = ModelSettings(lam=0.1, alpha=alpha, gamma=0.5)
    devices, histories = phones(rng, 20, 12)
    start = rng.normal(0, 0.3, (12, 4))
    server = SeqMFLearner(start, settings, optimiser, mechanism("identity", n_apps=12, d=4))
    for round_ in range(15):
        reports = []
        for number, device in enumerate(devices):
            device.take(server.broadcast)
            bits = KeyedBits(seed, number, round_)
            data = server.mechanism.encode(device.gradient(), bits, round_).to_bytes()
            reports.append(Report.from_bytes(data))
        apply_reports(server, reports)
    expected = straight_from_the_paper(start, histories, settings, plain, 15)
    assert server.broadcast.round == 15
    np.testing.assert_allclose(server.broadcast.app_vectors, expected, rtol=0, atol=1e-9)
    assert np.abs(expected - start).max() > 0.01


@pytest.fixture
def server(rng) -> SeqMFLearner:
    identity = mechanism("identity", n_apps=4, d=2)
    return SeqMFLearner(
        rng.normal(size=(4, 2)), ModelSettings(), adam(0.1), identity, tuple("abcd")
    )


def report_for(server, F):
    return server.mechanism.encode(F, KeyedBits(0), server.broadcast.round)


@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_a_step_into_infinity_is_refused_and_changes_nothing(rng):
    identity = mechanism("identity", n_apps=4, d=2)
    server = SeqMFLearner(rng.normal(size=(4, 2)), ModelSettings(), sgd(1e200), identity)
    before = server.broadcast
    report = report_for(server, np.full((4, 2), 1e200))
    with pytest.raises(FloatingPointError, match="Lower the learning rate"):
        apply_reports(server, [report])
    assert server.broadcast is before


@pytest.mark.parametrize("optimiser", [sgd(0.1), momentum(0.1), adam(0.1)])
def test_a_server_that_was_saved_and_loaded_goes_on_as_if_it_had_never_stopped(
    rng, tmp_path, optimiser
):
    gradients = rng.normal(size=(6, 4, 2))
    start = rng.normal(size=(4, 2))
    identity = mechanism("identity", n_apps=4, d=2)
    through = SeqMFLearner(start, ModelSettings(alpha=0.5), optimiser, identity, tuple("abcd"))
    stopped = SeqMFLearner(start, ModelSettings(alpha=0.5), optimiser, identity, tuple("abcd"))
    for F in gradients:
        for each in (through, stopped):
            apply_reports(each, [report_for(each, F)])
        write_checkpoint(tmp_path / "checkpoint", stopped.state())
        stopped = SeqMFLearner.restore(
            read_checkpoint(tmp_path / "checkpoint"), optimiser, identity
        )
    assert np.array_equal(stopped.broadcast.app_vectors, through.broadcast.app_vectors)
    assert stopped.broadcast.settings == through.broadcast.settings
    assert (stopped.broadcast.round, stopped.broadcast.apps) == (6, ("a", "b", "c", "d"))


def test_a_checkpoint_of_another_optimiser_is_refused(server, tmp_path):
    write_checkpoint(tmp_path / "checkpoint", server.state())
    with pytest.raises(ValueError, match="was saved with the optimiser"):
        SeqMFLearner.restore(read_checkpoint(tmp_path / "checkpoint"), sgd(0.1), server.mechanism)


def test_another_file_is_refused(server, tmp_path):
    (tmp_path / "b").write_bytes(server.broadcast.to_bytes())
    with pytest.raises(WireError, match="no checkpoint"):
        SeqMFLearner.restore(read_checkpoint(tmp_path / "b"), server.optimiser, server.mechanism)


@pytest.mark.parametrize("at", ["write", "fsync", "replace"])
def test_a_full_disk_during_a_save_leaves_the_one_before_intact(server, tmp_path, monkeypatch, at):
    path = tmp_path / "checkpoint"
    write_checkpoint(path, server.state())
    before = path.read_bytes()
    apply_reports(server, [report_for(server, np.ones((4, 2)))])

    def fails(*_args):
        raise OSError(28, "No space left on device")

    if at == "write":
        monkeypatch.setattr(storage, "os", _Patched(fdopen=fails))
    else:
        monkeypatch.setattr(storage, "os", _Patched(**{at: fails}))
    with pytest.raises(OSError, match="No space"):
        write_checkpoint(path, server.state())
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint"]


class _Patched:
    """The module os, some of its functions replaced."""

    def __init__(self, **replaced):
        self.__dict__.update(replaced)

    def __getattr__(self, name):
        return getattr(os, name)


def test_a_kill_in_the_middle_of_a_save_leaves_a_whole_file(tmp_path):
    """A child saves two contents in turn, as fast as it can, and is killed; a whole one is left."""
    path = tmp_path / "checkpoint"
    write_atomically(path, b"a" * 3_000_000)
    code = (
        "import sys, pathlib; from nextapp.storage import write_atomically\n"
        "print('ready', flush=True)\n"
        "while True:\n"
        "    for word in (b'a', b'b'):\n"
        "        write_atomically(pathlib.Path(sys.argv[1]), word * 3_000_000)\n"
    )
    for delay in (0.05, 0.11, 0.17):
        child = subprocess.Popen(
            [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        child.stdout.readline()
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(delay)
        child.kill()
        child.wait()
        child.stdout.close()
        data = Path(path).read_bytes()
        assert len(data) == 3_000_000
        assert len(set(data)) == 1


def test_random_vectors_have_the_scale_asked_for(seed):
    """The standard deviation of 40,000 draws is within 2 % but for one seed in ten thousand."""
    vectors = starting_vectors(1000, 40, 0.001, seed)
    assert vectors.std() == pytest.approx(0.001, rel=0.02)


@pytest.mark.parametrize("optimiser", [sgd, momentum, adam])
@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_a_learning_rate_must_be_positive(optimiser, rate):
    with pytest.raises(ValueError, match="learning rate"):
        optimiser(rate)
