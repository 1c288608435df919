"""Figures 2 to 6 and the number of phones, drawn to be read without colour."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nextapp.experiments.plots import ACCENT, FAINT, INK, STYLE

Result = Mapping[str, Any]

# In the report letters are drawn, not written: no reader needs our font.
DRAWN: Any = {**STYLE, "svg.fonttype": "path"}

OURS = ("full", "qharmony-paper", "nextapp")
CONTROLS = ("frozen", "zero")
_DASHES = (
    "-",
    (0, (6, 2)),
    (0, (1, 1.4)),
    (0, (4, 1.5, 1, 1.5)),
    (0, (8, 2, 1, 2, 1, 2)),
    (0, (2, 2)),
)
_MARKERS = "osD^vPX*<>h"
LABELS = {
    "full": "Full",
    "rare": "Rare",
    "global": "Global",
    "sr-od": "SR-od",
    "none": "no privacy",
    "frozen": "frozen Q",
    "zero": "zero gradients",
    "qharmony-paper": "QHarmony (printed)",
    "qharmony": "QHarmony (repaired)",
    "laplace": "Laplace",
    "harmony": "Harmony",
    "kashin": "Kashin",
    "privunit": "PrivUnit",
    "codebook": "Codebook",
    "simhash": "SimHash",
    "nextapp": "nextapp",
    "mru": "MRU",
}


def label(name: str) -> str:
    return LABELS.get(name, name)


def svg(figure: Figure) -> str:
    """A figure as SVG that stands in a page and asks for nothing outside it."""
    buffer = io.StringIO()
    with mpl.rc_context(DRAWN):
        figure.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text).replace("xlink:href", "href")
    return re.sub(
        r'<svg [^>]*viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1" role="img">', text, count=1
    )


class Look:
    """How a series is drawn: dashes, marker and shade tell it from the others."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)

    def of(self, name: str) -> dict[str, Any]:
        number = self.names.index(name)
        color = ACCENT if name in OURS else FAINT if name in CONTROLS else INK
        return {
            "ls": _DASHES[number % len(_DASHES)],
            "marker": _MARKERS[number % len(_MARKERS)],
            "color": color,
            "mfc": "white" if number % 2 else color,
            "mec": color,
            "ms": 4.5,
            "lw": 2.0 if name in OURS else 1.3,
        }


def activity(result: Result) -> Figure:
    """Figure 2: by day, as the log is; by cycle, as the dynamic environment takes it."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.5, 4.8), layout="constrained")
        panels = figure.subplots(2, 2, sharex="col")
        for column, (key, word) in enumerate((("by_day", "day"), ("by_cycle", "cycle"))):
            for row, (what, shown) in enumerate(
                (("n_users", "active users"), ("n_launches", "launches"))
            ):
                panel = panels[row, column]
                heights = np.asarray(result[key][what])
                places = np.arange(1, len(heights) + 1)
                width = 1.0 if len(heights) > 60 else 0.8
                color = INK if row == 0 else FAINT
                panel.bar(places, heights, width=width, color=color, lw=0)
                panel.set_title(f"{shown} a {word}", fontsize=10)
                panel.set_ylim(0)
                mean = heights.mean()
                panel.axhline(mean, color=ACCENT, lw=1, ls=(0, (6, 3)))
                spread = heights.std() / mean if mean else 0.0
                panel.annotate(
                    f"mean {mean:,.0f}, deviation {spread:.0%} of it",
                    (0.99, 0.97),
                    xycoords="axes fraction",
                    ha="right",
                    va="top",
                    fontsize=8,
                    color=ACCENT,
                    bbox={"fc": "white", "ec": "none", "pad": 1.5, "alpha": 0.8},
                )
            panels[1, column].set_xlabel(word)
    return figure


def in_cycles(result: Result, *, unit: str) -> Figure:
    """HR@5 cycle by cycle, and its difference to the reference added up; bands: 95 % intervals."""
    names = list(result["series"])
    look = Look(names)
    cycles = result["evaluated"]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10.5, 4.4), layout="constrained")
        left, right = figure.subplots(1, 2)
        _lines(left, names, look, cycles, lambda name: result["series"][name]["HR@5"])
        reference = next(iter(result["series"].values()))["delta"]["reference"]
        others = [name for name in names if name != reference]
        _lines(right, others, look, cycles, lambda name: result["series"][name]["delta"])
        right.axhline(0, color=look.of(reference)["color"], lw=1.2)
        left.set_title("HR@5")
        right.set_title(f"cumulative δHR@5 against {label(reference)}")
        for moved in result.get("q_moves_after", []):
            for panel in (left, right):
                panel.axvline(moved + 0.5, color="#bbbbbb", lw=0.8, ls=(0, (2, 3)), zorder=0)
        for panel in (left, right):
            panel.set_xlabel(f"{unit}   (thin verticals: Q moves)")
            panel.set_xticks(_whole(cycles))
    return figure


def contrasts(result: Result, references: Sequence[str]) -> Figure:
    """Each series' gain in HR@5 over the references, mean over cycles, with its interval."""
    names = [name for name in result["series"] if name not in references]
    names.sort(key=lambda name: result["differences"][name][references[0]]["mean"])
    with mpl.rc_context(STYLE):
        size = (10.5, 0.34 * len(names) + 1.3)
        figure = Figure(figsize=size, layout="constrained")
        panels = np.atleast_1d(figure.subplots(1, len(references), sharey=True))
        for panel, reference in zip(panels, references, strict=True):
            for place, name in enumerate(names):
                gap = result["differences"][name][reference]
                color = ACCENT if name in OURS else INK
                panel.plot([gap["low"], gap["high"]], [place] * 2, color=color, lw=2.2)
                sure = gap["low"] > 0 or gap["high"] < 0
                panel.plot(
                    gap["mean"], place, "o", ms=6, color=color, mfc=color if sure else "white"
                )
            panel.axvline(0, color=FAINT, lw=1)
            panel.set_title(f"HR@5 − {label(reference)}", fontsize=10)
            panel.set_yticks(range(len(names)), [label(name) for name in names])
            panel.grid(axis="x", color="#e4e4e4", lw=0.7)
            panel.set_axisbelow(True)
        figure.supxlabel(
            "mean over cycles, bar: 95 % interval over users and seeds; ○ the interval holds 0",
            fontsize=8.5,
            color=FAINT,
        )
    return figure


