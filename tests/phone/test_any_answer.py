"""Every value of every answer, one at a time, is replaced by what should not be there."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import numpy as np
import pytest

from nextapp import wire
from nextapp.phone import Phone, Store
from nextapp.phone.client import _Answer
from nextapp.phone.commands import status_lines
from nextapp.phone.core import PREDICTORS, ServerError
from nextapp.wire import Broadcast, Crowd, History, ModelSettings, ReportRequest, digest_of
from phone.small_server import SECRET, listed
from phone.transcripts import DAY, IN_MEMORY, NOON, URL, HostileClient, Script, file_of

NAMES = ("chat", "mail", "maps")
NUMBERS_OF_ANY_SIZE = [1 << 63, 10**400, -1, 1e308, float("nan"), True]
OTHERS = [None, "7", "9" * 5000, "\x1b[2J", [], {}, [[1 << 63, "0" * 64]], 1 << 53, -(1 << 63) - 1]
PAUSES = ["9" * 400, "-1", "1e400", "nan", "Mon, 01 Jan 9999 00:00:00 GMT", "x"]
STATUSES = [(201,), (400,), (503,), (410,), (429, 201)]


def places(document: object) -> list[tuple[object, ...]]:
    """The way to every value in a document."""
    if not isinstance(document, dict | list):
        return [()]
    keys = document if isinstance(document, dict) else range(len(document))
    return [(), *((key, *rest) for key in keys for rest in places(document[key]))]


def with_value(document: object, place: int, value: object) -> object:
    """A copy of a document with another value in one place."""
    made = json.loads(json.dumps(document))
    *way, last = ways[place % len(ways)] if (ways := places(document)[1:]) else (None,)
    if last is None:
        return value
    inner = made
    for key in way:
        inner = inner[key]
    inner[last] = value
    return made


def header_and_words(data: bytes) -> list[dict[str, object]]:
    """The header of a broadcast: its arrays, and its words as the documents that they are."""
    n_words = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + n_words])
    words = header.pop("__metadata__")
    del words["sha256"]
    return [header, {key: read_json(word) for key, word in words.items()}]


def broadcast_with_value(data: bytes, place: int, value: object) -> bytes:
    """A broadcast with another value in its header, whole by its checksum."""
    header, documents = with_value(header_and_words(data), place, value)
    if not (isinstance(header, dict) and isinstance(documents, dict)):
        return data
    words = {
        key: word if isinstance(word, str) else json.dumps(word) for key, word in documents.items()
    }
    body = data[8 + int.from_bytes(data[:8], "little") :]
    header["__metadata__"] = {**words, "sha256": wire._digest(header, words, body)}
    packed = json.dumps(header).encode()
    return len(packed).to_bytes(8, "little") + packed + body


def read_json(word: str) -> object:
    try:
        return json.loads(word)
    except ValueError:
        return word


class Fuzzed(Script):
    """A server that is honest but for one value of one answer, and one header of all."""

    def __init__(
        self,
        data: bytes,
        statuses: tuple[int, ...],
        path: str,
        place: int,
        value: object,
        pause: str,
    ) -> None:
        if path == "/v1/broadcast":
            data = broadcast_with_value(data, place, value)
        super().__init__(data, None, statuses)
        self._path, self._place, self._value, self._pause = path, place, value, pause

    def answer(self, method, path, body):
        answer = super().answer(method, path.partition("?")[0], body)
        if path.startswith("/v1/digests"):
            rounds = [[number, digest_of(b"")] for number in range(3)]
            answer = _Answer(200, {}, json.dumps({"digests": rounds}).encode())
        if path.partition("?")[0] == self._path != "/v1/broadcast":
            changed = with_value(json.loads(answer.body), self._place, self._value)
            answer = answer._replace(body=json.dumps(changed).encode())
        return answer._replace(headers={"retry-after": self._pause})


def answered(predictor: str, round_: int, history: History) -> bytes:
    """An honest broadcast with all parts."""
    crowd = Crowd(np.full(3, 1 / 3), np.arange(4), np.arange(3), np.full(3, 0.5))
    vectors = np.zeros((3, 0)) if predictor == "nextapp" else np.ones((3, 2))
    question = "transitions" if predictor == "nextapp" else "gradient"
    request = ReportRequest("walsh", 1.0, 0.5, question=question, options={"b": 4})
    made = Broadcast(round_, vectors, ModelSettings(), NAMES, request, crowd, history)
    return replace(made, keys=(listed(tokens=2),)).to_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("predictor", [*PREDICTORS])
@pytest.mark.parametrize(
    ("path", "n_places"),
    [
        ("/v1/enrol", 1),
        ("/v1/digest", 2),
        ("/v1/broadcast", 0),
        ("/v1/digests", 10),
        ("/v1/tokens", 3),
        ("/v1/report", 2),
    ],
)
def test_any_value_in_any_place_of_an_answer_leaves_a_phone_that_works(path, n_places, predictor):
    """A round of 2^63 once ended every sync in an OverflowError."""
    first = answered(predictor, 1, History())
    later = History().after(1, first)
    if path == "/v1/broadcast":
        n_places = len(places(header_and_words(answered(predictor, 140, later)))) - 1
    if path == "/v1/digests":  # the phone was away for longer than a history covers
        for round_ in range(2, 140):
            later = later.after(round_, b"some broadcast")
    second = answered(predictor, 140, later)
    for place in range(n_places):
        for number, value in enumerate([*NUMBERS_OF_ANY_SIZE, OTHERS[place % len(OTHERS)]]):
            other = OTHERS[number] if predictor == "seqmf" else value
            script = partial(
                Fuzzed,
                statuses=STATUSES[(place + number) % len(STATUSES)],
                path=path,
                place=place,
                value=other,
                pause=PAUSES[(place + number) % len(PAUSES)],
            )
            lead_through(predictor, script, first, second)


def lead_through(predictor: str, script: partial[Fuzzed], *served: bytes) -> None:
    """A phone that joins, reports and was away for long; it works at any time."""
    with (
        TemporaryDirectory(dir=IN_MEMORY) as folder,
        mock.patch("nextapp.phone.phone.TOKEN_WAIT", (0.0, 0.0)),
    ):
        kept = Path(folder) / "phone.db"
        shutil.copy(file_of(25, 7, predictor, 3.0), kept)
        with Store(kept, flush_after=None) as store:
            phone = Phone(store, clock=lambda: NOON)
            for now, data in zip((NOON, NOON + 2 * DAY), served, strict=True):
                client = HostileClient(script(data))
                if now == NOON:
                    with suppress(ServerError):
                        phone.join(client, "welcome")
                    store.set(server=URL, secret=store.setting("secret") or SECRET)
                for wait in (0.0, DAY):
                    synced = phone.sync(client, when=now + wait, now=True)
                    assert synced.message.isprintable()
                phone.predict(3)
                status_lines(phone, now)
                phone.export()
            assert store.ledger.spent(NOON).lifetime <= 3.0
