"""How figures look: style, colours, names and marks, bands and bars; saved as SVG and PNG.

What a line is can be told without colour, by its dashes and marker. The colours stay apart for the
colour-blind.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

Numbers = npt.NDArray[np.float64]

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
# In the report letters are drawn, not written: no reader needs our font.
DRAWN: Any = {**STYLE, "svg.fonttype": "path"}

INK = "#1b1b1b"
ACCENT = "#0b5fa5"
FAINT = "#8a8a8a"
GRID = "#e0e0e0"
DASHES: Sequence[Any] = (
    "-",
    (0, (6, 2)),
    (0, (1, 1.4)),
    (0, (4, 1.5, 1, 1.5)),
    (0, (8, 2, 1, 2, 1, 2)),
    (0, (2, 2)),
)
MARKERS = "osD^vPX*<>h"
OURS = ("full", "qharmony-paper", "nextapp")
CONTROLS = ("frozen", "zero")
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


def titled(source: str) -> str:
    """A source as a title says it; synthetic phones are always called so."""
    return f"{source} (synthetic twin, not the data)" if source.startswith("synthetic:") else source


def save(figure: Figure, path: Path) -> None:
    """As path.svg and path.png."""
    for ending in (".svg", ".png"):
        metadata = {"Date": None} if ending == ".svg" else {}
        figure.savefig(path.with_suffix(ending), dpi=160, bbox_inches="tight", metadata=metadata)


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


def grid(panel: Axes, axis: Literal["x", "both"] = "x") -> None:
    """Faint lines behind what is drawn."""
    panel.grid(axis=axis, color=GRID, lw=0.7)
    panel.set_axisbelow(True)


def heading(figure: Figure, text: str) -> None:
    """What the whole figure is about."""
    figure.suptitle(text, x=0.01, ha="left", fontsize=10.5)


def legend_below(figure: Figure, text: str) -> None:
    """How marks and bars are to be read."""
    figure.supxlabel(text, fontsize=9, color=FAINT)


def bar_with_dot(
    panel: Axes,
    place: float,
    figure: Sequence[float],
    color: str,
    *,
    marker: str = "o",
    filled: bool = True,
) -> None:
    """(mean, low, high) on a line of its own."""
    mean, low, high = figure
    panel.plot([low, high], [place, place], color=color, lw=2.2, solid_capstyle="round")
    panel.plot(mean, place, marker, ms=6, color=color, mfc=color if filled else "white")


class Look:
    """How a series is drawn: dashes, marker and shade tell it from the others."""

    def __init__(self, names: Sequence[str], faint: Collection[str] = CONTROLS) -> None:
        self.names = list(names)
        self.faint = faint

    def of(self, name: str) -> dict[str, Any]:
        number = self.names.index(name)
        color = ACCENT if name in OURS else FAINT if name in self.faint else INK
        return {
            "ls": DASHES[number % len(DASHES)],
            "marker": MARKERS[number % len(MARKERS)],
            "color": color,
            "mfc": "white" if number % 2 else color,
            "mec": color,
            "ms": 4.5,
            "lw": 2.0 if name in OURS else 1.3,
        }


class _Line(NamedTuple):
    """Series that lie on one another, drawn as one."""

    names: list[str]
    x: Numbers
    mean: Numbers
    low: Numbers
    high: Numbers


def lines(
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
    drawn = _together(found)
    for number, line in enumerate(drawn):
        kind = look.of(_first(line.names))
        every = max(1, len(line.x) // 7)
        panel.plot(line.x, line.mean, markevery=(number % every, every), **kind)
        panel.fill_between(line.x, line.low, line.high, color=kind["color"], alpha=0.13, lw=0)
        for edge in (line.low, line.high):
            panel.plot(line.x, edge, color=kind["color"], lw=0.4, ls=kind["ls"], alpha=0.6)
    if named:
        _name_ends(panel, [line for line in drawn if np.isfinite(line.mean).any()], look)


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
