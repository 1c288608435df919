"""One phone in memory: launches, learning, user vector, predictions, answers to a server.

No disk, no network, no clock: `Phone` adds those, simulations use this as it is. Nothing here
leaves a phone: `PhoneCore.answer` is what a mechanism then randomises.

What a phone accepts from a server is decided here too: bounds for every phone, limits set by its
owner. All of it is checked on the server's bytes alone, before anything private is touched, so a
refusal tells a server nothing that it did not know.

Arithmetic on a server's numbers never fails. With any numbers and any launches there are a user
vector and an answer; where these are not finite they are zeros. So neither an error nor silence can
tell anything about the launches.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from numbers import Integral
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from nextapp import model
from nextapp.crowd import Shares, no_shares, transition_vector
from nextapp.predictor import (
    FREQUENCY_FADE,
    LEAST_CHANCE,
    SESSION_GAP,
    STEADY,
    CrowdView,
    Habits,
    Reason,
    chances_of_new,
    checked_launch,
    keep_scores,
    next_different,
    steady_row,
)
from nextapp.privacy import MECHANISMS, Mechanism, requested_mechanism, requested_shape
from nextapp.privacy.mechanism import Gradient
from nextapp.privacy.walsh import LARGEST_D
from nextapp.randomness import Bits, SystemBits, TokenCoins
from nextapp.settings import setting, unknown
from nextapp.wire import Broadcast, Crowd, Floats, Report, WireError

LONGEST_PAUSE = 86_400.0
"""Most seconds that a pause between two launches adds to the age of the history.

