"""The dynamic experiment: regimes, models and privacy mechanisms, cycle by cycle."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any

import numpy as np

from nextapp.data import Cycles, Cycling, LaunchLog, collapsed, synthetic
from nextapp.evaluation import METRICS, preset_named
from nextapp.evaluation.dynamic import (
    FROZEN,
    REGIMES,
    ZERO,
    Courses,
    Curve,
    Federation,
    Model,
    Refitted,
    Regime,
    Schedule,
    Source,
    Stream,
    play,
    start_vectors,
)
from nextapp.fleet.clip import history_lengths, public_clips, public_seed
from nextapp.fleet.reporting import FLEET_MECHANISMS
from nextapp.learners import OPTIMISERS, random_vectors
from nextapp.names import unknown
from nextapp.predictors import Training, without_sequence
from nextapp.privacy import ShorterThan, private_quantile
from nextapp.progress import Progress, silent
from nextapp.randomness import KeyedBits
from nextapp.studies.mechanisms import NONE, simulated_mechanism
from nextapp.studies.rounds import LabSeqMF
from nextapp.studies.settings import (
    KNOWN,
    MF,
    Experiment,
    check_ceiling,
    settings_on_data,
    training_values,
    versions,
)
from nextapp.wire import Broadcast, Floats, Report

ZEROS = "/zeros"
CONTROLS = (NONE, FROZEN, ZERO)
PRIVATE = tuple(name for name in FLEET_MECHANISMS if name != "identity")
TRAINED = ("mf", "seqmf", "seqmf-frozen", "nextapp-taste", "nextapp-seqmf", "nextapp-directed")
"""Their figures depend on the seed."""
PRETRAINING = ("first", "all", "none")
STARTS = ("random", "zero")

_STAND_INS = 300
_QUANTILE_STEPS = 6


@dataclass(frozen=True)
class DynamicExperiment:
    """What to play on a log.

    ``cycles``
        ``cycles:33``, ``switches:9000`` or ``days``. Default: days for App Usage, else 33.
    ``q_every``, ``q_rounds``
        Q moves after every so many cycles asked for, by so many rounds. Default: every 2 for
        days, else every 10, and one round.
    ``regimes``, ``models``, ``mechanisms``
        What is played: regimes of SeqMF without privacy; models fitted anew each cycle; mechanisms
        in the regime Full, beside the controls none, frozen and zero. A mechanism reports with
        ``epsilon`` (default 1.1 for App Usage, else 4.5). Without mechanisms Full is always played.
    ``noise``
        Each mechanism also fed with zeros, as NAME/zeros: what its noise does by itself.
    ``clip``
        ``public``: the median length of the gradients of synthetic stand-ins, for each kind of
        ball; ``quantile:E``: a private median over the phones of the first cycle, each
        of which spends E on it; or a number.
    ``pretraining``
        Q before the stream: trained on the ``first`` cycle; on ``all`` data, as the authors did,
        which leaks the future (PAPER.md, R20); or ``none``, left at its random start. It is not
        private.
    ``start``
        User vectors before anything is learnt: ``random``, or ``zero`` (R21).
    ``update_optimiser``, ``update_rate``
        For the steps on Q in the stream, with a fresh state: by default plain descent, eq. (11).
    ``seeds``
        How many, counted from ``seed``: they change Q's and p's start and all bits, not the log.
    """

    data: str
    cycles: str = ""
    q_every: int = 0
    q_rounds: int = 1
    preset: str = "honest"
    regimes: tuple[Regime, ...] = REGIMES
    models: tuple[str, ...] = ("sr-od",)
    mechanisms: tuple[str, ...] = ()
    noise: bool = False
    epsilon: float = 0.0
    clip: str = "public"
    pretraining: str = "first"
    start: str = "random"
    update_optimiser: str = "sgd"
    update_rate: float = 0.003
    seeds: int = 1
    seed: int = 0
    metrics: tuple[str, ...] = ("HR@5",)
    seqmf: Training = Training()
    mf: Training = MF

    def __post_init__(self) -> None:
        weekly = is_app_usage(self.data)
        self._default("cycles", "days" if weekly else "cycles:33")
        self._default("q_every", 2 if self.cycles == "days" else 10)
        self._default("epsilon", 1.1 if weekly else 4.5)
        Cycling.parse(self.cycles)
        Schedule(self.q_every, self.q_rounds)
        preset_named(self.preset)
        named = tuple(name for name in self.mechanisms if name not in CONTROLS)
        object.__setattr__(self, "mechanisms", named)
        if not named and "full" not in self.regimes:  # what all others are compared with
            object.__setattr__(self, "regimes", ("full", *self.regimes))
        known: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
            ("regime", self.regimes, REGIMES),
            ("model", self.models, KNOWN),
            ("mechanism", self.mechanisms, PRIVATE),
            ("metric", self.metrics, METRICS),
            ("pretraining", (self.pretraining,), PRETRAINING),
            ("start", (self.start,), STARTS),
            ("optimiser", (self.update_optimiser,), tuple(OPTIMISERS)),
        )
        for kind, names, all_known in known:
            for name in names:
                if name not in all_known:
                    raise ValueError(unknown(kind, name, all_known))
            if len(set(names)) < len(names):
                raise ValueError(f"a {kind} can be played once, got {', '.join(names)}.")
        check_ceiling(self.models, self.data)
        if "HR@5" not in self.metrics:
            object.__setattr__(self, "metrics", ("HR@5", *self.metrics))
        if not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise ValueError(f"epsilon must be a finite number > 0, got {self.epsilon!r}.")
        if self.seeds < 1 or not 0 <= self.seed < (1 << 64) - self.seeds:
            raise ValueError(
                f"seeds must be 1 or more and seed from 0 to 2^64 - 1 - seeds, got "
                f"{self.seeds!r} and {self.seed!r}."
            )
        self.clip_rule()
        object.__setattr__(self, "mf", without_sequence(self.mf))

    def _default(self, name: str, value: object) -> None:
        if not getattr(self, name):
            object.__setattr__(self, name, value)

    def clip_rule(self) -> tuple[str, float]:
        """``public``, ``quantile`` with its ε, or ``constant`` with its value."""
        kind, _, number = self.clip.partition(":")
        if self.clip == "public":
            return "public", 0.0
        try:
            value = float(number if kind == "quantile" else self.clip)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and value > 0):
            raise ValueError(
                f"clip must be 'public', 'quantile:EPSILON' or a number > 0, got {self.clip!r}."
            )
        return ("quantile" if kind == "quantile" else "constant"), value

    def resolved(self) -> dict[str, Any]:
        """All settings as plain values, the form a TOML file takes."""
        values: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        for name in ("regimes", "models", "mechanisms", "metrics"):
            values[name] = list(values[name])
        for name in ("seqmf", "mf"):
            values[name] = training_values(values[name])
        return values


def is_app_usage(source: str) -> bool:
    """Whether the source is the App Usage trace or its twin, by its name."""
    return (
        source.startswith("synthetic:app-usage")
        or PurePath(source).name.lower() == "app_usage_trace.txt"
    )


def experiment_from(values: Mapping[str, Any]) -> DynamicExperiment:
    """A dynamic experiment from plain values, as a TOML file gives them."""
    return settings_on_data(DynamicExperiment, values)


@dataclass(frozen=True)
class Spent:
    """What the phones gave of their budget: ε a report, times the reports of a phone.

    ``worst`` is the phone that gave most, ``mean`` that over phones that gave any, over all seeds;
    None where there is no bound. ``cosine`` is that of the estimated to the true sum of gradients,
    and ``q_moved`` how far Q came from its pre-trained start, both as means.
    """

    epsilon: float | None
    worst: float | None
    mean: float | None
    n_rounds: int
    clip: float | None
    clip_epsilon: float
    cosine: float | None
    q_moved: float
    promise: str


@dataclass(frozen=True, eq=False)
class DynamicResult:
    """A finished experiment."""

    experiment: DynamicExperiment
    log: LaunchLog
    cycles: Cycles
    courses: Courses
    spent: Mapping[str, Spent]
    seeds: Mapping[str, tuple[int, ...]]

    def reference(self, name: str) -> str:
        """What a series is compared with: none for mechanisms and controls, else Full."""
        private = name.removesuffix(ZEROS) in (*self.experiment.mechanisms, *CONTROLS)
        return NONE if private or "full" not in self.courses.by_user else "full"

    def as_json(self) -> dict[str, Any]:
        experiment, courses = self.experiment, self.courses
        names = list(courses.by_user)
        asked = (~np.isnan(courses.by_user[names[0]][0, :, :, 0])).sum(axis=1)
        return {
            "data": {
                "source": experiment.data,
                "n_users": self.log.n_users,
                "n_apps": self.log.n_apps,
                "n_launches": len(self.log),
                "notes": list(self.cycles.whole.notes),
            },
            "cycles": [
                {
                    "number": part.number,
                    "from": _iso(part.first),
                    "to": _iso(part.last),
                    "n_users": part.n_users,
                    "n_sessions": part.n_sessions,
                    "n_launches": part.n_launches,
                    "n_switches": part.n_switches,
                    "n_users_asked": int(asked[part.number - 2]) if part.number > 1 else 0,
                }
                for part in self.cycles.parts
            ],
            "evaluated": [part.number for part in self.cycles.parts[1:]],
            "q_moves_after": [
                cycle + 1
                for cycle in range(1, len(self.cycles) - 1)
                if cycle % experiment.q_every == 0
            ],
            "series": {name: self._series(name) for name in names},
            "differences": {
                first: {
                    second: {
                        metric: _point(courses.overall(first, metric, second))
                        for metric in courses.wanted
                    }
                    for second in names
                    if second != first
                }
                for first in names
            },
            "intervals": "95 %, users and seeds drawn with replacement, both at once; paired",
            "settings": experiment.resolved(),
            "seed": experiment.seed,
            "versions": versions(),
        }

    def _series(self, name: str) -> dict[str, Any]:
        courses = self.courses
        reference = self.reference(name)
        delta = courses.cumulated(name, reference, "HR@5")
        spent = self.spent.get(name)
        return {
            **{metric: _curve(courses.curve(name, metric)) for metric in courses.wanted},
            "over_cycles": {
                metric: _point(courses.overall(name, metric)) for metric in courses.wanted
            },
            "delta": {"reference": reference, **_curve(delta)},
            "epsilon_spent": spent.worst if spent else None,
            "privacy": {each.name: getattr(spent, each.name) for each in fields(Spent)}
            if spent
            else None,
            "seeds": list(self.seeds[name]),
        }


def run(
    experiment: DynamicExperiment,
    log: LaunchLog,
    report: Progress = silent,
) -> DynamicResult:
    """Play everything the experiment names on the log. `report` hears what is done, and how far."""
    preset = preset_named(experiment.preset)
    whole = collapsed(log, inclusive=preset.collapse_inclusive)
    cycles = Cycling.parse(experiment.cycles).cut(whole)
    stream = Stream(cycles, preset)
    counting = [name for name in experiment.models if name not in TRAINED]  # one seed is enough
    trained = [name for name in experiment.models if name in TRAINED]
    players = [(experiment.seed, each) for each in _refitted(experiment, counting, experiment.seed)]
    clip_of: dict[tuple[str, int], float] = {}
    answered = np.zeros(whole.n_users, bool)
    for number in range(experiment.seeds):
        seed = experiment.seed + number
        report("pre-training", number, experiment.seeds)
        app_vectors = _pretrained(experiment, cycles, seed)
        start = start_vectors(whole.n_users, experiment.seqmf, seed, experiment.start)
        made = functools.partial(_federation, experiment, app_vectors, start, seed)
        mechanism_named = functools.partial(
            simulated_mechanism, epsilon=experiment.epsilon, n_apps=len(app_vectors),
            d=app_vectors.shape[1],
        )  # fmt: skip
        plain = mechanism_named(NONE, clips=1.0)
        players += [(seed, made(regime, regime, plain)) for regime in experiment.regimes]
        if experiment.mechanisms:
            broadcast = Broadcast(0, app_vectors, experiment.seqmf.model)
            clips = _clips(experiment, broadcast, cycles, seed, answered)
            controls: dict[str, Source] = {NONE: plain, FROZEN: FROZEN, ZERO: ZERO}
            players += [(seed, made(name, "full", each)) for name, each in controls.items()]
            for name in experiment.mechanisms:
                source = mechanism_named(name, clips=clips)
                clip_of[name, seed] = source.clip
                players.append((seed, made(name, "full", source)))
                if experiment.noise:
                    alone = made(name + ZEROS, "full", source, fed_with_zeros=True)
                    players.append((seed, alone))
        players += [(seed, each) for each in _refitted(experiment, trained, seed)]
    models = [model for _, model in players]
    values = play(stream, models, experiment.metrics, report)
    by_name: dict[str, list[int]] = {}
    for place, model in enumerate(models):
        by_name.setdefault(model.name, []).append(place)
    return DynamicResult(
        experiment,
        log,
        cycles,
        Courses(
            {name: values[places] for name, places in by_name.items()},
            experiment.metrics,
            experiment.seed,
        ),
        {
            name: _spent(experiment, [models[place] for place in places], clip_of, answered)
            for name, places in by_name.items()
            if experiment.mechanisms and (name in experiment.mechanisms or name in CONTROLS)
        },
        {name: tuple(players[place][0] for place in places) for name, places in by_name.items()},
    )


def _refitted(experiment: DynamicExperiment, names: Sequence[str], seed: int) -> list[Model]:
    """These models of the static environment, fitted anew each cycle."""
    if not names:
        return []
    static = Experiment(
        experiment.data, models=tuple(names), seed=seed, seqmf=experiment.seqmf, mf=experiment.mf
    )
    return [Refitted(predictor) for predictor in static.predictors()]


def _pretrained(experiment: DynamicExperiment, cycles: Cycles, seed: int) -> Floats:
    training = experiment.seqmf
    if experiment.pretraining == "none":
        generator = KeyedBits(seed, purpose="Q").generator()
        return random_vectors(cycles.whole.n_apps, training.dim, training.scale, generator)
    seen = cycles.before(1) if experiment.pretraining == "first" else cycles.whole
    model = LabSeqMF(training, seed)
    model.fit(seen)
    return model.app_vectors


def _federation(
    experiment: DynamicExperiment,
    app_vectors: Floats,
    start: Floats,
    seed: int,
    name: str,
    regime: Regime,
    source: Source,
    *,
    fed_with_zeros: bool = False,
) -> Federation:
    return Federation(
        name,
        experiment.seqmf,
        app_vectors,
        start,
        regime,
        Schedule(experiment.q_every, experiment.q_rounds),
        OPTIMISERS[experiment.update_optimiser](experiment.update_rate),
        source,
        seed,
        fed_with_zeros=fed_with_zeros,
    )


def _clips(
    experiment: DynamicExperiment,
    broadcast: Broadcast,
    cycles: Cycles,
    seed: int,
    answered: np.ndarray[tuple[int], np.dtype[np.bool_]],
) -> float | dict[str, float]:
    """The clip, or that of each kind of ball, by the experiment's rule; marks who answered."""
    kind, value = experiment.clip_rule()
    if kind == "constant":
        return value
    if kind == "public":
        twin = synthetic.APP_USAGE if is_app_usage(experiment.data) else synthetic.LSAPP
        population = replace(twin, phones=_STAND_INS, apps=max(2, broadcast.n_apps))
        return public_clips(population, public_seed(seed), broadcast)
    known = cycles.before(1)
    answered[np.flatnonzero(np.diff(known.starts))] = True
    lengths = history_lengths(known.starts.tolist(), known.app, broadcast)
    return {ball: _private_median(each, value, seed) for ball, each in lengths.items()}


