"""How much memory a sync takes depends on public sizes only, and what is taken over stays cheap.

A phone that is nearly out of memory is killed or not; were it by its launches, its silence would
tell of them without any ε.
"""

from __future__ import annotations

import json
import time
import tracemalloc
from functools import cache

import numpy as np
import pytest

from nextapp.crowd import transition_vector
from nextapp.phone import Client, Phone, Store
from nextapp.phone.client import _Answer
from nextapp.phone.core import (
    MOST_APPS,
    MOST_BYTES,
    MOST_DIMENSIONS,
    MOST_NUMBERS,
    MOST_WORDS,
    OPTIONS,
    Limits,
    read_broadcast,
)
from nextapp.privacy import mechanism
from nextapp.privacy.tokens import MESSAGE, Blinding, Token
from nextapp.randomness import KeyedBits
from nextapp.wire import (
    MOST_CELLS,
    Broadcast,
    Buckets,
    History,
    ModelSettings,
    ReportRequest,
    WireError,
    digest_of,
    pack,
)
from phone.small_server import FIRST, KEY, SECRET

NOON = 1_790_000_000.0
URL = "http://127.0.0.1"  # nobody connects to it
MIB = 1 << 20

HISTORIES = [
    (0, 1),
    (100, 1),
    (100, 100),
    (10_000, 50),
    (10_000, 500),
    (100_000, 1),
    (100_000, 500),
]
"""Launches, and of how many apps."""

BY_HABITS = [
    ("walsh", "transitions", 1023),
    ("walsh", "transitions", 2895),
    ("walsh", "launches", 1023),
    ("harmony", "transitions", 2895),
]
BY_VECTORS = [
    ("walsh", 0.0, (2048, 128)),
    ("walsh", 0.001, (16384, 16)),
    ("harmony", 0.001, (2048, 128)),
    ("kashin", 0.001, (128, 128)),
]


class Served(Client):
    """A client whose server has these bytes for it, and takes its report."""

    def __init__(self, data: bytes) -> None:
        super().__init__(URL)
        self._data = data

    def _one_call(self, method, path, headers, body, limit):
        if path == "/v1/digest":
            words = json.dumps({"round": 1, "sha256": digest_of(self._data)})
            return _Answer(200, {}, words.encode())
        return _Answer(200, {}, self._data if path == "/v1/broadcast" else b"{}")


def questions(predictor: str):
    """Broadcasts with the largest questions that a phone answers, each after the one before."""
    history = History()
    wanted = BY_HABITS if predictor == "nextapp" else BY_VECTORS
    for round_, (name, what, size) in enumerate(wanted):
        if predictor == "nextapp":
            request = ReportRequest(name, 1.0, 1.0, question=what)
            vectors = np.zeros((size, 0))
            model = ModelSettings()
        else:
            request, model = ReportRequest(name, 1.0, 0.5), ModelSettings(alpha=what)
            vectors = np.random.default_rng(0).normal(size=size)
        buckets = None
        names = tuple(f"app{row}" for row in range(len(vectors)))
        if what == "launches":
            names, buckets = (), Buckets(1 << 20, "", np.arange(size))
        made = Broadcast(
            round_, vectors, model, names, request, None, history, buckets, keys=(KEY,)
        )
        data = made.to_bytes()
        history = history.after(round_, data)
        yield f"{name} {what} {size}", data


@cache
def signed() -> list[tuple[Blinding, Token]]:
    """Tokens for as many reports as a phone is asked for here."""
    asked = [FIRST.public.new_blinding(MESSAGE) for _ in range(4)]
    return [(each, Token.of(KEY, each, FIRST.sign(FIRST.public.blind(each)))) for each in asked]


def store_of(path, n_launches: int, n_apps: int, predictor: str) -> Store:
    """A phone's file with a random history; the launches have been learnt, if by habits."""
    store = Store.create(
        path, lifetime=100.0, per_day=100.0, hours=0.0, mechanisms=OPTIONS,
        predictor=predictor, window=1e9, flush_after=None,
    )  # fmt: skip
    apps = np.random.default_rng(n_apps).integers(0, n_apps, n_launches).tolist()
    store.merge((f"app{app}", NOON - 1e6 + place, 0) for place, app in enumerate(apps))
    store.set(server=URL, secret=SECRET)
    blindings, tokens = zip(*signed(), strict=True)
    store.blindings(KEY.id, lambda: list(blindings))
    store.keep_tokens(KEY.id, tokens, 0.0)
    return store


@pytest.mark.parametrize("predictor", ["nextapp", "seqmf"])
def test_the_peak_of_a_sync_is_the_same_for_any_history(tmp_path, predictor):
    asked = list(questions(predictor))
    peaks: dict[str, list[float]] = {name: [] for name, _ in asked}
    for n_launches, n_apps in HISTORIES:
        path = tmp_path / f"{n_launches}-{n_apps}.db"
        with store_of(path, n_launches, n_apps, predictor) as store:
            phone = Phone(store, clock=lambda: NOON)
            for name, data in asked:
                tracemalloc.start()
                synced = phone.sync(Served(data), now=True)
                peaks[name].append(tracemalloc.get_traced_memory()[1] / MIB)
                tracemalloc.stop()
                assert (synced.broadcast, synced.report) == ("new", "accepted"), synced.message
    assert all(max(found) <= 64 for found in peaks.values()), peaks
    assert all(max(found) - min(found) <= 2 for found in peaks.values()), peaks


