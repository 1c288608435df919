"""The static environment: train on one part of a log, predict another part, and measure."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nextapp.data.cutting import Split
from nextapp.data.log import Indices, LaunchLog
from nextapp.evaluation import metrics
from nextapp.evaluation.metrics import TABLES
from nextapp.evaluation.revealing import (
    Chunk,
    Exam,
    Mask,
    exam,
    find_preset,
    ranks,
    ranks_without_last,
)
from nextapp.predictor import STEADY
from nextapp.predictors import CEILING, FEDERATED, Predictor, build
from nextapp.predictors.training import MF, SEQMF, Training, frozen
from nextapp.progress import Progress, named, silent
from nextapp.settings import count
from nextapp.table import FEWEST, Column, Kind, Measured, Table, interval, measured_from
from nextapp.wire import Floats

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from matplotlib.figure import Figure

FEWEST_PREDICTIONS = 50
NOT_RANKED = (CEILING, "seqmf-frozen")  # no rivals: an upper bound and a control


@dataclass(frozen=True, eq=False)
class Marks:
    """One predictor's result: for each of `metrics.TABLES` (n_users, 9) means by user, in the order
    of `metrics.METRICS`; NaN for users without such predictions. ``sums``: the sums by `Exam.units`
    that these are made of. ``chances``: scores are log P.
    """

    name: str
    tables: Mapping[str, Floats]
    sums: Mapping[str, Floats]
    counts: Counts
    chances: bool


class Counts(NamedTuple):
    """What is counted by unit while predictions are ranked, for calibration and steadiness."""

    bins: Floats
    launches: Floats
    suggestions: Floats
    suggested: Floats

    @classmethod
    def empty(cls, n_units: int) -> Counts:
        return cls(
            np.zeros((n_units, 2, len(metrics.EDGES), 3)),
            np.zeros(n_units),
            np.zeros((n_units, len(metrics.FACTORS), 2)),
            np.zeros((n_units, 2)),
        )


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
        """The figures as plain values: means and 95 % intervals of each table, and the rest."""
        exam, seed = self.exam, self.seed
        found: dict[str, list[dict[str, object]]] = {}
        for table in TABLES:
            drawn = self._drawn(table, [mark.sums[table] for mark in self.marks])
            found[table] = [
                _figures(mark.tables[table], drawn[:, 9 * number : 9 * number + 9])
                for number, mark in enumerate(self.marks)
            ]
        models: dict[str, Any] = {}
        for number, mark in enumerate(self.marks):
            models[mark.name] = {
                **found["all"][number],
                "different": found["different"][number],
                "openings": found["openings"][number],
                "calibration": (
                    metrics.calibration(*mark.counts[:2], seed) if mark.chances else None
                ),
                "steadiness": metrics.steadiness(
                    exam, *mark.counts[2:], seed, chances=mark.chances
                ),
            }
        return {
            "n_users": self.n_users,
            "n_sessions": int(np.count_nonzero(np.diff(exam.sessions) > 1)),
            "n_predictions": exam.n_predictions,
            "n_openings": int(np.count_nonzero(exam.openings)),
            "repeat_share": float(np.count_nonzero(exam.repeats) / exam.n_predictions),
            "preset": self.exam.preset.name,
            "split": self.exam.how,
            "intervals": f"95 %, over {self._intervals_over}",
            "warnings": list(self._warnings()),
            "models": models,
        }

    @property
    def _intervals_over(self) -> str:
        name = self.exam.units.name
        return name if name == "users" else f"the {name} of {count(self.n_users, 'user')}"

    def _warnings(self) -> Iterator[str]:
        """What a reader of so small a log must know."""
        if self.exam.units.name != "users":
            yield (
                f"Intervals are over {self._intervals_over}, as {FEWEST} users are needed for one "
                f"over users: they say nothing about other people."
            )
        if self.exam.n_predictions < FEWEST_PREDICTIONS:
            yield (
                f"Only {count(self.exam.n_predictions, 'prediction')}: below "
                f"{FEWEST_PREDICTIONS} the figures are chance. Give a longer log, or a longer test "
                f"part by --split."
            )

    def _drawn(self, table: str, sums: Sequence[Floats]) -> Floats:
        """(DRAWS, columns): bootstrap means over users of each column of the sums by unit."""
        exam, counted = self.exam, self.exam.counted(table)
        sizes, weights = unit_sizes(exam, counted), user_weights(exam, counted)
        return exam.units.drawn(np.concatenate(sums, axis=1), sizes, self.seed, weights)

    def to_polars(self) -> pl.DataFrame:
        """One row per model, table and metric; docs/reference/metrics.md.

        ``n_users`` is the number of users with at least one prediction; if 0, the figures are null.
        """
        import polars as pl

        found = self.summary()
        rows = []
        for mark, row in zip(self.marks, found["models"].values(), strict=True):
            for table, by_user in mark.tables.items():
                figures = of_table(row, table)
                n_users = int((~np.isnan(by_user[:, 0])).sum())
                for metric in metrics.METRICS:
                    low, high = figures["ci95"][metric] or (None, None)
                    rows.append(
                        (mark.name, table, metric, figures[metric], low, high, n_users,
                         found["preset"], found["split"])
                    )  # fmt: skip
        figures = dict.fromkeys(("value", "low", "high"), pl.Float64)
        columns = ("model", "table", "metric", *figures, "n_users", "preset", "split")
        return pl.DataFrame(rows, columns, orient="row", schema_overrides=figures)

    def to_pandas(self) -> pd.DataFrame:
        """The rows of `to_polars`, for pandas."""
        import pandas as pd

        return pd.DataFrame(self.to_polars().to_dict(as_series=False))

    def plot(self) -> Figure:
        """Every model's HR@1, 3, 5 with its interval, best HR@5 on top."""
        from nextapp import plots

        return plots.hit_rates(self.summary())

    def __repr__(self) -> str:
        names = ", ".join(mark.name for mark in self.marks)
        return f"<Evaluation of {names}: {self._size()}>"

    def _repr_html_(self) -> str:
        """The tables with intervals, for notebooks."""
        models = self.summary()["models"]
        tables = (figures_table(models, intervals=True, table=table) for table in TABLES)
        found = "".join(
            f"<h4>{escape(each.title)}</h4>{each.html()}" for each in tables if each.rows
        )
        words = f"{self._size()}. Bold is best, underlined second; 95 % intervals over users."
        return f"{found}<p>{escape(words)}</p>"

    def _size(self) -> str:
        size = f"{count(self.exam.n_predictions, 'prediction')}, {count(self.n_users, 'user')}"
        return f"{size}, preset {self.exam.preset.name}, split {self.exam.how}"

    def difference(
        self, first: str, second: str, table: str = "all"
    ) -> dict[str, dict[str, float]]:
        """Mean of first − second for every metric, with its paired 95 % interval; empty if the
        table has no predictions."""
        by_name = {mark.name: mark for mark in self.marks}
        one, other = by_name[first], by_name[second]
        means = _means_of(one.tables[table] - other.tables[table])
        if np.isnan(means).any():
            return {}
        low, high = interval(self._drawn(table, [one.sums[table] - other.sums[table]]))
        return {
            metric: {"difference": float(mean), "low": float(lo), "high": float(hi)}
            for metric, mean, lo, hi in zip(metrics.METRICS, means, low, high, strict=True)
        }

    def leads(self, model: str) -> dict[str, dict[str, dict[str, Any]]]:
        """By table and metric: how far the model is ahead of the best rival, and which that is.

        The best is chosen by the data, so the interval is that of the smallest lead: in every
        resample the lead over the rival that is best there. The model's own other forms are no
        rivals, nor are controls.
        """
        own = next(mark for mark in self.marks if mark.name == model)
        rivals = [
            mark
            for mark in self.marks
            if not mark.name.startswith(model) and mark.name not in NOT_RANKED
        ]
        leads: dict[str, dict[str, dict[str, Any]]] = {}
        for table in TABLES if rivals else ():
            means = np.array([_means_of(own.tables[table] - each.tables[table]) for each in rivals])
            if np.isnan(means).any():
                continue
            drawn = self._drawn(table, [own.sums[table] - each.sums[table] for each in rivals])
            low, high = interval(drawn.reshape(len(drawn), *means.shape).min(axis=1))
            leads[table] = {
                metric: {
                    "rival": rivals[int(means[:, column].argmin())].name,
                    "difference": float(means[:, column].min()),
                    "low": float(low[column]),
                    "high": float(high[column]),
                }
                for column, metric in enumerate(metrics.METRICS)
            }
        return leads