def phones(result: Result) -> Figure:
    """What each mechanism gains over frozen Q and over zero gradients, by number of phones."""
    names = list(result["mechanisms"])
    look = Look(names)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10.5, 4.4), layout="constrained")
        for panel, (key, word) in zip(
            figure.subplots(1, 2, sharey=True),
            (("gain_over_frozen", "frozen Q"), ("gain_over_zero", "zero gradients")),
            strict=True,
        ):
            sizes = sorted({n for name in names for n in result["mechanisms"][name]["phones"]})
            _lines(
                panel,
                names,
                look,
                None,
                lambda name, key=key: {  # type: ignore[misc]
                    **result["mechanisms"][name][key],
                    "at": result["mechanisms"][name]["phones"],
                },
            )
            panel.set_xscale("log")
            panel.set_xlim(sizes[0] * 0.8, sizes[-1] * 6)
            panel.set_xticks(sizes, [f"{n:,}" for n in sizes])
            panel.minorticks_off()
            panel.axhline(0, color=FAINT, lw=1)
            panel.set_title(f"HR@5 gained over {word}")
            panel.set_xlabel("phones")
    return figure


def _lines(
    panel: Axes,
    names: Sequence[str],
    look: Look,
    at: Sequence[float] | None,
    curve: Callable[[str], Mapping[str, Any]],
) -> None:
    """Curves with their bands, each named at its end."""
    ends = []
    last = 0.0
    for name in names:
        found = curve(name)
        x = np.asarray(found["at"] if at is None else at, float)
        y, low, high = (_numbers(found[key]) for key in ("mean", "low", "high"))
        kind = look.of(name)
        every = max(1, len(x) // 8)
        shift = look.names.index(name) % every
        panel.plot(x, y, markevery=(shift, every), **kind)
        panel.fill_between(x, low, high, color=kind["color"], alpha=0.12, lw=0)
        there = np.flatnonzero(np.isfinite(y))
        if len(there):
            ends.append((float(y[there[-1]]), name))
            last = max(last, float(x[there[-1]]))
    _name_ends(panel, last, ends, look)


def _name_ends(panel: Axes, x: float, ends: list[tuple[float, str]], look: Look) -> None:
    """Names beside the ends of their lines, moved apart where they would overlap."""
    if not ends:
        return
    ends.sort()
    low, high = panel.get_ylim()
    step = (high - low) * 0.052
    places = [y for y, _ in ends]
    for number in range(1, len(places)):
        places[number] = max(places[number], places[number - 1] + step)
    excess = places[-1] - high
    if excess > 0:
        places = [place - excess for place in places]
        for number in range(len(places) - 2, -1, -1):
            places[number] = min(places[number], places[number + 1] - step)
    for (y, name), place in zip(ends, places, strict=True):
        kind = look.of(name)
        panel.annotate(
            label(name),
            (x, y),
            xytext=(1.03, place),
            textcoords=("axes fraction", "data"),
            fontsize=8,
            va="center",
            color=kind["color"],
            arrowprops={"arrowstyle": "-", "lw": 0.5, "color": kind["color"], "shrinkB": 2},
            annotation_clip=False,
        )
    panel.set_ylim(low, high)


def _numbers(values: Iterable[float | None]) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([np.nan if value is None else value for value in values], float)


def _whole(cycles: Sequence[int]) -> list[int]:
    step = max(1, round(len(cycles) / 8))
    return list(cycles[::step])
