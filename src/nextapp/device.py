"""One phone: its launches, its user vector, its predictions, its reports.

Nothing here leaves the phone but what `Device.report` returns.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from nextapp import model
from nextapp.habits import Habits, Reason
from nextapp.privacy import Mechanism
from nextapp.privacy.ledger import Ledger
from nextapp.randomness import Bits, SystemBits
from nextapp.shares import transition_shares
from nextapp.wire import Broadcast, Floats, Report

SESSION_GAP = 15 * 60.0


class Device:
    """A phone. Apps are numbers, rows of the server's catalogue; times are seconds since 1970.

    Apps beyond the catalogue of the broadcast in hand are kept and can be predicted (with the score
    0, as nothing is known of them), but no equation sees them until a catalogue lists them.

    Parameters
    ----------
    window
        How many seconds of history count, back from the latest launch: the paper's t. None
        keeps all.
    session_gap
        A pause longer than this many seconds starts a new session.
    habits
        Learns from every launch and then predicts, with the crowd of the broadcast and the light
        scores; its times are local. None predicts by the light scores alone.
    """

    def __init__(
        self,
        *,
        window: float | None = None,
        session_gap: float = SESSION_GAP,
        habits: Habits | None = None,
    ) -> None:
        if window is not None and not window > 0:
            raise ValueError(
                f"window must be a number of seconds > 0, or None for all, got {window!r}."
            )
        if not session_gap > 0:
            raise ValueError(f"session_gap must be a number of seconds > 0, got {session_gap!r}.")
        self.window = window
        self.session_gap = session_gap
        self.habits = habits
        self.broadcast: Broadcast | None = None
        self.user_vector: Floats | None = None
        self._apps: list[int] = []
        self._times: list[float] = []
        self._start = 0  # launches before this one have left the window
        self._counts: dict[int, int] = {}  # launches in the window by app, the latest app last
        self._session = 0  # launch with which the session at hand began
        self._statistics: tuple[tuple[int, str], model.PhoneStatistics] | None = None

    @property
    def history(self) -> npt.NDArray[np.int64]:
        """The launches in the window, oldest first."""
        return np.array(self._apps[self._start :], np.int64)

    def observe(self, app: int, when: float) -> None:
        """A launch. Launches count in the order they come, even if the clock was set back."""
        if not isinstance(app, int | np.integer) or app < 0:
            raise ValueError(f"app must be a whole number >= 0, got {app!r}.")
        if not math.isfinite(when):
            raise ValueError(f"when must be a finite number of seconds, got {when!r}.")
        if self._times and when - self._times[-1] > self.session_gap:
            self._session = len(self._apps)
        self._apps.append(int(app))
        self._times.append(float(when))
        self._counts[int(app)] = self._counts.pop(int(app), 0) + 1
        self._statistics = None
        if self.habits is not None:
            self.habits.observe(int(app), float(when))
        if self.window is not None:
            n_old = 0
            while when - self._times[self._start + n_old] > self.window:
                n_old += 1
            self.drop(n_old)

    def drop(self, n: int) -> None:
        """Forget the n oldest launches."""
        for app in self._apps[self._start : self._start + n]:
            self._counts[app] -= 1
            if not self._counts[app]:
                del self._counts[app]
        self._start += n
        if self._start > len(self._apps) // 2:  # forget for good, a few times in a life
            del self._apps[: self._start], self._times[: self._start]
            self._session = max(0, self._session - self._start)
            self._start = 0
        self._statistics = None

    def update(self, broadcast: Broadcast) -> None:
        """Take over the app vectors of a round and solve the user vector against them, eq. (10)."""
        own, c, c0, h = model.phone_terms(self._statistics_for(broadcast), broadcast)
        self.user_vector = model.phone_user_vector(
            own, broadcast.gram, c, c0, h, broadcast.settings.lam
        )
        self.broadcast = broadcast
        if self.habits is not None:
            self.habits.crowd = broadcast.crowd

    @property
    def candidates(self) -> list[int]:
        """The apps of the history, the latest first."""
        return list(reversed(self._counts))

    def predict(self, n: int, when: float | None = None) -> list[int]:
        """The n most likely next apps among those of the history, best first, eqs. (2), (8).

        The session so far counts; it is over if `when` is given and lies past the session's gap.
        With `habits` they are ranked by its scores instead. A phone that has neither habits nor a
        broadcast names its most recent apps.
        """
        candidates = self.candidates
        scores = self._light_scores(candidates, when) if self._needs_light_scores else None
        if self.habits is not None:
            scores = self.habits.scores(candidates, when, scores)
        if scores is None or not candidates:
            return candidates[:n]
        return [candidates[i] for i in model.top(scores, n)]

    def explain(self, when: float | None = None) -> list[Reason]:
        """What speaks for each app of the history, best first, in the order of `predict`."""
        if self.habits is None:
            raise RuntimeError("only a device with habits can say why: Device(habits=Habits()).")
        candidates = self.candidates
        taste = self._light_scores(candidates, when) if self._needs_light_scores else None
        return self.habits.explain(candidates, when, taste)

    @property
    def _needs_light_scores(self) -> bool:
        return self.habits is None or self.habits.weights.taste != 0.0

    def _light_scores(self, candidates: list[int], when: float | None) -> Floats | None:
        """Eq. (8) for the candidates, 0 for those of no catalogue; None before any broadcast."""
        if self.broadcast is None or self.user_vector is None:
            return None
        over = when is not None and bool(self._times) and when - self._times[-1] > self.session_gap
        recent = [] if over else self._apps[max(self._session, self._start) :]
        vectors = self.broadcast.app_vectors
        known = [app for app in recent if app < len(vectors)]
        session = model.session_vector(vectors[known], self.broadcast.settings.inference)
        scores = np.zeros(len(candidates))
        rows = np.array([app < len(vectors) for app in candidates], bool)
        scores[rows] = vectors[np.array(candidates, np.int64)[rows]] @ (self.user_vector + session)
        return scores

    def report(
        self,
        broadcast: Broadcast,
        mechanism: Mechanism,
        bits: Bits | None = None,
        *,
        ledger: Ledger | None = None,
        when: float | None = None,
        allow_float: bool = False,
        allow_unsafe: bool = False,
    ) -> Report:
        """What this phone sends for a round: F(u), eq. (12), through the mechanism.

        The user vector is the one in hand; `update` solves it anew. A frequency oracle (its ball is
        "simplex") gets the phone's transition shares instead, and needs no user vector. Bits come
        from the operating system unless another source is named, as a simulation does.

        Only mechanisms with finitely many outputs are taken, as they are drawn exactly; one that
        draws real numbers needs `allow_float`, one that is not ε-LDP at all `allow_unsafe`.

        With a `ledger` the ε is on disk before this returns, dated `when`; a budget that is
        spent raises and nothing is drawn. Every call draws and costs anew: to send a report again,
        keep its bytes.
        """
        _check_safe(mechanism, allow_float, allow_unsafe)
        shares = mechanism.ball == "simplex"
        if self.user_vector is None and not shares:
            raise RuntimeError(
                "a report of a gradient needs a user vector: call update(broadcast) first, or set "
                "user_vector."
            )
        if ledger is not None:
            if when is None:
                raise ValueError("a ledger counts by the day: give `when`, in seconds since 1970.")
            ledger.charge(
                mechanism.guarantee.epsilon,
                when,
                round=broadcast.round,
                mechanism=mechanism.name,
                allow_unsafe=allow_unsafe,
            )
        if shares or self.user_vector is None:
            told = transition_shares(self.history, broadcast.n_apps)
            return mechanism.encode(told, bits or SystemBits(), broadcast.round)
        stats = self._statistics_for(broadcast)
        _, c, c0, h = model.phone_terms(stats, broadcast)
        gradient = model.phone_gradient(stats, broadcast.app_vectors, self.user_vector, c, c0, h)
        return mechanism.encode(gradient, bits or SystemBits(), broadcast.round)

    def _statistics_for(self, broadcast: Broadcast) -> model.PhoneStatistics:
        """Counts and transitions of the apps in the catalogue; kept until the next launch."""
        key = (broadcast.n_apps, broadcast.settings.reading)
        if self._statistics is None or self._statistics[0] != key:
            history = self.history
            stats = model.phone_statistics(history[history < broadcast.n_apps], key[1])
            self._statistics = (key, stats)
        return self._statistics[1]


def _check_safe(mechanism: Mechanism, allow_float: bool, allow_unsafe: bool) -> None:
    if mechanism.unsafe:
        if not allow_unsafe:
            raise ValueError(
                f"{mechanism.name} is not ε-LDP, it sends in the clear: "
                f"{', '.join(mechanism.guarantee.sent_in_clear)}. Choose a private mechanism, or "
                f"say allow_unsafe=True in a simulation."
            )
    elif not (mechanism.finite_output or allow_float):
        raise ValueError(
            f"{mechanism.name} draws real numbers, and floats give away more than its ε: choose a "
            f"mechanism with finite_output, or say allow_float=True in a simulation."
        )
