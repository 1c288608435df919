"""Figures of results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nextapp.studies.drawing import (
    ACCENT,
    DASHES,
    FAINT,
    INK,
    STYLE,
    ZERO,
    Look,
    bar_with_dot,
    grid,
    heading,
    label,
    legend_below,
    lines,
    name_line_ends,
    source_title,
)


def hit_rates(result: Mapping[str, Any]) -> Figure:
    """Every model's HR@1, 3, 5 with its interval, best HR@5 on top; nextapp stands out.

    Open circles leave exact repeats out.
    """
    models = result["models"]
    names = sorted(models, key=lambda name: models[name]["HR@5"])
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.5, 0.42 * len(names) + 1.9), layout="constrained")
        panels = figure.subplots(1, 3, sharey=True)
        for panel, metric in zip(panels, ("HR@1", "HR@3", "HR@5"), strict=True):
            for place, name in enumerate(names):
                figures = models[name]
                color = ACCENT if _is_ours(name) else INK
                low, high = figures["ci95"][metric]
                bar_with_dot(panel, place, (figures[metric], low, high), color)
                changed = figures["without_repeats"][metric]
                if changed is not None:
                    panel.plot(changed, place, "o", ms=6, mfc="white", mec=color)
                panel.text(
                    1.03,
                    place,
                    f"{figures[metric]:.3f}".removeprefix("0"),
                    va="center",
                    fontsize=9,
                    color=color,
                    fontweight="bold" if _is_ours(name) else "normal",
                )
            panel.set_title(metric)
            panel.set_xlim(0, 1)
            panel.set_yticks(range(len(names)), [label(name) for name in names])
            grid(panel)
            panel.tick_params(axis="y", length=0)
        for tick, name in zip(panels[0].get_yticklabels(), names, strict=True):
            if _is_ours(name):
                tick.set(color=ACCENT, fontweight="bold")
        heading(
            figure,
            f"{source_title(result['data']['source'])}: {result['n_predictions']:,} predictions, "
            f"{result['n_users']} test users, preset {result['preset']}",
        )
        legend_below(
            figure, "● all predictions, bar: 95 % interval over users      ○ without exact repeats"
        )
    return figure


def hit_rates_in_words(result: Mapping[str, Any]) -> str:
    """What `hit_rates` shows, for those who cannot see it."""
    models = result["models"]
    rates = ", ".join(
        f"{label(name)} {models[name]['HR@5']:.3f}"
        for name in sorted(models, key=lambda name: -models[name]["HR@5"])
    )
    return f"Hit rates on {source_title(result['data']['source'])}. HR@5, best first: {rates}."


def _is_ours(name: str) -> bool:
    return name.startswith("nextapp")


def calibration(result: Mapping[str, Any]) -> Figure:
    """Reliability of models that give probabilities; hits against prewarms of all models."""
    models = result["models"]
    look = Look(list(models))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10.5, 4.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        left.plot([0, 1], [0, 1], color=FAINT, lw=1)
        for name, row in models.items():
            above, first = row["prewarm"]["above"], row["prewarm"]["first"]
            curve = first if above is None else above
            right.plot(curve["prewarms"], curve["hits"], label=label(name), **look.of(name))
            if row["calibration"] is None:
                continue
            found = row["calibration"]["reliability"]
            came, low, high = (np.array(found[key]) for key in ("came", "low", "high"))
            left.errorbar(
                found["said"], came, yerr=np.maximum([came - low, high - came], 0.0),
                elinewidth=0.8, label=label(name), **look.of(name),
            )  # fmt: skip
        left.set(
            xlabel="predicted probability", title="observed frequency", xlim=(0, 1), ylim=(0, 1)
        )
        right.set(
            xlabel="apps prewarmed per launch",
            title="share of launches hit",
            ylim=(0, 1),
            xlim=(0, None),
        )
        right.legend(frameon=False, fontsize=8)
        for panel in (left, right):
            grid(panel, "both")
        heading(
            figure,
            f"{source_title(result['data']['source'])}: {result['n_predictions']:,} predictions, "
            f"{result['n_users']} test users, preset {result['preset']}",
        )
        legend_below(
            figure,
            "bars: 95 % interval over users      models with probabilities prewarm all apps above "
            "a threshold, the others their top n",
        )
    return figure


def activity(counts: Mapping[str, Mapping[str, Sequence[int]]], title: str = "") -> Figure:
    """Active users and launches, with one column of panels per entry of `counts`.

    Figure 2 of the paper has two: by day, and by cycle of the dynamic environment.
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
                panel.set_title(f"{shown} per {word}", fontsize=10)
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
    """Gain of each mechanism in HR@5 over a frozen Q, against the number of phones."""
    curves: dict[str, dict[str, list[float]]] = {}
    for point in points:
        name = point["mechanism"] + ZERO * point["zero_gradients"]
        curve = curves.setdefault(name, {"at": [], "mean": [], "low": [], "high": []})
        values = (point["phones"], point["hr5_gain"], *point["hr5_gain_ci95"])
        for each, value in zip(curve.values(), values, strict=True):
            each.append(value)
    zeros = [name for name in curves if name.endswith(ZERO)]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8.5, 4.6), layout="constrained")
        panel = figure.subplots()
        panel.set_xscale("log")
        panel.axhline(0, color=INK, lw=1)
        lines(panel, list(curves), Look(list(curves), faint=zeros), None, curves.__getitem__)
        panel.annotate(
            "frozen Q",
            (0.005, 0),
            xycoords=("axes fraction", "data"),
            xytext=(2, 3),
            textcoords="offset points",
            color=INK,
            fontsize=9,
        )
        panel.xaxis.set_major_formatter("{x:,.0f}")
        panel.set_xlabel("phones")
        grid(panel, "both")
        budget = "" if epsilon is None else f", ε = {epsilon:g} a report"
        panel.set_title(f"HR@5 gained over a frozen Q, synthetic phones{budget}")
        legend_below(figure, "bands: 95 % interval over phones outside the federation")
    return figure


