"""What leaves a phone does not depend on its launches, whatever bytes a server sends.

Two phones with different launches, the same limits, clock and random bits are led through the same
hostile servers. Everything that leaves them must be the same: requests, their order, headers, sizes
and connections, whether there is a report, what it is charged. Only the payload of a report may
differ, and that is ε-LDP (tests/privacy, tests/audit).
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
import socket
import threading
import tracemalloc
from collections import deque
from dataclasses import asdict, replace
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nextapp.phone import Client, Phone, Store
from nextapp.phone.core import PREDICTORS, BadBroadcast, PhoneCore
from nextapp.phone.ledger import StoreError
from nextapp.phone.phone import PATIENCE, PAUSE
from nextapp.privacy import MECHANISMS
from nextapp.randomness import KeyedBits
from nextapp.wire import (
    QUESTIONS,
    Broadcast,
    Buckets,
    Crowd,
    History,
    ModelSettings,
    Report,
    ReportRequest,
    WireError,
    digest_of,
    pack,
)
from phone.small_server import KEY, SECRET
from phone.transcripts import (
    DAY,
    IN_MEMORY,
    NOON,
    URL,
    HostileClient,
    Launches,
    Script,
    SeededSecrets,
    Step,
    Transcript,
    Visit,
    file_of,
    give_tokens,
    transcript,
)

POOL = ("chat", "mail", "maps", "diary", "music", "0", "1")


asking = partial(Broadcast, keys=(KEY,))

NUMBERS = st.one_of(
    st.floats(),
    st.sampled_from([0.0, 1.0, -1.0, 0.3, 5e-324, 1e-320, 1e-6, 1e6, 1e102, 1e150, 1e220, 1e308]),
)
EPSILONS = st.one_of(
    st.sampled_from([0.5, 1.0, 1, 2.0, 20.0, 1e-300, 1e300, 10**400, -1, 0, True, "1", None]),
    st.floats(),
)
LISTED = json.dumps([asdict(KEY)])
ROUNDS = st.sampled_from(["0", "1", "2", "3", "7", "70", "1000000", "-1", "x", f"{10**30}"])


@st.composite
def broadcasts(draw, names: tuple[str, ...] = POOL):
    """Bytes that are whole by their checksum, with anything in them."""
    apps = draw(st.lists(st.sampled_from(names), max_size=6))
    n_apps = draw(st.sampled_from([len(apps), len(apps), len(apps), 1, 0]))
    d = draw(st.integers(0, 3))
    kind = draw(st.sampled_from(["small", "small", "one number", "any"]))
    if kind == "small":
        vectors = draw(st.integers(0, 99)) / 50 + np.linspace(-1, 1, n_apps * d)
    elif kind == "one number":
        vectors = np.full(n_apps * d, draw(NUMBERS))
    else:
        vectors = np.array(draw(st.lists(NUMBERS, min_size=n_apps * d, max_size=n_apps * d)), float)
    vectors = vectors.reshape(n_apps, d)
    model = {
        "lam": draw(st.one_of(st.just(0.3), NUMBERS)),
        "alpha": draw(st.sampled_from([0.0, 0.001, 1.0, 5e-324])),
        "gamma": draw(st.sampled_from([0.0, 0.5, 1.0])),
        "reading": draw(st.sampled_from(["example", "equation", "authors", "none", "?"])),
        "inference": draw(st.sampled_from(["sum", "last", "window:2", "window:" + "9" * 5000])),
    }
    words = {
        "kind": "nextapp broadcast",
        "round": draw(ROUNDS),
        "settings": json.dumps(model),
        "apps": json.dumps(apps if draw(st.booleans()) else apps[:0]),
    }
    if draw(st.integers(0, 5)):
        options = draw(
            st.dictionaries(
                st.sampled_from(["b", "k", "q", "t", "K", "frame", "form", "x"]),
                st.sampled_from([1, 2, 3, 8, 12, 0, -1, 2.5, 10**400, "dense", 1e308]),
                max_size=1,
            )
        )
        request = {
            "mechanism": draw(st.sampled_from([*MECHANISMS, "nonsense", 7])),
            "epsilon": draw(EPSILONS),
            "clip": draw(st.one_of(st.none(), st.just(0.5), EPSILONS)),
            "options": options,
        }
        if draw(st.booleans()):
            request["question"] = draw(st.sampled_from([*QUESTIONS, "nonsense", 7, None]))
        words["request"] = json.dumps(request)
    keys = st.sampled_from(["[]", LISTED, LISTED, '[{"region": "main"}]', "7", LISTED[:-1]])
    if draw(st.booleans()):
        words["keys"] = draw(keys)
    if draw(st.booleans()):
        digests = draw(
            st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["0" * 64, "x"])), max_size=2)
        )
        words["history"] = json.dumps({"digests": digests, "chain": "0" * 64})
    tensors = {"app_vectors": vectors}
    if draw(st.integers(0, 3)) == 0:
        tensors = {}
        words["n_apps"] = draw(st.sampled_from([str(n_apps), "-1", "9" * 30, "two"]))
    if draw(st.integers(0, 3)) == 0:
        n_buckets = draw(st.sampled_from([64, 64, 65536, 63, 2**40, -2, "64", 10**400]))
        words["buckets"] = json.dumps({"n_buckets": n_buckets, "salt": draw(st.text(max_size=3))})
        slots = draw(st.lists(st.integers(0, 70), min_size=n_apps, max_size=n_apps))
        tensors["slots"] = np.array(slots, draw(st.sampled_from([np.uint16, np.int64])))
        words["apps"] = draw(st.sampled_from(["[]", "[]", words["apps"]]))
    if n_apps and draw(st.booleans()):
        tensors |= draw(crowds(n_apps))
    return pack(tensors, words)


@st.composite
def crowds(draw, n_apps: int):
    """A crowd of about one follower for each app, with anything in it."""
    code = st.sampled_from([0, 1, 24, 200, 255])
    wide = draw(st.sampled_from([np.uint16, np.uint16, np.uint32, np.int64, np.float64]))
    top = draw(st.sampled_from([n_apps - 1, n_apps - 1, n_apps, 65535]))
    n_cells = draw(st.sampled_from([n_apps, n_apps, n_apps, 0, n_apps + 1]))
    popularity = draw(st.lists(st.sampled_from([0, 7, 65535]), min_size=n_apps, max_size=n_apps))
    followers = draw(st.sampled_from([[1] * n_apps, [1] * n_apps, [255] * n_apps, [1]]))
    return {
        "crowd.popularity": np.array(popularity).astype(
            draw(st.sampled_from([np.uint16, np.uint8]))
        ),
        "crowd.followers": np.array(followers, np.uint8),
        "crowd.following": np.minimum(np.arange(n_cells)[::-1], top).astype(wide),
        "crowd.share": np.full(n_cells, draw(code), np.uint8),
    }


@st.composite
def honest_broadcasts(draw, names: tuple[str, ...] = POOL):
    """Broadcasts as a good server makes them, apart from what it asks for.

    Catalogues grow, shrink and change their order; rounds and histories follow in `transcript`.
    """
    apps = tuple(draw(st.lists(st.sampled_from(names), min_size=1, max_size=6, unique=True)))
    vectors = np.random.default_rng(draw(st.integers(0, 9))).normal(0, 0.3, (len(apps), 2))
    request = ReportRequest(
        draw(st.sampled_from(["harmony", "walsh", "kashin", "qharmony"])),
        draw(st.sampled_from([0.5, 1.0, 3.0])),
        0.5,
    )
    if draw(st.integers(0, 3)) == 0:
        name = draw(st.sampled_from(["walsh", "harmony"]))
        request = ReportRequest(name, 1.0, 0.2, question="transitions")
    crowd = None
    if draw(st.booleans()):
        each = np.full(len(apps), 1 / len(apps))
        crowd = Crowd(each, np.arange(len(apps) + 1), np.arange(len(apps))[::-1].copy(), each)
    if draw(st.integers(0, 2)) == 0:
        buckets = bucket_catalogue(apps)
        vectors, name = np.zeros((len(apps), 0)), draw(st.sampled_from(["walsh", "harmony"]))
        question = draw(st.sampled_from(["launches", "transitions"]))
        request = ReportRequest(name, 1.0, 0.5, question=question)
        return Broadcast(
            0, vectors, ModelSettings(), (), request, crowd, buckets=buckets, keys=(KEY,)
        )
    return Broadcast(0, vectors, ModelSettings(), apps, request, crowd, keys=(KEY,))


def bucket_catalogue(apps: tuple[str, ...]) -> Buckets:
    """A catalogue of hashes in which these names have slots."""
    empty = Buckets(1 << 12, "", np.zeros(0, np.int64))
    found = [empty.bucket(name) for name in apps]
    assert len(set(found)) == len(apps)
    return replace(empty, slots=np.array(found))


SCRIPTS = st.lists(
    st.tuples(
        st.one_of(broadcasts(), honest_broadcasts(), honest_broadcasts(), st.binary(max_size=40)),
        st.one_of(st.none(), st.none(), st.none(), st.just("0" * 64)),
        st.lists(
            st.sampled_from([201, 201, 200, 400, 401, 409, 410, 429, 503, 302]),
            min_size=1,
            max_size=3,
        ).map(tuple),
        st.sampled_from([0.0, 3600.0, DAY, 3 * DAY, PATIENCE + DAY]),
        st.sampled_from(["", "", "", "restart", "answer", "reports", "broadcast", "tokens"]),
    ).map(lambda step: Step(*step)),
    min_size=1,
    max_size=6,
)
LAUNCHES = st.lists(
    st.tuples(st.sampled_from(POOL), st.sampled_from([0.0, 1.0, 60.0, 4000.0, 5e6])), max_size=25
)


MARKS = st.lists(
    st.tuples(st.sampled_from(["hide", "unhide", "dismiss", "removed", "installed"]),
              st.sampled_from([*POOL, "bank"])), max_size=8
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    scripts=SCRIPTS, one=LAUNCHES, other=LAUNCHES,
    predictor=st.sampled_from([*PREDICTORS]), has_tokens=st.booleans(),
)  # fmt: skip
def test_what_leaves_a_phone_does_not_depend_on_its_launches(
    scripts, one, other, predictor, has_tokens
):
    with TemporaryDirectory(dir=IN_MEMORY) as first, TemporaryDirectory(dir=IN_MEMORY) as second:
        found = transcript(Path(first), one, scripts, predictor, has_tokens)
        again = transcript(Path(second), other, scripts, predictor, has_tokens)
    assert found.visits == again.visits


@pytest.mark.slow
@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(scripts=SCRIPTS, launches=LAUNCHES, marks=MARKS, predictor=st.sampled_from([*PREDICTORS]))
def test_what_leaves_a_phone_does_not_depend_on_what_its_owner_hides(
    scripts, launches, marks, predictor
):
    """To the byte: what is hidden, dismissed, installed or removed is no part of a report."""
    with TemporaryDirectory(dir=IN_MEMORY) as first, TemporaryDirectory(dir=IN_MEMORY) as second:
        found = transcript(Path(first), launches, scripts, predictor, marks=marks)
        assert found == transcript(Path(second), launches, scripts, predictor)


def test_a_phone_that_reports_what_is_hidden_is_caught(tmp_path, monkeypatch):
    """The property above can fail: here a hidden app is left out of the history."""
    true_hide = Phone.hide

    def forgetful_hide(self, app):
        true_hide(self, app)
        self.store.drop_app(app)
        self._load()

    launches = [("chat", 60.0), ("bank", 60.0)] * 20
    request = ReportRequest("walsh", 1.0, 0.5, question="transitions")
    vectors = np.zeros((2, 0))
    asked = asking(0, vectors, ModelSettings(), ("bank", "chat"), request)
    scripts, marks = [Step(asked)] * 3, [("hide", "bank")]
    for folder in "abcd":
        (tmp_path / folder).mkdir()
    plain = transcript(tmp_path / "a", launches, scripts, "nextapp")
    assert transcript(tmp_path / "b", launches, scripts, "nextapp", marks=marks) == plain
    monkeypatch.setattr(Phone, "hide", forgetful_hide)
    assert transcript(tmp_path / "c", launches, scripts, "nextapp", marks=marks) != plain


def test_the_property_can_fail(tmp_path, monkeypatch):
    """A phone that looks at its launches before it accepts is caught: the hole that there was."""
    true_take = Phone.take

    def nosy_take(self, data, *rest):
        if self._core.n_launches > 3:
            raise BadBroadcast("no user vector can be solved against it")
        true_take(self, data, *rest)

    monkeypatch.setattr(Phone, "take", nosy_take)
    data = asking(1, np.ones((2, 2)), ModelSettings(), ("chat", "mail")).to_bytes()
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    few, many = [("chat", 1.0)], [("chat", 1.0)] * 9
    scripts = [Step(data)]
    assert transcript(tmp_path / "a", few, scripts) != transcript(tmp_path / "b", many, scripts)


# --- months of a phone, and what was planted in it ------------------------------------------------

HISTORIES = [
    *(Launches(*each) for each in [(1, 1), (3, 2), (25, 7), (120, 41), (1_100, 60), (5_000, 130)]),
    *(Launches(*each) for each in [(20_000, 220), (60_000, 333), (100_000, 500), (100_000, 1)]),
]
"""A fault that waits for a size is found by jumping sizes, not by many examples of one."""

NAMES = tuple(f"app{number}" for number in range(200))


def months(predictor: str) -> list[Step]:
    """Half a year of visits, with all outcomes that a visit can have."""
    if predictor == "seqmf":
        vectors = np.random.default_rng(0).normal(0, 0.3, (len(NAMES), 3))
        asked = [
            asking(0, vectors, ModelSettings(alpha=alpha), NAMES, ReportRequest(name, 1.0, 0.5))
            for name, alpha in (("walsh", 0.0), ("harmony", 0.001))
        ]
    else:
        no_vectors = np.zeros((len(NAMES), 0))
        slots = Buckets(1 << 12, "", np.arange(len(NAMES)))
        request = ReportRequest("walsh", 1.0, 0.5, question="transitions")
        other = ReportRequest("harmony", 1.0, 0.5, question="launches")
        asked = [
            asking(0, no_vectors, ModelSettings(), NAMES, request),
            asking(0, no_vectors, ModelSettings(), (), other, buckets=slots),
        ]
    first, second = asked
    too_much = replace(first, request=replace(first.request, epsilon=3.0))
    again = partial(Step, None)
    return [
        Step(first, fault="tokens"),  # cannot be kept, so not asked for
        again(statuses=(401,)),
        again(),  # tokens come, which are sent hours later only
        again(),
        again(later=3600.0),  # its report is sent: no second one
        again(later=2 * DAY),
        Step(second, statuses=(503,)),  # all attempts fail
        again(later=60.0, statuses=(503,), busy=True),
        again(later=3600.0, fault="restart"),  # the same bytes
        again(busy=True),
        Step(first, fault="answer"),
        Step(second, later=3600.0),  # more than a day's budget
        again(fault="reports"),
        again(fault="privacy_ledger"),
        again(fault="restart"),
        Step(first, later=40 * DAY),  # a clock that is not believed
        again(trust_clock=True),
        Step(second, fault="broadcast"),
        again(statuses=(503, 201)),
        Step(b"nothing that can be read"),
        Step(second, digest="0" * 64),
        Step(first, statuses=(400,)),
        Step(second, statuses=(503, 410)),
        Step(too_much),
        Step(second, later=20 * DAY, fault="answer"),
        Step(first.to_bytes()),  # of no history that the phone knows
    ]


OUTCOMES = [
    "StoreError", "unenrolled", "waiting", "accepted", "done", "done", "later", "later",
    "accepted", "untried", "accepted", "budget", "StoreError", "StoreError", "accepted", "clock",
    "accepted", "StoreError", "accepted", "untried", "untried", "refused", "closed", "limits",
    "accepted", "untried",
]  # fmt: skip


def live(launches: Launches, predictor: str) -> Transcript:
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        return transcript(
            Path(folder), launches, months(predictor), predictor, False, lifetime=20.0, traced=True
        )


def differs(found: Transcript, other: Transcript) -> bool:
    """Whether anything that left two phones tells them apart, or one took more memory."""
    peaks = zip(found.peaks, other.peaks, strict=True)
    return found.visits != other.visits or any(abs(a - b) > 2 << 20 for a, b in peaks)


@pytest.mark.slow
@pytest.mark.parametrize("predictor", ["nextapp", pytest.param("seqmf", marks=pytest.mark.sweep)])
def test_months_of_a_phone_are_the_same_for_any_history(predictor):
    nothing = live(Launches(0, 0), predictor)
    found = [getattr(each.outcome, "report", each.outcome) for each in nothing.visits]
    assert found == OUTCOMES
    assert all(
        event[5][-1] is True
        for each in nothing.visits
        for event in each.events
        if event[0] != "sleep" and event[2] == "/v1/report"
    )
    for launches in HISTORIES:
        assert not differs(live(launches, predictor), nothing), launches


def n_apps(phone: Phone) -> int:
    return len(phone._core.candidates)


def plant(monkeypatch, what: type, name: str, fault) -> None:
    """Replace a method by `fault(true method, self, ...)`."""
    true = getattr(what, name)
    monkeypatch.setattr(what, name, lambda self, *args, **more: fault(true, self, *args, **more))


def parity_in_the_seed(true, core, mechanism, round, bits, signature):
    odd = len(core.candidates) >= 40 and len(core.candidates) % 2
    return true(core, mechanism, round, bits, signature[::-1] if odd else signature)


def longer_pause(true, phone, fetched_at, pause):
    true(phone, fetched_at, pause + phone._core.n_launches / 1000)


def fewer_attempts(true, phone, server, **more):
    server._attempts -= phone._core.n_launches > 1000
    return true(phone, server, **more)


def silence(true, phone, *args):
    if phone._core.n_launches > 50_000:
        raise WireError("there is no memory to make a report.")
    return true(phone, *args)


def fixed_zeros(true, core, mechanism, round, bits, signature):
    try:
        core.answer()
    except MemoryError:
        bits = KeyedBits(0)
    return true(core, mechanism, round, bits, signature)


def second_draw(true, phone, server, round_, when):
    found = true(phone, server, round_, when)
    if found is None or when - found.drawn < DAY:
        return found
    phone.store._run("DELETE FROM reports")
    return None


def more_memory(true, core):
    np.ones(core.n_launches * 64)
    return true(core)


def a_line(true, phone, *args, **more):
    if n_apps(phone) > 300:
        logging.getLogger("nextapp.phone").info("a large phone")
    return true(phone, *args, **more)


def a_word(true, phone, *args):
    state, words = true(phone, *args)
    return state, words + " Thanks!" * (n_apps(phone) == 1)


def half_the_charge(true, store, server, report, epsilon, *args, **more):
    return true(store, server, report, epsilon / (1 + (store.n_launches() > 4000)), *args, **more)


def sent_before_it_is_charged(true, store, *args, **more):
    try:
        return true(store, *args, **more)
    except StoreError:
        if store.n_launches() < 10_000:
            raise
        raise WireError("it is sent all the same.") from None


PLANTS = {
    "the parity of the number of apps in the seed, from 40 on": (
        PhoneCore, "draw_report", parity_in_the_seed),
    "a pause that grows with the launches": (Phone, "_wait", longer_pause),
    "fewer attempts above 1,000 launches": (Phone, "sync", fewer_attempts),
    "silence above 50,000 launches": (Phone, "_draw", silence),
    "zeros after an error drawn with fixed bits": (PhoneCore, "draw_report", fixed_zeros),
    "a second draw for a round after a day": (Phone, "_settle_closed", second_draw),
    "memory for each launch": (PhoneCore, "answer", more_memory),
    "a line of the log above 300 apps": (Phone, "sync", a_line),
    "a word for phones of one app": (Phone, "_send", a_word),
    "half the charge above 4,000 launches": (Store, "charge_report", half_the_charge),
    "another outcome of a full disk above 10,000 launches": (
        Store, "charge_report", sent_before_it_is_charged),
}  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("what", PLANTS)
def test_what_is_planted_in_a_phone_is_noticed(monkeypatch, what):
    plant(monkeypatch, *PLANTS[what])

    def is_noticed() -> bool:
        try:
            nothing = live(Launches(0, 0), "nextapp")
            return any(differs(live(each, "nextapp"), nothing) for each in HISTORIES)
        except AssertionError:  # of the invariants: a second body, more or less than was charged
            return True

    assert is_noticed()


# --- nothing private is read between two requests -------------------------------------------------


class Watched(deque):
    """The launches in a phone's memory, which say that they were read."""

    note = staticmethod(lambda: None)

    def __iter__(self):
        self.note()
        return super().__iter__()

    def __reversed__(self):
        self.note()
        return super().__reversed__()

    def __len__(self):
        self.note()
        return super().__len__()

    def __getitem__(self, place):
        self.note()
        return super().__getitem__(place)


