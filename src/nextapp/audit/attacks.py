"""Attacks by a curious server: what it learns about one phone from its reports.

Three questions: which apps are on this phone ("apps"), which is used most ("favourite"), and, for
the informed attacker, which of the two most used apps comes first ("order"). Two attackers:

    uninformed   has the reports and knows the mechanism; guesses that an app is present, or used
                 most, from the length of its row in the decoded report
    informed     knows everything about the phone except the answer: for example its history with
                 and without the most used app. It uses the likelihood ratio of the reports, so no
                 attacker can do better

An AUC of .5 is guessing. ε-LDP bounds the AUC from one report by e^ε/(1 + e^ε). The phones are
synthetic.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from nextapp.data import synthetic
from nextapp.learners import starting_vectors
from nextapp.model import Apps, PhoneGradient, seqmf_gradient
from nextapp.privacy import Mechanism
from nextapp.progress import Progress, silent
from nextapp.randomness import KeyedBits
from nextapp.table import interval, measured_mean, resample
from nextapp.wire import Broadcast, Floats, ModelSettings, Report

SCALE = 0.1
"""Standard deviation of the app vectors before the first round, as in training."""


@dataclass(frozen=True, eq=False)
class SyntheticPhones:
    """Launch histories of phones, and the broadcast of the first round."""

    histories: tuple[Apps, ...]
    broadcast: Broadcast

    @functools.cached_property
    def gradients(self) -> tuple[PhoneGradient, ...]:
        return tuple(seqmf_gradient(history, self.broadcast) for history in self.histories)

    @functools.cached_property
    def mean(self) -> Floats:
        """(n_apps, d): the mean of the gradients, not clipped."""
        total = np.zeros_like(self.broadcast.app_vectors)
        for gradient in self.gradients:
            total += gradient.dense()
        return total / len(self.gradients)


def synthetic_phones(n_phones: int, n_apps: int, d: int, seed: int) -> SyntheticPhones:
    """Phones of the twin of LSApp, with a catalogue of this size."""
    log = synthetic.make(replace(synthetic.LSAPP, phones=n_phones, apps=n_apps), seed)
    histories = np.split(log.app.astype(np.int64), log.starts[1:-1])
    return SyntheticPhones(
        tuple(history for history in histories if len(history)), first_broadcast(n_apps, d, seed)
    )


def first_broadcast(n_apps: int, d: int, seed: int) -> Broadcast:
    """A broadcast with random initial app vectors."""
    vectors = starting_vectors(n_apps, d, SCALE, seed)
    return Broadcast(0, vectors, ModelSettings())


@dataclass(frozen=True)
class Leak:
    """How well an attacker answers a question about a phone from ``n_reports`` of its reports.

    ``auc`` has a 95 % interval from a bootstrap over phones. ``hit_rate``: how often the uninformed
    attacker names the most used app; None for other questions.
    """

    question: str
    attacker: str
    n_reports: int
    n_phones: int
    auc: float
    low: float
    high: float
    hit_rate: float | None = None


def uninformed_attack(
    mechanism: Mechanism, phones: SyntheticPhones, n_reports: int, seed: int
) -> list[Leak]:
    """Guess from the lengths of the rows of the decoded reports."""
    presence, favourite, hits = [], [], []
    for number, (history, gradient) in enumerate(
        zip(phones.histories, phones.gradients, strict=True)
    ):
        bits = KeyedBits(seed, number, purpose="attack")
        reports = [mechanism.encode(gradient, bits) for _ in range(n_reports)]
        lengths = np.linalg.norm(decode_reports(mechanism, reports), axis=1)
        counts = np.bincount(history, minlength=mechanism.n_apps)
        most_used = counts == counts.max()
        if (counts == 0).any():
            presence.append(auc(lengths[counts > 0], lengths[counts == 0]))
        if not most_used.all():
            favourite.append(auc(lengths[most_used], lengths[~most_used]))
            longest = lengths == lengths.max()
            hits.append(float((longest & most_used).sum() / longest.sum()))
    leaks = []
    for question, by_phone in (("apps", presence), ("favourite", favourite)):
        mean, low, high = measured_mean(np.array(by_phone), seed).values()
        hit_rate = float(np.mean(hits)) if question == "favourite" else None
        leaks.append(
            Leak(question, "uninformed", n_reports, len(by_phone), mean, low, high, hit_rate)
        )
    return leaks


def without_one_app(history: Apps, random: np.random.Generator) -> Apps:
    """The history without one of its apps, chosen at random."""
    chosen = random.choice(np.unique(history))
    return np.asarray(history[history != chosen])


def without_the_favourite(history: Apps, random: np.random.Generator) -> Apps:
    """The history without the most used app."""
    return np.asarray(history[history != np.bincount(history).argmax()])


def with_the_first_two_swapped(history: Apps, random: np.random.Generator) -> Apps:
    """The history with the two most used apps swapped."""
    counts = np.bincount(history, minlength=2)
    second, first = np.argsort(counts, kind="stable")[-2:]
    swapped = history.copy()
    swapped[history == first], swapped[history == second] = second, first
    return swapped


QUESTIONS: Mapping[str, Callable[[Apps, np.random.Generator], Apps]] = {
    "apps": without_one_app,
    "favourite": without_the_favourite,
    "order": with_the_first_two_swapped,
}


def informed_attack(
    mechanism: Mechanism,
    phones: SyntheticPhones,
    n_reports: int,
    seed: int,
    questions: Sequence[str] = tuple(QUESTIONS),
    progress: Progress = silent,
) -> list[Leak]:
    """Guess from the likelihood ratio of a phone's reports given its true history and another one.

    For every phone `n_reports` reports of the truth and as many of the alternative are drawn. The
    AUC is for distinguishing the two, from one report and, if there are more, from all reports of a
    phone.
    """
    scores: dict[str, tuple[list[Floats], list[Floats]]] = {word: ([], []) for word in questions}
    for number, (history, gradient) in enumerate(
        zip(phones.histories, phones.gradients, strict=True)
    ):
        random = KeyedBits(seed, number, purpose="question").generator()
        bits = KeyedBits(seed, number, purpose="attack")
        true = [mechanism.encode(gradient, bits) for _ in range(n_reports)]
        plain = np.array([mechanism.log_prob(report, gradient) for report in true])
        for word in questions:
            other = seqmf_gradient(QUESTIONS[word](history, random), phones.broadcast)
            false = [mechanism.encode(other, bits) for _ in range(n_reports)]
            scores[word][0].append(plain - _log_probs(mechanism, true, other))
            scores[word][1].append(
                _log_probs(mechanism, false, gradient) - _log_probs(mechanism, false, other)
            )
        progress(mechanism.name, number + 1, len(phones.histories))
    leaks = []
    for word, (of_true, of_false) in scores.items():
        single = _auc_over_phones(np.array(of_true), np.array(of_false), seed)
        leaks.append(Leak(word, "informed", 1, len(of_true), *single))
        if n_reports > 1:
            together = _auc_over_phones(
                np.array(of_true).sum(axis=1, keepdims=True),
                np.array(of_false).sum(axis=1, keepdims=True),
                seed,
            )
            leaks.append(Leak(word, "informed", n_reports, len(of_true), *together))
    return leaks


def auc(positives: Floats, negatives: Floats) -> float:
    """The probability that a positive scores above a negative; ties count half.

    >>> auc(np.array([3.0, 2.0]), np.array([1.0, 2.0]))
    0.875
    """
    ranks = stats.rankdata(np.concatenate([positives, negatives]))
    n, m = len(positives), len(negatives)
    return float((ranks[:n].sum() - n * (n + 1) / 2) / (n * m))


def _log_probs(mechanism: Mechanism, reports: Sequence[Report], gradient: PhoneGradient) -> Floats:
    return np.array([mechanism.log_prob(report, gradient) for report in reports])


def decode_reports(mechanism: Mechanism, reports: Sequence[Report]) -> Floats:
    """The server's estimate from these reports; 0 if qharmony has z_max = 0."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # that of z_max = 0
        return mechanism.decode(reports)


def _auc_over_phones(of_true: Floats, of_false: Floats, seed: int) -> tuple[float, float, float]:
    """AUC of the scores (n_phones, n) of true against false reports, with an interval over
    phones."""
    n = len(of_true)
    wins = np.empty((n, n))  # AUC of one phone's true scores against another's false scores
    ordered = np.sort(of_false, axis=1)
    for other, row in enumerate(ordered):
        below = np.searchsorted(row, of_true.ravel(), side="left")
        not_above = np.searchsorted(row, of_true.ravel(), side="right")
        wins[:, other] = ((below + not_above) / (2 * len(row))).reshape(of_true.shape).mean(axis=1)
    weights = resample(KeyedBits(seed, purpose="boot").generator(), n)
    low, high = interval(np.einsum("bi,bi->b", weights @ wins, weights) / n**2)
    return float(wins.mean()), float(low), float(high)
