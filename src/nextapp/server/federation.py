"""Gateway and coordinator in one process on one SQLite file."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from nextapp import __version__
from nextapp.learners import SLOTS_BY_BUCKET, CrowdLearner, Learner
from nextapp.privacy import requested_mechanism
from nextapp.server.coordinator import Closed, Coordinator, checkpoints
from nextapp.server.settings import FederationSettings, change_settings, settings_of
from nextapp.server.token_keys import DEFAULT_RULES, KeyRules
from nextapp.server.vault import GATEWAY_ID, RoundRules, Vault, Verdict
from nextapp.storage import sync_folder, write_atomically
from nextapp.wire import Broadcast

VAULT = "vault.sqlite"
WRITTEN_BY = "version"
"""A file of a folder: the version of this program that was started there last."""


class Federation:
    """A coordinator and the one vault it takes its reports from.

    Every step can be cut off by a crash and done again: a round is closed in the vault, reduced in
    the vault, absorbed with a checkpoint, and only then the next one is published. `resume`
    continues from the last of these steps that was done.
    """

    def __init__(
        self, coordinator: Coordinator, vault: Vault, settings: Callable[[], FederationSettings]
    ) -> None:
        self.coordinator = coordinator
        self.vault = vault
        self._settings = settings  # as they are now: an operator may change them
        self._absorbed: Closed | None = None  # a round that is in the learner, not yet on disk

    def resume(self, now: float) -> None:
        """Bring vault and coordinator to the same round after a start or a crash."""
        self._catch_up()
        self._list_keys(now)
        self._publish(now)
        self.vault.amend(self._settings().rules(0, self.rules), now)

    @property
    def rules(self) -> RoundRules | None:
        """Those of the current round."""
        return self.vault.rules()

    def _catch_up(self) -> None:
        round = self.vault.round()
        if round is not None:
            while self.coordinator.round < round.number:
                self._absorb_again(round.number)
            if round.number < self.coordinator.round and self.vault.reduced(round.number) is None:
                # A vault older than its checkpoints: these reports are in a step already.
                self.vault.close_round(round.number)
                data = self.vault.broadcast()
                if data is not None:
                    asked = requested_mechanism(Broadcast.from_bytes(data))
                    self.vault.reduce(round.number, asked)

    def _list_keys(self, now: float) -> None:
        """See that the round which opens next lists keys of the vault.

        Where it lists others, as after the vault was lost, no phone could report: it is skipped.
        """
        keys, coordinator = self.vault.keys, self.coordinator
        round, listed = self.vault.round(), coordinator.keys
        if listed and set(listed) <= set(keys.listed()):
            return
        if round is not None and round.number == coordinator.round:
            return
        coordinator.list_keys(keys.for_next_round(now))
        if listed:
            coordinator.skip_to(coordinator.round + 1)

    def tick(self, now: float) -> Closed | Verdict:
        """Close, reduce, step and publish if it is time; else what the rules say.

        Where the disk refuses any of it, the next tick continues from there.
        """
        if self._absorbed is None:
            verdict = self.vault.settle(now)
            if verdict is not Verdict.CLOSE:
                return verdict
            if self.rules is not None:
                self.coordinator.minimum = self.rules.minimum
            reduced = self.vault.reduce(self.coordinator.round, self.coordinator.learner.mechanism)
            self.coordinator.list_keys(self.vault.keys.for_next_round(now))
            self._absorbed = self.coordinator.absorb_in_memory([reduced])
        self.coordinator.save()
        self._publish(now)
        closed, self._absorbed = self._absorbed, None
        return closed

    def _publish(self, now: float) -> None:
        rules = self._settings().rules(self.vault.devices.count())
        opened = rules.open_round(self.coordinator.round, now)
        self.vault.publish(opened, self.coordinator.published(), rules)

    def _absorb_again(self, vault_round: int) -> None:
        number = self.coordinator.round
        reduced = self.vault.reduced(number)
        if reduced is None:
            raise ValueError(
                f"the checkpoints end at round {number}, the vault is at round {vault_round} and "
                f"no longer has the sums in between: restore checkpoints and vault from the same "
                f"backup, or continue with what is learnt here by --skip-to {vault_round + 1}."
            )
        self.coordinator.absorb_in_memory([reduced])
        self._list_keys_again(number + 1)
        self.coordinator.save()

    def _list_keys_again(self, number: int) -> None:
        """Those that the broadcast of this round had: phones know it by its digest."""
        digests = dict(self.vault.digests(number, 1))
        data = self.vault.broadcast()
        later = () if data is None else Broadcast.from_bytes(data).keys
        for keys in (later, self.coordinator.keys):
            if self.coordinator.publish_anew(keys) == digests.get(number):
                return


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
    before_writing: Callable[[], object] = lambda: None,
) -> tuple[Coordinator, FederationSettings]:
    """The coordinator of a folder as it was left, or a new one if the folder holds none.

    All is read and checked before anything is written.

    Parameters
    ----------
    given
        Settings that were asked for this time; see `settings`.
    apps
        The list of apps; a federation of the crowd needs none. An existing one takes those that
        were added at its end.
    skip_to
        Pass over rounds until this one, after a restore.
    before_writing
        Called once all has been read.
    """
    path = folder / "settings.json"
    settings = settings_for(folder, given, apps)
    if has_federation(folder):
        coordinator = Coordinator.resume(
            folder / "checkpoints", settings.restored_learner, minimum=settings.minimum
        )
        if not path.exists():
            _check_request(coordinator, settings)
        has_grown = _takes_list(coordinator.learner, apps, folder)
        before_writing()
        keep_copy(folder)
        if has_grown:
            coordinator.save()
    else:
        before_writing()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        keep_copy(folder)
        coordinator = Coordinator.start(
            settings.new_learner(apps), folder / "checkpoints", minimum=settings.minimum
        )
    settings.write(path)
    if skip_to is not None:
        coordinator.skip_to(skip_to)
    return coordinator, settings


def has_federation(folder: Path) -> bool:
    """Whether a folder has a federation, or what remains of one."""
    return (folder / "settings.json").exists() or bool(checkpoints(folder / "checkpoints"))


def _check_request(coordinator: Coordinator, settings: FederationSettings) -> None:
    """Refuse other options than those of a federation whose settings are lost."""
    asked = Broadcast.from_bytes(coordinator.published()).request
    given = settings.requests.transitions if settings.learn == "crowd" else settings
    for name in ("mechanism", "epsilon", "clip", "options"):
        before, now = getattr(asked, name), getattr(given, name)
        if before != now:
            raise ValueError(
                f"the settings beside {coordinator.folder} are lost, and phones were asked for "
                f"{name} = {before!r}, not {now!r}: start it with the options of its first start."
            )


def settings_for(
    folder: Path, given: Mapping[str, Any], apps: tuple[str, ...] | None
) -> FederationSettings:
    """The settings that `create_or_resume` would use; nothing is written."""
    path = folder / "settings.json"
    if path.exists():
        return change_settings(FederationSettings.read(path), given)
    settings = settings_of(given)
    if "slots" not in given and (apps is None or len(apps) > settings.slots):
        settings = replace(settings, slots=SLOTS_BY_BUCKET)
    settings.new_learner(apps)
    return settings


def _takes_list(learner: Learner, apps: tuple[str, ...] | None, folder: Path) -> bool:
    """Whether a list that was given again has grown: it may where the crowd is learnt."""
    if apps is None or apps == learner.broadcast.apps:
        return False
    if isinstance(learner, CrowdLearner):
        learner.grow(apps)
        return True
    raise ValueError(
        f"the catalogue of {folder} has {learner.broadcast.n_apps:,} apps and is not the one "
        f"given: leave --apps out, or begin anew in another folder."
    )


def open_federation(
    folder: Path,
    given: Mapping[str, Any],
    apps: tuple[str, ...] | None,
    *,
    now: float,
    skip_to: int | None = None,
    new_vault: bool = False,
    leave_damaged: bool = False,
    key_rules: KeyRules = DEFAULT_RULES,
) -> tuple[Federation, FederationSettings]:
    """The federation of a folder with its vault beside the coordinator; see `create_or_resume`.

    A vault that is gone or damaged beside its checkpoints is refused: where it is gone
    ``new_vault`` begins one without devices, ``leave_damaged`` continues without the reports that
    were damaged.
    """
    path = folder / VAULT

    def open_vault() -> None:
        """Before the first checkpoint: from then on one without the other is a loss."""
        if has_federation(folder):
            check_vault(path, leave_damaged=leave_damaged, new=new_vault)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        Vault(path).close()

    coordinator, settings = create_or_resume(
        folder, given, apps, skip_to=skip_to, before_writing=open_vault
    )
    written = folder / "settings.json"
    federation = Federation(coordinator, Vault(path), lambda: FederationSettings.read(written))
    federation.vault.keys.set_rules(key_rules)
    federation.resume(now)
    return federation, settings


def keep_copy(folder: Path) -> None:
    """Keep what another version has left, as it was, before this one writes there."""
    written_by, copy = folder / WRITTEN_BY, folder / f"before-{__version__}"
    if written_by.exists() and written_by.read_text(encoding="utf-8").strip() == __version__:
        return
    if not copy.exists() and (has_federation(folder) or (folder / GATEWAY_ID).exists()):
        draft = folder / f".{copy.name}"
        shutil.rmtree(draft, ignore_errors=True)
        copy_federation(folder, draft)
        draft.rename(copy)
        sync_folder(folder)
    write_atomically(written_by, f"{__version__}\n".encode())


def copy_federation(folder: Path, out: Path) -> None:
    """Vault, identity, settings and checkpoints, as far as they are there, to another folder.

    The vault is copied before the checkpoints, so these are as new or newer: the server then knows
    which steps were taken.
    """
    (out / "checkpoints").mkdir(parents=True, exist_ok=True, mode=0o700)
    if (folder / VAULT).exists():
        with closing(Vault(folder / VAULT, busy_seconds=10.0)) as vault:
            vault.database.copy_to(out / VAULT)
    for name in (GATEWAY_ID, "settings.json", WRITTEN_BY):
        if (folder / name).exists():
            shutil.copy2(folder / name, out / name)
    for path in checkpoints(folder / "checkpoints"):
        try:
            shutil.copy2(path, out / "checkpoints" / path.name)
        except FileNotFoundError:
            continue  # the server has dropped it meanwhile: an old one


def check_vault(path: Path, *, leave_damaged: bool = False, new: bool = False) -> None:
    """Refuse a vault that is missing or empty, unless a ``new`` one is meant, or is damaged."""
    there = path.exists() and path.stat().st_size > 0
    if not there:
        if new:
            return
        raise ValueError(
            f"{path} is {'empty' if path.exists() else 'missing'}, but other files of its server "
            f"are there: restore it from a backup (nextapp admin restore), or begin a new one with "
            f"--new-vault; then all phones must enrol again."
        )
    with closing(Vault(path, leave_damaged=leave_damaged)) as vault:
        vault.check(leave_damaged=leave_damaged)
        if vault.round() is None and len(checkpoints(path.parent / "checkpoints")) > 1 and not new:
            raise ValueError(
                f"{path} has had no round, but checkpoints of several are there: it is not their "
                f"vault. Restore that one from a backup (nextapp admin restore), or continue "
                f"with this one by --new-vault; then all phones must enrol again."
            )


def gateway_identity(data: Path) -> str:
    """What a gateway is known by: random, made once, kept in its folder.

    So a gateway that comes back under another address or node number is not counted twice.
    """
    path = data / GATEWAY_ID
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        return path.read_text(encoding="ascii").strip()
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(identity := secrets.token_hex(8))
    return identity


def open_gateway_vault(
    data: Path,
    *,
    new_vault: bool = False,
    leave_damaged: bool = False,
    key_rules: KeyRules = DEFAULT_RULES,
) -> Vault:
    """The vault of a gateway, checked; options as in `open_federation`."""
    path = data / VAULT
    if (data / GATEWAY_ID).exists():
        check_vault(path, leave_damaged=leave_damaged, new=new_vault)
    keep_copy(data)
    Vault(path).close()
    gateway_identity(data)  # from now on one without the other is a loss
    vault = Vault(path)
    vault.keys.set_rules(key_rules)
    return vault
