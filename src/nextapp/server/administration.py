"""What an operator does to a federation's folder, while its server runs or not.

Everything goes through the vault and the settings, which a running server follows: other rules hold
at once for the current round and for all that come.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nextapp.privacy import Mechanism
from nextapp.server.coordinator import Accounting, Coordinator
from nextapp.server.federation import VAULT, check_vault, copy_federation, lock_folder
from nextapp.server.settings import CHANGEABLE, FederationSettings, change_settings
from nextapp.server.vault import DRAINING, GATEWAY_ID, Round, RoundRules, Vault
from nextapp.storage import write_atomically

MANIFEST = "manifest.json"
ACTIONS = "admin.log"
_SETTINGS, _CHECKPOINTS = "settings.json", "checkpoints"


@dataclass(frozen=True)
class Status:
    """A federation as it stands."""

    round: Round
    rules: RoundRules
    n_devices: int
    n_codes: int
    draining: bool
    mechanism: Mechanism
    accounting: Accounting

    def plain(self) -> dict[str, Any]:
        """As values of JSON; times are seconds since 1970, and left out where they are not set."""
        round = {name: value for name, value in vars(self.round).items() if value != math.inf}
        return {
            "round": round,
            "rules": asdict(self.rules),
            "devices": self.n_devices,
            "codes": self.n_codes,
            "draining": self.draining,
            "mechanism": self.mechanism.name,
            "epsilon": self.mechanism.guarantee.epsilon,
            "accounting": asdict(self.accounting),
        }


def is_gateway(folder: Path) -> bool:
    """Whether the folder is that of one gateway of several, whose rounds the coordinator closes."""
    return (folder / GATEWAY_ID).exists()


def open_vault(folder: Path, *, of_gateway: bool = True) -> Vault:
    """The vault of a federation that is there, or that of one of its gateways, if that will do."""
    path = folder / VAULT
    if path.exists() and is_gateway(folder):
        if of_gateway:
            return Vault(path, busy_seconds=10.0)
        raise ValueError(
            f"{folder} is that of one gateway of several: rounds and settings are the "
            f"coordinator's; docs/operate.md, More than one process."
        )
    if not path.exists() or not (folder / _SETTINGS).exists():
        raise ValueError(f"{folder} holds no federation: start one by nextapp serve --data.")
    return Vault(path, busy_seconds=10.0)


def status(folder: Path, now: float) -> Status:
    with closing(open_vault(folder, of_gateway=False)) as vault:
        round, rules = vault.round(), vault.rules()
        if round is None or rules is None:
            raise ValueError(f"{folder} has opened no round yet: start it by nextapp serve.")
        settings = FederationSettings.read(folder / _SETTINGS)
        coordinator = Coordinator.resume(folder / _CHECKPOINTS, settings.restored_learner)
        return Status(
            round,
            rules,
            vault.devices.count(),
            len(vault.devices.codes(now)),
            DRAINING in vault.flags(),
            coordinator.learner.mechanism,
            coordinator.accounting,
        )


def reports_by_period(reports: int, per_period: int) -> list[int]:
    """How many reports a phone sends in each key's period of its life, `reports` in all.

    >>> reports_by_period(7, 3)
    [3, 3, 1]
    """
    full, rest = divmod(reports, per_period)
    return [per_period] * full + [rest] * (rest > 0)


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


def change(folder: Path, given: Mapping[str, Any], now: float) -> RoundRules:
    """Other rules for rounds, from now on; returns those of the current one."""
    for key in given:
        if key not in CHANGEABLE:
            raise ValueError(
                f"{key} cannot change while phones rely on it; {', '.join(CHANGEABLE)} can."
            )
    with closing(open_vault(folder, of_gateway=False)) as vault:
        settings = change_settings(FederationSettings.read(folder / _SETTINGS), given)
        rules = settings.rules(0, vault.rules())
        settings.write(folder / _SETTINGS)
        vault.amend(rules, now)
    return rules


def close_round(
    folder: Path, now: float, number: int | None = None, *, grace: bool = True
) -> float:
    """End the current round at once, if it has its minimum of reports; seconds until it closes.

    Nothing is done where ``number`` is given and that round has closed already. Without its
    ``grace`` reports are lost that are under way.
    """
    with closing(open_vault(folder, of_gateway=False)) as vault:
        round, rules = vault.round(), vault.rules()
        if round is None or rules is None:
            raise ValueError(f"{folder} has opened no round yet.")
        if number is not None and round.number != number:
            return 0.0
        if round.n_reports < rules.minimum:
            raise ValueError(
                f"round {round.number} has {round.n_reports:,} reports, below its minimum of "
                f"{rules.minimum:,}: wait, or lower it by nextapp admin set --minimum."
            )
        seconds = rules.grace if grace else 0.0
        vault.set_times(replace(round, ends=min(round.ends, now + seconds)))
        return seconds


def roll_back(folder: Path, number: int) -> int:
    """Forget what was learnt from round `number` on; the round that phones see next.

    The server must be stopped. Reports of the current round are forgotten as well.
    """
    with closing(open_vault(folder, of_gateway=False)) as vault, lock_folder(folder):
        settings = FederationSettings.read(folder / _SETTINGS)
        coordinator = Coordinator.resume(folder / _CHECKPOINTS, settings.restored_learner)
        round = vault.round()
        n_reports = round.n_reports if round and round.number == coordinator.round else 0
        coordinator.roll_back(number, settings.restored_learner, n_reports)
        return coordinator.round


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
    """SHA-256 of each file of a backup, by its path in it."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != MANIFEST
    }
