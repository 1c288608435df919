"""Figures of results, and the one place that says how figures look; saved as SVG and PNG.

Lines can be distinguished without colour, by dashes and markers. The colours suit colour-blind
readers: INK, ACCENT and FAINT always, those of `PALETTE` (Okabe and Ito 2008) as well as eight
colours can.
"""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from nextapp.settings import count
from nextapp.storage import write_public

Numbers = npt.NDArray[np.float64]
Result = Mapping[str, Any]

STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "svg.fonttype": "none",  # letters as text, which can be searched and read aloud
    "svg.hashsalt": "nextapp",
}

INK = "#1b1b1b"
ACCENT = "#0b5fa5"
FAINT = "#8a8a8a"
GRID = "#e0e0e0"
PALETTE = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#9a6700", "#2f9fd8", "#1b1b1b", "#6a3d9a",
)  # fmt: skip
DASHES: Sequence[Any] = (
    "-",
    (0, (6, 2)),
    (0, (1, 1.4)),
    (0, (4, 1.5, 1, 1.5)),
    (0, (8, 2, 1, 2, 1, 2)),
    (0, (2, 2)),
)
MARKERS = "osD^vPX*<>h"
OURS = ("full", "qharmony-printed", "nextapp")  # drawn thicker
DRAWN_FAINT = ("frozen", "zero")
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
    "noise": "its noise alone",
    "qharmony-printed": "QHarmony as printed",
    "qharmony-printed-k1": "QHarmony as printed, k = 1",
    "qharmony-printed-mean": "QHarmony as printed, F̄ a mean",
    "qharmony": "QHarmony clipped, best k",
    "laplace": "Laplace ℓ∞",
    "laplace-l1": "Laplace ℓ1",
    "sr-od-su": "SR-od by S_u",
    "harmony": "Harmony",
    "kashin": "Kashin",
    "walsh": "Walsh",
    "mru": "MRU",
    "mfu": "MFU",
    "sr": "SR",
    "mf": "MF",
    "seqmf": "SeqMF",
    "seqmf-frozen": "SeqMF, Q frozen",
    "seqmf-authors": "SeqMF, authors' settings",
    "random": "Random",
    "ceiling": "ceiling (what anyone could reach)",
}


def label(name: str) -> str:
    """The name of a model, regime or mechanism as figures and tables show it."""
    noise = name.endswith("-noise")
    return LABELS.get(name, f"noise of {label(name.removesuffix('-noise'))}" if noise else name)


def source_title(source: str) -> str:
    """A data source for titles; synthetic data are always marked as such."""
    if source.startswith(("synthetic:lsapp", "synthetic:app-usage")):
        return f"{source} (synthetic twin, not the data)"
    return f"{source} (synthetic phones)" if source.startswith("synthetic:") else source


# --- parts of figures -------------------------------------------------------------------------


class _Shown(Figure):
    """A figure that a notebook shows by itself, whichever backend it uses."""

    def _repr_html_(self) -> str:
        return svg(self)


@contextmanager
def new_figure(width: float, height: float) -> Iterator[Figure]:
    """A figure of this size in inches; what is drawn inside the block has `STYLE`."""
    with mpl.rc_context(STYLE):
        yield _Shown(figsize=(width, height), layout="constrained")


def save(figure: Figure, path: Path, alt: str = "") -> None:
    """Write path.svg and path.png. ``alt`` describes the figure for those who cannot see it."""
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=160, bbox_inches="tight")
    write_public(path.with_suffix(".png"), data.getvalue())
    about = {"Date": None, **({"Title": alt} if alt else {})}
    with mpl.rc_context(STYLE):
        data = io.BytesIO()
        figure.savefig(data, format="svg", bbox_inches="tight", metadata=about)
    write_public(path.with_suffix(".svg"), data.getvalue())


def svg(figure: Figure) -> str:
    """A figure as SVG to embed in HTML, without external references or fonts."""
    buffer = io.StringIO()
    with mpl.rc_context({**STYLE, "svg.fonttype": "path"}):
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


def bar_with_dot(panel: Axes, place: float, found: Result, color: str, marker: str = "o") -> None:
    """Draw {mean, low, high} as a dot on a horizontal bar."""
    ends = [found["low"], found["high"]]
    panel.plot(ends, [place, place], color=color, lw=2.2, solid_capstyle="round")
    panel.plot(found["mean"], place, marker, ms=6, color=color)


