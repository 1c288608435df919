"""Tests of the phone's random bits, on which every guarantee depends.

The default source of `PhoneCore.draw_report` must be `SystemBits`, and its words must pass tests of
randomness; two instances and a forked process must not draw the same words. That they are those of
`secrets`, in order, and that coins follow their formula, the tests of the project check.

A source that somebody else knows, such as a good generator with a stolen key, passes: no test of
its output can detect this.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from nextapp.phone.core import PhoneCore
from nextapp.privacy.identity import Identity
from nextapp.privacy.mechanism import Gradient
from nextapp.randomness import Bits, SystemBits, Words
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


class _Recorder(Identity):
    """Keeps the bits that a phone gives it."""

    bits: Bits

    def encode(self, F: Gradient, bits: Bits, round: int = 0, coins: Bits | None = None) -> Report:  # noqa: N803
        self.bits = bits
        return Report(self.name, round, b"")


def phone_source() -> Bits:
    """The default source of a phone's bits."""
    core, recorder = PhoneCore(), _Recorder(n_apps=2, d=1)
    core.take(Broadcast(0, np.ones((2, 1)), ModelSettings()))
    core.draw_report(recorder, 0)
    return recorder.bits


def audit_bits() -> BitSource:
    """Test a phone's bits."""
    source = phone_source()
    name = type(source).__name__
    words = _draw_words(source)
    if type(source) is not SystemBits:
        fault = f"a phone draws its bits from {name}, not from SystemBits"
        return BitSource(name, N_WORDS, 0.0, (fault,))
    if words.dtype != np.uint64 or len(words) != N_WORDS:
        return BitSource(name, N_WORDS, 0.0, ("words(n) is not an array of n words of 64 bits",))
    tests = dict(chance_tests(words))
    level = (FALSE_ALARM - _REPEATS) / len(tests)
    faults = [f"{test}: p = {p:.2g}" for test, p in tests.items() if p < level]
    faults += _repeat_faults(words, source)
    return BitSource(name, N_WORDS, min(1.0, len(tests) * min(tests.values())), tuple(faults))


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
