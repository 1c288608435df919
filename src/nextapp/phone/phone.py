"""A phone for real: what `Device` computes, over what `Store` keeps, against a server.

Apps are names here. Inside, an app the server knows is its row in the catalogue at hand, any
other a number far beyond it; a catalogue that is ordered anew gives new numbers, and all is
built again from the launches.
"""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from nextapp.device import Device
from nextapp.habits import Habits, Reason
from nextapp.phone.client import (
    Client,
    Fetched,
    Overloaded,
    Refused,
    ServerError,
    Unreachable,
    Untrusted,
)
from nextapp.phone.store import (
    DAY,
    AlreadyDrawn,
    DrawnReport,
    HeldBroadcast,
    Launch,
    Snapshot,
    Store,
    check_clock,
)
from nextapp.privacy import requested
from nextapp.privacy.ledger import Amounts, BudgetSpent, ClockError
from nextapp.randomness import Bits
from nextapp.wire import Broadcast, Report, WireError

UNKNOWN = 1 << 32  # apps from here on are in no catalogue
LONGEST_PAUSE = DAY
"""Time between two launches ages the history by no more than this, nor less than nothing."""

MOST_LAUNCHES = 100_000
"""Kept at most, however many there are in the window."""

_TRIM = 512  # launches out of the window that are deleted together
_SAVE, _SAVE_AT_CLOSE = 512, 64  # launches learnt from until that is kept


class BadBroadcast(WireError):
    """A broadcast that is whole but cannot be used."""


class OlderBroadcast(WireError):
    """A broadcast of an earlier round than the one in hand."""


_FETCHED = {"new": "was fetched", "same": "is still the current one"}
_WITHOUT_BROADCAST: dict[type[Exception], str] = {
    Untrusted: "untrusted",
    Unreachable: "unreachable",
    Overloaded: "unreachable",
    OlderBroadcast: "older",
    BadBroadcast: "unusable",
    WireError: "corrupt",
    ServerError: "unusable",
}
_WITHOUT_REPORT: dict[type[Exception], str] = {
    BudgetSpent: "budget",
    ClockError: "clock",
    WireError: "unsafe",
    ServerError: "later",
}


@dataclass(frozen=True)
class Synced:
    """What came of a `Phone.sync`.

    ``broadcast`` is new or same; or it was older, corrupt or unusable, or the server unreachable or
    untrusted, and the one in hand stays. ``report`` is accepted, done (before), none (not asked
    for), closed, refused; or it is kept for later, as the server did not answer or the phone is
    unenrolled; or none was drawn, for the budget, the clock or as unsafe; or it was untried.
    ``words`` say it to a person; ``again`` is when to try again, where that is known.
    """

    broadcast: str
    report: str
    round: int | None
    words: str
    again: float | None = None


@dataclass(frozen=True)
class Status:
    """What a phone holds and what has left it."""

    n_launches: int
    n_apps: int
    first: float | None
    last: float | None
    n_bytes: int
    window: float
    server: str | None
    enrolled: bool
    round: int | None
    fetched: float | None
    n_known: int
    reports: tuple[DrawnReport, ...]
    spent: Amounts
    left: Amounts
    statement: str