PRIVATE = re.compile("(FROM|JOIN|INTO|UPDATE) (launches|apps|marks|predictor)", re.IGNORECASE)


def read_between_requests(path: Path, predictor: str) -> list[list[tuple[str, ...]]]:
    """What was read of the launches between two requests of one command, without a pause there.

    The first command joins and asks for tokens, the second sends a report.
    """
    vectors = np.zeros((10, 0)) if predictor == "nextapp" else np.ones((10, 2))
    question = "transitions" if predictor == "nextapp" else "gradient"
    request = ReportRequest("walsh", 1.0, 0.5, question=question)
    data = asking(1, vectors, ModelSettings(), NAMES[:10], request).to_bytes()
    shutil.copy(file_of(100, 10, predictor, 3.0), path)
    found = []
    with Store(path, flush_after=None) as store:
        client = HostileClient(Script(data, None, (201,)))
        phone = Phone(store, clock=lambda: NOON, sleep=client.sleep, timer=lambda: 0.0)

        def note(what: str = "memory") -> None:
            client.events.append(("private", what))

        def see(statement: str) -> None:
            if PRIVATE.search(statement):
                note(statement)

        store._connection.set_trace_callback(see)
        for name in ("_apps", "_ages"):
            watched = Watched(getattr(phone._core, name))
            watched.note = note
            setattr(phone._core, name, watched)
        phone.join(client, "welcome")
        for when, report in ((NOON, "waiting"), (NOON + 2 * DAY, "accepted")):
            assert phone.sync(client, when=when).report == report
            events, read, kinds = list(client.events), [], []
            client.events.clear()
            for event in events:
                if event[0] == "private":
                    read.append(event)
                    continue
                kinds.append(event[0])
                if len(kinds) > 1 and event[0] != "sleep" and kinds[-2] != "sleep":
                    found.append(read)
                read = []
            assert len(kinds) == (3 if report == "accepted" else 4)
    return found


