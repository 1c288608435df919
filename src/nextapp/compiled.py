"""The one module that knows Numba: how a loop is compiled, and where its machine code is kept.

Numba's cache on disk notices a change in the module of a loop, not in the modules that it takes
functions and constants from. So the folder of the cache is named by a digest of the sources: after
any change that could matter, all loops are compiled anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from llvmlite import ir  # type: ignore[import-untyped]
from numba.extending import intrinsic, register_jitable
from numba.typed import Dict

Function = TypeVar("Function", bound=Callable[..., Any])

ABOVE = ("audit", "cli", "server", "studies")
"""Folders above all compiled loops: nothing in them is part of one."""

_CONFIG: Any = numba.config
_PREFIX = "numba-"
_KEPT = 4  # folders of the cache, with those of other versions of the sources


def compiled(function: Function) -> Function:
    """`numba.njit` with a cache on disk, as a decorator that keeps the function's type.

    Division follows NumPy (x / 0 is inf), and a kernel lets go of the interpreter while it runs, so
    that threads share the work.
    """
    return _compiled(function)


def fast(function: Function) -> Function:
    """`compiled`, with sums in any order, which is what lets a loop use the machine's vectors."""
    return _compiled(function, fastmath={"reassoc", "contract", "nsz"})


def usable_in_loops(*functions: Callable[..., Any]) -> None:
    """Let compiled loops call these plain functions; they stay plain for everybody else."""
    for function in functions:
        register_jitable(error_model="numpy")(function)


def _compiled(function: Function, **options: Any) -> Function:
    options |= {"nogil": True, "error_model": "numpy"}
    if CACHE_FOLDER is not None and Path(function.__code__.co_filename).exists():
        with _caching_in(CACHE_FOLDER):
            kernel: Any = numba.njit(cache=True, **options)(function)
        if Path(kernel.stats.cache_path).parent == CACHE_FOLDER:  # a setting can say otherwise
            return cast(Function, kernel)
    return cast(Function, numba.njit(**options)(function))


def digest_of_sources(package: Path) -> str:
    """Of all Python files of the package but those in `ABOVE`, by name and content."""
    found = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        path = file.relative_to(package)
        if path.parts[0] not in ABOVE:
            found.update(path.as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def writable_folder(parents: Iterable[Path], name: str) -> Path | None:
    """The folder `name` in the first of these that can be written to; None if none can.

    Of its older neighbours only the latest are left.
    """
    for parent in parents:
        folder = parent / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError:
            continue
        _delete_older(folder)
        return folder
    return None


def _delete_older(folder: Path) -> None:
    with contextlib.suppress(OSError):  # another process may be at it too
        others = [each for each in folder.parent.glob(f"{_PREFIX}*") if each != folder]
        for old in sorted(others, key=lambda each: each.stat().st_mtime)[: 1 - _KEPT]:
            shutil.rmtree(old, ignore_errors=True)


def _parents(package: Path) -> Iterator[Path]:
    """Where machine code may be kept: only folders that others cannot write to, as it is run."""
    if _CONFIG.CACHE_DIR:
        yield Path(_CONFIG.CACHE_DIR)
        return
    yield package / "__pycache__"
    with contextlib.suppress(RuntimeError):  # no home
        if sys.platform == "win32":
            cache = os.environ.get("LOCALAPPDATA")
        else:
            cache = os.environ.get("XDG_CACHE_HOME")
        yield (Path(cache) if cache else Path.home() / ".cache") / "nextapp"


@contextlib.contextmanager
def _caching_in(folder: Path) -> Iterator[None]:
    before = _CONFIG.CACHE_DIR
    _CONFIG.CACHE_DIR = str(folder)
    try:
        yield
    finally:
        _CONFIG.CACHE_DIR = before


_PACKAGE = Path(__file__).parent
CACHE_FOLDER = writable_folder(_parents(_PACKAGE), _PREFIX + digest_of_sources(_PACKAGE))
"""Where machine code is kept; None where nothing can be written, and then none is kept."""


def _high_word_of(_typing: Any, left: Any, right: Any) -> Any:
    """The upper 64 bits of the 128-bit product of two words: one instruction, not four products."""

    def build(_context: Any, builder: Any, _signature: Any, words: Any) -> Any:
        double = ir.IntType(128)
        product = builder.mul(*(builder.zext(word, double) for word in words))
        return builder.trunc(builder.lshr(product, ir.Constant(double, 64)), ir.IntType(64))

    return numba.uint64(left, right), build


high_word: Any = intrinsic(_high_word_of)

_WHOLE = numba.types.int64


@compiled
def dict_of_whole_numbers() -> Any:
    """An empty dict from whole numbers to whole numbers, for use in a loop."""
    return Dict.empty(_WHOLE, _WHOLE)