def gains_in_words(points: Sequence[Mapping[str, Any]]) -> str:
    """What `gains` shows, for those who cannot see it."""
    most = max(point["phones"] for point in points)
    last = ", ".join(
        f"{label(point['mechanism'])} {point['hr5_gain']:+.3f}"
        for point in points
        if point["phones"] == most and not point["zero_gradients"]
    )
    return f"HR@5 gained over a frozen Q on synthetic phones. With {most:,} phones: {last}."


WIDEST = 0.1  # an interval that is wider would hide all others: its launches are left out


def cold_start(result: Mapping[str, Any]) -> Figure:
    """HR@5 of new phones by launches seen, one line per prior; and each prior's gain over none."""
    names = list(result["priors"])
    look = Look(names, faint=names[:1])
    shown = [
        place
        for place in range(len(result["priors"][names[0]]["bins"]))
        if all(_is_narrow(result["priors"][name]["bins"][place]["HR@5"]) for name in names)
    ]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10.5, 4.2), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1.7, 1))
        for number, name in enumerate(names):
            bins = [result["priors"][name]["bins"][place]["HR@5"] for place in shown]
            # shifted a little so that intervals do not hide each other
            place = np.arange(len(bins)) + 0.06 * (number - (len(names) - 1) / 2)
            mean, low, high = (
                np.array([each[word] for each in bins]) for word in ("mean", "low", "high")
            )
            left.errorbar(
                place, mean, yerr=[mean - low, high - mean], elinewidth=0.9, **look.of(name)
            )
            gain = result["priors"][name]["headline"]["gain@5"]
            if number and gain is not None:
                ends = (gain["mean"], gain["low"], gain["high"])
                color, marker = look.of(name)["color"], look.of(name)["marker"]
                bar_with_dot(right, -number, ends, color, marker=marker)
                right.text(
                    gain["mean"], -number + 0.16, f"{gain['mean']:+.3f}", ha="center", color=color
                )
        _name_priors(left, result, names, look, shown)
        bins = result["priors"][names[0]]["bins"]
        left.set_xticks(
            range(len(shown)), [f"{bins[place]['from']}–{bins[place]['to']}" for place in shown]
        )
        left.set_xlabel("launches seen")
        left.set_title("HR@5 of new phones")
        right.axvline(0, color=INK, lw=1)
        right.set_yticks([-number for number in range(1, len(names))], names[1:])
        right.set_ylim(-len(names) + 0.4, -0.5)
        first, last = result["headline"]
        right.set_title(f"gain in HR@5, launches {first}–{last}")
        for panel in (left, right):
            grid(panel, "both")
        about = result["data"]
        source = about["source"] if about["notes"] == [] else Path(about["source"]).name
        heading(
            figure,
            f"{source} ({about['kind']}): {result['n_new'][0]:,} new phones, crowd of "
            f"{result['n_crowd'][0]:,}",
        )
        few = "" if len(shown) == len(bins) else f"; left out where wider than {WIDEST:g}"
        legend_below(figure, f"bars: 95 % interval over new phones{few}")
    return figure


def _is_narrow(found: Mapping[str, float] | None) -> bool:
    return found is not None and found["high"] - found["low"] <= WIDEST


def _name_priors(
    panel: Axes,
    result: Mapping[str, Any],
    names: Sequence[str],
    look: Look,
    shown: Sequence[int],
) -> None:
    """The name of each prior at the end of its line."""
    if not shown:
        return

    def curve(name: str) -> Mapping[str, Any]:
        bins = [result["priors"][name]["bins"][place]["HR@5"] for place in shown]
        return {word: [each[word] for each in bins] for word in ("mean", "low", "high")}

    words = {names[0]: "without the crowd"} | {name: f"crowd, {name}" for name in names[1:]}
    name_line_ends(panel, names, look, range(len(shown)), curve, words)


def cold_start_in_words(result: Mapping[str, Any]) -> str:
    """What `cold_start` shows, for those who cannot see it."""
    told = [
        f"{name} {row['headline']['gain@5']['mean']:+.3f}"
        for name, row in list(result["priors"].items())[1:]
        if row["headline"]["gain@5"] is not None
    ]
    first, last = result["headline"]
    return (
        f"New phones with and without the crowd, {result['data']['kind']}. Gain in HR@5 over "
        f"launches {first} to {last}: {', '.join(told)}."
    )
