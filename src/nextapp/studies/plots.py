"""Figures of results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from nextapp.studies.drawing import (
    ACCENT,
    DASHES,
    FAINT,
    INK,
    MARKERS,
    STYLE,
    Look,
    bar_with_dot,
    grid,
    heading,
    legend_below,
    lines,
    titled,
)


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
                bar_with_dot(panel, place, (figures[metric], low, high), color)
                changed = figures["without_repeats"][metric]
                if changed is not None:
                    panel.plot(changed, place, "o", ms=6, mfc="white", mec=color)
            panel.set_title(metric)
            panel.set_xlim(0, 1)
            panel.set_yticks(range(len(names)), names)
            grid(panel)
            panel.tick_params(axis="y", length=0)
        heading(
            figure,
            f"{titled(result['data']['source'])}: {result['n_predictions']:,} predictions, "
            f"{result['n_users']} test users, preset {result['preset']}",
        )
        legend_below(
            figure, "● all predictions, bar: 95 % interval over users      ○ exact repeats left out"
        )
    return figure


def activity(counts: Mapping[str, Mapping[str, Sequence[int]]], title: str = "") -> Figure:
    """Active users and launches, a column of panels by day and one by cycle, as `counts` has them.

    Figure 2 of the paper has both: the log as it is, and as the dynamic environment takes it.
    """
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.5, 4.8), layout="constrained")
        panels = figure.subplots(2, len(counts), sharex="col", squeeze=False)
        for column, (word, found) in enumerate(counts.items()):
            for row, (what, shown) in enumerate(
                (("n_users", "active users"), ("n_launches", "launches"))
            ):
                panel = panels[row, column]
                heights = np.asarray(found[what])
                places = np.arange(1, len(heights) + 1)
                width = 1.0 if len(heights) > 60 else 0.8
                color = INK if row == 0 else FAINT
                panel.bar(places, heights, width=width, color=color, lw=0)
                panel.set_title(f"{shown} a {word}", fontsize=10)
                panel.set_ylim(0)
                mean = heights.mean()
                panel.axhline(mean, color=ACCENT, lw=1, ls=DASHES[1])
                spread = heights.std() / mean if mean else 0.0
                panel.set_title(
                    f"mean {mean:,.0f} ± {spread:.0%}", loc="right", fontsize=8.5, color=ACCENT
                )
            panels[1, column].set_xlabel(word)
        if title:
            heading(figure, title)
    return figure


def gains(points: Sequence[Mapping[str, Any]], epsilon: float | None) -> Figure:
    """What each mechanism gains in HR@5 over a frozen Q, against the number of phones."""
    curves: dict[str, dict[str, list[float]]] = {}
    for point in points:
        name = point["mechanism"] + (", zero gradients" if point["zero_gradients"] else "")
        curve = curves.setdefault(name, {"at": [], "mean": [], "low": [], "high": []})
        values = (point["phones"], point["hr5_gain"], *point["hr5_gain_ci95"])
        for each, value in zip(curve.values(), values, strict=True):
            each.append(value)
    zeros = [name for name in curves if name.endswith(", zero gradients")]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8.5, 4.6), layout="constrained")
        panel = figure.subplots()
        panel.set_xscale("log")
        panel.axhline(0, color=ACCENT, lw=1)
        lines(panel, list(curves), Look(list(curves), faint=zeros), None, curves.__getitem__)
        panel.annotate(
            "frozen Q",
            (0.995, 0),
            xycoords=("axes fraction", "data"),
            xytext=(0, 3),
            textcoords="offset points",
            ha="right",
            color=ACCENT,
        )
        panel.set_xlabel("phones")
        budget = "" if epsilon is None else f", ε = {epsilon:g} a report"
        panel.set_title(f"HR@5 gained over a frozen Q, synthetic phones{budget}")
    return figure


def cold_start(result: Mapping[str, Any]) -> Figure:
    """HR@5 of new phones against launches seen, a line a prior; and the gain of each over none."""
    names = list(result["priors"])
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
                ls=DASHES[number % len(DASHES)],
                marker=MARKERS[number % len(MARKERS)],
                color=shade,
                mfc="white" if plain else shade,
                lw=1.4,
                elinewidth=0.8,
                label=f"{name} the crowd" if plain else f"crowd, {name}",
            )
            gain = result["priors"][name]["headline"]["gain@5"]
            if number and gain is not None:
                ends = (gain["mean"], gain["low"], gain["high"])
                marker = MARKERS[number % len(MARKERS)]
                bar_with_dot(right, -number, ends, shade, marker=marker)
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
            grid(panel, "both")
        about = result["data"]
        source = about["source"] if about["notes"] == [] else Path(about["source"]).name
        heading(
            figure,
            f"{source} ({about['kind']}): {result['n_new'][0]:,} new phones, crowd of "
            f"{result['n_crowd'][0]:,}",
        )
        legend_below(figure, "bars: 95 % interval over new phones")
    return figure
