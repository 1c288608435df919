"""Small studies of the report: one round (Figure 1), the cost of a report, history windows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from nextapp.data import synthetic
from nextapp.data.cutting import collapse_repeats, launches_in_window
from nextapp.data.log import LaunchLog
from nextapp.evaluation.dynamic_environment import Courses
from nextapp.fleet.rounds import public_clips
from nextapp.learners import SeqMFLearner, sgd, starting_vectors
from nextapp.model import (
    Apps,
    phone_short_term,
    phone_statistics,
    seqmf_gradient,
    session_vector,
)
from nextapp.phone.core import PhoneCore
from nextapp.progress import Progress, named, silent
from nextapp.randomness import KeyedBits
from nextapp.studies import dynamic
from nextapp.studies.dynamic import DynamicExperiment
from nextapp.studies.experiment import check_names
from nextapp.studies.mechanisms import FORMS, PRINTED, mechanism_for_simulation
from nextapp.table import measured_mean
from nextapp.wire import Broadcast, ModelSettings, Report

# --- one round --------------------------------------------------------------------------------


@dataclass(frozen=True)
class OneRound:
    """The paper's Figure 1 shows what a phone keeps and what it sends; here it is measured."""

    apps: int = 87
    dim: int = 64
    epsilon: float = 4.5
    clip: float = 1.0
    mechanisms: tuple[str, ...] = (PRINTED, "harmony", "walsh")
    seed: int = 0

    def __post_init__(self) -> None:
        check_names("mechanism", self.mechanisms, tuple(FORMS))


def run_one_round(settings: OneRound) -> dict[str, Any]:
    """One phone launches apps, gets a broadcast and reports, with the real messages.

    The sizes of the data kept on the phone and of the messages, by mechanism.
    """
    vectors = starting_vectors(settings.apps, settings.dim, 0.1, settings.seed)
    phone = PhoneCore()
    parameters = synthetic.fleet_parameters(1, settings.apps, 3)
    _, launched = synthetic.histories(parameters, settings.seed, 0, 1)
    for second, app in enumerate(launched.tolist()):
        phone.observe(app, when=float(second))
    ups = {}
    down = 0
    for name in settings.mechanisms:
        mechanism = mechanism_for_simulation(
            name, settings.epsilon, settings.apps, settings.dim, settings.clip
        )
        server = SeqMFLearner(vectors, ModelSettings(), sgd(0.01), mechanism)
        sent = server.broadcast.to_bytes()
        down = len(sent)
        phone.take(Broadcast.from_bytes(sent))
        bits = KeyedBits(settings.seed, 0, 0, "report")
        data = mechanism.encode(phone.gradient(), bits, 0).to_bytes()
        guarantee = mechanism.guarantee
        user_vector = np.ascontiguousarray(phone.user_vector).tobytes()
        ups[name] = {
            "bytes": len(data),
            "payload_bytes": len(Report.from_bytes(data).payload),
            "covers": list(guarantee.covers),
            "sent_in_clear": list(guarantee.sent_in_clear),
            "epsilon": None if mechanism.unsafe else guarantee.epsilon,
            "holds_user_vector": user_vector in data,
            "holds_history": phone.history.tobytes() in data,
        }
    return {
        "phone": {
            "user_vector_bytes": phone.user_vector.nbytes,
            "gradient_bytes": 8 * settings.apps * settings.dim,
        },
        "down": {"bytes": down},
        "up": ups,
    }


# --- the cost of a report ---------------------------------------------------------------------


GRADIENT, FULL_SCORE, LIGHT_SCORE = "user vector and gradient", "full score (4)", "light score (8)"
_SESSION = 10  # launches that the light score adds up


@dataclass(frozen=True)
class Cost:
    """``phones`` phones report ``repeats`` times each, for every catalogue size in ``sizes``."""

    epsilon: float = 4.5
    sizes: tuple[int, ...] = (87, 2000)
    dim: int = 64
    phones: int = 40
    repeats: int = 5
    mechanisms: tuple[str, ...] = (
        "laplace", "laplace-l1", "harmony", "kashin", PRINTED, "walsh",
    )  # fmt: skip
    seed: int = 0

    def __post_init__(self) -> None:
        check_names("mechanism", self.mechanisms, tuple(FORMS))
        if PRINTED not in self.mechanisms:
            raise ValueError(
                f"mechanisms must include {PRINTED}, with which all others are compared."
            )
        if min(self.phones, self.repeats, self.dim, *self.sizes) < 1:
            raise ValueError("phones, repeats, dim and sizes must be 1 or more.")


