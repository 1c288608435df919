"""Tuning of MF and SeqMF by their HR@5 on launches before the test part, once or several times.

A study is a number of slots, one trial each. Slot s samples its settings with a generator keyed by
(seed, s), given the results of the slots before it. So a seed always gives the same result, also
after the process was killed and resumed. Trials run one after another: the rounds of a trial use
all processor cores already.

The result of a tuning is random. `RepeatedTuning` repeats it with other seeds, and its intervals
are a bootstrap over users and tunings. The best of the first n trials is what a tuning with n
trials would have chosen, since a trial depends only on those before it: so smaller numbers of
trials need no further computation.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.trial import TrialState

from nextapp.data.cutting import Split
from nextapp.data.log import LaunchLog
from nextapp.evaluation import METRICS, Evaluation, Exam, evaluate, exam, find_preset, mark
from nextapp.evaluation.dynamic_environment import Courses
from nextapp.evaluation.seqmf import SeqMF
from nextapp.evaluation.static import build_model, score_predictions, unit_sizes, unit_sums
from nextapp.predictors import FEDERATED
from nextapp.predictors.training import Training, frozen, without_sequence
from nextapp.progress import Progress, named, silent
from nextapp.randomness import KeyedBits
from nextapp.settings import unknown
from nextapp.studies.experiment import Experiment, plain_values, training_from, training_values
from nextapp.wire import Floats, WireError

HELD_OUT = 1 / 8
LOOKS = (2, 5, 10, 20)  # rounds after which a trial is measured, and pruned if below the median
STARTUP = 8  # first trials, which are never pruned, so that there is a median to compare with
TUNED = ("mf", "seqmf")
COMPARED = ("seqmf", "nextapp", "sr", "sr-od")  # with all others
_OBJECTIVE = METRICS.index("HR@5")
_DONE = (TrialState.COMPLETE, TrialState.PRUNED)


def tuning_exam(log: LaunchLog, experiment: Experiment) -> Exam:
    """An exam that uses only the launches before the test part.

    It tests on the validation part of the split, or without one on the last eighth of each user's
    training launches.
    """
    preset = find_preset(experiment.preset)
    split = Split.parse(experiment.split)
    parts = split.cut(preset.collapse_repeats(log))
    if split.validation == 0:
        return exam(parts.history, Split("fraction", 1 - HELD_OUT, 0, HELD_OUT), preset)
    if split.by == "days":
        return exam(parts.history, Split("days", split.train, 0, split.validation), preset)
    share = split.train / (split.train + split.validation)
    return exam(parts.history, Split("fraction", share, 0, 1 - share), preset)


def space(trial: optuna.Trial) -> dict[str, Any]:
    """The authors' grid in wider ranges; how the paper is read is not searched."""
    optimiser = trial.suggest_categorical("optimiser", ["sgd", "adam"])
    bounds = (1e-4, 1e-1) if optimiser == "adam" else (1e-4, 1.0)
    return {
        "dim": trial.suggest_categorical("dim", [16, 32, 64]),
        "scale": trial.suggest_float("scale", 1e-3, 1.0, log=True),
        "optimiser": optimiser,
        "rate": trial.suggest_float(f"rate of {optimiser}", *bounds, log=True),
        "rounds": trial.suggest_categorical("rounds", [5, 20, 40]),
        "lam": trial.suggest_float("lam", 1e-3, 10.0, log=True),
        "alpha": trial.suggest_categorical("alpha", [0.0, 0.001, 0.01, 0.1, 1.0]),
        "gamma": trial.suggest_categorical("gamma", [0.1, 0.5, 1.0]),
    }


@dataclass(frozen=True, eq=False)
class Chosen:
    """The best training found, its HR@5 on the tuning part, and all trials, best first."""

    training: Training
    hit_rate: float
    trials: list[dict[str, Any]]

    def within(self, model: str, trials: int) -> Chosen:
        """What a tuning with only the first `trials` trials would have chosen."""
        return _best_of([row for row in self.trials if row["slot"] < trials], model)


