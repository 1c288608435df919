"""Ways to predict the next app: what a predictor is asked, how it answers, all models by name.

The rivals are in `nextapp.predictors.rivals`, every other model has a module of its own. A module
is imported when its model is built.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt

from nextapp.data.log import Indices, LaunchLog, Times
from nextapp.predictor import ABLATIONS, without
from nextapp.settings import unknown
from nextapp.wire import Floats

RIVALS = {
    "random": "Random",
    "mru": "MRU",
    "mfu": "MFU",
    "sr": "SR",
    "sr-od": "SROnDevice",
    "sr-od-su": "SROnDeviceByS",
    "recents": "Recents",
    "kiss": "Kiss",
    "chromeos": "ChromeOS",
    "count-mix": "CountMix",
    "mfu-online": "OnlineMFU",
    "sr-online": "OnlineSR",
    "sr-od-online": "OnlineSROnDevice",
    "ppm": "PPM",
}
FEDERATED = ("mf", "seqmf", "seqmf-frozen")  # built by the studies, which simulate the phones
NEXTAPP = (
    "nextapp",
    "nextapp-alone",
    "nextapp-no-pairs",
    *(f"nextapp-no-{ingredient}" for ingredient in ABLATIONS),
)
CEILING = "ceiling"  # the best possible predictor of synthetic data
LAUNCHERS = ("recents", "kiss", "chromeos", "count-mix")
MODELS = ("random", "mru", "mfu", "sr", "sr-od", *FEDERATED, *LAUNCHERS, "nextapp")
"""Measured by default; the others if they are named."""
ONLINE = ("mfu-online", "sr-online", "sr-od-online", "ppm")
KNOWN = tuple(dict.fromkeys((*MODELS, *RIVALS, *NEXTAPP, CEILING)))


class Question(NamedTuple):
    """One prediction: given who and the session so far (oldest first), score these apps."""

    user: int
    session: Indices
    candidates: Indices


@dataclass(frozen=True, eq=False)
class Questions:
    """Iterative revealing as columns: every launch of a session is asked for, before it is seen.

    The first launch of a session is asked for at its moment, the others as of the launch before.

    ``users`` (n_users,) are codes of the log. Their candidates are
    ``candidates[candidate_starts[v]:candidate_starts[v + 1]]``, ascending, v being a position in
    ``users``. Session s is of user ``session_user[s]`` and holds the launches
    ``session_starts[s]:session_starts[s + 1]`` of ``launches``, each a position among its user's
    candidates, at ``times`` (milliseconds since 1970). A user's sessions are in the order of time.
    Scores are one flat array: prediction after prediction, one cell for every candidate of the
    user; those of session s begin at ``cell_starts[s]``.
    """

    users: Indices
    candidates: Indices
    candidate_starts: Indices
    session_user: Indices
    session_starts: Indices
    launches: Indices
    times: Times

    @property
    def cell_starts(self) -> Indices:
        """(n_sessions + 1,)"""
        width = np.diff(self.candidate_starts)[self.session_user]
        return np.concatenate([[0], np.cumsum(np.diff(self.session_starts) * width)])

    def __iter__(self) -> Iterator[Question]:
        """The predictions one by one, in the order of their cells: the plain way to answer.

        The session so far is empty where a launch opens it.
        """
        for s, v in enumerate(self.session_user):
            own = self.candidates[self.candidate_starts[v] : self.candidate_starts[v + 1]]
            session = own[self.launches[self.session_starts[s] : self.session_starts[s + 1]]]
            for seen in range(len(session)):
                yield Question(int(self.users[v]), session[:seen], own)


class Predictor(Protocol):
    """A way to predict the next app.

    ``in_expectation`` says that all scores are equal and that ties stand for a random order, whose
    expected value is wanted, however the preset treats ties.
    """

    @property
    def name(self) -> str: ...

    @property
    def in_expectation(self) -> bool: ...

    def fit(self, history: LaunchLog) -> None:
        """Learn from the launches before the test. Codes are those of the whole log."""
        ...

    def score(self, questions: Questions) -> Floats:
        """One flat array of scores, a cell for every candidate of every prediction."""
        ...


class Streams(NamedTuple):
    """What the phones of a chunk of questions saw, in the order they saw it.

    Phone v saw the launches ``starts[v]:starts[v + 1]``. Where ``asked`` holds, the scores before
    the launch are wanted: k cells from ``cell[v]`` on, prediction after prediction; where it is
    ``timed`` as of the moment of the launch itself, else as of the launch before.
    """

    starts: Indices
    launches: Indices
    seconds: Floats
    asked: npt.NDArray[np.bool_]
    cell: Indices
    timed: npt.NDArray[np.bool_]


def launch_streams(history: LaunchLog, questions: Questions) -> Streams:
    """History, then the sessions, phone by phone."""
    starts = questions.candidate_starts
    begin, end = history.starts[questions.users], history.starts[questions.users + 1]
    n_old = end - begin
    old_phone = np.repeat(np.arange(len(questions.users)), n_old)
    first = np.repeat(np.cumsum(n_old) - n_old, n_old)
    old_rows = np.repeat(begin, n_old) + np.arange(len(old_phone)) - first
    keys = np.repeat(np.arange(len(starts) - 1), np.diff(starts)) * history.n_apps
    places = np.searchsorted(
        keys + questions.candidates, old_phone * history.n_apps + history.app[old_rows]
    )

    opens = np.zeros(len(questions.launches), bool)
    opens[questions.session_starts[:-1]] = True
    asked_phone = np.repeat(questions.session_user, np.diff(questions.session_starts))
    phone = np.concatenate([old_phone, asked_phone])
    order = np.argsort(phone, kind="stable")
    launches = np.concatenate([places - starts[old_phone], questions.launches])
    times = np.concatenate([history.time[old_rows], questions.times])
    first_session = np.searchsorted(questions.session_user, np.arange(len(questions.users)))
    return Streams(
        starts=np.searchsorted(phone[order], np.arange(len(questions.users) + 1)),
        launches=launches[order],
        seconds=times[order] / 1000.0,
        asked=order >= len(old_phone),
        cell=questions.cell_starts[first_session],
        timed=np.concatenate([np.ones(len(old_phone), bool), opens])[order],
    )


# By name


def known_and_own(names: Sequence[str]) -> tuple[str, ...]:
    """The models known, and those of these names that have the form FILE.py:CLASS."""
    return (*KNOWN, *filter(is_own, names))


def is_own(name: str) -> bool:
    """Whether the name is that of a user's own class, FILE.py:CLASS."""
    return ".py:" in name


