"""`AppUsage2Vec`: a published neural rival, written again small (Zhao et al., ICDE 2019).

    nextapp evaluate LOG --models nextapp,benchmarks/rivals/appusage2vec.py:AppUsage2Vec

Vectors of apps and users are learnt over all phones. From the last r launches, apps a₁ … a_r (the
latest last) with their ages t₁ … t_r, of user u, at a time of day and weekday z (one-hot):

    x     = [v(a₁), t₁, …, v(a_r), t_r]                  apps with their ages
    α     = softmax(tanh(x A + b_A))                     app attention, one weight per launch
    s     = Σ α_l v(a_l)                                 the sequence
    f, g  = two layers of tanh(· W + b), from s and u     dual networks
    P     = softmax([f ⊙ g, z] C + b_C)                  over all apps

Trained by Adam on the cross-entropy. Of `TRIALS` random settings the one is taken that ranks best
on the last eighth of each user's history. `AppUsage2Vec` stays as it is after training;
`AppUsage2VecOnline` learns further on each phone, after every `BLOCK` launches that it predicted.
Left out are the paper's top-k loss and its dropout. An age is log(1 + seconds) / 10, and z is that
of the latest launch: the moment of the launch asked for is not known. Scores are log P over the
candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nextapp.data.log import LaunchLog
from nextapp.predictors import Questions, launch_streams
from nextapp.wire import Floats

Single = npt.NDArray[np.float32] | Floats
Whole = npt.NDArray[np.int64]
NetworkParameters = dict[str, Single]

N_TIMES = 24 + 7
_HOUR, _DAY = 3600.0, 86400.0
_LAYERS = ("1", "2")
TRIALS = 6
MOST_EXAMPLES = 15_000  # launches that a trial learns from and is judged by
BLOCK = 16
_SEARCHED = {
    "dim": (16, 32, 64), "n_recent": (3, 4, 8), "epochs": (4, 8, 16), "rate": (0.001, 0.003, 0.01),
}  # fmt: skip


@dataclass(frozen=True)
class NetworkTraining:
    """Round numbers, those of public re-implementations where they agree; the first trial."""

    dim: int = 64
    n_recent: int = 4
    epochs: int = 8
    batch: int = 512
    rate: float = 0.003


class RecentLaunches(NamedTuple):
    """What is known before a launch, a row for each."""

    user: Whole  # (n,)
    apps: Whole  # (n, n_recent), the latest last; n_apps where there is none
    ages: Single  # (n, n_recent)
    times: Whole  # (n, 2): hour, and 24 + weekday

    def at(self, rows: slice | Whole) -> RecentLaunches:
        return RecentLaunches(self.user[rows], self.apps[rows], self.ages[rows], self.times[rows])


class AppUsage2Vec:
    """App attention and dual networks over vectors of apps and users, trained per log."""

    name = "appusage2vec"
    in_expectation = False
    scores_are_log_chances = True

    def __init__(self, seed: int = 0, training: NetworkTraining | None = None) -> None:
        self.seed = seed
        self.given = training

    def fit(self, history: LaunchLog) -> None:
        self.history = history
        number = np.arange(len(history)) - history.starts[history.user]
        rows = np.flatnonzero(number > 0)
        late = number >= 7 / 8 * np.diff(history.starts)[history.user]
        self.training = self.given or self._best(rows[~late[rows]], rows[late[rows]])
        self.parameters = self._trained(self.training, rows)

    def _best(self, early: Whole, late: Whole) -> NetworkTraining:
        """The settings with the highest HR@1 + HR@5 on late launches, over all apps."""
        if len(early) == 0 or len(late) == 0:
            return NetworkTraining()
        rng = np.random.default_rng(self.seed)
        early, late = (
            np.sort(rng.choice(rows, min(len(rows), MOST_EXAMPLES), replace=False))
            for rows in (early, late)
        )
        trials = [NetworkTraining()]
        for _ in range(TRIALS - 1):
            drawn = {name: rng.choice(values).item() for name, values in _SEARCHED.items()}
            trials.append(NetworkTraining(**drawn))
        return max(trials, key=lambda training: self._hits(training, early, late))

    def _hits(self, training: NetworkTraining, early: Whole, late: Whole) -> float:
        logits, _ = forward(self._trained(training, early), self._known(late, training.n_recent))
        own = logits[np.arange(len(late)), self.history.app[late]]
        rank = (logits >= own[:, None]).sum(axis=1)
        return float((rank <= 1).mean() + (rank <= 5).mean())

    def _known(self, rows: Whole, n_recent: int) -> RecentLaunches:
        history = self.history
        return _recent_launches(
            history.user.astype(np.int64), history.app.astype(np.int64), history.time / 1000.0,
            history.starts, rows, history.n_apps, n_recent,
        )  # fmt: skip

    def _trained(self, training: NetworkTraining, rows: Whole) -> NetworkParameters:
        history, rng = self.history, np.random.default_rng(self.seed)
        parameters = starting_parameters(history.n_users, history.n_apps, training, rng, np.float32)
        if len(rows) > 0:
            known = self._known(rows, training.n_recent)
            train_network(parameters, known, history.app[rows].astype(np.int64), training, rng)
        return parameters

    def logits(self, known: RecentLaunches, target: Whole, phone: Whole) -> Sequence[Single]:
        """The logits of every launch, of one phone after the other."""
        del target, phone
        step = self.training.batch
        blocks = (slice(first, first + step) for first in range(0, len(known.user), step))
        return [row for rows in blocks for row in forward(self.parameters, known.at(rows))[0]]

    def score(self, questions: Questions) -> Floats:
        streams = launch_streams(self.history, questions)
        k = np.diff(questions.candidate_starts)
        phone = np.repeat(np.arange(len(k)), np.diff(streams.starts))
        rows = np.flatnonzero(streams.asked)
        known = _recent_launches(
            questions.users[phone].astype(np.int64),
            questions.candidates[questions.candidate_starts[phone] + streams.launches],
            streams.seconds, streams.starts, rows, self.history.n_apps, self.training.n_recent,
            phone,
        )  # fmt: skip
        own = [
            questions.candidates[slice(*questions.candidate_starts[v : v + 2])]
            for v in range(len(k))
        ]
        scores, cell = np.empty(int(questions.cell_starts[-1])), streams.cell.copy()
        target = questions.candidates[questions.candidate_starts[phone] + streams.launches][rows]
        for v, logits in zip(phone[rows], self.logits(known, target, phone[rows]), strict=True):
            of_own = logits[own[v]].astype(np.float64)
            top = of_own.max()
            total = top + np.log(np.exp(of_own - top).sum())
            scores[cell[v] : cell[v] + k[v]] = of_own - total
            cell[v] += k[v]
        return scores


class AppUsage2VecOnline(AppUsage2Vec):
    """The same network, which each phone trains further, at the rate that training ended with."""

    name = "appusage2vec-online"

    def logits(self, known: RecentLaunches, target: Whole, phone: Whole) -> Sequence[Single]:
        found: list[Single] = []
        for v in np.unique(phone):
            own = np.flatnonzero(phone == v)
            adam = Adam({name: value.copy() for name, value in self.parameters.items()})
            for first in range(0, len(own), BLOCK):
                rows = own[first : first + BLOCK]
                found += list(forward(adam.parameters, known.at(rows))[0])
                adam.step(known.at(rows), target[rows], self.training.rate / 10)
        return found


def _recent_launches(
    user: Whole,
    app: Whole,
    seconds: Floats,
    starts: npt.NDArray[np.integer],
    rows: npt.NDArray[np.integer],
    n_apps: int,
    n_recent: int,
    phone: npt.NDArray[np.integer] | None = None,
) -> RecentLaunches:
    """What is known before the launches in these rows. Each has one before it."""
    owner = user if phone is None else phone
    back = rows[:, None] - np.arange(n_recent, 0, -1)
    there = back >= np.asarray(starts)[owner[rows]][:, None]
    back = np.maximum(back, 0)
    now = seconds[rows - 1]
    ages = np.log1p(np.maximum(now[:, None] - seconds[back], 0.0)) / 10.0
    hour = now // _HOUR % 24
    weekday = 24 + now // _DAY % 7
    return RecentLaunches(
        user[rows],
        np.where(there, app[back], n_apps),
        np.where(there, ages, 0.0).astype(np.float32),
        np.stack([hour, weekday], axis=1).astype(np.int64),
    )


def starting_parameters(
    n_users: int,
    n_apps: int,
    training: NetworkTraining,
    rng: np.random.Generator,
    kind: type[np.floating],
) -> NetworkParameters:
    """Normal vectors; matrices by Glorot's rule; a row of zeros stands for no app."""
    d, r = training.dim, training.n_recent

    def matrix(n_in: int, n_out: int) -> Single:
        return rng.normal(0.0, np.sqrt(2.0 / (n_in + n_out)), (n_in, n_out)).astype(kind)

    found: NetworkParameters = {
        "apps": (rng.normal(0.0, 0.3, (n_apps + 1, d))).astype(kind),
        "users": (rng.normal(0.0, 0.3, (n_users, d))).astype(kind),
        "A": matrix(r * (d + 1), r),
        "b_A": np.zeros(r, kind),
        "C": matrix(d, n_apps),
        "C_z": np.zeros((N_TIMES, n_apps), kind),
        "b_C": np.zeros(n_apps, kind),
    }
    for layer in _LAYERS:
        for network in ("f", "g"):
            found[network + layer], found["b_" + network + layer] = matrix(d, d), np.zeros(d, kind)
    found["apps"][-1] = 0.0
    return found