class Phone:
    """One phone over its store.

    Parameters
    ----------
    store
        Kept open by the phone's owner, who closes it.
    clock
        Seconds since 1970, for all calls that do not say when.
    """

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.time) -> None:
        self.store = store
        self._clock = clock
        self._memory: _Memory
        self._saved: int  # the last launch that the kept habits know
        self._etag: str | None
        self._load()

    # --- launches and predictions --------------------------------------------------------------

    def observe(
        self,
        app: str,
        when: float | None = None,
        *,
        zone: int | None = None,
        durable: bool = False,
    ) -> None:
        """A launch; once this returns it survives a kill, and if `durable` a power cut.

        Habits learn from it when they are next asked, so that the launcher does not wait for that.
        ``zone`` is by how many seconds local time is ahead of UTC; None asks the system.
        """
        when = self._clock() if when is None else when
        launch = self.store.add(app, when, _zone(when) if zone is None else zone)
        if durable:
            self.store.flush()
        if launch.number == self._memory.last + 1:
            self._memory.take(launch)
        else:
            self._refresh()
        if self._memory.n_outside >= _TRIM:
            self._trim()

    def predict(self, n: int = 5, when: float | None = None) -> list[str]:
        """The n apps that are most likely launched next, best first."""
        self._learn()
        when = self._clock() if when is None else when
        memory = self._memory
        return [memory.names[app] for app in memory.device.predict(n, when + _zone(when))]

    def explain(self, n: int = 5, when: float | None = None) -> list[tuple[str, Reason]]:
        """The same n apps, each with what speaks for it."""
        self._learn()
        when = self._clock() if when is None else when
        reasons = self._device.explain(when + _zone(when))[:n]
        return [(self._memory.names[reason.app], reason) for reason in reasons]

    def learn(self, launches: Iterable[tuple[str, float, int]]) -> int:
        """Take launches (app, when, zone) from elsewhere, in the order of their clocks.

        Launches that are there already count once. Returns how many were new.
        """
        n_new = self.store.merge(launches)
        self._load()
        self._trim()
        return n_new

    # --- the server ----------------------------------------------------------------------------

    def join(self, server: Client, code: str) -> None:
        """Enrol with a server by the code of its operator. The server before it is left.

        The broadcast in hand is given up, so that the next one is taken whatever its round: a way
        back where a server was set back for good.
        """
        token = server.enrol(code)
        for report in self.store.reports(state="drawn"):
            if report.server != server.url:
                words = f"the phone went over to {server.url}"
                self.store.settle(report, "withdrawn", words, self._clock())
        self.store.release()
        self.store.set(server=server.url, token=token)
        self._load()

    def sync(
        self,
        server: Client,
        *,
        when: float | None = None,
        bits: Bits | None = None,
        trust_clock: bool = False,
    ) -> Synced:
        """Fetch the round's broadcast, solve the user vector, and send the round's one report.

        The report's ε is charged, and its bytes kept, before anything is sent; until the server
        has them, or no longer wants them, the same bytes are sent again. What the network and the
        server may do wrong is told in the result; the store's errors are raised.

        ``bits`` is for simulations; a phone draws from the operating system. ``trust_clock``:
        somebody vouches for `when` after a long time without a report.
        """
        if self.store.setting("server") != server.url:
            raise ValueError(f"this phone has not joined {server.url}: join it first.")
        server.token = server.token or self.store.setting("token")
        when = self._clock() if when is None else when
        self._refresh()
        try:
            answer = server.broadcast(self._etag)
            if answer is not None:
                self.take(answer, when)
        except (ServerError, WireError) as error:
            outcome = _named(error, _WITHOUT_BROADCAST)
            return Synced(outcome, "untried", self.round, str(error), _again(error, when))
        fetched = "same" if answer is None else "new"
        words = f"Round {self.round} {_FETCHED[fetched]}."
        if trust_clock:
            self.store.ledger.trust_clock(when)
        try:
            report, more = self._report(server, when, bits)
        except (ServerError, WireError, BudgetSpent, ClockError) as error:
            outcome = _named(error, _WITHOUT_REPORT)
            return Synced(
                fetched, outcome, self.round, f"{words} No report: {error}", _again(error, when)
            )
        return Synced(fetched, report, self.round, f"{words} {more}")

    @property
    def round(self) -> int | None:
        """The round of the broadcast in hand."""
        return None if self._device.broadcast is None else self._device.broadcast.round

    def take(self, answer: Fetched, when: float | None = None) -> None:
        """Take over a broadcast: in the store first, then here.

        One that cannot be read or used, or is older than the one in hand, raises a `WireError` and
        leaves that one in place.
        """
        when = self._clock() if when is None else when
        self._refresh()
        broadcast = read_broadcast(answer.data)
        if self.round is not None and broadcast.round < self.round:
            raise OlderBroadcast(
                f"the server offers round {broadcast.round}, but this phone has seen round "
                f"{self.round}: a stale copy, or a server set back. The later one stays."
            )
        before, kept = self._memory, self._memory.agrees_with(_rows(broadcast))
        habits, learnt = (before.habits, before.learnt) if kept else (Habits(), 0)
        memory = _Memory(broadcast, before.window, habits, learnt)
        memory.play(self.store.launches())
        solve(memory.device, broadcast)
        etag = answer.etag or f'"{hashlib.sha256(answer.data).hexdigest()}"'
        vector = np.asarray(memory.device.user_vector).tobytes()
        held = HeldBroadcast(broadcast.round, etag, when, answer.data, vector)
        self.store.hold(held, memory.numbering if kept else None)
        self._memory, self._etag = memory, etag
        self._saved = self._saved if kept else 0

    def _report(self, server: Client, when: float, bits: Bits | None) -> tuple[str, str]:
        """What became of the round's report, and in words."""
        broadcast = self._device.broadcast
        if broadcast is None:
            raise RuntimeError("there is no broadcast to report to.")
        drawn = self._settle_closed(server.url, broadcast.round, when)
        if drawn is None:
            if broadcast.request is None:
                return "none", "It asks for no report."
            drawn = self._draw(server, broadcast, when, bits)
        if drawn.state != "drawn":
            return "done", f"Its report was {drawn.state} before."
        return self._send(server, drawn, when)

    def _settle_closed(self, server: str, round_: int, when: float) -> DrawnReport | None:
        """The report of this round, if it was drawn; those of earlier rounds are over."""
        found = None
        for report in self.store.reports(server):
            if report.round == round_:
                found = report
            elif report.state == "drawn" and report.round < round_:
                self.store.settle(report, "closed", f"round {round_} came first", when)
        return found

    def _draw(
        self, server: Client, broadcast: Broadcast, when: float, bits: Bits | None
    ) -> DrawnReport:
        """Draw the report of this round, charge it and keep it, all before it is sent."""
        mechanism = requested(broadcast)
        guarantee = mechanism.guarantee
        if mechanism.unsafe or not mechanism.finite_output or guarantee.sent_in_clear:
            raise WireError(
                f"the server asks for {mechanism.name!r}, which this phone never sends: only "
                f"mechanisms that are ε-LDP, send nothing in the clear and are drawn exactly."
            )
        solve(self._device, broadcast)
        try:
            report = self._device.report(broadcast, mechanism, bits)
        except (ArithmeticError, ValueError) as error:
            raise WireError(f"the report cannot be made: {error}") from error
        try:
            return self._charged(server, report, guarantee.epsilon, when)
        except AlreadyDrawn:  # by another process, meanwhile
            (drawn,) = (r for r in self.store.reports(server.url) if r.round == report.round)
            return drawn

    def _charged(self, server: Client, report: Report, epsilon: float, when: float) -> DrawnReport:
        try:
            return self.store.draw(server.url, report, epsilon, when)
        except ClockError:
            if server.server_time is None or abs(server.server_time - when) > DAY:
                raise
            self.store.ledger.trust_clock(when)  # two clocks agree
            return self.store.draw(server.url, report, epsilon, when)

    def _send(self, server: Client, drawn: DrawnReport, when: float) -> tuple[str, str]:
        """Send the bytes that were drawn; they are kept unless the server has the last word."""
        self.store.trying(drawn)
        try:
            server.submit(drawn.data or b"")
        except Refused as error:
            if error.status == 401:
                return "unenrolled", f"Its report is kept: {error}"
            state = "closed" if error.status == 410 else "refused"
            self.store.settle(drawn, state, str(error), when)
            return state, f"Its report came to nothing: {error}"
        self.store.settle(drawn, "accepted", "", when)
        return "accepted", f"Its report was sent: {drawn.n_bytes} bytes, ε = {drawn.epsilon:g}."

    # --- what is held, and forgetting it -------------------------------------------------------

    def status(self, when: float | None = None) -> Status:
        """What this phone holds, and what has left it."""
        self._refresh()
        when = self._clock() if when is None else when
        launches = self.store.launches()
        names = self.store.names
        held = self.store.broadcast()
        ledger = self.store.ledger
        return Status(
            n_launches=len(self._memory.kept),
            n_apps=len(names),
            first=launches[0].clock if launches else None,
            last=launches[-1].clock if launches else None,
            n_bytes=self.store.n_bytes,
            window=self.store.window,
            server=self.store.setting("server"),
            enrolled=self.store.setting("token") is not None,
            round=None if held is None else held.round,
            fetched=None if held is None else held.fetched,
            n_known=sum(name in self._memory.rows for name in names),
            reports=tuple(self.store.reports()),
            spent=ledger.spent(when),
            left=ledger.left(when),
            statement=ledger.statement(when),
        )

    def export(self) -> dict[str, Any]:
        """Everything held but the secret token, as plain values for JSON."""
        self._refresh()
        held = self.store.broadcast()
        vector = self._device.user_vector
        return {
            "launches": [
                {"app": launch.name, "time": launch.clock, "zone": launch.zone}
                for launch in self.store.launches()
            ],
            "server": self.store.setting("server"),
            "window_seconds": self.store.window,
            "broadcast": None
            if held is None
            else {"round": held.round, "fetched": held.fetched, "n_bytes": len(held.data)},
            "user_vector": None if vector is None else vector.tolist(),
            "reports": [
                {**report._asdict(), "data": None if report.data is None else report.data.hex()}
                for report in self.store.reports()
            ],
            "ledger": [
                {**asdict(entry), "day": entry.day.isoformat()}
                for entry in self.store.ledger.entries()
            ],
        }

    def forget(self, app: str | None = None) -> None:
        """Erase an app that was uninstalled, or the whole history and all that was made of it.

        The ledger and the list of reports stay: what was sent cannot be taken back.
        """
        try:
            if app is None:
                self.store.erase(self._clock())
            elif self.store.drop_app(app) == 0:
                raise ValueError(f"there are no launches of {app!r} on this phone.")
        finally:
            self._load()

    # --- memory --------------------------------------------------------------------------------

    @property
    def _device(self) -> Device:
        return self._memory.device

    def _load(self) -> None:
        """Build all from the store."""
        self._foreign = self.store.foreign_changes
        self._epoch = self.store.epoch
        held, broadcast = self.store.broadcast(), None
        if held is not None:
            with suppress(WireError):  # written by a program that knew other broadcasts
                broadcast = read_broadcast(held.data)
        self._etag = None if held is None or broadcast is None else held.etag
        habits, self._saved = self._kept_habits(broadcast)
        self._memory = _Memory(broadcast, self.store.window, habits, self._saved)
        self._memory.play(self.store.launches())
        if held is not None and broadcast is not None:
            vector = np.frombuffer(held.vector)
            if len(vector) == broadcast.dim:
                self._device.broadcast, self._device.user_vector = broadcast, vector
            else:
                solve(self._device, broadcast)

    def _kept_habits(self, broadcast: Broadcast | None) -> tuple[Habits, int]:
        """The habits of the store and the last launch they know; new ones where none fit."""
        snapshot = self.store.snapshot()
        if snapshot is not None and snapshot.numbering == _numbering(broadcast):
            with suppress(WireError):  # written by a program that knew other habits
                return Habits.from_bytes(snapshot.data), snapshot.upto
        return Habits(), 0

    def _refresh(self) -> None:
        """Take over what other processes have written."""
        foreign = self.store.foreign_changes
        if foreign == self._foreign:
            return
        if (self.store.epoch, self.store.broadcast_etag()) != (self._epoch, self._etag):
            self._load()
        else:
            self._foreign = foreign
            self._memory.play(self.store.launches(after=self._memory.last))

    def _learn(self) -> None:
        """Bring the habits up to date, and keep them now and then."""
        self._refresh()
        self._memory.learn()
        if self._memory.learnt - self._saved >= _SAVE:
            self._save()

    def _trim(self) -> None:
        if self._memory.kept:
            self._memory.oldest = self._memory.kept[0].number
            self.store.drop_before(self._memory.oldest)
            self._memory.forget_old_apps()

    def _save(self) -> None:
        """Keep what was learnt, so that it need not be learnt again."""
        memory = self._memory
        self.store.keep(Snapshot(memory.learnt, memory.numbering, memory.habits.to_bytes()))
        self._saved = memory.learnt

    def close(self) -> None:
        """Keep what was learnt, flush, and close the store."""
        try:
            self._refresh()
            if self._memory.learnt - self._saved >= _SAVE_AT_CLOSE:
                self._save()
        finally:
            self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Memory:
    """All that is built from the launches under one catalogue: the device, the window, the names.

    An app of the catalogue has its row as its number, any other one beyond `UNKNOWN`. ``habits``
    know the launches up to the number ``learnt``; the others wait for `learn`.
    """

    def __init__(
        self, broadcast: Broadcast | None, window: float, habits: Habits, learnt: int
    ) -> None:
        self.rows = {} if broadcast is None else _rows(broadcast)
        self.numbering = _numbering(broadcast)
        self.window = window
        self.device = Device()
        self.names: dict[int, str] = {}
        self.kept: deque[_Kept] = deque()
        self.oldest = 1  # launch in the store
        self.last = 0
        self.habits = habits
        self.learnt = learnt
        self._crowd = None if broadcast is None else broadcast.crowd
        self._unlearnt: deque[tuple[int, float]] = deque(maxlen=MOST_LAUNCHES)

    def agrees_with(self, rows: dict[str, int]) -> bool:
        """Whether every app held would have the same number under another catalogue."""
        return all(
            rows.get(name) == (number if number < UNKNOWN else None)
            for number, name in self.names.items()
        )

    @property
    def n_outside(self) -> int:
        """Launches that have left the window but not yet the store."""
        return self.kept[0].number - self.oldest

    def play(self, launches: list[Launch]) -> None:
        if launches and not self.kept:
            self.oldest = launches[0].number
        for launch in launches:
            self.take(launch)

    def take(self, launch: Launch) -> None:
        number, when = self.rows.get(launch.name, UNKNOWN + launch.app), launch.clock + launch.zone
        self.names[number] = launch.name
        self.last = launch.number
        self.device.habits = None
        self.device.observe(number, when)
        self.device.drop(self._aged(launch))
        if launch.number > self.learnt:
            self._unlearnt.append((number, when))

    def learn(self) -> None:
        """Let the habits learn what waits, and the device predict by them."""
        if self.device.habits is not None:
            return
        self.habits.crowd = self._crowd
        if self._unlearnt:
            for number, when in self._unlearnt:
                if number in self.names:
                    self.habits.observe(number, when)
            self._unlearnt.clear()
            self.learnt = self.last
        self.device.habits = self.habits

    def forget_old_apps(self) -> None:
        """Forget the apps of which no launch is left in the window."""
        self.names = {number: self.names[number] for number in self.device.candidates}
        for number in self.habits.apps:
            if number not in self.names:
                self.habits.forget(number)

    def _aged(self, launch: Launch) -> int:
        """Note a launch; how many old ones leave the window with it."""
        age = 0.0
        if self.kept:
            last = self.kept[-1]
            age = last.age + min(max(launch.clock - last.clock, 0.0), LONGEST_PAUSE)
        self.kept.append(_Kept(launch.number, launch.clock, age))
        n_old = 0
        while age - self.kept[0].age > self.window or len(self.kept) > MOST_LAUNCHES:
            self.kept.popleft()
            n_old += 1
        return n_old


