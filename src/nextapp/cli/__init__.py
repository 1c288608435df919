"""The command `nextapp`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command; without Click, say which pip line brings it."""
    try:
        from nextapp.cli import stopping

        stopping.answer_ctrl_c()
        try:
            from nextapp.cli.commands import app
        except ModuleNotFoundError as error:
            sys.exit(
                f"The command needs {error.name}, which is not installed. The base install is what "
                f"a phone carries (python -m nextapp.phone); for all commands: pip install "
                f"'nextapp[lab]', for a server alone: pip install 'nextapp[serve]'"
            )
        app()
    except KeyboardInterrupt:
        from nextapp.cli import stopping

        stopping.say_stopped()
        sys.exit(stopping.CODE)
