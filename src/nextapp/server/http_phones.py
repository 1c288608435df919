"""Phones played for real against a server: each with its own store, over HTTP, by the same code.

Their launches are synthetic; their bits come from (seed, phone, round), so that a simulation in
one process with the same numbers must come to the same app vectors.
"""

from __future__ import annotations

import json
import ssl
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nextapp.data import LaunchLog, synthetic
from nextapp.phone import Client, Phone, Store
from nextapp.phone.limits import OPTIONS
from nextapp.randomness import KeyedBits, Words
from nextapp.wire import Broadcast

_POLL_SECONDS = 0.1
_AT_ONCE = 8
_BUDGET = 1e6  # played phones are nobody's: their ledgers count and never stop them


@dataclass(frozen=True)
class PlayedRound:
    """What became of a round: how many phones' reports were accepted, closed, refused, …"""

    round: int
    outcomes: dict[str, int]
    seconds: float


class _RoundBits:
    """The bits of one phone for whichever round it fetches."""

    def __init__(self, seed: int, number: int, phone: Phone) -> None:
        self._seed, self._number, self._phone = seed, number, phone
        self._bits: KeyedBits | None = None

    def words(self, n: int) -> Words:
        if self._bits is None:
            self._bits = KeyedBits(self._seed, self._number, self._phone.round or 0, "report")
        return self._bits.words(n)


def launches(phones: int, n_apps: int, seed: int, days: int = 3) -> LaunchLog:
    """What the played phones have launched, the same for the same numbers."""
    return synthetic.make(synthetic.fleet_parameters(phones, n_apps, days), seed)


class PlayedFleet:
    """Phones in a folder of stores, enrolled with one server.

    Parameters
    ----------
    code
        An enrolment code with a use for every phone.
    """

    def __init__(
        self, url: str, folder: Path, *, phones: int, seed: int, code: str, ca: Path | None = None
    ) -> None:
        self.url, self.seed, self.ca = url, seed, ca
        with self._client() as client:
            broadcast = Broadcast.from_bytes(client.broadcast())
        names = broadcast.apps or tuple(f"app-{row:04d}" for row in range(broadcast.n_apps))
        log = launches(phones, broadcast.n_apps, seed)
        folder.mkdir(parents=True, exist_ok=True)

        def made(number: int) -> Phone:
            store = Store.create(
                folder / f"phone-{number:05d}.sqlite",
                lifetime=_BUDGET,
                per_day=_BUDGET,
                per_report=_BUDGET,
                hours=0.0,
                mechanisms=OPTIONS,
                flush_after=None,
            )
            phone = Phone(store)
            rows = slice(log.starts[number], log.starts[number + 1])
            phone.learn(
                (names[app], when / 1000, 0)
                for app, when in zip(log.app[rows].tolist(), log.time[rows].tolist(), strict=True)
            )
            with self._client() as client:
                phone.join(client, code)
            return phone

        self._pool = ThreadPoolExecutor(_AT_ONCE)
        self.phones = list(self._pool.map(made, range(phones)))

    def sync(self) -> Counter[str]:
        """Every phone fetches the broadcast and reports; what became of the reports."""

        def synced(number: int) -> str:
            phone = self.phones[number]
            with self._client() as client:
                bits = _RoundBits(self.seed, number, phone)
                return phone.sync(client, bits=bits, now=True).report

        return Counter(self._pool.map(synced, range(len(self.phones))))

    def play(self, rounds: int, heard: Callable[[PlayedRound], None]) -> list[PlayedRound]:
        """So many rounds, each until the server has closed it."""
        played = []
        for _ in range(rounds):
            start = time.perf_counter()
            number = self.round()["round"]
            outcomes = self.sync()
            while (now := self.round())["round"] == number:
                if time.time() > now["deadline"] + 60:
                    raise ValueError(
                        f"round {number} is a minute past its deadline and still open, with "
                        f"{now['n_reports']} reports of a minimum of {now['minimum']}: play more "
                        f"phones, or lower the server's minimum."
                    )
                time.sleep(_POLL_SECONDS)
            played.append(PlayedRound(number, dict(outcomes), time.perf_counter() - start))
            heard(played[-1])
        return played

    def round(self) -> dict[str, Any]:
        """The server's round at hand."""
        context = ssl.create_default_context(cafile=self.ca) if self.ca else None
        direct = urllib.request.build_opener(
            urllib.request.ProxyHandler({}),
            urllib.request.HTTPSHandler(context=context),
        )
        with direct.open(f"{self.url.rstrip('/')}/v1/round", timeout=10) as answer:
            return dict(json.loads(answer.read()))

    def close(self) -> None:
        self._pool.shutdown()
        for phone in self.phones:
            phone.store.close()

    @contextmanager
    def _client(self) -> Iterator[Client]:
        with Client(self.url, ca=self.ca, attempts=8) as client:
            yield client