@pytest.mark.parametrize("predictor", [*PREDICTORS])
def test_nothing_private_is_read_between_two_requests(tmp_path, predictor):
    """It took 8 ms from enrolling to the first fetch with no launch, 205 with 100,000."""
    assert read_between_requests(tmp_path / "phone.db", predictor) == [[], [], []]


@pytest.mark.parametrize(
    ("name", "nosy"),
    [
        ("join", lambda phone: phone._load()),
        ("take", lambda phone: phone._core.history),
        ("_ask_tokens", lambda phone: phone._core.n_launches),
        ("_check_continues", lambda phone: phone.store.n_launches()),
    ],
)
def test_what_is_read_between_two_requests_is_noticed(tmp_path, monkeypatch, name, nosy):
    def fault(true, phone, *args, **more):
        if name != "join":
            nosy(phone)
        found = true(phone, *args, **more)
        nosy(phone)
        return found

    plant(monkeypatch, Phone, name, fault)
    is_called = name != "_check_continues"  # the first broadcast continues none
    assert any(read_between_requests(tmp_path / "phone.db", "nextapp")) == is_called


def test_no_name_of_an_app_leaves_a_phone(tmp_path):
    """Nor its bucket, but under ε: the requests are the same whatever the apps are called."""
    datas, history = [], History()
    for round_, question in enumerate(["launches", "transitions", "launches"]):
        request = ReportRequest("walsh", 1.0, 0.5, question=question)
        slots = bucket_catalogue(("bank", "chat"))
        data = asking(
            round_, np.zeros((2, 0)), ModelSettings(), (), request, None, history, slots
        ).to_bytes()
        history = history.after(round_, data)
        datas.append(data)
    found = alike(tmp_path, *datas, predictor="nextapp")
    assert [each.outcome.report for each in found] == ["accepted"] * 3
    sent = repr([each.events for each in found])
    assert sent.count("/v1/report") == 3
    for name in ("bank", "chat"):
        assert name not in sent
        assert name.encode().hex() not in sent
        assert hashlib.sha256(name.encode()).hexdigest()[:8] not in sent


