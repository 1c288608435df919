"""What every mechanism has: two sides, a clip, a guarantee, a law and a variance.

F (n_apps, d)   gradient of one phone            D = n_apps · d, the length of F row by row
x (D,)          F flattened, clipped, divided by the clip C, so that it lies in the unit ball
W = 2^64        number of values of one word of random bits
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from nextapp.model import PhoneGradient
from nextapp.privacy.exact import check_epsilon
from nextapp.privacy.guarantee import Guarantee
from nextapp.randomness import Bits
from nextapp.shares import Shares
from nextapp.wire import Floats, Report, WireError, WrongSize

Gradient = Floats | PhoneGradient | Shares
Tally = npt.NDArray[np.int64]

OUTPUT_LIMIT = 1 << 20


class Mechanism(ABC):
    """A way to report a gradient. `epsilon` is the budget of one whole report.

    ``ball`` is the norm of the clip: "linf", "l1", "l2" or "none"; or "simplex" for a mechanism
    that reports `Shares`, not gradients. ``unsafe`` mechanisms promise no ε-LDP and are for
    simulations only.
    """

    name: ClassVar[str]
    finite_output: bool = False
    unsafe: ClassVar[bool] = False
    ball: str

    def __init__(self, *, n_apps: int, d: int, epsilon: float, clip: float | None = None) -> None:
        for word, size in (("n_apps", n_apps), ("d", d)):
            if not isinstance(size, int | np.integer) or size < 1:
                raise ValueError(f"{word} must be a whole number of 1 or more, got {size!r}.")
        self.n_apps = int(n_apps)
        self.d = int(d)
        self.D = self.n_apps * self.d
        self.epsilon = epsilon
        if clip is None:
            self.clip = math.inf
        else:
            self.clip = check_clip(clip)

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee:
        """What is promised, what is left out, and what must hold."""

    @property
    @abstractmethod
    def variance(self) -> float:
        """V = E‖x̂ − x‖² of one report in units of clip², at x = 0 where it depends on x."""

    @abstractmethod
    def encode(self, F: Gradient, bits: Bits, round: int = 0, coins: Bits | None = None) -> Report:
        """Phone: the report of the gradient F, drawn with `bits`.

        ``coins`` are public bits for the part of a report that does not depend on F: the seed of a
        codebook, the positions of harmony. A phone takes `DeviceCoins`, so that a hostile one
        cannot choose them; without coins this part is drawn with `bits` too, as in a simulation.
        ε holds whatever the coins are, even if an attacker chose them.
        """

    @abstractmethod
    def decode(self, reports: Sequence[Report]) -> Floats:
        """Server: (n_apps, d), the estimate of the mean of the clipped gradients."""

    def tally(self, reports: Sequence[Report]) -> Tally:
        """Server: the reports as whole numbers that add up exactly.

        tally(a + b) == tally(a) + tally(b), whatever the parts and the order; no reports, all 0.
        """
        raise TypeError(
            f"{self.name} draws real numbers, whose sum depends on their order: only mechanisms "
            f"with finite_output have a tally; `decode` takes all reports at once."
        )

    def estimate(self, tally: Tally, n_reports: int) -> Floats:
        """Server: (n_apps, d), what `decode` makes of the reports behind a tally."""
        raise TypeError(f"{self.name} has no tally to estimate from.")

    def check(self, report: Report) -> None:
        """Raise a `WireError` for a report that no phone can have drawn."""
        self.decode([report])

    def matches_coins(self, report: Report, coins: Bits) -> bool:
        """Server: whether the public part of a report was drawn with these coins.

        The report has passed `check`. Where there is no public part any coins match.
        """
        del report, coins
        return True

    @abstractmethod
    def log_prob(self, report: Report, F: Gradient) -> float:
        """Log of the probability (density, where outputs are real) of this report under F.

        Where a report carries a seed, it is conditional on the seed.
        """

    def outputs(self) -> Iterator[Report]:
        """All reports there can be; only where they are few."""
        raise NotImplementedError(
            f"{self.name} has too many reports to list; only finite-output mechanisms list theirs."
        )

    def clipped(self, F: Gradient) -> Floats:
        """F after the clip that is part of the mechanism, (n_apps, d), in the units of F."""
        if self.ball == "none":
            return self._flat(F).reshape(self.n_apps, self.d)
        return self.clip * self._x(F).reshape(self.n_apps, self.d)

    def _flat(self, F: Gradient) -> Floats:
        """F as one vector of D finite numbers."""
        if isinstance(F, PhoneGradient):
            self._check_shape(F.app_vectors.shape)
            x = F.dense().ravel()
        elif isinstance(F, Shares):
            self._check_shape(F.shape)
            x = F.dense().ravel()
        else:
            F = np.asarray(F, np.float64)
            self._check_shape(F.shape)
            x = F.ravel()
        if not np.isfinite(x).all():
            raise ValueError("the gradient must be finite; a report of anything else is refused.")
        return x

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        if shape != (self.n_apps, self.d):
            raise ValueError(
                f"this mechanism was made for gradients of {(self.n_apps, self.d)}, got {shape}: "
                f"make one for the catalogue at hand."
            )

    def _x(self, F: Gradient) -> Floats:
        """x (D,): F in units of the clip, inside the unit ball."""
        return into_ball(self._flat(F), self.ball, self.clip)

    def _shaped(self, x: npt.NDArray[np.floating]) -> Floats:
        """A vector of D entries as (n_apps, d)."""
        return np.asarray(x, np.float64).reshape(self.n_apps, self.d)

    def _payloads(self, reports: Sequence[Report], n_bytes: int) -> npt.NDArray[np.uint8]:
        """The payloads as rows of bytes, (n_reports, n_bytes); others are refused."""
        if not reports:
            raise ValueError("a mean needs at least one report.")
        for report in reports:
            check_name(self, report)
            if len(report.payload) != n_bytes:
                raise WrongSize(
                    f"a payload of {self.name} has {n_bytes} bytes here, got "
                    f"{len(report.payload)}: were n_apps, d and the options the same?"
                )
        data = b"".join(report.payload for report in reports)
        return np.frombuffer(data, np.uint8).reshape(len(reports), n_bytes)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(epsilon={self.epsilon!r}, n_apps={self.n_apps}, d={self.d}, "
            f"clip={self.clip!r})"
        )


class FiniteMechanism(Mechanism):
    """A mechanism whose reports are finitely many and drawn with exact integer arithmetic."""

    finite_output = True

    def __init__(self, *, n_apps: int, d: int, epsilon: float, clip: float) -> None:
        super().__init__(n_apps=n_apps, d=d, epsilon=check_epsilon(epsilon), clip=clip)

    @abstractmethod
    def tally(self, reports: Sequence[Report]) -> Tally: ...

    @abstractmethod
    def estimate(self, tally: Tally, n_reports: int) -> Floats: ...

    def decode(self, reports: Sequence[Report]) -> Floats:
        return self.estimate(self.tally(reports), len(reports))

    def check(self, report: Report) -> None:
        self.tally([report])

    @abstractmethod
    def probability(self, report: Report, F: Gradient) -> Fraction:
        """The probability of this report under F, exactly as it is drawn."""

    def log_prob(self, report: Report, F: Gradient) -> float:
        chance = self.probability(report, F)
        if chance == 0:
            return -math.inf
        return math.log(chance.numerator) - math.log(chance.denominator)

    def _payloads(self, reports: Sequence[Report], n_bytes: int) -> npt.NDArray[np.uint8]:
        """As `Mechanism._payloads`; none at all are no rows, which a tally may be made of."""
        if not reports:
            return np.empty((0, n_bytes), np.uint8)
        return super()._payloads(reports, n_bytes)

    def _check_countable(self, n_outputs: int) -> None:
        if n_outputs > OUTPUT_LIMIT:
            raise ValueError(
                f"{self.name} has about 2^{n_outputs.bit_length() - 1} reports here, more than "
                f"{OUTPUT_LIMIT}; list them at a smaller n_apps, d or k."
            )


def check_name(mechanism: Mechanism, report: Report) -> None:
    if report.mechanism != mechanism.name:
        raise WireError(
            f"expected a report of {mechanism.name!r}, got one of {report.mechanism!r}."
        )


def check_counted(tally: Tally, shape: tuple[int, ...], n_reports: int) -> None:
    if n_reports < 1:
        raise ValueError("a mean needs at least one report.")
    if tally.shape != shape or tally.dtype.kind != "i":
        raise ValueError(
            f"the tally must be whole numbers of shape {shape}, got {tally.dtype} of shape "
            f"{tally.shape}: were n_apps, d and the options the same?"
        )


def check_clip(clip: float) -> float:
    if not (math.isfinite(clip) and clip > 0):
        raise ValueError(
            f"clip must be a finite number > 0, got {clip!r}. It is public and must not be read "
            f"off private data: take a constant, or nextapp.privacy.private_quantile."
        )
    return float(clip)


def into_ball(F: Floats, ball: str, clip: float) -> Floats:
    """F moved into the ball of radius `clip`, in units of it.

    Entry by entry for "linf", scaled down whole for "l1" and "l2". Nothing overflows.
    """
    if ball == "linf":
        return np.asarray(np.clip(F, -clip, clip) / clip)
    largest = float(np.abs(F).max(initial=0.0))
    if largest == 0.0:
        return np.zeros_like(F)
    y = F / largest
    norm = float(np.abs(y).sum()) if ball == "l1" else math.sqrt(float(y @ y))
    return y / norm if largest > clip / norm else y * (largest / clip)
