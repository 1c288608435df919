"""The static environment: train on one part of a log, predict another part, and measure."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from nextapp.evaluation import calibration, metrics
from nextapp.evaluation.calibration import CalibrationCounts
from nextapp.evaluation.revealing import Chunk, Exam, ranks
from nextapp.intervals import bootstrap_means, interval
from nextapp.predictors import Predictor
from nextapp.predictors.questions import Indices
from nextapp.predictors.registry import CEILING
from nextapp.progress import Progress, silent
from nextapp.table import Column, Kind, Measured, Table, measured_from
from nextapp.wire import Floats

if TYPE_CHECKING:
    import polars as pl

Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]


SHOWN = (1, 2, 3, 5, 10)  # numbers of apps that a rival without probabilities prewarms
NOT_RANKED = (CEILING, "seqmf-frozen")  # no rivals: an upper bound and a control


@dataclass(frozen=True, eq=False)
class Marks:
    """One predictor's result: (n_users, 9) means by user, in the order of `metrics.METRICS`.

    ``without_repeats`` leaves out predictions whose target is the app launched just before; users
    without other predictions have NaN there. ``counts`` are those for calibration and
    prewarming; ``chances``: the scores are log P.
    """

    name: str
    by_user: Floats
    without_repeats: Floats
    fit_seconds: float
    predict_seconds: float
    counts: CalibrationCounts
    chances: bool


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The results of all predictors on one exam."""

    exam: Exam
    marks: Sequence[Marks]
    seed: int

    @property
    def n_users(self) -> int:
        return len(self.exam.users)

    def summary(self) -> dict[str, Any]:
        """The figures as plain values: means, 95 % intervals, and the same without repeats."""
        everyone = np.concatenate([mark.by_user for mark in self.marks], axis=1)
        changed = np.concatenate([mark.without_repeats for mark in self.marks], axis=1)
        models: dict[str, Any] = {}
        drawn = bootstrap_means(everyone, self.seed, user_weights(self.exam))
        drawn_changed = bootstrap_means(
            changed, self.seed, user_weights(self.exam, ~self.exam.repeats)
        )
        for number, mark in enumerate(self.marks):
            columns = slice(9 * number, 9 * number + 9)
            models[mark.name] = {
                **_figures(mark.by_user, drawn[:, columns]),
                "without_repeats": _figures(mark.without_repeats, drawn_changed[:, columns]),
                "fit_seconds": round(mark.fit_seconds, 4),
                "predict_seconds": round(mark.predict_seconds, 4),
                **calibration.summary(mark.counts, self.seed, chances=mark.chances),
            }
        return {
            "n_users": self.n_users,
            "n_sessions": len(self.exam.sessions) - 1,
            "n_predictions": self.exam.n_predictions,
            "repeat_share": float(self.exam.repeats.mean()),
            "preset": self.exam.preset.name,
            "split": self.exam.how,
            "models": models,
        }

    def to_polars(self) -> pl.DataFrame:
        """One row per model and metric, with and without exact repeats; docs/reference/metrics.md.

        ``n_users`` is the number of users with at least one prediction; if 0, the figures are null.
        """
        import polars as pl

        found = self.summary()
        rows = []
        for mark, row in zip(self.marks, found["models"].values(), strict=True):
            for repeats, figures, by_user in (
                (True, row, mark.by_user),
                (False, row["without_repeats"], mark.without_repeats),
            ):
                n_users = int((~np.isnan(by_user[:, 0])).sum())
                for metric in metrics.METRICS:
                    low, high = figures["ci95"][metric] or (None, None)
                    rows.append(
                        (mark.name, metric, repeats, figures[metric], low, high, n_users,
                         found["preset"], found["split"])
                    )  # fmt: skip
        schema = {
            "model": pl.String,
            "metric": pl.String,
            "with_repeats": pl.Boolean,
            "value": pl.Float64,
            "low": pl.Float64,
            "high": pl.Float64,
            "n_users": pl.Int64,
            "preset": pl.String,
            "split": pl.String,
        }
        return pl.DataFrame(rows, schema=schema, orient="row")

    def __repr__(self) -> str:
        names = ", ".join(mark.name for mark in self.marks)
        return f"<Evaluation of {names}: {self._size()}>"

    def _repr_html_(self) -> str:
        """The table with intervals, for notebooks."""
        table = figures_table(self.summary()["models"], intervals=True)
        return f"{table.html()}<p>{escape(self._size())}</p>"

    def _size(self) -> str:
        return (
            f"{self.exam.n_predictions:,} predictions, {self.n_users:,} users, preset "
            f"{self.exam.preset.name}, split {self.exam.how}"
        )

    def difference(self, first: str, second: str) -> dict[str, dict[str, float]]:
        """Mean of first − second for every metric, with its paired 95 % interval over users."""
        by_name = {mark.name: mark.by_user for mark in self.marks}
        gap = by_name[first] - by_name[second]
        low, high = interval(bootstrap_means(gap, self.seed, user_weights(self.exam)))
        return {
            metric: {"difference": float(mean), "low": float(lo), "high": float(hi)}
            for metric, mean, lo, hi in zip(
                metrics.METRICS, gap.mean(axis=0), low, high, strict=True
            )
        }


