"""Real phones with synthetic launches against a server: each with its own store, over HTTP.

Their bits come from (seed, phone, round), so that a simulation in one process with the same numbers
must come to the same app vectors.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from nextapp.data import synthetic
from nextapp.data.log import LaunchLog
from nextapp.phone import Client, Phone, Store
from nextapp.phone.core import OPTIONS, Overloaded
from nextapp.randomness import KeyedBits
from nextapp.wire import Broadcast

APPS = 200
"""Apps of the phones whose server has no list."""

_POLL_SECONDS = 0.1
_MOST_WAITING = 600.0  # seconds for the server to close a round
_AT_ONCE = 8
_DAYS = 3  # of launches
_BUDGET = 1e6  # these phones are nobody's: their ledgers count and never stop them


def launches(phones: int, n_apps: int, seed: int, days: int = _DAYS) -> LaunchLog:
    """What the phones have launched, the same for the same numbers."""
    return synthetic.make(synthetic.fleet_parameters(phones, n_apps, days), seed)


class SimulatedPhones:
    """Phones in a folder of stores, enrolled with one server.

    Parameters
    ----------
    code
        An enrolment code with a use for every phone.
    n_apps
        Apps there are, where the server has no list of them; `APPS` by default.
    """

    def __init__(
        self,
        url: str,
        folder: Path,
        *,
        phones: int,
        seed: int,
        code: str,
        ca: Path | None = None,
        n_apps: int | None = None,
    ) -> None:
        self.url, self.seed, self.ca = url, seed, ca
        with self._client() as client:
            broadcast = Broadcast.from_bytes(client.broadcast())
        self.most_rounds = max((key.tokens for key in broadcast.keys), default=0)
        n_apps = n_apps or (broadcast.n_apps if broadcast.buckets is None else APPS)
        names = broadcast.apps or tuple(f"app-{row:04d}" for row in range(n_apps))
        log = launches(phones, len(names), seed)
        question = broadcast.request.question if broadcast.request else ""
        predictor = "seqmf" if question == "gradient" else "nextapp"
        folder.mkdir(parents=True, exist_ok=True)

        def made(number: int) -> Phone:
            store = Store.create(
                folder / f"phone-{number:05d}.sqlite",
                lifetime=_BUDGET,
                per_day=_BUDGET,
                per_report=_BUDGET,
                hours=0.0,
                mechanisms=OPTIONS,
                predictor=predictor,
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

        self.names = names
        self._pool = ThreadPoolExecutor(_AT_ONCE)
        self.phones = list(self._pool.map(made, range(phones)))

    def sync(self, round: int) -> Counter[str]:
        """Every phone reports in the round that is open; what became of the reports."""

        def synced(number: int) -> str:
            with self._client() as client:
                bits = KeyedBits(self.seed, number, round, "report")
                return self.phones[number].sync(client, bits=bits, now=True).report

        return Counter(self._pool.map(synced, range(len(self.phones))))

    def run(
        self, rounds: int, close: Callable[[int], None] = lambda number: None
    ) -> Iterator[dict[str, Any]]:
        """Take part in this many rounds, waiting for the server to close each; what became of it:
        how many phones' reports were accepted, closed, refused, …

        Once all phones have reported, ``close`` may ask the operator to end the round with the
        number it is given.
        """
        if rounds > self.most_rounds:
            raise ValueError(
                f"the server gives a phone {self.most_rounds:,} tokens of a key: start it with "
                f"--reports-per-period {rounds}, or ask for fewer rounds."
            )
        for _ in range(rounds):
            start = time.perf_counter()
            number = self._await_round()
            counts = self.sync(number)
            close(number)
            self._await_round(number)
            seconds = time.perf_counter() - start
            yield {"round": number, "outcomes": dict(counts), "seconds": seconds}

    def _await_round(self, before: int = -1) -> int:
        """The round that is open, once it is another one than before."""
        give_up = time.monotonic() + _MOST_WAITING
        while (number := self.round()) is None or number == before:
            if time.monotonic() > give_up:
                raise ValueError(
                    f"no round has opened after round {before} within {_MOST_WAITING:g} s: give "
                    f"--data with the server's folder, so that it is closed at once; or use more "
                    f"phones; or start the server with a smaller --goal and --grace."
                )
            time.sleep(_POLL_SECONDS)
        return number

    def round(self) -> int | None:
        """The server's current round; None while none is open."""
        with Client(self.url, ca=self.ca, attempts=1) as client, suppress(Overloaded):
            return client.published().round
        return None

    def close(self) -> None:
        self._pool.shutdown()
        for phone in self.phones:
            phone.store.close()

    def _client(self) -> Client:
        return Client(self.url, ca=self.ca, attempts=8)
