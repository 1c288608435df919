"""`Ranker`: a gradient-boosted ranker trained on the log at hand; a measure of head-room.

What one would do with a log and no phone: LightGBM's LambdaRank over the likeliest candidates of
each launch. It starts from log P of `nextapp` and adds trees over the statistics of
`nextapp.predictor` as they stood at that moment, what the crowd says, and log P of `PPM`. It learns
from the later launches of the history and goes on seeing launches through the test part, but its
trees stay. Needs ``pip install 'nextapp[ranker]'``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nextapp.data.log import LaunchLog
from nextapp.predictor import DEFAULT, SESSION_GAP
from nextapp.predictors.nextapp import crowd_cells, launch_streams
from nextapp.predictors.pooled import Pooled
from nextapp.predictors.ppm import PPM
from nextapp.predictors.predictor_loop import (
    SEEN,
    CrowdCells,
    Seen,
    Streams,
    answers,
    record_for,
)
from nextapp.predictors.questions import Indices, Questions
from nextapp.wire import Floats

FIRST = 5 / 8
"""Part of each phone's history that only warms up: of a split of .8, .5 to .8 is learnt from."""

N_CANDIDATES = 20  # likeliest by the predictor; the others keep their order behind them
MOST_EXAMPLES = 60_000  # launches that are learnt from
LATE = 0.25  # the last part of what each phone is learnt from says when to stop
MOST_TREES, PATIENCE = 500, 25
SETTINGS = {  # as usual for LightGBM, not tuned
    "objective": "lambdarank",
    "metric": "ndcg",
    "eval_at": [1, 5],
    "learning_rate": 0.05,
    "num_leaves": 15,
    "min_data_in_leaf": 100,
    "feature_fraction": 0.8,
    "deterministic": True,
    "force_row_wise": True,
    "verbose": -1,
}


_SCORE = SEEN.index("score")


class Ranker:
    """LightGBM over the statistics of the predictor, trained on this very log."""

    name = "ranker"
    in_expectation = False

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def fit(self, history: LaunchLog) -> None:
        lightgbm = _lightgbm()
        self.history = history
        self.crowd = Pooled(history)
        streams, starts, cells = _history_streams(history, self.crowd)
        seen, _, _ = _features(streams, starts, cells)
        came = seen.candidates == seen.launched[:, None]
        chosen = np.flatnonzero(came.any(axis=1))
        phone = history.user[streams.asked]
        number = np.arange(len(phone)) - np.searchsorted(phone, phone)
        late = number >= (1.0 - LATE) * np.bincount(phone)[phone]
        if not late[chosen].any() or late[chosen].all():
            raise ValueError(
                "ranker has too little to learn from: too few launches late in the history are of "
                "apps launched before. Give a longer history."
            )
        if len(chosen) > MOST_EXAMPLES:
            rng = np.random.default_rng(self.seed)
            chosen = np.sort(rng.choice(chosen, MOST_EXAMPLES, replace=False))
        parts = []
        for rows in (chosen[~late[chosen]], chosen[late[chosen]]):
            kept = seen.candidates[rows] >= 0
            features = seen.features[rows][kept]
            parts.append(
                lightgbm.Dataset(
                    features,
                    came[rows][kept].astype(np.int8),
                    group=kept.sum(axis=1),
                    init_score=features[:, _SCORE].astype(np.float64),
                    free_raw_data=False,
                )
            )
        self.model = lightgbm.train(
            SETTINGS | {"seed": self.seed % (1 << 31)}, parts[0], MOST_TREES,
            valid_sets=[parts[1]], callbacks=[lightgbm.early_stopping(PATIENCE, verbose=False)],
        )  # fmt: skip

    def score(self, questions: Questions) -> Floats:
        starts = questions.candidate_starts
        streams = launch_streams(self.history, questions)
        told = crowd_cells(self.crowd, questions.users, questions.candidates, starts, streams)
        seen, cells, scores = _features(streams, starts, told)
        kept = seen.candidates >= 0
        features = seen.features[kept]
        ranked: Floats = features[:, _SCORE] + self.model.predict(features)
        scores[cells[kept]] = 1.0 + ranked - ranked.min()  # above all others, whose log P is ≤ 0
        return scores


def _lightgbm() -> Any:
    try:
        import lightgbm
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "ranker needs LightGBM: pip install 'nextapp[ranker]'", name="lightgbm"
        ) from error
    return lightgbm


def _history_streams(history: LaunchLog, crowd: Pooled) -> tuple[Streams, Indices, CrowdCells]:
    """Every phone through its history, asked for launches within sessions after `FIRST` of it."""
    owner = history.user.astype(np.int64)
    pairs, place = np.unique(owner * history.n_apps + history.app, return_inverse=True)
    users = np.arange(history.n_users)
    starts = np.searchsorted(pairs, np.arange(history.n_users + 1) * history.n_apps)
    seconds = history.time / 1000.0
    number = np.arange(len(history)) - history.starts[owner]
    asked = number >= np.maximum(1, FIRST * np.diff(history.starts)[owner])
    asked[1:] &= np.diff(seconds) <= SESSION_GAP
    n_cells = np.bincount(owner, asked, minlength=history.n_users) * np.diff(starts)
    streams = Streams(
        starts=history.starts,
        launches=place - starts[owner],
        seconds=seconds,
        asked=asked,
        cell=np.append(0, np.cumsum(n_cells)[:-1]).astype(np.intp),
    )
    return streams, starts, crowd_cells(crowd, users, pairs % history.n_apps, starts)


def _features(streams: Streams, starts: Indices, told: CrowdCells) -> tuple[Seen, Indices, Floats]:
    """What is seen of the likeliest candidates, their cells, and log P by cell."""
    phone = np.repeat(np.arange(len(starts) - 1), np.diff(streams.starts))[streams.asked]
    width = np.diff(starts)[phone]
    number = np.arange(len(phone)) - np.searchsorted(phone, phone)
    seen = record_for(len(phone), N_CANDIDATES)
    n_cells = int(width.sum())
    scores, _ = answers(streams, starts, n_cells, DEFAULT, told, seen)
    cells = (streams.cell[phone] + number * width)[:, None] + seen.candidates.astype(np.intp)
    other = PPM().play(streams, starts, n_cells)[np.maximum(cells, 0)]
    features = np.concatenate([seen.features, other[:, :, None].astype(np.float32)], axis=2)
    return seen._replace(features=features), cells, scores