def forward(
    parameters: NetworkParameters, known: RecentLaunches
) -> tuple[Single, dict[str, Single]]:
    """(n, n_apps) logits, and what `gradient` needs of the way there."""
    n = len(known.user)
    vectors = parameters["apps"][known.apps]  # (n, r, d)
    x = np.concatenate([vectors, known.ages[:, :, None]], axis=2).reshape(n, -1)
    bent = np.tanh(x @ parameters["A"] + parameters["b_A"])
    alpha = np.exp(bent)
    alpha /= alpha.sum(axis=1, keepdims=True)
    kept = {
        "vectors": vectors, "x": x, "bent": bent, "alpha": alpha,
        "f0": (alpha[:, :, None] * vectors).sum(axis=1), "g0": parameters["users"][known.user],
    }  # fmt: skip
    for network in ("f", "g"):
        for before, layer in zip(("0", "1"), _LAYERS, strict=True):
            name = network + layer
            kept[name] = np.tanh(
                kept[network + before] @ parameters[name] + parameters["b_" + name]
            )
    logits = (kept["f2"] * kept["g2"]) @ parameters["C"] + parameters["b_C"]
    logits += parameters["C_z"][known.times].sum(axis=1)
    return logits, kept


def loss_and_gradient(
    parameters: NetworkParameters, known: RecentLaunches, target: Whole
) -> tuple[float, NetworkParameters]:
    """Mean −log P(target), and its gradients."""
    n = len(target)
    logits, kept = forward(parameters, known)
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    loss = -float(np.log(np.maximum(chances[np.arange(n), target], 1e-30)).mean())
    error = chances
    error[np.arange(n), target] -= 1.0
    error /= n
    gradients: NetworkParameters = {
        "C": (kept["f2"] * kept["g2"]).T @ error,
        "b_C": error.sum(axis=0),
        "C_z": np.zeros_like(parameters["C_z"]),
        "apps": np.zeros_like(parameters["apps"]),
        "users": np.zeros_like(parameters["users"]),
    }
    for column in known.times.T:
        add_rows(gradients["C_z"], column, error)
    joint = error @ parameters["C"].T
    ends: NetworkParameters = {}
    for network, other in (("f", "g"), ("g", "f")):
        gradient = joint * kept[other + "2"]
        for before, layer in (("1", "2"), ("0", "1")):
            name = network + layer
            gradient = gradient * (1.0 - kept[name] ** 2)
            gradients[name] = kept[network + before].T @ gradient
            gradients["b_" + name] = gradient.sum(axis=0)
            gradient = gradient @ parameters[name].T
        ends[network] = gradient
    add_rows(gradients["users"], known.user, ends["g"])
    vectors, alpha = kept["vectors"], kept["alpha"]
    by_weight = np.einsum("nd,nrd->nr", ends["f"], vectors)
    by_weight = alpha * (by_weight - (alpha * by_weight).sum(axis=1, keepdims=True))
    by_weight *= 1.0 - kept["bent"] ** 2
    gradients["A"], gradients["b_A"] = kept["x"].T @ by_weight, by_weight.sum(axis=0)
    by_vector = (by_weight @ parameters["A"].T).reshape(*vectors.shape[:2], -1)[:, :, :-1]
    by_vector = by_vector + alpha[:, :, None] * ends["f"][:, None, :]
    add_rows(gradients["apps"], known.apps.ravel(), by_vector.reshape(n * known.apps.shape[1], -1))
    gradients["apps"][-1] = 0.0
    return loss, gradients


