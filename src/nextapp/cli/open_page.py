"""`nextapp open`: the page in a browser."""

from __future__ import annotations

from pathlib import Path

import click

from nextapp.cli import screen, stopping
from nextapp.cli.errors import clear_errors
from nextapp.cli.forms import command, option
from nextapp.cli.options import FILE


@command("nextapp open --data usagestats.txt", "open")
@option("--data", type=FILE, help="A log to begin with, such as an export of your phone.")
@option("--user", metavar="NAME", help="Person whose launches to use, if the log has several.")
@option("--zone", metavar="NAME", help="Time zone of local times. Default: this machine's.")
@option(
    "--server",
    metavar="HOST:PORT",
    help="Operator's address of a running nextapp serve to watch, such as 127.0.0.1:9464.",
)
@option(
    "--federation", type=FILE, metavar="FOLDER", help="Folder of that server, for its accounting."
)
@option(
    "--port",
    type=click.IntRange(min=0, max=65535),
    default=0,
    help="Port on 127.0.0.1; 0 takes a free one.",
)
@option("--browser/--no-browser", default=True, help="Open the browser, or only print the address.")
def open_page(
    data: Path | None,
    user: str | None,
    zone: str | None,
    server: str | None,
    federation: Path | None,
    port: int,
    browser: bool,
) -> None:
    """Show a phone, a crowd and your own log in a browser.

    Only this machine can reach the page, and it loads nothing from elsewhere. Stop it with Ctrl-C.
    """
    with clear_errors("lab,serve"):
        from nextapp.data.importers import Content
        from nextapp.page import application, log_room
        from nextapp.page.server_room import ServerWatch

        watch = None if server is None else ServerWatch(server, federation)
        log = (
            None
            if data is None
            else log_room.read_log(Content.of_file(data).data, data.name, zone, user)
        )
        stopping.end_by_itself()
        with application.open_page(port, application.Page(log, server=watch)) as page:
            screen.out.print(
                f"[bold]{page.address}[/]\nOnly this machine can reach it, and only with this "
                f"address. Stop it with Ctrl-C.",
                highlight=False,
                soft_wrap=True,
            )
            if browser:
                page.show()
            page.run()