A clock that was set back adds none."""

Rows = Callable[[int], int]
"""The row of the catalogue that an app has; -1 for an app that is not in it."""


class LightReason(NamedTuple):
    """Why an app stands where it stands by the light scores, eq. (8).

    ``score`` is q_i^T (p + s), s the session's vector. ``speaks`` has its two parts, "user
    vector" q_i^T p and "session" q_i^T s, above or below those of the average candidate. A light
    score is no probability.
    """

    app: int
    score: float
    speaks: dict[str, float]

    @property
    def strongest(self) -> list[tuple[str, float]]:
        """What speaks most for it or against it, strongest first."""
        return sorted(self.speaks.items(), key=lambda part: -abs(part[1]))


class PhoneCore:
    """A phone. Apps are whole numbers, times are local seconds.

    Apps that are not in the catalogue of the broadcast are kept and can be predicted (the light
    score knows nothing of them and gives 0), but no equation sees them.

    Parameters
    ----------
    window
        How many seconds of history count, back from the latest launch: the paper's t. A pause
        counts for a day at most. None keeps all.
    most_launches
        Most launches that are kept. Older ones are deleted, even within the window.
    habits
        Learns from every launch, when next asked, and then predicts, with the crowd of the
        broadcast. None predicts by the light scores, eq. (8).
    """

    def __init__(
        self,
        *,
        window: float | None = None,
        most_launches: int | None = None,
        habits: Habits | None = None,
    ) -> None:
        if window is not None and not window > 0:
            raise ValueError(
                f"window must be a number of seconds > 0, or None for all, got {window!r}."
            )
        self.window = math.inf if window is None else window
        self.most_launches = math.inf if most_launches is None else most_launches
        self.habits = habits
        self.left_out: dict[int, float] = {}  # not suggested, by app until when; never reported
        self.new: dict[int, int] = {}  # installed, not launched yet: launches since, by app
        self.broadcast: Broadcast | None = None
        self._crowd: CrowdView | None = None
        self._rows: Rows = _number_of_row
        self._buckets: Rows = _number_of_row
        self._user_vector: Floats | None = None
        self._apps: deque[int] = deque()
        self._ages: deque[float] = deque()  # how old the history was at each launch
        self._last_time = 0.0
        self._n_session = 0  # launches of the session so far
        self._counts: dict[int, int] = {}  # launches in the window by app, the latest app last
        self._unlearnt: deque[tuple[int, float]] = deque(maxlen=most_launches)
        self._statistics: model.PhoneStatistics | None = None

    # --- launches ------------------------------------------------------------------------------

    @property
    def history(self) -> npt.NDArray[np.int64]:
        """The launches in the window, oldest first."""
        return np.fromiter(self._apps, np.int64, len(self._apps))

    @property
    def n_launches(self) -> int:
        return len(self._apps)

    @property
    def candidates(self) -> list[int]:
        """The apps of the history, the latest first."""
        return list(reversed(self._counts))

    def observe(self, app: int, when: float, *, learnt: bool = False) -> int:
        """Add a launch; returns how many old launches have left the window.

        Launches count in the order they come, even if the clock was set back. ``learnt``: the
        habits have learnt it already.
        """
        app, when = checked_launch(app, when)
        pause = when - self._last_time if self._apps else 0.0
        self._n_session = 1 if pause > SESSION_GAP else self._n_session + 1
        age = self._ages[-1] if self._ages else 0.0
        self._apps.append(app)
        self._ages.append(age + min(max(pause, 0.0), LONGEST_PAUSE))
        self._last_time = when
        self._counts[app] = self._counts.pop(app, 0) + 1
        self.new.pop(app, None)
        for other in self.new:
            self.new[other] += 1
        self._statistics = self._user_vector = None
        if self.habits is not None and not learnt:
            self._unlearnt.append((app, when))
        n_old = 0
        while self._ages[-1] - self._ages[0] > self.window or len(self._apps) > self.most_launches:
            self._ages.popleft()
            oldest = self._apps.popleft()
            self._counts[oldest] -= 1
            if not self._counts[oldest]:
                del self._counts[oldest]
            n_old += 1
        return n_old

    def columns(self, n: int) -> tuple[npt.NDArray[np.int64], Floats]:
        """The first n launches of the window: their apps, and the age of the history at each."""
        return (
            np.fromiter(islice(self._apps, n), np.int64, n),
            np.fromiter(islice(self._ages, n), np.float64, n),
        )

    def restore(self, apps: npt.NDArray[np.int64], ages: Floats, last_time: float) -> None:
        """Start from the launches that `columns` gave, at once; the habits have learnt them."""
        self._apps, self._ages = deque(apps.tolist()), deque(ages.tolist())
        self._last_time = last_time
        gaps = np.flatnonzero(np.diff(ages) > SESSION_GAP)
        self._n_session = len(ages) - (int(gaps[-1]) + 1 if len(gaps) else 0)
        n_each = np.bincount(apps)
        latest = np.full(len(n_each), -1)
        latest[apps] = np.arange(len(apps))  # where an app is named twice, the last one stays
        order = np.argsort(latest, kind="stable")
        order = order[latest[order] >= 0]
        self._counts = dict(zip(order.tolist(), n_each[order].tolist(), strict=True))

    @property
    def n_unlearnt(self) -> int:
        return len(self._unlearnt)

    def teach_habits(self) -> None:
        if self.habits is None:
            return
        self.habits.crowd = self._crowd
        while self._unlearnt:
            app, when = self._unlearnt.popleft()
            if app in self._counts:
                self.habits.observe(app, when)

    def forget_old_apps(self) -> None:
        if self.habits is not None:
            for app in self.habits.apps:
                if app not in self._counts:
                    self.habits.forget(app)

    # --- predictions ---------------------------------------------------------------------------

    def open_app(self, when: float | None = None) -> int | None:
        """The app launched last, which is open still; None once its session is over."""
        over = when is not None and when - self._last_time > SESSION_GAP
        return None if over or not self._apps else self._apps[-1]

    def suggest(
        self,
        n: int,
        when: float | None = None,
        threshold: float | None = None,
        *,
        with_open: bool = False,
        shown: Sequence[int] = (),
        steady: float = STEADY,
    ) -> list[tuple[int, float]]:
        """The n apps most likely launched next, eqs. (2), (8), best first, and the chance of each.

        The session so far counts; it is over if `when` is given and lies past the session's gap.
        While it lasts the open app is left out, unless ``with_open``: the chances are those of the
        next different app. Apps that are `left_out` are not named; their chances stay their own.
        Apps that are `new` have those of `chances_of_new`.

        With a ``threshold`` only apps whose probability is as high are named; that needs habits.
        ``shown`` are the apps on the screen: each stays, at its place, unless another is ``steady``
        times as likely.
        """
        if not (isinstance(n, Integral) and n >= 1):
            raise ValueError(f"n must be a whole number of 1 or more, got {n!r}.")
        if not (math.isfinite(steady) and steady >= 1.0):
            raise ValueError(f"steady must be a factor of 1 or more, got {steady!r}.")
        apps = self.candidates
        chances = self._chances(apps, when)
        if not with_open and apps and self.open_app(when) is not None:
            chances = next_different(chances, 0)  # the latest app is the first candidate
        if self.new:
            of_new = chances_of_new(np.array(list(self.new.values())))
            chances = np.concatenate((chances * (1.0 - of_new.sum()), of_new))
            apps += self.new
        allowed = chances
        if threshold is not None:
            if not 0.0 <= threshold <= 1.0:
                raise ValueError(f"threshold must be a probability from 0 to 1, got {threshold!r}.")
            if self.habits is None:
                raise ValueError(
                    "a threshold needs probabilities, and SeqMF's scores are none: leave it out, "
                    "or predict by habits."
                )
            allowed = np.where(chances >= threshold, chances, 0.0)
        if self.left_out:
            moment = self._last_time if when is None else when
            there = [self.left_out.get(app, -math.inf) <= moment for app in apps]
            allowed = np.where(there, allowed, 0.0)
        on_screen = _NOTHING
        if shown:
            places = {app: place for place, app in enumerate(apps)}
            on_screen = np.array([places.get(app, -1) for app in shown], np.int64)
        row = steady_row(on_screen, allowed, n, steady)
        return [(apps[place], float(chances[place])) for place in row.tolist()]

    def _chances(self, candidates: list[int], when: float | None) -> Floats:
        """P that each candidate is launched next, above 0.

        Light scores have no scale that says how likely an app is: there it is 1/place by the score,
        scaled, and before there are any 1/place in the list of recent apps.
        """
        self.teach_habits()
        if not candidates:
            return np.zeros(0)
        if self.habits is not None:
            return np.maximum(self.habits.chances(candidates, when), LEAST_CHANCE)
        scores = self._light_scores(candidates, when)
        order = slice(None) if scores is None else model.top(scores, len(candidates))
        chances = np.zeros(len(candidates))
        chances[order] = 1.0 / np.arange(1, len(candidates) + 1)
        chances /= chances.sum()
        return chances

    def keep_order(self, when: float | None = None) -> list[int]:
        """All apps of the history in the order in which to keep them in memory, `keep_scores`.

        The open app comes first.
        """
        apps = self.candidates
        if not apps:
            return []
        scores = keep_scores(self._frequencies(apps), self._chances(apps, when))
        if self.open_app(when) is not None:
            scores[0] = math.inf
        return [apps[place] for place in np.argsort(-scores, kind="stable").tolist()]

    def _frequencies(self, candidates: list[int]) -> Floats:
        """The share of the launches that each candidate had, where older ones have faded."""
        if self.habits is not None:
            return self.habits.frequencies(candidates)
        weights = FREQUENCY_FADE ** np.arange(len(self._apps))[::-1]
        counts = np.bincount(self.history, weights).astype(np.float64)
        shares: Floats = counts[candidates] / weights.sum()
        return shares

    def explain(
        self, when: float | None = None, *, with_open: bool = False
    ) -> list[Reason] | list[LightReason]:
        """What speaks for each app, best first, in the order of `suggest`; `share` is its chance.

        There are no reasons without habits and a broadcast, nor for apps that were never launched.
        """
        n = max(1, len(self._counts) + len(self.new))
        suggested = self.suggest(n, when, with_open=with_open)
        if self.habits is not None:
            known = {each.app: each for each in self.habits.explain(self.candidates, when)}
            return [
                known[app]._replace(share=chance)
                if app in known
                else Reason(app, math.log(chance), chance, {"new": 0.0}, {})
                for app, chance in suggested
            ]
        light = self._explain_light_scores(when)
        return [light.get(app) or LightReason(app, 0.0, {}) for app, _ in suggested]

    def _explain_light_scores(self, when: float | None) -> dict[int, LightReason]:
        candidates = self.candidates
        scores = self._light_scores(candidates, when)
        if scores is None:
            return {}
        by_user_vector = self._products(candidates, self.user_vector)
        parts = {"user vector": by_user_vector, "session": scores - by_user_vector}
        return {
            app: LightReason(
                app,
                float(scores[i]),
                {name: float(part[i] - part.mean()) for name, part in parts.items()},
            )
            for i, app in enumerate(candidates)
        }

    def _light_scores(self, candidates: list[int], when: float | None) -> Floats | None:
        """Eq. (8) for the candidates, 0 for those of no catalogue; None without app vectors."""
        if self.broadcast is None or self.broadcast.dim == 0:
            return None
        over = when is not None and when - self._last_time > SESSION_GAP
        n_recent = 0 if over else min(self._n_session, len(self._apps))
        recent = list(islice(reversed(self._apps), n_recent))[::-1]
        vectors = self.broadcast.app_vectors
        known = [row for row in map(self._rows, recent) if 0 <= row < len(vectors)]
        session = model.session_vector(vectors[known], self.broadcast.settings.inference)
        with np.errstate(all="ignore"):
            return self._products(candidates, self.user_vector + session)

    def _products(self, candidates: list[int], vector: Floats) -> Floats:
        """The candidates' app vectors times a vector, 0 for those of no catalogue."""
        vectors = self._current_broadcast().app_vectors
        rows = np.array([self._rows(app) for app in candidates], np.int64)
        listed = (rows >= 0) & (rows < len(vectors))
        products = np.zeros(len(candidates))
        with np.errstate(all="ignore"):
            products[listed] = vectors[rows[listed]] @ vector
        return np.nan_to_num(products)

    # --- the server ----------------------------------------------------------------------------

    def take(
        self,
        broadcast: Broadcast | None,
        rows: Rows | None = None,
        *,
        buckets: Rows | None = None,
    ) -> None:
        """Take over a broadcast, or none. Nothing is computed before it is needed.

        ``rows`` says which row of the catalogue an app has, ``buckets`` which bucket; by default
        its number.
        """
        self.broadcast = broadcast
        self._rows = rows or _number_of_row
        self._buckets = buckets or _number_of_row
        self._statistics = self._user_vector = None
        crowd = None if broadcast is None else broadcast.crowd
        self._crowd = crowd if crowd is None or rows is None else _OwnCrowd(crowd, rows)

    @property
    def user_vector(self) -> Floats:
        """p (d,) for the launches so far, eq. (10); zeros where it is not finite. Solved when it is
        asked for, and kept until the next launch."""
        if self._user_vector is None:
            self._user_vector = self._solve(self._current_broadcast())
        return self._user_vector

    def _solve(self, broadcast: Broadcast) -> Floats:
        with np.errstate(all="ignore"):
            try:
                own, c, c0, h = model.phone_terms(self._phone_statistics(), broadcast)
                solved = model.phone_user_vector(
                    own, broadcast.gram, c, c0, h, broadcast.settings.lam
                )
            except (ArithmeticError, MemoryError, ValueError, np.linalg.LinAlgError):
                solved = np.full(broadcast.dim, np.nan)
        finite = solved.shape == (broadcast.dim,) and np.isfinite(solved).all()
        return solved if finite else np.zeros(broadcast.dim)

    def answer(self) -> Gradient:
        """What this phone answers, before the mechanism randomises it.

        By the question of the current broadcast: the gradient F(u), eq. (12), by the user vector,
        or the phone's transitions or launches. If nothing is asked, the gradient.
        """
        request = self._current_broadcast().request
        question = "gradient" if request is None else request.question
        if question == "transitions":
            return self.transitions()
        if question == "launches":
            return self.launches()
        gradient = self.gradient()
        with np.errstate(all="ignore"):
            dense = gradient.dense()
        return gradient if np.isfinite(dense).all() else no_shares(dense.shape)

    def draw_report(
        self,
        mechanism: Mechanism,
        round: int,
        bits: Bits | None = None,
        signature: bytes | None = None,
    ) -> Report:
        """What this phone would send: its answer through the mechanism. Nothing is charged here.

        Bits come from the operating system unless a simulation names another source; coins are
        those of the token with this signature, if one is given. If the answer cannot be made or
        encoded, the report is one of zeros with the same coins. The host's settings for floating
        point do not count.
        """
        bits = SystemBits() if bits is None else bits

        def encode(answer: Gradient) -> Report:
            coins = None if signature is None else TokenCoins(signature)
            return mechanism.encode(answer, bits, round, coins)

        with np.errstate(all="ignore"):
            try:
                return encode(self.answer())
            except Exception:  # an error must not tell anything: what it is depends on the launches
                nothing = no_shares((mechanism.n_apps, mechanism.d))
            try:
                return encode(nothing)
            except (ArithmeticError, MemoryError, TypeError, ValueError) as error:
                raise WireError(f"no report of {mechanism.name} can be made: {error}") from error

    def gradient(self) -> model.PhoneGradient:
        """F(u), eq. (12), by the current user vector."""
        broadcast = self._current_broadcast()
        vector = self.user_vector
        with np.errstate(all="ignore"):
            stats = self._phone_statistics()
            _, c, c0, h = model.phone_terms(stats, broadcast)
            return model.phone_gradient(stats, broadcast.app_vectors, vector, c, c0, h)

    def transitions(self) -> Shares:
        """The phone's transitions over the catalogue as one vector of length 1."""
        return transition_vector(self._rows_of_history(), self._current_broadcast().n_apps)

    def launches(self) -> Shares:
        """√(share of the phone's launches) of each bucket of the catalogue, (n_buckets, 1).

        Its norm is 1 for every phone, so that no clip must be chosen; and an app that many
        phones use a little counts for more than by its share.
        """
        buckets = self._current_broadcast().buckets
        if buckets is None:
            raise WireError("the catalogue has no buckets to count launches by.")
        of_apps = np.array([self._buckets(app) for app in self._counts], np.int64)
        launches = np.fromiter(self._counts.values(), np.float64, len(of_apps))
        known = (of_apps >= 0) & (of_apps < buckets.n_buckets)
        cells, place = np.unique(of_apps[known], return_inverse=True)
        counts = np.bincount(place, launches[known], len(cells))
        share = counts / max(1.0, counts.sum())
        return Shares((buckets.n_buckets, 1), cells, np.sqrt(share))

    def _current_broadcast(self) -> Broadcast:
        if self.broadcast is None:
            raise RuntimeError("this phone has no broadcast yet: take one first.")
        return self.broadcast

    def _rows_of_history(self) -> npt.NDArray[np.int64]:
        """The rows of all launches; those of apps that are not in the catalogue are no rows."""
        apps, place = np.unique(self.history, return_inverse=True)
        rows = np.array([self._rows(app) for app in apps.tolist()], np.int64)
        return rows[place]

    def _phone_statistics(self) -> model.PhoneStatistics:
        """Counts and transitions of the apps in the catalogue; kept until the next launch."""
        if self._statistics is None:
            broadcast, rows = self._current_broadcast(), self._rows_of_history()
            known = rows[(rows >= 0) & (rows < broadcast.n_apps)]
            self._statistics = model.phone_statistics(known, broadcast.settings.reading)
        return self._statistics


