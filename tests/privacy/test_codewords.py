"""Gaussian vectors from a seed: the same on every machine, and exact inner products."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextapp.privacy import codewords, mechanism
from nextapp.privacy.codewords import VectorStream, alignments, philox, unit_vector, vectors
from nextapp.randomness import KeyedBits, purpose_word

word = st.integers(0, 2**64 - 1)


@given(word, word, st.integers(0, 2**40))
def test_philox_is_that_of_numpy(key0, key1, counter):
    numpy = np.random.Philox(
        key=np.array([key0, key1], np.uint64), counter=np.array([counter, 0, 0, 0], np.uint64)
    )
    ours = philox(
        np.array([counter + 1, counter + 2], np.uint64),
        np.array(key0, np.uint64),
        np.array(key1, np.uint64),
    )
    assert ours.ravel().tolist() == numpy.random_raw(8).tolist()


def test_the_table_is_the_one_in_every_other_copy():
    """Golden: reports in the wild depend on it."""
    table = codewords.table()
    digest = hashlib.sha256(table.astype("<i8").tobytes()).hexdigest()
    assert digest.startswith("b4c1bb04da15e8e3")
    assert np.array_equal(table, -table[::-1])
    assert (np.diff(table) >= 0).all()


def test_reports_are_the_same_everywhere():
    """Golden: the bytes that a phone with these bits has always sent."""
    F = np.arange(-10, 10).reshape(5, 4) / 16
    sent = {
        name: mechanism(name, epsilon=4.5, n_apps=5, d=4, clip=1.0)
        .encode(F, KeyedBits(seed=3, phone=1, round=2))
        .payload.hex()
        for name in ("duchi", "harmony", "qharmony", "kashin", "simhash", "codebook", "walsh")
    }
    assert sent == {
        "duchi": "09ed0d",
        "harmony": "0906",
        "qharmony": "0906",
        "kashin": "9175e705",
        "simhash": "5d94864f864d4d920c",
        "codebook": "5d94864f864d4d9236",
        "walsh": "5d94864f864d4d9272",
    }


@pytest.mark.parametrize("D", [1, 15, 16, 17, 1392])
@pytest.mark.parametrize("n", [1, 4, 256])
def test_inner_products_are_exact_and_see_the_vectors_the_server_sees(D, n, rng):
    F = rng.normal(size=D) * (rng.random(D) < 0.2)
    F *= 3 / max(np.linalg.norm(F), 1)
    grid = unit_vector(F, 1.0)
    purpose = purpose_word("test")
    chosen = np.arange(n)
    seeds = np.full(n, 12345, np.uint64)
    halves = np.full(n, purpose, np.uint64)
    whole = vectors(seeds, halves, chosen, n, 16 * len(grid)).astype(np.int64)
    exact = whole.astype(object) @ grid.ravel().astype(np.int64).astype(object)
    assert alignments(VectorStream(12345, purpose), grid, n).tolist() == [int(s) for s in exact]
    assert np.array_equal(vectors(seeds, halves, chosen, n, D), whole[:, :D])


def test_groups_without_an_entry_are_jumped_over(rng):
    """A large catalogue and a phone with three apps: as the whole, in a few blocks."""
    F = np.zeros(160_000)
    for start in (16, 80_000, 159_984):
        F[start : start + 16] = rng.normal(size=16)
    grid = unit_vector(F, 100.0)
    sparse = alignments(VectorStream(7, 7), grid, 64)
    full = sum(
        alignments(
            VectorStream(7, 7), np.where(np.arange(len(grid))[:, None] == group, grid, 0), 64
        )
        for group in (1, 5_000, 9_999, 10_000)
    )
    assert np.array_equal(sparse, full)


@given(st.lists(st.floats(-1e308, 1e308), min_size=1, max_size=40), st.floats(1e-300, 1e300))
def test_the_completed_vector_has_length_one_whatever_comes(entries, clip):
    grid = unit_vector(np.array(entries), clip) / 2**22
    assert np.linalg.norm(grid) == pytest.approx(1.0, abs=2e-6)
