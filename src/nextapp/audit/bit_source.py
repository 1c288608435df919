"""Tests of the phone's random bits, on which every guarantee depends.

The default source of `PhoneCore.draw_report` is tested. Its words must be those of `secrets`, in
order, and pass tests of randomness; two instances and a forked process must not draw the same
words. The coins of a device must follow their formula.

A source that somebody else knows, such as a good generator with a stolen key, passes: no test of
its output can detect this.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import struct
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from nextapp.model import Apps
from nextapp.phone.core import PhoneCore
from nextapp.privacy.identity import Identity
from nextapp.privacy.mechanism import Gradient
from nextapp.randomness import Bits, KeyedBits, SystemBits, TokenCoins, Words
from nextapp.wire import Broadcast, ModelSettings, Report

FALSE_ALARM = 1e-6
"""False-alarm rate of all tests together."""

N_WORDS = 1 << 16

_SIZES = (1, 1, 2, 3, 5, 64, 1000, 4096)  # words per call, in turn
_FORKED = 64
_LAGS = (1, 2, 3, 4, 8, 64, 4096)
_REPEATS = 1e-9  # N_WORDS words contain a repeat with probability 1.2e-10


@dataclass(frozen=True)
class BitSource:
    """Test results of a phone's bits. ``p_value`` is the smallest one times their number."""

    source: str
    n_words: int
    p_value: float
    faults: tuple[str, ...]
    false_alarm: float = FALSE_ALARM

    @property
    def holds(self) -> bool:
        return not self.faults


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
    finite_output = True

    def __init__(self, *, n_apps: int, d: int) -> None:
        super().__init__(n_apps=n_apps, d=d)
        self.calls: list[EncodeCall] = []

    def encode(self, F: Gradient, bits: Bits, round: int = 0, coins: Bits | None = None) -> Report:  # noqa: N803
        self.calls.append(EncodeCall(F, bits, round, coins))
        return Report(self.name, round, b"")


def audit_bits(seed: int = 0) -> BitSource:
    """Test a phone's bits and coins; `seed` determines the signatures of the coins."""
    source = phone_source()
    faults: list[str] = []
    if type(source) is not SystemBits:
        faults.append(f"a phone draws its bits from {type(source).__name__}, not from SystemBits")
    faults += _form_faults(source)
    p_value = 0.0
    if not faults:
        words = _draw_words(source)
        tests = dict(chance_tests(words))
        p_value = min(1.0, len(tests) * min(tests.values()))
        level = (FALSE_ALARM - _REPEATS) / len(tests)
        faults += [f"{name}: p = {p:.2g}" for name, p in tests.items() if p < level]
        faults += _repeat_faults(words, source)
        faults += _secrets_faults()
    faults += _coin_faults(seed)
    return BitSource(type(source).__name__, N_WORDS, p_value, tuple(faults))


def phone_source() -> Bits:
    """The default source of a phone's bits."""
    broadcast = Broadcast(0, np.ones((2, 1)), ModelSettings())
    return encode_call_of_phone(np.array([0, 1, 0], np.int64), broadcast).bits


def build_phone(history: Apps, broadcast: Broadcast) -> PhoneCore:
    """A phone with these launches, one per minute, and this broadcast."""
    core = PhoneCore()
    for number, app in enumerate(history.tolist()):
        core.observe(app, 60.0 * number)
    core.update(broadcast)
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


def chance_tests(words: Words) -> Iterator[tuple[str, float]]:
    """Names and p-values of tests of the null hypothesis that the words are uniform.

    ones    number of ones in all bits; by bit position; in words XOR the word some steps later
    bytes   chi-squared over the values of bytes, by position in the word
    pairs   chi-squared over the upper 4 bits of a word and the next
    runs    number of changes between neighbouring bits
    """
    n = len(words)
    bits = np.unpackbits(words.view(np.uint8).reshape(n, 8), axis=1)
    yield "ones", _balance_p_value(int(bits.sum()), bits.size)
    worst = min(_balance_p_value(int(ones), n) for ones in bits.sum(axis=0))
    yield "ones by place", min(1.0, 64 * worst)
    for lag in _LAGS:
        other = np.unpackbits((words[lag:] ^ words[:-lag]).view(np.uint8))
        yield f"ones of words {lag} apart", _balance_p_value(int(other.sum()), other.size)
    whole = words.view(np.uint8).reshape(n, 8)
    for place in range(8):
        yield f"bytes at {place}", _evenness_p_value(np.bincount(whole[:, place], minlength=256))
    nibbles = (words >> np.uint64(60)).astype(np.int64)
    pairs = nibbles[:-1:2] * 16 + nibbles[1::2]
    yield "pairs", _evenness_p_value(np.bincount(pairs, minlength=256))
    flips = bits[:, 1:] != bits[:, :-1]
    yield "runs", _balance_p_value(int(flips.sum()), flips.size)


