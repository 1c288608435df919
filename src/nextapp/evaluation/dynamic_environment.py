"""The dynamic environment: predict a cycle, then learn from it, cycle after cycle.

The first cycle is only for pre-training Q. The launches of every later cycle are first predicted,
with what was learnt before it; then the phones and the server may learn from it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol, cast

import numpy as np

from nextapp.data.cutting import Cycles, launches_in_window
from nextapp.evaluation.revealing import Exam, FirstLaunches, Preset, exam_on
from nextapp.evaluation.seqmf import SeqMF
from nextapp.evaluation.static import score_predictions, user_means
from nextapp.fleet.columns import Fleet, Mask
from nextapp.fleet.rounds import estimate_sum, sum_reports, zero_phones
from nextapp.fleet.stepping import solve_user_vectors
from nextapp.learners import Optimiser, SeqMFLearner, take_step
from nextapp.predictors import Predictor
from nextapp.predictors.training import Training
from nextapp.privacy import Mechanism, mechanism
from nextapp.progress import Progress, silent
from nextapp.randomness import KeyedBits
from nextapp.settings import count
from nextapp.table import DRAWS, FEWEST, interval, resample
from nextapp.wire import Broadcast, Floats

Regime = Literal["full", "rare", "global"]
REGIMES: tuple[Regime, ...] = ("full", "rare", "global")
FROZEN: Literal["frozen"] = "frozen"
ZERO: Literal["zero"] = "zero"
Source = Mechanism | Literal["frozen", "zero"]

_RUN_AWAY = 1e6  # training has diverged if an entry of Q is larger: scores would soon overflow
_MOST_ENTRIES = 10_000_000  # largest total of report entries in a round for simulating every report


@dataclass(frozen=True, eq=False)
class CycleStream:
    """A log in cycles and the exams on them; all cycles except the first are predicted.

    The history of an exam is all earlier cycles (PAPER.md, R9). Candidates are the user's apps in
    it with ``history+target``, apps launched before the current launch with ``so-far``, and also
    those of later cycles with ``whole``, as the paper's text says.

    ``window``: phones learn only from this many days before their last launch, the t of the paper's
    H_u^(t); 0: from all history.
    """

    cycles: Cycles
    preset: Preset
    window: float = 0.0

    def __post_init__(self) -> None:
        if len(self.cycles) < 2:
            raise ValueError(
                f"the dynamic environment needs two or more cycles, one to learn from and one to "
                f"predict; {self.cycles.how} gives {len(self.cycles)}: give more, shorter cycles."
            )

    @property
    def predicted_cycles(self) -> range:
        return range(1, len(self.cycles))

    @cached_property
    def _first_launches(self) -> FirstLaunches:
        return FirstLaunches.of(self.cycles.whole)

    def exam(self, cycle: int) -> Exam | None:
        """The exam on a cycle; None if no session has two launches."""
        first = self._first_launches
        return exam_on(
            np.flatnonzero(self.cycles.cycle == cycle),
            self.cycles.whole,
            self.cycles.before(cycle),
            f"cycle {cycle + 1} of {self.cycles.how}",
            self.preset,
            first,
            self.cycles.cycle[first.row] < cycle,  # a user's cycles never go back
        )

    def end_of(self, cycle: int) -> CycleEnd:
        launches = launches_in_window(self.cycles.before(cycle + 1), self.window)
        active = np.zeros(launches.n_users, bool)
        active[self.cycles.whole.user[self.cycles.cycle == cycle]] = True
        return CycleEnd(cycle, Fleet.of_log(launches), active, cycle == len(self.cycles) - 1)


@dataclass(frozen=True, eq=False)
class CycleEnd:
    """The end of a cycle: all phones with their launches so far, and which of them were active."""

    cycle: int
    fleet: Fleet
    active: Mask
    is_last: bool
    _solved: dict[tuple[int, int], tuple[object, ...]] = field(default_factory=dict)

    def user_vectors(self, broadcast: Broadcast, start: Floats) -> Floats:
        """The user vectors of all phones, solved with a broadcast's app vectors, eq. (10).

        A phone without launches keeps its row of `start`.
        """
        key = (id(broadcast.app_vectors), id(start))
        if key not in self._solved:
            launched = np.diff(self.fleet.columns.app_starts) > 0
            vectors = solve_user_vectors(self.fleet, broadcast, start, launched)
            # Keep references to the arrays, so that their ids stay unique.
            self._solved[key] = (vectors, broadcast.app_vectors, start)
        return cast(Floats, self._solved[key][0])


class Model(Protocol):
    """A model that predicts and learns cycle by cycle."""

    @property
    def name(self) -> str: ...

    def predictor(self, test: Exam) -> Predictor:
        """A predictor for the exam, trained only on earlier cycles."""
        ...

    def state(self) -> object:
        """Models with the same state, if not None, predict the same, so one result serves all."""
        ...

    def update(self, end: CycleEnd) -> None:
        """Learn from the cycle that has ended."""
        ...


class Refitted:
    """A predictor that is refitted before each cycle, on all launches before it."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor
        self.name = predictor.name

    def predictor(self, test: Exam) -> Predictor:
        self._predictor.fit(test.history)
        return self._predictor

    def state(self) -> object:
        return None

    def update(self, end: CycleEnd) -> None:
        """Do nothing: the next fit includes the cycle."""