_NOTHING = np.zeros(0, np.int64)


def _number_of_row(app: int) -> int:
    return app


class _OwnCrowd:
    """A crowd for a phone that numbers its apps in its own way.

    Apps whose names fall into the same bucket have the same row; each gets an equal part of the
    row's share.
    """

    def __init__(self, crowd: Crowd, rows: Rows) -> None:
        self.crowd = crowd
        self.rows = rows
        self._apps: npt.NDArray[np.int64] | None = None  # asked for last, their rows
        self._rows_of_apps: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self._in_row: Floats = np.zeros(0)  # and how many of them each one's row stands for

    def shares(
        self, apps: npt.NDArray[np.int64], last: int | None, before: int | None
    ) -> tuple[Floats, float]:
        if apps is not self._apps:
            self._apps = apps
            self._rows_of_apps = np.array([self.rows(app) for app in apps.tolist()], np.int64)
            _, place, n = np.unique(self._rows_of_apps, return_inverse=True, return_counts=True)
            self._in_row = n[place].astype(np.float64)
        shares, known = self.crowd.shares(
            self._rows_of_apps, self._row_of(last), self._row_of(before)
        )
        return shares / self._in_row, known

    def _row_of(self, app: int | None) -> int | None:
        return None if app is None else self.rows(app)


