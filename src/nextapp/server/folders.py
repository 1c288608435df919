"""The folder of a federation or of one of its gateways: opened, copied, looked after.

What an operator does goes through the vault and the settings, which a running server follows:
other rules hold at once for the current round and for all that come.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nextapp import __version__
from nextapp.learners import SLOTS_BY_BUCKET
from nextapp.server.federation import Coordinator, Federation, checkpoints
from nextapp.server.issuing import KeyRules
from nextapp.server.settings import FederationSettings, change_settings, settings_of
from nextapp.server.vault import GATEWAY_ID, Round, Vault
from nextapp.settings import setting
from nextapp.storage import create_atomically, write_atomically
from nextapp.wire import Broadcast

if TYPE_CHECKING:
    from nextapp.server.listening import ServerLimits

VAULT, SETTINGS, CHECKPOINTS = "vault.sqlite", "settings.json", "checkpoints"
WRITTEN_BY = "version"
"""A file of a folder: the version of this program that was started there last."""

MANIFEST = "manifest.json"
ACTIONS = "admin.log"


# Opening

CONTINUE = "Continuing"


@dataclass(frozen=True)
class VaultOptions(KeyRules):
    """The devices and stored reports of a server. A vault that is gone or damaged beside its
    checkpoints is refused unless that is known."""

    enrolled_days: float = setting(365.0, "Days that a phone stays enrolled.", metavar="DAYS")
    new_vault: bool = setting(
        False, "The vault is lost: begin one without devices.", heading=CONTINUE
    )
    leave_damaged: bool = setting(
        False, "Continue without what is damaged on disk.", heading=CONTINUE
    )

    def limits(self) -> ServerLimits:
        from nextapp.server.listening import ServerLimits

        return ServerLimits(enrolled_seconds=86_400 * self.enrolled_days)


USUAL = VaultOptions()


@contextmanager
def lock_folder(folder: Path, patience: float = 0.0) -> Iterator[None]:
    """The folder, for this process alone; a second server on it is refused after `patience` s."""
    refuse_root(folder)
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


def refuse_root(folder: Path) -> None:
    """Of another user's folder: what root writes there, that user's server could not read."""
    if os.geteuid() == 0 != folder.stat().st_uid:
        raise ValueError(
            f"{folder} is another user's, whose server could not read what root writes there: run "
            f"this as that user, such as runuser -u nextapp -- nextapp …"
        )


def has_federation(folder: Path) -> bool:
    """Whether a folder has a federation, or what remains of one."""
    return (folder / SETTINGS).exists() or bool(checkpoints(folder / CHECKPOINTS))


def is_gateway(folder: Path) -> bool:
    """Whether the folder is that of one gateway of several, whose rounds the coordinator closes."""
    return (folder / GATEWAY_ID).exists()


def open_vault(folder: Path) -> Vault:
    """The vault of a server or gateway that is there."""
    path = folder / VAULT
    if not path.exists() or not (is_gateway(folder) or (folder / SETTINGS).exists()):
        raise ValueError(f"{folder} holds no federation: start one by nextapp serve --data.")
    refuse_root(folder)
    return Vault(path, busy_seconds=10.0)


def settings_for(
    folder: Path, given: Mapping[str, Any], apps: tuple[str, ...] | None
) -> FederationSettings:
    """The settings that `create_or_resume` would use; nothing is written."""
    if (folder / SETTINGS).exists():
        return change_settings(FederationSettings.read(folder / SETTINGS), given)
    settings = settings_of(given)
    if "slots" not in given and apps is None:
        settings = replace(settings, slots=SLOTS_BY_BUCKET)
    settings.new_learner(apps)
    return settings


def create_or_resume(
    folder: Path,
    given: Mapping[str, Any],
    apps: tuple[str, ...] | None,
    *,
    skip_to: int | None = None,
    before_writing: Callable[[], object] = lambda: None,
) -> tuple[Coordinator, FederationSettings]:
    """The coordinator of a folder as it was left, or a new one if the folder holds none.

    All is read and checked before anything is written, and ``before_writing`` is called in between.
    A list of ``apps`` may be given again if it is the same. ``skip_to``: pass over rounds until
    this one, after a restore.
    """
    settings, coordinator = settings_for(folder, given, apps), None
    if has_federation(folder):
        coordinator = Coordinator.resume(folder / CHECKPOINTS, settings.restored_learner)
        if not (folder / SETTINGS).exists():
            _check_request(coordinator, settings)
        if apps is not None and apps != coordinator.learner.broadcast.apps:
            raise ValueError(
                f"the catalogue of {folder} is not the list given: leave --apps out, or begin anew "
                f"in another folder."
            )
    before_writing()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    keep_copy(folder)
    if coordinator is None:
        coordinator = Coordinator.start(settings.new_learner(apps), folder / CHECKPOINTS)
    settings.write(folder / SETTINGS)
    if skip_to is not None:
        coordinator.skip_to(skip_to)
    return coordinator, settings


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


def open_federation(
    folder: Path,
    given: Mapping[str, Any],
    apps: tuple[str, ...] | None,
    *,
    now: float,
    skip_to: int | None = None,
    options: VaultOptions = USUAL,
) -> tuple[Federation, FederationSettings]:
    """The federation of a folder with its vault beside the coordinator; see `create_or_resume`."""
    coordinator, settings = create_or_resume(
        folder,
        given,
        apps,
        skip_to=skip_to,
        before_writing=lambda: _make_vault(folder, options),
    )
    federation = Federation(coordinator, Vault(folder / VAULT))
    federation.vault.keys.set_rules(options)
    federation.resume(settings.rules, now)
    return federation, settings


def open_gateway_vault(folder: Path, options: VaultOptions = USUAL) -> Vault:
    """The vault of a gateway, checked."""
    _make_vault(folder, options)
    keep_copy(folder)
    gateway_identity(folder)
    vault = Vault(folder / VAULT)
    vault.keys.set_rules(options)
    return vault


def _make_vault(folder: Path, options: VaultOptions) -> None:
    """Check the vault that is there, or make one, before anything else: then its loss is seen."""
    if has_federation(folder) or is_gateway(folder):
        check_vault(folder / VAULT, leave_damaged=options.leave_damaged, new=options.new_vault)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    Vault(folder / VAULT).close()


def gateway_identity(folder: Path) -> str:
    """What a gateway is known by: random, made once, kept in its folder.

    So a gateway that comes back under another address or node number is not counted twice.
    """
    path = folder / GATEWAY_ID
    with suppress(FileExistsError), create_atomically(path) as draft:
        draft.write_text(secrets.token_hex(8), encoding="ascii")
    return path.read_text(encoding="ascii").strip()


def check_vault(path: Path, *, leave_damaged: bool = False, new: bool = False) -> None:
    """Refuse a vault that is missing or empty, unless a ``new`` one is meant, or is damaged."""
    if not path.exists() or path.stat().st_size == 0:
        if new:
            return
        raise ValueError(
            f"{path} is {'empty' if path.exists() else 'missing'}, but other files of its server "
            f"are there: restore it from a backup (nextapp admin restore), or begin a new one with "
            f"--new-vault; then all phones must enrol again."
        )
    with closing(Vault(path, leave_damaged=leave_damaged)) as vault:
        vault.check(leave_damaged=leave_damaged)
        if vault.round() is None and len(checkpoints(path.parent / CHECKPOINTS)) > 1 and not new:
            raise ValueError(
                f"{path} has had no round, but checkpoints of several are there: it is not their "
                f"vault. Restore that one from a backup (nextapp admin restore), or continue "
                f"with this one by --new-vault; then all phones must enrol again."
            )


# Copies


def keep_copy(folder: Path) -> None:
    """Copy the folder before this version writes there, if another version wrote it."""
    written_by, copy = folder / WRITTEN_BY, folder / f"before-{__version__}"
    version = f"{__version__}\n".encode()
    if written_by.exists() and written_by.read_bytes() == version:
        return
    if has_federation(folder) or is_gateway(folder):
        shutil.rmtree(copy, ignore_errors=True)  # of an upgrade that was cut off or taken back
        copy_federation(folder, copy)
        os.sync()
    write_atomically(written_by, version)


def copy_federation(folder: Path, out: Path) -> None:
    """Vault, identity, settings and checkpoints, whichever exist, to another folder.

    The vault is copied before the checkpoints, so these are as new or newer: the server then knows
    which steps were taken.
    """
    (out / CHECKPOINTS).mkdir(parents=True, exist_ok=True, mode=0o700)
    if (folder / VAULT).exists():
        with closing(Vault(folder / VAULT, busy_seconds=10.0)) as vault:
            vault.database.copy_to(out / VAULT)
    for name in (GATEWAY_ID, SETTINGS, WRITTEN_BY):
        if (folder / name).exists():
            shutil.copy2(folder / name, out / name)
    for path in checkpoints(folder / CHECKPOINTS):
        try:
            shutil.copy2(path, out / CHECKPOINTS / path.name)
        except FileNotFoundError:
            continue  # the server has dropped it meanwhile: an old one


def back_up(folder: Path, out: Path) -> None:
    """Copy what a federation, or one of its gateways, is to a new folder, while it may run.

    The copy is checked, and its manifest tells every file's digest.
    """
    if out.exists() and any(out.iterdir()):
        raise ValueError(f"{out} is not empty: give another folder for the backup.")
    open_vault(folder).close()
    copy_federation(folder, out)
    check_vault(out / VAULT)
    for log in out.glob(f"{VAULT}-*"):
        log.unlink()
    written = {"made": time.time(), "files": _digests(out)}
    write_atomically(out / MANIFEST, (json.dumps(written, indent=2) + "\n").encode())


def restore(backup: Path, folder: Path) -> None:
    """Put a backup in place of a federation that is gone; the next start continues from it.

    Tokens may have been spent since the backup: after the current round none of before counts.
    """
    try:
        files = json.loads((backup / MANIFEST).read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{backup} is no backup by nextapp admin backup: {error}.") from error
    found = _digests(backup)
    wrong = sorted(name for name, digest in files.items() if found.get(name) != digest)
    if wrong:
        raise ValueError(
            f"the backup {backup} is damaged: {', '.join(wrong)} is missing or not what was "
            f"written there. Take another one."
        )
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty: move it away first, or give another folder.")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name in files:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        shutil.copy2(backup / name, target)
    with closing(open_vault(folder)) as vault:
        vault.keys.rotate(retire_all=True)


def _digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != MANIFEST
    }


# Administration


@contextmanager
def open_round(folder: Path) -> Iterator[tuple[Vault, Round]]:
    """The vault of a federation that has begun, and its current round."""
    if is_gateway(folder):
        raise ValueError(
            f"{folder} is that of one gateway of several: rounds and settings are the "
            f"coordinator's; docs/operate.md, More than one process."
        )
    with closing(open_vault(folder)) as vault:
        round = vault.round()
        if round is None:
            raise ValueError(f"{folder} has opened no round yet: start it by nextapp serve.")
        yield vault, round


def _resume(folder: Path) -> tuple[Coordinator, FederationSettings]:
    settings = FederationSettings.read(folder / SETTINGS)
    return Coordinator.resume(folder / CHECKPOINTS, settings.restored_learner), settings


def status(folder: Path, now: float) -> dict[str, Any]:
    """A federation as it stands, as values of JSON; times that are not set are left out."""
    with open_round(folder) as (vault, round):
        coordinator, _ = _resume(folder)
        mechanism = coordinator.learner.mechanism
        return {
            "round": {key: value for key, value in asdict(round).items() if value != math.inf},
            "devices": vault.devices.count(),
            "codes": len(vault.devices.codes(now)),
            "draining": bool(vault.database.wishes().get("drain")),
            "mechanism": mechanism.name,
            "epsilon": mechanism.guarantee.epsilon,
            "accounting": asdict(coordinator.accounting),
        }


def change(folder: Path, given: Mapping[str, Any], now: float) -> Round:
    """Other rules for rounds, from now on; returns the current one."""
    with open_round(folder) as (vault, round):
        settings = change_settings(FederationSettings.read(folder / SETTINGS), given)
        settings.write(folder / SETTINGS)
        vault.amend(settings.rules, now)
        return round.amended(settings.rules, now)


def close_round(
    folder: Path, now: float, number: int | None = None, *, grace: bool = True
) -> float:
    """End the current round at once, if it has its minimum of reports; seconds until it closes.

    Nothing is done where ``number`` is given and that round has closed already. Without its
    ``grace`` reports are lost that are under way.
    """
    with open_round(folder) as (vault, round):
        if number is not None and round.number != number:
            return 0.0
        if round.n_reports < round.rules.minimum:
            raise ValueError(
                f"round {round.number} has {round.n_reports:,} reports, below its minimum of "
                f"{round.rules.minimum:,}: wait, or lower it by nextapp admin set --minimum."
            )
        seconds = round.rules.grace if grace else 0.0
        vault.set_round(replace(round, ends=min(round.ends, now + seconds)))
        return seconds


def roll_back(folder: Path, number: int) -> int:
    """Forget what was learnt from round `number` on; the round that phones see next.

    The server must be stopped. Reports of the current round are forgotten as well.
    """
    with open_round(folder) as (_, round), lock_folder(folder):
        coordinator, settings = _resume(folder)
        n_reports = round.n_reports if round.number == coordinator.round else 0
        coordinator.roll_back(number, settings.restored_learner, n_reports)
        return coordinator.round


def log_action(folder: Path, words: str) -> None:
    """Add a line to what administrators have done here; in the form of the server's JSON log."""
    try:
        user = os.getlogin()
    except OSError:  # no terminal
        user = f"user {os.getuid()}"
    when = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = {"time": when, "level": "info", "part": "nextapp.admin", "message": f"{user}: {words}"}
    handle = os.open(folder / ACTIONS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
