"""`nextapp admin`: look after a federation, while its server runs or not."""

from __future__ import annotations

import json as json_format
import time
import urllib.request
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from nextapp.cli import screen
from nextapp.cli.errors import clear_errors
from nextapp.table import Table

app = typer.Typer(
    epilog="nextapp admin status federation",
    no_args_is_help=True,
    help="Look after a server: status, rounds, devices, codes, backup.",
)

Folder = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="Folder of the server.", show_default=False)
]
_DAY = 86_400


@app.command(epilog="nextapp admin status federation")
def status(data: Folder) -> None:
    """Show the open round, devices, codes, and what phones have spent."""
    with clear_errors():
        from nextapp.server import administration

        found = administration.status(data, time.time())
        spent = found.accounting
        rows = [
            ["round", f"{found.round:,}, opened {_moment(found.opened)}"],
            ["reports", f"{found.n_reports:,} of {found.goal:,}, at least {found.minimum:,}"],
            ["deadline", f"{_moment(found.deadline)}, put off {found.extensions:,} times"],
            ["phones report by", f"{found.mechanism}, ε = {found.epsilon:g} a report"],
            ["devices", f"{found.n_devices:,}"],
            ["open codes", f"{found.n_codes:,}"],
            [
                "rounds so far",
                f"{spent['rounds_stepped']:,} with a step, {spent['rounds_passed_over']:,} without",
            ],
            ["reports so far", f"{spent['reports']:,}"],
            ["ε of a phone", f"at most {spent['epsilon_worst_case']:g}: in every round so far"],
            ["takes reports", "no: draining" if found.draining else "yes, while it runs"],
        ]
        screen.out.print(Table.of_text(["", ""], rows).terminal(header=False))


@app.command(epilog="nextapp admin devices federation --most 10")
def devices(
    data: Folder,
    most: Annotated[int, typer.Option(min=1, help="Devices to list, at most.")] = 50,
) -> None:
    """List devices by name. When they reported is not stored."""
    with clear_errors():
        from nextapp.server import administration

        with closing(administration.open_vault(data)) as vault:
            rows = [
                [each.name, _day(each.day * _DAY), _day(each.expires), each.code or "–"]
                for each in vault.devices.listing(most)
            ]
            n = vault.devices.count()
        headings = ["device", "enrolled", "expires", "code"]
        screen.out.print(Table.of_text(headings, rows).terminal())
        if n > len(rows):
            screen.out.print(f"and {n - len(rows):,} more", highlight=False)


@app.command(epilog="nextapp admin expel federation --device 0123456789abcdef")
def expel(
    data: Folder,
    device: Annotated[str | None, typer.Option(metavar="NAME", help="Name of a device.")] = None,
    code: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of a code: all devices that enrolled with it."),
    ] = None,
    expired: Annotated[
        bool, typer.Option("--expired", help="All devices whose token has expired.")
    ] = False,
) -> None:
    """Revoke devices: their reports are refused until they enrol again."""
    with clear_errors():
        from nextapp.server import administration

        if (device is not None) + (code is not None) + expired != 1:
            raise ValueError("give one of --device, --code and --expired.")
        with closing(administration.open_vault(data)) as vault:
            n = (
                vault.devices.expel_expired(time.time())
                if expired
                else vault.devices.expel(device, code)
            )
        if not n and device is not None:
            raise ValueError(f"there is no device {device}: nextapp admin devices lists them.")
        screen.out.print(f"{n:,} device{'s' * (n != 1)} expelled")


@app.command(epilog="nextapp admin rotate federation --days 30")
def rotate(
    data: Folder,
    device: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of a device. Default: all.")
    ] = None,
    code: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of a code: all devices that enrolled with it."),
    ] = None,
    days: Annotated[
        float, typer.Option(help="Days until the old tokens take no more reports.")
    ] = 30.0,
) -> None:
    """Let devices get new tokens; each does so after its next report, and needs no new code.

    One that stays away for longer gets its new token when it comes back, and misses a round.
    """
    with clear_errors():
        from nextapp.server import administration

        if device is not None and code is not None:
            raise ValueError("give --device, --code or neither.")
        if not days >= 0:
            raise ValueError(f"--days must be a number >= 0, got {days!r}.")
        expires = time.time() + _DAY * days
        with closing(administration.open_vault(data)) as vault:
            n = vault.devices.ask_renewal(expires, device, code)
        if not n and device is not None:
            raise ValueError(f"there is no device {device}: nextapp admin devices lists them.")
        screen.out.print(
            f"{n:,} device{'s' * (n != 1)} asked to renew, by {_moment(expires)}", highlight=False
        )


@app.command(epilog="nextapp admin codes federation")
def codes(data: Folder) -> None:
    """List enrolment codes that can be used, by name. The codes themselves are not stored."""
    with clear_errors():
        from nextapp.server import administration

        with closing(administration.open_vault(data)) as vault:
            found = vault.devices.codes(time.time())
        rows = [[each.name or "–", f"{each.uses:,}", _moment(each.expires)] for each in found]
        screen.out.print(Table.of_text(["code", "uses left", "expires"], rows).terminal())


@app.command(epilog="nextapp admin withdraw federation")
def withdraw(
    data: Folder,
    code: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the codes to cancel. Default: all.")
    ] = None,
) -> None:
    """Cancel enrolment codes. Devices that used them stay enrolled."""
    with clear_errors():
        from nextapp.server import administration

        with closing(administration.open_vault(data)) as vault:
            n = vault.devices.withdraw_codes(code)
        screen.out.print(f"{n:,} code{'s' * (n != 1)} cancelled")


