"""Atomic and durable writing of files."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file; a reader, also after a crash, finds either the old or the new content.

    What is no file, such as a pipe, is written as it is.
    """
    if path.exists() and not path.is_file():
        with _named(path):
            path.write_bytes(data)
        return
    with _named(path):
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    sync_folder(path.parent)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """An error of the system names this file."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_public(path: Path, data: bytes) -> None:
    """`write_atomically`, for a file that all users may read."""
    write_atomically(path, data)
    if path.is_file():
        path.chmod(0o644)


@contextmanager
def create_atomically(path: Path) -> Iterator[Path]:
    """A temporary file to write; at the end it gets the name `path`, but never replaces a file.

    Raises `FileExistsError` if `path` exists by then. Only the owner can read the file.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        yield draft
        try:
            os.link(draft, path)  # a rename would replace a file created in the meantime
        except FileExistsError:
            raise
        except OSError:  # no hard links: not quite atomic, but still never replaces a file
            handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            with open(handle, "wb") as file:
                file.write(draft.read_bytes())
                file.flush()
                os.fsync(file.fileno())
        sync_folder(path.parent)
    except OSError as error:
        error.filename = error.filename or str(path)  # a full disk has none
        raise
    finally:
        draft.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Flush creations, renames and removals in a folder to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