class FederatedSeqMF:
    """SeqMF on the phones of a stream; the regime says when user vectors are updated.

        full     every cycle
        rare     only together with Q
        global   never: they keep their initial values

    Q takes a step after every ``q_every``-th predicted cycle except the last, since nothing is
    predicted then. Phones with a launch since the last step take part, with their whole history.

    Parameters
    ----------
    app_vectors
        The pre-trained Q.
    start
        (n_users, d), initial user vectors.
    source
        What trains Q: a mechanism through which the phones report; ``frozen``: nothing; or
        ``zero``: the same steps with a gradient of zero, where only λQ and the optimiser act.
    empty
        The reporting phones have gradients of zero, so that only the mechanism's noise is learnt.

    ``n_reports`` counts the reports of each phone. ``diverged``: training has diverged, and Q keeps
    its last finite value.
    """

    def __init__(
        self,
        name: str,
        training: Training,
        app_vectors: Floats,
        start: Floats,
        regime: Regime,
        q_every: int,
        optimiser: Optimiser,
        source: Source,
        seed: int,
        *,
        empty: bool = False,
    ) -> None:
        if regime not in REGIMES:
            raise ValueError(f"regime must be one of {', '.join(REGIMES)}, got {regime!r}.")
        self.name = name
        self.training = training
        self.start = self.user_vectors = start
        self.regime = regime
        self.q_every = q_every
        self.source = source
        self.seed = seed
        self.empty = empty
        self.n_reports = np.zeros(len(start), np.int64)
        self.diverged = False
        self._waiting = np.zeros(len(start), bool)
        plain = mechanism("identity", n_apps=len(app_vectors), d=app_vectors.shape[1])
        reporting = plain if isinstance(source, str) else source
        self.server = SeqMFLearner(app_vectors, training.model, optimiser, reporting)

    def predictor(self, test: Exam) -> Predictor:
        del test
        predictor = SeqMF(self.training, self.seed, self.name)
        predictor.app_vectors = self.server.broadcast.app_vectors
        predictor.user_vectors = self.user_vectors
        return predictor

    def state(self) -> object:
        return id(self.server.broadcast.app_vectors), id(self.user_vectors)

    def update(self, end: CycleEnd) -> None:
        self._waiting |= end.active
        due = end.cycle % self.q_every == 0 and not end.is_last
        if due and self.source != FROZEN and not self.diverged:
            self._round(end)
        if due:
            self._waiting[:] = False
        if self.regime == "full" or (self.regime == "rare" and due):
            self.user_vectors = end.user_vectors(self.server.broadcast, self.start)

    def _round(self, end: CycleEnd) -> None:
        """One step on Q, eqs. (11) to (13)."""
        before = self.server.broadcast
        try:
            self._step(end)
        except FloatingPointError:
            self.diverged = True
        if np.abs(self.server.broadcast.app_vectors).max(initial=0.0) > _RUN_AWAY:
            self.diverged = True
            self.server.broadcast = replace(before, round=before.round + 1)

    def _step(self, end: CycleEnd) -> None:
        broadcast = self.server.broadcast
        if isinstance(self.source, str):
            take_step(self.server, zero_phones(broadcast))
            return
        estimate = self._sum(end, self.source, broadcast)
        take_step(self.server, estimate)
        if estimate is not None:
            self.n_reports += self._waiting

    def _sum(self, end: CycleEnd, source: Mechanism, broadcast: Broadcast) -> Floats | None:
        """The sum of the reports of all phones with launches since the last training."""
        fleet, user_vectors = end.fleet, self.user_vectors.copy()
        if self.empty:
            fleet, user_vectors[:] = Fleet.without_launches(len(fleet), fleet.n_apps), 0.0
        sums = sum_reports(
            fleet,
            broadcast,
            source,
            self.seed,
            user_vectors,
            self._waiting,
            law=self._waiting.sum() * source.D > _MOST_ENTRIES,
            solving=self.regime != "global" and not self.empty,
        )
        return estimate_sum(sums, source)


