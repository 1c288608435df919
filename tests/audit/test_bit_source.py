"""The phone's own bits: right ones pass, wrong ones of many kinds fail."""

from __future__ import annotations

import os
import secrets

import numpy as np
import pytest
from phone_draws import Script, coin_words, system_bits

from nextapp.audit.bit_source import FALSE_ALARM, N_WORDS, audit_bits, chance_tests, phone_source
from nextapp.randomness import KeyedBits, SystemBits, TokenCoins


def counter(step):
    """Words that count up, from a new start in every call."""

    def words(self, n):
        start = np.frombuffer(os.urandom(8), np.uint64)
        with np.errstate(over="ignore"):
            return start + np.arange(n, dtype=np.uint64) * np.uint64(step)

    return words


def periodic(period):
    block = np.random.default_rng(5).integers(0, 1 << 64, period, np.uint64)

    def words(self, n):
        start = getattr(self, "n_drawn", 0)
        self.n_drawn = start + n
        return block[(start + np.arange(n)) % period]

    return words


def seeded(self, n):
    """A good generator that every instance starts at the same place."""
    if not hasattr(self, "stream"):
        self.stream = KeyedBits(seed=1)
    return self.stream.words(n).copy()


def seeded_by_instance(self, n):
    """A good generator with its own start in every instance, which a fork copies."""
    if not hasattr(self, "stream"):
        self.stream = KeyedBits(seed=int.from_bytes(os.urandom(7), "little"))
    return self.stream.words(n).copy()


def biased(self, n):
    """One bit of the 64 is 1 in 52 % of the words."""
    words = np.frombuffer(os.urandom(8 * n), np.uint64).copy()
    rare = np.frombuffer(os.urandom(n), np.uint8) < 10  # 4 %
    words[rare] |= np.uint64(1 << 17)
    return words


def sticky(self, n):
    """A word is like the one before in its upper half, once in ten times."""
    words = np.frombuffer(os.urandom(8 * n), np.uint64).copy()
    for place in range(1, n):
        if words[place] % np.uint64(10) == 0:
            words[place] = words[place - 1] >> np.uint64(32) << np.uint64(32) | words[
                place
            ] & np.uint64(0xFFFFFFFF)
    return words


WRONG = {
    "zeros": lambda self, n: np.zeros(n, np.uint64),
    "a constant": lambda self, n: np.full(n, 0x123456789ABCDEF, np.uint64),
    "counting": counter(1),
    "counting in large steps": counter(0x9E3779B97F4A7C15),
    "a period of 7": periodic(7),
    "a period of 5000": periodic(5000),
    "the same in every instance": seeded,
    "the same in a fork": seeded_by_instance,
    "a bit that leans": biased,
    "words that stick": sticky,
    "31 bits": lambda self, n: np.frombuffer(os.urandom(8 * n), np.uint64) >> np.uint64(33),
    "one word too few": lambda self, n: np.frombuffer(os.urandom(8 * n), np.uint64).copy()[1:],
    "signed": lambda self, n: np.frombuffer(os.urandom(8 * n), np.int64).copy(),
}


def test_the_operating_systems_bits_pass():
    """Fails once in a million runs."""
    found = audit_bits()
    assert found.faults == ()
    assert found.source == "SystemBits"
    assert found.false_alarm == FALSE_ALARM == 1e-6


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_bits_fail(wrong, monkeypatch):
    monkeypatch.setattr(SystemBits, "words", WRONG[wrong])
    assert not audit_bits().holds


@pytest.mark.parametrize("wrong", ["zeros", "the same in every instance"])
def test_what_is_tested_is_what_a_phone_takes(wrong, monkeypatch):
    class OtherBits:
        words = WRONG[wrong]

    monkeypatch.setattr("nextapp.phone.core.SystemBits", OtherBits)
    found = audit_bits()
    assert "OtherBits, not from SystemBits" in found.faults[0]
    monkeypatch.undo()
    assert type(phone_source()) is SystemBits


def test_an_operating_system_that_is_not_random_fails(monkeypatch):
    monkeypatch.setattr(secrets, "token_bytes", bytes)
    assert not audit_bits().holds


def test_system_bits_are_the_bytes_of_secrets_in_order():
    words = [3 << 60, 1, 0, (1 << 64) - 1, 5, 6, 7, 8]
    script = Script(words)
    with system_bits(script) as bits:
        found = [word for n in (1, 0, 2, 5) for word in bits.words(n).tolist()]
    assert found == words
    assert script.n_left == 0


def test_coins_are_those_of_their_formula(seed):
    signature = KeyedBits(seed, purpose="coins").words(32).tobytes()
    coins = TokenCoins(signature)
    found = [word for n in (1, 0, 3, 60) for word in coins.words(n).tolist()]
    assert found == coin_words(signature, 64)


def test_the_tests_of_chance_have_p_values_that_are_uniform(seed):
    """At 1 in 100, 19 tests on 40 streams give 7.6 alarms; 30 or more once in 10^9 seeds."""
    alarms = 0
    for stream in range(40):
        words = KeyedBits(seed, phone=stream, purpose="bits").words(N_WORDS // 8)
        alarms += sum(p < 0.01 for _, p in chance_tests(words))
    assert alarms < 30
