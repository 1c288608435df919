"""All that leaves a phone while a scripted server talks to it, written down to be compared."""

from __future__ import annotations

import io
import json
import logging
import random
import shutil
import sqlite3
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from nextapp.phone import Client, Phone, Store
from nextapp.phone.client import _Answer
from nextapp.phone.core import PhoneCore, read_broadcast
from nextapp.phone.ledger import StoreError
from nextapp.phone.phone import Synced
from nextapp.privacy import requested_mechanism
from nextapp.privacy.tokens import MESSAGE, Token, from_base64, to_base64
from nextapp.randomness import KeyedBits
from nextapp.wire import Broadcast, History, Report, WireError, digest_of
from phone.small_server import FIRST, KEY, SECRET

NOON = 1_790_000_000.0
DAY = 86_400.0
URL = "http://127.0.0.1"  # nobody connects to it: its network is a script
IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where files are written without waiting for a disk."""


class Launches(NamedTuple):
    """A random history of so many launches of so many apps."""

    n_launches: int
    n_apps: int


class Step(NamedTuple):
    """What happens in one visit: the server's side of it, and what goes wrong on the phone.

    ``served`` None is the broadcast of the visit before. ``fault`` is "", "restart", "answer" (an
    error where there are launches to answer by) or the name of a table that cannot be written.
    """

    served: Broadcast | bytes | None
    digest: str | None = None
    statuses: tuple[int, ...] = (201,)
    later: float = DAY
    fault: str = ""
    trust_clock: bool = False
    busy: bool = False
    """The server has no time for anything but reports."""


class Visit(NamedTuple):
    """What left the phone: requests and the sleeps between them, and what it said of it."""

    events: list[tuple[Any, ...]]
    outcome: Synced | str
    n_words: int
    """Random words that it drew."""
    said: str
    """On the screen and in the log."""
    charges: list[tuple[Any, ...]]

    @property
    def paths(self) -> list[str]:
        return [event[2] for event in self.events if event[0] != "sleep"]


class Transcript(NamedTuple):
    visits: list[Visit]
    bodies: list[bytes | None]
    """Of all requests, with what depends on the launches under ε."""
    peaks: list[float]
    """Bytes of memory that each visit took."""


class Script:
    """What a server does in one sync: broadcast, the digest it names, its answers to reports."""

    def __init__(
        self, data: bytes, digest: str | None, statuses: tuple[int, ...], busy: bool = False
    ) -> None:
        self.data, self.digest, self.statuses = data, digest or digest_of(data), statuses
        self._busy = busy
        self._n_posts = 0

    def answer(self, method: str, path: str, body: bytes | None) -> _Answer:
        if self._busy and method == "GET":
            return _Answer(503, {}, b"{}")
        if path == "/v1/digest":
            return _Answer(200, {}, json.dumps({"round": 1, "sha256": self.digest}).encode())
        if path == "/v1/broadcast":
            return _Answer(200, {"etag": '"a mark"'}, self.data)
        if path == "/v1/enrol":
            return _Answer(201, {}, json.dumps({"secret": SECRET}).encode())
        if path == "/v1/tokens" and self.statuses[0] != 401:
            blinded = map(from_base64, json.loads(body or b"")["blinded"])
            signed = [to_base64(FIRST.sign(each)) for each in blinded]
            return _Answer(200, {}, json.dumps({"signatures": signed}).encode())
        self._n_posts += 1
        status = self.statuses[min(self._n_posts, len(self.statuses)) - 1]
        return _Answer(status, {}, b'{"error": "no", "message": "no"}')


class HostileClient(Client):
    """A client whose network is a script; it writes down all that would leave the phone."""

    def __init__(self, script: Script, attempts: int = 3) -> None:
        self.events: list[tuple[Any, ...]] = []
        super().__init__(URL, attempts=attempts, sleep=self.sleep)
        self._script = script
        self._number = 0
        self.bodies: list[bytes | None] = []

    def sleep(self, seconds: float) -> None:
        self.events.append(("sleep", seconds))

    def close(self) -> None:
        self._number += 1

    def _one_call(self, method, path, headers, body, limit):
        said: tuple[object, ...] = () if body is None else (body,)
        if body is not None and path == "/v1/report":
            report = Report.from_bytes(body)
            coins = has_coins(report, headers["Authorization"], self._script.data)
            said = (report.mechanism, report.round, len(report.payload), len(body), coins)
        self.events.append((self._number, method, path, tuple(headers.items()), limit, said))
        self.bodies.append(body)
        return self._script.answer(method, path, body)


def has_coins(report: Report, authorization: str, data: bytes) -> bool | None:
    """Whether a report has the coins of its token; None where another broadcast asked for it."""
    try:
        asked = requested_mechanism(read_broadcast(data))
    except WireError:
        return None
    if asked.name != report.mechanism:
        return None
    token = Token.from_text(authorization.removeprefix("Token "))
    return asked.matches_coins(report, token.coins)


class CountedBits:
    """The same words for two phones, counted: as many are drawn whatever was launched."""

    def __init__(self, seed: int) -> None:
        self._bits = KeyedBits(seed)
        self.n_words = 0

    def words(self, n: int):
        self.n_words += n
        return self._bits.words(n)


class SeededSecrets:
    """The same nonces and factors for two phones, as their tokens must not make the difference."""

    def __init__(self) -> None:
        self._random = random.Random(1)

    def token_bytes(self, n: int) -> bytes:
        return self._random.randbytes(n)

    def randbelow(self, n: int) -> int:
        return self._random.randrange(n)


def give_tokens(store: Store) -> None:
    """Tokens that may be spent at once."""
    found = [FIRST.public.new_blinding(MESSAGE) for _ in range(3)]
    store.blindings(KEY.id, lambda: found)
    signed = [FIRST.sign(FIRST.public.blind(each)) for each in found]
    store.keep_tokens(
        KEY.id, [Token.of(KEY, *pair) for pair in zip(found, signed, strict=True)], 0.0
    )


@cache
def _kept_folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(dir=IN_MEMORY)


@cache
def file_of(n_launches: int, n_apps: int, predictor: str, lifetime: float) -> Path:
    """A phone's file with a random history, made once."""
    path = Path(_kept_folder().name) / f"{predictor}-{n_launches}-{n_apps}-{lifetime:g}.db"
    with Store.create(
        path, lifetime=lifetime, mechanisms=("walsh", "harmony"), predictor=predictor,
        flush_after=None,
    ) as store:  # fmt: skip
        apps = np.random.default_rng([n_launches, n_apps]).integers(0, max(1, n_apps), n_launches)
        apps[:n_apps] = np.arange(n_apps)[:n_launches]
        store.merge((f"app{app}", NOON - 1e6 + place, 0) for place, app in enumerate(apps.tolist()))
    return path


