"""The figures of a static evaluation as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nextapp.evaluation.metrics import METRICS
from nextapp.predictors import Ceiling
from nextapp.table import Column, Kind, Measured, Table

# The ceiling is above for what it knows, and a control is there to be compared with.
NOT_RANKED = (Ceiling.name, "seqmf-frozen")


def figures_table(
    models: Mapping[str, Any],
    *,
    intervals: bool = False,
    without_repeats: bool = False,
    notes: Mapping[str, Mapping[str, str]] | None = None,
) -> Table:
    """One row a model, one column a metric; best and second best are marked, as in the paper.

    ``models`` is that part of a result; ``notes`` are words for cells, by model and metric.
    """
    found = {
        name: row["without_repeats"] if without_repeats else row for name, row in models.items()
    }
    kind: Kind = "interval" if intervals else "figure"
    there = all(row[METRICS[0]] is not None for row in found.values())
    said = notes or {}
    return Table(
        [
            Column("model", "name"),
            *(Column(metric, kind, between="–", ranked=True) for metric in METRICS),
        ],
        [
            [name, *(_figure(row, metric, said.get(name, {})) for metric in METRICS)]
            for name, row in found.items()
            if there
        ],
        title="without exact repeats" if without_repeats else "all predictions",
        caption="" if there else "every prediction is an exact repeat",
        unranked=NOT_RANKED,
    )


def whole_table(models: Mapping[str, Any]) -> Table:
    """One row a model: every metric with its interval, then without exact repeats."""
    return Table(
        [
            Column("model", "name"),
            *(Column(metric, "interval") for metric in METRICS),
            *(Column(f"{metric} without repeats") for metric in METRICS),
        ],
        [
            [
                name,
                *(_figure(row, metric, {}) for metric in METRICS),
                *(row["without_repeats"][metric] for metric in METRICS),
            ]
            for name, row in models.items()
        ],
    )


def _figure(row: Mapping[str, Any], metric: str, notes: Mapping[str, str]) -> Measured:
    low, high = row["ci95"][metric]
    return Measured(row[metric], low, high, notes.get(metric, ""))
