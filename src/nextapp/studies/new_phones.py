"""New phones: how well they predict from their first launch on, with and without the crowd.

Some users are new phones, the others are the crowd. Every new phone predicts each of its launches
before it sees it, with `nextapp.predictor`, once with each prior from the crowd; only the prior
differs. Priors are non-private, or learnt from one report per phone with its total ε: the whole
transition vector, through `walsh`.

With synthetic data the crowd is a fleet of any size and the new phones have the next numbers. Logs
of people have few phones; ``copies`` of them show what a larger fleet would learn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from nextapp.crowd import Longs, crowd_from, crowd_without_noise
from nextapp.data import synthetic
from nextapp.data.cutting import collapse_repeats
from nextapp.data.log import LaunchLog
from nextapp.evaluation import metrics
from nextapp.fleet.columns import Fleet
from nextapp.fleet.walsh import draw_copies, draw_launches, mean_shares, tally_answers
from nextapp.learners import SLOTS_BY_BUCKET, CrowdRequests
from nextapp.predictors.nextapp import online_scores
from nextapp.privacy.walsh import Walsh, fewest_bits
from nextapp.progress import Progress, silent
from nextapp.randomness import KeyedBits
from nextapp.settings import count, setting
from nextapp.studies.experiment import about_log, versions
from nextapp.table import bootstrap_means, measured
from nextapp.wire import Crowd, Floats

BINS = ((0, 10), (10, 20), (20, 50), (50, 100), (100, 200), (200, 500), (500, 1000))
HEADLINE = (10, 50)
CUTOFFS = metrics.CUTOFFS
WITHOUT, OPEN = "without", "non-private"
_AT_ONCE = 20_000  # synthetic phones generated at a time


_CROWD = "How the crowd is learnt"  # a heading of options


@dataclass(frozen=True)
class NewPhoneStudy:
    """What to measure.

    With synthetic data the whole fleet is the crowd and the new phones are additional ones, in one
    draw. A fleet of ``copies`` has equally many of each phone; the sum of their reports is drawn in
    one step, all others are simulated one by one, bit by bit.
    """

    data: str
    new: float = setting(0.3, "Share of the users that are new phones.", metavar="SHARE")
    draws: int = setting(5, "Random draws of new phones from a log.", least=1)
    epsilons: tuple[float, ...] = setting(
        (0.5, 1.0, 2.0, 4.5),
        "Total ε of a phone, one prior each.",
        metavar="NUMBERS",
        option="--epsilon",
        heading=_CROWD,
    )
    launches: int = setting(1_000, "Launches of a new phone that are measured.", least=1)
    at_most: int = setting(500, "New phones in a draw, at most.", least=1)
    copies: int = setting(
        0, "Phones in a fleet of copies of the crowd; 0: the crowd itself.", heading=_CROWD
    )
    seed: int = setting(0, "Random seed.")

    def __post_init__(self) -> None:
        if not 0 < self.new < 1:
            raise ValueError(f"new must lie between 0 and 1, got {self.new!r}.")
        for word in ("draws", "launches", "at_most"):
            if getattr(self, word) < 1:
                raise ValueError(f"{word} must be 1 or more, got {getattr(self, word)!r}.")
        if self.copies < 0:
            raise ValueError(f"copies must be 0 (none) or more, got {self.copies!r}.")
        for epsilon in self.epsilons:
            transitions_mechanism(epsilon, 2)

    @property
    def synthetic(self) -> bool:
        return self.data.startswith("synthetic:")


def transitions_mechanism(epsilon: float, n_apps: int) -> Walsh:
    """The mechanism for transition vectors: they have length 1, so the clip is 1.

    The number of codewords is that of a server's default (`fewest_bits`).
    """
    return Walsh(epsilon=epsilon, n_apps=n_apps, d=n_apps + 1, clip=1.0, b=fewest_bits(epsilon))


class NewPhone(NamedTuple):
    """A phone's launches in order, and the times (s) of the first of them, which it predicts."""

    user: int
    apps: Longs
    seconds: Floats

    @property
    def candidates(self) -> Longs:
        """The apps that compete: those of the phone's whole history, as in the preset paper."""
        return np.unique(self.apps)


Draw = tuple[Fleet, list[NewPhone]]
"""A crowd and the new phones."""