def transcript(
    folder: Path,
    launches: Launches | Sequence[tuple[str, float]],
    steps: Sequence[Step],
    predictor: str = "seqmf",
    has_tokens: bool = True,
    marks: Sequence[tuple[str, str]] = (),
    lifetime: float = 3.0,
    traced: bool = False,
) -> Transcript:
    """All that leaves a phone with these launches, and all that it is charged.

    ``marks`` is what its owner says of apps, one more before each visit.
    """
    found = Transcript([], [], [])
    path = folder / "phone.db"
    size = launches if isinstance(launches, Launches) else Launches(0, 0)
    shutil.copy(file_of(*size, predictor, lifetime), path)
    secrets = SeededSecrets()
    now, history, data = NOON, History(), b""
    with ExitStack() as stack:
        stack.enter_context(mock.patch("nextapp.privacy.tokens.secrets", secrets))
        opened = Opened(stack, path)
        when = NOON - 1e9
        for app, gap in () if isinstance(launches, Launches) else launches:
            when += gap
            opened.phone.observe(app, when, zone=0)
        opened.phone.store.set(server=URL, secret=SECRET)
        if has_tokens:
            give_tokens(opened.phone.store)
        for number, step in enumerate(steps):
            now += step.later
            if isinstance(step.served, Broadcast):
                round_ = history.digests[-1][0] + 1 if history.digests else 0
                data = replace(step.served, round=round_, history=history).to_bytes()
                history = history.after(round_, data)
            elif step.served is not None:
                data = step.served
            if step.fault == "restart":
                opened.phone.close()
                opened = Opened(stack, path)
            for action, app in marks[number :: len(steps)]:
                getattr(opened.phone, action)([app] if action == "installed" else app)
            client = HostileClient(Script(data, step.digest, step.statuses, step.busy))
            opened.clock, opened.client = now, client
            found.visits.append(visit(opened, step, number, traced, found.peaks))
            found.bodies.extend(client.bodies)
            if not isinstance(launches, Launches) and not marks:
                n_apps = len({app for app, _ in launches})
                assert len(opened.phone.predict(5, now)) == min(5, n_apps)
        check_invariants(found, opened.phone.store)
    return found


