"""New phones: how well they predict from their first launch on, with and without the crowd.

A part of the users are new phones, the others the crowd. Every new phone predicts each of its
launches before it sees it, by `nextapp.predictor`, once with each prior from the crowd, so that
nothing but the prior differs. Priors are non-private, or learnt from one report a phone at a total
ε: through a frequency oracle, or by gradients (`crowd_rounds`).

On synthetic phones the crowd is a fleet of any size and the new phones are those with the next
numbers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from nextapp.crowd import crowd_from, learnt_crowd
from nextapp.data import LaunchLog, collapsed, synthetic
from nextapp.evaluation import metrics
from nextapp.evaluation.intervals import bootstrap_means, interval
from nextapp.fleet.clip import public_seed
from nextapp.fleet.columns import Fleet
from nextapp.fleet.frequencies import mean_shares, tally_reports
from nextapp.names import unknown
from nextapp.predictors import online_scores
from nextapp.privacy import FREQUENCY_MECHANISMS, MECHANISMS, FrequencyMechanism, Mechanism
from nextapp.progress import Progress, silent
from nextapp.randomness import KeyedBits
from nextapp.studies import crowd_rounds
from nextapp.studies.settings import versions
from nextapp.wire import Crowd, Floats

BINS = ((0, 10), (10, 20), (20, 50), (50, 100), (100, 200), (200, 500), (500, 1000))
HEADLINE = (10, 50)
CUTOFFS = metrics.CUTOFFS
WITHOUT, OPEN = "without", "non-private"
CANDIDATES = ("own", "catalogue")
WAYS = (*FREQUENCY_MECHANISMS, *crowd_rounds.WAYS)
"""How a prior is learnt: through a frequency oracle, or by gradients."""

_AT_ONCE = 20_000  # synthetic phones made at a time
_REHEARSING = 150  # new phones that stand in when the training of vectors is rehearsed


@dataclass(frozen=True)
class ColdStart:
    """What to measure.

    ``new`` is the share of users held out as new phones, drawn ``draws`` times. Of synthetic phones
    all are the crowd, and the new ones are those that follow: as many as the share says, but at
    most ``at_most``, in one draw. ``candidates`` are the apps of the phone's own whole history
    (``own``, as the preset paper counts) or the whole ``catalogue``.
    """

    data: str
    new: float = 0.3
    draws: int = 5
    epsilons: tuple[float, ...] = (0.5, 1.0, 2.0, 4.5)
    way: str = "subset"
    candidates: str = "own"
    launches: int = 1_000
    at_most: int = 500
    seed: int = 0

    def __post_init__(self) -> None:
        if self.way not in WAYS:
            if self.way in MECHANISMS:
                raise ValueError(
                    f"{self.way} reports gradients; a prior is learnt by the frequency oracles "
                    f"{' and '.join(FREQUENCY_MECHANISMS)}, or from the gradients of "
                    f"{' or '.join(crowd_rounds.WAYS)}."
                )
            raise ValueError(unknown("way to learn a prior", self.way, WAYS))
        if not 0 < self.new < 1:
            raise ValueError(f"new must lie between 0 and 1, got {self.new!r}.")
        for word in ("draws", "launches", "at_most"):
            if getattr(self, word) < 1:
                raise ValueError(f"{word} must be 1 or more, got {getattr(self, word)!r}.")
        if self.candidates not in CANDIDATES:
            raise ValueError(unknown("candidates", self.candidates, CANDIDATES))
        for epsilon in self.epsilons:
            self.build_mechanism(epsilon, 2)

    def build_mechanism(self, epsilon: float, n_apps: int) -> Mechanism:
        """The mechanism of a phone's report at this ε; gradients are clipped to 1 here."""
        if self.way in crowd_rounds.WAYS:
            return replace(crowd_rounds.PLAIN[self.way], clip=1.0).build_mechanism(epsilon, n_apps)
        return FREQUENCY_MECHANISMS[self.way](epsilon=epsilon, n_apps=n_apps, d=n_apps + 1)

    @property
    def synthetic(self) -> bool:
        return self.data.startswith("synthetic:")


