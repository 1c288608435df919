"""subset: subset selection with sets from projective geometry, in h blocks.

Subset selection (Ye and Barg 2018) sends a random set of cells that contains the true one with
probability ½. Such a set is large; Feldman, Nelson, Nguyen and Talwar (2022, "Private frequency
estimation via projective geometry") encode it as one point. This is their hybrid form.

q       a prime number, about (1 + e^ε)/h        t   dimension
point   a nonzero vector of F_q^t up to multiples; the one whose first nonzero entry is 1
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from nextapp.privacy.frequency import FrequencyMechanism, Longs, design_variance

_LARGEST_SPACE = 1 << 24  # vectors of F_q^t, all of which the server's transform holds
_LARGEST_Q = 251
_AT_ONCE = 1 << 22


class Subset(FrequencyMechanism):
    """Cells and outputs are both points of the projective space over F_q; a cell v favours the
    points u orthogonal to it.

        S_v = {u : u·v = 0 mod q},   m(t) = (q^t − 1)/(q − 1) points,   s = m(t−1)
        ι = m(t−2)/m(t−1),   a part s/n ≈ 1/(h q) of all outputs

    q, t and h minimise the variance for the number of cells. With many cells it is
    4e^ε/(e^ε − 1)², as if the whole set were sent; with few cells t = 2, where a cell favours one
    output and the report is randomised response on all cells. ``q`` and ``t`` can be given; they
    determine h. The server computes all N_v with one Fourier transform over F_q^t.
    """

    name = "subset"

    def __init__(
        self,
        *,
        n_apps: int,
        d: int,
        epsilon: float,
        q: int | None = None,
        t: int | None = None,
    ) -> None:
        if (q is None) != (t is None):
            raise ValueError(f"q and t are given together or not at all, got q={q!r}, t={t!r}.")
        if q is not None and t is not None:
            check_geometry(q, t)
        self._given = q, t
        super().__init__(n_apps=n_apps, d=d, epsilon=epsilon)

    def _design(self) -> None:
        q, t = self._given
        if q is None or t is None:
            q, t = best_geometry(self.epsilon, self.D)
        self.q, self.t = q, t
        self.n_blocks = -(-self.D // points(q, t))
        self.block = self.cells_in_block = points(self.q, self.t)
        self.n_favoured = points(self.q, self.t - 1)
        self.overlap = Fraction(points(self.q, self.t - 2), self.n_favoured)

    def _favoured_output(self, point: int, place: int) -> int:
        q, t = self.q, self.t
        v, w = vector(point, q, t), vector(place, q, t - 1)
        lead = v.index(1)
        u = [*w[:lead], 0, *w[lead:]]
        u[lead] = -sum(a * b for a, b in zip(u, v, strict=True)) % q
        return number(u, q)

    def _favour(self, points: Longs, output: int) -> npt.NDArray[np.bool_]:
        u = np.array(vector(output, self.q, self.t), np.int64)
        orthogonal: npt.NDArray[np.bool_] = vectors(points, self.q, self.t) @ u % self.q == 0
        return orthogonal

    def _supports(self, tally: Longs) -> Longs:
        """With T(u) on all multiples of u, its transform at v is Σ_u T(u) (q 1[u·v = 0] − 1).

        The results are integers, so they are rounded.
        """
        q, t, m = self.q, self.t, self.block
        places = (q ** np.arange(t - 1, -1, -1, dtype=np.int64)).astype(np.int64)
        lines = vectors(np.arange(m), q, t)
        first = lines @ places  # index of the point itself in F_q^t
        found = np.empty((len(tally), m), np.int64)
        step = max(1, _AT_ONCE // q**t)
        for start in range(0, len(tally), step):
            part = tally[start : start + step]
            space = np.zeros((len(part), q**t))
            for multiple in range(1, q):
                space[:, lines * multiple % q @ places] = part
            waves = np.fft.fftn(space.reshape(len(part), *[q] * t), axes=range(1, t + 1))
            real = waves.real.reshape(len(part), -1)[:, first]
            found[start : start + step] = np.rint((real + part.sum(axis=1, keepdims=True)) / q)
        return found


def points(q: int, t: int) -> int:
    """m(t), the number of points of the projective space of F_q^t."""
    return int((q**t - 1) // (q - 1))


def vector(point: int, q: int, t: int) -> list[int]:
    """The point with this number as a vector.

    A vector is zeros, a 1, then k digits in base q; smaller k come first.

    >>> [vector(p, 2, 2) for p in range(3)]
    [[0, 1], [1, 0], [1, 1]]
    """
    k = 0
    while point >= points(q, k + 1):
        k += 1
    rest = point - points(q, k)
    digits = []
    for _ in range(k):
        rest, digit = divmod(rest, q)
        digits.append(digit)
    return [0] * (t - 1 - k) + [1] + digits[::-1]


def number(u: list[int], q: int) -> int:
    """The number of the point of a nonzero vector u: the inverse of `vector`.

    >>> number([0, 2, 1], 3) == number([0, 1, 2], 3)
    True
    """
    lead = next(place for place, entry in enumerate(u) if entry)
    inverse = pow(u[lead], -1, q)
    rest = 0
    for entry in u[lead + 1 :]:
        rest = rest * q + entry * inverse % q
    return points(q, len(u) - 1 - lead) + rest


def vectors(numbers: Longs, q: int, t: int) -> Longs:
    """`vector` of many points, (n, t)."""
    starts = np.array([points(q, k) for k in range(t + 1)], np.int64)
    k = np.searchsorted(starts, numbers, side="right") - 1
    rest = numbers - starts[k]
    found = np.zeros((len(numbers), t), np.int64)
    for place in range(t - 1, -1, -1):
        found[:, place] = rest % q
        rest = rest // q
    found[np.arange(len(numbers)), t - 1 - k] = 1
    return found


def check_geometry(q: int, t: int) -> None:
    if q not in primes(_LARGEST_Q) or t < 2 or q**t > _LARGEST_SPACE:
        raise ValueError(
            f"q must be a prime number up to {_LARGEST_Q} and t >= 2 with q^t <= 2^24, got "
            f"q={q!r}, t={t!r}."
        )


def best_geometry(epsilon: float, n_cells: int) -> tuple[int, int]:
    """(q, t) with the least variance for this many cells.

    >>> best_geometry(4.5, 87 * 88)
    (89, 3)
    """

    def designs() -> Iterator[tuple[int, int]]:
        yield 2, 2
        for q in primes(_LARGEST_Q):
            for t in range(3, 1 + int(math.log(_LARGEST_SPACE) / math.log(q) + 1e-9)):
                yield q, t
                if points(q, t) >= n_cells:
                    break

    def spread(design: tuple[int, int]) -> float:
        q, t = design
        h = -(-n_cells // points(q, t))
        s = points(q, t - 1)
        return design_variance(epsilon, h, s, h * points(q, t), Fraction(points(q, t - 2), s))

    return min(designs(), key=spread)


def primes(most: int) -> list[int]:
    """
    >>> primes(11)
    [2, 3, 5, 7, 11]
    """
    return [q for q in range(2, most + 1) if all(q % p for p in range(2, math.isqrt(q) + 1))]
