"""Bit packing of integers, lowest bit first, and vectorised unpacking of many reports."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from nextapp.wire import WireError, WrongSize


def width(n_values: int) -> int:
    """Number of bits for a number from 0 to n_values − 1.

    >>> width(1392), width(1)
    (11, 0)
    """
    return (n_values - 1).bit_length()


def n_bytes(widths: Sequence[int]) -> int:
    """Number of bytes for fields of these widths."""
    return (sum(widths) + 7) // 8


def pack_fields(values: Sequence[int], widths: Sequence[int]) -> bytes:
    """The fields as bytes, the first in the lowest bits; unused bits are 0.

    >>> pack_fields([5, 1], [3, 1])
    b'\\r'
    """
    word = 0
    for value, bits in zip(reversed(values), reversed(widths), strict=True):
        word = word << bits | int(value)
    return word.to_bytes(n_bytes(widths), "little")


def unpack_fields(rows: npt.NDArray[np.uint8], widths: Sequence[int]) -> npt.NDArray[np.int64]:
    """The inverse of `pack_fields`, (n_rows, n_fields); a field has at most 62 bits."""
    bits = np.unpackbits(rows, axis=1, bitorder="little")
    if bits[:, sum(widths) :].any():
        raise WireError("the bits after the last field of a payload must be 0.")
    fields = np.zeros((len(rows), len(widths)), np.int64)
    start = 0
    for field, n in enumerate(widths):
        fields[:, field] = bits[:, start : start + n] @ (1 << np.arange(n, dtype=np.int64))
        start += n
    return fields


def read_word(payload: bytes, widths: Sequence[int]) -> int:
    """One payload as a number, after checking its size and that its unused bits are 0."""
    if len(payload) != n_bytes(widths):
        raise WrongSize(f"a payload must have {n_bytes(widths)} bytes, got {len(payload)}.")
    word = int.from_bytes(payload, "little")
    if word >> sum(widths):
        raise WireError("the bits after the last field of a payload must be 0.")
    return word


class SignedPositions:
    """The payload of mechanisms that send k distinct positions below D and a sign for each.

    k positions, ascending, then k bits, 1 for +1.
    """

    def __init__(self, k: int, D: int) -> None:
        self.k = k
        self.D = D
        self._widths = [width(D)] * k + [1] * k
        self.n_bytes = n_bytes(self._widths)

    def pack(self, positions: Sequence[int], positive: Sequence[bool | int]) -> bytes:
        return pack_fields([*positions, *positive], self._widths)

    def unpack(
        self, rows: npt.NDArray[np.uint8]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Positions and signs ±1, (n_rows, k) each; a `WireError` if they are not valid."""
        fields = unpack_fields(rows, self._widths)
        positions, signs = fields[:, : self.k], 2 * fields[:, self.k :] - 1
        if (positions[:, -1] >= self.D).any() or (np.diff(positions, axis=1) <= 0).any():
            raise WireError(f"positions must be ascending and from 0 to {self.D - 1}.")
        return positions, signs

    def check(self, payload: bytes) -> None:
        """The checks of `unpack` for one payload, without arrays: it runs for every report."""
        word = read_word(payload, self._widths)
        bits, before = width(self.D), -1
        for _ in range(self.k):
            position = word & ((1 << bits) - 1)
            word >>= bits
            if not before < position < self.D:
                raise WireError(f"positions must be ascending and from 0 to {self.D - 1}.")
            before = position

    def positions(self, payload: bytes) -> list[int]:
        """The positions of a payload that has passed `check`."""
        bits, word = width(self.D), int.from_bytes(payload, "little")
        return [word >> bits * place & ((1 << bits) - 1) for place in range(self.k)]

    def all(self) -> Iterator[bytes]:
        """All possible payloads."""
        for positions in itertools.combinations(range(self.D), self.k):
            for positive in itertools.product((0, 1), repeat=self.k):
                yield self.pack(positions, positive)