@dataclass(frozen=True, eq=False)
class Draw:
    """A crowd, and the new phones: launches in order, app and second, by user."""

    crowd: Fleet
    users: tuple[int, ...]
    apps: tuple[np.ndarray[Any, np.dtype[np.int64]], ...]
    seconds: tuple[Floats, ...]


def run(
    settings: ColdStart,
    log: LaunchLog | None = None,
    report: Progress = silent,
) -> dict[str, Any]:
    """Measure. `log` is read from ``settings.data``; synthetic phones are made here."""
    if settings.synthetic:
        parameters = synthetic.parse(settings.data)
        draws, about = [_synthetic(settings, parameters, report)], _about_fleet(parameters)
    else:
        if log is None:
            raise ValueError(f"the log of {settings.data} must be given.")
        whole = collapsed(log)
        draws, about = list(_held_out(settings, whole)), _about_log(settings, whole)
    names = [WITHOUT, OPEN, *(private(epsilon) for epsilon in settings.epsilons)]
    by_user: dict[int, list[Floats]] = {}
    for number, draw in enumerate(draws):
        priors = [None, *learn_priors(settings, draw.crowd, number, report)]
        for place, user in enumerate(draw.users):
            report(f"draw {number + 1} of {len(draws)}: new phones", place, len(draw.users))
            apps, seconds = draw.apps[place], draw.seconds[place]
            own = settings.candidates == "own"
            candidates = np.unique(apps) if own else np.arange(draw.crowd.n_apps)
            one = NewPhone(apps, seconds, candidates)
            marks = [hit_rates(one, prior) for prior in priors]
            by_user.setdefault(user, []).append(np.array(marks))
    means = np.array([np.mean(each, axis=0) for each in by_user.values()])  # (users, priors, cells)
    return {
        "data": about,
        "n_crowd": [len(draw.crowd) for draw in draws],
        "n_new": [len(draw.users) for draw in draws],
        "bins": [list(each) for each in (*BINS, HEADLINE)],
        "headline": list(HEADLINE),
        "priors": _summary(names, means, settings.seed),
        "guarantees": {
            private(epsilon): asdict(
                settings.build_mechanism(epsilon, draws[0].crowd.n_apps).guarantee
            )
            for epsilon in settings.epsilons
        },
        "plans": {
            private(epsilon): asdict(_plan(settings, draws[0].crowd, epsilon))
            for epsilon in settings.epsilons
            if settings.way in crowd_rounds.WAYS
        },
        "candidates": settings.candidates,
        "seed": settings.seed,
        "settings": asdict(settings),
        "versions": versions(),
    }


def private(epsilon: float) -> str:
    return f"ε = {epsilon:g}"


def learn_priors(settings: ColdStart, crowd: Fleet, number: int, report: Progress) -> list[Crowd]:
    """The priors: non-private, then one for each ε, every phone reporting once."""
    learn = _by_gradients if settings.way in crowd_rounds.WAYS else _by_frequencies
    found = []
    for done, epsilon in enumerate((None, *settings.epsilons)):
        report("learning priors", done, 1 + len(settings.epsilons))
        found.append(learn(settings, crowd, epsilon, settings.seed + number))
    return found


def _by_frequencies(settings: ColdStart, crowd: Fleet, epsilon: float | None, seed: int) -> Crowd:
    if epsilon is None:
        return crowd_from(mean_shares(crowd), 0.0)
    oracle = settings.build_mechanism(epsilon, crowd.n_apps)
    if not isinstance(oracle, FrequencyMechanism):
        raise ValueError(f"{settings.way} reports gradients.")
    estimate = oracle.estimate(tally_reports(crowd, oracle, seed), len(crowd))
    return learnt_crowd(oracle, estimate, len(crowd))


def _by_gradients(settings: ColdStart, crowd: Fleet, epsilon: float | None, seed: int) -> Crowd:
    plan = _plan(settings, crowd, epsilon)
    return plan.crowd(crowd_rounds.train_vectors(plan, crowd, epsilon, seed))


def _plan(settings: ColdStart, crowd: Fleet, epsilon: float | None) -> crowd_rounds.Plan:
    """Private gradients go by a plan that was rehearsed on synthetic phones which are in no crowd;
    where the crowd is synthetic, on phones of the same making."""
    if epsilon is None:
        return crowd_rounds.PLAIN[settings.way]
    parameters = synthetic.fleet_parameters(1, crowd.n_apps)
    if settings.synthetic:
        parameters = replace(synthetic.parse(settings.data), phones=1)
    return _choose_plan(settings.way, len(crowd), parameters, epsilon, settings.seed)


