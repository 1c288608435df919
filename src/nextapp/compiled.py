"""The only module that uses Numba: compiles loops and caches their machine code on disk.

Numba's cache on disk notices a change in the module of a loop, but not in the modules from which it
imports functions and constants. So each module with loops has a cache folder of its own, whose name
contains a hash of that module and of all modules of the package that it imports, directly or not.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import event
from numba.extending import intrinsic, register_jitable
from numba.typed import Dict

Function = TypeVar("Function", bound=Callable[..., Any])

_CONFIG: Any = numba.config
_PACKAGE = Path(__file__).parent
_KEPT = 4  # number of cache folders kept per module, for this and other versions of the sources
_IMPORT = re.compile(r"^(?:from|import) (nextapp[\w.]*)(?: import (\([^)]*\)|.*))?", re.MULTILINE)


def compiled(function: Function) -> Function:
    """`numba.njit` with a cache on disk, as a decorator that keeps the function's type.

    Division follows NumPy (x / 0 is inf), and a kernel releases the GIL while it runs, so that
    threads can run in parallel.
    """
    return _compiled(function)


def borrowing(function: Function) -> Function:
    """`compiled`, for a loop that makes no array and returns none.

    Numba counts who uses an array, with a locked instruction for each array of each call, which can
    take most of the time of short functions. Here arrays are used as their caller keeps them.
    """
    return _compiled(function, _nrt=False)


def fast(function: Function) -> Function:
    """`compiled`, with sums in any order, which allows SIMD vectorisation."""
    return _compiled(function, fastmath={"reassoc", "contract", "nsz"})


def inlined(function: Function) -> Function:
    """`compiled` and always inlined, for short functions in hot loops."""
    return _compiled(function, inline="always")


def usable_in_loops(*functions: Callable[..., Any]) -> None:
    """Let compiled loops call these Python functions, which remain ordinary functions elsewhere."""
    for function in functions:
        register_jitable(error_model="numpy")(function)


class _Compilations(event.Listener):
    """Calls `tell`, where it is set, at the start of the next compilation, once."""

    tell: Callable[[], None] | None = None

    def on_start(self, event: Any) -> None:
        tell, self.tell = self.tell, None
        if tell is not None:
            tell()

    def on_end(self, event: Any) -> None:
        """Only the start is of interest."""


_COMPILATIONS = _Compilations()
event.register("numba:compile", _COMPILATIONS)  # type: ignore[no-untyped-call]


def at_next_compilation(tell: Callable[[], None]) -> None:
    """Call `tell` once, as soon as a loop must be compiled. A loop in the cache needs no compiling.

    A later call replaces an earlier one.
    """
    _COMPILATIONS.tell = tell


def _compiled(function: Function, **options: Any) -> Function:
    for name, value in (("nogil", True), ("error_model", "numpy"), ("_nrt", True)):
        options.setdefault(name, value)
    folder = cache_folder(Path(function.__code__.co_filename))
    if folder is not None:
        with _caching_in(folder):
            kernel: Any = numba.njit(cache=True, **options)(function)
        if Path(kernel.stats.cache_path).parent == folder:  # a Numba setting may override it
            return cast(Function, kernel)
    return cast(Function, numba.njit(**options)(function))


@cache
def cache_folder(file: Path) -> Path | None:
    """The cache folder for the loops of this file; None (no cache) if no folder is writable."""
    if not file.exists():
        return None
    return writable_folder(_parents(_PACKAGE), f"numba-{file.stem}-{digest_of_sources(file)}")


def sources_of(file: Path, package: Path = _PACKAGE) -> set[Path]:
    """This file and all files of the package that it imports, directly or not."""
    found: set[Path] = set()
    waiting = [file]
    while waiting:
        source = waiting.pop()
        if source not in found:
            found.add(source)
            waiting.extend(_imported(source, package))
    return found


def digest_of_sources(file: Path, package: Path = _PACKAGE) -> str:
    """Hash of the names and contents of `sources_of` this file."""
    digest = hashlib.sha256()
    for source in sorted(sources_of(file, package)):
        name = os.path.relpath(source, package)
        digest.update(name.encode() + b"\0" + _text(source).encode() + b"\0")
    return digest.hexdigest()[:16]


@cache
def _imported(file: Path, package: Path) -> list[Path]:
    """The files of the package that this file imports, with the `__init__.py` of their folders."""
    files: list[Path] = []
    for module, names in _IMPORT.findall(_text(file)):
        parts = module.split(".")[1:]
        folders = [package.joinpath(*parts[:length]) for length in range(len(parts) + 1)]
        folder = folders[-1]
        files.extend(each / "__init__.py" for each in folders)
        files.append(folder.with_suffix(".py"))
        files.extend(folder / f"{name}.py" for name in re.findall(r"\w+", names))
    return [each for each in files if each.is_file()]


@cache
def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def writable_folder(parents: Iterable[Path], name: str) -> Path | None:
    """The folder `name` in the first of these parents that is writable; None if there is none.

    Of the older cache folders of the same module next to it, only the latest are kept.
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
    with contextlib.suppress(OSError):  # another process may delete them at the same time
        module = folder.name.rpartition("-")[0]
        others = [each for each in folder.parent.glob(f"{module}-*") if each != folder]
        for old in sorted(others, key=lambda each: each.stat().st_mtime)[: 1 - _KEPT]:
            shutil.rmtree(old, ignore_errors=True)


def _parents(package: Path) -> Iterator[Path]:
    """Possible cache folders; only folders that other users cannot write to, as the code is run."""
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


_TYPES: Any = numba.types
_PAIR = _TYPES.UniTuple(numba.uint64, 2)


def _wide_product_of(_typing: Any, left: Any, right: Any) -> Any:
    """The 128-bit product of two words, as (upper 64 bits, lower 64 bits): one instruction."""

    def build(context: Any, builder: Any, signature: Any, words: Any) -> Any:
        single, double = ir.IntType(64), ir.IntType(128)
        product = builder.mul(*(builder.zext(word, double) for word in words))
        high = builder.trunc(builder.lshr(product, ir.Constant(double, 64)), single)
        pair = (high, builder.trunc(product, single))
        return context.make_tuple(builder, signature.return_type, pair)

    return _PAIR(left, right), build


wide_product: Any = intrinsic(_wide_product_of)

_WHOLE = _TYPES.int64


@compiled
def dict_of_whole_numbers() -> Any:
    """An empty dict from integers to integers, for use in a compiled loop."""
    return Dict.empty(_WHOLE, _WHOLE)
