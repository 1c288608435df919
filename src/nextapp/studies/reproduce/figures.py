"""Figures 2 to 6 and the number of phones, drawn to be read without colour."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nextapp.studies.plots import ACCENT, FAINT, INK, STYLE

Result = Mapping[str, Any]
Numbers = npt.NDArray[np.float64]

# In the report letters are drawn, not written: no reader needs our font.
DRAWN: Any = {**STYLE, "svg.fonttype": "path"}

OURS = ("full", "qharmony-paper", "nextapp")
CONTROLS = ("frozen", "zero")
# In tables and means only.
BESIDE = ("random", "mru", "mfu", "sr", "mf", "seqmf", "seqmf-frozen", "ceiling")
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
    "mfu": "MFU",
    "sr": "SR",
    "mf": "MF",
    "ceiling": "ceiling (what anyone could reach)",
    "duchi": "Duchi",
    "hybrid": "Hybrid",
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
                panel.set_title(
                    f"mean {mean:,.0f} ± {spread:.0%}", loc="right", fontsize=8.5, color=ACCENT
                )
            panels[1, column].set_xlabel(word)
    return figure


def in_cycles(result: Result, *, unit: str) -> Figure:
    """HR@5 cycle by cycle, and its difference to the reference added up; bands: 95 % intervals."""
    names = [name for name in result["series"] if name not in BESIDE]
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
            _lines(panel, names, look, None, gains.__getitem__, named=named)
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


class _Line(NamedTuple):
    """Series that lie on one another, drawn as one."""

    names: list[str]
    x: Numbers
    mean: Numbers
    low: Numbers
    high: Numbers


def _lines(
    panel: Axes,
    names: Sequence[str],
    look: Look,
    at: Sequence[float] | None,
    curve: Callable[[str], Mapping[str, Any]],
    *,
    named: bool = True,
) -> None:
    """Curves with their bands, each named at its end."""
    found: list[_Line] = []
    for name in names:
        values = curve(name)
        x = np.asarray(values["at"] if at is None else at, float)
        line = _Line([name], x, *(_numbers(values[key]) for key in ("mean", "low", "high")))
        found.append(line)
    lines = _together(found)
    for number, line in enumerate(lines):
        kind = look.of(_first(line.names))
        every = max(1, len(line.x) // 7)
        panel.plot(line.x, line.mean, markevery=(number % every, every), **kind)
        panel.fill_between(line.x, line.low, line.high, color=kind["color"], alpha=0.13, lw=0)
        for edge in (line.low, line.high):
            panel.plot(line.x, edge, color=kind["color"], lw=0.4, ls=kind["ls"], alpha=0.6)
    if named:
        _name_ends(panel, [line for line in lines if np.isfinite(line.mean).any()], look)


def _first(names: Sequence[str]) -> str:
    """Whose look a common line has."""
    return next((name for name in names if name in OURS), names[0])


def _together(lines: Sequence[_Line]) -> list[_Line]:
    """Lines that stay within 3 % of the whole span of one another share one."""
    spread = [value for line in lines for value in line.mean if np.isfinite(value)]
    near = 0.03 * (max(spread) - min(spread)) if spread else 0.0
    groups: list[_Line] = []
    for line in lines:
        for group in groups:
            same = len(group.x) == len(line.x) and np.array_equal(group.x, line.x)
            if same and np.nanmax(np.abs(group.mean - line.mean), initial=0.0) <= near:
                group.names.extend(line.names)
                break
        else:
            groups.append(line)
    return groups


def _name_ends(panel: Axes, lines: Sequence[_Line], look: Look) -> None:
    """Names beside the ends of their lines, moved apart where they would overlap."""
    low, high = panel.get_ylim()
    step = (high - low) * 0.05
    ends = []
    for line in lines:
        last = np.flatnonzero(np.isfinite(line.mean))[-1]
        text = "\n".join(textwrap.wrap(", ".join(map(label, line.names)), 24))
        ends.append((float(line.mean[last]), float(line.x[last]), text, _first(line.names)))
    ends.sort()
    heights = [step * (text.count("\n") + 1.3) for _, _, text, _ in ends]
    places = [y for y, _, _, _ in ends]
    for number in range(1, len(places)):
        apart = (heights[number] + heights[number - 1]) / 2
        places[number] = max(places[number], places[number - 1] + apart)
    for number in range(len(places) - 1, -1, -1):
        top = high - heights[number] / 2
        if number + 1 < len(places):
            top = places[number + 1] - (heights[number] + heights[number + 1]) / 2
        places[number] = min(places[number], top)
    for (y, x, text, name), place in zip(ends, places, strict=True):
        color = look.of(name)["color"]
        panel.annotate(
            text,
            (x, y),
            xytext=(1.06, place),
            textcoords=("axes fraction", "data"),
            fontsize=8,
            va="center",
            color=color,
            arrowprops={
                "arrowstyle": "-",
                "lw": 0.6,
                "color": color,
                "shrinkA": 1,
                "shrinkB": 2,
                "relpos": (0, 0.5),
            },
            annotation_clip=False,
        )
    panel.set_ylim(low, high)


def _numbers(values: Iterable[float | None]) -> Numbers:
    return np.array([np.nan if value is None else value for value in values], float)


def _whole(cycles: Sequence[int]) -> list[int]:
    step = max(1, round(len(cycles) / 8))
    return list(cycles[::step])