def _figures(by_user: Floats, drawn: Floats) -> dict[str, object]:
    """Means over users and their intervals; None if no user has a prediction."""
    means = _means_of(by_user)
    if np.isnan(means).any():
        nothing = dict.fromkeys(metrics.METRICS)
        return {**nothing, "ci95": nothing}
    low, high = interval(drawn)
    return {
        **{metric: float(mean) for metric, mean in zip(metrics.METRICS, means, strict=True)},
        "ci95": {
            metric: [float(lo), float(hi)]
            for metric, lo, hi in zip(metrics.METRICS, low, high, strict=True)
        },
    }


def _means_of(by_user: Floats) -> Floats:
    """Means over the users that have any; NaN if none has."""
    there = by_user[~np.isnan(by_user[:, 0])]
    return there.mean(axis=0) if len(there) else np.full(by_user.shape[1], np.nan)


def of_table(row: Mapping[str, Any], table: str) -> Mapping[str, Any]:
    """A model's figures in one of `metrics.TABLES`; those of all launches stand at its top."""
    figures: Mapping[str, Any] = row if table == "all" else row[table]
    return figures


def evaluate(
    log: LaunchLog | Exam,
    models: Sequence[str | Predictor] = ("mru", "mfu", "sr-od", "nextapp"),
    seed: int = 0,
    *,
    split: str = "fraction:0.8,0,0.2",
    preset: str = "honest",
    progress: Progress = silent,
) -> Evaluation:
    """Let each model learn from the first part of a log, and measure its predictions of the last.

    Parameters
    ----------
    log
        As `read_log` gives it; or an `exam` made of it, which has its own split and preset.
    models
        Names (``nextapp evaluate --help`` lists them) or predictors.
    seed
        Of models that draw, and of the intervals.
    split
        Train, validation and test part: ``fraction:0.8,0,0.2`` of each user's launches, or
        ``days:222,7,14``.
    preset
        How to count: honest, paper, authors or neural.
    progress
        Called for each model before it learns.
    """
    if not isinstance(log, LaunchLog | Exam):
        raise TypeError(
            f"evaluate needs a launch log, got {type(log).__name__}: evaluate(read_log(...), ...)."
        )
    if isinstance(models, str):
        raise TypeError(f"models must be several, as in [{models!r}], got the text {models!r}.")
    if not models:
        raise ValueError(
            "models must be at least one name or predictor, such as ['mru'], got none."
        )
    predictors = [_predictor(model, seed) for model in models]
    test = log if isinstance(log, Exam) else exam(log, Split.parse(split), find_preset(preset))
    marks = []
    for predictor in predictors:
        progress(predictor.name, 0, 0)
        predictor.fit(test.history)
        counts = Counts.empty(len(test.units.owner))
        values = score_predictions(test, predictor, counts=counts)
        tables = _by_table(user_means, test, values)
        sums = _by_table(unit_sums, test, values)
        marks.append(
            Marks(
                predictor.name,
                tables,
                sums,
                counts,
                getattr(predictor, "scores_are_log_chances", False),
            )
        )
    return Evaluation(test, marks, seed)


