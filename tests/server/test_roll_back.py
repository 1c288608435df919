"""A server that goes back to what it had learnt before phones lied; phones go on with it."""

from __future__ import annotations

import asyncio
import logging
import time

import numpy as np
import pytest
from servers import unsigned_token

from nextapp.cli.commands import app as command
from nextapp.phone import Phone, Store
from nextapp.phone.core import PhoneCore, read_broadcast
from nextapp.privacy import requested_mechanism
from nextapp.randomness import KeyedBits
from nextapp.server import folders
from nextapp.server.federation import Closed
from nextapp.server.folders import lock_folder, open_federation
from nextapp.server.gateway import Gateway
from nextapp.server.vault import Outcome, Submission

NAMES = tuple(f"app-{row}" for row in range(6))
GIVEN = {
    "slots": 8, "goal": 20, "minimum": 10, "deadline": 60.0, "grace": 0.0, "epsilon": 20.0,
}  # fmt: skip
NOON = 1_790_000_000.0


def handed_out(federation):
    return read_broadcast(federation.vault.broadcast())


def reported(federation, step: int, n: int = 20, target: int | None = None) -> None:
    """Phones that always go `step` apps further, or to the `target` every other time."""
    broadcast = handed_out(federation)
    made, some = requested_mechanism(broadcast), []
    for device in range(n):
        core = PhoneCore()
        for number in range(12):
            app = (device + step * number) % len(NAMES)
            core.observe(app if target is None or number % 2 else target, 60.0 * number)
        core.take(broadcast)
        bits = KeyedBits(step, device, broadcast.round, "report")
        payload = made.encode(core.answer(), bits, broadcast.round).payload
        some.append(
            Submission(unsigned_token(f"{device} {broadcast.round}"), broadcast.round, payload)
        )
    assert set(federation.vault.admit(some)) == {Outcome.ACCEPTED}


@pytest.fixture
def lied_to(tmp_path):
    """Two honest rounds, one of liars, and a round at hand with seven reports."""
    folder = tmp_path / "federation"
    federation, _ = open_federation(folder, GIVEN, NAMES, now=0.0)
    seen = [federation.vault.broadcast()]
    for step in (1, 1, 2):
        reported(federation, step)
        assert isinstance(federation.tick(0.0), Closed)
        seen.append(federation.vault.broadcast())
    reported(federation, 2, 7)
    federation.vault.close()
    return folder, seen


def test_a_round_in_which_phones_lie_is_counted_and_warned_of(tmp_path, caplog):
    """It was one more line among those of all rounds: no alarm could see it."""
    federation, _ = open_federation(tmp_path, GIVEN, NAMES, now=time.time())
    gateway = Gateway(federation.vault)

    def sample(name: str, **labels: str) -> float:
        return gateway.metrics.registry.get_sample_value(name, labels)

    def ended() -> float:
        kinds = ("stepped", "passed_over", "extended", "stuck")
        return sum(sample("nextapp_rounds_total", ending=kind) for kind in kinds)

    async def closed(target: int | None) -> None:
        number = federation.coordinator.round
        reported(federation, 1, 400, target)
        ticking = asyncio.create_task(federation.run(gateway, None))
        async with asyncio.timeout(60):
            while ended() <= number:
                await asyncio.sleep(0.02)
        ticking.cancel()

    with caplog.at_level(logging.INFO):
        for _ in range(2):
            asyncio.run(closed(None))
        assert sample("nextapp_anomalies_total") == 0
        asyncio.run(closed(4))
    federation.vault.close()
    assert sample("nextapp_anomalies_total") == 1
    assert [record.levelname for record in caplog.records] == ["INFO", "INFO", "WARNING"]


def test_what_came_after_is_forgotten_and_rounds_and_accounts_go_on(lied_to, tmp_path):
    folder, seen = lied_to
    before, lied = read_broadcast(seen[2]), read_broadcast(seen[3])
    assert not np.array_equal(before.crowd.share, lied.crowd.share)
    assert folders.roll_back(folder, 2) == 4
    federation, _ = open_federation(folder, GIVEN, None, now=0.0)
    now = handed_out(federation)
    assert now.round == 4
    assert np.array_equal(now.crowd.share, before.crowd.share)
    assert np.array_equal(now.crowd.following, before.crowd.following)
    assert np.array_equal(now.crowd.popularity, before.crowd.popularity)
    accounts = federation.coordinator.accounting
    assert (accounts.reports, accounts.rounds_stepped, accounts.rounds_passed_over) == (67, 3, 1)
    assert accounts.epsilon_worst_case == pytest.approx(80.0)
    with Store.create(tmp_path / "phone.db") as store:  # it was there all the time
        phone = Phone(store, clock=lambda: NOON)
        for data in (*seen, federation.vault.broadcast()):
            phone.take(data)
        assert phone.round == 4
        assert phone.store.history_gaps == 0
    reported(federation, 1)
    assert isinstance(federation.tick(0.0), Closed)
    assert federation.coordinator.learner.n_transitions == 60
    federation.vault.close()
    again, _ = open_federation(folder, GIVEN, None, now=0.0)  # also after the next start
    assert again.coordinator.learner.n_transitions == 60
    again.vault.close()


def test_an_unknown_round_and_a_running_server_are_refused(lied_to):
    folder, _ = lied_to
    with pytest.raises(ValueError, match="there are those of 0, 1, 2, 3"):
        folders.roll_back(folder, 9)
    with lock_folder(folder), pytest.raises(ValueError, match="another server runs"):
        folders.roll_back(folder, 2)
    federation, _ = open_federation(folder, GIVEN, None, now=0.0)
    assert federation.coordinator.round == 3
    assert federation.vault.round().n_reports == 7
    federation.vault.close()


def test_the_command_says_what_comes_next(lied_to):
    from click.testing import CliRunner

    folder, _ = lied_to
    result = CliRunner().invoke(command, ["admin", "roll-back", str(folder), "--to", "2"])
    assert result.exit_code == 0, result.output
    assert "round 4" in " ".join(result.output.split())