def train_network(
    parameters: NetworkParameters,
    known: RecentLaunches,
    target: Whole,
    training: NetworkTraining,
    rng: np.random.Generator,
) -> None:
    """Adam, in place; the step falls to a tenth over the epochs."""
    adam = Adam(parameters)
    n = len(target)
    n_steps = training.epochs * -(-n // training.batch)
    for _ in range(training.epochs):
        order = rng.permutation(n)
        for begin in range(0, n, training.batch):
            rows = order[begin : begin + training.batch]
            rate = training.rate * 0.1 ** ((adam.n_steps + 1) / n_steps)
            adam.step(known.at(rows), target[rows], rate)


class Adam:
    """Steps on the parameters, in place."""

    def __init__(self, parameters: NetworkParameters) -> None:
        self.parameters = parameters
        self.first = {name: np.zeros_like(value) for name, value in parameters.items()}
        self.second = {name: np.zeros_like(value) for name, value in parameters.items()}
        self.n_steps = 0

    def step(self, known: RecentLaunches, target: Whole, rate: float) -> None:
        _, gradients = loss_and_gradient(self.parameters, known, target)
        self.n_steps += 1
        rate *= np.sqrt(1.0 - 0.999**self.n_steps) / (1.0 - 0.9**self.n_steps)
        for name, gradient in gradients.items():
            first, second = self.first[name], self.second[name]
            first += 0.1 * (gradient - first)
            second += 0.001 * (gradient * gradient - second)
            self.parameters[name] -= rate * first / (np.sqrt(second) + 1e-8)


def add_rows(total: Single, place: Whole, rows: Single) -> None:
    """total[place[i]] += rows[i]; many times as fast as np.add.at."""
    order = np.argsort(place, kind="stable")
    places, starts = np.unique(place[order], return_index=True)
    total[places] += np.add.reduceat(rows[order], starts, axis=0)