@functools.lru_cache
def _choose_plan(
    way: str, n_phones: int, parameters: synthetic.Parameters, epsilon: float, seed: int
) -> crowd_rounds.Plan:
    other = public_seed(seed)
    worth = worth_to(new_phones(parameters, other, crowd_rounds.STAND_INS, _REHEARSING))
    return crowd_rounds.choose_plan(way, n_phones, parameters, epsilon, other, worth)


class NewPhone(NamedTuple):
    """Launches in order, the seconds of those that count, and the apps that compete."""

    apps: np.ndarray[Any, np.dtype[np.int64]]
    seconds: Floats
    candidates: np.ndarray[Any, np.dtype[np.int64]]


def new_phones(parameters: synthetic.Parameters, seed: int, first: int, n: int) -> list[NewPhone]:
    """Synthetic phones from number `first` on, over the headline's launches if they have them."""
    log = collapsed(synthetic.make(replace(parameters, phones=first + n), seed, first))
    found = []
    for start, end in pairwise(log.starts.tolist()):
        if end - start >= HEADLINE[1]:
            apps = log.app[start:end].astype(np.int64)
            seconds = log.time[start : start + HEADLINE[1]] / 1000.0
            found.append(NewPhone(apps, seconds, np.unique(apps)))
    return found


def worth_to(phones: Sequence[NewPhone]) -> crowd_rounds.Worth:
    """Of a crowd: the mean of HR@1, HR@3 and HR@5 of these phones over the headline's launches."""
    return lambda crowd: float(
        np.mean([hit_rates(one, crowd)[-len(CUTOFFS) :] for one in phones]) if phones else 0.0
    )


def _held_out(settings: ColdStart, log: LaunchLog) -> Iterator[Draw]:
    starts = log.starts
    there = np.flatnonzero(np.diff(starts) > 0)
    n_new = round(settings.new * len(there))
    if not 0 < n_new < len(there):
        raise ValueError(
            f"{settings.new:g} of {len(there)} users leaves no new phones or no crowd: give a "
            f"larger log or another share."
        )
    bits = KeyedBits(settings.seed, purpose="new").generator()
    for _ in range(settings.draws):
        order = bits.permutation(there)
        new, rest = np.sort(order[:n_new][: settings.at_most]), np.sort(order[n_new:])
        sizes = np.concatenate([[0], np.cumsum(np.diff(starts)[rest])]).astype(np.int64)
        apps = np.concatenate([log.app[starts[user] : starts[user + 1]] for user in rest])
        yield _draw(Fleet.of_histories(sizes, apps, log.n_apps), log, new, settings.launches)


def _synthetic(settings: ColdStart, parameters: synthetic.Parameters, report: Progress) -> Draw:
    n_crowd = parameters.phones
    shards = []
    for first in range(0, n_crowd, _AT_ONCE):
        report("making synthetic phones", first, n_crowd)
        some = replace(parameters, phones=min(first + _AT_ONCE, n_crowd))
        log = collapsed(synthetic.make(some, settings.seed, first))
        shard = Fleet.of_histories(log.starts.astype(np.int64), log.app, log.n_apps, first)
        shards.append(shard)
    n_new = min(settings.at_most, max(1, round(settings.new * n_crowd)))
    log = collapsed(
        synthetic.make(replace(parameters, phones=n_crowd + n_new), settings.seed, n_crowd)
    )
    there = np.flatnonzero(np.diff(log.starts) > 0)
    return _draw(Fleet.join(shards), log, there, settings.launches)


def _draw(crowd: Fleet, log: LaunchLog, users: Sequence[int] | Any, launches: int) -> Draw:
    starts = log.starts
    rows = [slice(starts[user], starts[user + 1]) for user in users]
    return Draw(
        crowd,
        tuple(int(user) for user in users),
        tuple(log.app[row].astype(np.int64) for row in rows),
        tuple(log.time[row][:launches] / 1000.0 for row in rows),
    )


