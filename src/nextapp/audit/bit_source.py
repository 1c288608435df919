"""The phone's own bits: are they what every guarantee rests on?

`PhoneCore.draw_report` is asked what source it takes if none is named, and that is tested. Its
words must be those that `secrets` hands out, in order, and pass tests of chance; two instances and
a forked process must not draw the same words. The coins of a device must be those of their formula.

A source that is only known to somebody, such as a good generator with a stolen key, passes: no test
of its output can tell.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from nextapp.audit.inputs import handed_over
from nextapp.audit.replay import OutOfWords, Script, coin_words, system_bits
from nextapp.randomness import Bits, DeviceCoins, KeyedBits, SystemBits, Words
from nextapp.wire import Broadcast, ModelSettings

FALSE_ALARM = 1e-6
"""How often right bits may fail, all tests together."""

N_WORDS = 1 << 16

_SIZES = (1, 1, 2, 3, 5, 64, 1000, 4096)  # words at once, in turn
_FORKED = 64
_LAGS = (1, 2, 3, 4, 8, 64, 4096)
_REPEATS = 1e-9  # N_WORDS words hold a repeat with probability 1.2e-10


@dataclass(frozen=True)
class BitSource:
    """What was found about a phone's bits. ``p_value`` is the smallest one, times their number."""

    source: str
    n_words: int
    p_value: float
    faults: tuple[str, ...]
    false_alarm: float = FALSE_ALARM

    @property
    def holds(self) -> bool:
        return not self.faults


def audit_bits(seed: int = 0) -> BitSource:
    """The tests of a phone's bits and coins; `seed` chooses tokens and rounds of the coins."""
    source = phone_source()
    faults: list[str] = []
    if type(source) is not SystemBits:
        faults.append(f"a phone draws its bits from {type(source).__name__}, not from SystemBits")
    faults += _form_faults(source)
    p_value = 0.0
    if not faults:
        words = _drawn(source)
        tests = dict(chance_tests(words))
        p_value = min(1.0, len(tests) * min(tests.values()))
        level = (FALSE_ALARM - _REPEATS) / len(tests)
        faults += [f"{name}: p = {p:.2g}" for name, p in tests.items() if p < level]
        faults += _repeat_faults(words, source)
        faults += _secrets_faults()
    faults += _coin_faults(seed)
    return BitSource(type(source).__name__, N_WORDS, p_value, tuple(faults))


def phone_source() -> Bits:
    """The source that a phone takes if it is told none."""
    broadcast = Broadcast(0, np.ones((2, 1)), ModelSettings())
    return handed_over(np.array([0, 1, 0], np.int64), broadcast, simplex=False).bits


def chance_tests(words: Words) -> Iterator[tuple[str, float]]:
    """Names and p-values: what uniform words pass but for chance.

    ones            of all bits; of each of the 64 places; of words XOR the one some steps later
    bytes           chi-squared over the values of bytes, by place in the word
    pairs           chi-squared over the upper 4 bits of a word and the next
    """
    n = len(words)
    bits = np.unpackbits(words.view(np.uint8).reshape(n, 8), axis=1)
    yield "ones", _balanced(int(bits.sum()), bits.size)
    worst = min(_balanced(int(ones), n) for ones in bits.sum(axis=0))
    yield "ones by place", min(1.0, 64 * worst)
    for lag in _LAGS:
        other = np.unpackbits((words[lag:] ^ words[:-lag]).view(np.uint8))
        yield f"ones of words {lag} apart", _balanced(int(other.sum()), other.size)
    whole = words.view(np.uint8).reshape(n, 8)
    for place in range(8):
        yield f"bytes at {place}", _even(np.bincount(whole[:, place], minlength=256))
    nibbles = (words >> np.uint64(60)).astype(np.int64)
    pairs = nibbles[:-1:2] * 16 + nibbles[1::2]
    yield "pairs", _even(np.bincount(pairs, minlength=256))
    flips = bits[:, 1:] != bits[:, :-1]
    yield "runs", _balanced(int(flips.sum()), flips.size)


def _balanced(ones: int, n: int) -> float:
    """Twice the smaller tail of a binomial number of ones."""
    tail = min(float(stats.binom.cdf(ones, n, 0.5)), float(stats.binom.sf(ones - 1, n, 0.5)))
    return min(1.0, 2 * tail)


def _even(counts: npt.NDArray[np.int64]) -> float:
    """Chi-squared, both tails: too even is not chance either."""
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


def _drawn(source: Bits) -> Words:
    """N_WORDS words, few and many at a time."""
    parts: list[Words] = []
    n_left, turn = N_WORDS, 0
    while n_left:
        n = min(n_left, _SIZES[turn % len(_SIZES)])
        parts.append(source.words(n))
        n_left -= n
        turn += 1
    return np.concatenate(parts)


def _repeat_faults(words: Words, source: Bits) -> Iterator[str]:
    """Words that came before: in the same stream, in another instance, in a child process."""
    seen = set(words.tolist())
    if len(seen) < len(words):
        yield f"{len(words) - len(seen)} of {len(words)} words came before"
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
        warnings.simplefilter("ignore", DeprecationWarning)  # the child only draws and leaves
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
    """The words of `SystemBits` are the bytes of `secrets.token_bytes`, all of them, in order."""
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
        yield "the words are not those of `secrets`"


def _coin_faults(seed: int) -> Iterator[str]:
    bits = KeyedBits(seed, purpose="coins")
    for round in (0, 1, 7, 1 << 40, (1 << 64) - 1):
        token = bits.words(4).tobytes()
        coins = DeviceCoins(token, round)
        found = [word for n in (1, 0, 3, 60) for word in coins.words(n).tolist()]
        if found != coin_words(token, round, len(found)):
            yield f"the coins of round {round} are not those of their formula"
            return