# --- the attacks that were found -----------------------------------------------------------------

WITH, WITHOUT = [("bank", 60.0)] * 9, [("chat", 60.0)] * 9


def alike(tmp_path, *datas: bytes, predictor: str = "seqmf") -> list[Visit]:
    """The visits of a phone with the app and of one without it, which must be the same."""
    steps = [Step(data) for data in datas]
    for name in "ab":
        (tmp_path / name).mkdir()
    found = transcript(tmp_path / "a", WITH, steps, predictor).visits
    assert found == transcript(tmp_path / "b", WITHOUT, steps, predictor).visits
    return found


@pytest.mark.parametrize(
    ("predictor", "question", "mechanism", "answered"),
    [
        ("nextapp", "gradient", "walsh", False),
        ("nextapp", "transitions", "walsh", True),
        ("nextapp", "launches", "walsh", True),
        ("seqmf", "gradient", "walsh", True),
        ("seqmf", "transitions", "walsh", False),
        ("seqmf", "launches", "walsh", False),
    ],
)
def test_a_phone_spends_nothing_on_what_it_does_not_predict_by(
    tmp_path, predictor, question, mechanism, answered
):
    """It refuses on the server's bytes alone: no report, no charge, whatever was launched."""
    request = ReportRequest(mechanism, 1.0, 0.5, question=question)
    names = ("bank", "chat")
    buckets = Buckets(64, "", np.array([3, 5])) if question == "launches" else None
    data = asking(
        1, np.ones((2, 1)), ModelSettings(), () if buckets else names, request, buckets=buckets
    ).to_bytes()
    (visit,) = alike(tmp_path, data, predictor=predictor)
    synced, paths = visit.outcome, visit.paths
    assert synced.broadcast == "new"
    if answered:
        assert (synced.report, paths[2:]) == ("accepted", ["/v1/report"])
        assert visit.charges[0][0] == 1.0
    else:
        assert (synced.report, paths) == ("unused", ["/v1/digest", "/v1/broadcast"])
        assert f"asks for {question}, which this phone does not predict by" in synced.message
        assert visit.charges == []


