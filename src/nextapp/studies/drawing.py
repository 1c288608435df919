"""The style of figures: colours, labels, markers, bands and bars; saved as SVG and PNG.

Lines can be distinguished without colour, by dashes and markers. The colours suit colour-blind
readers: INK, ACCENT and FAINT always, those of `PALETTE` (Okabe and Ito 2008) as far as eight
colours can.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from html import escape
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
# In the report letters are drawn as paths, so that no font is needed.
DRAWN: Any = {**STYLE, "svg.fonttype": "path"}

INK = "#1b1b1b"
ACCENT = "#0b5fa5"
FAINT = "#8a8a8a"
GRID = "#e0e0e0"
PALETTE = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#9a6700", "#2f9fd8", "#1b1b1b", "#6a3d9a",
)  # fmt: skip
# Where a reader's screen is dark: each colour of above, and what stands in for it there.
DARK: Mapping[str, str] = {
    "#ffffff": "#14171a",
    "#000000": "#e6e6e6",
    INK: "#e6e6e6",
    ACCENT: "#4fa8e8",
    FAINT: "#9a9a9a",
    GRID: "#33383d",
    **dict(
        zip(
            PALETTE,
            (
                "#4fa8e8",
                "#ff8a3d",
                "#2cc295",
                "#e6a3c8",
                "#d9a441",
                "#7cc4ee",
                "#e6e6e6",
                "#b794e0",
            ),
            strict=True,
        )
    ),
}
_FONTS = "'DejaVu Sans', Verdana, Arial, sans-serif"  # Verdana is as wide as the first
DASHES: Sequence[Any] = (
    "-",
    (0, (6, 2)),
    (0, (1, 1.4)),
    (0, (4, 1.5, 1, 1.5)),
    (0, (8, 2, 1, 2, 1, 2)),
    (0, (2, 2)),
)
MARKERS = "osD^vPX*<>h"
OURS = ("full", "qharmony-printed", "nextapp")
CONTROLS = ("frozen", "zero")
LABELS = {
    "full": "Full",
    "rare": "Rare",
    "global": "Global",
    "sr-od": "SR-od",
    "none": "no privacy",
    "identity": "no privacy",
    "nextapp-alone": "nextapp, no crowd",
    "frozen": "frozen Q",
    "zero": "zero gradients",
    "qharmony-printed": "QHarmony as printed",
    "qharmony-printed-k1": "QHarmony as printed, k = 1",
    "qharmony-printed-mean": "QHarmony as printed, F̄ a mean",
    "qharmony-paper": "QHarmony clipped, best k",
    "qharmony": "QHarmony repaired",
    "laplace": "Laplace ℓ∞",
    "laplace-l1": "Laplace ℓ1",
    "sr-od-su": "SR-od by S_u",
    "harmony": "Harmony",
    "kashin": "Kashin",
    "privunit": "PrivUnit",
    "codebook": "Codebook",
    "walsh": "Walsh",
    "simhash": "SimHash",
    "nextapp": "nextapp",
    "mru": "MRU",
    "mfu": "MFU",
    "sr": "SR",
    "mf": "MF",
    "seqmf": "SeqMF",
    "seqmf-frozen": "SeqMF, Q frozen",
    "seqmf-authors": "SeqMF, authors' settings",
    "random": "Random",
    "ceiling": "ceiling (what anyone could reach)",
    "duchi": "Duchi",
    "hybrid": "Hybrid",
}


ZERO = ", zero gradients"  # ends the name of a control


def label(name: str) -> str:
    base = name.removesuffix(ZERO)
    return LABELS.get(base, base) + name[len(base) :]


def label_of_all(names: Sequence[str]) -> str:
    """The label of a line that several series share.

    >>> label_of_all(["codebook" + ZERO, "simhash" + ZERO])
    'Codebook, SimHash: zero gradients'
    """
    if all(name.endswith(ZERO) for name in names):
        return f"{', '.join(label(name.removesuffix(ZERO)) for name in names)}: zero gradients"
    return ", ".join(map(label, names))


def source_title(source: str) -> str:
    """A data source for titles; synthetic data are always marked as such."""
    if source.startswith(("synthetic:lsapp", "synthetic:app-usage")):
        return f"{source} (synthetic twin, not the data)"
    return f"{source} (synthetic phones)" if source.startswith("synthetic:") else source


def save(figure: Figure, path: Path, alt: str = "") -> None:
    """As path.svg and path.png. The SVG follows the reader's light or dark screen.

    ``alt`` says in a sentence or two what is to be seen, for those who cannot see it.
    """
    figure.savefig(path.with_suffix(".png"), dpi=160, bbox_inches="tight")
    buffer = io.StringIO()
    with mpl.rc_context(STYLE):  # letters as text, which can be searched, and read aloud
        figure.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
    path.with_suffix(".svg").write_text(_for_readers(buffer.getvalue(), alt), encoding="utf-8")


def _for_readers(text: str, alt: str) -> str:
    """An SVG with a stack of fonts, a description, and colours for dark screens."""
    text = re.sub(r"'DejaVu Sans'(?:, [^;\"]*)?(?=[;\"])", _FONTS, text)
    rules = "".join(
        f'[style*="{what}: {light}"]{{{what}:{dark} !important}}'
        for light, dark in DARK.items()
        for what in ("fill", "stroke")
    )
    style = (
        "<style>@media (prefers-color-scheme: dark){"
        f"text:not([style*=fill]){{fill:{DARK['#000000']}}}{rules}}}</style>"
    )
    head = f"<title>{escape(alt)}</title>" if alt else ""
    start = re.search(r"<svg [^>]*>", text)
    if start is None:
        raise ValueError("Matplotlib wrote no SVG.")
    opened = start.group().replace("<svg ", '<svg role="img" ', 1)
    return text[: start.start()] + opened + head + style + text[start.end() :]


def svg(figure: Figure) -> str:
    """A figure as SVG to embed in HTML, without external references."""
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
    """Faint grid lines behind the data."""
    panel.grid(axis=axis, color=GRID, lw=0.7)
    panel.set_axisbelow(True)


def heading(figure: Figure, text: str) -> None:
    """A title for the whole figure."""
    figure.suptitle(text, x=0.01, ha="left", fontsize=10.5)


def footnote(figure: Figure, text: str) -> None:
    """A note about the data in small print below the figure, so that saved files have it too."""
    figure.text(1.0, -0.02, text, ha="right", va="top", fontsize=8, color=FAINT)


def legend_below(figure: Figure, text: str) -> None:
    """An explanation of markers and bars below the figure."""
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
    """Draw (mean, low, high) as a dot on a horizontal bar."""
    mean, low, high = figure
    panel.plot([low, high], [place, place], color=color, lw=2.2, solid_capstyle="round")
    panel.plot(mean, place, marker, ms=6, color=color, mfc=color if filled else "white")


class Look:
    """The style of each series: dashes, marker and colour."""

    def __init__(self, names: Sequence[str], faint: Collection[str] = CONTROLS) -> None:
        self.names = list(names)
        self.faint = faint

    def of(self, name: str) -> dict[str, Any]:
        number = self.names.index(name)
        shown = [each for each in self.names if each not in self.faint]
        color = FAINT if name in self.faint else PALETTE[shown.index(name) % len(PALETTE)]
        return {
            "ls": DASHES[number % len(DASHES)],
            "marker": MARKERS[number % len(MARKERS)],
            "color": color,
            "mfc": "white" if number % 2 else color,
            "mec": color,
            "ms": 4.5,
            "lw": 2.0 if name in OURS else 1.3,
        }


_BAND = ("mean", "low", "high")


class _Line(NamedTuple):
    """One or several overlapping series, drawn as one line."""

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
    bands: bool = True,
    marked: bool = True,
) -> None:
    """Draw curves, by default with a label at the end of each and with bands."""
    found: list[_Line] = []
    for name in names:
        values = curve(name)
        x = np.asarray(values["at"] if at is None else at, float)
        line = _Line([name], x, *(_numbers(values[key]) for key in _BAND))
        found.append(line)
    drawn = _together(found)
    for number, line in enumerate(drawn):
        kind = look.of(_first(line.names))
        every = max(1, len(line.x) // 7)
        marker = kind["marker"] if marked else ""
        shown = {**kind, "marker": marker, "markevery": (number % every, every)}
        panel.plot(line.x, line.mean, **shown)
        if not bands:
            continue
        panel.fill_between(line.x, line.low, line.high, color=kind["color"], alpha=0.13, lw=0)
        for edge in (line.low, line.high):
            panel.plot(line.x, edge, color=kind["color"], lw=0.4, ls=kind["ls"], alpha=0.6)
    if named:
        _name_ends(panel, [line for line in drawn if np.isfinite(line.mean).any()], look)


def _first(names: Sequence[str]) -> str:
    """The series whose style a common line takes."""
    return next((name for name in names if name in OURS), names[0])


def _together(lines: Sequence[_Line]) -> list[_Line]:
    """Merge lines that nowhere differ by more than 3 % of the value range."""
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


def name_line_ends(
    panel: Axes,
    names: Sequence[str],
    look: Look,
    at: Sequence[float],
    curve: Callable[[str], Mapping[str, Any]],
    words: Mapping[str, str],
) -> None:
    """Names beside the ends of curves that are drawn already, in these words."""
    ends = [
        _Line([name], np.asarray(at, float), *(_numbers(curve(name)[key]) for key in _BAND))
        for name in names
    ]
    _name_ends(panel, ends, look, words)


def _name_ends(
    panel: Axes, lines: Sequence[_Line], look: Look, words: Mapping[str, str] | None = None
) -> None:
    """Names beside the ends of their lines, moved apart where they would overlap.

    Positions are fractions of the panel's height, so that any scale works.
    """
    step = 0.05
    limits = panel.get_ylim()
    place_of = panel.transData + panel.transAxes.inverted()
    ends = []
    for line in lines:
        last = np.flatnonzero(np.isfinite(line.mean))[-1]
        said = label_of_all(line.names) if words is None else words[line.names[0]]
        text = "\n".join(textwrap.wrap(said, 24))
        x, y = float(line.x[last]), float(line.mean[last])
        ends.append((float(place_of.transform((x, y))[1]), (x, y), text, _first(line.names)))
    ends.sort()
    heights = [step * (text.count("\n") + 1.3) for _, _, text, _ in ends]
    places = [y for y, _, _, _ in ends]
    for number in range(1, len(places)):
        apart = (heights[number] + heights[number - 1]) / 2
        places[number] = max(places[number], places[number - 1] + apart)
    for number in range(len(places) - 1, -1, -1):
        top = 1.0 - heights[number] / 2
        if number + 1 < len(places):
            top = places[number + 1] - (heights[number] + heights[number + 1]) / 2
        places[number] = min(places[number], top)
    for (_, end, text, name), place in zip(ends, places, strict=True):
        color = look.of(name)["color"]
        panel.annotate(
            text,
            end,
            xytext=(1.06, place),
            textcoords="axes fraction",
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
    panel.set_ylim(limits)


def _numbers(values: Iterable[float | None]) -> Numbers:
    return np.array([np.nan if value is None else value for value in values], float)
