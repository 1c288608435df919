"""`nextapp admin`: look after a federation, while its server runs or not; `nextapp enrol-code`."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any

import click

from nextapp.audit.accounting import without_senders
from nextapp.cli import screen
from nextapp.cli.commands import (
    FILE,
    FOLDER,
    F,
    Group,
    command,
    json_file,
    option,
    options_of,
)
from nextapp.cli.serve import when_rounds_end
from nextapp.phone.core import Limits
from nextapp.server import folders
from nextapp.server.issuing import KeyRules
from nextapp.settings import count, setting
from nextapp.table import Table

app = Group(
    "admin",
    epilog="nextapp admin status federation",
    help="Look after a server: status, rounds, devices, codes, backup.",
)

folder = click.argument("data", type=FOLDER, metavar="FOLDER", help="Folder of the server.")
_DAY = 86_400
_HOURS = click.FloatRange(min=0, min_open=True)


def logged(action: F) -> F:
    """Note in the folder's log what was done, by whom and with which options, once it is done."""

    @wraps(action)
    def act(**given: Any) -> None:
        action(**given)
        words = [
            f"{name}={value}"
            for name, value in sorted(given.items())
            if name != "data" and value not in (None, "", False)
        ]
        name = click.get_current_context().info_name or ""
        folders.log_action(given["data"], " ".join([name, *words]))

    return act  # type: ignore[return-value]


@app.command(epilog="nextapp admin status federation\nnextapp admin status federation --json -")
@folder
@json_file
def status(data: Path, json: Path | None) -> None:
    """Show the open round, devices, codes, and what phones have spent.

    With --json - only JSON is written, to standard output.
    """
    found = folders.status(data, time.time())
    screen.write_json(json, found)
    if json == Path("-"):
        return
    round, rules, spent = found["round"], found["round"]["rules"], found["accounting"]
    worst = spent["epsilon_worst_case"] + found["epsilon"] * (round["n_reports"] > 0)
    rows = [
        ["round", f"{round['number']:,}, opened {_moment(round['opened'])}"],
        ["reports", f"{round['n_reports']:,} of {round['goal']:,}, at least {rules['minimum']:,}"],
        ["deadline", f"{_moment(round['deadline'])}, put off {round['extensions']:,} times"],
        ["phones report by", f"{found['mechanism']}, ε = {found['epsilon']:g} a report"],
        ["devices", f"{found['devices']:,}"],
        ["open codes", f"{found['codes']:,}"],
        [
            "rounds so far",
            f"{spent['rounds_stepped']:,} with a step, {spent['rounds_passed_over']:,} without",
        ],
        ["reports so far", f"{spent['reports']:,}"],
        ["ε of a phone", f"at most {worst:g}: a report in every round, the open one included"],
        ["takes reports", "no: draining" if found["draining"] else "yes, while it runs"],
    ]
    screen.out.print(Table.of_text(["", ""], rows).terminal(header=False))
    screen.out.print(without_senders(found["epsilon"], *sorted({rules["minimum"], round["goal"]})))


@dataclass(frozen=True)
class Plan(KeyRules):
    """Phones, and what each may send."""

    phones: int = setting(0, "Phones that are there at first.", least=0)
    new_phones: float = setting(0.0, "Phones that come in a day.", least=0)
    epsilon: float = setting(1.0, "ε of one report.")
    lifetime: float = setting(Limits.lifetime, "ε that a phone spends in all.", least=0)
    minimum: int = setting(100, "Reports that a round needs.", least=1)


