"""The one place that says how figures look."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib import colors
from matplotlib.figure import Figure

import nextapp
from nextapp import plots

# Machado, Oliveira and Fernandes (2009), severity 1; and a copy without colour.
SIGHT = {
    "all cones": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                   [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                     [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
                   [0.004733, 0.691367, 0.303900]],
    "a grey copy": [[0.2126, 0.7152, 0.0722]] * 3,
}  # fmt: skip
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def lab(color, sight):
    """CIELAB of a colour as these eyes see it."""
    shown = np.array(colors.to_rgb(color))
    linear = np.where(shown <= 0.04045, shown / 12.92, ((shown + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.asarray(sight) @ linear, 0, 1)
    ratio = TO_XYZ @ seen / TO_XYZ.sum(axis=1)
    x, y, z = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("sight", SIGHT)
def test_colours_stay_apart_for_the_colour_blind(sight):
    """A difference of 2 can just be seen; 15 cannot be missed."""
    for one, other in itertools.combinations((plots.INK, plots.ACCENT, plots.FAINT), 2):
        apart = np.linalg.norm(lab(one, SIGHT[sight]) - lab(other, SIGHT[sight]))
        assert apart > 15, (one, other)


def test_red_and_green_would_not_pass():
    red, green = (lab(color, SIGHT["deuteranopia"]) for color in ("#b35806", "#6b7a00"))
    assert np.linalg.norm(red - green) < 15


def test_lines_can_be_told_apart_without_colour():
    names = [f"mechanism-{number}" for number in range(len(plots.DASHES) * len(plots.MARKERS))]
    look = plots.Look(names)
    kinds = [(look.of(name)["ls"], look.of(name)["marker"]) for name in names[:20]]
    assert len(set(kinds)) == 20


def test_colours_dashes_and_files_stand_in_one_module():
    """A figure elsewhere takes them from there."""
    own = re.compile(r'"#[0-9a-f]{6}"|savefig|\(0, \(\d', re.IGNORECASE)
    root = Path(nextapp.__file__).parent
    found = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if "matplotlib" in (text := path.read_text(encoding="utf-8")) and own.search(text)
    }
    assert found == {"plots.py"}


def test_a_figure_is_saved_twice_and_stands_alone_in_a_page(tmp_path):
    figure = Figure()
    figure.subplots().plot([0, 1])
    plots.save(figure, tmp_path / "drawn")
    assert (tmp_path / "drawn.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "drawn.svg").read_text()
    inline = plots.svg(figure)
    assert inline.startswith("<svg viewBox=")
    assert "http" not in inline
    assert inline == plots.svg(figure)  # nothing of the moment in it


def test_a_legend_names_every_line_in_its_style():
    curves = {
        name: {"mean": [0.0, last], "low": [None, None], "high": [0.1, 0.2]}
        for name, last in (("harmony", 0.1), ("laplace", 0.04), ("kashin", 0.0995))
    }
    panel = Figure().subplots()
    look = plots.Look(list(curves))
    plots.lines(panel, look, curves, [10, 100])
    legend = panel.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["Harmony", "Laplace ℓ∞", "Kashin"]
    shown = [(line.get_color(), line.get_marker()) for line in legend.get_lines()]
    assert shown == [(look.of(name)["color"], look.of(name)["marker"]) for name in curves]


def test_activity_has_a_column_of_panels_a_way_of_counting():
    counts = {"n_users": [2, 3, 4], "n_launches": [20, 30, 10]}
    both = plots.activity({"day": counts, "cycle": counts})
    one = plots.activity({"day": counts})
    assert (len(both.axes), len(one.axes)) == (4, 2)
    assert [bar.get_height() for bar in one.axes[1].patches] == [20, 30, 10]


def test_a_saved_picture_has_text_and_a_description(tmp_path):
    figure = Figure()
    figure.subplots().plot([0, 1], color=plots.ACCENT, label="x")
    figure.suptitle("a title")
    plots.save(figure, tmp_path / "f", "One line <rises>.")
    text = (tmp_path / "f.svg").read_text()
    assert ">a title</text>" in text
    assert "<title>One line &lt;rises&gt;.</title>" in text
    assert "'DejaVu Sans', " in text
    assert "Verdana" in text
    ElementTree.fromstring(text)  # it is XML


def test_nextapp_stands_out_on_top_of_the_hit_rates():
    row = {"HR@1": 0.1, "HR@3": 0.2, "different": dict.fromkeys(("HR@1", "HR@3", "HR@5"))}
    row["ci95"] = dict.fromkeys(("HR@1", "HR@3", "HR@5"), (0.1, 0.9))
    result = {
        "models": {"nextapp": {**row, "HR@5": 0.9}, "seqmf": {**row, "HR@5": 0.5}},
        "data": {"source": "synthetic:lsapp"}, "n_predictions": 5, "n_users": 2, "preset": "honest",
        "intervals": "95 %, over users",
    }  # fmt: skip
    ticks = plots.hit_rates(result).axes[0].get_yticklabels()
    assert [(tick.get_text(), tick.get_color()) for tick in ticks] == [
        ("SeqMF", "black"), ("nextapp", plots.ACCENT),
    ]  # fmt: skip
