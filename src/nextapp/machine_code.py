"""Machine code for `nextapp.compiled`: the only module that imports Numba."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import event
from numba.extending import intrinsic, register_jitable, typeof_impl
from numba.typed import Dict

from nextapp.compiled import Loop, at_next_compilation, usable

_CONFIG: Any = numba.config
_TYPES: Any = numba.types
_PAIR = _TYPES.UniTuple(numba.uint64, 2)
_WHOLE = _TYPES.int64
_ONE_AT_A_TIME = threading.RLock()  # the folder of the cache is a setting of the whole process


def compile_lazily(
    function: Callable[..., Any], folder: Path | None, options: dict[str, Any]
) -> Any:
    """`numba.njit`: compiles at the first call, with a cache in this folder (None: without one)."""
    while usable:
        register_jitable(error_model="numpy")(usable.pop())
    usual: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": True}
    options = usual | options
    if folder is not None:
        with _ONE_AT_A_TIME, _caching_in(folder):
            loop: Any = numba.njit(cache=True, **options)(function)
        if Path(loop.stats.cache_path).parent == folder:  # a Numba setting may override it
            return loop
    return numba.njit(**options)(function)


@contextlib.contextmanager
def _caching_in(folder: Path) -> Iterator[None]:
    before = _CONFIG.CACHE_DIR
    _CONFIG.CACHE_DIR = str(folder)
    try:
        yield
    finally:
        _CONFIG.CACHE_DIR = before


@typeof_impl.register(Loop)
def _type_of_loop(loop: Loop, context: Any) -> Any:
    """The type of a loop that is passed to another one as an argument."""
    return typeof_impl(loop.machine, context)


class _Compilations(event.Listener):
    def on_start(self, event: Any) -> None:
        while at_next_compilation:
            at_next_compilation.pop()()

    def on_end(self, event: Any) -> None:
        """Only the start is of interest."""


event.register("numba:compile", _Compilations())  # type: ignore[no-untyped-call]


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


@numba.njit
def dict_of_whole_numbers() -> Any:
    return Dict.empty(_WHOLE, _WHOLE)