def run_cost(study: Cost, report: Progress = silent) -> dict[str, Any]:
    """For every size and mechanism the time per report, and its ratio to that of `PRINTED`.

    Further rows have what SeqMF itself costs a phone, with ratios to `LIGHT_SCORE`: a gradient, and
    the scores of its own apps.

    All mechanisms encode the same gradients of the same synthetic phones, in turn, phone by phone,
    so that other load of the machine affects all of them alike. The code is that of real phones
    (`nextapp.privacy`), not the compiled code of a fleet. A phone's time is the shortest of its
    repeats, since only other load can lengthen it; intervals are over phones.
    """
    found = {}
    for number, n_apps in enumerate(study.sizes):
        report(f"{n_apps} apps", number, len(study.sizes))
        found[str(n_apps)] = _costs(study, n_apps)
    return {
        "sizes": found,
        "n_phones": study.phones,
        "intervals": "95 %, bootstrap over phones",
    }


def _costs(study: Cost, n_apps: int) -> dict[str, Any]:
    broadcast = Broadcast(0, starting_vectors(n_apps, study.dim, 0.1, study.seed), ModelSettings())
    population = replace(synthetic.LSAPP, phones=study.phones, apps=max(2, n_apps))
    clips = public_clips(population, study.seed, broadcast)  # the median length of a gradient
    mechanisms = {
        name: mechanism_for_simulation(name, study.epsilon, n_apps, study.dim, clips)
        for name in study.mechanisms
    }
    starts, apps = synthetic.histories(population, study.seed, 0, study.phones)
    histories: list[Apps] = [
        apps[first:last].astype(np.int64) for first, last in pairwise(starts.tolist())
    ]
    gradients = [seqmf_gradient(history, broadcast) for history in histories]
    statistics = [phone_statistics(history) for history in histories]
    own = [broadcast.app_vectors[found.apps] for found in statistics]
    sessions = [broadcast.app_vectors[history[-_SESSION:]] for history in histories]
    of_model: Mapping[str, Callable[[int], object]] = {
        GRADIENT: lambda phone: seqmf_gradient(histories[phone], broadcast),
        FULL_SCORE: lambda phone: (
            own[phone] @ gradients[phone].p + phone_short_term(statistics[phone], own[phone])
        ),
        LIGHT_SCORE: lambda phone: (
            own[phone] @ (gradients[phone].p + session_vector(sessions[phone], "sum"))
        ),
    }
    shortest = {name: np.full(study.phones, np.inf) for name in (*mechanisms, *of_model)}
    reports: dict[str, list[Report]] = {name: [] for name in mechanisms}
    for repeat in range(study.repeats):
        for phone, gradient in enumerate(gradients):
            for name, times in shortest.items():
                bits = KeyedBits(study.seed, phone, repeat, "report")
                start = time.process_time()
                if name in of_model:
                    of_model[name](phone)
                else:
                    report = mechanisms[name].encode(gradient, bits)
                times[phone] = min(times[phone], time.process_time() - start)
                if name in reports and repeat == 0:
                    reports[name].append(report)
    rows: dict[str, Any] = {}
    for name, times in shortest.items():
        than = LIGHT_SCORE if name in of_model else PRINTED
        rows[name] = {
            "ms": measured_mean(1e3 * times, study.seed),
            "than": than,
            "times": measured_mean(times / shortest[than], study.seed),
        }
        if name in reports:
            start = time.process_time()
            mechanisms[name].decode(reports[name])
            rows[name]["decode_ms"] = 1e3 * (time.process_time() - start) / study.phones
            rows[name]["bytes"] = len(reports[name][0].payload)
    return rows


# --- the history window t of the paper's H_u^(t) ----------------------------------------------

ALL = "all history"


def run_windows(
    experiment: DynamicExperiment,
    windows: Sequence[float],
    log: LaunchLog,
    report: Progress = silent,
) -> dict[str, Any]:
    """The regime Full in the dynamic environment, with all history and with each window of days.

    ``n_launches`` is the number of launches within the window at the end of the log.
    """
    clean = collapse_repeats(log)
    by_user, rows = {}, {}
    n_users = 0
    for days in (0.0, *windows):
        name = f"{days:g} days" if days else ALL
        alone = replace(experiment, regimes=("full",), models=(), mechanisms=(), window=days)
        result = dynamic.run(alone, log, named(name, report))
        by_user[name] = result.courses.by_user["full"]
        rows[name] = {"n_launches": len(launches_in_window(clean, days))}
        n_users = max(each.n_users for each in result.cycles.parts)
    courses = Courses(by_user, experiment.metrics, experiment.seed)
    return {
        "windows": {
            name: {
                **row,
                "HR@5": courses.overall(name, "HR@5").point(),
                "gain": courses.overall(name, "HR@5", ALL).point() if name != ALL else None,
            }
            for name, row in rows.items()
        },
        "n_users": n_users,
        "intervals": courses.intervals,
    }
