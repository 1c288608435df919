"""The static experiment: tune if wanted, measure every model, record settings and versions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nextapp.data.cutting import Split
from nextapp.data.loading import load
from nextapp.data.log import LaunchLog
from nextapp.evaluation import Evaluation, evaluate, exam, find_preset
from nextapp.predictors import CEILING
from nextapp.progress import Progress, silent
from nextapp.settings import as_toml
from nextapp.studies.experiment import Experiment, versions

DEMO = "synthetic:lsapp"  # the data of the demonstration


@dataclass(frozen=True, eq=False)
class StaticResult:
    """A finished experiment; ``experiment`` holds the settings as tuned."""

    experiment: Experiment
    log: LaunchLog
    evaluation: Evaluation

    def as_json(self) -> dict[str, Any]:
        summary = self.evaluation.summary()
        names = [mark.name for mark in self.evaluation.marks]
        for model in ("seqmf", "nextapp", CEILING):
            if model in names:
                summary[f"{model}_minus"] = {
                    name: self.evaluation.difference(model, name) for name in names if name != model
                }
        if "nextapp" in names:
            summary["leads"] = self.evaluation.leads("nextapp")
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
            "settings": self.experiment.as_plain_values(),
            "versions": versions(),
        }


def run(
    experiment: Experiment,
    log: LaunchLog,
    report: Progress = silent,
    storage: Path | None = None,
) -> StaticResult:
    """Measure the experiment's models on the log. `report` is a progress callback.

    With a `storage` (an SQLite file) a killed tuning can be resumed.
    """
    ready = exam(log, Split.parse(experiment.split), find_preset(experiment.preset))
    if experiment.tune:
        from nextapp.studies.tuning import TUNED, choose_settings

        models = tuple(
            model for model in TUNED if any(name.startswith(model) for name in experiment.models)
        )
        experiment, _ = choose_settings(log, experiment, report, storage=storage, models=models)
    current = ""

    def begin_model(name: str, done: int, total: int) -> None:
        nonlocal current
        current = name
        report(name, done, total)

    predictors = experiment.predictors(
        lambda what, done, total: report(f"{current}: {what}", done, total)
    )
    measured = evaluate(ready, predictors, experiment.seed, progress=begin_model)
    return StaticResult(experiment, log, measured)


def demo(folder: Path, seed: int, report: Progress) -> dict[str, Any]:
    """The demonstration: all models on `DEMO`; table, plot, settings and JSON in the folder."""
    from nextapp import plots
    from nextapp.predictors.predictor_loop import compile_ahead

    folder.mkdir(parents=True, exist_ok=True)
    compile_ahead()  # the largest loop, of the last model
    report("making synthetic phones", 0, 0)
    log = load(DEMO, seed=seed)
    experiment = Experiment(DEMO, preset="authors", seed=seed)
    found = run(experiment, log, report)
    result = found.as_json()
    report("drawing", 0, 0)
    plots.save(plots.hit_rates(result), folder / "hit-rates")
    found.evaluation.to_polars().write_csv(folder / "table.csv", float_precision=6)
    (folder / "result.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    (folder / "settings.toml").write_text(as_toml(result["settings"]), encoding="utf-8")
    return result
