"""A phone for real: what `PhoneCore` computes, over what `Store` keeps, against a server.

Apps are names here; inside they have the numbers that the store gave them.

The server is not trusted. What leaves a phone (which requests, in which order, their headers and
sizes, whether there is a report and what it is charged) depends on the server's bytes, the owner's
limits and the clock, never on the launches; only the payload of a report does, and that is ε-LDP
(docs/privacy/threat-model.md).
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from nextapp.data.times import offset_of
from nextapp.phone.core import (
    BadAnswer,
    BadBroadcast,
    BeyondLimits,
    Closing,
    LightReason,
    NotAsPublished,
    NotUsed,
    Overloaded,
    PhoneCore,
    Refused,
    ServerError,
    Unreachable,
    Untrusted,
    printable,
    read_broadcast,
)
from nextapp.phone.ledger import DAY, BudgetSpent, ClockError, check_clock
from nextapp.phone.store import (
    AlreadyDrawn,
    DrawnReport,
    Launch,
    Store,
    StoredBroadcast,
    TooSoon,
)
from nextapp.predictor import STEADY, Habits, Reason
from nextapp.privacy import Mechanism
from nextapp.privacy.tokens import MESSAGE, BadSignature, Blinding, Token, public_key
from nextapp.randomness import Bits, SystemBits, below
from nextapp.wire import Broadcast, Floats, TokenKey, WireError, digest_of, pack, unpack

if TYPE_CHECKING:
    from nextapp.phone.client import Client

When = float | datetime | None
"""A time: seconds since 1970, or a datetime, local where it has no zone. None is now."""

MOST_LAUNCHES = 100_000
"""Most launches that are kept. Older ones are deleted, even within the window."""

PAUSE = (30.0, 120.0)
"""Seconds between fetching a broadcast and sending the report, drawn at random between these: far
longer than any phone computes, so that the time tells nothing of how much there was to compute."""

TOKEN_WAIT = (4 * 3600.0, 28 * 3600.0)
"""Seconds between asking for a token and sending it with a report, drawn at random between these:
the server knows who asks, and must not know by the time whose report it is."""

PATIENCE = 7 * DAY
"""How long a phone refuses a server whose rounds do not continue those it has seen."""

MOST_ROUNDS_AHEAD = 1 << 20

_MOST_NUMBERS = 33 << 17
"""Of 8 bytes, 33 MiB: taken before a visit and given back. More than any visit needs, whatever was
launched and asked, and more than malloc keeps for later."""

_TRIM = 512  # launches out of the window that are deleted together
_SAVE, _SAVE_AT_CLOSE = 512, 64  # launches learnt from until that is kept
_UNTIL_LAUNCHED = ("installed", "removed")  # marks that a launch takes off
_FINE = 1 << 30  # steps of a random time


class OtherHistory(WireError):
    """A broadcast that does not continue the current one: an older one, or one of a fork."""


class TooFresh(RuntimeError):
    """The phone's token was signed so lately that its report could be linked; ``again`` is when."""

    def __init__(self, again: float) -> None:
        super().__init__("its token was signed a short while ago, and is sent hours later only.")
        self.again = again


_FETCHED = {"new": "was fetched", "same": "is still the current one"}
_WITHOUT_BROADCAST: dict[type[Exception], str] = {
    Untrusted: "untrusted",
    Unreachable: "unreachable",
    Overloaded: "unreachable",
    NotAsPublished: "altered",
    OtherHistory: "forked",
    BadBroadcast: "unusable",
    WireError: "corrupt",
    ServerError: "unusable",
    MemoryError: "memory",
}
_WITHOUT_REPORT: dict[type[Exception], str] = {
    BudgetSpent: "budget",
    ClockError: "clock",
    BeyondLimits: "limits",
    NotUsed: "unused",
    TooSoon: "limits",
    TooFresh: "waiting",
    WireError: "unsafe",
    ServerError: "later",
}


