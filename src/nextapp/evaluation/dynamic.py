"""The dynamic environment: predict a cycle, then learn from it, cycle after cycle.

The first cycle pre-trains Q and is not asked for. Of every later cycle the launches are predicted
first, with what was known before it; then the phones and the server may learn from it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple, Protocol, cast

import numpy as np

from nextapp.data.cycles import Cycles
from nextapp.evaluation.intervals import DRAWS, interval, resample
from nextapp.evaluation.presets import Preset
from nextapp.evaluation.revealing import Exam, FirstLaunches, exam_on
from nextapp.evaluation.static import answered, user_means
from nextapp.fleet.columns import Fleet, Mask
from nextapp.fleet.reporting import sum_reports
from nextapp.fleet.rounds import ReportSum, estimated_sum, play_round, zero_phones
from nextapp.fleet.stepping import solve_user_vectors
from nextapp.fleet.sum_law import cheapest_mode
from nextapp.learners import Optimiser, SeqMFLearner
from nextapp.predictors import Predictor, SeqMF, Training
from nextapp.privacy import Mechanism, mechanism
from nextapp.progress import Progress, silent
from nextapp.randomness import KeyedBits
from nextapp.wire import Broadcast, Floats

Regime = Literal["full", "rare", "global"]
REGIMES: tuple[Regime, ...] = ("full", "rare", "global")
FROZEN: Literal["frozen"] = "frozen"
ZERO: Literal["zero"] = "zero"
Source = Mechanism | Literal["frozen", "zero"]

_MOST_ENTRIES = 10_000_000  # of all reports of a round, up to which their bits are played


@dataclass(frozen=True, eq=False)
class Stream:
    """A log in cycles and the exams on them; all cycles but the first are asked for.

    The preset's ``history`` is what lies in the cycles before the one at hand (PAPER.md, R9): with
    ``history+target`` the user's apps in it compete, with ``so-far`` those launched before the very
    moment, with ``whole`` also those of later cycles, as the text has it.
    """

    cycles: Cycles
    preset: Preset

    def __post_init__(self) -> None:
        if len(self.cycles) < 2:
            raise ValueError(
                f"a dynamic environment needs two cycles or more, one to learn from and one to "
                f"predict; {self.cycles.how} gives {len(self.cycles)}."
            )

    @property
    def asked(self) -> range:
        return range(1, len(self.cycles))

    @cached_property
    def _first_launches(self) -> FirstLaunches:
        return FirstLaunches.of(self.cycles.whole)

    def exam(self, cycle: int) -> Exam | None:
        """What is asked in a cycle; None where no session has two launches."""
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

    def moment(self, cycle: int) -> Moment:
        launches = self.cycles.before(cycle + 1)
        active = np.zeros(launches.n_users, bool)
        active[self.cycles.whole.user[self.cycles.cycle == cycle]] = True
        return Moment(cycle, Fleet.of_log(launches), active, cycle == len(self.cycles) - 1)


@dataclass(frozen=True, eq=False)
class Moment:
    """The end of a cycle: all phones with their launches so far, and which of them were active."""

    cycle: int
    fleet: Fleet
    active: Mask
    is_last: bool
    _solved: dict[tuple[int, int], tuple[object, ...]] = field(default_factory=dict)

    def user_vectors(self, broadcast: Broadcast, start: Floats) -> Floats:
        """Those of all phones solved against a broadcast, eq. (10).

        A phone that has launched nothing keeps its row of `start`.
        """
        key = (id(broadcast.app_vectors), id(start))
        if key not in self._solved:
            launched = np.diff(self.fleet.app_starts) > 0
            vectors = solve_user_vectors(self.fleet, broadcast, start, launched)
            self._solved[key] = (vectors, broadcast.app_vectors, start)  # kept: ids stay unique
        return cast(Floats, self._solved[key][0])


class Model(Protocol):
    """What can be played on a stream."""

    @property
    def name(self) -> str: ...

    def predictor(self, test: Exam) -> Predictor:
        """Ready to answer the exam; it has seen nothing of the cycle asked for."""
        ...

    def state(self) -> object:
        """Models with equal states that are not None answer alike, so one needs not be asked."""
        ...

    def update(self, moment: Moment) -> None:
        """Learn from the cycle that is over."""
        ...


class Refitted:
    """A predictor that is fitted anew before each cycle, on all launches before it."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor
        self.name = predictor.name

    def predictor(self, test: Exam) -> Predictor:
        self._predictor.fit(test.history)
        return self._predictor

    def state(self) -> object:
        return None

    def update(self, moment: Moment) -> None:
        """Nothing: the next fit sees it."""


