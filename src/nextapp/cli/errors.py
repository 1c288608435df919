"""Errors of a command: one line on standard error and an exit code, no traceback.

Every command imports this module, so it imports neither Rich nor NumPy.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import click

# Which extra of pyproject.toml installs a library, by the name under which it is imported.
EXTRAS = {
    "click": "cli",
    "rich": "cli",
    "polars": "lab",
    "numba": "lab",
    "scipy": "lab",
    "matplotlib": "lab",
    "optuna": "lab",
    "dp_accounting": "lab",
    "ray": "ray",
    "starlette": "serve",
    "uvicorn": "serve",
    "httptools": "serve",
    "uvloop": "serve",
    "cryptography": "serve",
    "prometheus_client": "serve",
    "trustme": "serve",
    "flwr": "flower",
}


@contextmanager
def clear_errors(extra: str | None = None) -> Iterator[None]:
    """Bad input or a missing library is one clear line and exit code 1.

    ``extra`` is the extra that brings all a command needs, where that is more than one.
    """
    try:
        with missing_library(extra):
            yield
    except (ValueError, OSError, FloatingPointError) as error:
        show_error(_in_words(error))
        raise click.exceptions.Exit(1) from error


@contextmanager
def missing_library(extra: str | None = None) -> Iterator[None]:
    """An optional library that is not installed is one line that names the extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library not in EXTRAS:
            raise  # not an optional library: a broken install or a bug
        show_error(
            f"this needs {library}, which is not installed: "
            f"pip install 'nextapp[{extra or EXTRAS[library]}]'"
        )
        raise click.exceptions.Exit(1) from error


def show_error(text: str) -> None:
    word = "error:" if os.environ.get("NO_COLOR") else click.style("error:", fg="red", bold=True)
    click.echo(f"{word} {text}", err=True)


def _in_words(error: Exception) -> str:
    if isinstance(error, FileNotFoundError) and error.filename is not None:
        return f"there is no file {error.filename}."
    return str(error)