class Look:
    """The style of each series: dashes, marker and colour."""

    def __init__(self, names: Sequence[str], faint: Collection[str] = DRAWN_FAINT) -> None:
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


def lines(
    panel: Axes,
    look: Look,
    curves: Mapping[str, Result],
    at: Sequence[float] | None = None,
    *,
    named: bool = True,
    bands: bool = True,
) -> None:
    """Draw curves of {mean, low, high}, by default with bands and with a legend.

    Their x values are ``at``, or each curve has its own as ``at``.
    """
    for number, (name, curve) in enumerate(curves.items()):
        style = look.of(name)
        x = np.asarray(curve["at"] if at is None else at, float)
        mean, low, high = (_numbers(curve[key]) for key in ("mean", "low", "high"))
        every = max(1, len(x) // 7)
        shown = {**style, "markevery": (number % every, every)}
        panel.plot(x, mean, label=label(name), **shown)
        if not bands:
            continue
        panel.fill_between(x, low, high, color=style["color"], alpha=0.13, lw=0)
        for edge in (low, high):
            panel.plot(x, edge, color=style["color"], lw=0.4, ls=style["ls"], alpha=0.6)
    if named:
        legend_beside(panel)


def legend_beside(panel: Axes) -> None:
    """The names of the lines, to the right of the panel."""
    panel.legend(
        loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=8, handlelength=3.5
    )


def _numbers(values: Iterable[float | None]) -> Numbers:
    return np.array([np.nan if value is None else value for value in values], float)


def _about(result: Result) -> str:
    source = f"{source_title(result['data']['source'])}: " if "data" in result else ""
    return (
        f"{source}{result['n_predictions']:,} predictions, "
        f"{count(result['n_users'], 'test user')}, preset {result['preset']}"
    )


# --- static evaluation, activity --------------------------------------------------------------


def hit_rates(result: Result) -> Figure:
    """Every model's HR@1, 3, 5 with its interval, best HR@5 on top; nextapp stands out.

    Open circles are those of the next different app.
    """
    models = result["models"]
    names = sorted(models, key=lambda name: models[name]["HR@5"])
    colors = [ACCENT if name.startswith("nextapp") else INK for name in names]
    with new_figure(9.5, 0.42 * len(names) + 1.9) as figure:
        panels = figure.subplots(1, 3, sharey=True)
        for panel, metric in zip(panels, ("HR@1", "HR@3", "HR@5"), strict=True):
            for place, (name, color) in enumerate(zip(names, colors, strict=True)):
                rate, (low, high) = models[name][metric], models[name]["ci95"][metric]
                bar_with_dot(panel, place, {"mean": rate, "low": low, "high": high}, color)
                changed = models[name]["different"][metric]
                if changed is not None:
                    panel.plot(changed, place, "o", ms=6, mfc="white", mec=color)
                text = f"{rate:.3f}".removeprefix("0")
                weight = "bold" if color == ACCENT else "normal"
                panel.text(
                    1.03, place, text, va="center", fontsize=9, color=color, fontweight=weight
                )
            panel.set_title(metric)
            panel.set_xlim(0, 1)
            panel.set_yticks(range(len(names)), [label(name) for name in names])
            grid(panel)
            panel.tick_params(axis="y", length=0)
        for tick, color in zip(panels[0].get_yticklabels(), colors, strict=True):
            if color == ACCENT:
                tick.set(color=ACCENT, fontweight="bold")
        heading(figure, _about(result))
        legend_below(
            figure,
            f"● all launches, bars: {result['intervals']}      ○ the next different app",
        )
    return figure


def calibration(result: Result) -> Figure:
    """Reliability of models that give probabilities; new suggestions and hits of all models."""
    models = result["models"]
    look = Look(list(models))
    with new_figure(10.5, 4.6) as figure:
        left, right = figure.subplots(1, 2)
        left.plot([0, 1], [0, 1], color=FAINT, lw=1)
        for name, row in models.items():
            new, hits = (
                [each["mean"] for each in row["steadiness"][key]]
                for key in ("new_per_launch", "HR@5")
            )
            right.plot(new, hits, label=label(name), **look.of(name))
            if row["calibration"] is None:
                continue
            found = row["calibration"]["reliability"]
            came, low, high = (np.array(found[key]) for key in ("came", "low", "high"))
            ends = np.maximum([came - low, high - came], 0.0)
            left.errorbar(found["said"], came, yerr=ends, elinewidth=0.8, **look.of(name))
        left.set(xlabel="predicted probability", title="observed frequency")
        left.set(xlim=(0, 1), ylim=(0, 1))
        right.set(xlabel="new suggestions of five, per launch", title="HR@5 of the suggestions")
        right.set(xlim=(0, None), ylim=(0, 1))
        right.legend(frameon=False, fontsize=8)
        for panel in (left, right):
            grid(panel, "both")
        heading(figure, _about(result))
        legend_below(
            figure,
            f"bars: {result['intervals']}      lines: a suggestion gives way only to an app 1 to 3 "
            "times as likely",
        )
    return figure


def memory(result: Result) -> Figure:
    """Cold starts avoided, of those of lru, against wasted loads; a panel per number of apps."""
    sizes = result["sizes"]
    names = list(next(iter(sizes.values())))
    look = Look(names, faint=("lru",))
    with new_figure(4.0 * len(sizes) + 1.8, 4.2) as figure:
        panels = figure.subplots(1, len(sizes), sharey=True, squeeze=False)[0]
        for panel, (size, found) in zip(panels, sizes.items(), strict=True):
            points = {name: row for name, row in found.items() if row["avoided"] is not None}
            for name, row in points.items():
                x, avoided = row["wasted"]["mean"], row["avoided"]
                style = look.of(name)
                panel.plot([x, x], [avoided["low"], avoided["high"]], color=style["color"], lw=0.8)
                panel.plot(x, avoided["mean"], label=name, **(style | {"ls": "none", "ms": 6}))
            panel.set_xscale("symlog", linthresh=1.0)
            panel.set(xlabel="wasted loads per 100 launches", title=f"{size} resident apps")
            panel.yaxis.set_major_formatter(PercentFormatter(1.0))
            grid(panel, "both")
        panels[0].set_ylabel("cold starts of lru avoided")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=8)
        heading(figure, _about(result))
        legend_below(figure, "bars: 95 % interval over users      min knows the future")
    return figure


