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