def build(name: str, seed: int = 0, source: str = "") -> Predictor:
    """The model with this name, not fitted yet; `source` is the synthetic data of the ceiling."""
    if is_own(name):
        return _build_own(name, seed)
    if name in RIVALS:
        from nextapp.predictors import rivals

        return cast(Predictor, getattr(rivals, RIVALS[name])())
    if name == CEILING:
        from nextapp.data import synthetic
        from nextapp.predictors.ceiling import Ceiling

        return Ceiling(synthetic.parse(source), seed)
    if name in NEXTAPP:
        return _build_nextapp(name)
    raise ValueError(unknown("model", name, KNOWN))


def _build_nextapp(name: str) -> Predictor:
    from nextapp.predictors.nextapp import NextApp
    from nextapp.predictors.pooled import Pooled

    if name == "nextapp-alone":
        return NextApp(name=name)
    if name == "nextapp-no-pairs":
        return NextApp(name=name, crowd=partial(Pooled, pairs=False))
    if name == "nextapp":
        return NextApp(crowd=Pooled)
    return NextApp(without(name.removeprefix("nextapp-no-")), name, crowd=Pooled)


def _build_own(name: str, seed: int) -> Predictor:
    """An instance of a class in a file; it gets the seed if it has a parameter with that name."""
    file, _, kind_name = name.rpartition(":")
    path = Path(file)
    if not path.is_file():
        raise ValueError(f"the model {name!r}: there is no file {file}.")
    spec = spec_from_file_location(f"nextapp_model_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ValueError(f"the model {name!r}: {file} cannot be imported.")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    kind = getattr(module, kind_name, None)
    if not inspect.isclass(kind):
        classes = [each for each, value in vars(module).items() if inspect.isclass(value)]
        raise ValueError(f"{file}: {unknown('class', kind_name, classes)}")
    takes_seed = "seed" in inspect.signature(kind).parameters
    return cast(Predictor, kind(**({"seed": seed} if takes_seed else {})))
