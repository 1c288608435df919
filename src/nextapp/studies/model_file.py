"""A trained model as a file: written by `train`, read by `predict`.

A file of the model `nextapp` contains the crowd, the prior of a new phone: how often an app follows
one app, and two apps, on all phones of a log, counted without privacy. A file of `seqmf` contains
the app vectors. `predict` also takes the broadcast of a server, with the crowd that it learnt from
private reports.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nextapp.data.cutting import collapse_repeats
from nextapp.data.importers import known_format
from nextapp.data.importers.content import Content
from nextapp.data.loading import as_file
from nextapp.data.log import LaunchLog
from nextapp.data.times import offset_at
from nextapp.evaluation.seqmf import SeqMF
from nextapp.phone.core import LightReason, PhoneCore
from nextapp.phone.phone import rows_and_buckets
from nextapp.predictor import Habits, Reason
from nextapp.predictors.pooled import OtherPhones, Pooled
from nextapp.progress import Progress
from nextapp.settings import unknown
from nextapp.storage import write_atomically
from nextapp.studies.experiment import Experiment, plain_values, training_values, versions
from nextapp.wire import Broadcast, WireError, model_settings_from, pack, unpack

VERSION = "2"  # of a model file
KIND = "nextapp model"
ASSUMED_PAUSE = 10.0  # assumed seconds between launches of a history without times
_OF_A_TABLE = re.compile(
    r"[,;\t\0]|^[{\[<]|^PAR1|^\S+ [0-9]{14}|^(app_name|item_id)$"
)  # no list of apps

Tensors = dict[str, npt.NDArray[Any]]
Words = dict[str, str]


def train(
    log: LaunchLog,
    experiment: Experiment,
    out: Path,
    report: Progress,
    model: str = "nextapp",
) -> dict[str, Any]:
    """Learn a model from all phones of the log and write it to `out`."""
    if model not in MODELS:
        raise ValueError(unknown("model to train", model, MODELS))
    log = collapse_repeats(log)
    tensors, words, sizes = MODELS[model](log, experiment, report)
    common = {
        "kind": KIND,
        "version": VERSION,
        "model": model,
        "apps": json.dumps(log.apps),
        "seed": str(experiment.seed),
        "source": experiment.data,
        "versions": json.dumps(versions()),
    }
    data = pack(tensors, {**words, **common})
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, data)
    return {
        "model": model,
        "n_phones": log.n_users,
        "n_apps": log.n_apps,
        **sizes,
        "n_bytes": len(data),
        "seed": experiment.seed,
        "settings": plain_values(experiment),
        "versions": versions(),
    }


def _train_nextapp(
    log: LaunchLog, experiment: Experiment, report: Progress
) -> tuple[Tensors, Words, dict[str, Any]]:
    """The counts of all phones of the log together."""
    del experiment
    report("counting", 0, 0)
    crowd = Pooled(log).others(-1)
    sizes = {"n_transitions": len(crowd.moves), "n_after_two": len(crowd.pairs)}
    return {f"crowd.{name}": tensor for name, tensor in crowd._asdict().items()}, {}, sizes


def _train_seqmf(
    log: LaunchLog, experiment: Experiment, report: Progress
) -> tuple[Tensors, Words, dict[str, Any]]:
    """Federated rounds over all phones of the log."""
    training = experiment.seqmf
    trained = SeqMF(training, experiment.seed, progress=report)
    trained.fit(log)
    words = {
        "round": str(training.rounds),
        "settings": json.dumps(asdict(training.model)),
        "training": json.dumps(training_values(training)),
    }
    sizes = {"dim": training.dim, "rounds": training.rounds}
    return {"app_vectors": trained.app_vectors}, words, sizes


MODELS: dict[
    str, Callable[[LaunchLog, Experiment, Progress], tuple[Tensors, Words, dict[str, Any]]]
] = {"nextapp": _train_nextapp, "seqmf": _train_seqmf}
"""The models that can be saved to a file, with their training functions."""


Ranked = list[tuple[str, Reason | LightReason]]


def predict(
    model: bytes, launches: Sequence[tuple[str, float, int]], n: int
) -> tuple[Ranked, dict[str, Any]]:
    """The n most likely next apps on a phone after these launches (`read_history`), best first and
    each with its reason; and the same as plain values.

    ``unknown_apps`` are not in the model's catalogue; they can still be predicted. ``share`` is
    None for SeqMF, whose scores are not probabilities.
    """
    name, apps, known = _read(model)
    numbers = {app: number for number, app in enumerate(apps)}
    numbered = [
        (numbers.setdefault(app, len(numbers)), clock + zone) for app, clock, zone in launches
    ]
    names = list(numbers)
    strangers = names[len(apps) :]
    if isinstance(known, Broadcast):
        row_of, _ = rows_and_buckets(known)
        strangers = [app for app in strangers if row_of(app) < 0]
        own = Habits() if name == "nextapp" else None
        phone = PhoneCore(habits=own)
        phone.take(known, lambda app: row_of(names[app]))
        for app, when in numbered:
            phone.observe(app, when)
        reasons: Sequence[Reason | LightReason] = phone.explain(with_open=True)
    else:
        own = Habits()
        own.crowd = known
        for app, when in numbered:
            own.observe(app, when)
        reasons = own.explain(own.apps)
    ranked = [(names[reason.app], reason) for reason in reasons[:n]]
    by = "this history" if name == "nextapp" else "a score of 0"
    note = f"not in the model's catalogue, so ranked by {by} alone: {', '.join(strangers)}"
    return ranked, {
        "model": name,
        "predictions": [app for app, _ in ranked],
        "reasons": [{"share": None, **reason._asdict(), "app": app} for app, reason in ranked],
        "n_launches": len(launches),
        "unknown_apps": strangers,
        "notes": [note] if strangers else [],
    }


def _read(data: bytes) -> tuple[str, tuple[str, ...], OtherPhones | Broadcast]:
    """The model's name, its catalogue, and what it knows."""
    try:
        tensors, words = unpack(data)
    except WireError as error:
        raise WireError(
            f"this is no model: expected a file written by nextapp train, or the broadcast of a "
            f"server ({error})"
        ) from error
    if words.get("kind") == "nextapp broadcast":
        broadcast = Broadcast.from_bytes(data)
        if broadcast.crowd is None:
            raise WireError(
                f"the broadcast of round {broadcast.round} contains no crowd yet, so nothing can "
                f"be predicted with it: fetch a later one."
            )
        return "nextapp", broadcast.apps, broadcast
    if words.get("kind") != KIND:
        raise WireError(
            f"expected a model written by nextapp train, or the broadcast of a server, got "
            f"{words.get('kind')!r}."
        )
    if words.get("version", "1") != VERSION:
        raise WireError(
            f"the model file has version {words.get('version', '1')}, this program reads version "
            f"{VERSION}: train it again with nextapp train (--model seqmf for the paper's model)."
        )
    try:
        name, apps = words["model"], tuple(json.loads(words["apps"]))
        if name == "nextapp":
            return name, apps, _crowd_from(tensors, len(apps))
        if name == "seqmf":
            settings = model_settings_from(json.loads(words["settings"]))
            vectors = np.array(tensors["app_vectors"])
            return name, apps, Broadcast(int(words["round"]), vectors, settings, apps)
    except (KeyError, TypeError, ValueError) as error:
        raise WireError(f"the model file cannot be read: {error}") from error
    raise WireError(unknown("model", name, MODELS))