def activity(counts: Mapping[str, Mapping[str, Sequence[int]]]) -> Figure:
    """Active users and launches, with one column of panels per entry of `counts`.

    Figure 2 of the paper has two: by day, and by cycle of the dynamic environment.
    """
    kinds = (("n_users", "active users", INK), ("n_launches", "launches", FAINT))
    with new_figure(9.5, 4.8) as figure:
        panels = figure.subplots(2, len(counts), sharex="col", squeeze=False)
        for column, (word, found) in enumerate(counts.items()):
            for panel, (key, shown, color) in zip(panels[:, column], kinds, strict=True):
                heights = np.asarray(found[key])
                places = np.arange(1, len(heights) + 1)
                width = 1.0 if len(heights) > 60 else 0.8
                panel.bar(places, heights, width=width, color=color, lw=0)
                panel.set_title(f"{shown} per {word}", fontsize=10)
                panel.set_ylim(0)
                mean = heights.mean()
                spread = heights.std() / mean if mean else 0.0
                panel.axhline(mean, color=ACCENT, lw=1, ls=DASHES[1])
                words = f"mean {mean:,.0f} ± {spread:.0%}"
                panel.set_title(words, loc="right", fontsize=8.5, color=ACCENT)
            panels[1, column].set_xlabel(word)
    return figure


# --- new phones -------------------------------------------------------------------------------

WIDEST = 0.1  # launches with a wider interval are not drawn: it would hide all others