def start_vectors(n_users: int, training: Training, seed: int, how: str) -> Floats:
    """Initial user vectors: ``random``, or ``zero`` as in the authors' code."""
    if how == "zero":
        return np.zeros((n_users, training.dim))
    generator = KeyedBits(seed, purpose="p").generator()
    return generator.normal(0.0, training.scale, (n_users, training.dim))


def run_cycles(
    stream: CycleStream,
    models: Sequence[Model],
    wanted: Sequence[str],
    report: Progress = silent,
) -> Floats:
    """Run all models: (n_models, n_predicted_cycles, n_users, len(wanted)) means by user and cycle.

    NaN where a user has no prediction in a cycle.
    """
    n_users = stream.cycles.whole.n_users
    found = np.full((len(models), len(stream.predicted_cycles), n_users, len(wanted)), np.nan)
    for place, cycle in enumerate(stream.predicted_cycles):
        test = stream.exam(cycle)
        if test is not None:
            known: dict[object, Floats] = {}
            for number, model in enumerate(models):
                state = model.state()
                means = known.get(state) if state is not None else None
                if means is None:
                    values, _ = score_predictions(test, model.predictor(test), wanted)
                    means = user_means(test, values, test.within)
                    known[state] = means
                found[number, place, test.users] = means
        end = stream.end_of(cycle)
        for model in models:
            model.update(end)
        report("cycle", place + 1, len(stream.predicted_cycles))
    return found