# --- what a phone accepts from a server ----------------------------------------------------------

# Bounds of a broadcast. They are far from what a server needs, and keep numbers and work small:
# every command of a phone reads the broadcast anew.
MOST_BYTES = 4 << 20  # unpacked
MOST_WORDS = 1 << 18  # bytes of the header, which has the names
MOST_APPS = 1 << 14
MOST_DIMENSIONS = 1 << 7
MOST_NUMBERS = 1 << 18  # n_apps · d
LARGEST_ENTRY = 1e6  # |Q|
LAM = (1e-6, 1e6)
CLIP = (1e-9, 1e9)
LONGEST_NAME = 255
MOST_SEARCHED = 1 << 16
"""Numbers of a gradient for kashin, whose time depends on the gradient.

The work of the others is bounded by the nonzero numbers of an answer: a tenth of a second at most.
"""

OPTIONS: Mapping[str, Mapping[str, float]] = {
    "walsh": {"b": 8},
    "harmony": {"k": 64},
    "kashin": {"b": 8, "K": 8.0},
}
"""The mechanisms that a phone can report by, and the largest value of each of their options."""

PREDICTORS: Mapping[str, tuple[str, ...]] = {
    "nextapp": ("launches", "transitions"),
    "seqmf": ("gradient",),
}
"""How a phone can predict, and the questions that it answers: those whose outcome it predicts by.

nextapp  its own habits, and the crowd that launches and transitions of many phones make up
seqmf    the light scores of eq. (8), by the app vectors that gradients train
"""


