"""`nextapp phone`: the commands of `nextapp.phone`, which has its own parser and few imports."""

from __future__ import annotations

import typer

from nextapp.phone.__main__ import Launches, main


def phone(context: typer.Context) -> None:
    """A phone to try by hand: log launches, predict, take part in training."""
    raise typer.Exit(main(context.args, prog="nextapp phone", read_log=_read_log))


def _read_log(
    source: str,
    user: str | None,
    user_column: str | None,
    time_column: str | None,
    app_column: str | None,
    time_unit: str | None,
    skip_bad_rows: bool,
) -> Launches:
    """One person's launches from any log that the lab can read."""
    from nextapp.cli.options import read_log

    log = read_log(source, 0, user_column, time_column, app_column, time_unit or "s", skip_bad_rows)
    if user is None and log.n_users != 1:
        raise ValueError(
            f"{source} holds the launches of {log.n_users:,} people: choose one by --user, for "
            f"example --user {log.users[0]}."
        )
    if user is not None and user not in log.users:
        raise ValueError(f"{source} has no user {user!r}; one there is {log.users[0]!r}.")
    one = 0 if user is None else log.users.index(user)
    part = slice(*log.starts[one : one + 2])
    return [
        (log.apps[app], when / 1000, 0)
        for app, when in zip(log.app[part], log.time[part].tolist(), strict=True)
    ]
