"""The static environment with the tuning repeated: with several seeds and numbers of trials.

The result of a tuning is random. Here the tuning is repeated with other seeds, and the intervals
are a bootstrap over users and tunings. The best of the first n trials is what a tuning with n
trials would have chosen, since a trial depends only on those before it: so smaller numbers of
trials need no further computation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nextapp.data import LaunchLog, Split
from nextapp.evaluation import METRICS, Evaluation, Exam, evaluate, exam, find_preset, mark
from nextapp.evaluation.dynamic import Courses
from nextapp.predictors import Training, frozen
from nextapp.progress import Progress, silent
from nextapp.studies.rounds import LabSeqMF
from nextapp.studies.settings import Experiment, training_values
from nextapp.studies.static import StaticResult
from nextapp.studies.tuning import TUNED, Chosen, choose_settings
from nextapp.wire import Floats

OURS = ("seqmf", "nextapp")
TRAINED = ("mf", "seqmf", "seqmf-frozen")


@dataclass(frozen=True)
class Tunings:
    """``seeds`` tunings of ``experiment.tune`` trials each; ``budgets``: smaller trial numbers."""

    seeds: int = 3
    budgets: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise ValueError(f"tunings must be 1 or more, got {self.seeds!r}.")
        if any(budget < 1 for budget in self.budgets):
            raise ValueError(f"budgets must be numbers of trials >= 1, got {self.budgets!r}.")


class RepeatedTuning:
    """Tunings on a log, and a cache of their test results by settings."""

    def __init__(
        self,
        log: LaunchLog,
        experiment: Experiment,
        tunings: Tunings,
        report: Progress = silent,
        scratch: Path | None = None,
    ) -> None:
        self.log, self.experiment, self.tunings, self.report = log, experiment, tunings, report
        self.exam: Exam = exam(log, Split.parse(experiment.split), find_preset(experiment.preset))
        self._marks: dict[tuple[str, Training, int], Floats] = {}
        self.chosen: dict[int, dict[str, Chosen]] = {}
        for number in range(tunings.seeds):
            seed = experiment.seed + number
            storage = scratch / f"tuning-{experiment.preset}-{seed}.db" if scratch else None

            def report_tuning(what: str, done: int, total: int, number: int = number) -> None:
                report(f"{what}, {number + 1} of {tunings.seeds}", done, total)

            again = replace(experiment, seed=seed)
            _, self.chosen[seed] = choose_settings(log, again, report_tuning, storage=storage)

    def run(self, others: Sequence[tuple[str, Training]] = ()) -> dict[str, Any]:
        """The table with differences; variants for fewer trials and for each tuning alone.

        `others` are further SeqMF models by name, with fixed training settings.
        """
        first = self.chosen[self.experiment.seed]
        mf, seqmf = first["mf"].training, first["seqmf"].training
        experiment = replace(self.experiment, mf=mf, seqmf=seqmf)
        names = tuple(name for name in experiment.models if name not in TRAINED)
        counted = replace(experiment, models=names).predictors() if names else []
        trained = [LabSeqMF(training, self.experiment.seed, name) for name, training in others]
        evaluation = evaluate(
            self.exam,
            [*counted, *trained],
            self.experiment.seed,
            lambda name, done, total: self.report(f"measuring {name}", done, total),
        )
        fixed = {each.name: each.by_user[None] for each in evaluation.marks}
        own = [name for name in TRAINED if name in experiment.models]
        full, seeds = self.experiment.tune, list(self.chosen)
        main = self._table(own, fixed, seeds, full)
        table = self._summary(evaluation, experiment)
        variants = {
            f"{budget} trials": self._compare(self._table(own, fixed, seeds, budget))
            for budget in sorted({*self.tunings.budgets})
            if budget < full
        }
        if len(seeds) > 1:
            for number, seed in enumerate(seeds, 1):
                alone = self._table(own, fixed, [seed], full)
                variants[f"tuning {number} alone"] = self._compare(alone)
        return {**table, **self._compare(main), "variants": variants}

    def _table(
        self, own: Sequence[str], fixed: Mapping[str, Floats], seeds: Sequence[int], budget: int
    ) -> Courses:
        """All models by name, (n_tunings, 1, n_users, 9) each, in the order of the experiment."""
        by_name = dict(fixed)
        for name in own:
            by_name[name] = np.stack([self._of(name, seed, budget) for seed in seeds])
        order = [*(name for name in self.experiment.models if name in by_name)]
        order += [name for name in by_name if name not in order]
        return Courses(
            {name: by_name[name][:, None] for name in order}, METRICS, self.experiment.seed
        )

    def _of(self, name: str, seed: int, budget: int) -> Floats:
        """(n_users, 9): test metrics with the settings chosen by a tuning of `budget` trials."""
        model = "mf" if name == "mf" else "seqmf"
        training = self.chosen[seed][model].within(model, budget).training
        if name == "seqmf-frozen":
            training = frozen(training)
        key = (name, training, seed)
        if key not in self._marks:
            self.report(f"measuring {name}, {budget} trials", 0, 0)
            predictor = LabSeqMF(training, seed, name)
            predictor.fit(self.exam.history)
            self._marks[key] = mark(self.exam, predictor)[0]
        return self._marks[key]

    def _compare(self, courses: Courses) -> dict[str, Any]:
        """What the claims need: metrics of every model, differences, and the number of users."""
        names = list(courses.by_user)
        return {
            "models": {name: _figures(courses, name) for name in names},
            "differences": {
                first: {
                    second: {
                        metric: _difference(courses, first, second, metric) for metric in METRICS
                    }
                    for second in names
                    if second != first
                }
                for first in OURS
                if first in names
            },
            "n_users": len(self.exam.users),
        }

    def _summary(self, evaluation: Evaluation, experiment: Experiment) -> dict[str, Any]:
        result = StaticResult(experiment, self.log, evaluation).as_json()
        for key in ("data", "versions", *(f"{name}_minus" for name in (*OURS, "ceiling"))):
            result.pop(key, None)
        result["tuning"] = {
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
        return result


def _figures(courses: Courses, name: str) -> dict[str, Any]:
    found = {metric: courses.overall(name, metric) for metric in METRICS}
    return {
        **{metric: float(curve.mean[0]) for metric, curve in found.items()},
        "ci95": {
            metric: [float(curve.low[0]), float(curve.high[0])] for metric, curve in found.items()
        },
        "n_tunings": courses.by_user[name].shape[0],
    }


def _difference(courses: Courses, first: str, second: str, metric: str) -> dict[str, float]:
    curve = courses.overall(first, metric, second)
    return {
        "difference": float(curve.mean[0]),
        "low": float(curve.low[0]),
        "high": float(curve.high[0]),
    }
