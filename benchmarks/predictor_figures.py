"""The figures of the predictor: rivals, the crowd, what each part is worth, calibration.

    python benchmarks/predictor_figures.py FOLDER           # android-a, epm, reality-a, schonlau
    python benchmarks/predictor_figures.py FOLDER --logs epm --models ppm,ranker
    python benchmarks/predictor_figures.py --write          # tables and picture once more

It measures models on the test part of each log (split fraction:0.8,0,0.2), keeps the figures in
docs/results/predictor.json, and writes the tables of docs/results/predictor.md and the picture
docs/images/predictor-parts.svg from that file. A model that is not named keeps its old figures. All
models take about 20 minutes on two idle cores, most of it for `appusage2vec` and `ranker`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nextapp.data import Split, read
from nextapp.evaluation import Evaluation, evaluate, exam, find_preset
from nextapp.predictor import GROUPS, STATISTICS
from nextapp.studies import plots
from nextapp.studies.settings import Experiment

ROOT = Path(__file__).parent.parent
RESULTS = Path("docs/results/predictor.json")
PAGE = Path("docs/results/predictor.md")
PICTURE = Path("docs/images/predictor-parts.svg")

SPLIT = "fraction:0.8,0,0.2"
LOGS = {
    "epm": "EPM", "schonlau": "Schonlau", "reality-a": "reality-a (42 phones)",
    "android-a": "android-a (3 phones)",
}  # fmt: skip
GOALS = {  # HR@1, HR@5, set before the predictor was written
    "epm": (0.435, 0.890), "schonlau": (0.820, 0.940), "reality-a": (0.550, 0.922),
    "android-a": (0.428, 0.795),
}  # fmt: skip
OF_FILES = {
    "appusage2vec": f"{ROOT}/benchmarks/rivals/appusage2vec.py:AppUsage2Vec",
    "ranker": f"{ROOT}/benchmarks/rivals/ranker.py:Ranker",
}
OURS = ("nextapp", "nextapp-alone")
RIVALS = (
    "mru", "mru-online", "mfu", "mfu-online", "sr", "sr-online", "sr-od", "sr-od-online", "ppm",
    "appusage2vec", "nextapp", "ranker",
)  # fmt: skip
PARTS = {
    "nextapp-alone": "the crowd (`nextapp-alone`)",
    "nextapp-no-pairs": "what the crowd knows after two apps (`-no-pairs`)",
    **{f"nextapp-no-{name}": f"{name}: {', '.join(of)}" for name, of in GROUPS.items()},
    "nextapp-no-added": "added: weights the same after all apps",
    "nextapp-no-adaptation": "adaptation: weights stay where they start",
    **{f"nextapp-no-{name}": name for name in STATISTICS},
}
HONEST = (*OURS, "sr-od-online", "mru-online")
PRESETS = {"paper": tuple(dict.fromkeys((*OURS, *RIVALS, *PARTS))), "honest": HONEST}
METRICS = ("HR@1", "HR@3", "HR@5")
ENDS = ("HR@1", "HR@5")
CALIBRATED = ("nextapp", "ppm", "appusage2vec")
SAID = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
THRESHOLDS = (0.05, 0.1, 0.2, 0.5)
TOPS = (1, 2, 3, 5)
FARTHEST = -3.4  # left end of a panel of the picture
MARKERS = {"HR@1": (-0.17, plots.ACCENT), "HR@5": (0.17, plots.PALETTE[1])}

Results = dict[str, dict[str, dict[str, Any]]]  # by log, preset and model
Triple = list[float]  # mean, and the ends of its 95 % interval over users


# Measuring


def measure(source: str, preset: str, models: list[str]) -> dict[str, Any]:
    """The figures of each model, and its paired difference to `nextapp`."""
    asked = exam(read(source, seed=0), Split.parse(SPLIT), find_preset(preset))
    named = tuple(OF_FILES.get(name, name) for name in models)
    experiment = Experiment(source, models=named, split=SPLIT, preset=preset)
    found = evaluate(asked, experiment.predictors(), seed=0)
    return {name: to_keep(found, name, row) for name, row in found.summary()["models"].items()}


def to_keep(found: Evaluation, name: str, row: dict[str, Any]) -> dict[str, Any]:
    gap = found.difference(name, "nextapp")
    kept: dict[str, Any] = {
        "HR": {each: rounded([row[each], *row["ci95"][each]]) for each in METRICS},
        "less nextapp": {each: rounded(list(gap[each].values())) for each in METRICS},
    }
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
        above = row["prewarm"]["above"]
        kept["prewarm"] = {
            f"{threshold:g}": rounded(rest)
            for threshold, *rest in zip(*above.values(), strict=True)
        }
    if name == "mru-online":
        kept["prewarm"] = dict(
            zip(map(str, row["prewarm"]["first"]["prewarms"]),
                rounded(row["prewarm"]["first"]["hits"]), strict=True)
        )  # fmt: skip
    return kept


def rounded(values: list[float]) -> list[float]:
    return [round(float(value), 5) for value in values]


# Tables


def short(value: float, sign: str = "") -> str:
    """Three digits, without the 0 before the point."""
    text = f"{value:{sign}.3f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:{sign}.3f}"
    return ("±.000" if sign and float(f"{value:.3f}") == 0 else text).replace("-", "−")


def with_ends(triple: Triple, sign: str = "") -> str:
    mean, low, high = (short(each, sign) for each in triple)
    return f"{mean} ({low} to {high})"


def three(row: dict[str, Any]) -> str:
    return " / ".join(short(row["HR"][each][0]) for each in METRICS)


def table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def goals_table(found: Results) -> str:
    rows = []
    for log, name in LOGS.items():
        models = found[log]["paper"]
        ends = (with_ends(models["nextapp"]["HR"][each]) for each in METRICS)
        rows.append([name, *ends, three(models["nextapp-alone"]),
                     " / ".join(short(each) for each in GOALS[log])])  # fmt: skip
    return table(["nextapp", *METRICS, "nextapp-alone", "goal, HR@1 / HR@5"], rows)


def crowd_table(found: Results) -> str:
    rows = []
    for log, name in LOGS.items():
        less = found[log]["paper"]["nextapp-alone"]["less nextapp"]
        gains = ([-less[each][0], -less[each][2], -less[each][1]] for each in METRICS)
        rows.append([name, *(with_ends(each, "+") for each in gains)])
    return table(["nextapp − nextapp-alone", *METRICS], rows)


def honest_table(found: Results) -> str:
    rows = [
        [name, *(three(found[log]["honest"][model]) for model in HONEST)]
        for log, name in LOGS.items()
    ]
    return table(["preset `honest`", *HONEST], rows)


def rivals_table(found: Results) -> str:
    rows = []
    for model in RIVALS:
        cells = [model]
        for log in LOGS:
            row = found[log]["paper"][model]
            ends = ", ".join(
                "–".join(short(end) for end in row["HR"][each][1:]) for each in ENDS
            )  # fmt: skip
            cells.append(f"{three(row)}<br>{ends}")
        rows.append(cells)
    return table(["HR@1 / HR@3 / HR@5", *LOGS.values()], rows)


def lead_table(found: Results) -> str:
    """How far nextapp is ahead of the best rival of each kind."""
    kinds = {
        "best that stops learning": [each for each in RIVALS[:8] if not each.endswith("online")],
        "best that learns on": [each for each in RIVALS[:9] if each.endswith("online")] + ["ppm"],
        "ranker, trained on the log": ["ranker"],
    }
    rows = []
    for log, name in LOGS.items():
        models = found[log]["paper"]
        for kind, rivals in kinds.items():
            cells = [name, kind]
            for each in ENDS:
                best = max(rivals, key=lambda rival: models[rival]["HR"][each][0])
                mean, low, high = models[best]["less nextapp"][each]
                cells.append(f"{with_ends([-mean, -high, -low], '+')}, {best}")
            rows.append(cells)
    return table(["", "nextapp − rival, paired", *ENDS], rows)


def parts_table(found: Results) -> str:
    heads = [
        "without",
        *(f"{name.split(' ')[0]} {each}" for name in LOGS.values() for each in ENDS),
    ]
    rows = [
        [words, *(with_ends(found[log]["paper"][model]["less nextapp"][each], "+")
                  for log in LOGS for each in ENDS)]
        for model, words in PARTS.items()
    ]  # fmt: skip
    return table(heads, rows)


def calibration_table(found: Results) -> str:
    rows = []
    for log, name in LOGS.items():
        models = found[log]["paper"]
        errors = models["nextapp"]["calibration"]
        rivals = (models[each]["calibration"]["ece"] for each in CALIBRATED[1:])
        rows.append([name, *(with_ends(each) for each in (*errors.values(), *rivals))])
    heads = [
        "ECE",
        "all apps",
        "first suggestion",
        *(f"`{each}`, all apps" for each in CALIBRATED[1:]),
    ]
    return table(heads, rows)


def reliability_table(found: Results) -> str:
    edges = [f"{edge:g}" for edge in SAID]
    heads = ["said, came", *(f"{edge} and more" for edge in edges)]
    rows = []
    for log, name in LOGS.items():
        said = found[log]["paper"]["nextapp"]["reliability"]
        cells = (", ".join(map(short, said[edge])) if edge in said else "–" for edge in edges)
        rows.append([name, *cells])
    return table(heads, rows)


def prewarm_table(found: Results) -> str:
    heads = ["prewarms, hits per launch", *(f"P ≥ {each:g}" for each in THRESHOLDS)]
    heads += [f"MRU, first {each}" for each in TOPS]
    rows = []
    for log, name in LOGS.items():
        above = found[log]["paper"]["nextapp"]["prewarm"]
        cells = [name]
        for each in THRESHOLDS:
            prewarms, hits, *ends = above[f"{each:g}"]
            low, high = map(short, ends)
            cells.append(f"{prewarms:.1f}, {short(hits)} ({low}–{high})")
        first = found[log]["paper"]["mru-online"]["prewarm"]
        rows.append([*cells, *(short(first[str(each)]) for each in TOPS)])
    return table(heads, rows)


TABLES: dict[str, Callable[[Results], str]] = {
    "goals": goals_table,
    "crowd": crowd_table,
    "honest": honest_table,
    "rivals": rivals_table,
    "lead": lead_table,
    "parts": parts_table,
    "calibration": calibration_table,
    "reliability": reliability_table,
    "prewarm": prewarm_table,
}


def with_tables(page: str, found: Results) -> str:
    """The page with each table between its comments made anew."""

    def block(match: re.Match[str]) -> str:
        return f"{match[1]}\n{TABLES[match['name']](found)}\n{match[3]}"

    pattern = r"(<!-- figures: (?P<name>\w+) -->\n).*?(<!-- end of figures -->)"
    return re.sub(pattern, block, page, flags=re.DOTALL)


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
        sys.exit(f"the page stays as it is; not measured yet: {'; '.join(missing)}")
    page = root / PAGE
    page.write_text(with_tables(page.read_text(encoding="utf-8"), found), encoding="utf-8")
    words = "What each part of the predictor is worth: change of hit rates without it, on four logs"
    plots.save(parts_picture(found), root / PICTURE, words)
    (root / PICTURE).with_suffix(".png").unlink()  # pages show the SVG


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=Path, nargs="?", help="of the logs, as .csv or .csv.gz")
    parser.add_argument("--logs", default=",".join(LOGS), help="names of logs")
    parser.add_argument("--models", default="", help="these only; the others keep their figures")
    parser.add_argument("--write", action="store_true", help="measure nothing, write the page")
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
                kept.update(measure(str(source), preset, models))
                path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
                print(f"{log}, {preset}: {time.perf_counter() - start:.0f} s", flush=True)
    write(ROOT)


if __name__ == "__main__":
    main()