@app.command(epilog="nextapp admin plan --new-phones 1000\nnextapp admin plan --phones 50000")
@options_of(Plan, "plan")
def plan(plan: Plan) -> None:
    """Show how many reports a day will come, from the first day on.

    A phone reports until the ε of its life is spent; then it only listens.
    """
    key_days, reports_per_period = plan.key_days, plan.reports_per_period
    reports = replace(Limits(), lifetime=plan.lifetime).reports_for_life(plan.epsilon)
    n_full, rest = divmod(reports, reports_per_period)
    by_period = [reports_per_period] * n_full + [rest] * (rest > 0)
    screen.out.print(
        f"a phone sends {count(reports, 'report')} in its life, at most "
        f"{reports_per_period:,} in {key_days:g} days; all of it takes "
        f"{len(by_period) * key_days:g} days"
    )
    rows, new = [], 0.0
    for number, sent in enumerate([*by_period, 0]):
        new += sent * plan.new_phones
        each_day = plan.phones * sent / key_days + new
        until = f"–{(number + 1) * key_days:g}" if sent else " on"
        wait = f"{plan.minimum / each_day:,.1f} days" if each_day else "never"
        rows.append([f"{number * key_days:g}{until}", f"{each_day:,.1f}", wait])
    headings = ["days", "reports a day", f"until {plan.minimum:,} are there"]
    screen.out.print(Table.of_text(headings, rows).terminal())


@app.command(epilog="nextapp admin devices federation")
@folder
def devices(data: Path) -> None:
    """List devices by name. When they reported is not stored."""
    with closing(folders.open_vault(data)) as vault:
        rows = [
            [name, _day(day * _DAY), _day(expires), code or "–"]
            for name, day, expires, code in vault.devices.listing()
        ]
    headings = ["device", "enrolled", "expires", "code"]
    screen.out.print(Table.of_text(headings, rows).terminal())


@app.command(epilog="nextapp admin expel federation --device 0123456789abcdef")
@folder
@option("--device", metavar="NAME", help="Name of a device.")
@option("--code", metavar="NAME", help="Name of a code: all devices that enrolled with it.")
@option("--expired", is_flag=True, help="All devices whose time is over.")
@logged
def expel(data: Path, device: str | None, code: str | None, expired: bool) -> None:
    """Revoke devices: they get no more tokens until they enrol again."""
    if (device is not None) + (code is not None) + expired != 1:
        raise ValueError("give one of --device, --code and --expired.")
    with closing(folders.open_vault(data)) as vault:
        known = vault.devices
        n = known.expel_expired(time.time()) if expired else known.expel(device, code)
    if not n and device is not None:
        raise ValueError(f"there is no device {device}: nextapp admin devices lists them.")
    screen.out.print(f"{count(n, 'device')} expelled")


@app.command(epilog="nextapp admin rotate federation")
@folder
@logged
def rotate(data: Path) -> None:
    """Let the next round have a new key; reports by tokens of the one before are still taken."""
    with closing(folders.open_vault(data)) as vault:
        vault.keys.rotate()
    screen.out.print("the next round issues tokens by a new key")


@app.command(epilog="nextapp admin codes federation")
@folder
def codes(data: Path) -> None:
    """List enrolment codes that can be used, by name. The codes themselves are not stored."""
    with closing(folders.open_vault(data)) as vault:
        found = vault.devices.codes(time.time())
    rows = [[name or "–", f"{uses:,}", _moment(expires)] for name, expires, uses in found]
    screen.out.print(Table.of_text(["code", "uses left", "expires"], rows).terminal())


@app.command(epilog="nextapp admin withdraw federation")
@folder
@option("--code", metavar="NAME", help="Name of the codes to cancel. Default: all.")
@logged
def withdraw(data: Path, code: str | None) -> None:
    """Cancel enrolment codes. Devices that used them stay enrolled."""
    with closing(folders.open_vault(data)) as vault:
        n = vault.devices.withdraw_codes(code)
    screen.out.print(f"{count(n, 'code')} cancelled")


@app.command("set", epilog="nextapp admin set federation --goal 20000")
@folder
@option("--goal", type=int, help="Reports at which a round ends.")
@option("--minimum", type=int, help="Reports that a round needs to count.")
@option("--deadline", type=float, help="Seconds after which a round ends.")
@option("--grace", type=float, help="Seconds for reports that are under way when it ends.")
@logged
def set_rules(data: Path, **given: float | None) -> None:
    """Change when rounds close, while the server runs."""
    given = {key: value for key, value in given.items() if value is not None}
    if not given:
        raise ValueError("give --goal, --minimum, --deadline or --grace.")
    screen.out.print(when_rounds_end(folders.change(data, given, time.time())))


