"""The public part of a report is bound to its token, and ε holds whatever it is."""

from __future__ import annotations

import hashlib
import hmac

import numpy as np
import pytest
from catalogue import SEEDED

from nextapp.privacy import mechanism
from nextapp.randomness import KeyedBits, TokenCoins, distinct, exp_from_below

SIGNATURE = bytes(range(256))
OTHER = SIGNATURE[::-1]
WITH_PUBLIC_PART = ("walsh", "harmony", "kashin")


def test_a_coin_is_the_hmac_of_its_number():
    words = TokenCoins(SIGNATURE).words(3).tolist()
    for number, word in enumerate(words):
        said = b"nextapp coins" + number.to_bytes(8, "little")
        block = hmac.new(SIGNATURE, said, hashlib.sha256).digest()
        assert word == int.from_bytes(block[:8], "little")


def test_coins_do_not_depend_on_how_they_are_asked_for():
    coins = TokenCoins(SIGNATURE)
    assert [*coins.words(2), *coins.words(3)] == list(TokenCoins(SIGNATURE).words(5))


@pytest.mark.parametrize("name", WITH_PUBLIC_PART)
def test_only_the_coins_of_the_token_match(name, rng):
    made = mechanism(name, epsilon=2.0, n_apps=30, d=4, clip=1.0)
    for number in range(20):
        report = made.encode(
            rng.normal(size=(30, 4)), KeyedBits(1, number), 7, TokenCoins(SIGNATURE)
        )
        made.check(report)
        assert made.matches_coins(report, TokenCoins(SIGNATURE))
        assert not made.matches_coins(report, TokenCoins(OTHER))
        assert not made.matches_coins(report, TokenCoins(bytes(256)))


def test_without_a_public_part_any_coins_match(rng):
    made = mechanism("laplace", epsilon=2.0, n_apps=30, d=4, clip=1.0)
    report = made.encode(rng.normal(size=(30, 4)), KeyedBits(1), 7, TokenCoins(SIGNATURE))
    assert made.matches_coins(report, TokenCoins(OTHER))


@pytest.mark.parametrize("name", WITH_PUBLIC_PART)
def test_the_public_part_does_not_depend_on_the_gradient_or_on_the_phones_bits(name, rng):
    made = mechanism(name, epsilon=2.0, n_apps=30, d=4, clip=1.0)
    reports = [
        made.encode(rng.normal(size=(30, 4)), KeyedBits(number), 7, TokenCoins(SIGNATURE))
        for number in range(20)
    ]
    assert all(made.matches_coins(report, TokenCoins(SIGNATURE)) for report in reports)
    assert len({report.payload for report in reports}) > 1  # the rest is drawn


class Chosen:
    """Coins that somebody chose."""

    def __init__(self, word: int) -> None:
        self._word = word

    def words(self, n: int) -> np.ndarray:
        return np.array([self._word + number for number in range(n)], np.uint64)


@pytest.mark.parametrize("word", [0, 1, 2**64 - 9])
@pytest.mark.parametrize("name", WITH_PUBLIC_PART)
def test_epsilon_holds_for_coins_that_an_attacker_chose(name, word):
    """Exact: of all reports with these coins, under axes in and against every direction."""
    made = mechanism(name, epsilon=1.5, n_apps=1, d=2, clip=1.0)
    gradients = [np.array([entry]) for entry in ([1.0, 0], [-1, 0], [0, 1], [0, -1], [0, 0])]
    if name in SEEDED:
        reports = list(made.outputs(seed=int(Chosen(word).words(1)[0])))
    else:
        reports = [r for r in made.outputs() if made.matches_coins(r, Chosen(word))]
    law = [[made.probability(report, F) for report in reports] for F in gradients]
    assert len({sum(row) for row in law}) == 1  # the public part has one probability for all
    for chances in zip(*law, strict=True):
        assert max(chances) <= exp_from_below(1.5) * min(chances)


def test_positions_of_harmony_are_distinct_of_the_coins():
    made = mechanism("harmony", epsilon=2.0, n_apps=30, d=4, clip=1.0, k=3)
    report = made.encode(np.ones((30, 4)), KeyedBits(0), 2, TokenCoins(SIGNATURE))
    positions, _ = made._parts([report])
    assert positions[0].tolist() == distinct(TokenCoins(SIGNATURE), 3, 120)