def hit_rates(one: NewPhone, crowd: Crowd | None) -> Floats:
    """(bins · cutoffs,): mean HR of one phone in each of `BINS` and the `HEADLINE`; nan: none.

    Ties count by expectation.
    """
    scores = online_scores(one.apps, one.seconds, one.candidates, crowd)
    target = np.searchsorted(one.candidates, one.apps[: len(one.seconds)])
    own = np.take_along_axis(scores, target[:, None], axis=1)
    better, equal = (scores > own).sum(axis=1), (scores == own).sum(axis=1)
    hits = metrics.values(better, equal, "expected")[:, : len(CUTOFFS)]
    found = []
    for first, last in (*BINS, HEADLINE):
        some = hits[first:last]
        found.append(some.mean(axis=0) if len(some) else np.full(len(CUTOFFS), np.nan))
    return np.concatenate(found)


def _summary(names: Sequence[str], means: Floats, seed: int) -> dict[str, Any]:
    """For each prior and bin: the mean over users, the gain over `WITHOUT`, and what is kept.

    ``kept`` is a private prior's share of the gain of the non-private one, over launches
    `HEADLINE`.
    """
    n_users, n_priors, n_cells = means.shape
    columns = means.reshape(n_users, n_priors * n_cells)
    drawn = bootstrap_means(columns, seed).reshape(-1, n_priors, n_cells)
    with np.errstate(invalid="ignore"):
        mean = np.array([np.nanmean(c) if (~np.isnan(c)).any() else np.nan for c in columns.T])
    mean = mean.reshape(n_priors, n_cells)
    found: dict[str, Any] = {}
    for number, name in enumerate(names):
        bins = []
        for place, (first, last) in enumerate((*BINS, HEADLINE)):
            figures: dict[str, Any] = {
                "from": first,
                "to": last,
                "n_phones": int((~np.isnan(means[:, 0, place * len(CUTOFFS)])).sum()),
            }
            for which, cutoff in enumerate(CUTOFFS):
                cell = place * len(CUTOFFS) + which
                figures[f"HR@{cutoff}"] = _figure(mean[number, cell], drawn[:, number, cell])
                figures[f"gain@{cutoff}"] = _figure(
                    mean[number, cell] - mean[0, cell], drawn[:, number, cell] - drawn[:, 0, cell]
                )
            bins.append(figures)
        found[name] = {"bins": bins[:-1], "headline": bins[-1]}
        if number > 1:
            found[name]["kept"] = {
                f"HR@{cutoff}": _kept(mean, drawn, number, len(BINS) * len(CUTOFFS) + which)
                for which, cutoff in enumerate(CUTOFFS)
            }
    return found


def _figure(mean: float, drawn: Floats) -> dict[str, float] | None:
    if math.isnan(mean):
        return None
    low, high = interval(drawn[:, None])[:, 0]
    return {"mean": float(mean), "low": float(low), "high": float(high)}


def _kept(mean: Floats, drawn: Floats, number: int, cell: int) -> dict[str, float] | None:
    full = drawn[:, 1, cell] - drawn[:, 0, cell]
    if not mean[1, cell] - mean[0, cell] > 0:
        return None
    share = (mean[number, cell] - mean[0, cell]) / (mean[1, cell] - mean[0, cell])
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = (drawn[:, number, cell] - drawn[:, 0, cell]) / full
    return _figure(float(share), shares[np.isfinite(shares)])


def _about_log(settings: ColdStart, log: LaunchLog) -> dict[str, Any]:
    return {
        "source": settings.data,
        "kind": "a log of people",
        "n_users": log.n_users,
        "n_apps": log.n_apps,
        "n_launches": len(log),
        "notes": list(log.notes),
    }


def _about_fleet(parameters: synthetic.Parameters) -> dict[str, Any]:
    return {
        "source": f"synthetic: {parameters.phones:,} phones, {parameters.apps:,} apps",
        "kind": "synthetic phones, not data of people",
        "n_users": parameters.phones,
        "n_apps": parameters.apps,
        "parameters": _plain(asdict(parameters)),
        "notes": [],
    }


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no infinity."""
    return {
        name: None if isinstance(value, float) and math.isinf(value) else value
        for name, value in values.items()
    }
