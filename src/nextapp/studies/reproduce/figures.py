"""Figures 3 to 6 and the number of phones, drawn to be read without colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from nextapp.studies.drawing import (
    ACCENT,
    DASHES,
    FAINT,
    INK,
    OURS,
    STYLE,
    Look,
    bar_with_dot,
    grid,
    label,
    legend_below,
    lines,
)

Result = Mapping[str, Any]

# In tables and means only.
BESIDE = ("random", "mru", "mfu", "sr", "mf", "seqmf", "seqmf-frozen", "ceiling")


def in_cycles(result: Result, *, unit: str) -> Figure:
    """HR@5 cycle by cycle, and its difference to the reference added up; bands: 95 % intervals."""
    names = [name for name in result["series"] if name not in BESIDE]
    look = Look(names)
    cycles = result["evaluated"]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10.5, 4.4), layout="constrained")
        left, right = figure.subplots(1, 2)
        lines(left, names, look, cycles, lambda name: result["series"][name]["HR@5"])
        reference = next(iter(result["series"].values()))["delta"]["reference"]
        others = [name for name in names if name != reference]
        lines(right, others, look, cycles, lambda name: result["series"][name]["delta"])
        right.axhline(0, color=look.of(reference)["color"], lw=1.2)
        left.set_title("HR@5")
        right.set_title(f"cumulative δHR@5 against {label(reference)}")
        for moved in result.get("q_moves_after", []):
            for panel in (left, right):
                panel.axvline(moved + 0.5, color=FAINT, lw=0.6, ls=DASHES[-1], zorder=0)
        for panel in (left, right):
            panel.set_xlabel(f"{unit}   (thin verticals: Q moves)")
            panel.set_xticks(_whole(cycles))
    return figure


def contrasts(result: Result, references: Sequence[str]) -> Figure:
    """Each series' gain in HR@5 over the references, mean over cycles, with its interval."""
    names = [
        name
        for name in result["series"]
        if all(
            name != reference and result["differences"][name][reference]["HR@5"]["mean"] is not None
            for reference in references
        )
    ]
    names.sort(key=lambda name: result["differences"][name][references[0]]["HR@5"]["mean"])
    with mpl.rc_context(STYLE):
        size = (10.5, 0.34 * len(names) + 1.3)
        figure = Figure(figsize=size, layout="constrained")
        panels = np.atleast_1d(figure.subplots(1, len(references), sharey=True))
        for panel, reference in zip(panels, references, strict=True):
            for place, name in enumerate(names):
                gap = result["differences"][name][reference]["HR@5"]
                color = ACCENT if name in OURS else INK
                sure = gap["low"] > 0 or gap["high"] < 0
                ends = (gap["mean"], gap["low"], gap["high"])
                bar_with_dot(panel, place, ends, color, filled=sure)
            panel.axvline(0, color=FAINT, lw=1)
            panel.set_title(f"HR@5 − {label(reference)}", fontsize=10)
            panel.set_yticks(range(len(names)), [label(name) for name in names])
            grid(panel)
        legend_below(
            figure,
            "mean over cycles, bar: 95 % interval over users and seeds; ○ the interval holds 0",
        )
    return figure


def phones(result: Result) -> Figure:
    """What each mechanism gains over its controls, by number of phones."""
    names = list(result["mechanisms"])
    look = Look(names)
    controls = (("frozen", "frozen Q"), ("zero", "zero gradients"), ("noise", "its noise alone"))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(11.5, 4.4), layout="constrained")
        sizes = sorted({n for name in names for n in result["mechanisms"][name]["phones"]})
        panels = figure.subplots(1, len(controls), sharey=True)
        for number, (panel, (key, word)) in enumerate(zip(panels, controls, strict=True)):
            gains = {
                name: {**row[f"gain_over_{key}"], "at": row["phones"]}
                for name, row in result["mechanisms"].items()
            }
            named = number == len(controls) - 1
            lines(panel, names, look, None, gains.__getitem__, named=named)
            panel.set_xscale("log")
            panel.set_xticks(sizes, [_power(n) for n in sizes])
            panel.minorticks_off()
            panel.axhline(0, color=FAINT, lw=1)
            panel.set_title(f"gain over {word}", fontsize=10)
            panel.set_xlabel("phones")
        panels[0].set_ylabel("HR@5 gained")
    return figure


def _power(n: int) -> str:
    return f"{n / 1000:g}k" if n >= 1000 else str(n)


def _whole(cycles: Sequence[int]) -> list[int]:
    step = max(1, round(len(cycles) / 8))
    return list(cycles[::step])
