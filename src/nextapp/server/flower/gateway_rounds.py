"""Rounds over gateways far away: open, count, close, and one step along what they add up to.

A letter can be sent again, also after a crash on either side, and gets the same answer. How letters
travel is the affair of a `Post`; time is read from the clock that is given. No gateway
is waited for longer than `Pace.patience`: one that is lost costs its reports of the current round.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

from nextapp.privacy import requested_mechanism
from nextapp.server.federation import Closed, Coordinator
from nextapp.server.vault import Due, Reduced, Round, RoundRules, Vault
from nextapp.settings import setting
from nextapp.wire import Broadcast, TokenKey


@dataclass(frozen=True)
class Letter:
    """What a coordinator asks about a round.

    keys: by which keys do you sign tokens? Asked before the first round.
    open: hand this broadcast to phones and take their reports, by these rules.
    count: how many reports are there? The round's deadline may have moved.
    close: take no more reports for this round, and give their sum.

    After open and count a gateway asks phones for reports for ``seconds``. If no other letter has
    come by then, it is cut off: the round may close without it.
    """

    kind: Literal["keys", "open", "count", "close"]
    round: Round
    broadcast: bytes = b""
    seconds: float = math.inf

    def words(self) -> dict[str, Any]:
        """Plain values of one level, as Flower carries them."""
        return {**vars(self), "round": self.round.words}

    @classmethod
    def of(cls, words: Mapping[str, Any]) -> Letter:
        return cls(**{**words, "round": Round.of(words["round"])})


@dataclass(frozen=True)
class Answer:
    """Of one gateway, known by `gateway`; with the sum of the round if that was asked for.

    ``round`` is as its vault has it. ``keys`` are those of its tokens; once the round is closed,
    those of the next one.
    """

    gateway: str
    round: Round
    n_phones: int
    reduced: Reduced | None = None
    keys: tuple[TokenKey, ...] = ()


class CannotAnswer(RuntimeError):
    """A gateway that cannot do what a letter asks, and why."""


def answer(letter: Letter, vault: Vault, now: float) -> Answer:
    """Do what a letter asks of a vault. `CannotAnswer` where the round is not the vault's."""
    number, gateway = letter.round.number, vault.keys.region
    n_phones = vault.devices.count()
    if letter.kind == "keys":
        return Answer(gateway, letter.round, n_phones, keys=vault.keys.for_next_round(now))
    if letter.kind == "open":
        _open(letter, vault)
    round = vault.round()
    if round is None or round.number != number:
        at = "has had no round yet" if round is None else f"is at round {round.number}"
        raise CannotAnswer(f"gateway {gateway} {at}, and was asked about round {number}.")
    vault.database.wish(asked_until=now + letter.seconds)
    if letter.kind == "count":
        vault.set_round(letter.round)
    if letter.kind == "close":
        reduced = _reduce_round(number, vault)
        closed = replace(round, closed=True, n_reports=reduced.n_reports)
        return Answer(gateway, closed, n_phones, reduced, vault.keys.for_next_round(now))
    return Answer(gateway, round, n_phones, keys=vault.keys.listed())


def _open(letter: Letter, vault: Vault) -> None:
    number, latest = letter.round.number, vault.round()
    if latest is not None and latest.number < number:
        # Its coordinator went on without these reports, so they are in no step.
        _reduce_round(latest.number, vault)
    if latest is not None and latest.number > number:
        raise CannotAnswer(
            f"the vault {vault.path} has seen round {latest.number}, so round {number} cannot "
            f"open: phones refuse broadcasts older than the one they hold. Restore the newest "
            f"checkpoint, or let the coordinator skip to round {latest.number + 1}."
        )
    vault.publish(letter.round, letter.broadcast)
    round = vault.round() or letter.round  # one that was open before keeps its times
    vault.set_round(replace(round, goal=letter.round.goal, rules=letter.round.rules))
    if vault.broadcast() != letter.broadcast:
        raise CannotAnswer(
            f"the vault {vault.path} has handed out another broadcast for round {number}: this "
            f"coordinator is not the one that opened it. Let it skip to round {number + 1}."
        )


def _reduce_round(number: int, vault: Vault) -> Reduced:
    data = vault.broadcast()
    broadcast = None if data is None else Broadcast.from_bytes(data)
    if broadcast is None or broadcast.round != number:
        raise CannotAnswer(f"round {number} is not the round of the vault {vault.path}.")
    vault.close_round(number)
    return vault.reduce(number, requested_mechanism(broadcast))