def _figures(by_user: Floats, drawn: Floats) -> dict[str, object]:
    """Means over users and their intervals; None if no user has a prediction."""
    there = ~np.isnan(by_user[:, 0])
    if not there.any():
        nothing = dict.fromkeys(metrics.METRICS)
        return {**nothing, "ci95": nothing}
    means = by_user[there].mean(axis=0)
    low, high = interval(drawn)
    return {
        **{metric: float(mean) for metric, mean in zip(metrics.METRICS, means, strict=True)},
        "ci95": {
            metric: [float(lo), float(hi)]
            for metric, lo, hi in zip(metrics.METRICS, low, high, strict=True)
        },
    }


def evaluate(
    exam: Exam,
    predictors: Sequence[Predictor],
    seed: int,
    progress: Progress = silent,
) -> Evaluation:
    """Fit each predictor on the exam's history and measure its predictions.

    `progress` is called for each predictor before it is fitted.
    """
    marks = []
    for predictor in predictors:
        progress(predictor.name, 0, 0)
        start = time.perf_counter()
        predictor.fit(exam.history)
        middle = time.perf_counter()
        counts = CalibrationCounts.empty(len(exam.users))
        by_user, without_repeats = mark(exam, predictor, counts)
        end = time.perf_counter()
        marks.append(
            Marks(
                predictor.name,
                by_user,
                without_repeats,
                middle - start,
                end - middle,
                counts,
                getattr(predictor, "scores_are_log_chances", False),
            )
        )
    return Evaluation(exam, marks, seed)


def mark(
    exam: Exam, predictor: Predictor, counts: CalibrationCounts | None = None
) -> tuple[Floats, Floats]:
    """Each user's means of the nine metrics: over all predictions, and without exact repeats.

    If the preset averages over predictions, a user's means are weighted by the user's number of
    predictions, so that the mean over users is the mean over predictions. What calibration needs is
    written to `counts`, if given.
    """
    values = score_predictions(exam, predictor, counts=counts)
    return (
        user_means(exam, values, np.ones(len(values), bool)),
        user_means(exam, values, ~exam.repeats),
    )


def score_predictions(
    exam: Exam,
    predictor: Predictor,
    wanted: Sequence[str] = metrics.METRICS,
    counts: CalibrationCounts | None = None,
) -> Floats:
    """(n_predictions, len(wanted)): the wanted metrics of every prediction, in order."""

    def answer(chunk: Chunk) -> Floats:
        scores = predictor.score(chunk.questions)
        if len(scores) != chunk.questions.cell_starts[-1]:
            raise ValueError(
                f"{predictor.name} must give one score per prediction and candidate, "
                f"{chunk.questions.cell_starts[-1]} in total, got {len(scores)}."
            )
        better, equal, finite = ranks(chunk, scores, exam.preset)
        if not finite:
            raise ValueError(
                f"{predictor.name} gave scores that are not finite, so they cannot be ranked: "
                f"lower its learning rate, or check its input."
            )
        if counts is not None:  # each user is in one chunk
            users = np.searchsorted(exam.users, chunk.questions.users)
            competes = exam.preset.candidates == "history+target"
            log_chances = scores if getattr(predictor, "scores_are_log_chances", False) else None
            counts.set_users(
                users, calibration.count_predictions(chunk, log_chances, better, equal, competes)
            )
        ties = "expected" if predictor.in_expectation else exam.preset.ties
        return metrics.values(better, equal, ties, wanted)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return np.concatenate(list(pool.map(answer, exam.chunks)))


def user_weights(exam: Exam, counted: Mask | None = None) -> Floats:
    """(n_users,): by what a user's means are multiplied: 1, or the user's number of counted
    predictions if the preset averages over predictions. On average 1 for users that have any."""
    if exam.preset.average != "prediction":
        return np.ones(len(exam.users))
    session = exam.prediction_session if counted is None else exam.prediction_session[counted]
    n_each = np.bincount(exam.session_user[session], minlength=len(exam.users))
    weights: Floats = n_each * np.count_nonzero(n_each) / max(n_each.sum(), 1)
    return weights


def user_means(exam: Exam, values: Floats, counted: Mask) -> Floats:
    """(n_users, columns): means over the counted predictions of each user, as in the preset."""
    session = exam.prediction_session[counted]
    if exam.preset.average == "session":
        by_session = _means(session, values[counted], len(exam.sessions) - 1)
        there = ~np.isnan(by_session[:, 0])
        return _means(exam.session_user[there], by_session[there], len(exam.users))
    means = _means(exam.session_user[session], values[counted], len(exam.users))
    weighted: Floats = means * user_weights(exam, counted)[:, None]
    return weighted


def _means(group: Indices, values: Floats, n_groups: int) -> Floats:
    """(n_groups, columns): mean of the rows of each group, NaN for an empty group."""
    size = np.bincount(group, minlength=n_groups)
    totals = np.stack(
        [np.bincount(group, column, minlength=n_groups) for column in values.T], axis=1
    )
    with np.errstate(invalid="ignore"):
        return totals / size[:, None]


# Tables


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
    there = all(row[metrics.METRICS[0]] is not None for row in found.values())
    notes = notes or {}
    return Table(
        [
            Column("model", "name"),
            *(Column(metric, kind, between="–", ranked=True) for metric in metrics.METRICS),
        ],
        [
            [name, *(_figure(row, metric, notes.get(name, {})) for metric in metrics.METRICS)]
            for name, row in found.items()
            if there
        ],
        title="without exact repeats" if without_repeats else "all predictions",
        caption="" if there else "every prediction is an exact repeat",
        unranked=NOT_RANKED,
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
