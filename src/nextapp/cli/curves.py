"""The figure of `nextapp privacy compare`: how many phones make a mean report worth following."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from nextapp.audit.comparing import SIZES, Compared
from nextapp.audit.forecast import WANTED
from nextapp.studies.drawing import ACCENT, FAINT, STYLE, Look, legend_below, lines
from nextapp.wire import Floats


def cosine_curves(found: Sequence[Compared], title: str) -> Figure:
    """Expected cosine against the number of phones, a line a mechanism; marks are simulated rounds.

    Mechanisms whose lines lie on one another share one.
    """
    sizes = np.geomspace(SIZES[0], SIZES[-1], 101)
    best_first = sorted(found, key=lambda one: one.forecast.noise)
    named = {each.name: each for each in best_first}
    look = Look(list(named), faint=())

    def curve(name: str) -> Mapping[str, Floats]:
        line = _curve(named[name], sizes)
        return {"mean": line, "low": line, "high": line}

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.5, 5.0), layout="constrained")
        panel = figure.subplots()
        panel.set_xscale("log")
        panel.set_xlim(SIZES[0] * 0.9, SIZES[-1] * 1.1)
        panel.set_ylim(-0.08, 1.02)
        lines(panel, list(named), look, list(sizes), curve, bands=False, marked=False)
        for each in found:
            kind = look.of(each.name)
            panel.plot(
                [point.n_phones for point in each.simulated],
                [point.cosine for point in each.simulated],
                ls="",
                marker=kind["marker"],
                mfc="white",
                mec=kind["color"],
                ms=6,
            )
        panel.axhline(WANTED, color=ACCENT, lw=0.9)
        panel.text(SIZES[0], WANTED + 0.012, "as much gradient as noise", color=ACCENT, fontsize=9)
        phones = found[0].forecast.n_phones
        panel.axvline(phones, color=FAINT, lw=0.9)
        panel.text(phones * 1.05, 0.94, f"{phones:,} phones", color=FAINT, fontsize=9)
        panel.xaxis.set_major_formatter("{x:,.0f}")
        panel.set_xlabel("phones that report in a round")
        panel.set_ylabel("cosine to the true mean gradient")
        panel.set_title(title)
        legend_below(figure, "lines: forecast      marks: one simulated round each")
    return figure


def _curve(each: Compared, sizes: Floats) -> Floats:
    noise = each.forecast.noise * each.forecast.n_phones / sizes
    return np.asarray(1 / np.sqrt(1 + noise))
