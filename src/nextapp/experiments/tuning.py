"""Choosing the settings of MF and SeqMF by their HR@5 on launches before the test part."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import optuna

from nextapp.data import LaunchLog, Split, collapsed
from nextapp.evaluation import METRICS, Exam, exam, mark, preset_named
from nextapp.experiments.settings import Experiment, training_from
from nextapp.predictors import SeqMF, Training, without_sequence
from nextapp.wire import WireError

HELD_OUT = 1 / 8
_OBJECTIVE = METRICS.index("HR@5")


def tuning_exam(log: LaunchLog, experiment: Experiment) -> Exam:
    """An exam on the launches before the test part only.

    Where the split has a validation part, it is asked for; else the last eighth of each user's
    training launches is.
    """
    preset = preset_named(experiment.preset)
    split = Split.parse(experiment.split)
    parts = split.cut(collapsed(log, inclusive=preset.collapse_inclusive))
    if split.validation == 0:
        return exam(parts.history, Split("fraction", 1 - HELD_OUT, 0, HELD_OUT), preset)
    if split.by == "days":
        return exam(parts.history, Split("days", split.train, 0, split.validation), preset)
    share = split.train / (split.train + split.validation)
    return exam(parts.history, Split("fraction", share, 0, 1 - share), preset)


def suggestion(trial: optuna.Trial, sequential: bool) -> dict[str, Any]:
    """The grid of the paper's authors, widened where they left ground open."""
    optimiser = trial.suggest_categorical("optimiser", ["sgd", "adam"])
    bounds = (1e-4, 1e-1) if optimiser == "adam" else (1e-4, 1.0)
    values = {
        "dim": trial.suggest_categorical("dim", [16, 32, 64]),
        "scale": trial.suggest_float("scale", 1e-3, 1.0, log=True),
        "optimiser": optimiser,
        "rate": trial.suggest_float(f"rate of {optimiser}", *bounds, log=True),
        "rounds": trial.suggest_categorical("rounds", [5, 20, 40]),
        "lam": trial.suggest_float("lam", 1e-3, 10.0, log=True),
        "alpha": trial.suggest_categorical("alpha", [0.0, 0.001, 0.01, 0.1, 1.0]),
        "gamma": trial.suggest_categorical("gamma", [0.1, 0.5, 1.0]),
    }
    if sequential:
        values["reading"] = trial.suggest_categorical("reading", ["example", "equation", "authors"])
        values["inference"] = trial.suggest_categorical(
            "inference", ["sum", "mean", "last", "window:3", "window:10"]
        )
    return values


def tuned(
    log: LaunchLog,
    experiment: Experiment,
    model: str,
    progress: Callable[[int, int, float], None] = lambda done, total, best: None,
) -> Training:
    """The best of ``experiment.tune`` trials for ``model``, 'mf' or 'seqmf'; seeded.

    A trial whose training runs to infinity counts as the worst.
    """
    test = tuning_exam(log, experiment)
    start: Training = getattr(experiment, model)

    def hit_rate(trial: optuna.Trial) -> float:
        training = training_from(suggestion(trial, model == "seqmf"), model, start)
        if model == "mf":
            training = without_sequence(training)
        predictor = SeqMF(training, experiment.seed, model)
        try:
            with np.errstate(all="ignore"):
                predictor.fit(test.history)
                by_user, _ = mark(test, predictor)
        except (FloatingPointError, WireError, np.linalg.LinAlgError):
            by_user = np.zeros((1, len(METRICS)))
        trial.set_user_attr("training", training)
        return float(by_user[:, _OBJECTIVE].mean())

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(seed=experiment.seed % 2**32, multivariate=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(
        hit_rate,
        n_trials=experiment.tune,
        callbacks=[
            lambda study, trial: progress(trial.number + 1, experiment.tune, study.best_value)
        ],
    )
    best: Training = study.best_trial.user_attrs["training"]
    return best
