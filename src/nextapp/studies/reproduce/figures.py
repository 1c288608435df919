"""Figures 1 and 3 to 6, windows, rates and number of phones; readable without colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from nextapp.studies.drawing import (
    ACCENT,
    DASHES,
    FAINT,
    INK,
    STYLE,
    Look,
    bar_with_dot,
    grid,
    label,
    legend_below,
    lines,
)

Result = Mapping[str, Any]

_MANY = 8
# Series that are shown only in tables and in the figures of means.
BESIDE = ("random", "mru", "mfu", "sr", "sr-od-su", "mf", "seqmf", "seqmf-frozen", "ceiling")


def in_cycles(result: Result, *, unit: str) -> Figure:
    """HR@5 by cycle, and the cumulative difference to the reference; bands: 95 % intervals.

    HR@5 is drawn without bands: users differ far more than series do, so all bands would overlap.
    With many series the differences have no bands either.
    """
    look = _look(result)
    names = look.names
    cycles = result["evaluated"]
    many = len(names) > _MANY
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(11.5, 6.2 if many else 4.4), layout="constrained")
        left, right = figure.subplots(1, 2)
        lines(left, names, look, cycles, lambda name: result["series"][name]["HR@5"], bands=False)
        reference = next(iter(result["series"].values()))["delta"]["reference"]
        others = [name for name in names if name != reference]
        lines(
            right, others, look, cycles, lambda name: result["series"][name]["delta"],
            bands=not many,
        )  # fmt: skip
        right.axhline(0, color=look.of(reference)["color"], lw=1.2)
        left.set_title("HR@5")
        right.set_title(f"cumulative δHR@5 against {label(reference)}")
        for moved in result.get("q_moves_after", []):
            for panel in (left, right):
                panel.axvline(moved + 0.5, color=FAINT, lw=0.6, ls=DASHES[-1], zorder=0)
        for panel in (left, right):
            panel.set_xlabel(f"{unit}   (thin vertical lines: Q is trained)")
            panel.set_xticks(_whole(cycles))
    return figure


def _look(result: Result) -> Look:
    """The style of each series that is drawn by cycle; the same in all figures of a part."""
    return Look([name for name in result["series"] if name not in BESIDE])


def rates(result: Result) -> Figure:
    """Gain of every series over a frozen Q by learning rate; ○ marks the rates chosen."""
    found = result["rates"]
    names = [name for name in found["series"] if name != "frozen"]
    look = _look(result)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.5, 5.6), layout="constrained")
        panel = figure.subplots()
        panel.set_xscale("log")
        panel.set_yscale("symlog", linthresh=0.01)
        panel.axhline(0, color=FAINT, lw=1)
        curves = {
            name: {
                key: [point[key] for point in found["series"][name]["over_frozen"]]
                for key in ("mean", "low", "high")
            }
            for name in names
        }
        for name in names:
            chosen = found["series"][name]["chosen"]
            heights = [curves[name]["mean"][found["tried"].index(rate)] for rate in chosen]
            panel.plot(chosen, heights, "o", ms=9, mfc="none", mec=look.of(name)["color"])
        lines(panel, names, look, found["tried"], curves.__getitem__, bands=False)
        panel.set_xlabel("learning rate of Q   (○ chosen on one half of the users for the other)")
        panel.set_title("gain in HR@5 over a frozen Q, mean over cycles, first seed", fontsize=10)
    return figure


def windows(result: Result) -> Figure:
    """Gain of each history window over learning from all history."""
    rows = [(name, row) for name, row in result["windows"].items() if row["gain"] is not None]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8.5, 0.4 * len(rows) + 1.3), layout="constrained")
        panel = figure.subplots()
        for place, (_, row) in enumerate(rows):
            gain = row["gain"]
            sure = gain["low"] > 0 or gain["high"] < 0
            ends = (gain["mean"], gain["low"], gain["high"])
            bar_with_dot(panel, -place, ends, ACCENT, filled=sure)
        panel.axvline(0, color=FAINT, lw=1)
        panel.set_yticks([-place for place in range(len(rows))], [name for name, _ in rows])
        panel.set_title("gain in HR@5 over learning from all history", fontsize=10)
        grid(panel)
        legend_below(figure, "mean over cycles, bar: 95 % interval; ○ the interval contains 0")
    return figure


def one_round(result: Result) -> Figure:
    """The phone, the server and the messages between them, with the sizes of real messages."""
    phone, down = result["phone"], result["down"]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(11.5, 4.6), layout="constrained")
        panel = figure.subplots()
        panel.set_xlim(0, 100)
        panel.set_ylim(0, 50)
        panel.axis("off")
        _box(panel, (1, 3, 31, 42), "phone", [
            f"history: {phone['n_launches']:,} launches of {phone['n_own_apps']} apps",
            "transitions S_u, confidences c_u",
            f"user vector p_u: {phone['user_vector_bytes']:,} bytes, eq. (10)",
            f"gradient F(u): {phone['gradient_bytes']:,} bytes, eq. (12)",
            "random bits, ledger of ε spent",
            "",
            "none of this leaves the phone",
        ])  # fmt: skip
        _box(panel, (69, 3, 30, 42), "server", [
            f"app vectors Q: {down['n_apps']:,} × {down['dim']}",
            "sum of the reports of a round",
            "step on Q, eq. (11)",
            "",
            "sees individual reports, never F(u)",
        ])  # fmt: skip
        _arrow(panel, 69, 33, 40, f"broadcast: Q and its settings, {down['bytes']:,} bytes")
        height = 30.0
        for name, row in result["up"].items():
            clear = ", ".join(row["sent_in_clear"])
            protection = f"{clear} in the clear" if clear else f"ε = {row['epsilon']:g}"
            _arrow(panel, 33, 68, height, f"{label(name)}: {row['bytes']} bytes, {protection}")
            height -= 9
    return figure


def _box(
    panel: Axes, corner: tuple[float, float, float, float], title: str, words: Sequence[str]
) -> None:
    x, y, width, height = corner
    panel.add_patch(Rectangle((x, y), width, height, fill=False, ec=INK, lw=1.4))
    panel.text(x + 1.2, y + height - 3, title, weight="bold", va="center")
    for number, line in enumerate(words):
        panel.text(x + 1.2, y + height - 8.5 - 5 * number, line, fontsize=8.5, va="center")


def _arrow(panel: Axes, start: float, end: float, height: float, words: str) -> None:
    panel.annotate(
        "", (end, height), (start, height), arrowprops={"arrowstyle": "->", "color": ACCENT}
    )
    panel.text((start + end) / 2, height + 1.2, words, ha="center", fontsize=8.5, color=ACCENT)


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
    look = _look(result)
    with mpl.rc_context(STYLE):
        size = (10.5, 0.34 * len(names) + 1.3)
        figure = Figure(figsize=size, layout="constrained")
        panels = np.atleast_1d(figure.subplots(1, len(references), sharey=True))
        for panel, reference in zip(panels, references, strict=True):
            for place, name in enumerate(names):
                gap = result["differences"][name][reference]["HR@5"]
                color = look.of(name)["color"] if name in look.names else INK
                sure = gap["low"] > 0 or gap["high"] < 0
                ends = (gap["mean"], gap["low"], gap["high"])
                bar_with_dot(panel, place, ends, color, filled=sure)
            panel.axvline(0, color=FAINT, lw=1)
            panel.set_title(f"HR@5 − {label(reference)}", fontsize=10)
            panel.set_yticks(range(len(names)), [label(name) for name in names])
            grid(panel)
        legend_below(
            figure,
            "mean over cycles, bar: 95 % interval over users and seeds; ○ the interval contains 0",
        )
    return figure


def phones(result: Result) -> Figure:
    """Gain of each mechanism over its controls, by number of phones."""
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
        panels[0].set_ylabel("gain in HR@5")
    return figure


def _power(n: int) -> str:
    return f"{n / 1000:g}k" if n >= 1000 else str(n)


def _whole(cycles: Sequence[int]) -> list[int]:
    step = max(1, round(len(cycles) / 8))
    return list(cycles[::step])