class BadBroadcast(WireError):
    """A broadcast that is whole but cannot be used."""


class BeyondLimits(WireError):
    """A request that the owner of the phone does not allow."""


class NotUsed(WireError):
    """A request for what the phone does not predict by: it would spend ε for nothing."""


def read_broadcast(data: bytes) -> Broadcast:
    """The broadcast in these bytes, if a phone can use it; else a `WireError`."""
    n_words = int.from_bytes(data[:8], "little")
    if len(data) > MOST_BYTES or MOST_WORDS < n_words <= len(data):
        raise BadBroadcast(
            f"it has {len(data):,} bytes; a phone takes {MOST_BYTES:,}, of them {MOST_WORDS:,} of "
            f"names and other words."
        )
    broadcast = Broadcast.from_bytes(data)
    _check_catalogue(broadcast)
    largest = float(np.abs(broadcast.app_vectors).max(initial=0.0))
    if not largest <= LARGEST_ENTRY:
        raise BadBroadcast(f"its app vectors have entries up to {largest:g}.")
    lam = broadcast.settings.lam
    if not LAM[0] <= lam <= LAM[1]:
        raise BadBroadcast(f"its lam must lie in {LAM[0]:g} to {LAM[1]:g}, got {lam!r}.")
    return broadcast


def _check_catalogue(broadcast: Broadcast) -> None:
    n_apps, d, apps = broadcast.n_apps, broadcast.dim, broadcast.apps
    least = 1 if broadcast.buckets is None else 0  # in its first round no bucket has a slot
    if not (least <= n_apps <= MOST_APPS and d <= MOST_DIMENSIONS and n_apps * d <= MOST_NUMBERS):
        raise BadBroadcast(
            f"it has {n_apps} apps of {d} dimensions; a phone takes {least} to {MOST_APPS} apps of "
            f"up to {MOST_DIMENSIONS}, and {MOST_NUMBERS} numbers in all."
        )
    if len(set(apps)) != len(apps):
        raise BadBroadcast("its catalogue names an app twice.")
    if any(not 0 < len(name) <= LONGEST_NAME for name in apps):
        raise BadBroadcast(f"its catalogue has names without 1 to {LONGEST_NAME} characters.")


