"""The base class of mechanisms, what they promise, and how one is found by its name.

F (n_apps, d)   gradient of one phone            D = n_apps · d, the length of F row by row
x (D,)          F flattened, clipped, divided by the clip C, so that it lies in the unit ball
W = 2^64        number of values of one word of random bits
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from nextapp.crowd import Shares
from nextapp.model import PhoneGradient
from nextapp.randomness import Bits, check_epsilon
from nextapp.settings import unknown
from nextapp.wire import Broadcast, Floats, Report, ReportRequest, WireError, WrongSize

Gradient = Floats | PhoneGradient | Shares
Tally = npt.NDArray[np.int64]

OUTPUT_LIMIT = 1 << 20


@dataclass(frozen=True)
class Guarantee:
    """ε-LDP, eq. (14), of a report, for the parts in ``covers``.

    ``epsilon`` is infinite if there is no guarantee. ``sent_in_clear`` names what leaves the phone
    unprotected. ``assumptions`` must hold for the guarantee to be true.
    """

    epsilon: float
    covers: tuple[str, ...] = ()
    sent_in_clear: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()


SECRET_BITS = "the phone's random bits are uniform and secret"
REAL_NUMBERS = (
    "the noise is a real number, which floats only approximate (Mironov 2012): do not use on phones"
)


class Mechanism(ABC):
    """A randomised encoding of gradients. `epsilon` is the budget of one whole report.

    ``ball`` is the norm of the clip: "linf", "l1", "l2" or "none". ``unsafe`` mechanisms are not
    ε-LDP and for simulations only. ``decodes``: `decode` returns the mean of the gradients, or the
    term that replaces their sum in eq. (13) (PAPER.md, R6).
    """

    name: ClassVar[str]
    unsafe: ClassVar[bool] = False
    ball: str
    decodes: Literal["mean", "sum"] = "mean"

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
        """The privacy guarantee, what it leaves out, and its assumptions."""

    @property
    @abstractmethod
    def variance(self) -> float:
        """V = E‖x̂ − x‖² of one report in units of clip²; at x = 0 if it depends on x."""

    @property
    def entry_variance(self) -> float:
        """The variance of one entry of the estimate from one report, for an entry near 0."""
        return self.clip**2 * self.variance / self.D

    @abstractmethod
    def encode(self, F: Gradient, bits: Bits, round: int = 0, coins: Bits | None = None) -> Report:
        """Phone: the randomised report of the gradient F.

        ``bits`` are secret random bits. ``coins`` are public bits for the part of a report that
        does not depend on F: the seed of walsh, the positions of harmony. Phones use
        `TokenCoins`, so that a hostile phone cannot choose them; without coins this part uses
        `bits` too, as in a simulation. ε holds for any coins, even if an attacker chose them.
        """

    @abstractmethod
    def decode(self, reports: Sequence[Report]) -> Floats:
        """Server: (n_apps, d), the estimate of the mean of the clipped gradients."""

    def total(self, decoded: Floats, n_reports: int) -> Floats:
        """Server: the term that replaces the sum of gradients in eq. (13)."""
        return decoded if self.decodes == "sum" else n_reports * decoded

    def check(self, report: Report) -> None:
        """Raise a `WireError` for a report that no honest phone can send."""
        self.decode([report])

    def matches_coins(self, report: Report, coins: Bits) -> bool:
        """Server: whether the public part of a report was made with these coins.

        The report must have passed `check`. Without a public part any coins match.
        """
        del report, coins
        return True

    @abstractmethod
    def log_prob(self, report: Report, F: Gradient) -> float:
        """Log-likelihood of this report given F (a density if outputs are real numbers).

        If a report has a seed, it is conditional on the seed.
        """

    def apply_clip(self, F: Gradient) -> Floats:
        """F after the clip that is part of the mechanism, (n_apps, d), in the units of F."""
        if self.ball == "none":
            return self._flat(F).reshape(self.n_apps, self.d)
        return self.clip * self._x(F).reshape(self.n_apps, self.d)

    def _flat(self, F: Gradient) -> Floats:
        """F as one vector of D finite numbers."""
        dense = (
            F.dense() if isinstance(F, PhoneGradient | Shares) else np.asarray(F, dtype=np.float64)
        )
        self._check_shape(dense.shape)
        _check_finite(dense)
        return dense.ravel()

    def _nonzero(self, F: Gradient) -> tuple[npt.NDArray[np.int64], Floats]:
        """The positions of the nonzero entries of F, ascending, and their values."""
        if not isinstance(F, Shares):
            values = self._flat(F)
            there = np.flatnonzero(values)
            return there, values[there]
        self._check_shape(F.shape)
        _check_finite(F.share)
        there = np.flatnonzero(F.share)
        return F.cells[there], F.share[there]

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        if shape != (self.n_apps, self.d):
            raise ValueError(
                f"this mechanism was made for gradients of shape {(self.n_apps, self.d)}, got "
                f"{shape}: make one with the n_apps and d of the gradient."
            )

    def _x(self, F: Gradient) -> Floats:
        """x (D,): F in units of the clip, inside the unit ball."""
        return into_ball(self._flat(F), self.ball, self.clip)

    def _reshape(self, x: npt.NDArray[np.floating]) -> Floats:
        return np.asarray(x, np.float64).reshape(self.n_apps, self.d)

    def _payloads(self, reports: Sequence[Report], n_bytes: int) -> npt.NDArray[np.uint8]:
        """(n_reports, n_bytes): the payloads as rows of bytes; raises if one does not fit."""
        if not reports:
            raise ValueError("a mean needs at least one report.")
        for report in reports:
            check_form(self, report, n_bytes)
        data = b"".join(report.payload for report in reports)
        return np.frombuffer(data, np.uint8).reshape(len(reports), n_bytes)


class FiniteMechanism(Mechanism):
    """A mechanism with finitely many reports, drawn with exact integer arithmetic."""

    @property
    @abstractmethod
    def payload_bytes(self) -> int:
        """Length of the payload of every report."""

    def __init__(self, *, n_apps: int, d: int, epsilon: float, clip: float) -> None:
        super().__init__(n_apps=n_apps, d=d, epsilon=check_epsilon(epsilon), clip=clip)

    @abstractmethod
    def tally(self, reports: Sequence[Report]) -> Tally:
        """Server: integer counts of the reports, which add up exactly.

        tally(a + b) == tally(a) + tally(b) for any batches and order; without reports all 0.
        """

    @abstractmethod
    def estimate(self, tally: Tally, n_reports: int) -> Floats:
        """Server: (n_apps, d), the result of `decode`, from the tally of the reports."""

    @abstractmethod
    def outputs(self) -> Iterator[Report]:
        """All possible reports, if they are few."""

    def decode(self, reports: Sequence[Report]) -> Floats:
        return self.estimate(self.tally(reports), len(reports))

    def check(self, report: Report) -> None:
        self.tally([report])

    @abstractmethod
    def probability(self, report: Report, F: Gradient) -> Fraction:
        """The exact probability of this report given F."""

    def log_prob(self, report: Report, F: Gradient) -> float:
        chance = self.probability(report, F)
        if chance == 0:
            return -math.inf
        return math.log(chance.numerator) - math.log(chance.denominator)

    def _payloads(self, reports: Sequence[Report], n_bytes: int) -> npt.NDArray[np.uint8]:
        """As `Mechanism._payloads`, but without reports the result has no rows."""
        if not reports:
            return np.empty((0, n_bytes), np.uint8)
        return super()._payloads(reports, n_bytes)

    def _check_countable(self, n_outputs: int) -> None:
        if n_outputs > OUTPUT_LIMIT:
            raise ValueError(
                f"{self.name} has about 2^{n_outputs.bit_length() - 1} reports here, more than "
                f"{OUTPUT_LIMIT}; list them at a smaller n_apps, d or k."
            )


def check_form(mechanism: Mechanism, report: Report, n_bytes: int) -> None:
    """Raise unless it is a report of this mechanism with a payload of this length."""
    if report.mechanism != mechanism.name:
        raise WireError(
            f"expected a report of {mechanism.name!r}, got one of {report.mechanism!r}."
        )
    if len(report.payload) != n_bytes:
        raise WrongSize(
            f"a payload of {mechanism.name} must have {n_bytes} bytes, got {len(report.payload)}: "
            f"check that phone and server use the same n_apps, d and options."
        )


def floats_of(rows: npt.NDArray[np.uint8], kind: str) -> Floats:
    """Rows of bytes as floats of this kind; all must be finite."""
    values = np.frombuffer(rows.tobytes(), kind).astype(np.float64).reshape(len(rows), -1)
    if not np.isfinite(values).all():
        raise WireError("the report has numbers that are not finite.")
    return values


def check_tally(tally: Tally, shape: tuple[int, ...], n_reports: int) -> None:
    if n_reports < 1:
        raise ValueError("a mean needs at least one report.")
    if tally.shape != shape or tally.dtype.kind != "i":
        raise ValueError(
            f"the tally must have integers of shape {shape}, got {tally.dtype} of shape "
            f"{tally.shape}: check that phone and server use the same n_apps, d and options."
        )


def _check_finite(values: Floats) -> None:
    if not np.isfinite(values).all():
        raise ValueError("the gradient must be finite; a report of anything else is refused.")


def check_clip(clip: float) -> float:
    if not (math.isfinite(clip) and clip > 0):
        raise ValueError(
            f"clip must be a finite number > 0, got {clip!r}. It is public and must not depend on "
            f"private data: use a constant, for example from public data."
        )
    return float(clip)


def into_ball(F: Floats, ball: str, clip: float) -> Floats:
    """F clipped to the ball of radius `clip`, divided by `clip`.

    Each entry is clipped for "linf"; the vector is scaled down for "l1" and "l2". No overflow.
    """
    if ball == "linf":
        return np.asarray(np.clip(F, -clip, clip) / clip)
    largest = float(np.abs(F).max(initial=0.0))
    if largest == 0.0:
        return np.zeros_like(F)
    y = F / largest
    norm = float(np.abs(y).sum()) if ball == "l1" else math.sqrt(float(y @ y))
    return y / norm if largest > clip / norm else y * (largest / clip)


# --- mechanisms by name --------------------------------------------------------------------------

MECHANISMS = {
    "identity": "Identity",
    "laplace": "Laplace",
    "harmony": "Harmony",
    "qharmony": "QHarmony",
    "kashin": "Kashin",
    "walsh": "Walsh",
}
"""The class of each mechanism, in the module of this name."""

_NEEDED = {
    "epsilon": "the privacy budget of one whole report. There is no default.",
    "clip": "the public radius to which gradients are clipped, a constant.",
}


def find_class(name: str) -> type[Mechanism]:
    """The class of a mechanism of `MECHANISMS`, whose module is imported when it is asked for."""
    found: type[Mechanism] = getattr(import_module(f"nextapp.privacy.{name}"), MECHANISMS[name])
    return found


def mechanism(name: str, *, n_apps: int, d: int, **options: Any) -> Mechanism:
    """The mechanism with this name for gradients (or shares) of shape (n_apps, d).

    All except ``identity`` need ``epsilon``, the budget of one whole report; all that protect
    gradients need ``clip``. For other options see the mechanism's class.

    >>> mechanism("harmony", epsilon=4.5, n_apps=87, d=16, clip=1.0).guarantee.epsilon
    4.5
    """
    if name not in MECHANISMS:
        raise ValueError(unknown("mechanism", name, MECHANISMS))
    kind = find_class(name)
    parameters = inspect.signature(kind).parameters
    known = {word: parameters[word] for word in parameters if word not in ("n_apps", "d")}
    for option in options:
        if option not in known:
            raise ValueError(f"{name}: {unknown('option', option, known)}")
    for word, parameter in known.items():
        if parameter.default is inspect.Parameter.empty and word not in options:
            raise ValueError(f"{name} needs {word}: {_NEEDED[word]}")
    return kind(n_apps=n_apps, d=d, **options)


def requested_mechanism(broadcast: Broadcast) -> FiniteMechanism:
    """The mechanism that a broadcast asks phones to report with; real numbers are refused."""
    request = _request_of(broadcast)
    n_apps, d = requested_shape(broadcast)
    options: dict[str, Any] = {**request.options}
    if request.clip is not None:
        options["clip"] = request.clip
    try:
        made = mechanism(request.mechanism, n_apps=n_apps, d=d, epsilon=request.epsilon, **options)
    except (TypeError, ValueError) as error:
        raise WireError(f"the broadcast asks for a report that is not possible: {error}") from error
    if not isinstance(made, FiniteMechanism):
        raise WireError(f"{made.name} reports real numbers, which give away more than their ε.")
    return made


def requested_shape(broadcast: Broadcast) -> tuple[int, int]:
    """The shape of the report that a broadcast asks for; a `WireError` if it asks for none."""
    request = _request_of(broadcast)
    if request.question == "launches":
        if broadcast.buckets is None:
            raise WireError("the broadcast asks for launches by bucket, but has no buckets.")
        return broadcast.buckets.n_buckets, 1
    if broadcast.n_apps == 0:
        raise WireError(f"the broadcast asks for {request.question}, but its catalogue is empty.")
    if request.question == "transitions":
        return broadcast.n_apps, broadcast.n_apps + 1
    if broadcast.dim == 0:
        raise WireError("the broadcast asks for a gradient, but has no app vectors.")
    return broadcast.n_apps, broadcast.dim


def _request_of(broadcast: Broadcast) -> ReportRequest:
    if broadcast.request is None:
        raise WireError(f"the broadcast of round {broadcast.round} asks for no reports.")
    return broadcast.request