def _crowd_from(tensors: Tensors, n_apps: int) -> OtherPhones:
    crowd = OtherPhones(
        **{name: np.array(tensors[f"crowd.{name}"]) for name in OtherPhones._fields}
    )
    if crowd.n_apps != n_apps or len(crowd.moves) != len(crowd.share):
        raise ValueError(f"a crowd of {crowd.n_apps} apps does not fit {n_apps} names.")
    return crowd


class OwnHistory(NamedTuple):
    """Launches of one phone, oldest first: app, seconds since 1970, and how far its local time is
    ahead of UTC; ``timed`` says whether their times are its own.

    ``log`` has the launches of all phones, from which the crowd is made; None: without a crowd.
    """

    launches: list[tuple[str, float, int]]
    timed: bool = True
    name: str = "this phone"
    log: LaunchLog | None = None


def read_history(file: Path, user: str | None, read: Callable[[str], LaunchLog]) -> OwnHistory:
    """The launches in a file, or in standard input for the path -.

    It has the name of an app in every line, all in one session, or is a log, to be ``read``, of one
    person or with this ``user``.
    """
    with as_file(file) as path:
        content = Content.of_file(path).unzip()
        names = [line.strip() for line in content.text.splitlines() if line.strip()]
        if names and not _OF_A_TABLE.search(names[0]) and not known_format(content):
            return OwnHistory([(app, ASSUMED_PAUSE * n, 0) for n, app in enumerate(names)], False)
        log = read(str(path))
    if user is None and log.n_users > 1:
        raise ValueError(
            f"a history must be of one phone, got {log.n_users} users: choose one with --user, "
            f"such as {', '.join(log.users[:3])}."
        )
    return history_of(log, user or log.users[0])._replace(name=user or "this phone", log=None)


def history_of(log: LaunchLog, user: str) -> OwnHistory:
    """One user of a log.

    Where the log tells no zone it is this machine's, as for a phone that imports them.
    """
    if user not in log.users:
        raise ValueError(unknown("user", user, log.users[:20]))
    code = log.users.index(user)
    rows = slice(*log.starts[code : code + 2].tolist())
    names = (log.apps[app] for app in log.app[rows].tolist())
    clocks = (log.time[rows] / 1000).tolist()
    own = None if log.zone is None else log.zone[rows].tolist()
    zones = own or (offset_at(clock, None) for clock in clocks)
    return OwnHistory(list(zip(names, clocks, zones, strict=True)), name=user, log=log)