def new_phones(result: Result) -> Figure:
    """HR@5 of new phones by launches seen, one line per prior; and each prior's gain over none."""
    priors = result["priors"]
    names = list(priors)
    look = Look(names, faint=names[:1])
    bins = [
        part
        for number, part in enumerate(priors[names[0]]["bins"])
        if all(_is_narrow(priors[name]["bins"][number]["HR@5"]) for name in names)
    ]
    firsts = [part["from"] for part in bins]
    with new_figure(10.5, 4.2) as figure:
        left, right = figure.subplots(1, 2, width_ratios=(1.7, 1))
        for number, name in enumerate(names):
            style = look.of(name)
            found = [part["HR@5"] for part in priors[name]["bins"] if part["from"] in firsts]
            mean, low, high = (
                _numbers(each[key] for each in found) for key in ("mean", "low", "high")
            )
            shift = 0.06 * (number - (len(names) - 1) / 2)  # intervals do not hide each other
            places = np.arange(len(found), dtype=np.float64) + shift
            words = f"crowd, {name}" if number else "without the crowd"
            ends = [mean - low, high - mean]
            left.errorbar(places, mean, yerr=ends, elinewidth=0.9, label=words, **style)
            gain = priors[name]["headline"]["gain@5"]
            if number and gain is not None:
                color = style["color"]
                bar_with_dot(right, -number, gain, color, style["marker"])
                words = f"{gain['mean']:+.3f}"
                right.text(gain["mean"], -number + 0.16, words, ha="center", color=color)
        legend_beside(left)
        left.set_xticks(range(len(bins)), [f"{part['from']}–{part['to']}" for part in bins])
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
        source = Path(about["source"]).name if about["notes"] else about["source"]
        words = f"{result['n_new'][0]:,} new phones, crowd of {result['n_crowd'][0]:,}"
        heading(figure, f"{source} ({about['kind']}): {words}")
        is_whole = len(bins) == len(priors[names[0]]["bins"])
        few = "" if is_whole else f"; none where wider than {WIDEST:g}"
        legend_below(figure, f"bars: 95 % interval over new phones{few}")
    return figure


def _is_narrow(found: Mapping[str, float] | None) -> bool:
    return found is not None and found["high"] - found["low"] <= WIDEST


# --- dynamic environment ----------------------------------------------------------------------

_MANY = 8  # with more series the differences have no bands
_ONLY_MEANS = (
    "random", "mru", "mfu", "sr", "sr-od-su", "mf", "seqmf", "seqmf-frozen", "ceiling",
)  # fmt: skip
"""Series that are not drawn by cycle; their means are in the table."""


def in_cycles(result: Result) -> Figure:
    """HR@5 by cycle, and the cumulative difference to the reference; bands: 95 % intervals.

    HR@5 is drawn without bands: users differ far more than series do, so all bands would overlap.
    """
    series, cycles = result["series"], result["evaluated"]
    look = Look([name for name in series if name not in _ONLY_MEANS])
    unit = "day" if result["settings"]["cycles"] == "days" else "cycle"
    reference = next(iter(series.values()))["delta"]["reference"]
    is_many = len(look.names) > _MANY
    rates = {name: series[name]["HR@5"] for name in look.names}
    deltas = {name: series[name]["delta"] for name in look.names if name != reference}
    with new_figure(11.5, 6.2 if is_many else 4.4) as figure:
        left, right = figure.subplots(1, 2)
        lines(left, look, rates, cycles, bands=False)
        lines(right, look, deltas, cycles, bands=not is_many, named=False)
        right.axhline(0, color=look.of(reference)["color"], lw=1.2)
        left.set_title("HR@5")
        right.set_title(f"cumulative δHR@5 against {label(reference)}")
        for panel in (left, right):
            for cycle in result.get("q_moves_after", []):
                panel.axvline(cycle + 0.5, color=FAINT, lw=0.6, ls=DASHES[-1], zorder=0)
            panel.set_xlabel(f"{unit}   (thin vertical lines: Q is trained)")
            panel.set_xticks(cycles[:: max(1, round(len(cycles) / 8))])
    return figure


# --- the number of phones ---------------------------------------------------------------------


def phones_needed(result: Result) -> Figure:
    """Gain of each mechanism over its controls, by number of phones."""
    mechanisms = result["mechanisms"]
    look = Look(list(mechanisms))
    sizes = sorted({n for row in mechanisms.values() for n in row["phones"]})
    controls = ("frozen", "zero", "noise")
    with new_figure(11.5, 4.4) as figure:
        panels = figure.subplots(1, len(controls), sharey=True)
        for panel, control in zip(panels, controls, strict=True):
            gains = {
                name: {**row[f"gain_over_{control}"], "at": row["phones"]}
                for name, row in mechanisms.items()
            }
            lines(panel, look, gains, named=panel is panels[-1])
            panel.set_xscale("log")
            panel.set_xticks(sizes, [f"{n / 1000:g}k" if n >= 1000 else str(n) for n in sizes])
            panel.minorticks_off()
            panel.axhline(0, color=FAINT, lw=1)
            panel.set_title(f"gain over {label(control)}", fontsize=10)
            panel.set_xlabel("phones")
        panels[0].set_ylabel("gain in HR@5")
    return figure