class _Kept(NamedTuple):
    """A launch in the window, and how old the history was at it."""

    number: int
    clock: float
    age: float


def read_broadcast(data: bytes) -> Broadcast:
    """The broadcast in these bytes, if a phone can use it; else a `WireError`."""
    broadcast = Broadcast.from_bytes(data)
    if broadcast.round < 0 or not broadcast.n_apps or not broadcast.dim:
        raise BadBroadcast("it has no apps or no dimensions.")
    if not all(isinstance(name, str) for name in broadcast.apps):
        raise BadBroadcast("its catalogue has names that are no text.")
    if len(set(broadcast.apps)) != len(broadcast.apps):
        raise BadBroadcast("its catalogue names an app twice.")
    vectors = broadcast.app_vectors
    with np.errstate(all="ignore"):
        right = np.allclose(broadcast.gram, vectors.T @ vectors, rtol=1e-6, atol=1e-9)
    if not right:
        raise BadBroadcast("its gram is not that of its app vectors.")
    return broadcast


def solve(device: Device, broadcast: Broadcast) -> None:
    """`Device.update`, or a `BadBroadcast` where it gives no numbers."""
    before = device.user_vector
    try:
        with np.errstate(all="ignore"):
            device.update(broadcast)
    except np.linalg.LinAlgError as error:
        raise BadBroadcast(f"no user vector can be solved against it ({error}).") from error
    if device.user_vector is None or not np.isfinite(device.user_vector).all():
        device.user_vector = before
        raise BadBroadcast("the user vector solved against it is not finite.")


def _rows(broadcast: Broadcast) -> dict[str, int]:
    """The row of every app by its name; a catalogue without names is known by its numbers."""
    names = broadcast.apps or map(str, range(broadcast.n_apps))
    return {name: row for row, name in enumerate(names)}


def _numbering(broadcast: Broadcast | None) -> str:
    """By which apps are numbered under this broadcast."""
    rows = [] if broadcast is None else list(_rows(broadcast))
    return hashlib.sha256(repr(rows).encode()).hexdigest()


def _named(error: Exception, outcomes: dict[type[Exception], str]) -> str:
    return next(name for kind, name in outcomes.items() if isinstance(error, kind))


def _again(error: Exception, when: float) -> float | None:
    if isinstance(error, BudgetSpent):
        return error.again
    pause = error.pause if isinstance(error, Overloaded) else None
    return None if pause is None else when + pause


def _zone(when: float) -> int:
    check_clock(when)
    return time.localtime(when).tm_gmtoff
