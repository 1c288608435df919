"""Rounds: what is learnt takes a step along the reports of each, and phones get it in the next.

`Coordinator` owns the learner and keeps a checkpoint of each round; time and reports reach it as
arguments. `Federation` is one with the vault that it takes its reports from, in one process.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nextapp.learners import Learner, LearnerState, read_checkpoint, write_checkpoint
from nextapp.privacy import FiniteMechanism, Mechanism, requested_mechanism
from nextapp.server.vault import Due, Reduced, RoundRules, Vault
from nextapp.storage import write_atomically
from nextapp.wire import Broadcast, History, TokenKey, WireError, digest_of, history_from

if TYPE_CHECKING:
    from nextapp.server.gateway import Gateway

LOG = logging.getLogger("nextapp.coordinator")

CHECKPOINTS_KEPT = 10
"""How many rounds an operator can roll back."""

_TICK_SECONDS = 0.1
_RETRY_SECONDS = 5.0


@dataclass(frozen=True)
class Accounting:
    """What phones have spent at the most.

    ``epsilon_worst_case`` is that of a device which reported in every round so far.
    """

    rounds_stepped: int = 0
    rounds_passed_over: int = 0
    reports: int = 0
    epsilon_worst_case: float = 0.0


@dataclass(frozen=True)
class Closed:
    """What became of a round, in figures and in a message.

    ``anomaly``: its reports differ from all before by more than chance; an operator must look.
    """

    round: int
    n_reports: int
    stepped: bool
    message: str
    anomaly: bool = False


class Coordinator:
    """Steps the learner along the sum of a round. A round is absorbed once, also after a crash.

    The ``state`` is that of a checkpoint, of which the learner was made.
    """

    def __init__(self, learner: Learner, folder: Path, state: LearnerState | None = None) -> None:
        _finite(learner.mechanism)
        self.learner = learner
        self.folder = folder
        if state is None:
            self.accounting, self.history = Accounting(), History()
            self.publish(())
        else:
            self.accounting = Accounting(**json.loads(state.words["accounting"]))
            self.history = history_from(json.loads(state.words["history"]))
            published = state.tensors["broadcast"].tobytes()
            self.keys = Broadcast.from_bytes(published).keys
            self._published = self.round, published

    @property
    def round(self) -> int:
        return self.learner.broadcast.round

    def published(self) -> bytes:
        """The broadcast of the current round as phones get it: the same bytes after a restart.

        They are kept in the checkpoint, since another machine, NumPy or version of this program
        might write others, and phones would take the next broadcast for that of a fork.
        """
        return self._published[1]

    def publish(self, keys: tuple[TokenKey, ...]) -> None:
        """Write the broadcast of the current round, which no phone has yet, with these keys."""
        self.keys = keys
        broadcast = replace(self.learner.broadcast, history=self.history, keys=keys)
        self._published = self.round, broadcast.to_bytes()

    @classmethod
    def start(cls, learner: Learner, folder: Path) -> Coordinator:
        """A new federation, with its first checkpoint on disk."""
        folder.mkdir(parents=True, exist_ok=True)
        coordinator = cls(learner, folder)
        coordinator.save()
        return coordinator

    @classmethod
    def resume(cls, folder: Path, restore: Callable[[LearnerState], Learner]) -> Coordinator:
        """As the newest checkpoint that can be read left it; `restore` makes the learner of it."""
        damage = []
        for path in checkpoints(folder):
            try:
                state = read_checkpoint(path)
                coordinator = cls(restore(state), folder, state)
            except (WireError, KeyError) as error:
                damage.append(f"{path.name}: {error}")
            else:
                if damage:
                    LOG.warning("a round earlier is taken: %s", "; ".join(damage))
                return coordinator
        raise ValueError(
            f"{folder} has no checkpoint that can be read ({'; '.join(damage) or 'it is empty'}): "
            f"restore it from a backup."
        )

    def absorb(self, parts: Sequence[Reduced], minimum: int, keys: tuple[TokenKey, ...]) -> Closed:
        """Close the current round with the tallies of its gateways; `save` follows.

        A round of fewer reports than the minimum changes nothing: it is passed over, and
        `Closed.message` says so. The next broadcast lists ``keys``.
        """
        number = self.round
        for part in parts:
            if part.round != number:
                raise ValueError(
                    f"the tally is of round {part.round}, the current round is {number}."
                )
        n_reports = sum(part.n_reports for part in parts)
        message = self._step([part for part in parts if part.n_reports], n_reports, minimum)
        stepped = message is None
        self._begin_next(keys, n_reports=n_reports, stepped=stepped, spent=n_reports > 0)
        message = message or f"round {number}: one step, reports: {n_reports:,}."
        anomaly = stepped and bool(self.learner.note)
        if anomaly:
            message += f" Look at this: {self.learner.note}"
        n_damaged = sum(part.n_damaged for part in parts)
        if n_damaged:
            message += f" {n_damaged:,} more were damaged on disk and do not count."
        return Closed(number, n_reports, stepped, message, anomaly)

    def _step(self, parts: Sequence[Reduced], n_reports: int, minimum: int) -> str | None:
        """Take the step, or pass the round over and return why."""
        number, mechanism = self.round, _finite(self.learner.mechanism)
        if n_reports < max(1, minimum):
            self.learner.pass_over()
            return (
                f"round {number}: {n_reports:,} reports are below the minimum of {minimum:,}; "
                f"nothing was changed."
            )
        tally = sum((part.tally for part in parts[1:]), start=parts[0].tally)
        total = n_reports * mechanism.estimate(tally, n_reports)
        try:
            self.learner.apply_sum(total, n_reports)
        except FloatingPointError as error:
            self.learner.pass_over()
            return f"round {number}: nothing was changed. {error}"
        return None

    def _begin_next(
        self,
        keys: tuple[TokenKey, ...],
        *,
        n_rounds: int = 1,
        n_reports: int = 0,
        stepped: bool = False,
        spent: bool = True,
    ) -> None:
        """What phones may have spent in the rounds that are over, and the next broadcast."""
        epsilon, before = self.learner.mechanism.guarantee.epsilon, self.accounting
        self.accounting = Accounting(
            before.rounds_stepped + stepped,
            before.rounds_passed_over + (0 if stepped else n_rounds),
            before.reports + n_reports,
            before.epsilon_worst_case + (n_rounds * epsilon if spent else 0.0),
        )
        self.history = self.history.after(*self._published)
        self.publish(keys)

    def skip_to(self, number: int, keys: tuple[TokenKey, ...] | None = None) -> None:
        """Pass over rounds until `number`: after a restore, phones must not see rounds go back.

        Phones may have reported in each of them before what was restored was lost.
        """
        skipped = number - self.round
        if skipped <= 0:
            return
        for _ in range(skipped):
            self.learner.pass_over()
        self._begin_next(self.keys if keys is None else keys, n_rounds=skipped)
        self.save()

    def roll_back(
        self, number: int, restore: Callable[[LearnerState], Learner], n_reports: int = 0
    ) -> None:
        """Continue with what was learnt before round `number`; all that came after is forgotten.

        Round numbers, history and accounts continue, so that phones take the next broadcast, and
        what they spent stays spent. `n_reports` are those of the current round, which is closed
        without a step; `restore` makes the learner of the checkpoint.
        """
        path = self.folder / _name(number)
        if not path.exists():
            there = ", ".join(str(round_of(each)) for each in reversed(checkpoints(self.folder)))
            raise ValueError(
                f"there is no checkpoint of round {number}; there are those of {there}."
            )
        first = self.round + 1
        self.learner = restore(read_checkpoint(path))
        while self.round < first:
            self.learner.pass_over()
        self._begin_next(self.keys, n_reports=n_reports)
        self.save()

    def save(self) -> None:
        """The checkpoint of the current round; older ones but a few are dropped."""
        state = self.learner.state()
        state.words["accounting"] = json.dumps(asdict(self.accounting))
        state.words["history"] = json.dumps(asdict(self.history))
        state.tensors["broadcast"] = np.frombuffer(self.published(), np.uint8)
        write_checkpoint(self.folder / _name(self.round), state)
        for old in checkpoints(self.folder)[CHECKPOINTS_KEPT:]:
            old.unlink()


def _finite(mechanism: Mechanism) -> FiniteMechanism:
    if isinstance(mechanism, FiniteMechanism):
        return mechanism
    raise ValueError(
        f"phones do not report by {mechanism.name}: a coordinator needs a mechanism with finitely "
        f"many reports, such as 'walsh' or 'harmony'."
    )


def _name(round: int) -> str:
    return f"round-{round:010d}.safetensors"


def round_of(checkpoint: Path) -> int:
    return int(checkpoint.stem.removeprefix("round-"))


def check_copies(folder: Path, copies: Path) -> None:
    """Refuse copies of later rounds than a server has had: each new one would be dropped as old."""
    newest, copied = (
        max(map(round_of, checkpoints(each)), default=-1) for each in (folder, copies)
    )
    if copied > newest:
        raise ValueError(
            f"{copies} has a checkpoint of round {copied}, {folder} has none so late. After a "
            f"restore copy those there first; a new server needs another folder for its copies."
        )


def copy_checkpoints(folder: Path, copies: Path) -> None:
    """Bring another folder up to the checkpoints of this one; from there they can be restored.

    Those that an upgrade has kept (``before-VERSION``) are kept there, too.
    """
    copies.mkdir(parents=True, exist_ok=True, mode=0o700)
    for kept in folder.parent.glob("before-*/checkpoints"):
        copy_checkpoints(kept, copies / kept.parent.name)
    here = {path.name: path for path in checkpoints(folder)}
    for name, path in here.items():
        if name == max(here) or not (copies / name).exists():
            write_atomically(copies / name, path.read_bytes())
    for old in checkpoints(copies)[CHECKPOINTS_KEPT:]:
        old.unlink()


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, newest first."""
    return sorted(folder.glob("round-*.safetensors"), reverse=True)