@dataclass(frozen=True)
class Limits:
    """What the owner of a phone allows. A server's wish is a request; these decide.

    ``per_report``, ``per_day`` and ``lifetime`` are the largest ε of one report, of a UTC day and
    of the phone's life. ``hours`` must lie between two reports. ``mechanisms`` are those that the
    phone may report by.
    """

    per_report: float = setting(1.0, "Largest ε of one report.")
    per_day: float = setting(1.0, "Largest ε it may spend in a day.")
    lifetime: float = setting(1.0, "Largest ε it may spend in its life.")
    hours: float = setting(20.0, "Hours between two reports, at least.")
    mechanisms: tuple[str, ...] = (
        "walsh",
        "harmony",
    )

    def __post_init__(self) -> None:
        for name in ("per_report", "per_day", "lifetime"):
            value = getattr(self, name)
            if not 0 < value <= 1e9:
                raise ValueError(f"{name} must be an ε > 0 and at most 1e9, got {value!r}.")
        if not (math.isfinite(self.hours) and self.hours >= 0):
            raise ValueError(f"hours must be a number >= 0, got {self.hours!r}.")
        for name in self.mechanisms:
            if name not in OPTIONS:
                raise ValueError(unknown("mechanism for phones", name, OPTIONS))

    def reports_for_life(self, epsilon: float) -> int:
        return math.floor(self.lifetime / epsilon + 1e-9)

    def looser_than(self, other: Limits) -> list[str]:
        names = [
            name
            for name in ("per_report", "per_day", "lifetime")
            if getattr(self, name) > getattr(other, name)
        ]
        if self.hours < other.hours:
            names.append("hours")
        if set(self.mechanisms) - set(other.mechanisms):
            names.append("mechanisms")
        return names

    def mechanism_for(self, broadcast: Broadcast, predictor: str = "nextapp") -> Mechanism:
        """The mechanism that a broadcast asks for, if the owner allows such a report.

        `BeyondLimits` where the owner does not; `NotUsed` where a phone with this `predictor` has
        nothing from it; a `WireError` where no phone would.
        """
        request = broadcast.request
        if request is None:
            raise WireError(f"the broadcast of round {broadcast.round} asks for no reports.")
        if request.question not in PREDICTORS[predictor]:
            other = next(name for name, some in PREDICTORS.items() if request.question in some)
            raise NotUsed(
                f"the server asks for {request.question}, which this phone does not predict by "
                f"(its predictor is {predictor}); a phone set up by init --predictor {other} does. "
                f"No ε was spent."
            )
        name = request.mechanism
        if name not in OPTIONS:
            what = "which no phone sends" if name in MECHANISMS else "which is not known"
            raise WireError(
                f"the server asks for {name!r}, {what}: only mechanisms that are ε-LDP, send "
                f"nothing in the clear and are drawn exactly."
            )
        if name not in self.mechanisms:
            raise BeyondLimits(
                f"the server asks for {name!r}; this phone reports by "
                f"{', '.join(self.mechanisms)} only."
            )
        if request.epsilon > self.per_report:
            raise BeyondLimits(
                f"the server asks for a report of ε = {request.epsilon:g}; this phone's limit for "
                f"one report is {self.per_report:g}."
            )
        if request.clip is not None and not CLIP[0] <= request.clip <= CLIP[1]:
            raise WireError(f"the server asks for a clip of {request.clip:g}, which is no scale.")
        for option, value in request.options.items():
            most = OPTIONS[name].get(option)
            if (
                most is None
                or isinstance(value, str)
                or not 0 < value <= most
                or (option != "K" and type(value) is not int)
            ):
                raise WireError(
                    f"the server asks for {name} with {option!s:.40} = {value!r:.40}, which this "
                    f"phone does not do."
                )
        size = math.prod(requested_shape(broadcast))
        if size > (MOST_SEARCHED if name == "kashin" else LARGEST_D):
            raise WireError(f"a report by {name} of {size:,} numbers is too much work.")
        made = requested_mechanism(broadcast)
        if made.unsafe or made.guarantee.sent_in_clear:
            raise WireError(f"{name} is not ε-LDP as it is asked for.")
        if made.guarantee.epsilon > self.per_report:
            raise BeyondLimits(f"{name} costs more than the {self.per_report:g} of a report.")
        return made


class Closing:
    """What is closed at the end of a ``with`` block."""

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# --- what may go wrong with a server -------------------------------------------------------------

_MOST_SHOWN = 1000


class ServerError(RuntimeError):
    """The server was not reached or did not do what was asked."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


class Unreachable(ServerError):
    """No answer: no network, no server, a connection that broke off, a time limit."""


class Untrusted(ServerError):
    """The server's TLS certificate is not trusted, so nothing was sent."""


class Overloaded(ServerError):
    """The server asks to be left alone for a while: ``pause`` seconds, or None for no word."""

    def __init__(self, message: str, pause: float | None) -> None:
        super().__init__(message)
        self.pause = pause


class BadAnswer(ServerError):
    """An answer that is not of the protocol, or larger than any should be."""


class Refused(ServerError):
    """The server says no, and will say so again: its ``status``, ``code`` and message."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"the server refuses ({code}): {message}")
        self.status = status
        self.code = code


class NotAsPublished(ServerError):
    """The bytes of a broadcast are not those whose digest the server publishes."""


def printable(text: str) -> str:
    """Words with a server's in them, without what a screen or a database could stumble over."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:_MOST_SHOWN])
