"""The dynamic experiment: regimes, models and privacy mechanisms, cycle by cycle."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any

import numpy as np

from nextapp.data import synthetic
from nextapp.data.cutting import Cycles, Cycling, launches_in_window
from nextapp.data.log import LaunchLog
from nextapp.evaluation import METRICS, find_preset
from nextapp.evaluation.dynamic_environment import (
    FROZEN,
    REGIMES,
    ZERO,
    Courses,
    Curve,
    CycleStream,
    FederatedSeqMF,
    Model,
    Refitted,
    Regime,
    Source,
    run_cycles,
    start_vectors,
)
from nextapp.evaluation.revealing import Mask
from nextapp.evaluation.seqmf import SeqMF
from nextapp.evaluation.static import build_model
from nextapp.fleet.rounds import public_clips, public_seed
from nextapp.learners import sgd, starting_vectors
from nextapp.predictors import FEDERATED, known_and_own
from nextapp.predictors.training import MF, Training, without_sequence
from nextapp.privacy import Mechanism
from nextapp.progress import Progress, silent
from nextapp.randomness import KeyedBits
from nextapp.settings import setting
from nextapp.studies.experiment import (
    about_log,
    check_ceiling,
    check_names,
    plain_values,
    versions,
)
from nextapp.studies.mechanisms import FORMS, NOISE, NONE, mechanism_for_simulation
from nextapp.wire import Broadcast, Floats

CONTROLS = (NONE, FROZEN, ZERO)
PRIVATE = tuple(FORMS)
_WITH_NOISE = (*PRIVATE, *(f"{name}{NOISE}" for name in PRIVATE))
PRETRAINING = ("first", "all", "none")
STARTS = ("random", "zero")

_PUBLIC_PHONES = 300
WIDENINGS = 2  # times that rates ten times further are tried, where the best is at the edge
_COUNTS = ("n_users", "n_sessions", "n_launches")
_COMPARED = "What is compared"  # headings of options
_UPDATES = "Updates of the app vectors Q"


@dataclass(frozen=True)
class DynamicExperiment:
    """What to run on a log.

    ``cycles`` are those of `Cycling`; the first is not predicted. By default they have equal
    numbers of active users, and 7 are predicted for App Usage and 33 otherwise, as in the paper's
    figures. ``regimes`` are of SeqMF without privacy, ``models`` are refitted each cycle, and
    ``mechanisms`` of `FORMS` are run in the regime Full with the controls none, frozen and zero; a
    name that ends in -noise is the control of that mechanism by its own noise. Without mechanisms
    Full is always run.

    The clip is the median length of the gradients of public synthetic phones, for each kind of
    ball. ``pretraining`` is not private; on all data, as the authors did, it also leaks the future
    (PAPER.md, R20). ``start``: PAPER.md, R21. ``update_rate`` is of the steps on Q after
    pre-training, plain gradient descent, eq. (11). From several ``rates`` one is chosen for every
    mechanism and control: the users are split into two halves, and each half is measured at the
    rate that was best on the other; where that is the smallest or the largest, rates beyond it are
    tried too (`WIDENINGS`). ``window`` is the t of the paper's H_u^(t). Seeds change the initial Q
    and p and all random bits, not the log.
    """

    data: str
    cycles: str = setting(
        "",
        "N cycles of equally many active users, or days. Default: 34; 8 for App Usage.",
        metavar="HOW",
    )
    q_every: int = setting(
        0,
        "Cycles between updates. Default: 10; App Usage, days: 2.",
        least=1,
        heading=_UPDATES,
    )
    preset: str = setting("honest", "How to count: authors, paper or honest.", metavar="NAME")
    regimes: tuple[Regime, ...] = setting(
        REGIMES,
        "Of full, rare and global; '' for none. Default: all.",
        metavar="NAMES",
        heading=_COMPARED,
    )
    models: tuple[str, ...] = setting(
        ("sr-od",), "Models, as in evaluate.", metavar="NAMES", heading=_COMPARED
    )
    mechanisms: tuple[str, ...] = setting(
        (),
        "Such as harmony,walsh, or all. Default: none.",
        metavar="NAMES",
        heading=_COMPARED,
    )
    epsilon: float = setting(
        0.0, "ε of one report. Default: 4.5; 1.1 for App Usage.", heading=_UPDATES
    )
    pretraining: str = setting(
        "first",
        "Q is trained before on first (cycle), all (as the authors did) or none.",
        metavar="ON",
    )
    start: str = setting("random", "First user vectors: random or zero.", metavar="HOW")
    update_rate: float = 0.003
    rates: tuple[float, ...] = setting(
        (),
        "Several: each mechanism takes its best. Default: 0.003.",
        metavar="RATES",
        heading=_UPDATES,
    )
    window: float = setting(
        0.0, "Learn from the last DAYS of a phone. Default: all.", metavar="DAYS"
    )
    seeds: int = setting(1, "Number of seeds, from --seed on.", least=1)
    seed: int = setting(0, "Random seed.")
    metrics: tuple[str, ...] = setting(
        ("HR@5",), "Such as HR@1,NDCG@5, or all.", metavar="NAMES", heading=_COMPARED
    )
    seqmf: Training = Training()
    mf: Training = MF

    def __post_init__(self) -> None:
        weekly = is_app_usage(self.data)
        self._default("cycles", "users:8" if weekly else "users:34")
        self._default("q_every", 2 if weekly or self.cycles == "days" else 10)
        self._default("epsilon", 1.1 if weekly else 4.5)
        Cycling.parse(self.cycles)
        if self.q_every < 1:
            raise ValueError(f"q_every must be 1 or more, got {self.q_every!r}.")
        if find_preset(self.preset).average == "prediction":
            raise ValueError(
                f"preset {self.preset} weighs users by their predictions, which differ from cycle "
                f"to cycle: use authors, paper or honest."
            )
        named = tuple(name for name in self.mechanisms if name not in CONTROLS)
        object.__setattr__(self, "mechanisms", named)
        if not named and "full" not in self.regimes:  # the reference of all other series
            object.__setattr__(self, "regimes", ("full", *self.regimes))
        check_names("regime", self.regimes, REGIMES)
        check_names("model", self.models, known_and_own(self.models))
        check_names("mechanism", self.mechanisms, _WITH_NOISE)
        check_names("metric", self.metrics, METRICS)
        check_names("pretraining", (self.pretraining,), PRETRAINING)
        check_names("start", (self.start,), STARTS)
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
        if any(not (math.isfinite(rate) and rate > 0) for rate in self.rates):
            raise ValueError(f"rates must be finite numbers > 0, got {self.rates!r}.")
        if len(set(self.rates)) < len(self.rates):
            raise ValueError(f"every rate may be named once, got {self.rates!r}.")
        if not (math.isfinite(self.window) and self.window >= 0):
            raise ValueError(f"window must be a number of days >= 0, got {self.window!r}.")
        object.__setattr__(self, "mf", without_sequence(self.mf))

    def _default(self, name: str, value: object) -> None:
        if not getattr(self, name):
            object.__setattr__(self, name, value)


def is_app_usage(source: str) -> bool:
    """Whether the name of the source is that of the App Usage trace or its twin."""
    return (
        source.startswith("synthetic:app-usage")
        or PurePath(source).name.lower() == "app_usage_trace.txt"
    )


@dataclass(frozen=True, eq=False)
class DynamicResult:
    """A finished experiment.

    By series, ``privacy`` has what `_privacy` returns, and ``chosen`` the rates chosen on the first
    and on the second half of the users. ``at_rate`` has the series of the first seed that were run
    at a rate.
    """

    experiment: DynamicExperiment
    log: LaunchLog
    cycles: Cycles
    courses: Courses
    privacy: Mapping[str, Mapping[str, Any]]
    seeds: Mapping[str, tuple[int, ...]]
    chosen: Mapping[str, tuple[float, float]]
    at_rate: Mapping[float, Courses]

    def as_json(self) -> dict[str, Any]:
        experiment, courses = self.experiment, self.courses
        names = list(courses.by_user)
        asked = (~np.isnan(courses.by_user[names[0]][0, :, :, 0])).sum(axis=1)
        return {
            "data": about_log(experiment.data, self.cycles.whole, self.log),
            "cycles": [
                {
                    "number": part.number,
                    "from": _iso(part.first),
                    "to": _iso(part.last),
                    **{name: getattr(part, name) for name in _COUNTS},
                }
                for part in self.cycles.parts
            ],
            "n_users": int(asked.max()),
            "evaluated": [part.number for part in self.cycles.parts[1:]],
            "q_moves_after": [
                cycle + 1
                for cycle in range(1, len(self.cycles) - 1)
                if cycle % experiment.q_every == 0
            ],
            "series": {name: self._series(name) for name in names},
            "differences": courses.differences(),
            "rates": self._rates(),
            "intervals": courses.intervals,
            "settings": plain_values(experiment),
            "seed": experiment.seed,
            "versions": versions(),
        }

    def _rates(self) -> dict[str, Any] | None:
        """The rates chosen for each series, and the gain in HR@5 of every rate over frozen Q.

        The gain is None at a rate that the series was not run at.
        """

        def gains(name: str) -> list[dict[str, float] | None]:
            return [
                courses.overall(name, "HR@5", FROZEN).point() if name in courses.by_user else None
                for courses in self.at_rate.values()
            ]

        def is_at_edge(name: str, pair: tuple[float, float]) -> bool:
            tried = [rate for rate, courses in self.at_rate.items() if name in courses.by_user]
            return name != FROZEN and not {tried[0], tried[-1]}.isdisjoint(pair)

        series = {
            name: {
                "chosen": list(pair),
                "at_edge": is_at_edge(name, pair),
                "over_frozen": gains(name),
            }
            for name, pair in self.chosen.items()
        }
        return {"tried": list(self.at_rate), "series": series} if series else None

    def _series(self, name: str) -> dict[str, Any]:
        courses = self.courses
        private = name in (*self.experiment.mechanisms, *CONTROLS)
        reference = NONE if private or "full" not in courses.by_user else "full"
        delta = courses.cumulative_lead(name, reference, "HR@5")
        privacy = self.privacy.get(name)
        return {
            **{metric: _curve(courses.curve(name, metric)) for metric in courses.wanted},
            "over_cycles": {
                metric: courses.overall(name, metric).point() for metric in courses.wanted
            },
            "delta": {"reference": reference, **_curve(delta)},
            "epsilon_spent": privacy["worst"] if privacy else None,
            "privacy": privacy,
            "seeds": list(self.seeds[name]),
        }


def run(
    experiment: DynamicExperiment,
    log: LaunchLog,
    report: Progress = silent,
) -> DynamicResult:
    """Run the experiment on the log. `report` is a progress callback."""
    preset = find_preset(experiment.preset)
    whole = preset.collapse_repeats(log)
    cycles = Cycling.parse(experiment.cycles).cut(whole)
    stream = CycleStream(cycles, preset, experiment.window)
    starts = []
    for number in range(experiment.seeds):
        report("pre-training", number, experiment.seeds)
        starts.append(_Start(experiment, cycles, experiment.seed + number))

    counting = [name for name in experiment.models if name not in FEDERATED]  # one seed is enough
    seeded = [name for name in experiment.models if name in FEDERATED]
    rates = experiment.rates or (experiment.update_rate,)
    runs = _refitted_models(experiment, counting, experiment.seed)
    for start in starts:
        runs += start.regimes()
        runs += _refitted_models(experiment, seeded, start.seed)
        if experiment.mechanisms and (start is starts[0] or len(rates) == 1):
            runs += [each for rate in rates for each in start.private(rate)]
    _run_all(stream, runs, experiment, report)

    halves = second_half(whole.n_users, experiment.seed)
    tried = _by_rate(experiment, runs) if len(rates) > 1 else {}
    chosen = _choose_rates(experiment, tried, halves)
    for _ in range(WIDENINGS if chosen else 0):
        beyond = [
            each
            for rate, names in _rates_beyond(chosen, tried).items()
            for each in starts[0].private(rate, names)
        ]
        _run_all(stream, beyond, experiment, report)
        runs += beyond
        tried = _by_rate(experiment, runs)
        chosen = _choose_rates(experiment, tried, halves)
    if chosen and len(starts) > 1:
        at_chosen_rates = [
            each
            for start in starts[1:]
            for rate in sorted({rate for pair in chosen.values() for rate in pair})
            for each in start.private(rate, [name for name in chosen if rate in chosen[name]])
        ]
        _run_all(stream, at_chosen_rates, experiment, report)
        runs += at_chosen_rates
    return _result(experiment, log, cycles, runs, tried, chosen, halves)


ByRate = Mapping[str, Mapping[float, Floats]]


@dataclass(eq=False)
class _Run:
    """A model with its random seed, its learning rate on Q if it has one, and its results.

    ``values``: (n_cycles, n_users, n_metrics), as `run_cycles` returns them.
    """

    seed: int
    model: Model
    rate: float | None = None
    values: Floats = field(init=False)


def _run_all(
    stream: CycleStream, runs: Sequence[_Run], experiment: DynamicExperiment, report: Progress
) -> None:
    """Run all models over the cycles. Predictions of a model that diverged count as misses."""
    found = run_cycles(stream, [each.model for each in runs], experiment.metrics, report)
    for each, values in zip(runs, found, strict=True):
        if isinstance(each.model, FederatedSeqMF) and each.model.diverged:
            values[~np.isnan(values)] = 0.0
        each.values = values


class _Start:
    """What a seed determines before the first prediction: Q, initial user vectors and clips."""

    def __init__(self, experiment: DynamicExperiment, cycles: Cycles, seed: int) -> None:
        self.experiment, self.seed = experiment, seed
        training, n_users = experiment.seqmf, cycles.whole.n_users
        self.app_vectors = self._pretrain(cycles)
        self.user_vectors = start_vectors(n_users, training, seed, experiment.start)
        self.clips = self._clips() if experiment.mechanisms else {}

    def _pretrain(self, cycles: Cycles) -> Floats:
        training, how = self.experiment.seqmf, self.experiment.pretraining
        if how == "none":
            n_apps = cycles.whole.n_apps
            return starting_vectors(n_apps, training.dim, training.scale, self.seed)
        history = cycles.before(1) if how == "first" else cycles.whole
        model = SeqMF(training, self.seed)
        model.fit(launches_in_window(history, self.experiment.window))
        return model.app_vectors

    def _clips(self) -> Mapping[str, float]:
        """A clip by ball."""
        twin = synthetic.APP_USAGE if is_app_usage(self.experiment.data) else synthetic.LSAPP
        population = replace(twin, phones=_PUBLIC_PHONES, apps=max(2, len(self.app_vectors)))
        broadcast = Broadcast(0, self.app_vectors, self.experiment.seqmf.model)
        return public_clips(population, public_seed(self.seed), broadcast)

    def regimes(self) -> list[_Run]:
        """The regimes of SeqMF without privacy."""
        rate, plain = self.experiment.update_rate, self.mechanism(NONE)
        return [self._federation(regime, regime, plain, rate) for regime in self.experiment.regimes]

    def private(self, rate: float, names: Collection[str] = ()) -> list[_Run]:
        """The controls, and every mechanism in the regime Full; or those with these names."""
        sources: dict[str, Source] = {NONE: self.mechanism(NONE), FROZEN: FROZEN, ZERO: ZERO}
        sources |= {name: self.mechanism(name) for name in self.experiment.mechanisms}
        return [
            self._federation(name, "full", each, rate)
            for name, each in sources.items()
            if not names or name in names
        ]

    def mechanism(self, name: str) -> Mechanism:
        n_apps, dim = self.app_vectors.shape
        return mechanism_for_simulation(name, self.experiment.epsilon, n_apps, dim, self.clips)

    def _federation(self, name: str, regime: Regime, source: Source, rate: float) -> _Run:
        model = FederatedSeqMF(
            name,
            self.experiment.seqmf,
            self.app_vectors,
            self.user_vectors,
            regime,
            self.experiment.q_every,
            sgd(rate),
            source,
            self.seed,
            empty=name.endswith(NOISE),
        )
        return _Run(self.seed, model, rate)


def second_half(n_users: int, seed: int) -> Mask:
    """(n_users,): True for users of the second half; each half chooses settings for the other."""
    drawn = KeyedBits(seed, purpose="halves").generator().permutation(n_users)
    return np.asarray(drawn % 2 == 1)


def _by_rate(experiment: DynamicExperiment, runs: Sequence[_Run]) -> ByRate:
    """The results of the privacy study with the first seed, by series and by rising rate."""
    found: dict[str, dict[float, Floats]] = {}
    for each in runs:
        of_study = each.rate is not None and each.model.name not in experiment.regimes
        if of_study and each.seed == experiment.seed:
            found.setdefault(each.model.name, {})[each.rate or 0.0] = each.values
    return {name: dict(sorted(rates.items())) for name, rates in found.items()}


def _choose_rates(
    experiment: DynamicExperiment, tried: ByRate, halves: Mask
) -> dict[str, tuple[float, float]]:
    """The best rate of every series of the privacy study on the first and on the second half.

    The best rate has the highest HR@5, mean over users and cycles; of equals the smaller rate.
    """
    metric = experiment.metrics.index("HR@5")

    def best(rates: Mapping[float, Floats], half: Mask) -> float:
        return max(rates, key=lambda rate: _mean(rates[rate][:, half, metric]))

    return {name: (best(rates, ~halves), best(rates, halves)) for name, rates in tried.items()}


def _rates_beyond(
    chosen: Mapping[str, tuple[float, float]], tried: ByRate
) -> dict[float, list[str]]:
    """Rates ten times beyond those tried, with the series that were best at that edge."""
    found: dict[float, list[str]] = {}
    for name, pair in chosen.items():
        least, *_, most = tried[name]
        for edge, rate in ((least, least / 10), (most, most * 10)):
            if name != FROZEN and edge in pair:
                found.setdefault(float(f"{rate:g}"), []).append(name)
    return found


def _mean(values: Floats) -> float:
    """Mean of the values that are not NaN; 0 if there are none."""
    return float(np.nanmean(values)) if not np.isnan(values).all() else 0.0


def _result(
    experiment: DynamicExperiment,
    log: LaunchLog,
    cycles: Cycles,
    runs: Sequence[_Run],
    tried: ByRate,
    chosen: Mapping[str, tuple[float, float]],
    halves: Mask,
) -> DynamicResult:
    """Collect the series by name; each half of the users gets the rate chosen on the other half."""
    by_name: dict[str, dict[int, dict[float | None, Floats]]] = {}
    federations: dict[str, list[FederatedSeqMF]] = {}
    for each in runs:
        name = each.model.name
        by_name.setdefault(name, {}).setdefault(each.seed, {})[each.rate] = each.values
        used = name not in chosen or each.rate in chosen[name]
        if used and isinstance(each.model, FederatedSeqMF):
            federations.setdefault(name, []).append(each.model)

    def join(name: str, found: Mapping[float | None, Floats]) -> Floats:
        if name not in chosen:
            return next(iter(found.values()))
        on_first, on_second = (found[rate] for rate in chosen[name])
        return np.where(halves[:, None], on_first, on_second)

    def courses(by_user: Mapping[str, Floats]) -> Courses:
        return Courses(by_user, experiment.metrics, experiment.seed)

    series = {
        name: np.stack([join(name, found) for found in by_seed.values()])
        for name, by_seed in by_name.items()
    }
    at_rate = {}
    for rate in sorted({rate for rates in tried.values() for rate in rates}):
        there = {name: rates[rate][None] for name, rates in tried.items() if rate in rates}
        frozen = next(iter(tried[FROZEN].values()))  # the same at every rate
        at_rate[rate] = courses({FROZEN: frozen[None], **there})
    private = (*experiment.mechanisms, *CONTROLS) if experiment.mechanisms else ()
    return DynamicResult(
        experiment,
        log,
        cycles,
        courses(series),
        {name: _privacy(experiment, federations[name]) for name in by_name if name in private},
        {name: tuple(by_seed) for name, by_seed in by_name.items()},
        chosen,
        at_rate,
    )


def _refitted_models(experiment: DynamicExperiment, names: Sequence[str], seed: int) -> list[_Run]:
    """These models of the static environment, refitted each cycle."""
    seqmf, mf = experiment.seqmf, experiment.mf
    built = (build_model(name, seed, experiment.data, seqmf=seqmf, mf=mf) for name in names)
    return [_Run(seed, Refitted(predictor)) for predictor in built]


def _privacy(
    experiment: DynamicExperiment, federations: Sequence[FederatedSeqMF]
) -> dict[str, Any]:
    """The privacy budget spent by the phones: ε per report times the number of reports.

    ``worst`` is the largest total of a phone, ``mean`` the mean over phones that reported, both
    over all seeds; None where there is no bound.
    """
    found = {
        "epsilon": 0.0,
        "worst": 0.0,
        "mean": 0.0,
        "n_rounds": max(int(each.server.broadcast.round) for each in federations),
        "clip": None,
        "promise": "no phone reports anything",
    }
    sources = [each.source for each in federations if not isinstance(each.source, str)]
    if not sources:
        return found
    guarantee = sources[0].guarantee
    if not math.isfinite(guarantee.epsilon) or sources[0].unsafe:
        clear = ", ".join(guarantee.sent_in_clear) or "the gradient"
        promise = f"not private: {clear} sent in the clear"
        return {**found, "epsilon": None, "worst": None, "mean": None, "promise": promise}
    totals = np.concatenate([each.n_reports * guarantee.epsilon for each in federations])
    before = "; Q was pre-trained without privacy" if experiment.pretraining != "none" else ""
    return {
        **found,
        "epsilon": guarantee.epsilon,
        "worst": float(totals.max()),
        "mean": float(totals[totals > 0].mean()) if totals.any() else 0.0,
        "clip": float(np.mean([each.clip for each in sources])),
        "promise": f"{guarantee.epsilon:g}-LDP per report{before}",
    }


def _curve(curve: Curve) -> dict[str, list[float | None]]:
    return {
        key: [None if math.isnan(value) else float(value) for value in getattr(curve, key)]
        for key in Curve._fields
    }


def _iso(time: int) -> str:
    return datetime.fromtimestamp(time / 1000, UTC).isoformat(timespec="seconds")