class Opened:
    """A phone in memory, with a clock and a sleep that are written down."""

    def __init__(self, stack: ExitStack, path: Path) -> None:
        self.client: HostileClient
        self.clock = NOON
        self.slept = 0.0
        store = stack.enter_context(Store(path, flush_after=None))
        self.phone = Phone(store, clock=lambda: NOON, sleep=self.sleep, timer=lambda: self.slept)

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self.client.sleep(seconds)


def visit(opened: Opened, step: Step, number: int, traced: bool, peaks: list[float]) -> Visit:
    """One sync, and what left the phone in it."""
    phone, bits, said = opened.phone, CountedBits(number), io.StringIO()
    outcome: Synced | str
    with (
        logged(said),
        redirect_stdout(said),
        redirect_stderr(said),
        broken(phone, step.fault),
        mock.patch("nextapp.phone.phone.SystemBits", return_value=bits),
        mock.patch("nextapp.phone.client.SystemBits", return_value=bits),
        mock.patch("nextapp.phone.core.SystemBits", return_value=bits),
    ):
        if traced:
            tracemalloc.start()
        try:
            outcome = phone.sync(opened.client, when=opened.clock, trust_clock=step.trust_clock)
        except StoreError as error:
            outcome = type(error).__name__
        finally:
            if traced:
                peaks.append(tracemalloc.get_traced_memory()[1])
                tracemalloc.stop()
    charges: list[tuple[Any, ...]] = [
        (entry.epsilon, entry.when, entry.round, entry.mechanism)
        for entry in phone.store.ledger.entries()
    ]
    charges += [
        (report.round, report.epsilon, report.n_bytes, report.state, report.attempts)
        for report in phone.store.reports()
    ]
    return Visit(opened.client.events, outcome, bits.n_words, said.getvalue(), charges)


def check_invariants(found: Transcript, store: Store) -> None:
    """One body for a round and for a token, all of them charged, and no more than is allowed."""
    of_round: dict[int, set[bytes]] = {}
    of_token: dict[str, set[bytes]] = {}
    requests = [event for each in found.visits for event in each.events if event[0] != "sleep"]
    for (_, _, path, headers, *_), body in zip(requests, found.bodies, strict=True):
        if path == "/v1/report" and body is not None:
            of_round.setdefault(Report.from_bytes(body).round, set()).add(body)
            of_token.setdefault(dict(headers)["Authorization"], set()).add(body)
    assert all(len(each) == 1 for each in [*of_round.values(), *of_token.values()])
    charged = [entry.round for entry in store.ledger.entries()]
    assert len(set(charged)) == len(charged)
    assert of_round.keys() <= set(charged)
    assert store.ledger.spent(0.0).lifetime <= store.limits.lifetime


@contextmanager
def logged(said: io.StringIO) -> Iterator[None]:
    """All lines of all logs."""
    handler, root = logging.StreamHandler(said), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        root.setLevel(level)
        root.removeHandler(handler)


@contextmanager
def broken(phone: Phone, fault: str) -> Iterator[None]:
    """A phone in which something goes wrong for the length of a visit."""
    answer = PhoneCore.answer

    def failing(core: PhoneCore):
        if core.n_launches:
            raise MemoryError
        return answer(core)

    def refuse(action: int, table: str | None, *_: object) -> int:
        is_write = action in (sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE)
        return sqlite3.SQLITE_DENY if is_write and table == fault else sqlite3.SQLITE_OK

    connection = phone.store._connection
    if fault == "answer":
        with mock.patch.object(PhoneCore, "answer", failing):
            yield
    elif fault in ("", "restart"):
        yield
    else:
        connection.set_authorizer(refuse)
        try:
            yield
        finally:
            connection.set_authorizer(None)
