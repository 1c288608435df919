"""Inputs of the replay: gradients and shares of phones, and extreme ones.

Real phone code is used: a `PhoneCore` observes launches, takes a broadcast and reports; the
argument that it passes to ``encode`` is recorded, in its own type.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from phone_draws import encode_call_of_phone

from nextapp.audit.attacks import synthetic_phones
from nextapp.crowd import Shares
from nextapp.model import Apps, PhoneGradient
from nextapp.privacy.mechanism import Gradient
from nextapp.wire import Broadcast, Floats, ReportRequest

N_PHONES = 3
"""Number of synthetic phones; also one without launches, one with one launch, one with all apps."""

_HUGE, _TINY = 1e300, 5e-324


@dataclass(frozen=True, eq=False)
class Input:
    """A gradient or shares to report, with a description."""

    what: str
    given: Gradient


@functools.lru_cache(maxsize=8)
def world(n_apps: int, d: int, seed: int) -> tuple[tuple[Apps, ...], Broadcast]:
    """Histories of phones and a broadcast for them; the same for every mechanism."""
    phones = synthetic_phones(N_PHONES, n_apps, d, seed)
    edge = (
        np.zeros(0, np.int64),
        np.array([n_apps - 1], np.int64),
        np.tile(np.arange(n_apps, dtype=np.int64), 2),
    )
    return tuple(history[:400] for history in phones.histories) + edge, phones.broadcast


@functools.lru_cache(maxsize=8)
def inputs_of_a_deployment(n_apps: int, d: int, seed: int, question: str) -> tuple[Input, ...]:
    """The inputs of phones in a deployment of this size, and the same content as arrays.

    Gradients are scaled to any clip with `scale`. For transitions d is n_apps + 1.
    """
    histories, broadcast = world(n_apps, 4 if question == "transitions" else d, seed)
    broadcast = replace(broadcast, request=ReportRequest("walsh", 1.0, 1.0, question=question))
    found = []
    for number, history in enumerate(histories):
        given = encode_call_of_phone(history, broadcast).given
        found += [Input(f"phone {number}", given), Input(f"phone {number}, dense", dense(given))]
    return tuple(found)


def dense(given: Gradient) -> Floats:
    return given.dense() if isinstance(given, PhoneGradient | Shares) else np.asarray(given)


def length(given: Gradient, ball: str) -> float:
    """The norm of the ball."""
    size = np.abs(dense(given))
    if ball == "linf":
        return float(size.max(initial=0.0))
    return float(size.sum()) if ball == "l1" else math.sqrt(float((size**2).sum()))


def scale(given: Gradient, factor: float) -> Gradient:
    """The input times a factor, in the same type."""
    if isinstance(given, PhoneGradient):
        return replace(given, rows=factor * given.rows, c0=factor * given.c0)
    if isinstance(given, Shares):
        return replace(given, share=factor * given.share)
    return np.asarray(factor * given)


def extremes(n_apps: int, d: int, clip: float) -> Iterator[Input]:
    """Zero, corners, ends of axes, and numbers near the limits of floats."""
    shape = (n_apps, d)
    last = np.zeros(shape)
    last[-1, -1] = clip
    wave = np.cos(np.arange(n_apps * d)).reshape(shape)
    yield Input("zero", np.zeros(shape))
    yield Input("minus zero", -np.zeros(shape))
    yield Input("last entry at the clip", last)
    yield Input("last entry beyond the clip", 1e6 * last)
    yield Input("corner", np.full(shape, clip))
    yield Input("other corner", np.full(shape, -clip))
    yield Input("huge", _HUGE * wave)
    yield Input("tiny", _TINY * np.sign(wave))
    yield Input("floats of 4 bytes, by columns", np.asfortranarray(clip * wave, np.float32))
    nothing = np.zeros(0, np.int64)
    yield Input("no cell", Shares(shape, nothing, np.zeros(0)))
    ends = np.unique(np.array([0, n_apps * d - 1]))
    for what, share in (("one half each", 0.5), ("too much", 3.0), ("huge", _HUGE)):
        yield Input(f"cells, {what}", Shares(shape, ends, np.full(len(ends), share)))
    yield Input(
        "phone without apps",
        PhoneGradient(nothing, np.zeros((0, d)), 0.0, np.zeros(d), np.ones(shape)),
    )


def not_numbers(n_apps: int, d: int) -> Iterator[Input]:
    """Inputs with NaN or infinity, which must be rejected."""
    last = np.zeros((n_apps, d))
    last[-1, -1] = math.nan
    yield Input("one nan", last)
    for value in (math.nan, math.inf, -math.inf):
        yield Input(f"all {value}", np.full((n_apps, d), value))
        yield Input(f"share {value}", Shares((n_apps, d), np.zeros(1, np.int64), np.array([value])))
        apps = np.arange(n_apps, dtype=np.int64)
        rows, nothing = np.full((n_apps, d), value), np.zeros(d)
        yield Input(
            f"phone of {value}", PhoneGradient(apps, rows, 0.0, nothing, np.ones((n_apps, d)))
        )


_LENGTHS = (1e-9, 0.01, 0.5, 1.0 - 1e-9, 1.0, 1.0 + 1e-9, 1.5, 3.0, 100.0, 1e9)


def random_input(rng: np.random.Generator, n_apps: int, d: int, clip: float, ball: str) -> Input:
    """An input of random type, number of apps and length relative to the clip."""
    found = _random(rng, n_apps, d, clip)
    now = length(found.given, ball)
    if now == 0.0 or rng.integers(3) == 0:
        return found
    times = float(rng.choice(_LENGTHS))
    return Input(f"{found.what} of {times:g} clips", scale(found.given, times * clip / now))


def _random(rng: np.random.Generator, n_apps: int, d: int, clip: float) -> Input:
    size = n_apps * d
    factor = clip * 10.0 ** rng.choice([-9, -2, -1, 0, 0, 1, 2, 9])
    kind = rng.integers(4)
    if kind == 0:
        return Input("array", np.asarray(factor * rng.normal(size=(n_apps, d))))
    if kind == 1:
        n_cells = int(rng.integers(0, min(size, 40) + 1))
        cells = np.sort(rng.choice(size, n_cells, replace=False)).astype(np.int64)
        share = rng.dirichlet(np.ones(n_cells)) if n_cells else np.zeros(0)
        part = rng.choice([0.05, 0.6, 1.0, 1.5, 30.0])
        return Input("shares", Shares((n_apps, d), cells, np.asarray(part * share)))
    n_own = int(rng.integers(0, n_apps + 1))
    apps = np.sort(rng.choice(n_apps, n_own, replace=False)).astype(np.int64)
    rows = factor * rng.normal(size=(n_own, d))
    vectors, p = rng.normal(size=(n_apps, d)), rng.normal(size=d)
    c0 = 0.0 if kind == 2 else factor * float(rng.random())
    return Input("phone's gradient", PhoneGradient(apps, rows, c0, p, vectors))
