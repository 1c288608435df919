"""The compiled bits against the plain ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nextapp.compiled import compiled
from nextapp.compiled_bits import (
    below,
    cursor,
    exponential,
    normal,
    restart,
    room_for_long_stream,
    set_cursor,
    stream,
    uniform,
    uniform_at,
    word,
)
from nextapp.randomness import KeyedBits, Words, purpose_word
from nextapp.randomness import below as plain_below

words64 = st.integers(0, 2**64 - 1)
purposes = st.text(st.characters(codec="ascii"), max_size=8)


@compiled
def _words(bits: Words, n: int) -> Words:
    drawn = np.empty(n, np.uint64)
    for i in range(n):
        drawn[i] = word(bits)
    return drawn


def _stream(seed: int, phone: int = 0, round: int = 0, purpose: str = "") -> Words:
    keys = (seed, phone, round, purpose_word(purpose))
    return stream(*(np.uint64(key) for key in keys))


TOSSES = np.uint64(purpose_word("tosses"))


@compiled
def _draw_by_turns(bits: Words, seed: int, phone: int, purpose: int, found) -> None:
    restart(bits, seed, phone, 2, purpose)
    for start in range(0, len(found), 20):
        here = cursor(bits)
        for number in range(start, start + 10):
            found[number], here = uniform_at(bits, here)
        set_cursor(bits, here)
        for number in range(start + 10, start + 20):
            found[number] = uniform(bits)


@settings(deadline=None)
@given(words64, words64, words64, purposes, st.integers(0, 50))
def test_the_words_are_those_of_keyed_bits(seed, phone, round_, purpose, n):
    compiled_words = _words(_stream(seed, phone, round_, purpose), n)
    assert np.array_equal(compiled_words, KeyedBits(seed, phone, round_, purpose).words(n))


def test_the_words_go_on_where_they_stopped():
    bits, plain = _stream(3), KeyedBits(3)
    for n in (1, 2, 3, 4, 5, 1000):
        assert np.array_equal(_words(bits, n), plain.words(n))


def test_the_counter_carries_into_the_phone_as_numpys_does():
    bits = _stream(5, phone=7)
    bits[2] = np.uint64(2**64 - 2)  # the block number is about to run over
    counter = np.array([2**64 - 2, 7, 0, 0], np.uint64)
    plain = np.random.Philox(key=np.array([5, 0], np.uint64), counter=counter)
    assert np.array_equal(_words(bits, 16), plain.random_raw(16))


def test_a_long_stream_in_the_room_of_another_is_numpys_too(seed):
    "With the cursor kept by the loop in one half of it, in the stream in the other."
    bits = room_for_long_stream()
    for phone in (7, 8):
        found = np.empty(400)
        _draw_by_turns(bits, np.uint64(seed), phone, TOSSES, found)
        wanted = KeyedBits(seed, phone=phone, round=2, purpose="tosses").generator().random(400)
        assert np.array_equal(found, wanted)


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
def test_plain_python_draws_the_same(seed):
    "The loops as they run on small logs, where nothing is compiled."
    keys = (np.uint64(seed), 7, 3, TOSSES)
    bits, machine = stream.plain(*keys), stream(*keys)
    bits[2] = machine[2] = np.uint64(2**64 - 3)  # the block number is about to run over
    assert np.array_equal(_words.plain(bits, 37), _words(machine, 37))
    for bound in (1, 3, 10**6, 2**63 - 1):
        assert below.plain(bits, bound) == below(machine, bound)
    for draw in (uniform, exponential, normal):
        assert [draw.plain(bits) for _ in range(50)] == [draw(machine) for _ in range(50)]
    long, machine = room_for_long_stream.plain(), room_for_long_stream()
    found, expected = np.empty(400), np.empty(400)
    _draw_by_turns.plain(long, seed, 9, TOSSES, found)
    _draw_by_turns(machine, seed, 9, TOSSES, expected)
    assert np.array_equal(found, expected)


def test_uniform_numbers_are_those_of_numpys_generator(seed):
    bits, plain = _stream(seed, 1), KeyedBits(seed, 1).generator()
    assert [uniform(bits) for _ in range(100)] == plain.random(100).tolist()


@settings(deadline=None)
@given(words64, st.integers(1, 2**63 - 1))
def test_below_is_the_plain_one(seed, bound):
    bits, plain = _stream(seed), KeyedBits(seed)
    assert [below(bits, bound) for _ in range(5)] == [plain_below(plain, bound) for _ in range(5)]


@pytest.mark.parametrize(("draw", "mean", "variance"), [(exponential, 1, 1), (normal, 0, 1)])
def test_exponential_and_normal_numbers_have_their_moments(seed, draw, mean, variance):
    "5-sigma bounds on mean and variance (kurtosis at most 9): fails once in a million seeds."
    n = 20_000
    bits = _stream(seed, purpose="moments")
    drawn = np.array([draw(bits) for _ in range(n)])
    assert abs(drawn.mean() - mean) < 5 * np.sqrt(variance / n)
    assert abs(drawn.var() - variance) < 5 * np.sqrt(8 / n)