def tune(
    log: LaunchLog,
    experiment: Experiment,
    model: str,
    progress: Progress = silent,
    *,
    trials: int | None = None,
    storage: Path | None = None,
) -> Chosen:
    """The best trial for ``model``, 'mf' or 'seqmf'; by default of ``experiment.tune`` trials.

    With a `storage` (an SQLite file) every finished trial is saved, and a killed study can be
    resumed. A trial whose training diverges gets HR@5 = 0.
    """
    work = _Trials(log, experiment, model)
    n_slots = experiment.tune if trials is None else trials
    if n_slots < 1:
        raise ValueError(f"trials must be 1 or more, got {n_slots!r}.")
    with _quiet():
        study = work.open_study(storage)
        _fail_interrupted_trials(study)
        _report_best(study, model, n_slots, progress)
        for slot in sorted(set(range(n_slots)) - {row["slot"] for row in _finished(study)}):
            work.run(slot, study)
            _report_best(study, model, n_slots, progress)
        return _best_of(_finished(study), model)


def _report_best(study: optuna.Study, model: str, total: int, progress: Progress) -> None:
    finished = _finished(study)
    best = (finished[0]["HR@5"] if finished else 0.0) or 0.0
    progress(f"tuning {model} (best HR@5 {best:.3f})", len(finished), total)


class _Trials:
    """The trials of a model on a log."""

    def __init__(self, log: LaunchLog, experiment: Experiment, model: str) -> None:
        if model not in TUNED:
            raise ValueError(unknown("model", model, TUNED))
        self.log, self.experiment, self.model = log, experiment, model
        self.start: Training = getattr(experiment, model)

    @cached_property
    def _exam(self) -> Exam:
        return tuning_exam(self.log, self.experiment)

    def open_study(self, storage: Path | None) -> optuna.Study:
        """A new study, or the one in the storage if it has the same log and settings."""
        study = optuna.create_study(
            storage=None if storage is None else f"sqlite:///{storage}",
            study_name=self.model,
            direction="maximize",
            pruner=optuna.pruners.MedianPruner(n_startup_trials=STARTUP, n_min_trials=STARTUP),
            load_if_exists=True,
        )
        mine, found = self._description(), study.user_attrs.get("of")
        if found is None:
            study.set_user_attr("of", mine)
        elif found != mine:
            names = [name for name in mine if found.get(name) != mine[name]]
            raise ValueError(
                f"{storage} has trials with other {', '.join(names)}: use the same to continue, or "
                f"write the settings to another file."
            )
        return study

    def _description(self) -> dict[str, Any]:
        """What two studies must share to be the same; the number of trials may grow."""
        log = hashlib.sha256()
        for column in (self.log.user, self.log.app, self.log.time):
            log.update(np.ascontiguousarray(column).tobytes())
        return {
            "launches": log.hexdigest(),
            "split": self.experiment.split,
            "preset": self.experiment.preset,
            "seed": str(self.experiment.seed),
            "settings": json.dumps(training_values(self.start), sort_keys=True),
        }

    def run(self, slot: int, study: optuna.Study) -> None:
        """Sample the settings of a slot, train, prune if poor, and record the result."""
        study.sampler = self._sampler(slot)
        trial = study.ask()
        trial.set_user_attr("slot", slot)
        training = training_from(space(trial), self.model, self.start)
        if self.model == "mf":
            training = without_sequence(training)
        trial.set_user_attr("training", training_values(training))
        try:
            with np.errstate(all="ignore"):
                value = self._hit_rate(training, trial)
        except optuna.TrialPruned:
            study.tell(trial, state=TrialState.PRUNED)
        except (FloatingPointError, WireError, np.linalg.LinAlgError):
            study.tell(trial, 0.0)
        else:
            study.tell(trial, value)

    def _sampler(self, slot: int) -> optuna.samplers.BaseSampler:
        seed = int(KeyedBits(self.experiment.seed, slot, purpose="tuning").words(1)[0] >> 32)
        sampler = optuna.samplers.TPESampler(
            seed=seed, multivariate=True, group=True, n_startup_trials=STARTUP
        )
        defaults: Training = getattr(Experiment(self.experiment.data), self.model)
        if slot == 0 and self.start == defaults:  # the defaults first
            values = training_values(defaults)
            values[f"rate of {defaults.optimiser}"] = values.pop("rate")
            return optuna.samplers.PartialFixedSampler(values, sampler)
        return sampler

    def _hit_rate(self, training: Training, trial: optuna.Trial) -> float:
        """HR@5 after all rounds; looked at before in some rounds, where a poor trial is pruned."""
        predictor = SeqMF(training, self.experiment.seed, self.model)
        predictor.start(self._exam.history)
        done, found = 0, 0.0
        for look in (*(look for look in LOOKS if look < training.rounds), training.rounds):
            predictor.train(look - done)
            done = look
            by_user = mark(self._exam, predictor)["all"]
            found = float(by_user[:, _OBJECTIVE].mean())
            if done < training.rounds:
                trial.report(found, done)
                if trial.should_prune():
                    raise optuna.TrialPruned
        return found


