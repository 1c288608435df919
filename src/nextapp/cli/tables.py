"""Results in the terminal: tables, intervals and sparklines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.markup import escape

from nextapp.cli.screen import out
from nextapp.evaluation.static import calibration_table, figures_table, prewarm_table
from nextapp.table import Column, Mark, Marked, Table

BARS = " ▁▂▃▄▅▆▇█"


def intervals_table(result: Mapping[str, Any], metric: str = "HR@5") -> Table:
    """Each model's figure with its 95 % interval over users, drawn as a bar."""
    rows = []
    for name, figures in result["models"].items():
        low, high = figures["ci95"][metric]
        width = 40
        cells = ["·"] * width
        first, last = int(low * (width - 1)), int(np.ceil(high * (width - 1)))
        cells[first : last + 1] = ["─"] * (last + 1 - first)
        cells[round(figures[metric] * (width - 1))] = "●"
        ends = f"{low:.3f} – {high:.3f}"
        rows.append([name, figures[metric], ends, f"0 {''.join(cells)} 1"])
    return Table(
        [
            Column("model", "name"),
            Column(metric, form="plain"),
            Column("95 %", "text"),
            Column("", "text"),
        ],
        rows,
        title=f"{metric}, 95 % interval over {result['n_users']} users",
    )


def standing_table(result: Mapping[str, Any], metric: str = "HR@5") -> Table | None:
    """nextapp and SeqMF minus every other model; level where the interval contains 0."""
    columns = {
        model: result[f"{model}_minus"]
        for model in ("nextapp", "seqmf")
        if result.get(f"{model}_minus")
    }
    others = [name for name in result["models"] if any(name in found for found in columns.values())]
    if not others:
        return None
    rows = [
        [name, *(_standing(found.get(name, {}).get(metric)) for found in columns.values())]
        for name in others
    ]
    headings = ["model", *(f"{model} minus it" for model in columns)]
    title = f"difference in {metric}, 95 % interval over users"
    return Table.of_text(headings, rows, title)


def _standing(gap: Mapping[str, float] | None) -> str | Marked:
    if gap is None:
        return ""
    verdict = "ahead" if gap["low"] > 0 else "behind" if gap["high"] < 0 else "level"
    marks: dict[str, Mark] = {"ahead": "good", "behind": "bad", "level": ""}
    words = f"{verdict} {gap['difference']:+.3f} ({gap['low']:+.3f} to {gap['high']:+.3f})"
    return Marked(words, marks[verdict])


def sparkline(values: npt.ArrayLike) -> str:
    """Numbers as one line of bars.

    >>> sparkline([0, 1, 2, 4, 8])
    ' ▁▂▄█'
    """
    numbers = np.asarray(values, float)
    most = numbers.max(initial=0.0)
    if most <= 0:
        return " " * len(numbers)
    steps = np.ceil(numbers / most * (len(BARS) - 1)).astype(int)
    return "".join(BARS[step] for step in steps)


def show_result(result: Mapping[str, Any]) -> None:
    """A static experiment: what was measured on, the tables, and the differences."""
    about = result["data"]
    out.print(
        f"[bold]{escape(about['source'])}[/]  {about['n_users']:,} users, "
        f"{about['n_apps']:,} apps, {about['n_launches']:,} launches; "
        f"preset [bold]{result['preset']}[/], split "
        f"{result['split']}, seed {result['seed']}"
    )
    for note in about["notes"]:
        out.print(f"  {note}", style="dim", markup=False)
    out.print(
        f"{result['n_predictions']:,} predictions in {result['n_sessions']:,} sessions of "
        f"{result['n_users']:,} test users; {result['repeat_share']:.1%} of the targets repeat the "
        f"launch before.\n"
    )
    out.print(figures_table(result["models"]).terminal())
    out.print()
    out.print(figures_table(result["models"], without_repeats=True).terminal())
    out.print()
    out.print(intervals_table(result).terminal(header=False))
    differences = standing_table(result)
    if differences is not None:
        out.print()
        out.print(differences.terminal())
    chances = {
        name: row for name, row in result["models"].items() if row["calibration"] is not None
    }
    if chances:
        out.print()
        out.print(calibration_table(chances).terminal())
        out.print()
        beside = {name: row for name, row in result["models"].items() if name.startswith("mru")}
        out.print(prewarm_table(chances | beside).terminal())


def show_description(source: str, found: Mapping[str, Any]) -> None:
    launches = (
        f"{found['n_launches']:,}, {found['n_launches_collapsed']:,} without 3-second repeats"
    )
    rows = [
        ["users", f"{found['n_users']:,}"],
        ["apps", f"{found['n_apps']:,}"],
        ["launches", launches],
        ["time", f"{found['from']} to {found['to']}, {found['n_days']:,} days"],
        ["sessions", f"{found['n_sessions']:,} (15-minute gap)"],
        ["exact repeats", f"{found['repeat_share']:.1%} of launches within sessions"],
    ]
    for key in ("sessions_per_user", "launches_per_session", "apps_per_user", "launches_per_user"):
        spread = found[key]
        words = (
            f"mean {spread['mean']:,.1f}, median {spread['median']:,.0f}, "
            f"largest {spread['largest']:,.0f}"
        )
        rows.append([key.replace("_", " "), words])
    for key in ("launches_by_day", "users_by_day", "launches_by_hour"):
        counts = np.asarray(found[key])
        pieces = np.array_split(counts, min(72, len(counts)))
        line = sparkline([piece.mean() for piece in pieces])
        rows.append([key.replace("_", " "), f"|{line}| at most {counts.max():,}"])
    out.print(f"[bold]{escape(source)}[/]")
    out.print(Table.of_text(["", ""], rows).terminal(header=False))
    for note in found["notes"]:
        out.print(f"  {note}", style="dim", markup=False)
