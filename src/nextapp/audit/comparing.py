"""Compares all mechanisms on the same phones: accuracy, cost and leakage.

How many phones must report to learn anything through a mechanism? The mean of M reports is the mean
gradient μ (clipped to radius C) plus independent noise of squared length V C²/M. So its expected
cosine to μ is

    1/√(1 + V C²/(M ‖μ‖²))
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nextapp.audit.attacks import (
    Leak,
    SyntheticPhones,
    decode_reports,
    first_broadcast,
    informed_attack,
)
from nextapp.data import synthetic
from nextapp.fleet.rounds import cosine, public_clips
from nextapp.model import PhoneGradient
from nextapp.privacy import Mechanism, mechanism
from nextapp.privacy.mechanism import into_ball
from nextapp.privacy.qharmony import QHarmony
from nextapp.progress import Progress, silent
from nextapp.randomness import KeyedBits
from nextapp.settings import unknown
from nextapp.wire import Floats

LABELS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "identity": ("identity", {}),
    "laplace": ("laplace", {}),
    "laplace-l1": ("laplace", {"ball": "l1"}),
    "harmony": ("harmony", {}),
    "qharmony": ("qharmony", {"allow_unsafe": True}),
    "kashin": ("kashin", {}),
    "walsh": ("walsh", {}),
}
"""Mechanisms that can be compared, with their options, by the name shown in tables."""

_TIMED = 50
_DECODED_AT_ONCE = 5_000
_STAND_INS = 300
_ATTACKED = 300


@dataclass(frozen=True)
class Compared:
    """One mechanism, if all phones report once; figures are means over ``n_rounds`` rounds.

    ``nmse`` is the normalised mean squared error of the mean report as an estimate of the mean of
    the clipped gradients. ``cosine`` and ``signs`` (share of correct signs among the largest tenth
    of entries, a zero counting half) compare it with the mean gradient before clipping;
    ``cosine_error`` is the standard error of ``cosine``. ``n_bytes`` is the size of the payload;
    ``microseconds`` the median time of one `encode`. ``leak``: how well the informed attacker
    answers "is the most used app on this phone?" from one report. ``phones_needed``: see there;
    None for qharmony, which has no clip and estimates another mean.
    """

    name: str
    clip: float | None
    n_rounds: int
    nmse: float
    cosine: float
    cosine_error: float
    signs: float
    n_bytes: int
    microseconds: float
    phones_needed: int | None
    leak: Leak


def build_mechanisms(
    names: Sequence[str], n_apps: int, d: int, epsilon: float, seed: int
) -> dict[str, Mechanism]:
    """The mechanisms by label, each with the public clip of its ball (qharmony: none).

    The clips are those of other phones of the same kind, made with another seed.
    """
    for name in names:
        if name not in LABELS:
            raise ValueError(unknown("mechanism", name, LABELS))
    population = replace(synthetic.LSAPP, phones=_STAND_INS, apps=n_apps)
    clips = public_clips(population, seed + 1, first_broadcast(n_apps, d, seed + 1))
    found = {}
    for name in names:
        kind, options = LABELS[name]
        given: dict[str, Any] = {"n_apps": n_apps, "d": d, **options}
        if name != "identity":
            given["epsilon"] = epsilon
        if name not in ("identity", "qharmony"):
            given["clip"] = clips[mechanism(kind, clip=1.0, **given).ball]
        found[name] = mechanism(kind, **given)
    return found


def mean_after_clip(phones: SyntheticPhones, ball: str, clip: float) -> Floats:
    """(D,): the mean of the clipped gradients, which unbiased mechanisms estimate."""
    if ball == "none":
        return phones.mean.ravel()
    total = np.zeros(phones.mean.size)
    for gradient in phones.gradients:
        total += into_ball(gradient.dense().ravel(), ball, clip)
    return clip / len(phones.gradients) * total


def compare(
    mechanisms: Mapping[str, Mechanism],
    phones: SyntheticPhones,
    *,
    n_rounds: int,
    seed: int,
    progress: Progress = silent,
) -> list[Compared]:
    """Compare all mechanisms on the same phones."""
    found: list[Compared] = []
    for name, each in mechanisms.items():
        progress(name, len(found), len(mechanisms))
        found.append(_compare_one(name, each, phones, n_rounds, seed))
    return found


def _compare_one(
    name: str, each: Mechanism, phones: SyntheticPhones, n_rounds: int, seed: int
) -> Compared:
    truth = phones.mean.ravel()
    target = mean_after_clip(phones, each.ball, each.clip)
    largest = np.argsort(-np.abs(truth), kind="stable")[: max(1, len(truth) // 10)]
    errors, cosines, signs = [], [], []
    for number in range(n_rounds):
        estimate = mean_report(each, phones.gradients, len(phones.gradients), seed, number)
        errors.append(float(((estimate - target) ** 2).sum() / (target**2).sum()))
        cosines.append(cosine(estimate, truth) or 0.0)
        agreement = np.sign(estimate[largest]) * np.sign(truth[largest])
        signs.append(float((agreement + 1).mean() / 2))
    n_bytes, microseconds = _cost(each, phones.gradients, seed)
    attacked = replace(phones, histories=phones.histories[:_ATTACKED])
    return Compared(
        name=name,
        clip=each.clip if np.isfinite(each.clip) else None,
        n_rounds=n_rounds,
        nmse=float(np.mean(errors)),
        cosine=float(np.mean(cosines)),
        cosine_error=float(np.std(cosines) / np.sqrt(max(1, n_rounds - 1))),
        signs=float(np.mean(signs)),
        n_bytes=n_bytes,
        microseconds=microseconds,
        phones_needed=(
            phones_needed(each, float(np.linalg.norm(target))) if np.isfinite(each.clip) else None
        ),
        leak=informed_attack(each, attacked, 1, seed, ("favourite",))[0],
    )


def phones_needed(mechanism: Mechanism, mean_length: float) -> int:
    """The phones whose mean report has as much gradient as noise, a cosine of .71: V C²/‖μ‖².

    ``mean_length`` is ‖μ‖ of the clipped gradients, in the units of the gradients.
    """
    if not (math.isfinite(mean_length) and mean_length > 0):
        raise ValueError(f"the length of the mean gradient must be > 0, got {mean_length!r}.")
    if not mechanism.variance:
        return 1
    return max(1, math.ceil(mechanism.variance * (mechanism.clip / mean_length) ** 2))


def mean_report(
    each: Mechanism, gradients: Sequence[PhoneGradient], n_phones: int, seed: int, number: int
) -> Floats:
    """The decoded mean of `n_phones` reports of these phones in turn, as a vector, in a round.

    Decoded in batches, except for qharmony, whose decoding is not linear.
    """
    bits = KeyedBits(seed, round=number, purpose="compare")
    at_once = n_phones if isinstance(each, QHarmony) else _DECODED_AT_ONCE
    total = np.zeros(each.n_apps * each.d)
    for start in range(0, n_phones, at_once):
        part = range(start, min(start + at_once, n_phones))
        reports = [each.encode(gradients[phone % len(gradients)], bits) for phone in part]
        total += len(part) * decode_reports(each, reports).ravel()
    return total / n_phones


def _cost(each: Mechanism, gradients: Sequence[PhoneGradient], seed: int) -> tuple[int, float]:
    """Bytes of a payload, and the median microseconds of an `encode`."""
    bits = KeyedBits(seed, purpose="time")
    times = []
    for phone in range(_TIMED):
        start = time.perf_counter()
        report = each.encode(gradients[phone % len(gradients)], bits)
        times.append(time.perf_counter() - start)
    return len(report.payload), 1e6 * float(np.median(times))