class Post(Protocol):
    """Carries letters to gateways and their answers back; a gateway has one address at a time."""

    def addresses(self) -> Collection[int]:
        """Where a gateway can be reached now."""
        ...

    def send(self, address: int, letter: Letter) -> None: ...

    def answers(self) -> Iterable[tuple[int, Answer | str]]:
        """What has come back since the last call; words where a gateway has refused or is lost."""
        ...


@dataclass(frozen=True)
class Link:
    """The SuperLink that a gateway or the coordinator talks to; always by TLS."""

    superlink: str = setting(text="The SuperLink.", metavar="HOST:PORT")
    ca: Path = setting(text="CA certificate of the SuperLink, PEM.")


@dataclass(frozen=True)
class Pace:
    """How a coordinator deals with its gateways; times in seconds.

    ``gateways`` of them are expected at the start. Each is asked for its count every ``poll``
    seconds. Those that do not come or answer within ``patience`` are taken for lost: rounds open
    with the others, and one that comes back joins the round that is open then.
    """

    gateways: int = setting(1, "Gateways that a round needs.", least=1)
    poll: float = setting(30.0, "Seconds between two questions to a gateway.")
    patience: float = setting(120.0, "Seconds after which a round continues without a gateway.")

    def __post_init__(self) -> None:
        if self.gateways < 1 or not self.poll > 0 or not self.patience > 0:
            raise ValueError(f"gateways, poll and patience must be > 0, got {self!r}.")


@dataclass
class _Known:
    """What a coordinator knows of the gateway at an address, in the current round."""

    due: float = 0.0  # when the next letter may go off
    answered: Answer | None = None


