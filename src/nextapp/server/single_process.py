"""Gateway and coordinator in one process on one SQLite file."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from nextapp.server.coordinator import Closed, Coordinator
from nextapp.server.gateway import Gateway
from nextapp.server.http_limits import guarded
from nextapp.server.rounds import RoundRules, Verdict
from nextapp.server.settings import FederationSettings, changed, settings_of
from nextapp.server.vault import Vault, VaultError

LOG = logging.getLogger("nextapp.coordinator")

_TICK_SECONDS = 0.1
_RETRY_SECONDS = 5.0


class SingleProcess:
    """A coordinator and the one vault it takes its reports from.

    Every step can be cut off by a crash and done again: a round is closed in the vault, reduced in
    the vault, absorbed with a checkpoint, and only then the next one is published. `resume` goes on
    from whichever of these was the last.
    """

    def __init__(self, coordinator: Coordinator, vault: Vault, rules: RoundRules) -> None:
        self.coordinator = coordinator
        self.vault = vault
        self.rules = rules
        self._absorbed: Closed | None = None  # a round that is in the learner, not yet on disk

    def resume(self, now: float) -> None:
        """Bring vault and coordinator to the same round after a start or a crash."""
        round = self.vault.round()
        if round is not None:
            while self.coordinator.round < round.number:
                self._absorb_again(round.number)
            if round.number < self.coordinator.round and self.vault.reduced(round.number) is None:
                # A vault older than its checkpoints: these reports are in a step already.
                self.vault.close_round(round.number)
                self.vault.reduce(round.number, self.coordinator.learner.mechanism)
        self._publish(now)
        self.vault.amend(self.rules, now)

    def tick(self, now: float) -> Closed | Verdict:
        """Close, reduce, step and publish if it is time; else what the rules say.

        Where the disk refuses any of it, the next tick goes on from there.
        """
        if self._absorbed is None:
            verdict = self.vault.settle(now)
            if verdict is not Verdict.CLOSE:
                return verdict
            number = self.coordinator.round
            reduced = self.vault.reduce(number, self.coordinator.learner.mechanism)
            self._absorbed = self.coordinator.absorbed([reduced])
        self.coordinator.save()
        self._publish(now)
        closed, self._absorbed = self._absorbed, None
        return closed

    def _publish(self, now: float) -> None:
        self.vault.publish(
            self.rules.opened(self.coordinator.round, now), self.coordinator.published(), self.rules
        )

    def _absorb_again(self, vault_round: int) -> None:
        number = self.coordinator.round
        reduced = self.vault.reduced(number)
        if reduced is None:
            raise ValueError(
                f"the checkpoints end at round {number}, the vault is at round {vault_round} and "
                f"no longer has the sums in between: restore checkpoints and vault from the same "
                f"backup, or go on from these app vectors with --skip-to {vault_round + 1}."
            )
        self.coordinator.absorb([reduced])


@contextmanager
def lock_folder(folder: Path, patience: float = 0.0) -> Iterator[None]:
    """The folder, for this process alone; a second server on it is refused after `patience` s."""
    give_up = time.monotonic() + patience
    with (folder / "lock").open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                if time.monotonic() < give_up:
                    time.sleep(0.2)
                    continue
                raise ValueError(
                    f"another server runs on {folder}: stop it first, or give this one another "
                    f"folder."
                ) from None
            break
        yield


def create_or_resume(
    folder: Path,
    given: Mapping[str, Any],
    apps: tuple[str, ...] | None,
    *,
    skip_to: int | None = None,
    start: Path | None = None,
) -> tuple[Coordinator, FederationSettings]:
    """The coordinator of a folder as it was left, or a new one if the folder holds none.

    Parameters
    ----------
    given
        Settings that were asked for this time; see `settings`.
    apps
        The catalogue of a new federation.
    skip_to
        Pass over rounds until this one, after a restore.
    start
        The folder of another federation, stopped, where a new one goes on: with its catalogue, app
        vectors, crowd, accounting and round number, under other settings; `apps` may add to it.
    """
    path = folder / "settings.json"
    checkpoints = folder / "checkpoints"
    settings = settings_for(folder, given, apps, start)
    if path.exists():
        coordinator = Coordinator.resumed(
            checkpoints, settings.restored_learner, minimum=settings.minimum
        )
        known = coordinator.learner.broadcast.apps
        if apps is not None and apps != known:
            raise ValueError(
                f"the catalogue of {folder} has {len(known):,} apps and is not the one given: "
                f"leave --apps out, or start in another folder."
            )
    else:
        if start is not None:
            return _continued(start, settings, folder, apps), settings
        coordinator = Coordinator.started(
            settings.new_learner(_needed(apps)), checkpoints, minimum=settings.minimum
        )
    settings.write(path)
    if skip_to is not None:
        coordinator.skip_to(skip_to)
    return coordinator, settings


def settings_for(
    folder: Path, given: Mapping[str, Any], apps: tuple[str, ...] | None, start: Path | None
) -> FederationSettings:
    """The settings under which `create_or_resume` would go on or begin; it writes nothing."""
    path = folder / "settings.json"
    if path.exists():
        return changed(FederationSettings.read(path), given)
    settings = settings_of(given)
    if start is not None:
        FederationSettings.read(start / "settings.json")
    else:
        _needed(apps)
    return settings


def _needed(apps: tuple[str, ...] | None) -> tuple[str, ...]:
    if apps is None:
        raise ValueError(
            "a new federation needs a catalogue: --apps FILE with one app name a line, or "
            "--apps N for apps that are known by number."
        )
    return apps


def _continued(
    start: Path, settings: FederationSettings, folder: Path, apps: tuple[str, ...] | None
) -> Coordinator:
    """A coordinator one round further than the one of `start`, whose last words it takes over."""
    before = FederationSettings.read(start / "settings.json")
    last = Coordinator.resumed(start / "checkpoints", before.restored_learner)
    broadcast = last.learner.broadcast
    if apps is not None:
        broadcast = settings.grown(broadcast, apps)
    coordinator = Coordinator.started(
        settings.new_learner(broadcast.apps, broadcast),
        folder / "checkpoints",
        minimum=settings.minimum,
        first=broadcast.round + 1,
        accounting=last.accounting,
        history=last.next_history(),
    )
    settings.write(folder / "settings.json")
    return coordinator


def open_federation(
    folder: Path,
    given: Mapping[str, Any],
    apps: tuple[str, ...] | None,
    *,
    now: float,
    skip_to: int | None = None,
    start: Path | None = None,
) -> tuple[SingleProcess, FederationSettings]:
    """The federation of a folder with its vault beside the coordinator; see `create_or_resume`.

    Where it goes on from another one at `start`, that one's devices need not enrol again.
    """
    coordinator, settings = create_or_resume(folder, given, apps, skip_to=skip_to, start=start)
    vault = Vault(folder / "vault.sqlite")
    if start is not None and vault.round() is None:
        vault.adopt(start / "vault.sqlite", before=coordinator.round)
    federation = SingleProcess(coordinator, vault, settings.rules)
    federation.resume(now)
    return federation, settings


class _Server(uvicorn.Server):
    """uvicorn, stopped by a signal without raising it again: the rest is put away in order."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        with super().capture_signals():
            yield
            self._captured_signals.clear()