@pytest.mark.parametrize(
    ("vectors", "lam"),
    [
        ([[1e150]], 0.3),
        ([[1e153]], 0.3),
        ([[1.0, 1.0]], 1e-320),
        ([[1.0, 1.0]], 5e-324),
        ([[1e102, 1e102]], 1e220),
        ([[1e6, 1e6]], 1e-6),
        ([[1e6, -1e6]], 1e6),
    ],
)
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_a_vector_that_overflows_only_where_an_app_is_there_tells_nothing(
    tmp_path, vectors, lam, alpha
):
    data = asking(
        1, np.array(vectors), ModelSettings(lam=lam, alpha=alpha), ("bank",),
        ReportRequest("walsh", 1.0, 1.0),
    )  # fmt: skip
    with np.errstate(all="ignore"):
        alike(tmp_path, data.to_bytes(), data.to_bytes())


def test_the_server_does_not_choose_epsilon(tmp_path):
    """Limits of 20 for a day and for life once were one report of ε = 20."""
    data = asking(
        1,
        np.ones((2, 1)),
        ModelSettings(),
        ("bank", "chat"),
        ReportRequest("walsh", 20.0, 1.0, question="transitions"),
    ).to_bytes()
    with Store.create(tmp_path / "phone.db", lifetime=20.0, per_day=20.0) as store:
        store.set(server=URL, secret=SECRET)
        client = HostileClient(Script(data, None, (201,)))
        synced = Phone(store, clock=lambda: NOON).sync(client, now=True)
        assert (synced.broadcast, synced.report) == ("new", "limits")
        assert "ε = 20; this phone's limit for one report is 1" in synced.message
        assert [event[2] for event in client.events] == ["/v1/digest", "/v1/broadcast"]
        assert store.ledger.entries() == []


