"""The command `nextapp`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command; without the lab libraries, say which pip line brings them."""
    try:
        from nextapp.cli.commands import app
    except ModuleNotFoundError as error:
        sys.exit(
            f"The command needs {error.name}, which is not installed. The base install is what a "
            f"phone carries; for the commands: pip install 'nextapp[lab]'"
        )
    app()