def open_socket(host: str, port: int) -> socket.socket:
    """A socket at this address, open for connections before anything else is started."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    opened = socket.socket(family)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind((host, port))
        opened.listen(2048)
    except OSError as error:
        opened.close()
        raise ValueError(f"{host} port {port} cannot be listened on: {error.strerror}.") from error
    return opened


def serve(
    federation: SingleProcess | None, gateway: Gateway, opened: socket.socket, **options: Any
) -> None:
    """Run on a socket until SIGTERM or SIGINT. `options` are uvicorn's: ssl_certfile, …

    Without `federation`, another process opens and closes the rounds of the gateway's vault.
    """
    config = uvicorn.Config(
        gateway,
        http=guarded(gateway.limits, gateway.metrics),
        ws="none",
        log_config=None,
        log_level="error",  # what clients do wrong is counted, not logged
        access_log=False,
        server_header=False,
        timeout_keep_alive=gateway.limits.keep_alive_seconds,
        timeout_graceful_shutdown=10,
        **{"proxy_headers": False, **options},
    )

    async def run() -> None:
        server = _Server(config)
        ticking = federation and asyncio.create_task(_ticking(federation, gateway))
        try:
            await server.serve([opened])
        finally:
            if ticking:
                ticking.cancel()

    sys.setswitchinterval(0.001)  # the thread that writes must not wait for the event loop
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(run())


async def _ticking(federation: SingleProcess, gateway: Gateway) -> None:
    while True:
        await asyncio.sleep(_TICK_SECONDS)
        try:
            ended = await asyncio.to_thread(federation.tick, time.time())
        except (VaultError, OSError) as error:
            gateway.metrics.storage.add("tick")
            LOG.warning("the round cannot go on, next try in %g s: %s", _RETRY_SECONDS, error)
            await asyncio.sleep(_RETRY_SECONDS)
            continue
        except Exception:  # reports are taken meanwhile; an operator must look
            gateway.metrics.rounds.add("stuck")
            LOG.exception("the round cannot go on, next try in %g s", _RETRY_SECONDS)
            await asyncio.sleep(_RETRY_SECONDS)
            continue
        if isinstance(ended, Closed):
            await asyncio.to_thread(gateway.refresh)
            gateway.metrics.rounds.add("stepped" if ended.stepped else "passed_over")
            LOG.info(ended.words)
        elif ended is Verdict.EXTEND:
            gateway.metrics.rounds.add("extended")
            LOG.warning(
                "round %d is below its minimum of %d reports at its deadline: nothing was "
                "changed, it stays open for another %g s.",
                federation.coordinator.round,
                federation.rules.minimum,
                federation.rules.seconds,
            )