@app.command(name="set", epilog="nextapp admin set federation --goal 20000")
def set_rules(
    data: Folder,
    goal: Annotated[int | None, typer.Option(help="Reports at which a round closes.")] = None,
    minimum: Annotated[
        int | None, typer.Option(help="Reports that a round needs to count.")
    ] = None,
    deadline: Annotated[
        float | None, typer.Option(help="Seconds after which a round closes.")
    ] = None,
) -> None:
    """Change when rounds close, while the server runs."""
    with clear_errors():
        from nextapp.server import administration

        given = {"goal": goal, "minimum": minimum, "deadline": deadline}
        given = {key: value for key, value in given.items() if value is not None}
        if not given:
            raise ValueError("give --goal, --minimum or --deadline.")
        now = administration.change(data, given, time.time())
        screen.out.print(
            f"a round closes at {now.goal:,} reports, or after {now.deadline:g} s with "
            f"{now.minimum:,} or more",
            highlight=False,
        )


@app.command(name="close-round", epilog="nextapp admin close-round federation")
def close_round(data: Folder) -> None:
    """Close the open round now, if it has its minimum of reports."""
    with clear_errors():
        from nextapp.server import administration

        administration.close_round(data, time.time())
        screen.out.print("the round closes within a second, if the server runs")


@app.command(epilog="nextapp admin drain federation")
def drain(
    data: Folder,
    end: Annotated[bool, typer.Option("--end", help="Take reports again.")] = False,
) -> None:
    """Take no more reports: phones retry later. Rounds still close."""
    with clear_errors():
        from nextapp.server import administration
        from nextapp.server.vault import DRAINING

        with closing(administration.open_vault(data)) as vault:
            vault.raise_flag(DRAINING, not end)
        screen.out.print("reports are taken again" if end else "no more reports are taken")


@app.command(name="roll-back", epilog="nextapp admin roll-back federation --to 1")
def roll_back(
    data: Folder,
    to: Annotated[
        int,
        typer.Option(help="Forget what was learnt in round N and later.", show_default=False),
    ],
) -> None:
    """Go back to what was learnt before a round; stop the server first.

    This is for rounds in which phones have lied. Phones get the older crowd, or app vectors, in a
    new round. The ε they spent stays spent.
    """
    with clear_errors():
        from nextapp.server import administration

        number = administration.roll_back(data, to)
        screen.out.print(
            f"what was learnt from round {to} on is discarded; start the server to continue with "
            f"round {number}",
            highlight=False,
        )


@app.command(epilog="nextapp admin backup federation copy")
def backup(
    data: Folder,
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="New folder for the backup.", show_default=False)
    ],
) -> None:
    """Back up a server while it runs, and check the copy."""
    with clear_errors():
        from nextapp.server import administration

        administration.back_up(data, out)
        screen.out.print(
            f"{out} contains the federation, including the reports of the open round: keep it as "
            f"safe as the server.",
            highlight=False,
        )


@app.command(epilog="nextapp admin restore copy federation-2")
def restore(
    backup: Annotated[
        Path, typer.Argument(metavar="BACKUP", help="Folder of a backup.", show_default=False)
    ],
    data: Annotated[Path, typer.Argument(metavar="FOLDER", help="New folder.", show_default=False)],
) -> None:
    """Restore a backup to a new folder; then start the server as usual."""
    with clear_errors():
        from nextapp.server import administration

        administration.restore(backup, data)
        if administration.is_gateway(data):
            vault = administration.open_vault(data)
            n = vault.devices.count()
            vault.close()
            screen.out.print(
                f"{data} is a gateway with {n:,} devices; start it by nextapp flower gateway.",
                highlight=False,
            )
            return
        found = administration.status(data, time.time())
        screen.out.print(
            f"{data} is at round {found.round:,} with {found.n_devices:,} devices. If phones have "
            f"seen later rounds, start once with --skip-to N, N above the last of them.",
            highlight=False,
        )


@app.command(epilog="nextapp admin check federation")
def check(data: Folder) -> None:
    """Read the whole vault and check it against its checksums."""
    with clear_errors():
        from nextapp.server import administration
        from nextapp.server.federation import check_vault

        with closing(administration.open_vault(data)) as vault:
            check_vault(vault.path)
        screen.out.print("the vault is undamaged")


@app.command(epilog="nextapp admin suspects --operator 127.0.0.1:9464")
def suspects(
    operator: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Operator's address of the running server.")
    ] = "127.0.0.1:9464",
) -> None:
    """List devices that sent reports which no real phone would make."""
    with clear_errors():
        try:
            with urllib.request.urlopen(f"http://{operator}/suspects", timeout=10) as answer:
                found = json_format.load(answer)["suspects"]
        except (OSError, ValueError, KeyError) as error:
            raise ValueError(
                f"no server answers at {operator}: {error}. Its log says where it listens for its "
                f"operator."
            ) from error
        rows = [[name, f"{n:,}"] for name, n in found]
        screen.out.print(Table.of_text(["device", "refused"], rows).terminal())


def _moment(since_1970: float, form: str = "%Y-%m-%d %H:%M UTC") -> str:
    try:
        return datetime.fromtimestamp(since_1970, UTC).strftime(form)
    except (OverflowError, ValueError):  # beyond what calendars know
        return "never"


def _day(since_1970: float) -> str:
    return _moment(since_1970, "%Y-%m-%d") if since_1970 else "–"