def _predictor(model: str | Predictor, seed: int) -> Predictor:
    """A model by its name, or as given."""
    if not isinstance(model, str):
        if isinstance(model, type) or not hasattr(model, "score"):
            raise TypeError(f"a model is a name or a predictor such as MRU(), got {model!r}.")
        return model
    return build_model(model, seed)


def build_model(
    name: str,
    seed: int = 0,
    source: str = "",
    progress: Progress = silent,
    *,
    seqmf: Training = SEQMF,
    mf: Training = MF,
) -> Predictor:
    """The model with this name, not fitted yet; see `nextapp.predictors.build`."""
    if name not in FEDERATED:
        return build(name, seed, source)
    from nextapp.evaluation.seqmf import SeqMF

    trainings = {"mf": mf, "seqmf": seqmf, "seqmf-frozen": frozen(seqmf)}
    return SeqMF(trainings[name], seed, name, named(name, progress))


def mark(exam: Exam, predictor: Predictor) -> dict[str, Floats]:
    """Each user's means of the nine metrics in each of `metrics.TABLES`.

    If the preset averages over predictions, a user's means are weighted by the user's number of
    predictions, so that the mean over users is the mean over predictions.
    """
    return _by_table(user_means, exam, score_predictions(exam, predictor))


def _by_table(
    combine: Callable[[Exam, Floats, Mask], Floats], exam: Exam, both: Floats
) -> dict[str, Floats]:
    """The values of `score_predictions` combined, in each of `metrics.TABLES`."""
    return {
        table: combine(exam, both[int(table == "different")], exam.counted(table))
        for table in TABLES
    }


