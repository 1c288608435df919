"""The base class of frequency oracles: a phone samples one of its cells and randomises it.

F (n_apps, d)   shares of one phone: entries >= 0 that sum to 1 or less
π (D,)          the mean of the phones' shares, which the server estimates
y               a report: one of n outputs, in h blocks
S_x             the s outputs that a cell x favours, all in the block of x
ι               |S_x ∩ S_x'|/s, the same for any two cells of a block      T, W  see `exact`
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from nextapp.privacy.exact import W, keep_threshold
from nextapp.privacy.guarantee import SECRET_BITS, Guarantee
from nextapp.privacy.mechanism import FiniteMechanism, Gradient, Tally, check_name, check_tally
from nextapp.privacy.packing import n_bytes, pack_fields, read_word, unpack_fields, width
from nextapp.randomness import Bits, below
from nextapp.shares import Shares
from nextapp.wire import Floats, Report, WireError

Longs = npt.NDArray[np.int64]

GRID = 1 << 52
"""Shares are rounded down to multiples of 1/GRID before a cell is sampled."""

LARGEST_D = 1 << 23


class FrequencyMechanism(FiniteMechanism):
    """Samples a cell x with probability F(x), then an output y from S_x or from all outputs.

        P[y | x] = e^ε/(s e^ε + n − s) in S_x,  1/(s e^ε + n − s) elsewhere
        π̂(x) = (N_x − ι B_x)/(M κ (1 − ι)) − (1 − κ)(s/n − ι/h)/(κ (1 − ι)),   κ = T/W

    N_x of M reports are in S_x, B_x in the block of x; with probability κ a report is uniform on
    S_x, else uniform on all outputs. ε holds for any sets: the distribution has two levels. With
    probability 1 − ΣF no cell is sampled and the report is uniform on all outputs, whose
    probability lies between the two levels, so phones without data are protected too.

    Bits: 2 words, for the cell and for κ; then always both `below(s)` and `below(n)`.
    Payload: y.
    """

    ball = "simplex"
    n_blocks: int  # h
    block: int  # outputs in a block
    cells_in_block: int
    n_favoured: int  # s
    overlap: Fraction  # ι

    def __init__(self, *, n_apps: int, d: int, epsilon: float) -> None:
        super().__init__(n_apps=n_apps, d=d, epsilon=epsilon, clip=1.0)
        if self.D > LARGEST_D:
            raise ValueError(
                f"n_apps·d must be at most 2^23 cells, got {self.D}: use a smaller catalogue, with "
                f"the apps that most phones have."
            )
        self._design()
        self.n_outputs = self.n_blocks * self.block
        self.threshold = keep_threshold(self.epsilon, self.n_favoured, self.n_outputs)
        self._widths = [width(self.n_outputs)]
        self._n_bytes = n_bytes(self._widths)
        self.scattering = scattering(self.D)

    @abstractmethod
    def _design(self) -> None:
        """Choose the sets: n_blocks, block, cells_in_block, n_favoured and overlap."""

    @abstractmethod
    def _favoured_output(self, point: int, place: int) -> int:
        """The `place`-th of the s outputs, within its block, that a cell favours; a bijection."""

    @abstractmethod
    def _favour(self, points: Longs, output: int) -> npt.NDArray[np.bool_]:
        """Which of these cells of a block favour this output of the block."""

    @abstractmethod
    def _supports(self, tally: Longs) -> Longs:
        """(h, cells_in_block): the exact number N_x of reports in S_x, from a tally (h, block)."""

    @property
    def payload_bytes(self) -> int:
        return self._n_bytes

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(
            self.epsilon, covers=("cell", "whether there is one"), assumptions=(SECRET_BITS,)
        )

    @property
    def variance(self) -> float:
        """E‖π̂ − F‖² of one report if F is uniform over all cells."""
        return self.D * self.cell_variance(1 / self.D)

    def cell_variance(self, share: float = 0.0) -> float:
        """The variance of π̂(x) from one report, for a cell with this share, if all blocks have the
        same total share."""
        return _cell_variance(
            share, self.threshold / W, self.n_blocks, self.n_favoured, self.n_outputs, self.overlap
        )

    def encode(self, F: Gradient, bits: Bits, round: int = 0, coins: Bits | None = None) -> Report:
        pick, coin = bits.words(2).tolist()
        place, other = below(bits, self.n_favoured), below(bits, self.n_outputs)
        cells, reach = self._cumulate(F)
        drawn = int(np.searchsorted(reach, pick >> 12, side="right"))
        known = drawn < len(cells)
        block, point = self._locate(int(cells[drawn]) if known else 0)
        favoured = block * self.block + self._favoured_output(point, place)
        output = favoured if known and coin < self.threshold else other
        return self._report(output, round)

    def tally(self, reports: Sequence[Report]) -> Tally:
        """(n_outputs,): counts of the outputs. Tallies of batches add up."""
        outputs = self._outputs(reports)
        return np.bincount(outputs, minlength=self.n_outputs).astype(np.int64)

    def estimate(self, tally: Tally, n_reports: int) -> Floats:
        """(n_apps, d): π̂ from a tally. It is unbiased, so entries may be negative."""
        check_tally(tally, (self.n_outputs,), n_reports)
        blocks = tally.reshape(self.n_blocks, self.block)
        kept, overlap = self.threshold / W, float(self.overlap)
        inside = self._supports(blocks) - overlap * blocks.sum(axis=1, keepdims=True)
        scale = kept * (1.0 - overlap)
        level = (1.0 - kept) * (self.n_favoured / self.n_outputs - overlap / self.n_blocks)
        block, point = self._locate(np.arange(self.D))
        return self._reshape((inside[block, point] / n_reports - level) / scale)

    def check(self, report: Report) -> None:
        check_name(self, report)
        output = read_word(report.payload, self._widths)
        if output >= self.n_outputs:
            raise self._beyond(output)

    def probability(self, report: Report, F: Gradient) -> Fraction:
        output = int(self._outputs([report])[0])
        cells, reach = self._cumulate(F)
        weights = np.diff(reach, prepend=0)
        block, point = self._locate(cells)
        mine = block == output // self.block
        mine[mine] = self._favour(point[mine], output % self.block)
        favouring = Fraction(int(weights[mine].sum()), GRID)
        known = Fraction(int(weights.sum()), GRID)
        kept = Fraction(self.threshold, W)
        return favouring * kept / self.n_favoured + (1 - known * kept) / self.n_outputs

    def outputs(self) -> Iterator[Report]:
        self._check_countable(self.n_outputs)
        for output in range(self.n_outputs):
            yield self._report(output, 0)

    def apply_clip(self, F: Gradient) -> Floats:
        cells, share = self._shares(F)
        flat = np.zeros(self.D)
        flat[cells] = share
        return self._reshape(flat)

    def _shares(self, F: Gradient) -> tuple[Longs, Floats]:
        """The cells with a share > 0, and their shares, scaled to sum to 1 if they sum to more."""
        if isinstance(F, Shares):
            self._check_shape(F.shape)
            cells, share = F.cells, F.share
            if not np.isfinite(share).all():
                raise ValueError("shares must be finite; a report of anything else is refused.")
        else:
            flat = self._flat(F)
            cells = np.flatnonzero(flat > 0)
            share = flat[cells]
        share = np.maximum(share, 0.0)
        largest = float(share.max(initial=0.0))
        if largest > 1.0:  # so that no sum overflows
            share = share / largest
            share = share / share.sum()
        elif (total := float(share.sum())) > 1.0 + 1e-9:
            share = share / total
        return cells, share

    def _cumulate(self, F: Gradient) -> tuple[Longs, Longs]:
        """The cells, and their cumulative shares in units of 1/GRID, at most GRID."""
        cells, share = self._shares(F)
        weights = np.floor(share * GRID).astype(np.int64)
        return cells, np.minimum(np.cumsum(weights), GRID)

    def _locate(self, cell: int | Longs) -> tuple[Any, Any]:
        """Block and point of a cell; neighbouring cells are scattered over the blocks."""
        scattered = cell * self.scattering % self.D
        return scattered % self.n_blocks, scattered // self.n_blocks

    def _report(self, output: int, round: int) -> Report:
        return Report(self.name, round, pack_fields([output], self._widths))

    def _outputs(self, reports: Sequence[Report]) -> Longs:
        outputs = unpack_fields(self._payloads(reports, self._n_bytes), self._widths)[:, 0]
        if outputs.max(initial=0) >= self.n_outputs:
            raise self._beyond(int(outputs.max()))
        return outputs

    def _beyond(self, output: int) -> WireError:
        return WireError(
            f"a report of {self.name} must be from 0 to {self.n_outputs - 1}, got {output}."
        )


def scattering(D: int) -> int:
    """A step near the golden section of D that visits every cell: gcd(step, D) = 1.

    >>> scattering(100)
    61
    """
    step = max(1, int(0.6180339887498949 * D))
    while math.gcd(step, D) > 1:
        step -= 1
    return step


def design_variance(
    epsilon: float, n_blocks: int, n_favoured: int, n_outputs: int, overlap: Fraction
) -> float:
    """The variance of one report for a rare cell; the design that minimises it is chosen."""
    excess = math.expm1(min(epsilon, 64.0)) * n_favoured
    kept = excess / (excess + n_outputs)
    return _cell_variance(0.0, kept, n_blocks, n_favoured, n_outputs, overlap)


def _cell_variance(
    share: float, kept: float, n_blocks: int, n_favoured: int, n_outputs: int, overlap: Fraction
) -> float:
    """Variance of (1[y in S_x] − ι 1[y in the block of x])/(κ (1 − ι)) if blocks have share 1/h."""
    common = float(overlap)
    in_block = 1.0 / n_blocks
    favoured = kept * (share * (1 - common) + common * in_block)
    favoured += (1 - kept) * n_favoured / n_outputs
    mean = favoured - common * in_block
    square = favoured * (1 - common) ** 2 + (in_block - favoured) * common**2
    return max(0.0, square - mean**2) / (kept * (1 - common)) ** 2