def _balance_p_value(ones: int, n: int) -> float:
    """Two-sided p-value of a binomial number of ones."""
    tail = min(float(stats.binom.cdf(ones, n, 0.5)), float(stats.binom.sf(ones - 1, n, 0.5)))
    return min(1.0, 2 * tail)


def _evenness_p_value(counts: npt.NDArray[np.int64]) -> float:
    """Two-sided chi-squared p-value: counts that are too even are not random either."""
    due = counts.sum() / len(counts)
    statistic = float(((counts - due) ** 2 / due).sum())
    law = stats.chi2(len(counts) - 1)
    return min(1.0, 2 * min(float(law.cdf(statistic)), float(law.sf(statistic))))


def _form_faults(source: Bits) -> list[str]:
    for n in (0, 1, 2, 7, 1000):
        words = source.words(n)
        if not isinstance(words, np.ndarray) or words.dtype != np.uint64 or words.shape != (n,):
            return [f"words({n}) is not an array of {n} words of 64 bits"]
        if not words.flags.writeable or not words.flags.owndata:
            return [f"words({n}) shares its memory"]
    return []


def _draw_words(source: Bits) -> Words:
    """N_WORDS words, drawn in small and large calls."""
    parts: list[Words] = []
    n_left, turn = N_WORDS, 0
    while n_left:
        n = min(n_left, _SIZES[turn % len(_SIZES)])
        parts.append(source.words(n))
        n_left -= n
        turn += 1
    return np.concatenate(parts)


def _repeat_faults(words: Words, source: Bits) -> Iterator[str]:
    """Repeated words: in the same stream, in another instance, in a child process."""
    seen = set(words.tolist())
    if len(seen) < len(words):
        yield f"{len(words) - len(seen)} of {len(words)} words are repeats"
    for _ in range(2):
        again = set(type(source)().words(_FORKED).tolist())
        if again & seen:
            yield "two instances draw the same words"
        seen |= again
    if hasattr(os, "fork"):
        child = _words_of_a_child(source)
        if len(child) != _FORKED:
            yield "a forked process draws no words"
        later = set(source.words(_FORKED).tolist())
        if set(child) & (seen | later) or len(set(child)) < len(child):
            yield "a forked process draws the words of its parent"


def _words_of_a_child(source: Bits) -> list[int]:
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the child only draws and exits
        child = os.fork()
    if child == 0:
        try:
            os.write(write, source.words(_FORKED).tobytes())
        finally:
            os._exit(0)
    os.close(write)
    data = b""
    while part := os.read(read, 1 << 16):
        data += part
    os.close(read)
    os.waitpid(child, 0)
    words: list[int] = np.frombuffer(data[: len(data) // 8 * 8], np.uint64).tolist()
    return words


def _secrets_faults() -> Iterator[str]:
    """Check that `SystemBits` returns all bytes of `secrets.token_bytes`, in order."""
    words: Sequence[int] = [3 << 60, 1, 0, (1 << 64) - 1, 5, 6, 7, 8]
    script = Script(words)
    found: list[int] = []
    try:
        with system_bits(script) as bits:
            for n in (1, 0, 2, 5):
                found += bits.words(n).tolist()
    except OutOfWords:
        found = []
    if found != words or script.n_left:
        yield "the words are not the bytes of `secrets`"


def _coin_faults(seed: int) -> Iterator[str]:
    bits = KeyedBits(seed, purpose="coins")
    for _ in range(5):
        signature = bits.words(32).tobytes()
        coins = TokenCoins(signature)
        found = [word for n in (1, 0, 3, 60) for word in coins.words(n).tolist()]
        if found != coin_words(signature, len(found)):
            yield "the coins of a token do not follow their formula"
            return