class Federation:
    """A coordinator and the one vault it takes its reports from.

    Every step can be cut off by a crash and done again: a round is closed in the vault, reduced in
    the vault, absorbed with a checkpoint, and only then the next one is published. `resume`
    continues from the last of these steps that was done.
    """

    def __init__(self, coordinator: Coordinator, vault: Vault) -> None:
        self.coordinator = coordinator
        self.vault = vault
        self._absorbed: Closed | None = None  # a round that is in the learner, not yet on disk

    def resume(self, rules: RoundRules, now: float) -> None:
        """Bring vault and coordinator to the same round after a start or a crash.

        The rules hold for the current round, and for those that follow.
        """
        self._catch_up(rules.minimum)
        self._list_keys(now)
        self._publish(rules, now)
        self.vault.amend(rules, now)

    def _catch_up(self, minimum: int) -> None:
        round, data = self.vault.round(), self.vault.broadcast()
        if round is None or data is None:
            return
        broadcast = Broadcast.from_bytes(data)
        while self.coordinator.round < round.number:
            self._absorb_again(round.number, minimum, broadcast.keys)
        if round.number < self.coordinator.round and self.vault.reduced(round.number) is None:
            # A vault older than its checkpoints: these reports are in a step already.
            self.vault.close_round(round.number)
            self.vault.reduce(round.number, requested_mechanism(broadcast))

    def _absorb_again(self, vault_round: int, minimum: int, later: tuple[TokenKey, ...]) -> None:
        """The broadcast has the keys that it had: phones know it by its digest."""
        coordinator, number = self.coordinator, self.coordinator.round
        reduced = self.vault.reduced(number)
        if reduced is None:
            raise ValueError(
                f"the checkpoints end at round {number}, the vault is at round {vault_round} and "
                f"no longer has the sums in between: restore checkpoints and vault from the same "
                f"backup, or continue with what is learnt here by --skip-to {vault_round + 1}."
            )
        before = coordinator.keys
        coordinator.absorb([reduced], minimum, later)
        digests = dict(self.vault.digests(number + 1, 1))
        if digests.get(number + 1) != digest_of(coordinator.published()):
            coordinator.publish(before)
        coordinator.save()

    def _list_keys(self, now: float) -> None:
        """See that the round which opens next lists keys of the vault.

        If it lists keys that the vault lacks (the vault was lost), no phone could report, so the
        round is skipped.
        """
        keys, coordinator = self.vault.keys, self.coordinator
        round, listed = self.vault.round(), coordinator.keys
        if listed and set(listed) <= set(keys.listed()):
            return
        if round is not None and round.number == coordinator.round:
            return
        if listed:
            coordinator.skip_to(coordinator.round + 1, keys.for_next_round(now))
        else:
            coordinator.publish(keys.for_next_round(now))
            coordinator.save()

    def tick(self, now: float) -> Closed | Due:
        """Close, reduce, step and publish if it is time; else what the rules say.

        Where the disk refuses any of it, the next tick continues from there.
        """
        if self._absorbed is None:
            due = self.vault.settle(now)
            if due is not Due.CLOSE:
                return due
            mechanism = _finite(self.coordinator.learner.mechanism)
            reduced = self.vault.reduce(self.coordinator.round, mechanism)
            keys = self.vault.keys.for_next_round(now)
            minimum = self.vault.current().rules.minimum
            self._absorbed = self.coordinator.absorb([reduced], minimum, keys)
        self.coordinator.save()
        self._publish(self.vault.current().rules, now)
        closed, self._absorbed = self._absorbed, None
        return closed

    def _publish(self, rules: RoundRules, now: float) -> None:
        n_phones = self.vault.devices.count()
        opened = rules.open_round(self.coordinator.round, now, n_phones)
        self.vault.publish(opened, self.coordinator.published())

    async def run(self, gateway: Gateway, copies: Path | None) -> None:
        """Open and close rounds as time passes; ``copies`` gets every checkpoint, too."""
        await self._copy(gateway, copies)
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            try:
                ended = await asyncio.to_thread(self.tick, time.time())
            except Exception as error:  # reports are taken meanwhile; an operator must look
                refused = isinstance(error, OSError)  # `VaultError` is one
                counts = gateway.metrics.storage if refused else gateway.metrics.rounds
                counts.labels("tick" if refused else "stuck").inc()
                LOG.log(
                    logging.WARNING if refused else logging.ERROR,
                    "the round cannot be closed, next try in %g s: %s", _RETRY_SECONDS, error,
                    exc_info=not refused,
                )  # fmt: skip
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            if isinstance(ended, Closed):
                await asyncio.to_thread(gateway.refresh)
                await self._copy(gateway, copies)
                gateway.metrics.rounds.labels("stepped" if ended.stepped else "passed_over").inc()
                gateway.metrics.anomalies.inc(ended.anomaly)
                LOG.log(logging.WARNING if ended.anomaly else logging.INFO, ended.message)
            elif ended is Due.EXTEND:
                gateway.metrics.rounds.labels("extended").inc()
                LOG.warning(
                    "round %d is below its minimum of %d reports at its deadline: nothing was "
                    "changed, it stays open for as long again.",
                    self.coordinator.round, self.vault.current().rules.minimum,
                )  # fmt: skip
            elif ended is Due.END:
                LOG.info(
                    "round %d has enough reports: those under way are taken, phones are asked no "
                    "more.",
                    self.coordinator.round,
                )

    async def _copy(self, gateway: Gateway, copies: Path | None) -> None:
        """If copying fails, the next round does it, and an alarm says so."""
        try:
            if copies is not None:
                await asyncio.to_thread(copy_checkpoints, self.coordinator.folder, copies)
        except OSError as error:
            gateway.metrics.storage.labels("copies").inc()
            LOG.warning("checkpoints are not copied to %s: %s", copies, error)
