"""The demonstration: synthetic phones, federated rounds, all models, results in a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from nextapp.data import read
from nextapp.progress import Progress
from nextapp.settings import as_toml
from nextapp.studies import plots, static
from nextapp.studies.settings import Experiment

SOURCE = "synthetic:lsapp"


def run(folder: Path, seed: int, report: Progress) -> dict[str, Any]:
    """Measure all models on the LSApp twin; write table, plot, settings and JSON to the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    report("making synthetic phones", 0, 0)
    log = read(SOURCE, seed=seed)
    experiment = Experiment(SOURCE, preset="authors", seed=seed)
    found = static.run(experiment, log, report)
    result = found.as_json()
    report("drawing", 0, 0)
    plots.save(plots.hit_rates(result), folder / "hit-rates")
    found.evaluation.to_polars().write_csv(folder / "table.csv", float_precision=6)
    (folder / "result.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    (folder / "settings.toml").write_text(as_toml(result["settings"]), encoding="utf-8")
    return result