class Driver:
    """Runs rounds of a coordinator with the gateways that a post reaches."""

    def __init__(
        self,
        coordinator: Coordinator,
        rules: RoundRules,
        post: Post,
        pace: Pace,
        *,
        say: Callable[[str], None] = print,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.coordinator = coordinator
        self.rules = rules
        self.post = post
        self.pace = pace
        self._say = say
        self._clock = clock
        self._sleep = sleep
        self._breath = min(2.0, pace.poll / 5)  # between looks into the letter box
        self._expected = pace.gateways
        self._n_phones = 0
        self._known: dict[int, _Known] = {}

    def run_round(self) -> Closed:
        """Open the current round at all gateways, wait as its rules say, and absorb it.

        One that is open at them already keeps its deadline.
        """
        self._known = {}
        self._await_gateways()
        now = self._clock()
        round = self.rules.open_round(self.coordinator.round, now, self._n_phones)
        if not self.coordinator.keys:
            self._ask_keys(round)
        round = self._collect(round)
        tallies = self._tallies(round)
        closed = self.coordinator.absorb(tallies, self.rules.minimum, self._named_keys())
        self.coordinator.save()
        self._say(closed.message)
        return closed

    def _await_gateways(self) -> None:
        """All that are expected, for the patience; from then on, and in later rounds, any."""
        said, give_up = False, self._clock() + self.pace.patience
        while (n_there := len(self.post.addresses())) < self._expected:
            if not said:
                self._say(f"waiting for gateways: {n_there} of {self.pace.gateways} are there.")
                said = True
            if n_there and self._clock() >= give_up:
                break
            self._sleep(self._breath)
        self._expected = 1

    def _ask_keys(self, round: Round) -> None:
        """Before the first round: a broadcast without keys could be answered by no phone."""
        while not self.coordinator.keys:
            self._ask(
                Letter("keys", round),
                lambda answers: len(answers) >= max(1, len(self.post.addresses())),
            )
            self.coordinator.publish(self._named_keys())
        self.coordinator.save()
        self._known = {}

    def _named_keys(self) -> tuple[TokenKey, ...]:
        """By the gateways; one that has said nothing keeps those that it had."""
        named = {answer.gateway: answer.keys for answer in self._counts() if answer.keys}
        kept = [key for key in self.coordinator.keys if key.region not in named]
        return (*kept, *(key for gateway in sorted(named) for key in named[gateway]))

    def _collect(self, round: Round) -> Round:
        """Until the rules say close: every gateway has the broadcast and is asked for its count."""
        broadcast = self.coordinator.published()
        opened, refusals, began = False, "", self._clock()
        while True:
            self._send(partial(self._next, round=round, broadcast=broadcast))
            refusals = self._take_answers() or refusals
            counts = self._counts()
            if not counts and self._clock() - began > self.pace.patience:
                raise RuntimeError(
                    f"no gateway has opened round {round.number} within {self.pace.patience:g} "
                    f"seconds. {refusals or 'None has answered; see the logs of the SuperNodes.'}"
                )
            if counts and not opened:
                opened, round = True, counts[0].round
            if any(answer.round.closed for answer in counts):  # by this one, before a crash
                return round
            if counts:
                self._n_phones = sum(answer.n_phones for answer in counts)
                n_reports = sum(answer.round.n_reports for answer in counts)
                goal = self.rules.goal_of(self._n_phones)
                round = replace(round, n_reports=n_reports, goal=goal, rules=self.rules)
                due = round.due(self._clock())
                if due is Due.CLOSE or (due is Due.EXTEND and not self._takes_reports(counts)):
                    return round
                round = round.after(due, self._clock())
                if due is Due.END:
                    self._say_at_once(round)
                elif due is Due.EXTEND:
                    self._say(
                        f"round {round.number}: {round.n_reports:,} reports at the deadline are "
                        f"below the minimum of {self.rules.minimum:,}; it stays open."
                    )
            self._sleep(self._breath)

    def _say_at_once(self, round: Round) -> None:
        """That a round ends: until a gateway knows it, its phones draw reports."""
        for known in self._known.values():
            known.due = 0.0
        self._say(
            f"round {round.number}: {round.n_reports:,} reports; those under way are taken for "
            f"{self.rules.grace:g} seconds more."
        )

    def _takes_reports(self, counts: Iterable[Answer]) -> bool:
        """Whether a gateway has a key that the round lists; none has where vaults were lost."""
        listed = set(self.coordinator.keys)
        return any(listed & set(answer.keys) for answer in counts)

    def _next(self, known: _Known, round: Round, broadcast: bytes) -> Letter:
        seconds = self.pace.poll + 2 * self.pace.patience  # the next one comes before
        if known.answered:
            return Letter("count", round, seconds=seconds)
        return Letter("open", round, broadcast, seconds)

    def _tallies(self, round: Round) -> list[Reduced]:
        """Close the round everywhere; the sums that come back in time, one a gateway."""
        expected = {answer.gateway for answer in self._counts()}
        letter = Letter("close", round)
        answers = self._ask(letter, lambda answers: expected <= {a.gateway for a in answers})
        for lost in sorted(expected - {answer.gateway for answer in answers}):
            self._say(f"round {round.number}: gateway {lost} is lost, and its reports with it.")
        return [answer.reduced for answer in answers if answer.reduced is not None]

    def _ask(self, letter: Letter, enough: Callable[[list[Answer]], bool]) -> list[Answer]:
        """Send a letter to all, until that is enough or the patience ends; the answers."""
        self._known = {}
        give_up = self._clock() + self.pace.patience
        while not enough(answers := self._counts()) and self._clock() < give_up:
            self._send(lambda known: None if known.answered else letter)
            self._take_answers(to_close=letter.kind == "close")
            self._sleep(self._breath)
        return answers

    def _send(self, letter_for: Callable[[_Known], Letter | None]) -> None:
        now = self._clock()
        for address in self.post.addresses():
            known = self._known.setdefault(address, _Known())
            letter = letter_for(known) if now >= known.due else None
            if letter is not None:
                self.post.send(address, letter)
                known.due = now + self.pace.patience

    def _take_answers(self, *, to_close: bool = False) -> str:
        """Store the answers that came; the text of the last refusal, or ''.

        While a round is being closed, answers to counts that were under way tell nothing any more.
        """
        refusal = ""
        for address, answer in self.post.answers():
            known = self._known.setdefault(address, _Known())
            if isinstance(answer, str):
                refusal = answer
                self._say(answer)
            elif to_close and answer.reduced is None:
                continue
            else:
                known.answered = answer
            known.due = self._clock() + self.pace.poll
        return refusal

    def _counts(self) -> list[Answer]:
        """The latest answer of each gateway, also of one that has come back at another address."""
        latest: dict[str, Answer] = {}
        for known in sorted(self._known.values(), key=lambda known: known.due):
            if known.answered is not None:
                latest[known.answered.gateway] = known.answered
        return list(latest.values())
