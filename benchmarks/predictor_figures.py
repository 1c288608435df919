"""The figures of the predictor: rivals, the crowd, what each part is worth, calibration.

    python benchmarks/predictor_figures.py FOLDER           # all of LOGS
    python benchmarks/predictor_figures.py FOLDER --logs epm --models ppm,ranker
    python benchmarks/predictor_figures.py --write          # the picture once more

It measures models on the test part of each log (split fraction:0.8,0,0.2), keeps the figures in
docs/results/predictor.json, and draws docs/images/predictor-parts.svg from that file;
docs/make_results.py makes the tables. A model that is not named keeps its old figures, and a lead
is measured again where all rivals of its kind are. All models take about half an hour on two idle
cores, most of it for `appusage2vec` and `ranker`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nextapp import plots
from nextapp.data.cutting import Split
from nextapp.data.loading import read_log
from nextapp.evaluation import Evaluation, evaluate, exam, find_preset
from nextapp.predictor import GROUPS, STATISTICS
from nextapp.studies.experiment import Experiment

ROOT = Path(__file__).parent.parent
RESULTS = Path("docs/results/predictor.json")
PICTURE = Path("docs/images/predictor-parts.svg")

SPLIT = "fraction:0.8,0,0.2"
LOGS = {
    "ubiqlog-a": "UbiqLog (17 phones)", "android-a": "android-a (3 phones)",
    "reality-a": "reality-a (42 phones)", "epm": "EPM", "schonlau": "Schonlau",
}  # fmt: skip
_NEURAL, _TREES = (f"{ROOT}/benchmarks/rivals/{file}.py" for file in ("appusage2vec", "ranker"))
OF_FILES = {
    "appusage2vec": f"{_NEURAL}:AppUsage2Vec",
    "appusage2vec-online": f"{_NEURAL}:AppUsage2VecOnline",
    "ranker": f"{_TREES}:Ranker",
    "ranker-online": f"{_TREES}:RankerOnline",
}
OURS = ("nextapp", "nextapp-alone")
RULES = ("recents", "kiss", "chromeos", "count-mix")
KINDS = {
    "frozen": ("mru", "mfu", "sr", "sr-od", "appusage2vec"),
    "online": (*RULES, "mfu-online", "sr-online", "sr-od-online", "ppm", "appusage2vec-online"),
    "trees over our statistics": ("ranker", "ranker-online"),
}
ON_THE_PHONE = (*RULES, "mfu-online", "sr-od-online", "ppm")
RIVALS = tuple(name for names in KINDS.values() for name in names)
PARTS = {
    "nextapp-alone": "the crowd (`nextapp-alone`)",
    "nextapp-no-pairs": "what the crowd knows after two apps (`-no-pairs`)",
    **{f"nextapp-no-{name}": f"{name}: {', '.join(of)}" for name, of in GROUPS.items()},
    "nextapp-no-added": "added: weights the same after all apps",
    "nextapp-no-adaptation": "adaptation: weights stay where they start",
    **{f"nextapp-no-{name}": name for name in STATISTICS},
}
HONEST = (*OURS, *ON_THE_PHONE)
LEADS = {
    "paper": {"nextapp": KINDS},
    "honest": {"nextapp-alone": {"on the phone": ON_THE_PHONE}},
}
PRESETS = {"paper": tuple(dict.fromkeys((*OURS, *RIVALS, *PARTS))), "honest": HONEST}
METRICS = ("HR@1", "HR@3", "HR@5")
CALIBRATED = ("nextapp", "ppm", "appusage2vec")
TABLES = ("different", "openings")
FARTHEST = -3.4  # left end of a panel of the picture
MARKERS = {"HR@1": (-0.17, plots.ACCENT), "HR@5": (0.17, plots.PALETTE[1])}

Results = dict[str, dict[str, dict[str, Any]]]  # by log, preset and model
Triple = list[float]  # mean, and the ends of its 95 % interval over users


# Measuring


def measure(source: str, preset: str, models: list[str]) -> dict[str, Any]:
    """The figures of each model, and its paired difference to `nextapp`."""
    asked = exam(read_log(source, seed=0), Split.parse(SPLIT), find_preset(preset))
    named = tuple(OF_FILES.get(name, name) for name in models)
    experiment = Experiment(source, models=named, split=SPLIT, preset=preset)
    found = evaluate(asked, experiment.predictors(), seed=0)
    kept = {name: to_keep(found, name, row) for name, row in found.summary()["models"].items()}
    for ours, kinds in LEADS[preset].items():
        for kind, rivals in kinds.items():
            if {ours, *rivals} <= set(models):
                kept[ours].setdefault("leads", {})[kind] = leads(found, ours, rivals)
    return kept


def leads(found: Evaluation, ours: str, rivals: tuple[str, ...]) -> dict[str, Any]:
    """By table and metric: the best of these rivals, and the lead over the best."""
    marks = [mark for mark in found.marks if mark.name in (ours, *rivals)]
    smallest = Evaluation(found.exam, marks, found.seed).leads(ours)
    ends = ("difference", "low", "high")
    return {
        table: {
            metric: [of_table[metric]["rival"], *rounded([of_table[metric][end] for end in ends])]
            for metric in METRICS
        }
        for table, of_table in smallest.items()
    }


def to_keep(found: Evaluation, name: str, row: dict[str, Any]) -> dict[str, Any]:
    gap = found.difference(name, "nextapp")
    kept: dict[str, Any] = {
        "HR": {each: rounded([row[each], *row["ci95"][each]]) for each in METRICS},
        "less nextapp": {each: rounded(list(gap[each].values())) for each in METRICS},
    }
    if found.exam.preset.name == "honest":
        kept |= {
            table: {each: rounded([row[table][each], *row[table]["ci95"][each]])
                    for each in METRICS}
            for table in TABLES
        }  # fmt: skip
    if name in CALIBRATED:
        kept["calibration"] = {
            key: rounded(list(row["calibration"][key].values())) for key in ("ece", "ece_first")
        }
    if name == "nextapp":
        said = row["calibration"]["reliability"]
        kept["reliability"] = {
            f"{edge:g}": rounded([each, came])
            for edge, each, came in zip(said["from"], said["said"], said["came"], strict=True)
        }
    return kept


def rounded(values: list[float]) -> list[float]:
    return [round(float(value), 5) for value in values]


# The picture


def parts_picture(found: Results) -> Figure:
    """Change of HR@1 and HR@5 without each part, a panel per log; hundredths."""
    import matplotlib.pyplot as plt

    names = list(PARTS)
    with plt.rc_context(plots.STYLE):
        figure, panels = plt.subplots(1, len(LOGS), figsize=(11, 6.4), sharey=True)
        for panel, (log, title) in zip(panels, LOGS.items(), strict=True):
            models = found[log]["paper"]
            for metric, (offset, colour) in MARKERS.items():
                for place, name in enumerate(names):
                    triple = [100 * each for each in models[name]["less nextapp"][metric]]
                    _draw_change(panel, place + offset, triple, colour)
            panel.axvline(0.0, color=plots.FAINT, linewidth=0.8, zorder=0)
            panel.set_xlim(FARTHEST, 1.6)
            panel.set_xticks([-3, -2, -1, 0, 1], ["−3", "−2", "−1", "0", "1"])
            panel.set_title(title.split(" ")[0], fontsize=10)
            panel.tick_params(axis="y", length=0)
            plots.grid(panel)
        panels[0].set_yticks(range(len(names)), [part_label(name) for name in names])
        panels[0].invert_yaxis()
        for metric, (_, colour) in MARKERS.items():
            panels[0].plot([], [], "o-", color=colour, markersize=4, label=metric)
        figure.legend(loc="lower right", ncols=2, frameon=False)
        plots.heading(figure, "What each part is worth: change of hit rates without it")
        figure.supxlabel("hundredths; 95 % intervals over users", fontsize=9)
        figure.tight_layout()
    return figure


def _draw_change(panel: Axes, place: float, triple: Triple, colour: str) -> None:
    """A dot with its interval; a change beyond the panel is an arrow with its value."""
    mean, low, high = triple
    if mean < FARTHEST:
        panel.plot([FARTHEST + 0.12], [place], "<", color=colour, markersize=5, clip_on=False)
        panel.text(FARTHEST + 0.3, place, f"{mean:.1f}".replace("-", "−"), color=colour,
                   fontsize=8, va="center")  # fmt: skip
        return
    panel.plot([low, high], [place, place], color=colour, linewidth=1.4)
    panel.plot([mean], [place], "o", color=colour, markersize=4)


def part_label(model: str) -> str:
    names = {"nextapp-alone": "the crowd", "nextapp-no-pairs": "crowd after two apps"}
    return names.get(model, model.removeprefix("nextapp-no-"))


def write(root: Path) -> None:
    found = json.loads((root / RESULTS).read_text(encoding="utf-8"))
    missing = [
        f"{log}, {preset}: {model}"
        for log in LOGS
        for preset, models in PRESETS.items()
        for model in models
        if model not in found.get(log, {}).get(preset, {})
    ]
    if missing:
        sys.exit(f"the picture stays as it is; not measured yet: {'; '.join(missing)}")
    words = "What each part of the predictor is worth: change of hit rates without it, on five logs"
    plots.save(parts_picture(found), root / PICTURE, words)
    (root / PICTURE).with_suffix(".png").unlink()  # pages show the SVG


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=Path, nargs="?", help="of the logs, as .csv or .csv.gz")
    parser.add_argument("--logs", default=",".join(LOGS), help="names of logs")
    parser.add_argument("--models", default="", help="these only; the others keep their figures")
    parser.add_argument("--write", action="store_true", help="measure nothing, draw the picture")
    given = parser.parse_args()
    if not given.write:
        if given.folder is None:
            parser.error("name the folder of the logs, or give --write")
        path = ROOT / RESULTS
        found: Results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        for log in given.logs.split(","):
            source = next(iter(sorted(given.folder.glob(f"{log}.csv*"))), None)
            if source is None:
                sys.exit(f"there is no {log}.csv or {log}.csv.gz in {given.folder}.")
            for preset, everything in PRESETS.items():
                wanted = given.models.split(",") if given.models else list(everything)
                models = [each for each in wanted if each in everything]
                if not models:
                    continue
                start = time.perf_counter()
                models = list(dict.fromkeys(["nextapp", *models]))  # differences are to nextapp
                kept = found.setdefault(log, {}).setdefault(preset, {})
                for name, row in measure(str(source), preset, models).items():
                    if "leads" in kept.get(name, {}):
                        row["leads"] = kept[name]["leads"] | row.get("leads", {})
                    kept[name] = row
                path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
                print(f"{log}, {preset}: {time.perf_counter() - start:.0f} s", flush=True)
    write(ROOT)


if __name__ == "__main__":
    main()
