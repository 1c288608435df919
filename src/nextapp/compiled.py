"""Loops that Numba compiles where that pays, and that run as plain Python on small logs.

A loop is one function. As it is, Python runs it; compiled, it is up to a hundred times faster, but
the first time it takes seconds to compile, and Numba must be imported. So a loop that says how long
plain Python would take (``seconds``) is compiled only once it has used more time than compiling
takes, or if its machine code is on disk already. Any other loop is always compiled.

Numba's cache on disk notices a change in the module of a loop, but not in the modules from which it
imports functions and constants. So each module with loops has a cache folder of its own, whose name
contains a hash of that module and of all modules of the package that it imports, directly or not.
Only `nextapp.machine_code` imports Numba.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import cache, cached_property, update_wrapper
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, TypeVar, cast

import numpy as np

Function = TypeVar("Function", bound=Callable[..., Any])
Estimate = Callable[..., float]

LOADING = 0.5  # seconds to import Numba and to load machine code from disk
COMPILING = 2.0  # seconds to compile most loops

_PACKAGE = Path(__file__).parent
_KEPT = 4  # number of cache folders kept per module, for this and other versions of the sources
_IMPORT = re.compile(r"^(?:from|import) (nextapp[\w.]*)(?: import (\([^)]*\)|.*))?", re.MULTILINE)


class Loop:
    """A function in two forms: ``plain``, as Python runs it, and ``machine``, compiled.

    In each form it calls other loops in the same form.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        seconds: Estimate | None,
        plain: Callable[..., Any] | None,
        options: dict[str, Any],
    ) -> None:
        update_wrapper(self, function)
        self.function = cast(FunctionType, function)
        self.options = options
        self._seconds = seconds
        self._plain = plain
        self._spent = 0.0  # seconds in plain Python
        self._lock = threading.RLock()

    def __call__(self, *arguments: Any) -> Any:
        if self._seconds is None or "machine" in self.__dict__:
            return self.machine(*arguments)
        return self.form(self._seconds(*arguments))(*arguments)

    def form(self, seconds: float, compiling: float = COMPILING) -> Callable[..., Any]:
        """The form to use for work that takes plain Python about this many seconds more."""
        if "machine" not in self.__dict__:
            self._spent += seconds
            waits = self._spent < LOADING or (self._spent < compiling and not self.is_on_disk())
            if waits:
                return self.as_numba_divides
        return cast(Callable[..., Any], self.machine)

    @cached_property
    def plain(self) -> Callable[..., Any]:
        return self._plain or _linked(self.function, lambda loop: loop.plain)

    def as_numba_divides(self, *arguments: Any) -> Any:
        """Run in plain Python, where x / 0 of NumPy numbers is inf and whole numbers wrap."""
        with np.errstate(all="ignore"):
            return self.plain(*arguments)

    @cached_property
    def machine(self) -> Any:
        from nextapp import machine_code

        with self._lock:
            if "machine" in self.__dict__:  # by another thread
                return self.__dict__["machine"]
            function = _linked(self.function, lambda loop: loop.machine)
            folder = cache_folder(Path(self.function.__code__.co_filename))
            return machine_code.compile_lazily(function, folder, self.options)

    def __reduce__(self) -> str:
        return self.function.__qualname__  # pickled by name, as functions are

    def is_on_disk(self) -> bool:
        """Whether there is machine code of this very source."""
        code = self.function.__code__
        folder = cache_folder(Path(code.co_filename))
        index = f"*{code.co_name}-{code.co_firstlineno}.*.nbi"
        return folder is not None and any(folder.glob(f"*/{index}"))


def loop(
    *,
    seconds: Estimate | None = None,
    plain: Callable[..., Any] | None = None,
    **options: Any,
) -> Callable[[Function], Function]:
    """A decorator for loops; the function keeps its type.

    Compiled, division follows NumPy (x / 0 is inf), and the loop releases the GIL while it runs, so
    that threads can run in parallel. ``seconds`` says from the arguments how long plain Python
    takes about; without it the loop is always compiled. ``plain`` stands in for the function in
    plain Python, where NumPy has something faster. ``options`` are those of Numba.
    """

    def decorate(function: Function) -> Function:
        return cast(Function, Loop(function, seconds, plain, options))

    return decorate


