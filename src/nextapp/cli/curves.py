"""The figure of `nextapp privacy compare`: how many phones make a mean report worth following."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from nextapp.audit.comparing import SIZES, Compared
from nextapp.audit.forecast import WANTED
from nextapp.studies.drawing import ACCENT, DASHES, FAINT, INK, MARKERS, STYLE, legend_below
from nextapp.wire import Floats

_SAME = 0.02


def cosine_curves(found: Sequence[Compared], title: str) -> Figure:
    """Expected cosine against the number of phones, a line a mechanism; marks are simulated rounds.

    Mechanisms whose lines lie on one another share one.
    """
    sizes = np.geomspace(SIZES[0], SIZES[-1], 101)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.5, 5.0), layout="constrained")
        panel = figure.subplots()
        styles = zip(itertools.cycle(DASHES), itertools.cycle(MARKERS), strict=False)
        for group, (dashes, marker) in zip(_groups(found, sizes), styles, strict=False):
            label = ", ".join(each.name for each in group)
            kind: dict[str, Any] = {"ls": dashes, "color": INK, "lw": 1.4}
            panel.plot(sizes, _curve(group[0], sizes), **kind)
            points = [point for each in group for point in each.simulated]
            panel.plot(
                [point.n_phones for point in points],
                [point.cosine for point in points],
                ls="",
                marker=marker,
                mfc="white",
                mec=INK,
                ms=6,
            )
            panel.plot([], [], **kind, marker=marker, mfc="white", mec=INK, ms=6, label=label)
        panel.axhline(WANTED, color=ACCENT, lw=0.9)
        panel.text(SIZES[0], WANTED + 0.012, "as much gradient as noise", color=ACCENT, fontsize=9)
        phones = found[0].forecast.n_phones
        panel.axvline(phones, color=FAINT, lw=0.9)
        panel.text(phones * 1.05, 0.94, f"{phones:,} phones", color=FAINT, fontsize=9)
        panel.set_xscale("log")
        panel.set_xlim(SIZES[0] * 0.9, SIZES[-1] * 1.1)
        panel.set_ylim(-0.08, 1.02)
        panel.set_xlabel("phones that report in a round")
        panel.set_ylabel("cosine to the true mean gradient")
        panel.set_title(title)
        panel.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, handlelength=3.5)
        legend_below(figure, "lines: forecast      marks: one simulated round each")
    return figure


def _curve(each: Compared, sizes: Floats) -> Floats:
    noise = each.forecast.noise * each.forecast.n_phones / sizes
    return np.asarray(1 / np.sqrt(1 + noise))


def _groups(found: Sequence[Compared], sizes: Floats) -> list[list[Compared]]:
    """Best first; those that stay close to the first of a group join it."""
    groups: list[list[Compared]] = []
    for each in sorted(found, key=lambda one: one.forecast.noise):
        for group in groups:
            if np.abs(_curve(group[0], sizes) - _curve(each, sizes)).max() < _SAME:
                group.append(each)
                break
        else:
            groups.append([each])
    return groups