@dataclass(frozen=True, eq=False)
class Courses:
    """The results of `run_cycles` by name: (n_seeds, n_cycles, n_users, n_wanted) each.

    A deterministic model has one seed. Means are over users, then over seeds. Intervals are a
    bootstrap over users and seeds together; all names share the same resamples, so differences are
    paired over users and seeds. With fewer than ten users cycles are drawn in place of users, and a
    single cycle has no interval. In place of users there may be their parts, with ``sizes``
    (n_parts,): means are sums over the sum of sizes.
    """

    by_user: Mapping[str, Floats]
    wanted: Sequence[str]
    seed: int
    sizes: Floats | None = None

    @property
    def intervals(self) -> str:
        """What intervals are over, in words."""
        over = f"the cycles of {count(self._shape[2], 'user')}" if self._is_few else "users"
        return f"95 %, paired bootstrap over {over} and seeds"

    @property
    def _shape(self) -> tuple[int, ...]:
        return next(iter(self.by_user.values())).shape

    @property
    def _is_few(self) -> bool:
        return self.sizes is None and self._shape[2] < FEWEST

    def curve(self, name: str, metric: str) -> Curve:
        """The metric by cycle."""
        drawn = self._drawn(name, metric)
        return Curve.of(self._means(name, metric), drawn * np.nan if self._is_few else drawn)

    def cumulative_lead(self, name: str, reference: str, metric: str) -> Curve:
        """The difference to the reference, summed over all cycles up to each."""
        means = self._means(name, metric) - self._means(reference, metric)
        drawn = self._drawn(name, metric) - self._drawn(reference, metric)
        return Curve.of(np.nancumsum(means), np.nancumsum(drawn * self._of_cycles, axis=1))

    def overall(self, name: str, metric: str, reference: str | None = None) -> Curve:
        """The mean over cycles of the metric, or of its difference to a reference: one point."""
        means, drawn = self._means(name, metric), self._drawn(name, metric)
        if reference is not None:
            means = means - self._means(reference, metric)
            drawn = drawn - self._drawn(reference, metric)
        weights = np.where(np.isnan(drawn), 0.0, self._of_cycles)
        with np.errstate(invalid="ignore"):
            over_cycles = np.nansum(drawn * weights, axis=1) / weights.sum(axis=1)
        return Curve.of(np.nanmean(means, keepdims=True), over_cycles[:, None])

    def differences(self, firsts: Collection[str] = ()) -> dict[str, Any]:
        """first − second, mean over the cycles, for these (or all) series and all metrics."""
        return {
            first: {
                second: {
                    metric: self.overall(first, metric, second).point() for metric in self.wanted
                }
                for second in self.by_user
                if second != first
            }
            for first in self.by_user
            if not firsts or first in firsts
        }

    @cached_property
    def _of_cycles(self) -> Floats:
        """(DRAWS, n_cycles): how often each cycle is in every resample; once, where users are."""
        if not self._is_few:
            return np.ones((DRAWS, self._shape[1]))
        return resample(KeyedBits(self.seed, purpose="cycles").generator(), self._shape[1])

    @cached_property
    def _weights(self) -> tuple[Floats, Floats]:
        """(DRAWS, n_users) and (DRAWS, n_seeds): how often each is in every resample."""
        n_seeds = max(len(values) for values in self.by_user.values())
        n_users = self._shape[2]
        users = KeyedBits(self.seed, purpose="boot").generator()
        seeds = KeyedBits(self.seed, purpose="seeds").generator()
        of_users = np.ones((DRAWS, n_users)) if self._is_few else resample(users, n_users)
        return of_users, resample(seeds, n_seeds)

    def _values(self, name: str, metric: str) -> Floats:
        return self.by_user[name][..., self.wanted.index(metric)]

    def _means(self, name: str, metric: str) -> Floats:
        """(n_cycles,)"""
        values = self._values(name, metric)
        there = ~np.isnan(values)
        with np.errstate(invalid="ignore"):
            by_seed = np.where(there, values, 0.0).sum(axis=2) / (there @ self._sizes)
        return np.asarray(by_seed.mean(axis=0))

    @cached_property
    def _sizes(self) -> Floats:
        return np.ones(self._shape[2]) if self.sizes is None else self.sizes

    @cached_property
    def _drawn_means(self) -> dict[tuple[str, str], Floats]:
        return {}

    def _drawn(self, name: str, metric: str) -> Floats:
        """(DRAWS, n_cycles)"""
        if (name, metric) not in self._drawn_means:
            users, seeds = self._weights
            sizes = self._sizes
            values = self._values(name, metric)
            n_seeds, n_cycles, _ = values.shape
            drawn = np.zeros((DRAWS, n_cycles))
            for cycle in range(n_cycles):
                there = np.flatnonzero(~np.isnan(values[0, cycle]))
                chosen = users[:, there]
                with np.errstate(invalid="ignore"):
                    means = chosen @ values[:, cycle, there].T / (chosen @ sizes[there])[:, None]
                shares = seeds / seeds.sum(axis=1)[:, None] if n_seeds > 1 else 1.0
                drawn[:, cycle] = (means * shares).sum(axis=1)
            self._drawn_means[name, metric] = drawn
        return self._drawn_means[name, metric]


class Curve(NamedTuple):
    """A value for every cycle, with its 95 % interval."""

    mean: Floats
    low: Floats
    high: Floats

    @classmethod
    def of(cls, mean: Floats, drawn: Floats) -> Curve:
        low, high = np.full((2, len(mean)), np.nan)
        there = ~np.isnan(drawn).all(axis=0)
        if there.any():
            low[there], high[there] = interval(drawn[:, there])
        return cls(mean, low, high)

    def point(self) -> dict[str, float]:
        """The only value of a curve of length 1, with its interval."""
        return {key: float(getattr(self, key)[0]) for key in self._fields}
