"""Results in the terminal: tables, intervals and sparklines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.table import Table as RichTable

from nextapp.cli.screen import escaped, out
from nextapp.evaluation.tables import figures_table
from nextapp.table import Column, Table

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


def standing(result: Mapping[str, Any], metric: str = "HR@5") -> list[str]:
    """How SeqMF and nextapp stand to the others; level where the difference's interval holds 0."""
    lines = []
    for model in ("seqmf", "nextapp"):
        for name, differences in result.get(f"{model}_minus", {}).items():
            gap = differences[metric]
            verdict = "above" if gap["low"] > 0 else "below" if gap["high"] < 0 else "level with"
            lines.append(
                f"{model} is {verdict} {name} in {metric}: {gap['difference']:+.3f} "
                f"({gap['low']:+.3f} to {gap['high']:+.3f})"
            )
    return lines


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
    """A static experiment: what was measured on, the tables, and how SeqMF stands."""
    about = result["data"]
    out.print(
        f"[bold]{escaped(about['source'])}[/]  {about['n_users']:,} users, "
        f"{about['n_apps']:,} apps, {about['n_launches']:,} launches; "
        f"preset [bold]{result['preset']}[/], split "
        f"{result['split']}, seed {result['seed']}",
        highlight=False,
    )
    for note in about["notes"]:
        out.print(f"  {note}", style="dim", highlight=False, markup=False)
    out.print(
        f"{result['n_predictions']:,} predictions in {result['n_sessions']:,} sessions of "
        f"{result['n_users']:,} test users; {result['repeat_share']:.1%} of the targets repeat the "
        f"launch before.\n",
        highlight=False,
    )
    out.print(figures_table(result["models"]).terminal())
    out.print()
    out.print(figures_table(result["models"], without_repeats=True).terminal())
    out.print()
    out.print(intervals_table(result).terminal(header=False))
    for line in standing(result):
        out.print(line, highlight=False)


def show_description(source: str, found: Mapping[str, Any]) -> None:
    table = RichTable(box=None, show_header=False, pad_edge=False)
    table.add_row("users", f"{found['n_users']:,}")
    table.add_row("apps", f"{found['n_apps']:,}")
    table.add_row(
        "launches",
        f"{found['n_launches']:,}, {found['n_launches_collapsed']:,} without 3-second repeats",
    )
    table.add_row("time", f"{found['from']} to {found['to']}, {found['n_days']:,} days")
    table.add_row("sessions", f"{found['n_sessions']:,} (15-minute gap)")
    table.add_row("exact repeats", f"{found['repeat_share']:.1%} of launches within sessions")
    for key in ("sessions_per_user", "launches_per_session", "apps_per_user", "launches_per_user"):
        spread = found[key]
        table.add_row(
            key.replace("_", " "),
            f"mean {spread['mean']:,.1f}, median {spread['median']:,.0f}, "
            f"largest {spread['largest']:,.0f}",
        )
    for key in ("launches_by_day", "users_by_day", "launches_by_hour"):
        counts = np.asarray(found[key])
        pieces = np.array_split(counts, min(72, len(counts)))
        line = sparkline([piece.mean() for piece in pieces])
        table.add_row(key.replace("_", " "), f"|{line}| at most {counts.max():,}")
    out.print(f"[bold]{escaped(source)}[/]")
    out.print(table)
    for note in found["notes"]:
        out.print(f"  {note}", style="dim", highlight=False, markup=False)