compiled = loop()
borrowing = loop(_nrt=False)
"""`compiled`, for a loop that makes no array and returns none.

Numba counts who uses an array, with a locked instruction for each array of each call, which can
take most of the time of short functions. Here arrays are used as their caller keeps them."""
fast = loop(fastmath={"reassoc", "contract", "nsz"})
"""`compiled`, with sums in any order, which allows SIMD vectorisation."""
inlined = loop(inline="always")
"""`compiled` and always inlined, for short functions in hot loops."""


def _linked(function: FunctionType, form: Callable[[Loop], Any]) -> FunctionType:
    """A copy of the function that calls loops in this form."""
    values = {name: function.__globals__.get(name) for name in _names(function.__code__)}
    found = {name: form(value) for name, value in values.items() if isinstance(value, Loop)}
    scope = function.__globals__ | found
    copy = FunctionType(function.__code__, scope, function.__name__, function.__defaults__)
    update_wrapper(copy, function)
    del copy.__wrapped__  # type: ignore[attr-defined]
    return copy


def _names(code: CodeType) -> set[str]:
    """The global names that a function and the functions in it use."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _names(constant)
    return found


def loop_of(function: Callable[..., Any]) -> Loop:
    """What a decorator has made of it, for those who choose its form themselves."""
    return cast(Loop, function)


class Native(Loop):
    """A function of `nextapp.machine_code` with this name, for use in loops."""

    def __init__(self, name: str, plain: Callable[..., Any]) -> None:
        super().__init__(plain, None, plain, {})
        self.name = name

    def __reduce__(self) -> str:
        return self.name

    @cached_property
    def machine(self) -> Any:
        from nextapp import machine_code

        return getattr(machine_code, self.name)


def _wide_product(left: int, right: int) -> tuple[int, int]:
    """The 128-bit product of two words, as (upper 64 bits, lower 64 bits)."""
    high, low = divmod(int(left) * int(right), 1 << 64)
    return high, low


wide_product: Any = Native("wide_product", _wide_product)
dict_of_whole_numbers: Any = Native("dict_of_whole_numbers", dict)
"""An empty dict from integers to integers, for use in a loop."""


usable: list[Callable[..., Any]] = []
"""Python functions that compiled loops may call."""


def usable_in_loops(*functions: Callable[..., Any]) -> None:
    """Let compiled loops call these Python functions, which remain ordinary functions elsewhere."""
    usable.extend(functions)


at_next_compilation: list[Callable[[], None]] = []
"""Called once, as soon as a loop must be compiled. A loop in the cache needs no compiling."""


@cache
def cache_folder(file: Path) -> Path | None:
    """The cache folder for the loops of this file; None (no cache) if no folder is writable."""
    if not file.exists():
        return None
    return writable_folder(_parents(_PACKAGE), f"numba-{file.stem}-{digest_of_sources(file)}")


def sources_of(file: Path) -> set[Path]:
    """This file and all files of the package that it imports, directly or not."""
    found: set[Path] = set()
    waiting = [file, _PACKAGE / "machine_code.py"]
    while waiting:
        source = waiting.pop()
        if source not in found:
            found.add(source)
            waiting.extend(_imported(source))
    return found


def digest_of_sources(file: Path) -> str:
    """Hash of the names and contents of `sources_of` this file."""
    digest = hashlib.sha256()
    for source in sorted(sources_of(file)):
        name = os.path.relpath(source, _PACKAGE)
        digest.update(name.encode() + b"\0" + _text(source).encode() + b"\0")
    return digest.hexdigest()[:16]


@cache
def _imported(file: Path) -> list[Path]:
    """The files of the package that this file imports, with the `__init__.py` of all folders."""
    files = [each / "__init__.py" for each in file.parents if each.is_relative_to(_PACKAGE)]
    for module, names in _IMPORT.findall(_text(file)):
        parts = module.split(".")[1:]
        folders = [_PACKAGE.joinpath(*parts[:length]) for length in range(len(parts) + 1)]
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
    if os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(os.environ["NUMBA_CACHE_DIR"])
        return
    yield package / "__pycache__"
    with contextlib.suppress(RuntimeError):  # no home
        if sys.platform == "win32":
            cache = os.environ.get("LOCALAPPDATA")
        else:
            cache = os.environ.get("XDG_CACHE_HOME")
        yield (Path(cache) if cache else Path.home() / ".cache") / "nextapp"