def run(
    settings: NewPhoneStudy,
    log: LaunchLog | None = None,
    report: Progress = silent,
) -> dict[str, Any]:
    """Run the study. `log` is the log of ``settings.data``; None for synthetic data."""
    if settings.synthetic:
        parameters = synthetic.parse(settings.data)
        draws, about = (
            [_draw_synthetic(settings, parameters, report)],
            {
                "source": f"synthetic: {parameters.phones:,} phones, {parameters.apps:,} apps",
                "kind": "synthetic phones, not data of people",
                "n_users": parameters.phones,
                "n_apps": parameters.apps,
                "notes": [],
            },
        )
    else:
        if log is None:
            raise ValueError(f"the log of {settings.data} must be given.")
        whole = collapse_repeats(log)
        draws, about = (
            list(_draws_of_log(settings, whole)),
            about_log(settings.data, whole, log) | {"kind": "a log"},
        )
    by_user: dict[int, list[Floats]] = {}
    for number, (crowd, phones) in enumerate(draws):
        priors = [None, *learn_priors(settings, crowd, number, report)]
        for done, phone in enumerate(phones):
            report("new phones", number * len(phones) + done, len(draws) * len(phones))
            rates = np.array([hit_rates(phone, prior) for prior in priors])
            by_user.setdefault(phone.user, []).append(rates)
    means = np.array([np.mean(each, axis=0) for each in by_user.values()])  # (users, priors, cells)
    names = [WITHOUT, OPEN, *(private(epsilon) for epsilon in settings.epsilons)]
    n_slots = min(draws[0][0].n_apps, CrowdRequests.most_slots)
    return {
        "data": about,
        "n_crowd": [settings.copies or len(crowd) for crowd, _ in draws],
        "n_new": [len(phones) for _, phones in draws],
        "headline": list(HEADLINE),
        "priors": _summary(names, means, settings.seed),
        "guarantees": {
            private(epsilon): asdict(transitions_mechanism(epsilon, n_slots).guarantee)
            for epsilon in settings.epsilons
        },
        "seed": settings.seed,
        "settings": asdict(settings),
        "versions": versions(),
    }


def private(epsilon: float) -> str:
    return f"ε = {epsilon:g}"


def learn_priors(
    settings: NewPhoneStudy, crowd: Fleet, number: int, report: Progress
) -> list[Crowd]:
    """The priors of a draw: non-private, then one for each ε; every phone reports once."""
    found = [crowd_without_noise(mean_shares(crowd))]
    for done, epsilon in enumerate(settings.epsilons, start=1):
        report("learning priors", done, 1 + len(settings.epsilons))
        found.append(learn_from_vectors(crowd, epsilon, settings.seed + number, settings.copies))
    return found


def learn_from_vectors(
    crowd: Fleet,
    epsilon: float,
    seed: int,
    copies: int = 0,
) -> Crowd:
    """The prior learnt from one report per phone, as the server of the crowd requests it.

    If the catalogue has more apps than slots, some phones report launches, and the others report
    transitions between the most launched apps, as many as a server gives slots. Apps are known by
    name here, so no two of them share a slot. With ``copies`` the crowd is a fleet of this many
    copies of the phones.
    """
    n_phones, n_apps = copies or len(crowd), crowd.n_apps
    slots, others = np.arange(n_apps), crowd
    if n_apps > CrowdRequests.most_slots:
        n_asked = max(1, round(n_phones / CrowdRequests.launches_every))
        asked = crowd if copies else crowd.shard(0, n_asked)
        others = crowd if copies else crowd.shard(n_asked, len(crowd))
        n_phones -= n_asked
        mechanism = Walsh(epsilon=epsilon, n_apps=n_apps, d=1, clip=1.0, b=fewest_bits(epsilon))
        if copies:
            launches = draw_launches(asked, mechanism, n_asked, seed)
        else:
            tally = tally_answers(asked, mechanism, "launches", seed)
            launches = mechanism.estimate(tally, n_asked).ravel()
        slots = np.sort(np.argsort(-launches, kind="stable")[:SLOTS_BY_BUCKET])
        others = others.among(slots)
    mechanism = transitions_mechanism(epsilon, len(slots))
    if copies:
        estimate = draw_copies(others, mechanism, n_phones, seed)
    else:
        tally = tally_answers(others, mechanism, "transitions", seed)
        estimate = mechanism.estimate(tally, n_phones)
    learnt = crowd_from(estimate, math.sqrt(mechanism.entry_variance / n_phones))
    popularity = np.zeros(n_apps)
    popularity[slots] = learnt.popularity
    counts = np.zeros(n_apps, np.int64)
    counts[slots] = np.diff(learnt.starts)
    starts = np.concatenate([[0], np.cumsum(counts)])
    return Crowd(popularity, starts, slots[learnt.following], learnt.share)


def synthetic_phones(
    parameters: synthetic.Parameters,
    seed: int,
    first: int,
    n: int,
    least: int = HEADLINE[1],
    most: int = HEADLINE[1],
) -> list[NewPhone]:
    """Synthetic phones from number `first` on that have so many launches; they predict ``most``."""
    log = collapse_repeats(synthetic.make(replace(parameters, phones=first + n), seed, first))
    return _phones_of(log, np.flatnonzero(np.diff(log.starts) >= least), most)


def _phones_of(log: LaunchLog, users: Iterable[int], launches: int) -> list[NewPhone]:
    """These users of a log as new phones, which predict this many launches."""
    found = []
    for user in users:
        rows = slice(log.starts[user], log.starts[user + 1])
        seconds = log.time[rows][:launches] / 1000.0
        found.append(NewPhone(int(user), log.app[rows].astype(np.int64), seconds))
    return found