def _private_median(lengths: Floats, epsilon: float, seed: int) -> float:
    """docs/privacy/clip.md: every phone answers in one step, so it spends `epsilon` once."""
    order = KeyedBits(seed, purpose="clip").generator().permutation(len(lengths))
    answer = ShorterThan(epsilon)

    def ask(step: int, threshold: float) -> list[Report]:
        return [
            answer.encode(lengths[phone], threshold, KeyedBits(seed, phone, step, "clip"), step)
            for phone in order[step::_QUANTILE_STEPS].tolist()
        ]

    return private_quantile(
        ask, epsilon=epsilon, quantile=0.5, low=1e-3, high=1e2, steps=_QUANTILE_STEPS
    ).value


def _spent(
    experiment: DynamicExperiment,
    models: list[Model],
    clips: Mapping[tuple[str, int], float],
    answered: np.ndarray[tuple[int], np.dtype[np.bool_]],
) -> Spent:
    federations = [model for model in models if isinstance(model, Federation)]
    first = federations[0]
    cosines = [cosine for each in federations for cosine in each.cosines]
    found = Spent(
        epsilon=0.0,
        worst=0.0,
        mean=0.0,
        n_rounds=int(first.server.broadcast.round),
        clip=None,
        clip_epsilon=0.0,
        cosine=float(np.mean(cosines)) if cosines else None,
        q_moved=float(np.mean([each.distance for each in federations])),
        promise="no phone reports anything",
    )
    if isinstance(first.source, str):
        return found
    guarantee = first.source.guarantee
    if not math.isfinite(guarantee.epsilon) or first.source.unsafe:
        clear = ", ".join(guarantee.sent_in_clear) or "the gradient"
        promise = f"not private: in the clear {clear}"
        return replace(found, epsilon=None, worst=None, mean=None, promise=promise)
    kind, value = experiment.clip_rule()
    extra = value if kind == "quantile" else 0.0
    totals = np.concatenate(
        [each.n_reports * guarantee.epsilon + extra * answered for each in federations]
    )
    own = [clip for (name, _), clip in clips.items() if name == first.name]
    before = "; Q was pre-trained without privacy" if experiment.pretraining != "none" else ""
    return replace(
        found,
        epsilon=guarantee.epsilon,
        worst=float(totals.max()),
        mean=float(totals[totals > 0].mean()) if totals.any() else 0.0,
        clip=float(np.mean(own)),
        clip_epsilon=extra,
        promise=f"{guarantee.epsilon:g}-LDP a report{before}",
    )


def _curve(curve: Curve) -> dict[str, list[float | None]]:
    return {
        key: [None if math.isnan(value) else float(value) for value in getattr(curve, key)]
        for key in Curve._fields
    }


def _point(curve: Curve) -> dict[str, float]:
    return {key: float(getattr(curve, key)[0]) for key in Curve._fields}


def _iso(time: int) -> str:
    return datetime.fromtimestamp(time / 1000, UTC).isoformat(timespec="seconds")
