"""Real phones over HTTP against the embedded server, beside the same phones in one process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from servers import DIM, N_APPS, SETTINGS, ServerProcess, token_bytes

from nextapp.fleet.columns import Fleet
from nextapp.fleet.reporting import sum_reports
from nextapp.learners import CrowdLearner, SeqMFLearner, adam
from nextapp.predictors.factorised import phones as cores_of
from nextapp.privacy import mechanism
from nextapp.randomness import DeviceCoins, KeyedBits
from nextapp.server import single_process
from nextapp.server.http_phones import PlayedFleet, launches
from nextapp.wire import Broadcast, ModelSettings

PHONES, ROUNDS = 12, 3


@pytest.mark.parametrize("name", ["harmony", "codebook", "duchi"])
def test_the_q_of_phones_over_http_is_that_of_the_simulation_to_the_last_bit(tmp_path, seed, name):
    """Phone by phone with the coins of their tokens; a fleet in columns has no tokens, so it is
    held against duchi, whose reports have no public part."""
    options = {"mechanism": name, "optimiser": "adam", "goal": PHONES, "minimum": PHONES}
    with ServerProcess(tmp_path / "server", **options) as server:
        fleet = PlayedFleet(
            f"http://127.0.0.1:{server.port}",
            tmp_path / "phones",
            phones=PHONES,
            seed=seed,
            code=server.code(PHONES),
        )
        client = server.client()
        first = Broadcast.from_bytes(client.request("GET", "/v1/broadcast")[2])
        played = fleet.play(ROUNDS, lambda one: None)
        last = Broadcast.from_bytes(client.request("GET", "/v1/broadcast")[2])
        tokens = [token_bytes(phone.store.setting("token")) for phone in fleet.phones]
        fleet.close()
    assert [one.outcomes for one in played] == [{"accepted": PHONES}] * ROUNDS
    assert last.round == ROUNDS

    made = mechanism(name, n_apps=N_APPS, d=DIM, epsilon=2.0, clip=1.0)
    log = launches(PHONES, N_APPS, seed)
    cores = cores_of(log)
    by_phones, by_columns = (
        SeqMFLearner(first.app_vectors, ModelSettings(), adam(SETTINGS["rate"]), made)
        for _ in range(2)
    )
    columns = Fleet.of_log(log)
    for number in range(ROUNDS):
        for phone, (core, token) in enumerate(zip(cores, tokens, strict=True)):
            core.update(by_phones.broadcast)
            bits, coins = KeyedBits(seed, phone, number, "report"), DeviceCoins(token, number)
            by_phones.collect(made.encode(core.answer(made), bits, number, coins))
        by_phones.step()
        sums = sum_reports(
            columns, by_columns.broadcast, made, seed, np.zeros((PHONES, DIM)),
            np.ones(PHONES, bool),
        )  # fmt: skip
        by_columns.apply_sum(sums.n_reports * sums.mean(made), sums.n_reports)
    assert np.array_equal(last.app_vectors, by_phones.broadcast.app_vectors)
    if name == "duchi":
        np.testing.assert_allclose(last.app_vectors, by_columns.broadcast.app_vectors, rtol=1e-9)


def test_phones_tell_the_crowd_and_go_on_with_q_under_the_same_tokens(tmp_path, seed):
    """First shares of launches, then gradients: two federations, one after the other."""
    options = {"mechanism": "subset", "clip": None, "goal": PHONES, "minimum": PHONES}
    with ServerProcess(tmp_path / "crowd", **options) as server:
        fleet = PlayedFleet(
            f"http://127.0.0.1:{server.port}", tmp_path / "phones", phones=PHONES, seed=seed,
            code=server.code(PHONES),
        )  # fmt: skip
        assert fleet.play(1, lambda one: None)[0].outcomes == {"accepted": PHONES}
        told = Broadcast.from_bytes(server.client().request("GET", "/v1/broadcast")[2])
        fleet.close()
        server.stop()
    oracle = mechanism("subset", n_apps=N_APPS, d=N_APPS + 1, epsilon=2.0)
    simulated = CrowdLearner(oracle, told.apps)
    for phone, core in enumerate(cores_of(launches(PHONES, N_APPS, seed))):
        core.update(simulated.broadcast)
        bits = KeyedBits(seed, phone, 0, "report")
        simulated.collect(oracle.encode(core.answer(oracle), bits, 0))
    expected = simulated.step().crowd
    assert told.round == 1
    for name in ("popularity", "starts", "following", "share"):
        assert np.array_equal(getattr(told.crowd, name), getattr(expected, name))

    given = {**SETTINGS, "goal": PHONES}
    federation, _ = single_process.open_federation(
        tmp_path / "q", given, None, now=time.time(), start=tmp_path / "crowd"
    )
    handed = Broadcast.from_bytes(federation.vault.published().broadcast)
    assert (handed.round, handed.dim, handed.apps) == (2, DIM, told.apps)
    assert np.array_equal(handed.crowd.popularity, expected.popularity)
    assert federation.vault.n_devices() == PHONES
    assert federation.coordinator.accounting.epsilon_worst_case == 2.0
    federation.vault.close()
    again, _ = single_process.open_federation(tmp_path / "q", given, None, now=time.time())
    learner = again.coordinator.learner
    assert np.array_equal(learner.broadcast.crowd.share, expected.share)  # also from a checkpoint
    again.vault.close()


def test_the_commands_serve_and_fleet_play_a_federation_with_tls(tmp_path):
    """As an operator would: start, play, stop, start again."""
    folder = tmp_path / "federation"
    command = [sys.executable, "-m", "nextapp", "serve", "--data", str(folder), "--port", "0"]
    first = ["--apps", "20", "--mechanism", "codebook", "--epsilon", "4", "--clip", "1",
             "--goal", "6", "--deadline", "30", "--dim", "4", "--dev-tls"]  # fmt: skip
    environment = {**os.environ, "COLUMNS": "200"}

    def started(*options):
        process = subprocess.Popen(
            [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=environment,
        )  # fmt: skip
        return process, process.stdout.readline()

    process, line = started(*first)
    address = line.split()[0]
    try:
        assert address.startswith("https://127.0.0.1:")
        result = tmp_path / "rounds.json"
        subprocess.run(
            [sys.executable, "-m", "nextapp", "play-phones", "--server", address,
             "--data", str(folder), "--ca", str(folder / "tls" / "ca.pem"),
             "--phones", "6", "--rounds", "2", "--json", str(result)],
            check=True, capture_output=True, timeout=120,
        )  # fmt: skip
        rounds = json.loads(result.read_text())["rounds"]
        assert [one["round"] for one in rounds] == [0, 1]
        assert [one["outcomes"] for one in rounds] == [{"accepted": 6}] * 2
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
        assert process.returncode == 0, err
        assert "stopped at round 2" in out
        assert oct((folder / "tls" / "key.pem").stat().st_mode)[-3:] == "600"
        process, line = started("--dev-tls")
        assert " round 2, 20 apps, d = 4" in line
    finally:
        process.kill()
        process.communicate()
