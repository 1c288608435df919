"""A trained model as a file: written by `train`, asked by `predict`.

The file is a Broadcast, exactly what a server publishes, with the settings and versions of its
training in the header. It holds nothing of any one user.
"""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nextapp.data import LaunchLog, collapsed
from nextapp.phone.core import PhoneCore
from nextapp.predictors import factorised
from nextapp.progress import Progress
from nextapp.storage import write_atomically
from nextapp.studies.settings import Experiment, training_values, versions
from nextapp.wire import Broadcast

PAUSE = 10.0  # seconds between launches of a history without times
NAMING = ("app_name", "item_id")  # columns that name the app


def train(log: LaunchLog, experiment: Experiment, out: Path, report: Progress) -> dict[str, Any]:
    """Federated rounds over all phones of the log; the model goes to `out`."""
    if not out.parent.is_dir():
        raise ValueError(f"the folder of {out} does not exist: make it first.")
    devices = factorised.phones(collapsed(log))
    broadcast = factorised.train(
        devices,
        log.n_apps,
        experiment.seqmf,
        experiment.seed,
        log.apps,
        report,
    )
    training = training_values(experiment.seqmf)
    data = broadcast.to_bytes(
        training=json.dumps(training),
        seed=str(experiment.seed),
        source=experiment.data,
        versions=json.dumps(versions()),
    )
    write_atomically(out, data)
    return {
        "n_phones": len(devices),
        "n_apps": broadcast.n_apps,
        "dim": broadcast.dim,
        "rounds": broadcast.round,
        "n_bytes": len(data),
        "seed": experiment.seed,
        "settings": experiment.resolved(),
        "versions": versions(),
    }


def predict(model: bytes, history: str, n: int) -> dict[str, Any]:
    """The n apps most likely next on a phone with this history, by name.

    Apps that the model does not know are said so; they can still be named, as the phone has them.
    """
    broadcast = Broadcast.from_bytes(model)
    if not broadcast.apps:
        raise ValueError("the model has no catalogue of names; write it with `nextapp train`.")
    launches = launches_in(history)
    if not launches:
        raise ValueError("the history holds no launch: give at least one app name.")
    numbers = {name: number for number, name in enumerate(broadcast.apps)}
    device = PhoneCore()
    for name, when in launches:
        device.observe(numbers.setdefault(name, len(numbers)), when)
    device.update(broadcast)
    names = list(numbers)
    strangers = names[broadcast.n_apps :]
    notes = [f"not in the model's catalogue: {', '.join(strangers)}"] if strangers else []
    return {
        "predictions": [names[app] for app in device.predict(n)],
        "n_launches": len(launches),
        "notes": notes,
    }


def launches_in(history: str) -> list[tuple[str, float]]:
    """Names and times of a history, in its order.

    With a header that names app_name (or item_id) it is CSV; `timestamp` may be ISO or epoch
    seconds. Without one, every line is an app's name, all in one session.
    """
    lines, header = _lines_and_header(history)
    app = next((word for word in NAMING if word in header), None)
    if app is None:
        return [(line.strip(), PAUSE * number) for number, line in enumerate(lines)]
    found = []
    users = set()
    for number, row in enumerate(csv.DictReader(lines, skipinitialspace=True), 2):
        name, moment = row.get(app), row.get("timestamp")
        if not name:
            raise ValueError(
                f"history, row {number}, column {app}: expected an app's name, got none."
            )
        users.add(row.get("user_id"))
        when = PAUSE * number if "timestamp" not in header else _seconds(moment or "", number)
        found.append((name, when))
    if len(users) > 1:
        raise ValueError(
            f"a history is that of one phone, got {len(users)} different user_id: keep one."
        )
    return found


def has_times(history: str) -> bool:
    """Whether a history says when its launches were; else `launches_in` makes times up."""
    _, header = _lines_and_header(history)
    return "timestamp" in header and any(word in header for word in NAMING)


def _lines_and_header(history: str) -> tuple[list[str], list[str]]:
    lines = [line for line in history.splitlines() if line.strip()]
    return lines, [word.strip() for word in lines[0].split(",")] if lines else []


def _seconds(text: str, row: int) -> float:
    try:
        return float(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"history, row {row}, column timestamp: expected an ISO time or epoch seconds, "
            f"got {text!r}."
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