@dataclass(frozen=True)
class Schedule:
    """When Q moves: after every ``q_every`` cycles asked for, by ``q_rounds`` rounds.

    Not after the last cycle, as nothing would be measured by it. The phones that launched
    anything since Q moved last take part, with their whole history.
    """

    q_every: int
    q_rounds: int = 1

    def __post_init__(self) -> None:
        for name in ("q_every", "q_rounds"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, got {getattr(self, name)!r}.")

    def is_due(self, moment: Moment) -> bool:
        return moment.cycle % self.q_every == 0 and not moment.is_last


class Federation:
    """SeqMF on the phones of a stream; what is updated when is the regime's affair.

        full     user vectors every cycle
        rare     user vectors with Q only
        global   user vectors never: they stay as they started

    Parameters
    ----------
    app_vectors
        Q as pre-trained.
    start
        (n_users, d), user vectors before anything is learnt.
    source
        What moves Q: a mechanism through which the phones report; ``frozen``, nothing; or
        ``zero``, the same steps along a gradient of zero, so that λQ and the optimiser act alone.
    fed_with_zeros
        Every phone reports a gradient of zero: what is left is the mechanism's noise.

    ``n_reports`` counts those of each phone; ``cosines`` has one a round, of the estimated sum
    of gradients to the true one after the clip, which only a simulation can know.
    """

    def __init__(
        self,
        name: str,
        training: Training,
        app_vectors: Floats,
        start: Floats,
        regime: Regime,
        schedule: Schedule,
        optimiser: Optimiser,
        source: Source,
        seed: int,
        *,
        fed_with_zeros: bool = False,
    ) -> None:
        if regime not in REGIMES:
            raise ValueError(f"regime must be one of {', '.join(REGIMES)}, got {regime!r}.")
        self.name = name
        self.training = training
        self.start = self.user_vectors = start
        self.regime = regime
        self.schedule = schedule
        self.source = source
        self.seed = seed
        self.fed_with_zeros = fed_with_zeros
        self.n_reports = np.zeros(len(start), np.int64)
        self.cosines: list[float] = []
        self._first_vectors = app_vectors
        self._waiting = np.zeros(len(start), bool)
        plain = mechanism("identity", n_apps=len(app_vectors), d=app_vectors.shape[1])
        asked = plain if isinstance(source, str) else source
        self.server = SeqMFLearner(app_vectors, training.model, optimiser, asked)

    def predictor(self, test: Exam) -> Predictor:
        del test
        predictor = SeqMF(self.training, self.seed, self.name)
        predictor.app_vectors = self.server.broadcast.app_vectors
        predictor.user_vectors = self.user_vectors
        return predictor

    def state(self) -> object:
        return id(self.server.broadcast.app_vectors), id(self.user_vectors)

    def update(self, moment: Moment) -> None:
        self._waiting |= moment.active
        due = self.schedule.is_due(moment)
        if due and self.source != FROZEN:
            for _ in range(self.schedule.q_rounds):
                self._round(moment)
        if due:
            self._waiting[:] = False
        if self.regime == "full" or (self.regime == "rare" and due):
            self.user_vectors = moment.user_vectors(self.server.broadcast, self.start)

    def _round(self, moment: Moment) -> None:
        """One step on Q, eqs. (11) to (13)."""
        if isinstance(self.source, str):
            play_round(self.server, zero_phones)
            return
        told = play_round(self.server, functools.partial(self._sum, moment, self.source))
        if told.estimate is not None:
            self.n_reports += self._waiting
        if told.cosine is not None:
            self.cosines.append(told.cosine)

    def _sum(self, moment: Moment, source: Mechanism, broadcast: Broadcast) -> ReportSum:
        """The reports of the phones that wait for their turn."""
        fleet = moment.fleet
        if self.fed_with_zeros:
            fleet = Fleet.without_launches(len(fleet), fleet.n_apps)
        sum_up = functools.partial(
            sum_reports,
            fleet,
            broadcast,
            source,
            self.seed,
            self.user_vectors.copy(),
            self._waiting,
            solving=self.regime != "global",
        )
        sums = sum_up(mode=self._mode(source))
        try:
            return ReportSum(estimated_sum(sums, source), sums)
        except np.linalg.LinAlgError:  # few phones and an odd Q: the law's covariance is singular
            sums = sum_up(mode="exact")
            return ReportSum(estimated_sum(sums, source), sums)

    @property
    def distance(self) -> float:
        """How far Q has come from its start, in units of the length it had there."""
        start = self._first_vectors
        moved = np.linalg.norm(self.server.broadcast.app_vectors - start)
        return float(moved / np.linalg.norm(start))

    def _mode(self, source: Mechanism) -> str:
        """Every bit where that is quick, else the law of the sum where there is one."""
        quick = self._waiting.sum() * source.D <= _MOST_ENTRIES
        return "exact" if quick else cheapest_mode(source.name)


def start_vectors(n_users: int, training: Training, seed: int, how: str) -> Floats:
    """User vectors before anything is learnt: ``random``, or ``zero`` as the authors had them."""
    if how == "zero":
        return np.zeros((n_users, training.dim))
    generator = KeyedBits(seed, purpose="p").generator()
    return generator.normal(0.0, training.scale, (n_users, training.dim))


def play(
    stream: Stream,
    models: Sequence[Model],
    wanted: Sequence[str],
    report: Progress = silent,
) -> Floats:
    """(n_models, n_cycles asked for, n_users, n_wanted): each user's means, cycle by cycle.

    nan where nothing was asked of a user.
    """
    n_users = stream.cycles.whole.n_users
    found = np.full((len(models), len(stream.asked), n_users, len(wanted)), np.nan)
    for place, cycle in enumerate(stream.asked):
        test = stream.exam(cycle)
        if test is not None:
            known: dict[object, Floats] = {}
            for number, model in enumerate(models):
                state = model.state()
                means = known.get(state) if state is not None else None
                if means is None:
                    values = answered(test, model.predictor(test), wanted)
                    means = user_means(test, values, np.ones(len(values), bool))
                    known[state] = means
                found[number, place, test.users] = means
        moment = stream.moment(cycle)
        for model in models:
            model.update(moment)
        report("cycle", place + 1, len(stream.asked))
    return found


@dataclass(frozen=True, eq=False)
class Courses:
    """What `play` found, by name: (n_seeds, n_cycles, n_users, n_wanted) each.

    A model that draws nothing has one seed. The means are over users, then over seeds. The
    intervals come from drawing users and seeds with replacement, both at once; the same draws
    serve all names, so differences are paired over users and seeds.
    """

    by_user: Mapping[str, Floats]
    wanted: Sequence[str]
    seed: int

    def curve(self, name: str, metric: str) -> Curve:
        """The metric of every cycle."""
        return Curve.of(self._means(name, metric), self._drawn(name, metric))

    def cumulated(self, name: str, reference: str, metric: str) -> Curve:
        """How far the name is ahead of the reference, summed over the cycles up to each."""
        means = self._means(name, metric) - self._means(reference, metric)
        drawn = self._drawn(name, metric) - self._drawn(reference, metric)
        return Curve.of(np.nancumsum(means), np.nancumsum(drawn, axis=1))

    def overall(self, name: str, metric: str, reference: str | None = None) -> Curve:
        """The mean over all cycles, or that of the difference to a reference: one point."""
        means, drawn = self._means(name, metric), self._drawn(name, metric)
        if reference is not None:
            means = means - self._means(reference, metric)
            drawn = drawn - self._drawn(reference, metric)
        return Curve.of(np.nanmean(means, keepdims=True), np.nanmean(drawn, axis=1, keepdims=True))

    @cached_property
    def _weights(self) -> tuple[Floats, Floats]:
        """(DRAWS, n_users) and (DRAWS, n_seeds): how often each is drawn."""
        n_seeds = max(len(values) for values in self.by_user.values())
        n_users = next(iter(self.by_user.values())).shape[2]
        users = KeyedBits(self.seed, purpose="boot").generator()
        seeds = KeyedBits(self.seed, purpose="seeds").generator()
        return resample(users, n_users), resample(seeds, n_seeds)

    def _values(self, name: str, metric: str) -> Floats:
        return self.by_user[name][..., self.wanted.index(metric)]

    def _means(self, name: str, metric: str) -> Floats:
        """(n_cycles,)"""
        values = self._values(name, metric)
        there = ~np.isnan(values)
        with np.errstate(invalid="ignore"):
            by_seed = np.where(there, values, 0.0).sum(axis=2) / there.sum(axis=2)
        return np.asarray(by_seed.mean(axis=0))

    @cached_property
    def _drawn_means(self) -> dict[tuple[str, str], Floats]:
        return {}

    def _drawn(self, name: str, metric: str) -> Floats:
        """(DRAWS, n_cycles)"""
        if (name, metric) not in self._drawn_means:
            users, seeds = self._weights
            values = self._values(name, metric)
            n_seeds, n_cycles, _ = values.shape
            drawn = np.zeros((DRAWS, n_cycles))
            for cycle in range(n_cycles):
                there = np.flatnonzero(~np.isnan(values[0, cycle]))
                chosen = users[:, there]
                with np.errstate(invalid="ignore"):
                    means = chosen @ values[:, cycle, there].T / chosen.sum(axis=1)[:, None]
                shares = seeds / seeds.sum(axis=1)[:, None] if n_seeds > 1 else 1.0
                drawn[:, cycle] = (means * shares).sum(axis=1)
            self._drawn_means[name, metric] = drawn
        return self._drawn_means[name, metric]


class Curve(NamedTuple):
    """A figure for every cycle, with its 95 % interval."""

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