@app.command("close-round", epilog="nextapp admin close-round federation")
@folder
@logged
def close_round(data: Path) -> None:
    """End the open round now, if it has its minimum of reports."""
    seconds = folders.close_round(data, time.time())
    screen.out.print(
        f"phones are asked no more; the round closes in {seconds:g} s, if the server runs"
    )


@app.command(epilog="nextapp admin drain federation")
@folder
@option("--end", is_flag=True, help="Take reports again.")
@logged
def drain(data: Path, end: bool) -> None:
    """Take no more reports: phones retry later. Rounds still close."""
    with closing(folders.open_vault(data)) as vault:
        vault.database.wish(drain=not end)
    screen.out.print("reports are taken again" if end else "no more reports are taken")


@app.command("roll-back", epilog="nextapp admin roll-back federation --to 1")
@folder
@option("--to", type=int, required=True, help="Forget what was learnt in round N and later.")
@logged
def roll_back(data: Path, to: int) -> None:
    """Go back to what was learnt before a round; stop the server first.

    This is for rounds in which phones have lied. Phones get the older crowd, or app vectors, in a
    new round. The ε they spent stays spent.
    """
    number = folders.roll_back(data, to)
    screen.out.print(
        f"what was learnt from round {to} on is discarded; start the server to continue with "
        f"round {number}"
    )


@app.command(epilog="nextapp admin backup federation copy")
@folder
@click.argument("out", type=FILE, metavar="OUT", help="New folder for the backup.")
@logged
def backup(data: Path, out: Path) -> None:
    """Back up a server while it runs, and check the copy."""
    folders.back_up(data, out)
    screen.out.print(
        f"{out} contains the federation, including the reports of the open round: keep it as "
        f"safe as the server."
    )


@app.command(epilog="nextapp admin restore copy federation-2")
@click.argument("backup", type=FILE, metavar="BACKUP", help="Folder of a backup.")
@click.argument("data", type=FOLDER, metavar="FOLDER", help="New folder.")
@logged
def restore(backup: Path, data: Path) -> None:
    """Restore a backup to a new folder; then start the server as usual."""
    folders.restore(backup, data)
    if folders.is_gateway(data):
        with closing(folders.open_vault(data)) as vault:
            n = vault.devices.count()
        screen.out.print(
            f"{data} is a gateway with {n:,} devices; start it by nextapp flower gateway."
        )
        return
    found = folders.status(data, time.time())
    screen.out.print(
        f"{data} is at round {found['round']['number']:,} with {found['devices']:,} devices. If "
        f"phones have seen later rounds, start once with --skip-to N, N above the last of them."
    )


@app.command(epilog="nextapp admin check federation")
@folder
def check(data: Path) -> None:
    """Read the whole vault and check it against its checksums."""
    with closing(folders.open_vault(data)) as vault:
        folders.check_vault(vault.path)
    screen.out.print("the vault is undamaged")


@command("nextapp enrol-code federation --uses 10", "enrol-code")
@folder
@option("--uses", type=click.IntRange(min=1), default=1, help="Phones that may use it.")
@option("--hours", type=_HOURS, default=72.0, help="Hours for which it is valid.")
@option("--name", default="", metavar="NAME", help="Name of the code, to revoke its devices later.")
@logged
def enrol_code(data: Path, uses: int, hours: float, name: str) -> None:
    """Issue an enrolment code for phones.

    The server keeps only a hash of it. This works while the server runs.
    """
    with closing(folders.open_vault(data)) as vault:
        code = vault.devices.issue_code(uses=uses, expires=time.time() + 3600 * hours, name=name)
    screen.out.print(code, markup=False)
    screen.err.print(f"for {count(uses, 'phone')}, valid for {hours:g} hours")


def _moment(since_1970: float, form: str = "%Y-%m-%d %H:%M UTC") -> str:
    try:
        return datetime.fromtimestamp(since_1970, UTC).strftime(form)
    except (OverflowError, ValueError):  # beyond what calendars know
        return "never"


def _day(since_1970: float) -> str:
    return _moment(since_1970, "%Y-%m-%d") if since_1970 else "–"