def score_predictions(
    exam: Exam,
    predictor: Predictor,
    wanted: Sequence[str] = metrics.METRICS,
    counts: Counts | None = None,
) -> Floats:
    """(2, n_rows, len(wanted)): the wanted metrics of every prediction, in order; then the same
    with the last app taken out of the ranking. What calibration and steadiness need is written to
    `counts`, if given."""
    chances = getattr(predictor, "scores_are_log_chances", False)

    def answer(chunk: Chunk) -> Floats:
        scores = predictor.score(chunk.questions)
        if len(scores) != chunk.questions.cell_starts[-1]:
            raise ValueError(
                f"{predictor.name} must give one score per prediction and candidate, "
                f"{chunk.questions.cell_starts[-1]} in total, got {len(scores)}."
            )
        asked = chunk.predictions
        competes = chunk.competes(asked)
        better, equal, finite = ranks(asked, competes, scores)
        if not finite:
            raise ValueError(
                f"{predictor.name} gave scores that are not finite, so they cannot be ranked: "
                f"lower its learning rate, or check its input."
            )
        if counts is not None:
            first = int(np.searchsorted(exam.rows, chunk.rows[0]))
            unit = exam.units.of_row[first : first + len(chunk.rows)]
            if chances:
                factors, worth = metrics.FACTORS, np.exp(scores)
                metrics.count_predictions(asked, unit, competes, worth, *counts[:2])
            else:
                factors, worth = metrics.FACTORS[:1], scores - scores.min(initial=0.0) + 1.0
            at_random = predictor.in_expectation
            metrics.count_suggestions(asked, unit, competes, worth, factors, at_random, *counts[2:])
        ties = "expected" if predictor.in_expectation else exam.preset.ties
        both = [(better, equal), ranks_without_last(asked, competes, scores, better, equal)]
        return np.stack([metrics.values(*each, ties, wanted) for each in both])

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return np.concatenate(list(pool.map(answer, exam.chunks)), axis=1)


def user_weights(exam: Exam, counted: Mask) -> Floats:
    """(n_users,): by what a user's means are multiplied: 1, or the user's number of counted
    predictions if the preset averages over predictions. On average 1 for users that have any."""
    if exam.preset.average != "prediction":
        return np.ones(len(exam.users))
    session = exam.prediction_session[counted]
    n_each = np.bincount(exam.session_user[session], minlength=len(exam.users))
    weights: Floats = n_each * np.count_nonzero(n_each) / max(n_each.sum(), 1)
    return weights


def launch_weights(exam: Exam, counted: Mask) -> Floats:
    """The weight of each counted prediction in its user's mean, as in the preset."""
    session = exam.prediction_session[counted]
    if exam.preset.average == "session":
        return np.asarray(1.0 / np.bincount(session)[session])
    return np.ones(len(session))


def user_means(exam: Exam, values: Floats, counted: Mask) -> Floats:
    """(n_users, columns): means over the counted predictions of each user, as in the preset; NaN
    for users without any."""
    user, weights = exam.session_user[exam.prediction_session[counted]], user_weights(exam, counted)
    sums = _sums(exam, values, counted, user, len(weights))
    sizes = np.bincount(user, launch_weights(exam, counted), len(weights))
    with np.errstate(invalid="ignore"):
        return sums / sizes[:, None] * weights[:, None]


def unit_sizes(exam: Exam, counted: Mask) -> Floats:
    """(n_units,): by what sums by unit are divided."""
    unit, weights = exam.units.of_row[counted], launch_weights(exam, counted)
    return np.asarray(np.bincount(unit, weights, len(exam.units.owner)), float)


def unit_sums(exam: Exam, values: Floats, counted: Mask) -> Floats:
    """(n_units, columns): sums of the counted predictions of each of `Exam.units`, weighted."""
    unit, owner = exam.units.of_row[counted], exam.units.owner
    sums = _sums(exam, values, counted, unit, len(owner))
    return sums * user_weights(exam, counted)[owner][:, None]