def test_too_little_memory_is_no_report_and_no_charge_for_any_history(tmp_path, monkeypatch):
    """It ends before the server is asked, and the sync says so."""
    monkeypatch.setattr("nextapp.phone.phone._MOST_NUMBERS", 1 << 56)
    _, data = next(questions("nextapp"))
    for n_launches in (0, 100):
        with store_of(tmp_path / f"{n_launches}.db", n_launches, 10, "nextapp") as store:
            synced = Phone(store, clock=lambda: NOON).sync(Served(data), now=True)
            assert (synced.broadcast, synced.report) == ("memory", "untried")
            assert (store.broadcast(), store.ledger.entries()) == (None, [])


def test_a_vector_that_is_longer_than_any_phone_reports_is_refused_before_it_is_made():
    """182 kB asked for 128 GiB by harmony, which had no bound."""
    for name in ("harmony", "walsh"):
        request = ReportRequest(name, 1.0, 1.0, question="transitions")
        for n_apps, is_answered in ((2895, True), (2896, False), (16384, False)):
            asked = Broadcast(1, np.zeros((n_apps, 0)), ModelSettings(), (), request)
            if is_answered:
                Limits().mechanism_for(asked)
            else:
                with pytest.raises(WireError):
                    Limits().mechanism_for(asked)


def test_harmony_reports_shares_as_it_reports_the_matrix_that_they_stand_for(rng):
    shares = transition_vector(rng.integers(0, 12, 60), 12)
    made = mechanism("harmony", epsilon=2.0, clip=0.1, n_apps=12, d=13, k=64)
    for seed in range(50):
        sparse = made.encode(shares, KeyedBits(seed))
        assert sparse == made.encode(shares.dense(), KeyedBits(seed))


# --- a broadcast is read anew by every command ---------------------------------------------------


def crowd_codes(n_apps: int, n_cells: int):
    """The arrays of a crowd whose rows are as long as they can be, then empty."""
    followers = np.zeros(n_apps, np.uint8)
    followers[: n_cells // 255] = 255
    followers[n_cells // 255] = n_cells % 255
    following = np.concatenate([np.arange(n) for n in followers.tolist()])
    return {
        "crowd.popularity": np.zeros(n_apps, np.uint16),
        "crowd.followers": followers,
        "crowd.following": following.astype(np.uint16),
        "crowd.share": np.full(n_cells, 255, np.uint8),
    }


def packed(
    n_apps: int, n_cells: int = MOST_CELLS, dim: int = 0, more: int = 0, **words: str
) -> bytes:
    tensors = {**crowd_codes(n_apps, n_cells), "more": np.zeros(more, np.uint8)}
    if dim:
        vectors = np.random.default_rng(0).normal(size=(n_apps, dim))
        tensors["app_vectors"] = vectors
    own = {"kind": "nextapp broadcast", "round": "1", "settings": "{}", "apps": "[]"}
    return pack(tensors, {**own, "n_apps": str(n_apps), **words})


def peak_of(call) -> float:
    tracemalloc.start()
    try:
        call()
    finally:
        peak = tracemalloc.get_traced_memory()[1] / MIB
        tracemalloc.stop()
    return peak


@pytest.mark.parametrize(
    "data",
    [
        lambda: packed(MOST_APPS),
        lambda: packed(2048, dim=MOST_DIMENSIONS),
        lambda: packed(MOST_APPS, dim=MOST_NUMBERS // MOST_APPS),
        lambda: packed(10_000, apps=json.dumps([f"{row:x}" for row in range(10_000)])),
        lambda: packed(MOST_APPS, **{f"{word:x}": "" for word in range(MOST_WORDS // 14)}),
        lambda: packed(MOST_APPS, more=MOST_BYTES - 600_000),
    ],
)
def test_what_a_phone_takes_over_costs_little_to_read_again(tmp_path, data):
    """80 MB for a command, of which 43 are Python and its libraries."""
    path, data = tmp_path / "phone.db", data()
    with store_of(path, 100, 10, "nextapp") as store:
        Phone(store, clock=lambda: NOON).take(data)

    def command():
        with Store(path) as store:
            assert Phone(store, clock=lambda: NOON).round == 1

    assert peak_of(command) < 32
    seconds = []
    for _ in range(3):
        start = time.process_time()
        command()
        seconds.append(time.process_time() - start)
    assert min(seconds) < 0.2


@pytest.mark.parametrize(
    "data",
    [
        lambda: packed(MOST_APPS, MOST_CELLS + 1),
        lambda: packed(MOST_APPS, 1_300_000),
        lambda: packed(MOST_APPS + 1),
        lambda: packed(2049, dim=MOST_DIMENSIONS),
        lambda: packed(100, 10, apps=json.dumps(["a" * MOST_WORDS])),
        lambda: packed(100, 10, word="[" * MOST_WORDS),
        lambda: packed(100, 10, more=MOST_BYTES),
    ],
)
def test_what_would_cost_more_is_refused_and_to_find_that_costs_little(data):
    """275 KiB of a crowd with 22 million transitions took 13 s and 1.4 GiB, at every start."""
    data = data()

    def refuse():
        with pytest.raises(WireError):
            read_broadcast(data)

    assert peak_of(refuse) < 32