@pytest.mark.parametrize("word", ["epsilon", "clip"])
def test_a_number_that_no_float_holds_is_refused_in_words(tmp_path, word):
    request = {"mechanism": "harmony", "epsilon": 1.0, "clip": 1.0, "options": {}, word: 10**400}
    good = asking(1, np.ones((2, 1)), ModelSettings(), ("bank", "chat"))
    data = pack(
        {"app_vectors": good.app_vectors},
        {
            "kind": "nextapp broadcast", "round": "1", "settings": "{}",
            "apps": '["bank", "chat"]', "request": json.dumps(request),
        },
    )  # fmt: skip
    (visit,) = alike(tmp_path, data)
    assert (visit.outcome.broadcast, visit.outcome.report) == ("corrupt", "untried")


def test_a_round_far_ahead_does_not_lock_a_phone_out(tmp_path, make_broadcast):
    def numbered(round_: int, history: History) -> bytes:
        return make_broadcast(round_, history=history).to_bytes()

    with Store.create(tmp_path / "phone.db") as store:
        phone = Phone(store, clock=lambda: NOON)
        first = numbered(1, History())
        phone.take(first, NOON)
        history = History().after(1, first)
        for far in (10**6 * 2, (1 << 53) - 1):
            with pytest.raises(ValueError, match="too far ahead"):
                phone.take(numbered(far, history), NOON)
        with pytest.raises(ValueError, match="2\\^53"):
            make_broadcast(10**30)
        phone.take(numbered(10**6, history), NOON)  # a hostile one gets through
        honest = numbered(2, history)
        with pytest.raises(ValueError, match="has seen 1000000"):
            phone.take(honest, NOON + DAY)
        with pytest.raises(ValueError, match="has seen 1000000"):
            phone.take(honest, NOON + PATIENCE)
        phone.take(honest, NOON + PATIENCE + 2 * DAY)  # and holds the phone for a week
        assert phone.round == 2
        assert phone.store.history_gaps == 1


