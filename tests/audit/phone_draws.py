"""Scripted bits, and the arguments with which a phone calls a mechanism."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from nextapp.model import Apps
from nextapp.phone.core import PhoneCore
from nextapp.privacy.identity import Identity
from nextapp.privacy.mechanism import Gradient
from nextapp.randomness import Bits, SystemBits, Words
from nextapp.wire import Broadcast, Report


class Script:
    """A source of bits that returns these words, once."""

    def __init__(self, words: Sequence[int]) -> None:
        self._words = np.array(words, np.uint64)
        self.n_drawn = 0

    def words(self, n: int) -> Words:
        if not 0 <= n <= self.n_left:
            self.n_drawn += max(n, 0)
            raise OutOfWords(f"asked for {n} words, but {self.n_left} are left")
        self.n_drawn += n
        return self._words[self.n_drawn - n : self.n_drawn].copy()

    @property
    def n_left(self) -> int:
        return len(self._words) - self.n_drawn


class OutOfWords(Exception):
    """More words were drawn than the protocol uses."""


@dataclass(frozen=True, eq=False)
class EncodeCall:
    """The arguments that a phone passed to ``encode``."""

    given: Gradient
    bits: Bits
    round: int
    coins: Bits | None


class RecordingMechanism(Identity):
    """Replaces a mechanism and records the arguments of ``encode``."""

    unsafe = False

    def __init__(self, *, n_apps: int, d: int) -> None:
        super().__init__(n_apps=n_apps, d=d)
        self.calls: list[EncodeCall] = []

    def encode(self, F: Gradient, bits: Bits, round: int = 0, coins: Bits | None = None) -> Report:
        self.calls.append(EncodeCall(F, bits, round, coins))
        return Report(self.name, round, b"")


def build_phone(history: Apps, broadcast: Broadcast) -> PhoneCore:
    """A phone with these launches, one per minute, and this broadcast."""
    core = PhoneCore()
    for number, app in enumerate(history.tolist()):
        core.observe(app, 60.0 * number)
    core.take(broadcast)
    return core


def encode_call_of_phone(history: Apps, broadcast: Broadcast) -> EncodeCall:
    """The arguments that a phone with this history passes to ``encode``."""
    n_apps, d = broadcast.app_vectors.shape
    mechanism = RecordingMechanism(n_apps=n_apps, d=d)
    build_phone(history, broadcast).draw_report(mechanism, broadcast.round)
    return mechanism.calls[0]


@contextmanager
def system_bits(script: Script) -> Iterator[SystemBits]:
    """`SystemBits` with these words instead of the operating system's."""
    before = secrets.token_bytes

    def scripted(n: int | None = None) -> bytes:
        return script.words((n or 0) // 8).tobytes()

    vars(secrets)["token_bytes"] = scripted
    try:
        yield SystemBits()
    finally:
        vars(secrets)["token_bytes"] = before


def coin_words(signature: bytes, n: int) -> list[int]:
    """The coins of a token, by the formula of docs/protocol.md."""
    blocks = [
        hmac.digest(signature, b"nextapp coins" + struct.pack("<Q", number), hashlib.sha256)
        for number in range(n)
    ]
    return [struct.unpack("<Q", block[:8])[0] for block in blocks]