def _fail_interrupted_trials(study: optuna.Study) -> None:
    """Mark the running trials of a killed process as failed, so that their slots run again."""
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        study.tell(trial.number, state=TrialState.FAIL)


def _finished(study: optuna.Study) -> list[dict[str, Any]]:
    """The finished trials, best first; those given up are last."""
    rows = []
    for trial in study.get_trials(deepcopy=False, states=_DONE):
        is_whole = trial.state == TrialState.COMPLETE
        rows.append(
            {
                "slot": trial.user_attrs["slot"],
                "HR@5": trial.value if is_whole else None,
                "given_up_after": None if is_whole else max(trial.intermediate_values),
                **trial.user_attrs["training"],
            }
        )
    return sorted(rows, key=lambda row: (row["HR@5"] is None, -(row["HR@5"] or 0.0), row["slot"]))


def _best_of(rows: list[dict[str, Any]], model: str) -> Chosen:
    """The first of these rows, which are sorted from best to worst."""
    best = rows[0]
    values = {key: best[key] for key in training_values(Training())}
    training = training_from(values, model, Training())
    return Chosen(training, float(best["HR@5"]), rows)


@contextmanager
def _quiet() -> Iterator[None]:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield


def choose_settings(
    log: LaunchLog,
    experiment: Experiment,
    progress: Progress = silent,
    *,
    trials: int | None = None,
    storage: Path | None = None,
    models: tuple[str, ...] = TUNED,
) -> tuple[Experiment, dict[str, Chosen]]:
    """The experiment with the settings chosen for each of the models, and the tunings."""
    found: dict[str, Chosen] = {}

    def report(what: str, done: int, total: int) -> None:
        progress(what, len(found) * total + done, len(models) * total)

    for model in models:
        found[model] = tune(log, experiment, model, report, trials=trials, storage=storage)
    settings: dict[str, Any] = {model: chosen.training for model, chosen in found.items()}
    return replace(experiment, **settings), found


def random_settings(n: int, seed: int, start: Training) -> list[Training]:
    """n settings of SeqMF from `space`, with the reading and the inference of `start`."""
    with _quiet():
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed))
        drawn = [space(study.ask()) for _ in range(n)]
    return [training_from(values, "seqmf", start) for values in drawn]


