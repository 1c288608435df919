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

import numpy as np

from nextapp.data import LaunchLog, synthetic
from nextapp.intervals import bootstrap_means, interval
from nextapp.phone import Client, Phone, Store
from nextapp.phone.limits import OPTIONS
from nextapp.randomness import KeyedBits, Words
from nextapp.wire import Broadcast, Floats

APPS = 200
"""Apps of played phones whose server has no list."""

MEASURED = (10, 50)
"""Launches of a new phone that are predicted and counted, from the first to before the last."""

CUTOFFS = (1, 3, 5)

_POLL_SECONDS = 0.1
_MOST_WAITING = 600.0  # seconds for a round that these phones cannot close
_AT_ONCE = 8
_DAYS = 3  # of launches
_BUDGET = 1e6  # played phones are nobody's: their ledgers count and never stop them


@dataclass(frozen=True)
class PlayedRound:
    """What became of a round: how many phones' reports were accepted, closed, refused, …"""

    round: int
    outcomes: dict[str, int]
    seconds: float


@dataclass(frozen=True, eq=False)
class NewPhones:
    """How well new phones predict, each with what the server had learnt and without it.

    ``hits`` is (n_phones, 2, 3): mean HR@1, 3 and 5 of each phone over its launches `MEASURED`,
    first without, then with. A launch counts as a hit where its app was among the first n that the
    phone named just before; an app never launched on the phone is named by no phone.
    ``silent``: the broadcast held neither a crowd nor app vectors, so both are the same.
    """

    hits: Floats
    without: str
    silent: bool = False

    def summary(self, seed: int) -> dict[str, Any]:
        """Means over phones, and the paired gain with its 95 % interval over phones."""
        gains = self.hits[:, 1] - self.hits[:, 0]
        columns = np.concatenate([self.hits[:, 0], self.hits[:, 1], gains], axis=1)
        means, ends = columns.mean(axis=0), interval(bootstrap_means(columns, seed))
        found: dict[str, Any] = {
            "n_phones": len(self.hits), "launches": list(MEASURED), "without_means": self.without,
            "silent": self.silent,
        }  # fmt: skip
        for place, name in enumerate(("without", "with", "gain")):
            found[name] = {
                f"HR@{n}": {
                    "mean": float(means[3 * place + which]),
                    "low": float(ends[0, 3 * place + which]),
                    "high": float(ends[1, 3 * place + which]),
                }
                for which, n in enumerate(CUTOFFS)
            }
        return found


class _RoundBits:
    """The bits of one phone for whichever round it fetches."""

    def __init__(self, seed: int, number: int, phone: Phone) -> None:
        self._seed, self._number, self._phone = seed, number, phone
        self._bits: KeyedBits | None = None

    def words(self, n: int) -> Words:
        if self._bits is None:
            self._bits = KeyedBits(self._seed, self._number, self._phone.round or 0, "report")
        return self._bits.words(n)


def launches(phones: int, n_apps: int, seed: int, days: int = _DAYS) -> LaunchLog:
    """What the played phones have launched, the same for the same numbers."""
    return synthetic.make(synthetic.fleet_parameters(phones, n_apps, days), seed)


class PlayedFleet:
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
            self._first = client.broadcast()
        broadcast = Broadcast.from_bytes(self._first)
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

        self.folder, self.names, self.predictor = folder, names, predictor
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

    def play(
        self,
        rounds: int,
        heard: Callable[[PlayedRound], None],
        close: Callable[[], None] | None = None,
    ) -> list[PlayedRound]:
        """So many rounds, each until the server has closed it.

        A round that these phones alone cannot fill is waited for if it ends within minutes.
        Otherwise `close` asks the operator to end it; without that it is refused.
        """
        played = []
        for _ in range(rounds):
            start = time.perf_counter()
            number = self.round()["round"]
            outcomes = self.sync()
            now = self.round()
            left = now["deadline"] - time.time()
            alone = now["round"] == number and now["n_reports"] < now["goal"]
            if alone and left > _MOST_WAITING:
                if close is not None:
                    close()
                else:
                    raise ValueError(
                        f"round {number} has {now['n_reports']:,} reports and closes at "
                        f"{now['goal']:,}, or in {left / 3600:.1f} hours: give --data with the "
                        f"server's folder, so that it is closed at once; or play more phones; or "
                        f"start the server with a smaller --goal."
                    )
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

    def measure_new_phones(
        self, n: int, code: str, heard: Callable[[int], None] = lambda done: None
    ) -> NewPhones:
        """Phones that are none of these join, fetch what was learnt, and are then used.

        Each is played twice, with the broadcast and without: without any or, where it predicts by
        app vectors, with those that there were when this fleet was made. They send no report.
        """
        first = len(self.phones)
        parameters = synthetic.fleet_parameters(first + n, len(self.names), _DAYS)
        log = synthetic.make(parameters, self.seed, first)
        before = self._first if self.predictor == "seqmf" else None
        hits, silent = [], False
        for number in range(n):
            rows = slice(log.starts[number], log.starts[number + 1])
            apps, times = log.app[rows].tolist(), (log.time[rows] / 1000).tolist()
            launched = [(self.names[app], when) for app, when in zip(apps, times, strict=True)]
            if len(launched) >= MEASURED[1]:
                name = f"new-{first + number:05d}"
                without = self._played_alone(f"{name}-without", launched, before)
                with self._client() as client:
                    learnt = client.current()[1]
                    silent = learnt is not None and _tells_nothing(learnt)
                    joined = self._played_alone(
                        f"{name}-with", launched, learnt, lambda phone: phone.join(client, code)
                    )
                hits.append([without, joined])
            heard(number + 1)
        if not hits:
            raise ValueError(
                f"none of the {n} new phones has {MEASURED[1]} launches: play more of them."
            )
        compared = "the first app vectors" if before else "no server"
        return NewPhones(np.array(hits), compared, silent)

    def _played_alone(
        self,
        name: str,
        launched: list[tuple[str, float]],
        broadcast: bytes | None,
        join: Callable[[Phone], None] = lambda phone: None,
    ) -> list[float]:
        """HR@1, 3, 5 of a phone with a store of its own, which has this broadcast if any."""
        store = Store.create(
            self.folder / f"{name}.sqlite", predictor=self.predictor, flush_after=None
        )
        start = launched[0][1]
        with Phone(store, clock=lambda: start) as phone:
            join(phone)
            if broadcast is not None:
                phone.take(broadcast)
            return _hit_rates(phone, launched[: MEASURED[1]])

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


def _tells_nothing(data: bytes) -> bool:
    broadcast = Broadcast.from_bytes(data)
    return broadcast.crowd is None and broadcast.dim == 0


def _hit_rates(phone: Phone, launched: list[tuple[str, float]]) -> list[float]:
    """Mean HR@1, 3 and 5 over the launches `MEASURED`; the phone sees them one by one."""
    places = []
    for number, (app, when) in enumerate(launched):
        if number >= MEASURED[0]:
            named = phone.predict(max(CUTOFFS), when)
            places.append(named.index(app) if app in named else max(CUTOFFS))
        phone.observe(app, when, zone=0)
    return [float(np.mean([place < n for place in places])) for n in CUTOFFS]
