"""The static experiment: tune if asked to, measure every model, say how it was done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from nextapp.data import LaunchLog, Split
from nextapp.evaluation import Evaluation, evaluate, exam, preset_named
from nextapp.experiments.settings import Experiment, versions
from nextapp.experiments.tuning import tuned

Report = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class StaticResult:
    """A finished experiment; ``experiment`` holds the settings as tuned."""

    experiment: Experiment
    log: LaunchLog
    evaluation: Evaluation

    def as_json(self) -> dict[str, Any]:
        summary = self.evaluation.summary()
        names = [mark.name for mark in self.evaluation.marks]
        for model in ("seqmf", "nextapp"):
            if model in names:
                summary[f"{model}_minus"] = {
                    name: self.evaluation.difference(model, name) for name in names if name != model
                }
        return {
            **summary,
            "data": {
                "source": self.experiment.data,
                "n_users": self.log.n_users,
                "n_apps": self.log.n_apps,
                "n_launches": len(self.log),
                "notes": list(self.evaluation.exam.whole.notes),
            },
            "seed": self.experiment.seed,
            "settings": self.experiment.resolved(),
            "versions": versions(),
        }


def run(
    experiment: Experiment,
    log: LaunchLog,
    report: Report = lambda what, done, total: None,
) -> StaticResult:
    """Measure the experiment's models on the log. `report` hears what is done, and how far."""
    ready = exam(log, Split.parse(experiment.split), preset_named(experiment.preset))
    if experiment.tune:
        for model in ("mf", "seqmf"):
            if any(name.startswith(model) for name in experiment.models):

                def heard(done: int, total: int, best: float, model: str = model) -> None:
                    report(f"tuning {model} (best HR@5 {best:.3f})", done, total)

                report(f"tuning {model}", 0, experiment.tune)
                chosen = tuned(log, experiment, model, heard)
                settings: dict[str, Any] = {model: chosen}
                experiment = replace(experiment, **settings)
    current = ""

    def announce(name: str) -> None:
        nonlocal current
        current = name
        report(name, 0, 0)

    predictors = experiment.predictors(
        lambda done, total: report(f"{current}: federated round", done, total)
    )
    return StaticResult(experiment, log, evaluate(ready, predictors, experiment.seed, announce))
