"""hadamard: Hadamard response (Acharya, Sun and Zhang 2019), with h blocks, for any ε.

A report is most likely one of the columns where the phone's row of a Hadamard matrix is +1.

b       a block has 2^b outputs and room for 2^b − 1 cells       H  Sylvester's matrix, ±1
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt

from nextapp.privacy.frequency import FrequencyMechanism, Longs, design_variance

_MOST_BITS = 23


class Hadamard(FrequencyMechanism):
    """A cell is a row v > 0 of the Hadamard matrix of its block and favours the columns with +1.

        S_v = {u : the binary numbers u and v share an even number of ones},   s = 2^(b−1)
        ι = ½,   a part s/n = 1/(2h) of all outputs

    h minimises the variance; it is about (e^ε − 1)/2. The variance is then twice that of `subset`
    at a large ε, and the same at a small ε, where h = 1. The server computes all N_v with one fast
    Walsh-Hadamard transform, in integers.
    """

    name = "hadamard"

    def _design(self) -> None:
        self.b, self.n_blocks = best_blocks(self.epsilon, self.D)
        self.block = 1 << self.b
        self.cells_in_block = self.block - 1
        self.n_favoured = self.block // 2
        self.overlap = Fraction(1, 2)

    def _favoured_output(self, point: int, place: int) -> int:
        row = point + 1
        top = row.bit_length() - 1
        low = place & ((1 << top) - 1)
        column = (place >> top) << (top + 1) | low  # the bit `top` left out
        return column | ((column & row).bit_count() & 1) << top

    def _favour(self, points: Longs, output: int) -> npt.NDArray[np.bool_]:
        shared = (points + 1) & output
        for shift in (32, 16, 8, 4, 2, 1):
            shared = shared ^ shared >> shift
        return np.asarray(shared & 1 == 0)

    def _supports(self, tally: Longs) -> Longs:
        """N_v = (B + Σ_u H_vu T(u))/2."""
        n_blocks, m = tally.shape
        waves = tally.copy()
        half = 1
        while half < m:
            pairs = waves.reshape(n_blocks, -1, 2, half)
            waves = np.stack(
                [pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], axis=2
            ).reshape(n_blocks, m)
            half *= 2
        return (waves[:, :1] + waves[:, 1:]) // 2


def best_blocks(epsilon: float, n_cells: int) -> tuple[int, int]:
    """(b, h) with room for all cells and the least variance.

    >>> best_blocks(4.5, 87 * 88)
    (7, 61)
    """

    def spread(b: int) -> float:
        h = -(-n_cells // ((1 << b) - 1))
        return design_variance(epsilon, h, 1 << (b - 1), h << b, Fraction(1, 2))

    b = min(range(1, _MOST_BITS + 1), key=spread)
    return b, -(-n_cells // ((1 << b) - 1))
