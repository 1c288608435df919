"""Results for TensorBoard or MLflow: a small callback that takes settings and figures.

    with open_tracker("tensorboard:runs/first") as tracker:
        track_result(tracker, result)          # a result as every command writes it by --json
        tracker.figures({"loss": 0.1}, step=3)  # or figures of your own

``mlflow:FOLDER`` or ``mlflow:http://host:5000`` sends the same to MLflow. Both are optional:
pip install 'nextapp[tracking]'.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from nextapp.names import unknown

_MOST_LETTERS = 500  # of a setting's value, as MLflow takes them


class Tracker(Protocol):
    """Where a run goes."""

    def settings(self, values: Mapping[str, Any]) -> None:
        """What the run was made with, once."""

    def figures(self, values: Mapping[str, float], step: int) -> None:
        """Numbers of one step: a round, a cycle, or 0 where there is but one."""

    def close(self) -> None: ...


class TensorBoardTracker:
    """Event files in a folder, as `tensorboard --logdir FOLDER` reads them."""

    def __init__(self, where: str) -> None:
        from tensorboardX import SummaryWriter

        self._writer = SummaryWriter(logdir=where, write_to_disk=True)

    def settings(self, values: Mapping[str, Any]) -> None:
        rows = "\n".join(f"| {name} | {value} |" for name, value in values.items())
        self._writer.add_text("settings", f"| setting | value |\n|---|---|\n{rows}", 0)

    def figures(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class MLflowTracker:
    """A run of MLflow, in a folder or at a server."""

    def __init__(self, where: str) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read by MLflow's import
        import mlflow

        self._mlflow = mlflow
        if "://" not in where:
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow 3 asks to be told
            where = Path(where).resolve().as_uri()
        mlflow.set_tracking_uri(where)
        mlflow.start_run()

    def settings(self, values: Mapping[str, Any]) -> None:
        named = {name: str(value)[:_MOST_LETTERS] for name, value in values.items()}
        self._mlflow.log_params(named)

    def figures(self, values: Mapping[str, float], step: int) -> None:
        self._mlflow.log_metrics(dict(values), step=step)

    def close(self) -> None:
        self._mlflow.end_run()


TRACKERS: Mapping[str, Callable[[str], Tracker]] = {
    "tensorboard": TensorBoardTracker,
    "mlflow": MLflowTracker,
}


def check_where(where: str) -> tuple[str, str]:
    """The kind of tracker and its place, of ``tensorboard:runs`` or ``mlflow:runs``."""
    kind, _, place = where.partition(":")
    if kind not in TRACKERS:
        raise ValueError(unknown("tracker", kind, TRACKERS))
    if not place:
        raise ValueError(f"a tracker is written {kind}:FOLDER, got {where!r}.")
    return kind, place


@contextmanager
def open_tracker(where: str) -> Iterator[Tracker]:
    """The tracker of ``tensorboard:FOLDER``, ``mlflow:FOLDER`` or ``mlflow:URL``, then closed."""
    kind, place = check_where(where)
    tracker = TRACKERS[kind](place)
    try:
        yield tracker
    finally:
        tracker.close()


def track_result(tracker: Tracker, result: Mapping[str, Any]) -> None:
    """The settings and figures of a result of evaluate, dynamic or simulate."""
    tracker.settings(dict(_flat(result.get("settings", {}))))
    for step, values in _figures(result):
        tracker.figures({_name(name): value for name, value in values.items()}, step)


def _name(text: str) -> str:
    """A name that both take: letters, digits and _ - . / alone."""
    return re.sub(r"[^\w./-]+", "_", text.replace("@", "_at_"))


def _flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _figures(result: Mapping[str, Any]) -> Iterator[tuple[int, dict[str, float]]]:
    """Step and figures: models of a static result, cycles of a dynamic one, rounds of a fleet."""
    for model, row in result.get("models", {}).items():
        yield 0, {f"{metric}/{model}": row[metric] for metric in row.get("ci95", {})}
    for name, series in result.get("series", {}).items():
        for cycle, value in zip(result["evaluated"], series["HR@5"]["mean"], strict=True):
            if value is not None:
                yield cycle, {f"HR@5/{name}": value}
    for record in result.get("rounds", ()):
        yield record["round"] + 1, round_figures(record)


def round_figures(record: Mapping[str, Any]) -> dict[str, float]:
    """The figures of one round of `nextapp simulate`."""
    names = ("hr5", "hr5_gain", "loss", "cosine")
    return {name: record[name] for name in names if record.get(name) is not None}
