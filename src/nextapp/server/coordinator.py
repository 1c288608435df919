"""The coordinator: owns the learner, takes one step a round, and keeps a checkpoint of each.

Time and reports reach it as arguments; what it writes is its checkpoints.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from nextapp.learners import Learner, State, read_checkpoint, write_checkpoint
from nextapp.server.vault import Reduced
from nextapp.storage import write_atomically
from nextapp.wire import Broadcast, History, TokenKey, WireError, digest_of, history_from

LOG = logging.getLogger("nextapp.coordinator")

CHECKPOINTS_KEPT = 10
"""How many rounds an operator can roll back."""


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

    Parameters
    ----------
    learner
        At the round that `folder`'s newest checkpoint was written for; see `Coordinator.resume`.
    minimum
        A round of fewer reports changes nothing: it is passed over, and `Closed.message` says so.
    """

    def __init__(
        self,
        learner: Learner,
        folder: Path,
        *,
        minimum: int = 1,
        accounting: Accounting | None = None,
        history: History | None = None,
        keep: int = CHECKPOINTS_KEPT,
    ) -> None:
        if not learner.mechanism.finite_output:
            raise ValueError(
                f"phones do not report by {learner.mechanism.name}: a coordinator needs a "
                f"mechanism with finite_output, such as 'walsh' or 'harmony'."
            )
        self.learner = learner
        self.folder = folder
        self.minimum = minimum
        self.accounting = accounting or Accounting()
        self.history = history or History()
        self.keys: tuple[TokenKey, ...] = ()
        self._keep = keep
        self._published: tuple[int, bytes] | None = None

    @property
    def round(self) -> int:
        return self.learner.broadcast.round

    def published(self) -> bytes:
        """The broadcast of the current round as phones get it: the same bytes after a restart.

        They are kept in the checkpoint, since another machine, NumPy or version of this program
        might write others, and phones would take the next broadcast for that of a fork.
        """
        if self._published is None or self._published[0] != self.round:
            broadcast = replace(self.learner.broadcast, history=self.history, keys=self.keys)
            self._published = self.round, broadcast.to_bytes()
        return self._published[1]

    def list_keys(self, keys: tuple[TokenKey, ...]) -> None:
        """Let broadcasts list these keys, from the next one on.

        Also the current one if it lists none: it was not shown to any phone yet.
        """
        lists_none = not self.keys
        self.keys = keys
        if lists_none:
            self.publish_anew(keys)
            self.save()

    def publish_anew(self, keys: tuple[TokenKey, ...]) -> str:
        """Write the current broadcast with these keys; its digest. For one that no phone has."""
        self.keys, self._published = keys, None
        return digest_of(self.published())

    def next_history(self) -> History:
        """The history of the broadcast after the current one."""
        return self.history.after(self.round, self.published())

    @classmethod
    def start(cls, learner: Learner, folder: Path, *, minimum: int = 1) -> Coordinator:
        """A new federation, with its first checkpoint on disk."""
        folder.mkdir(parents=True, exist_ok=True)
        coordinator = cls(learner, folder, minimum=minimum)
        coordinator.save()
        return coordinator

    @classmethod
    def resume(
        cls, folder: Path, restore: Callable[[State], Learner], *, minimum: int = 1
    ) -> Coordinator:
        """As the newest checkpoint that can be read left it; `restore` makes the learner of it."""
        damage = []
        for path in checkpoints(folder):
            try:
                state = read_checkpoint(path)
                tensors, words = state
                accounting = Accounting(**json.loads(words["accounting"]))
                history = history_from(json.loads(words["history"]))
                coordinator = cls(
                    restore(state), folder, minimum=minimum, accounting=accounting, history=history
                )
                coordinator._published = coordinator.round, tensors["broadcast"].tobytes()
                coordinator.keys = Broadcast.from_bytes(coordinator.published()).keys
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

    def absorb(self, parts: Sequence[Reduced]) -> Closed:
        """Close the current round with the tallies of its gateways, and write its checkpoint."""
        closed = self.absorb_in_memory(parts)
        self.save()
        return closed

    def absorb_in_memory(self, parts: Sequence[Reduced]) -> Closed:
        """`absorb` in memory only; tallies of another round than the current one are refused."""
        number = self.round
        for part in parts:
            if part.round != number:
                raise ValueError(
                    f"the tally is of round {part.round}, the current round is {number}."
                )
        n_reports = sum(part.n_reports for part in parts)
        history = self.next_history()
        message = self._step([part for part in parts if part.n_reports], n_reports)
        self.history = history
        stepped = message is None
        before = self.accounting
        self.accounting = Accounting(
            before.rounds_stepped + stepped,
            before.rounds_passed_over + (not stepped),
            before.reports + n_reports,
            before.epsilon_worst_case
            + (self.learner.mechanism.guarantee.epsilon if n_reports else 0.0),
        )
        message = message or f"round {number}: one step along {n_reports:,} reports."
        anomaly = stepped and bool(self.learner.note)
        if anomaly:
            message += f" Look at this: {self.learner.note}"
        n_damaged = sum(part.n_damaged for part in parts)
        if n_damaged:
            message += f" {n_damaged:,} more were damaged on disk and do not count."
        return Closed(number, n_reports, stepped, message, anomaly)

    def _step(self, parts: Sequence[Reduced], n_reports: int) -> str | None:
        """Take the step, or pass the round over and return why."""
        number, mechanism = self.round, self.learner.mechanism
        if n_reports < max(1, self.minimum):
            self.learner.pass_over()
            return (
                f"round {number}: {n_reports:,} reports are below the minimum of "
                f"{self.minimum:,}; nothing was changed."
            )
        tally = sum((part.tally for part in parts[1:]), start=parts[0].tally)
        total = n_reports * mechanism.estimate(tally, n_reports)
        try:
            self.learner.apply_sum(total, n_reports)
        except FloatingPointError as error:
            self.learner.pass_over()
            return f"round {number}: nothing was changed. {error}"
        return None

    def skip_to(self, number: int) -> None:
        """Pass over rounds until `number`: after a restore, phones must not see rounds go back.

        Phones may have reported in each of them before what was restored was lost.
        """
        skipped = max(0, number - self.round)
        if skipped:
            self.history = self.next_history()
        for _ in range(skipped):
            self.learner.pass_over()
        before = self.accounting
        self.accounting = replace(
            before,
            rounds_passed_over=before.rounds_passed_over + skipped,
            epsilon_worst_case=before.epsilon_worst_case
            + skipped * self.learner.mechanism.guarantee.epsilon,
        )
        self.save()

    def roll_back(
        self, number: int, restore: Callable[[State], Learner], n_reports: int = 0
    ) -> None:
        """Continue with what was learnt before round `number`; all that came after is forgotten.

        Round numbers, history and accounts continue, so that phones take the next broadcast, and
        what they spent stays spent. `n_reports` are those of the current round, which is closed
        without a step; `restore` makes the learner of the checkpoint.
        """
        path = self.folder / _name(number)
        if not path.exists():
            there = ", ".join(str(_number(each)) for each in reversed(checkpoints(self.folder)))
            raise ValueError(
                f"there is no checkpoint of round {number}; there are those of {there}."
            )
        first, history, before = self.round + 1, self.next_history(), self.accounting
        epsilon = self.learner.mechanism.guarantee.epsilon
        self.learner = restore(read_checkpoint(path))
        while self.round < first:
            self.learner.pass_over()
        self.history = history
        self.accounting = replace(
            before,
            rounds_passed_over=before.rounds_passed_over + 1,
            reports=before.reports + n_reports,
            epsilon_worst_case=before.epsilon_worst_case + epsilon,
        )
        self.save()

    def save(self) -> None:
        """The checkpoint of the current round; older ones but a few are dropped."""
        path = self.folder / _name(self.round)
        state = self.learner.state()
        state.words["accounting"] = json.dumps(asdict(self.accounting))
        state.words["history"] = json.dumps(asdict(self.history))
        state.tensors["broadcast"] = np.frombuffer(self.published(), np.uint8)
        write_checkpoint(path, state)
        for old in checkpoints(self.folder)[self._keep :]:
            old.unlink()


def _name(round: int) -> str:
    return f"round-{round:010d}.safetensors"


def _number(path: Path) -> int:
    return int(path.stem.removeprefix("round-"))


def copy_checkpoints(folder: Path, copies: Path) -> None:
    """Bring another folder up to the checkpoints of this one; from there they can be restored.

    Those that an upgrade has kept (``before-VERSION``) are kept there, too.
    """
    copies.mkdir(parents=True, exist_ok=True, mode=0o700)
    for kept in folder.parent.glob("before-*"):
        if not (copies / kept.name).exists():
            draft = copies / f".{kept.name}"
            shutil.copytree(kept / "checkpoints", draft, dirs_exist_ok=True)
            draft.rename(copies / kept.name)
    here = {path.name: path for path in checkpoints(folder)}
    for name, path in here.items():
        if name == max(here) or not (copies / name).exists():
            write_atomically(copies / name, path.read_bytes())
    for old in checkpoints(copies)[CHECKPOINTS_KEPT:]:
        old.unlink()


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, newest first."""
    return sorted(folder.glob("round-*.safetensors"), reverse=True)