def _draws_of_log(settings: NewPhoneStudy, log: LaunchLog) -> Iterator[Draw]:
    starts = log.starts
    there = np.flatnonzero(np.diff(starts) > 0)
    n_new = round(settings.new * len(there))
    if not 0 < n_new < len(there):
        raise ValueError(
            f"a share of {settings.new:g} of {count(len(there), 'user')} leaves no new phones or "
            f"no crowd: give a larger log or another share."
        )
    bits = KeyedBits(settings.seed, purpose="new").generator()
    for _ in range(settings.draws):
        order = bits.permutation(there)
        new, rest = np.sort(order[:n_new][: settings.at_most]), np.sort(order[n_new:])
        sizes = np.concatenate([[0], np.cumsum(np.diff(starts)[rest])]).astype(np.int64)
        apps = np.concatenate([log.app[starts[user] : starts[user + 1]] for user in rest])
        crowd = Fleet.of_histories(sizes, apps, log.n_apps)
        yield crowd, _phones_of(log, new, settings.launches)


def _draw_synthetic(
    settings: NewPhoneStudy, parameters: synthetic.Parameters, report: Progress
) -> Draw:
    n_crowd = parameters.phones
    shards = []
    for first in range(0, n_crowd, _AT_ONCE):
        report("making synthetic phones", first, n_crowd)
        up_to = replace(parameters, phones=min(first + _AT_ONCE, n_crowd))
        log = collapse_repeats(synthetic.make(up_to, settings.seed, first))
        shard = Fleet.of_histories(log.starts.astype(np.int64), log.app, log.n_apps, first)
        shards.append(shard)
    n_new = min(settings.at_most, max(1, round(settings.new * n_crowd)))
    new = synthetic_phones(parameters, settings.seed, n_crowd, n_new, 1, settings.launches)
    return Fleet.join(shards), new


def hit_rates(phone: NewPhone, crowd: Crowd | None) -> Floats:
    """(bins · cutoffs,): mean HR of a phone in each of `BINS` and in `HEADLINE`; NaN if empty.

    Ties count by expectation.
    """
    candidates = phone.candidates
    scores = online_scores(phone.apps, phone.seconds, candidates, crowd)
    target = np.searchsorted(candidates, phone.apps[: len(phone.seconds)])
    own = np.take_along_axis(scores, target[:, None], axis=1)
    better, equal = (scores > own).sum(axis=1), (scores == own).sum(axis=1)
    hits = metrics.values(better, equal, "expected")[:, : len(CUTOFFS)]
    found = []
    for first, last in (*BINS, HEADLINE):
        part = hits[first:last]
        found.append(part.mean(axis=0) if len(part) else np.full(len(CUTOFFS), np.nan))
    return np.concatenate(found)


def _summary(names: Sequence[str], means: Floats, seed: int) -> dict[str, Any]:
    """For each prior and bin: the mean over users and the gain over `WITHOUT`.

    ``kept`` is the gain of a private prior divided by that of the non-private one, over the
    launches of `HEADLINE`.
    """
    columns = means.reshape(len(means), -1)
    shape = (len(names), len(BINS) + 1, len(CUTOFFS))
    drawn = bootstrap_means(columns, seed).reshape(-1, *shape)
    means_of_columns = [np.nanmean(c) if (~np.isnan(c)).any() else np.nan for c in columns.T]
    mean = np.array(means_of_columns).reshape(shape)
    gain, drawn_gain = mean - mean[0], drawn - drawn[:, :1]
    n_phones = (~np.isnan(means[:, 0, :: len(CUTOFFS)])).sum(axis=0)
    found: dict[str, Any] = {}
    for number, name in enumerate(names):
        bins = []
        for place, (first, last) in enumerate((*BINS, HEADLINE)):
            figures: dict[str, Any] = {"from": first, "to": last, "n_phones": int(n_phones[place])}
            for which, cutoff in enumerate(CUTOFFS):
                cell = number, place, which
                figures[f"HR@{cutoff}"] = _figure(mean[cell], drawn[:, *cell])
                figures[f"gain@{cutoff}"] = _figure(gain[cell], drawn_gain[:, *cell])
            bins.append(figures)
        found[name] = {"bins": bins[:-1], "headline": bins[-1]}
        if number > 1:
            found[name]["kept"] = {
                f"HR@{cutoff}": _share_kept(gain[:, -1, which], drawn_gain[:, :, -1, which], number)
                for which, cutoff in enumerate(CUTOFFS)
            }
    return found


def _figure(mean: float, drawn: Floats) -> dict[str, float] | None:
    return None if math.isnan(mean) else measured(mean, drawn)


def _share_kept(gain: Floats, drawn: Floats, number: int) -> dict[str, float] | None:
    """The gain of a prior as a share of that of the non-private one, number 1."""
    if not gain[1] > 0:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = drawn[:, number] / drawn[:, 1]
    return _figure(float(gain[number] / gain[1]), shares[np.isfinite(shares)])
