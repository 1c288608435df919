"""Files that are whole or not there: what several parts of the package need of a disk."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a reader, or a crash, finds either the old content or the new, whole."""
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
def created_whole(path: Path) -> Iterator[Path]:
    """A draft to write; at the end it gets the name `path`, whole, and never over another file.

    `FileExistsError` where there is one by then. Its mode is the owner's alone.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        yield draft
        try:
            os.link(draft, path)  # a rename would replace a file made meanwhile
        except FileExistsError:
            raise
        except OSError:  # no hard links here: not quite at once, but still never over another
            handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            with open(handle, "wb") as file:
                file.write(draft.read_bytes())
                file.flush()
                os.fsync(file.fileno())
        sync_folder(path.parent)
    finally:
        draft.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """What was created, renamed or removed in a folder is on the disk itself."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
