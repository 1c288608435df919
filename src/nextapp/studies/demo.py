"""The demonstration: synthetic phones, federated rounds, all models, a folder to look at."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from nextapp.data import read
from nextapp.data.describing import description
from nextapp.evaluation import METRICS
from nextapp.progress import Progress
from nextapp.settings import as_toml
from nextapp.studies import plots, static
from nextapp.studies.settings import Experiment

SOURCE = "synthetic:lsapp"


def run(folder: Path, seed: int, report: Progress) -> dict[str, Any]:
    """Measure all models on the LSApp twin; table, plots, settings and JSON go to the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    report("making synthetic phones", 0, 0)
    log = read(SOURCE, seed=seed)
    experiment = Experiment(SOURCE, preset="authors", seed=seed)
    result = static.run(experiment, log, report).as_json()
    report("drawing", 0, 0)
    plots.save(plots.hit_rates(result), folder / "hit-rates")
    plots.save(plots.activity(description(log), SOURCE), folder / "activity")
    write_table(result, folder / "table.csv")
    (folder / "result.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    (folder / "settings.toml").write_text(as_toml(result["settings"]), encoding="utf-8")
    return result


def write_table(result: dict[str, Any], path: Path) -> None:
    """One row a model: every metric with its interval, then without exact repeats."""
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(
            ["model"]
            + [
                column
                for metric in METRICS
                for column in (metric, f"{metric} low", f"{metric} high")
            ]
            + [f"{metric} without repeats" for metric in METRICS]
        )
        for name, figures in result["models"].items():
            means = [
                round(value, 6)
                for metric in METRICS
                for value in (figures[metric], *figures["ci95"][metric])
            ]
            others = [round(figures["without_repeats"][metric], 6) for metric in METRICS]
            rows.writerow([name, *means, *others])
