"""`nextapp phone`: a phone to try by hand; thin over `nextapp.phone.commands`.

Lines are printed without Rich, and `nextapp.phone` is imported when a command runs: most of what
such a command takes is its imports.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from nextapp.cli import options
from nextapp.cli.dataclass_options import expand_options
from nextapp.cli.errors import clear_errors

app = typer.Typer(
    help="A phone to try by hand: log launches, predict, take part in training.",
    no_args_is_help=True,
)
File = Annotated[
    Path, typer.Option("--store", envvar="NEXTAPP_PHONE", help="The phone's one file.")
]
PHONE = Path("phone.db")
KEPT_DAYS = 90.0  # as in nextapp.phone.store, which is not imported for a help text


@contextmanager
def _phone_commands() -> Iterator[ModuleType]:
    """`nextapp.phone.commands`; what they raise is one clear line."""
    with clear_errors():
        if "numpy" not in sys.modules:  # threads take longer to start than a phone computes
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        from nextapp.phone import commands

        try:
            yield commands
        except commands.ERRORS as error:
            raise OSError(str(error)) from error


def _show(lines: Iterable[str]) -> None:
    for line in lines:
        typer.echo(line)


@app.command(epilog="Example: nextapp phone init --lifetime 30 --per-day 1")
def init(
    lifetime: Annotated[float, typer.Option(help="ε it may spend in its life.")],
    per_day: Annotated[float, typer.Option(help="ε it may spend in a day.")],
    days: Annotated[float, typer.Option(help="Days of launches it keeps.")] = KEPT_DAYS,
    store: File = PHONE,
) -> None:
    """Set up a phone with its owner's limits."""
    with _phone_commands() as commands:
        _show(commands.init(store, lifetime=lifetime, per_day=per_day, days=days))


@app.command(epilog="Example: nextapp phone limits --lifetime 10 --per-day 0.5")
def limits(
    lifetime: Annotated[float, typer.Option(help="ε it may spend in its life.")],
    per_day: Annotated[float, typer.Option(help="ε it may spend in a day.")],
    raise_them: Annotated[bool, typer.Option("--raise", help="Allow larger ones.")] = False,
    store: File = PHONE,
) -> None:
    """Set the owner's limits anew."""
    with _phone_commands() as commands:
        _show(commands.limits(store, lifetime=lifetime, per_day=per_day, raise_them=raise_them))


@app.command(epilog="Example: nextapp phone log maps mail")
def log(
    apps: Annotated[list[str], typer.Argument(help="Apps, in the order of their launches.")],
    when: Annotated[
        str | None, typer.Option(help="An ISO time or seconds since 1970. Default: now.")
    ] = None,
    store: File = PHONE,
) -> None:
    """Write launches down."""
    with _phone_commands() as commands:
        _show(commands.log(store, apps, when))


@app.command(epilog="Example: nextapp phone predict -n 3")
def predict(
    n: Annotated[int, typer.Option("-n", min=1, help="How many apps to name.")] = 5,
    when: Annotated[str | None, typer.Option(help="As in log.")] = None,
    why: Annotated[bool, typer.Option("--why", help="Say what speaks for each.")] = False,
    store: File = PHONE,
) -> None:
    """Name the apps that are most likely launched next."""
    with _phone_commands() as commands:
        _show(commands.predict(store, n, when, why))


@app.command(
    epilog="Example: nextapp phone sync --server https://localhost:8443 --ca ca.pem --code CODE"
)
def sync(
    server: Annotated[str | None, typer.Option(help="https://host:port; kept.")] = None,
    code: Annotated[str | None, typer.Option(help="The operator's code, to join.")] = None,
    ca: Annotated[
        Path | None, typer.Option(help="File with the only certificates to trust; kept.")
    ] = None,
    proxy: Annotated[
        str | None, typer.Option(help="http://host:port, or 'environment'. Default: none.")
    ] = None,
    trust_clock: Annotated[
        bool, typer.Option("--trust-clock", help="Vouch for this machine's clock.")
    ] = False,
    store: File = PHONE,
) -> None:
    """Fetch the round's model, learn from it, send the round's one report."""
    with _phone_commands() as commands:
        synced, lines = commands.sync(
            store, server=server, code=code, ca=ca, proxy=proxy, trust_clock=trust_clock
        )
        _show(lines)
        if not commands.is_sound(synced):
            raise typer.Exit(1)


@app.command(epilog="Example: nextapp phone status")
def status(store: File = PHONE) -> None:
    """What is held, and what has ever left this phone."""
    with _phone_commands() as commands:
        _show(commands.status(store))


@app.command("import", epilog="Example: nextapp phone import synthetic:lsapp --user user-7")
@expand_options
def learn(
    source: options.Source,
    *,
    user: Annotated[
        str | None, typer.Option(help="Whose launches; needed where there are several people.")
    ] = None,
    seed: options.Seed = 0,
    log_options: options.LogOptions,
    store: File = PHONE,
) -> None:
    """Take one person's launches from a log."""
    with _phone_commands() as commands:
        if not store.exists():
            raise ValueError(f"{store} is missing: set up a phone first, nextapp phone init.")
        log = log_options.read(source, seed)
        if user is None and log.n_users != 1:
            raise ValueError(
                f"{source} holds the launches of {log.n_users:,} people: choose one by --user, "
                f"for example --user {log.users[0]}."
            )
        if user is not None and user not in log.users:
            raise ValueError(f"{source} has no user {user!r}; one there is {log.users[0]!r}.")
        one = 0 if user is None else log.users.index(user)
        part = slice(*log.starts[one : one + 2])
        launches = [
            (log.apps[app], time / 1000, 0)
            for app, time in zip(log.app[part], log.time[part].tolist(), strict=True)
        ]
        _show(commands.learn(store, launches))


@app.command(epilog="Example: nextapp phone export --out mine.json")
def export(
    form: Annotated[
        str, typer.Option("--format", help="json, everything; csv, the launches.")
    ] = "json",
    out: Annotated[Path | None, typer.Option(help="A file. Default: the screen.")] = None,
    store: File = PHONE,
) -> None:
    """Everything this phone holds."""
    with _phone_commands() as commands:
        text = commands.export(store, form)
        if out is None:
            typer.echo(text)
        else:
            out.write_text(text, encoding="utf-8")


@app.command(epilog="Example: nextapp phone forget --app maps")
def forget(
    app: Annotated[
        str | None, typer.Option(help="Only this app, because it is gone from the phone.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    store: File = PHONE,
) -> None:
    """Erase the history, and say what cannot be taken back."""
    with _phone_commands() as commands:
        if app is None and not yes:
            typer.confirm(f"Erase the whole history of {store}?", abort=True)
        _show(commands.forget(store, app))