def test_a_fork_shows(tmp_path, make_broadcast):
    """A server that showed this phone another round 2 than the rest cannot lead it back."""
    first = make_broadcast(1).to_bytes()
    ours = make_broadcast(2, d=3, history=History().after(1, first)).to_bytes()
    theirs = make_broadcast(2, d=5, history=History().after(1, first)).to_bytes()
    with Store.create(tmp_path / "phone.db") as store:
        phone = Phone(store, clock=lambda: NOON)
        phone.take(first)
        phone.take(ours)
        history = History().after(1, first).after(2, theirs)
        third = make_broadcast(3, history=history).to_bytes()
        with pytest.raises(ValueError, match="does not contain the broadcast of round 2"):
            phone.take(third)
        lying = History(((1, digest_of(first)), (2, digest_of(ours))), history.chain)
        with pytest.raises(ValueError, match="does not contain"):
            phone.take(make_broadcast(3, history=lying).to_bytes())
        right = History().after(1, first).after(2, ours)
        later = right
        for round_ in range(3, 40):
            later = later.after(round_, b"some broadcast that this phone has not seen")
        phone.take(make_broadcast(40, history=later).to_bytes())
        assert phone.store.history_gaps == 0
        digests = [*later.digests]
        fortieth = make_broadcast(40, history=later).to_bytes()
        for round_ in range(40, 140):
            data = fortieth if round_ == 40 else b"more than a history tells of"
            later = later.after(round_, data)
            digests.append(later.digests[-1])
        far = make_broadcast(140, history=later).to_bytes()
        with pytest.raises(ValueError, match="does not contain"):
            phone.take(far)  # a server could claim any number of rounds
        with pytest.raises(ValueError, match="does not contain"):
            phone.take(far, NOON, lambda *_: [*digests[:60], *digests[61:]])
        phone.take(far, NOON, lambda *_: digests)
        assert phone.round == 140
        assert phone.store.history_gaps == 0


def test_the_week_of_a_fork_runs_from_the_first_refusal(tmp_path, make_broadcast):
    first = make_broadcast(1).to_bytes()
    fork = make_broadcast(2, d=5).to_bytes()
    with Store.create(tmp_path / "phone.db") as store:
        phone = Phone(store, clock=lambda: NOON)
        phone.take(first, NOON)
        for day in (30, 31, 36):
            with pytest.raises(ValueError, match="does not contain"):
                phone.take(fork, NOON + day * DAY)
        phone.take(fork, NOON + 38 * DAY)
        assert phone.store.history_gaps == 1


@pytest.mark.parametrize("kind", ["raise", "warn"])
def test_the_hosts_settings_for_floating_point_tell_nothing(tmp_path, kind):
    """An underflow only where an app is there; the host makes it an error."""
    data = asking(
        1, np.array([[1e-150], [1.0]]), ModelSettings(lam=1e6, alpha=0.0), ("bank", "chat"),
        ReportRequest("walsh", 1.0, 1e9),
    ).to_bytes()  # fmt: skip
    with np.errstate(all=kind):
        found = alike(tmp_path, data)
    assert found[0].outcome.report == "accepted"


@pytest.mark.parametrize("error", [MemoryError, TypeError, KeyError, FloatingPointError])
def test_whatever_goes_wrong_with_an_answer_there_is_a_report_with_the_same_coins(
    tmp_path, monkeypatch, error
):
    data = asking(
        1, np.ones((2, 1)), ModelSettings(), ("bank", "chat"), ReportRequest("walsh", 1.0, 1.0)
    ).to_bytes()
    sent = []
    for name in ("right", "wrong"):
        if name == "wrong":
            monkeypatch.setattr(PhoneCore, "answer", lambda self, mechanism: raise_(error))
        with (
            Store.create(tmp_path / f"{name}.db", predictor="seqmf") as store,
            mock.patch("nextapp.privacy.tokens.secrets", SeededSecrets()),
        ):
            store.set(server=URL, secret=SECRET)
            phone = Phone(store, clock=lambda: NOON)
            assert phone.sync(HostileClient(Script(data, None, (503,))), now=True).report == "later"
            sent.append(Report.from_bytes(store.reports()[0].data))
    assert sent[0].payload[:8] == sent[1].payload[:8]  # the seed