def _sums(exam: Exam, values: Floats, counted: Mask, group: Indices, n_groups: int) -> Floats:
    weighted = values[counted] * launch_weights(exam, counted)[:, None]
    columns = [np.bincount(group, column, n_groups) for column in weighted.T]
    return np.asarray(np.stack(columns, axis=1), float)


# Tables


def figures_table(
    models: Mapping[str, Any], *, intervals: bool = False, table: str = "all"
) -> Table:
    """One row per model, one column per metric; best and second best are marked, as in the paper.

    ``models`` is the entry ``models`` of a result.
    """
    found = {name: of_table(row, table) for name, row in models.items()}
    kind: Kind = "interval" if intervals else "figure"
    there = all(row[metrics.METRICS[0]] is not None for row in found.values())
    return Table(
        [
            Column("model", "name"),
            *(Column(metric, kind, between="–", ranked=True) for metric in metrics.METRICS),
        ],
        [
            [name, *(Measured(row[metric], *row["ci95"][metric]) for metric in metrics.METRICS)]
            for name, row in found.items()
            if there
        ],
        title=TABLES[table],
        caption="" if there else "there is no such prediction",
        unranked=NOT_RANKED,
    )


def calibration_table(models: Mapping[str, Any]) -> Table:
    """One row per model with probabilities: its calibration errors."""
    errors = {"ECE": "ece", "ECE of the first": "ece_first"}
    return Table(
        [Column("model", "name"), *(Column(heading, "interval") for heading in errors)],
        [
            [name, *(measured_from(row["calibration"][key]) for key in errors.values())]
            for name, row in models.items()
            if row["calibration"] is not None
        ],
        title="calibration",
        caption="expected calibration error per launch, over all apps and for the most likely app",
    )


def summary_table(models: Mapping[str, Any]) -> Table:
    """One row per model: HR@1 and HR@5 of the three tables, and how many suggestions change."""
    short = ("@1", "@5")
    return Table(
        [
            Column("model", "name"),
            *(
                Column(f"{table} {metric}" if metric == short[0] else metric, ranked=True)
                for table in TABLES
                for metric in short
            ),
            Column("new", form="plain", digits=2),
        ],
        [
            [
                name,
                *(of_table(row, table)[f"HR{metric}"] for table in TABLES for metric in short),
                row["steadiness"]["new_per_launch"][0]["mean"],
            ]
            for name, row in models.items()
        ],
        title="summary: HR@1 and HR@5 of the three tables",
        caption="different: another app than the open one; openings: the first of a session; new: "
        "suggestions of five that change",
        unranked=NOT_RANKED,
    )


def leads_table(leads: Mapping[str, Any], model: str) -> Table:
    """One row per table: how far a model is ahead of the best of all others, whichever that is."""
    gaps = {f"{table} {metric}": found[metric] for table, found in leads.items()
            for metric in ("HR@1", "HR@5")}  # fmt: skip
    rows = [
        [name, gap["rival"], Measured(gap["difference"], gap["low"], gap["high"])]
        for name, gap in gaps.items()
    ]
    columns = [
        Column("table", "name"),
        Column("best rival", "text"),
        Column(f"{model} minus it", "interval", form="signed"),
    ]
    return Table(columns, rows, title=f"{model} minus the best rival of each table")


def steadiness_table(models: Mapping[str, Any]) -> Table:
    """New suggestions and hits, as they come and with the factor that phones use."""
    columns = [Column("model", "name"), Column("factor", form="general")]
    columns.append(Column("new per launch", "interval", 2, "plain", between="–"))
    columns.append(Column("new per day", "interval", 1, "plain", between="–"))
    columns.append(Column("HR@5", "interval", between="–"))
    rows = []
    for name, row in models.items():
        found = row["steadiness"]
        figures = (found[key] for key in ("new_per_launch", "new_per_day", "HR@5"))
        for factor, *line in zip(found["factor"], *figures, strict=True):
            if factor in (1.0, STEADY):
                rows.append([name, factor, *map(measured_from, line)])
    return Table(
        columns,
        rows,
        title="suggestions that change, of five",
        caption="a suggestion gives way to an app that is this factor as likely",
    )
