"""A card for machines without one: the kernels' own source, compiled for the processor."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nextapp.fleet.gpu.card import KernelSource

SHIM = Path(__file__).parent / "cuda_on_processor.h"
_KERNEL = r'extern "C" __global__ void(?: __launch_bounds__\([^{;]*?\)\s)?\s*(\w+)\('
_ROOM_BYTES = 232_448  # of shared memory, as much as a block can have on a card


class EmulatedCard:
    """`nextapp.fleet.gpu.card.Card`; it needs g++ and works in `folder`."""

    xp = np

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._libraries: dict[KernelSource, ctypes.CDLL] = {}

    def launch(
        self,
        source: KernelSource,
        name: str,
        n_blocks: int,
        n_threads: int,
        shared_bytes: int,
        arguments: Sequence[Any],
    ) -> None:
        if n_blocks == 0:
            return
        assert shared_bytes <= _ROOM_BYTES
        assert all(each.flags["C_CONTIGUOUS"] for each in arguments if isinstance(each, np.ndarray))
        held = [
            np.uint64(0) if each is None
            else np.uint64(each.ctypes.data) if isinstance(each, np.ndarray)
            else each
            for each in arguments
        ]  # fmt: skip
        cells = [np.array([each]) for each in held]
        pointers = (ctypes.c_void_p * len(cells))(*[cell.ctypes.data for cell in cells])
        start = getattr(self._library(source), f"launch_{name}")
        assert start(n_blocks, n_threads, pointers) == 0, f"{name}: a thread waits for ever"

    def upload(self, n: int, dtype: Any, fill: Any) -> Any:
        array = np.empty(n, dtype)
        for first in range(0, n, 1000):
            fill(first, min(first + 1000, n), array[first : first + 1000])
        return array

    def download(self, array: Any) -> Any:
        return array.copy()

    def _library(self, source: KernelSource) -> ctypes.CDLL:
        if source not in self._libraries:
            stem = f"{Path(source.file).stem}-{abs(hash(source))}"
            text = source.text()
            kernels = re.findall(_KERNEL, text)
            room = f"four room[{_ROOM_BYTES} / sizeof(four)];" if "four room[]" in text else ""
            program = self.folder / f"{stem}.cpp"
            program.write_text(
                f'#include "{SHIM}"\n{text}\n{room}\n'
                + "".join(f"LAUNCHER({kernel})\n" for kernel in kernels),
                encoding="utf-8",
            )
            library = self.folder / f"{stem}.so"
            definitions = [f"-D{key}={value}" for key, value in source.definitions]
            subprocess.run(
                ["g++", "-std=c++17", "-O1", "-ffp-contract=off", "-fPIC", "-shared",
                 "-U_FORTIFY_SOURCE", "-Wl,-Bsymbolic", "-w", *definitions, str(program),
                 "-o", str(library)],
                check=True, timeout=300,
            )  # fmt: skip
            self._libraries[source] = ctypes.CDLL(str(library))
        return self._libraries[source]