class RepeatedTuning:
    """``n_seeds`` tunings on a log, with ``experiment.tune`` trials each.

    ``budgets`` are smaller numbers of trials to compare with. Test results are cached by settings.
    """

    def __init__(
        self,
        log: LaunchLog,
        experiment: Experiment,
        n_seeds: int,
        budgets: Sequence[int] = (),
        report: Progress = silent,
        scratch: Path | None = None,
    ) -> None:
        if n_seeds < 1:
            raise ValueError(f"tunings must be 1 or more, got {n_seeds!r}.")
        if any(budget < 1 for budget in budgets):
            raise ValueError(f"budgets must be numbers of trials >= 1, got {budgets!r}.")
        self.log, self.experiment, self.budgets, self.report = log, experiment, budgets, report
        self.exam: Exam = exam(log, Split.parse(experiment.split), find_preset(experiment.preset))
        self._marks: dict[tuple[str, Training, int], Floats] = {}
        self.chosen: dict[int, dict[str, Chosen]] = {}
        for number in range(n_seeds):
            seed = experiment.seed + number
            storage = scratch / f"tuning-{experiment.preset}-{seed}.db" if scratch else None

            def report_tuning(what: str, done: int, total: int, number: int = number) -> None:
                report(f"{what}, {number + 1} of {n_seeds}", done, total)

            again = replace(experiment, seed=seed)
            _, self.chosen[seed] = choose_settings(log, again, report_tuning, storage=storage)

    def run(self, others: Sequence[tuple[str, Training]] = ()) -> dict[str, Any]:
        """The table with differences; variants for fewer trials and for each tuning alone.

        `others` are further SeqMF models by name, with fixed training settings.
        """
        seed, full, seeds = self.experiment.seed, self.experiment.tune, list(self.chosen)
        first = {model: each.training for model, each in self.chosen[seed].items()}
        experiment = replace(self.experiment, mf=first["mf"], seqmf=first["seqmf"])
        counted = [
            build_model(name, seed, experiment.data)
            for name in experiment.models
            if name not in FEDERATED  # which are measured for each tuning
        ]
        trained = [SeqMF(training, seed, name) for name, training in others]
        show = named("measuring", self.report)
        evaluation = evaluate(self.exam, [*counted, *trained], seed, progress=show)
        fixed = {each.name: self._scaled(each.sums["all"])[None] for each in evaluation.marks}
        table = self._summary(evaluation, experiment)
        variants = {
            f"{budget} trials": self._compare(fixed, seeds, budget)
            for budget in sorted({*self.budgets})
            if budget < full
        }
        if len(seeds) > 1:
            for number, seed in enumerate(seeds, 1):
                variants[f"tuning {number} alone"] = self._compare(fixed, [seed], full)
        return {**table, **self._compare(fixed, seeds, full), "variants": variants}

    def _scaled(self, sums: Floats) -> Floats:
        """Sums by unit of the exam, over the size of all units of the same user: so each user
        counts alike."""
        owner = self.exam.units.owner
        of_user = np.bincount(owner, unit_sizes(self.exam, self.exam.within))
        return np.asarray(sums / of_user[owner][:, None])

    def _of(self, name: str, seed: int, budget: int) -> Floats:
        """(n_units, 9): test metrics with the settings chosen by a tuning of `budget` trials."""
        model = "mf" if name == "mf" else "seqmf"
        training = self.chosen[seed][model].within(model, budget).training
        if name == "seqmf-frozen":
            training = frozen(training)
        key = (name, training, seed)
        if key not in self._marks:
            self.report(f"measuring {name}, {budget} trials", 0, 0)
            predictor = SeqMF(training, seed, name)
            predictor.fit(self.exam.history)
            values, _ = score_predictions(self.exam, predictor)
            self._marks[key] = self._scaled(unit_sums(self.exam, values, self.exam.within))
        return self._marks[key]

    def _compare(
        self, fixed: Mapping[str, Floats], seeds: Sequence[int], budget: int
    ) -> dict[str, Any]:
        """What the claims need: metrics of every model, differences, and the number of users."""
        sizes = self._scaled(unit_sizes(self.exam, self.exam.within)[:, None])[:, 0]
        by_name = {  # (n_tunings, n_units, 9) each
            name: fixed[name]
            if name in fixed
            else np.stack([self._of(name, seed, budget) for seed in seeds])
            for name in dict.fromkeys((*self.experiment.models, *fixed))
        }
        by_cycle = {name: values[:, None] for name, values in by_name.items()}
        courses = Courses(by_cycle, METRICS, self.experiment.seed, sizes)
        return {
            "models": {name: _figures(courses, name) for name in courses.by_user},
            "differences": courses.differences(COMPARED),
            "n_users": len(self.exam.users),
        }

    def _summary(self, evaluation: Evaluation, experiment: Experiment) -> dict[str, Any]:
        tunings = {
            model: {
                "trials": self.experiment.tune,
                "tunings": [
                    {
                        "seed": seed,
                        "HR@5": found[model].hit_rate,
                        "settings": training_values(found[model].training),
                    }
                    for seed, found in self.chosen.items()
                ],
            }
            for model in TUNED
        }
        return {
            **evaluation.summary(),
            "seed": experiment.seed,
            "settings": plain_values(experiment),
            "tuning": tunings,
        }


def _figures(courses: Courses, name: str) -> dict[str, Any]:
    found = {metric: courses.overall(name, metric).point() for metric in METRICS}
    return {
        **{metric: ends["mean"] for metric, ends in found.items()},
        "ci95": {metric: [ends["low"], ends["high"]] for metric, ends in found.items()},
        "n_tunings": courses.by_user[name].shape[0],
    }