@dataclass(frozen=True)
class Synced:
    """The result of a `Phone.sync`.

    ``broadcast``::

        new, same               taken; or the phone has the current one already
        altered, forked, corrupt, unusable, unreachable, untrusted
                                none was taken, and the phone keeps its own; forked: it does not
                                continue that one
        memory                  there was too little for a visit, so none was made

    ``report``::

        accepted, done          sent now; or in an earlier sync
        none                    the server asks for none
        closed, refused         the server does not take it any more; or never will
        later                   kept for the next sync: no answer
        waiting                 not drawn yet: its token is to be hours old when it is sent
        unenrolled              not drawn: the server gives this phone no tokens
        limits, budget, clock, unsafe, unused, tokens
                                not drawn; unused: the phone would not predict by the answer;
                                tokens: those of this period are spent
        untried                 there was no broadcast to report to

    ``message`` says it to a person; ``again`` is when to try again, if that is known.
    """

    broadcast: str
    report: str
    round: int | None
    message: str
    again: float | None = None


class Phone(Closing):
    """One phone over its store, which says how it predicts (`Store.predictor`).

    Parameters
    ----------
    store
        Kept open by the phone's owner, who closes it.
    clock
        Seconds since 1970, for all calls that do not say when.
    sleep, timer
        How the pause before a report is made and measured.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        if not isinstance(store, Store):
            raise TypeError(
                f"a phone needs its store, as in Phone(Store.open_or_create('phone.db')), got "
                f"{store!r}."
            )
        self.store = store
        self._clock = clock
        self._sleep = sleep
        self._timer = timer
        self._core: PhoneCore
        self._names: dict[int, str]  # of the apps by their number in the store
        self._marked: set[int]  # apps with a mark that a launch takes off
        self._digest: str | None  # of the current broadcast
        self._kept: deque[int]  # numbers of the launches in the window
        self._oldest: int  # launch in the store
        self._last: int  # launch that was read from the store
        self._saved: int  # last launch that the kept habits know
        self._load()

    def __repr__(self) -> str:
        return f"Phone({str(self.store.path)!r})"

    # --- launches and predictions --------------------------------------------------------------

    def observe(
        self,
        app: str,
        when: When = None,
        *,
        zone: int | None = None,
        durable: bool = False,
    ) -> None:
        """A launch; once this returns it survives a kill, and if `durable` a power cut.

        Habits learn from it, or the user vector is solved anew, when a prediction is next asked
        for, so that the launcher does not wait for that.
        ``when`` is a datetime or in seconds since 1970; None is now. ``zone`` is by how many
        seconds local time is ahead of UTC; None asks the datetime, else the system.
        """
        clock, own_zone = self._clock_and_zone(when)
        launch = self.store.add(app, clock, own_zone if zone is None else zone)
        if durable:
            self.store.flush()
        if launch.number == self._last + 1:
            self._add([launch])
        else:
            self._refresh()
        if launch.app in self._marked:
            self.store.unmark(app, _UNTIL_LAUNCHED)
            self._use_marks()
        if self._kept[0] - self._oldest >= _TRIM:
            self._trim()

    @overload
    def predict(
        self, n: int = 5, when: When = None, *, threshold: float | None = None,
        with_open: bool = False, shown: Sequence[str] = (), steady: float = STEADY,
        probabilities: Literal[False] = False,
    ) -> list[str]: ...  # fmt: skip

    @overload
    def predict(
        self, n: int = 5, when: When = None, *, threshold: float | None = None,
        with_open: bool = False, shown: Sequence[str] = (), steady: float = STEADY,
        probabilities: Literal[True],
    ) -> list[tuple[str, float]]: ...  # fmt: skip

    def predict(
        self,
        n: int = 5,
        when: When = None,
        *,
        threshold: float | None = None,
        with_open: bool = False,
        shown: Sequence[str] = (),
        steady: float = STEADY,
        probabilities: bool = False,
    ) -> list[str] | list[tuple[str, float]]:
        """The n apps that are most likely launched next, best first.

        Within a session the open app is left out, unless ``with_open``: they are the most likely
        to be launched after it. With a ``threshold`` only those whose probability is as high: those
        worth prewarming. ``probabilities`` returns each app with its own.

        ``shown`` are the apps on the screen, in their places. Each stays at its place unless
        another is ``steady`` times as likely; the result is then what to show, place by place.
        """
        if isinstance(shown, str):
            raise TypeError(f"shown must be several names, as in ['Mail'], got the text {shown!r}.")
        self._catch_up()
        if probabilities and self._core.habits is None:
            raise ValueError("SeqMF's scores are no probabilities: predict by habits for those.")
        numbers = {name: app for app, name in self._names.items()} if shown else {}
        suggested = self._core.suggest(
            n,
            self._local(when),
            threshold,
            with_open=with_open,
            shown=[numbers.get(name, -1) for name in shown],
            steady=steady,
        )
        if probabilities:
            return [(self._names[app], chance) for app, chance in suggested]
        return [self._names[app] for app, _ in suggested]

    def explain(
        self, n: int = 5, when: When = None, *, with_open: bool = False
    ) -> list[tuple[str, Reason | LightReason]]:
        """The same n apps, each with its probability and what speaks for it."""
        self._catch_up()
        reasons = self._core.explain(self._local(when), with_open=with_open)[:n]
        return [(self._names[reason.app], reason) for reason in reasons]

    def keep_order(self, when: When = None) -> list[str]:
        """All apps of the history in the order in which to keep them in memory, the open one first.

        By log f + 30·P: f is how often an app is launched in the long run, P how likely next. What
        is last gives way first. Hidden apps count like others; removed ones are not there.
        """
        self._catch_up()
        removed = {mark.app for mark in self.store.marks() if mark.mark == "removed"}
        order = self._core.keep_order(self._local(when))
        return [self._names[app] for app in order if app not in removed]

    def _local(self, when: When) -> float:
        return sum(self._clock_and_zone(when))

    def _clock_and_zone(self, when: When) -> tuple[float, int]:
        when = self._clock() if when is None else when
        if isinstance(when, datetime):
            when = when if when.tzinfo else datetime.astimezone(when)  # of pandas, too
            return when.timestamp(), offset_of(when)
        return when, _zone(when)

    # --- what the owner says of apps: kept here, never reported --------------------------------

    def hide(self, app: str) -> None:
        """Suggest an app no more. Its launches count as before; `forget` erases them."""
        self.store.mark([app], "hidden", self._clock())
        self._use_marks()

    def unhide(self, app: str) -> bool:
        """Suggest an app again that was hidden or dismissed; whether it was."""
        marks = ("hidden", "dismissed")
        was = any(each.name == app and each.mark in marks for each in self.store.marks())
        self.store.unmark(app, marks)
        self._use_marks()
        return was

    def dismiss(self, app: str, seconds: float = DAY) -> float:
        """Do not suggest an app for a while, of a year at most; returns until when."""
        if not 0 < seconds <= 366 * DAY:
            raise ValueError(
                f"an app is dismissed for more than 0 s and for a year at most, got {seconds:g} s; "
                f"to leave it out for good, hide it."
            )
        until = self._clock() + seconds
        self.store.mark([app], "dismissed", until)
        self._use_marks()
        return until

    def installed(self, apps: Iterable[str]) -> None:
        """These apps are installed. Those not launched yet get a place among the suggestions.

        They leave it again if they are not used, as `chances_of_new` says. It does no harm to name
        them more than once, or to name apps that are launched already.
        """
        if isinstance(apps, str):
            raise TypeError(f"apps must be several names, got the one name {apps!r}.")
        self._refresh()
        apps = set(apps)
        marks = [mark for mark in self.store.marks() if mark.name in apps]
        launched = {self._names[app] for app in self._core.candidates}
        known = {mark.name for mark in marks if mark.mark == "installed"}
        for mark in marks:
            if mark.mark == "removed":
                self.store.unmark(mark.name, ("removed",))
        self.store.mark(sorted(apps - launched - known), "installed", self._clock())
        self._use_marks()

    def removed(self, app: str) -> None:
        """An app is gone: not suggested until it is installed or launched again."""
        self.store.mark([app], "removed", self._clock(), off=("installed",))
        self._use_marks()

    def _use_marks(self) -> None:
        """Let the suggestions follow the owner's marks."""
        self._marked = set()
        left_out: dict[int, float] = {}
        new: dict[int, int] = {}
        launched = set(self._core.candidates)
        for mark in self.store.marks():
            self._names[mark.app] = mark.name
            if mark.mark == "installed":
                if mark.app not in launched:
                    new[mark.app] = self.store.n_launches(since=mark.clock)
            elif mark.mark == "dismissed":
                until = mark.clock + _zone(mark.clock)
                left_out[mark.app] = max(until, left_out.get(mark.app, until))
            else:
                left_out[mark.app] = math.inf
            if mark.mark in _UNTIL_LAUNCHED:
                self._marked.add(mark.app)
        self._core.left_out, self._core.new = left_out, new

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

        What depends on the launches is done before the server is asked: a `sync` may follow.
        The broadcast is given up, so that the next one is taken, of any round and history; and so
        are tokens, and a report that was drawn and not sent.
        """
        self._refresh()
        self.store.checkpoint()
        secret = server.enrol(code)
        for report in self.store.reports(state="drawn"):
            words = f"the phone has enrolled anew with {server.url}"
            self.store.settle(report, "withdrawn", words, self._clock())
        self.store.drop_broadcast()
        self.store.drop_tokens()
        self.store.set(server=server.url, secret=secret)
        self._digest = None
        self._use(None)

    def sync(
        self,
        server: Client,
        *,
        when: float | None = None,
        bits: Bits | None = None,
        trust_clock: bool = False,
        now: bool = False,
    ) -> Synced:
        """Fetch the round's broadcast, and send the round's one report after a random pause.

        The report's ε is charged, and its bytes kept, before anything is sent; until the server
        has them, or no longer wants them, the same bytes are sent again. What the network and the
        server may do wrong is in the result; the store's errors are raised.

        A visit asks for tokens or sends a report, never both. The token of a report is hours old.
        Between two requests, launches are read only during the random pause.

        ``bits`` is for simulations; a phone draws from the operating system. ``trust_clock``:
        somebody vouches for `when` after a long time without a report; no limit is lifted.
        ``now`` leaves the pause out, and the hours after a token: for trying by hand, as the times
        then tell whose report it is and how long it took to make.
        """
        if self.store.setting("server") != server.url:
            raise ValueError(f"this phone has not joined {server.url}: join it first.")
        when = self._clock() if when is None else when
        self._refresh()
        self.store.checkpoint()
        kept, fetched_at, pause = None, self._timer(), 0.0 if now else _between(PAUSE)
        try:
            np.ones(_MOST_NUMBERS)  # no history needs more, so the peak tells nothing of it
            data = server.current(self._digest)
            fetched_at = self._timer()
            if data is None:
                self._note_refusal(None)
            else:
                self.take(data, when, server.digests)
        except (ServerError, WireError, MemoryError) as error:
            fetched, words = _name_error(error, _WITHOUT_BROADCAST), printable(str(error))
            if isinstance(error, Overloaded):  # a round that ends takes what was drawn for it
                unsent = self.store.reports(server.url, "drawn")
                kept = next((each for each in unsent if each.round == self.round), None)
            if kept is None:
                return Synced(fetched, "untried", self.round, words, _again(error, when))
        else:
            fetched = "same" if data is None else "new"
            words = f"Round {self.round} {_FETCHED[fetched]}."
        if trust_clock:
            self.store.trust_clock(when, when + TOKEN_WAIT[1])
        try:
            drawn = kept or self._report_to_send(server, when, bits, now)
            if isinstance(drawn, DrawnReport):
                self._wait(fetched_at, pause)
                drawn = self._send(server, drawn, when)
        except (ServerError, WireError, BudgetSpent, ClockError, TooSoon, TooFresh) as error:
            outcome = _name_error(error, _WITHOUT_REPORT)
            words += f" No report: {printable(str(error))}"
            return Synced(fetched, outcome, self.round, words, _again(error, when))
        report, more = drawn
        return Synced(fetched, report, self.round, f"{words} {more}")

    @property
    def broadcast(self) -> Broadcast | None:
        return self._core.broadcast

    @property
    def round(self) -> int | None:
        return None if self.broadcast is None else self.broadcast.round

    def take(
        self,
        data: bytes,
        when: float | None = None,
        digests: Callable[[int, int], list[tuple[int, str]]] | None = None,
    ) -> None:
        """Take over a broadcast: in the store first, then here. No launch is read for it.

        One that cannot be read or used, or does not continue the current one, raises a `WireError`
        and leaves that one in place. ``digests`` asks the server for those from one round to
        another, if this phone was away for longer than a broadcast's history covers.
        """
        when = self._clock() if when is None else when
        broadcast = read_broadcast(data)
        held = self.store.broadcast()
        if held is not None:
            self._check_continues(held, broadcast, when, digests)
        self._note_refusal(None)
        new = StoredBroadcast(broadcast.round, digest_of(data), broadcast.history.chain, when, data)
        self.store.keep_broadcast(new)
        self._digest = new.digest
        self._use(broadcast)

    def _check_continues(
        self,
        held: StoredBroadcast,
        offered: Broadcast,
        when: float,
        digests: Callable[[int, int], list[tuple[int, str]]] | None,
    ) -> None:
        """Raise `OtherHistory` unless a broadcast comes after the current one, on the same history.

        A week after the first refusal a server is believed again, since it may have been restored
        from a backup. `Store.history_gaps` counts these times.
        """
        ahead = offered.round - held.round
        continues = offered.history.continues(held.round, held.digest, held.chain)
        if continues is None and 0 < ahead <= MOST_ROUNDS_AHEAD and digests is not None:
            known = [each for each in digests(held.round, offered.round) if each[0] < offered.round]
            continues = offered.history.continues_by(known, held.round, held.digest, held.chain)
        if 0 < ahead <= MOST_ROUNDS_AHEAD and continues:
            return
        since = self.store.setting("refused_since")
        if since is not None and when - float(since) > PATIENCE:
            self.store.set(history_gaps=self.store.history_gaps + 1)
            return
        if since is None or when < float(since):
            self._note_refusal(when)
        if ahead <= 0:
            why = f"the server offers round {offered.round}, but this phone has seen {held.round}"
        elif ahead > MOST_ROUNDS_AHEAD:
            why = f"the server offers round {offered.round}, too far ahead of {held.round}"
        else:
            why = (
                f"the server's history does not contain the broadcast of round {held.round} that "
                f"this phone was given"
            )
        raise OtherHistory(
            f"{why}: a stale copy, a server that was set back, or one that shows different phones "
            f"different broadcasts. The current one stays. Compare its digest {held.digest} with "
            f"those the server publishes at /v1/digests; to start over with it, join it again."
        )

    def _note_refusal(self, when: float | None) -> None:
        """Since when the server's broadcasts have not continued the current one; None: they do."""
        if when is not None or self.store.setting("refused_since") is not None:
            self.store.set(refused_since=when)

    def _report_to_send(
        self, server: Client, when: float, bits: Bits | None, now: bool
    ) -> DrawnReport | tuple[str, str]:
        """The round's report; or, if there is none to send, what `Synced` says of it."""
        broadcast = self._core.broadcast
        if broadcast is None:
            raise RuntimeError("there is no broadcast to report to.")
        drawn = self._settle_closed(server.url, broadcast.round, when)
        if drawn is None:
            if broadcast.request is None:
                return "none", "It asks for no report."
            mechanism = self.store.limits.mechanism_for(broadcast, self.store.predictor)
            self._check_charge(server, mechanism.guarantee.epsilon, when, None)
            found = self._token(server, broadcast, when, now)
            if not isinstance(found, Token):
                return found
            drawn = self._draw(server, mechanism, found, when, bits)
        if drawn.state != "drawn":
            return "done", f"Its report was {drawn.state} before."
        return drawn

    def _token(
        self, server: Client, broadcast: Broadcast, when: float, now: bool
    ) -> Token | tuple[str, str]:
        """A token to report by, of a key that the broadcast lists; asked for if there is none."""
        secret = self.store.setting("secret")
        if secret is None:
            return "unenrolled", "This phone has not enrolled: join the server."
        region = str(secret).partition(".")[0]
        keys = [key for key in broadcast.keys if key.region == region]
        unspent = self.store.unspent(key.id for key in keys)
        if not unspent:
            if not keys:
                return "tokens", "It lists no key of the server that this phone has joined."
            try:
                self._ask_tokens(server, str(secret), keys[-1], when)
            except Refused as error:
                if error.status == 401:
                    return "unenrolled", f"No token: {error}"
                if error.code == "already_issued":
                    self.store.give_up_tokens(keys[-1].id)
                return "tokens", f"No token: {error}"
            unspent = self.store.unspent(key.id for key in keys)
        if not unspent:
            return "tokens", "The tokens of this period are spent; there are others in the next."
        token, ready = unspent[0]
        if not now and when < ready:
            raise TooFresh(ready)
        return token

    def _ask_tokens(self, server: Client, secret: str, key: TokenKey, when: float) -> None:
        """Have this phone's tokens of a key signed, unseen; what is asked is on the disk first."""
        public = public_key(key)

        def fresh() -> list[Blinding]:
            return [public.new_blinding(MESSAGE) for _ in range(key.tokens)]

        blindings = self.store.blindings(key.id, fresh)
        if blindings is None:
            return
        signed = server.sign(secret, key.id, [public.blind(each) for each in blindings])
        try:
            tokens = [Token.of(key, *pair) for pair in zip(blindings, signed, strict=True)]
        except BadSignature as error:
            raise BadAnswer(
                f"the server signs by another key than the one it publishes: {error}"
            ) from error
        self.store.keep_tokens(key.id, tokens, when + _between(TOKEN_WAIT))

    def _check_charge(
        self, server: Client, epsilon: float, when: float, hours: float | None
    ) -> None:
        """Raise where the ledger allows no report now; two clocks that agree are believed."""
        try:
            self.store.check_charge(epsilon, when, hours=hours)
        except ClockError:
            if server.server_time is None or abs(server.server_time - when) > DAY:
                raise
            self.store.ledger.trust_clock(when)
            self.store.check_charge(epsilon, when, hours=hours)

    def _wait(self, fetched_at: float, pause: float) -> None:
        """Wait until the pause is over; where making the report took longer, until the next is."""
        if pause > 0:
            elapsed = self._timer() - fetched_at
            self._sleep(max(1, math.ceil(elapsed / pause)) * pause - elapsed)

    def _settle_closed(self, server: str, round_: int, when: float) -> DrawnReport | None:
        """The report of this round, if it was drawn; those of other rounds are over."""
        found = None
        for report in self.store.reports(server):
            if report.round == round_:
                found = report
            elif report.state == "drawn":
                self.store.settle(report, "closed", f"round {round_} is the current one", when)
        return found

    def _draw(
        self,
        server: Client,
        mechanism: Mechanism,
        token: Token,
        when: float,
        bits: Bits | None,
    ) -> DrawnReport:
        """Draw the report of this round, charge it and keep it, all before it is sent.

        Whether there is one, and what it costs, is decided first, without a look at the launches.
        """
        broadcast, epsilon = self._core.broadcast, mechanism.guarantee.epsilon
        if broadcast is None or broadcast.request is None:
            raise RuntimeError("there is no request to draw a report for.")
        hours = self.store.limits.hours
        self._check_charge(server, epsilon, when, hours)
        report = self._core.draw_report(mechanism, broadcast.round, bits, token.signature)
        try:
            return self.store.charge_report(server.url, report, epsilon, when, token, hours=hours)
        except AlreadyDrawn:  # by another process, meanwhile
            drawn = self._settle_closed(server.url, report.round, when)
            if drawn is None:
                raise
            return drawn

    def _send(self, server: Client, drawn: DrawnReport, when: float) -> tuple[str, str]:
        """Send the bytes that were drawn; they are kept unless the server has the last word."""
        found = self.store.begin_sending(drawn)
        if found is None:
            return "done", "Its report was withdrawn or sent meanwhile."
        try:
            server.submit(*found)
        except Refused as error:
            state = "closed" if error.status == 410 else "refused"
            self.store.settle(drawn, state, str(error), when)
            return state, f"Its report came to nothing: {error}"
        self.store.settle(drawn, "accepted", "", when)
        return "accepted", f"Its report was sent: {drawn.n_bytes} bytes, ε = {drawn.epsilon:g}."

    # --- export, forget ------------------------------------------------------------------------

    def export(self) -> dict[str, Any]:
        """Everything stored except secret and tokens, as plain values for JSON."""
        self._refresh()
        held = self.store.broadcast()
        by_vector = self._core.habits is None and self._core.broadcast is not None
        return {
            "launches": [
                {"app": launch.name, "time": launch.clock, "zone": launch.zone}
                for launch in self.store.launches()
            ],
            "marks": [mark._asdict() for mark in self.store.marks()],
            "server": self.store.setting("server"),
            "window_seconds": self.store.window,
            "predictor": self.store.predictor,
            "limits": asdict(self.store.limits),
            "broadcast": None
            if held is None
            else {
                "round": held.round,
                "digest": held.digest,
                "fetched": held.fetched,
                "n_bytes": len(held.data),
            },
            "user_vector": self._core.user_vector.tolist() if by_vector else None,
            "reports": [
                {
                    **report._replace(token=None)._asdict(),
                    "data": None if report.data is None else report.data.hex(),
                }
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
            elif app not in self.store.names:
                raise ValueError(f"there are no launches of {app!r} on this phone.")
            else:
                self.store.drop_app(app)
        finally:
            self._load()

    # --- memory --------------------------------------------------------------------------------

    def _load(self) -> None:
        self._foreign = self.store.foreign_changes
        self._epoch = self.store.epoch
        by_habits = self.store.predictor != "seqmf"  # else by SeqMF's light scores
        snapshot, kept = self.store.snapshot() if by_habits else None, None
        if snapshot is not None:
            with suppress(WireError):  # written by a program that knew other habits
                kept = _Memory.from_bytes(*snapshot)
        habits = (Habits() if kept is None else kept.habits) if by_habits else None
        self._core = PhoneCore(window=self.store.window, most_launches=MOST_LAUNCHES, habits=habits)
        self._names, self._kept, self._last, self._saved = {}, deque(), 0, 0
        self._oldest = self.store.first_number()
        if kept is not None:
            there = slice(int(np.searchsorted(kept.numbers, self._oldest)), None)
            self._core.restore(kept.apps[there], kept.ages[there], kept.last_time)
            names = {number: name for name, number in self.store.names.items()}
            self._names = {app: names[app] for app in self._core.candidates}
            self._kept = deque(kept.numbers[there].tolist())
            self._last = self._saved = kept.upto
        self._add(self.store.launches(after=self._last))
        held, broadcast = self.store.broadcast(), None
        if held is not None:
            with suppress(WireError):  # written by a program that knew other broadcasts
                broadcast = read_broadcast(held.data)
        self._digest = None if held is None or broadcast is None else held.digest
        self._use(broadcast)
        self._use_marks()

    def _use(self, broadcast: Broadcast | None) -> None:
        row_of, bucket_of = rows_and_buckets(broadcast)
        names = self._names
        self._core.take(
            broadcast,
            lambda app: row_of(names.get(app, "")),
            buckets=lambda app: bucket_of(names.get(app, "")),
        )

    def _add(self, launches: list[Launch]) -> None:
        if launches and not self._kept:
            self._oldest = launches[0].number
        for launch in launches:
            self._names[launch.app] = launch.name
            n_old = self._core.observe(
                launch.app, launch.clock + launch.zone, learnt=launch.number <= self._saved
            )
            self._kept.append(launch.number)
            self._last = launch.number
            for _ in range(n_old):
                self._kept.popleft()

    def _refresh(self) -> None:
        """Take over what other processes have written."""
        foreign = self.store.foreign_changes
        if foreign == self._foreign:
            return
        if (self.store.epoch, self.store.broadcast_digest()) != (self._epoch, self._digest):
            self._load()
        else:
            self._foreign = foreign
            self._add(self.store.launches(after=self._last))
            self._use_marks()

    def _catch_up(self) -> None:
        """Bring the habits up to date, and save them now and then."""
        self._refresh()
        self._core.teach_habits()
        self._save(_SAVE)

    def _trim(self) -> None:
        if self._kept:
            self._oldest = self._kept[0]
            self.store.drop_before(self._oldest)
            self._core.forget_old_apps()
            there = set(self._core.candidates)
            for app in [app for app in self._names if app not in there]:
                del self._names[app]
            self._use_marks()  # an app may be named that has no launches
            if not self._save(0):  # launches that left must not stay in what was kept
                self.store.drop_snapshot()

    def _save(self, after: int) -> bool:
        """Save the habits, if they have learnt `after` launches or more since the last save.

        False if they have learnt no launch of the window yet.
        """
        n_unlearnt = self._core.n_unlearnt
        if self._core.habits is None or n_unlearnt >= len(self._kept):
            return False
        learnt = self._kept[-1 - n_unlearnt]
        if learnt - self._saved >= after:
            n = len(self._kept) - n_unlearnt
            apps, ages = self._core.columns(n)
            numbers = np.fromiter(islice(self._kept, n), np.int64, n)
            last = self.store.launches(after=learnt - 1)[0]
            memory = _Memory(self._core.habits, learnt, numbers, apps, ages, last.clock + last.zone)
            self.store.keep_snapshot(learnt, memory.to_bytes())
            self._saved = learnt
        return True

    def close(self) -> None:
        """Keep what was learnt, flush, and close the store."""
        try:
            self._refresh()
            self._save(_SAVE_AT_CLOSE)
        finally:
            self.store.close()


class _Memory(NamedTuple):
    """A phone's memory after a launch: what it has learnt and the launches in its window, as
    columns, so that they need not be read one by one."""

    habits: Habits
    upto: int
    numbers: npt.NDArray[np.int64]
    apps: npt.NDArray[np.int64]
    ages: Floats
    last_time: float

    def to_bytes(self) -> bytes:
        """Consecutive numbers are stored as the first; each of up to 256 apps takes one byte."""
        in_a_row = int(self.numbers[-1] - self.numbers[0]) == len(self.numbers) - 1
        names, place = np.unique(self.apps, return_inverse=True)
        tensors: dict[str, npt.NDArray[Any]] = {
            "habits": np.frombuffer(self.habits.to_bytes(), np.uint8),
            "numbers": self.numbers[:1] if in_a_row else self.numbers,
            "names": names,
            "apps": place.astype(np.uint8 if len(names) <= 256 else np.int64),
            "ages": self.ages,
            "last_time": np.array([self.last_time]),
        }
        return pack(tensors, {"kind": "nextapp phone"})

    @classmethod
    def from_bytes(cls, upto: int, data: bytes) -> _Memory:
        tensors, words = unpack(data)
        if words.get("kind") != "nextapp phone":
            raise WireError(f"expected the memory of a phone, got {words.get('kind')!r}.")
        try:
            n, numbers = len(tensors["apps"]), tensors["numbers"]
            found = cls(
                Habits.from_bytes(tensors["habits"].tobytes()), upto,
                numbers[0] + np.arange(n) if len(numbers) == 1 else numbers,
                tensors["names"][tensors["apps"]], tensors["ages"], float(tensors["last_time"][0]),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise WireError(f"a memory that cannot be read: {error}") from error
        if not len(found.numbers) == n == len(found.ages) or int(found.numbers[-1]) != upto:
            raise WireError("a memory whose columns do not fit.")
        return found


def rows_and_buckets(
    broadcast: Broadcast | None,
) -> tuple[Callable[[str], int], Callable[[str], int]]:
    """Row and bucket of an app by its name, -1 where it has none.

    A catalogue without names or buckets is known by its numbers.
    """
    if broadcast is None:
        return _nowhere, _nowhere
    if broadcast.buckets is not None:
        bucket = cache(broadcast.buckets.bucket)
        slots = {number: row for row, number in enumerate(broadcast.buckets.slots.tolist())}
        return lambda name: slots.get(bucket(name), -1), bucket
    names = broadcast.apps or map(str, range(broadcast.n_apps))
    rows = {name: row for row, name in enumerate(names)}
    return lambda name: rows.get(name, -1), _nowhere


def _nowhere(name: str) -> int:
    del name
    return -1


def _between(bounds: tuple[float, float]) -> float:
    least, most = bounds
    return least + (most - least) * below(SystemBits(), _FINE) / _FINE


def _name_error(error: Exception, outcomes: dict[type[Exception], str]) -> str:
    return next(name for kind, name in outcomes.items() if isinstance(error, kind))


def _again(error: Exception, when: float) -> float | None:
    if isinstance(error, BudgetSpent | TooSoon | TooFresh):
        return error.again
    pause = error.pause if isinstance(error, Overloaded) else None
    return None if pause is None else when + pause


def _zone(when: float) -> int:
    check_clock(when)
    return time.localtime(when).tm_gmtoff
