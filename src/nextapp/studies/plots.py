"""Figures: drawn once, saved as SVG and PNG, readable in black and white."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "svg.fonttype": "none",
    "svg.hashsalt": "nextapp",
}
INK = "#1b1b1b"
ACCENT = "#b3261e"
FAINT = "#8a8a8a"


def save(figure: Figure, path: Path) -> None:
    """As path.svg and path.png."""
    for ending in (".svg", ".png"):
        metadata = {"Date": None} if ending == ".svg" else {}
        figure.savefig(path.with_suffix(ending), dpi=160, bbox_inches="tight", metadata=metadata)


def titled(source: str) -> str:
    """A source as a title says it; synthetic phones are always called so."""
    return f"{source} (synthetic twin, not the data)" if source.startswith("synthetic:") else source


def hit_rates(result: Mapping[str, Any]) -> Figure:
    """Every model's HR@1, 3, 5 with its interval; open circles leave exact repeats out."""
    names = list(result["models"])[::-1]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.5, 0.42 * len(names) + 1.9), layout="constrained")
        panels = figure.subplots(1, 3, sharey=True)
        for panel, metric in zip(panels, ("HR@1", "HR@3", "HR@5"), strict=True):
            for place, name in enumerate(names):
                figures = result["models"][name]
                ours = name.startswith("seqmf")
                color = ACCENT if ours else INK
                low, high = figures["ci95"][metric]
                panel.plot([low, high], [place, place], color=color, lw=2.2, solid_capstyle="round")
                panel.plot(figures[metric], place, "o", color=color, ms=6)
                changed = figures["without_repeats"][metric]
                if changed is not None:
                    panel.plot(changed, place, "o", ms=6, mfc="white", mec=color)
            panel.set_title(metric)
            panel.set_xlim(0, 1)
            panel.set_yticks(range(len(names)), names)
            panel.grid(axis="x", color="#dddddd", lw=0.7)
            panel.set_axisbelow(True)
            panel.tick_params(axis="y", length=0)
        figure.suptitle(
            f"{titled(result['data']['source'])}: {result['n_predictions']:,} predictions, "
            f"{result['n_users']} test users, preset {result['preset']}",
            x=0.01,
            ha="left",
            fontsize=11,
        )
        figure.supxlabel(
            "● all predictions, bar: 95 % interval over users      ○ exact repeats left out",
            fontsize=9,
            color=FAINT,
        )
    return figure


def activity(description: Mapping[str, Any], source: str) -> Figure:
    """Active users and launches, day by day."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.5, 3.6), layout="constrained")
        above, below = figure.subplots(2, 1, sharex=True)
        days = np.arange(description["n_days"])
        above.fill_between(days, description["users_by_day"], step="mid", color=INK, lw=0)
        above.set_title(f"{titled(source)}: active users a day")
        below.fill_between(days, description["launches_by_day"], step="mid", color=FAINT, lw=0)
        below.set_title("launches a day")
        below.set_xlabel("day")
        for panel in (above, below):
            panel.set_xlim(0, max(1, days[-1]))
            panel.set_ylim(0)
    return figure


def gains(points: Sequence[Mapping[str, Any]], epsilon: float | None) -> Figure:
    """What each mechanism gains in HR@5 over a frozen Q, against the number of phones."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8.5, 4.6), layout="constrained")
        panel = figure.subplots()
        names = list(dict.fromkeys(point["mechanism"] for point in points))
        markers = "osD^vP*X<>"
        for number, name in enumerate(names):
            for zero in (False, True):
                mine = [p for p in points if p["mechanism"] == name and p["zero_gradients"] == zero]
                if not mine:
                    continue
                phones = [p["phones"] for p in mine]
                gained = [p["hr5_gain"] for p in mine]
                low, high = zip(*(p["hr5_gain_ci95"] for p in mine), strict=True)
                shade = str(0.65 * number / max(1, len(names)))
                panel.plot(
                    phones,
                    gained,
                    marker=markers[number % len(markers)],
                    ls=":" if zero else "-",
                    color=FAINT if zero else shade,
                    mfc="white" if zero else shade,
                    label=f"{name}, zero gradients" if zero else name,
                )
                if not zero:
                    panel.fill_between(phones, low, high, color=shade, alpha=0.15, lw=0)
        panel.axhline(0, color=ACCENT, lw=1)
        panel.annotate(
            "frozen Q",
            (0.995, 0),
            xycoords=("axes fraction", "data"),
            xytext=(0, 3),
            textcoords="offset points",
            ha="right",
            color=ACCENT,
        )
        panel.set_xscale("log")
        panel.set_xlabel("phones")
        budget = "" if epsilon is None else f", ε = {epsilon:g} a report"
        panel.set_title(f"HR@5 gained over a frozen Q, synthetic phones{budget}")
        panel.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def cold_start(result: Mapping[str, Any]) -> Figure:
    """HR@5 of new phones against launches seen, a line a prior; and the gain of each over none."""
    names = list(result["priors"])
    dashes = ("-", "-", (0, (6, 2)), (0, (4, 2, 1, 2)), (0, (2, 2)), (0, (1, 1.5)))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10.5, 4.2), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1.4, 1))
        for number, name in enumerate(names):
            bins = [each for each in result["priors"][name]["bins"] if each["HR@5"] is not None]
            # shifted a little so that intervals do not hide each other
            place = np.arange(len(bins)) + 0.06 * (number - len(names) / 2)
            mean, low, high = (
                np.array([each["HR@5"][word] for each in bins]) for word in ("mean", "low", "high")
            )
            plain = number == 0
            shade = FAINT if plain else str(0.12 * max(0, len(names) - 1 - number))
            left.errorbar(
                place,
                mean,
                yerr=[mean - low, high - mean],
                ls=dashes[number % len(dashes)],
                marker="osD^vP*X"[number % 8],
                color=shade,
                mfc="white" if plain else shade,
                lw=1.4,
                elinewidth=0.8,
                label=f"{name} the crowd" if plain else f"crowd, {name}",
            )
            gain = result["priors"][name]["headline"]["gain@5"]
            if number and gain is not None:
                right.plot([gain["low"], gain["high"]], [-number] * 2, color=shade, lw=2.2)
                right.plot(gain["mean"], -number, "osD^vP*X"[number % 8], color=shade, ms=7)
        shown = [each for each in result["priors"][names[0]]["bins"] if each["HR@5"] is not None]
        labels = [f"{each['from']}–{each['to']}" for each in shown]
        left.set_xticks(range(len(labels)), labels)
        left.set_xlabel("launches seen")
        left.set_title("HR@5 of new phones")
        left.legend(frameon=False, fontsize=8)
        right.axvline(0, color=ACCENT, lw=1)
        right.set_yticks([-number for number in range(1, len(names))], names[1:])
        first, last = result["headline"]
        right.set_title(f"gained over launches {first}–{last}")
        for panel in (left, right):
            panel.grid(axis="both", color="#e5e5e5", lw=0.6)
            panel.set_axisbelow(True)
        about = result["data"]
        source = about["source"] if about["notes"] == [] else Path(about["source"]).name
        figure.suptitle(
            f"{source} ({about['kind']}): {result['n_new'][0]:,} new phones, crowd of "
            f"{result['n_crowd'][0]:,}",
            x=0.01,
            ha="left",
            fontsize=10,
        )
        figure.supxlabel("bars: 95 % interval over new phones", fontsize=9, color=FAINT)
    return figure