def raise_(error):
    raise error


def test_a_history_takes_no_more_memory_than_a_few_blocks():
    """(transitions, d) arrays would tell a long history by a MemoryError."""
    core = PhoneCore()
    for number, app in enumerate(np.random.default_rng(0).integers(0, 400, 60_000)):
        core.observe(int(app), float(number))
    core.take(asking(1, np.ones((400, 128)), ModelSettings()))
    core.history  # noqa: B018
    tracemalloc.start()
    core.gradient()  # with the user vector
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 60 << 20


def slow(function, seconds: float, clock: list[float]):
    """The function, which takes so many seconds by the clock."""

    def slowly(*arguments):
        clock[0] += seconds
        return function(*arguments)

    return slowly


def test_the_time_to_the_report_does_not_tell_how_long_it_took_to_make(tmp_path):
    data = asking(
        1, np.ones((2, 1)), ModelSettings(), ("bank", "chat"), ReportRequest("harmony", 1.0, 1.0)
    ).to_bytes()
    waited = []
    for number, seconds in enumerate([0.0, 0.001, 5.0, 29.0, 500.0]):
        clock = [0.0]
        sent = []

        class Timed(HostileClient):
            def _one_call(self, method, path, headers, body, limit, sent=sent, clock=clock):
                sent.append((path, clock[0]))
                return super()._one_call(method, path, headers, body, limit)

        def sleep(pause: float, clock=clock) -> None:
            assert pause > 0
            clock[0] += pause

        with Store.create(tmp_path / f"{number}.db", predictor="seqmf") as store:
            store.set(server=URL, secret=SECRET)
            give_tokens(store)
            phone = Phone(
                store, clock=lambda: NOON, sleep=sleep, timer=lambda clock=clock: clock[0]
            )
            phone._core.answer = slow(phone._core.answer, seconds, clock)
            assert phone.sync(Timed(Script(data, None, (201,)))).report == "accepted"
        times = dict(sent)
        waited.append(times["/v1/report"] - times["/v1/broadcast"])
    assert all(PAUSE[0] <= wait <= PAUSE[1] for wait in waited[:4])
    assert len(set(waited)) == 5  # drawn anew each time
    assert waited[4] >= 500.0


def test_the_pause_is_left_out_by_hand_only(tmp_path):
    data = asking(
        1, np.ones((1, 1)), ModelSettings(), ("bank",), ReportRequest("harmony", 1.0, 1.0)
    ).to_bytes()
    pauses: list[float] = []
    with Store.create(tmp_path / "phone.db", predictor="seqmf") as store:
        store.set(server=URL, secret=SECRET)
        give_tokens(store)
        phone = Phone(store, clock=lambda: NOON, sleep=pauses.append)
        assert phone.sync(HostileClient(Script(data, None, (201,))), now=True).report == "accepted"
    assert pauses == []


def test_two_phones_send_the_same_bytes_over_real_sockets_but_for_the_payload(tmp_path):
    """The whole stream of bytes of each connection, as a network sees it without TLS."""
    data = asking(
        1, np.ones((3, 2)), ModelSettings(), ("bank", "chat", "maps"),
        ReportRequest("harmony", 1.0, 1.0),
    ).to_bytes()  # fmt: skip

    def streams(name: str, launches) -> list[bytes]:
        listener = socket.create_server(("127.0.0.1", 0))
        seen: list[bytes] = []

        def serve() -> None:
            for _ in count():
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                stream = b""
                while chunk := connection.recv(65536):
                    stream += chunk
                    if b"/v1/digest " in chunk:
                        body = json.dumps({"round": 1, "sha256": digest_of(data)}).encode()
                    elif b"/v1/broadcast " in chunk:
                        body = data
                    elif b"/v1/report " in stream and b"harmony" in stream:  # the body is there
                        body = b"{}"
                    else:
                        continue
                    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n"
                    connection.sendall(head.encode() + body)
                seen.append(stream)
                connection.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with (
            Store.create(tmp_path / name, predictor="seqmf") as store,
            Client(url, timeout=60.0, attempts=1) as client,
            mock.patch("nextapp.privacy.tokens.secrets", SeededSecrets()),
        ):
            phone = Phone(store, clock=lambda: NOON)
            for number, app in enumerate(launches):
                phone.observe(app, NOON - 999 + number, zone=0)
            store.set(server=url, secret=SECRET)
            give_tokens(store)
            assert phone.sync(client, now=True, bits=KeyedBits(3)).report == "accepted"
        listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        listener.close()
        thread.join(5.0)
        port = url.rpartition(":")[2].encode()
        return [stream.replace(port, b"PORT") for stream in seen]

    one = streams("one.db", ["bank"] * 30)
    other = streams("other.db", ["chat", "maps"])
    assert len(one) == len(other) == 2  # a connection to fetch, one to report
    assert one[0] == other[0]
    n_head = one[1].index(b"\r\n\r\n") + 4 + 16 + len(b"harmony")
    assert one[1][:n_head] == other[1][:n_head]
    assert len(one[1]) == len(other[1])
