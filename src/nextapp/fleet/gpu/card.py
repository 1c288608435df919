"""The one module that knows CuPy: a card, and how a kernel is compiled for it and started."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_HERE = Path(__file__).parent
_INCLUDE = re.compile(r'^#include "(\w+\.cuh)"$', re.MULTILINE)
_STANDARD = "-std=c++17"
_STATIC_SHARED_BYTES = 48 * 1024  # more of it has to be asked for
_UPLOAD_BYTES = 64 << 20

Fill = Callable[[int, int, npt.NDArray[Any]], None]


class NoGpu(ValueError):
    """There is no card here that could run a fleet."""


@dataclass(frozen=True)
class KernelSource:
    """A file of kernels with its definitions, and options of the compiler."""

    file: str
    definitions: tuple[tuple[str, str], ...] = ()
    options: tuple[str, ...] = ()

    def text(self) -> str:
        """The file with what it includes in place; a compiler needs no folder to look in."""
        return _INCLUDE.sub(lambda found: _read(found[1]), _read(self.file))


def _read(file: str) -> str:
    return (_HERE / file).read_text(encoding="utf-8")


class Card:
    """The card that CUDA shows first, by CuPy.

    Tests stand another one in its place: ``xp`` is then NumPy.
    """

    def __init__(self) -> None:
        try:
            import cupy
        except ImportError as error:
            raise NoGpu(
                "device 'gpu' needs CuPy: install nextapp[gpu] (docs/install.md)"
            ) from error
        try:
            n_cards = cupy.cuda.runtime.getDeviceCount()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise NoGpu(
                f"device 'gpu' needs an NVIDIA card and its driver, and CUDA finds none ({error}); "
                f"device 'cpu' needs neither. nextapp[gpu] has the library, not the driver."
            ) from error
        if n_cards == 0:
            raise NoGpu("device 'gpu' needs an NVIDIA card, and CUDA finds none; say 'cpu'.")
        self.xp: Any = cupy
        self._kernels: dict[tuple[KernelSource, str], Any] = {}
        self._modules: dict[KernelSource, Any] = {}
        self._staging: list[npt.NDArray[np.uint8]] | None = None

    def launch(
        self,
        source: KernelSource,
        name: str,
        n_blocks: int,
        n_threads: int,
        shared_bytes: int,
        arguments: Sequence[Any],
    ) -> None:
        """Start a kernel. Arguments are arrays of ``xp``, NumPy scalars, or None for no array."""
        if n_blocks == 0:
            return
        kernel = self._kernel(source, name)
        if shared_bytes > _STATIC_SHARED_BYTES:
            kernel.max_dynamic_shared_size_bytes = shared_bytes
        given = tuple(np.uint64(0) if each is None else each for each in arguments)
        kernel((n_blocks,), (n_threads,), given, shared_mem=shared_bytes)

    def upload(self, n: int, dtype: npt.DTypeLike, fill: Fill) -> Any:
        """An array of ``xp`` with n entries; ``fill(first, last, part)`` writes them in parts.

        By way of two page-locked parts in turn: one is filled while the other is copied.
        """
        cupy, kind = self.xp, np.dtype(dtype)
        array, at_once = cupy.empty(n, kind), _UPLOAD_BYTES // kind.itemsize
        if self._staging is None:
            self._staging = [
                np.frombuffer(cupy.cuda.alloc_pinned_memory(_UPLOAD_BYTES), np.uint8, _UPLOAD_BYTES)
                for _ in range(2)
            ]
        stream = cupy.cuda.Stream(non_blocking=True)
        copied: list[Any] = [None, None]
        cupy.cuda.get_current_stream().synchronize()
        for number, first in enumerate(range(0, n, at_once)):
            last, turn = min(first + at_once, n), number % 2
            if copied[turn] is not None:
                copied[turn].synchronize()
            part = self._staging[turn].view(kind)[: last - first]
            fill(first, last, part)
            array[first:last].set(part, stream=stream)
            copied[turn] = stream.record()
        stream.synchronize()
        return array

    def download(self, array: Any) -> npt.NDArray[Any]:
        """An array of ``xp`` as one of NumPy."""
        found: npt.NDArray[Any] = self.xp.asnumpy(array)
        return found

    def _kernel(self, source: KernelSource, name: str) -> Any:
        if (source, name) not in self._kernels:
            if source not in self._modules:
                defined = tuple(f"-D{key}={value}" for key, value in source.definitions)
                self._modules[source] = self.xp.RawModule(
                    code=source.text(),
                    options=(_STANDARD, *defined, *source.options),
                )
            self._kernels[source, name] = self._modules[source].get_function(name)
        return self._kernels[source, name]


@functools.cache
def first_card() -> Card:
    """The card of this process; `NoGpu` says what is missing."""
    return Card()
