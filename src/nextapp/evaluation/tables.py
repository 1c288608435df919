"""The figures of a static evaluation as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nextapp.evaluation.metrics import METRICS
from nextapp.predictors.registry import CEILING
from nextapp.table import Column, Kind, Measured, Table, measured_from

SHOWN = (1, 2, 3, 5, 10)  # numbers of apps that a rival without probabilities prewarms
NOT_RANKED = (CEILING, "seqmf-frozen")  # no rivals: an upper bound and a control


def figures_table(
    models: Mapping[str, Any],
    *,
    intervals: bool = False,
    without_repeats: bool = False,
    notes: Mapping[str, Mapping[str, str]] | None = None,
) -> Table:
    """One row per model, one column per metric; best and second best are marked, as in the paper.

    ``models`` is the entry ``models`` of a result; ``notes`` are texts for cells, by model and
    metric.
    """
    found = {
        name: row["without_repeats"] if without_repeats else row for name, row in models.items()
    }
    kind: Kind = "interval" if intervals else "figure"
    there = all(row[METRICS[0]] is not None for row in found.values())
    notes = notes or {}
    return Table(
        [
            Column("model", "name"),
            *(Column(metric, kind, between="–", ranked=True) for metric in METRICS),
        ],
        [
            [name, *(_figure(row, metric, notes.get(name, {})) for metric in METRICS)]
            for name, row in found.items()
            if there
        ],
        title="without exact repeats" if without_repeats else "all predictions",
        caption="" if there else "every prediction is an exact repeat",
        unranked=NOT_RANKED,
    )


def whole_table(models: Mapping[str, Any]) -> Table:
    """One row per model: every metric with its interval, then without exact repeats."""
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


def calibration_table(models: Mapping[str, Any]) -> Table:
    """One row per model with probabilities: its calibration errors."""
    return Table(
        [
            Column("model", "name"),
            Column("ECE", "interval"),
            Column("ECE of the first", "interval"),
        ],
        [
            [
                name,
                measured_from(row["calibration"]["ece"]),
                measured_from(row["calibration"]["ece_first"]),
            ]
            for name, row in models.items()
            if row["calibration"] is not None
        ],
        title="calibration",
        caption="expected calibration error per launch, over all apps and for the most likely app",
    )


def prewarm_table(models: Mapping[str, Any]) -> Table:
    """Prewarms and hits per launch, for apps above a probability or the top n apps."""
    rows: list[list[Any]] = []
    for name, row in models.items():
        above, first = row["prewarm"]["above"], row["prewarm"]["first"]
        if above is not None:
            rows += [
                [name, f"P ≥ {threshold:g}", prewarms, Measured(hits, low, high)]
                for threshold, prewarms, hits, low, high in zip(*above.values(), strict=True)
            ]
        else:
            rows += [
                [name, f"first {n}", float(n), Measured(hits, low, high)]
                for n, hits, low, high in zip(*first.values(), strict=True)
                if n in SHOWN
            ]
    return Table(
        [
            Column("model", "name"),
            Column("prewarmed", "text"),
            Column("prewarms per launch", form="plain", digits=2),
            Column("hits per launch", "interval"),
        ],
        rows,
        title="prewarming",
    )


def _figure(row: Mapping[str, Any], metric: str, notes: Mapping[str, str]) -> Measured:
    low, high = row["ci95"][metric]
    return Measured(row[metric], low, high, notes.get(metric, ""))
