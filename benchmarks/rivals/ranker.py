"""`Ranker`: a gradient-boosted ranker trained on the log itself; a measure of head-room.

    nextapp evaluate LOG --models nextapp,benchmarks/rivals/ranker.py:Ranker

What one would do with a log and no phone: LightGBM's LambdaRank over the likeliest candidates of
each launch. It starts from log P of `nextapp` and adds trees over the statistics of
`nextapp.predictor` as they stood at that moment, what the crowd says, and log P of `PPM`. It learns
from the later launches of the history, with the one of `TRIALS` random settings that ranks the last
of them best. It continues to see launches through the test part; the trees of `Ranker` stay, and
`RankerOnline` adds trees after every quarter of it. Needs ``pip install lightgbm``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nextapp import predictor
from nextapp.compiled import compiled, usable_in_loops
from nextapp.data.log import Indices, LaunchLog
from nextapp.predictor import DEFAULT, SESSION_GAP, State, View
from nextapp.predictors import Questions, Streams, launch_streams
from nextapp.predictors.nextapp import crowd_cells
from nextapp.predictors.pooled import Pooled
from nextapp.predictors.predictor_loop import CrowdCells
from nextapp.predictors.rivals import PPM, match_partially
from nextapp.wire import Floats

usable_in_loops(*predictor.FUNCTIONS)

Settings = dict[str, Any]

_MAX_APPS, _SESSION_GAP = predictor.MAX_APPS, predictor.SESSION_GAP
_LEAST_CHANCE = predictor.LEAST_CHANCE
_new_state, _look, _answer = predictor.new_state, predictor.look, predictor.answer
_observe, _forget = predictor.observe, predictor.forget
_crowd_evidence = predictor.crowd_evidence

FIRST = 5 / 8
"""Part of each phone's history that only warms up: of a split of .8, .5 to .8 is learnt from."""

N_CANDIDATES = 20  # likeliest by the predictor; the others keep their order behind them
MOST_EXAMPLES = 60_000  # launches that are learnt from
LATE = 0.25  # the last part of what each phone is learnt from says when to stop
MOST_TREES, PATIENCE = 500, 25
TRIALS, TRIAL_EXAMPLES = 6, 15_000  # as many as of the neural rival
QUARTERS, MORE_TREES = 4, 25
_SEARCHED = {
    "learning_rate": (0.02, 0.05, 0.1), "num_leaves": (7, 15, 31, 63),
    "min_data_in_leaf": (30, 100, 300), "feature_fraction": (0.5, 0.8, 1.0),
}  # fmt: skip
SETTINGS = {  # as usual for LightGBM; the first trial
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


class Seen(NamedTuple):
    """What was seen of the likeliest candidates of every launch asked for, likeliest first.

    ``features`` (n_asked, n, len(SEEN)), ``candidates``
    (n_asked, n) are places among the k of the phone, -1 where there are fewer, and ``launched``
    (n_asked,) is the place of the app that came.
    """

    features: npt.NDArray[np.float32]
    candidates: npt.NDArray[np.int32]
    launched: npt.NDArray[np.int32]


SEEN = (
    *predictor.STATISTICS, "score", "share of the crowd", "launches of the crowd",
    "launches after the last app", "launches after the last two", "place", "age", "time of day",
    "apps", "set of weights",
)  # fmt: skip
_N_STATISTICS = predictor.N_STATISTICS
_AT_HOUR, _FIRST_HOUR = predictor.AT_HOUR, predictor.FIRST_HOUR
_SCORE = SEEN.index("score")


class Ranker:
    """LightGBM over the statistics of the predictor, trained on this very log."""

    name = "ranker"
    in_expectation = False

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def fit(self, history: LaunchLog) -> None:
        _lightgbm()
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
        rng = np.random.default_rng(self.seed)
        if len(chosen) > MOST_EXAMPLES:
            chosen = np.sort(rng.choice(chosen, MOST_EXAMPLES, replace=False))
        parts = chosen[~late[chosen]], chosen[late[chosen]]
        thinned = [np.sort(rng.permutation(rows)[:TRIAL_EXAMPLES]) for rows in parts]
        trials = [SETTINGS] + [
            SETTINGS | {name: rng.choice(values).item() for name, values in _SEARCHED.items()}
            for _ in range(TRIALS - 1)
        ]
        trained = [self._trained(settings, seen, thinned) for settings in trials]
        best = max(range(TRIALS), key=lambda each: trained[each].best_score["valid_0"]["ndcg@5"])
        self.settings = trials[best]
        self.model = self._trained(self.settings, seen, parts)

    def _trained(self, settings: Settings, seen: Seen, parts: Sequence[Indices]) -> Any:
        lightgbm = _lightgbm()
        early, late = (_examples(seen, rows) for rows in parts)
        return lightgbm.train(
            settings | {"seed": self.seed % (1 << 31)}, early, MOST_TREES,
            valid_sets=[late], callbacks=[lightgbm.early_stopping(PATIENCE, verbose=False)],
        )  # fmt: skip

    def score(self, questions: Questions) -> Floats:
        starts = questions.candidate_starts
        streams = launch_streams(self.history, questions)
        support = crowd_cells(self.crowd, questions.users, questions.candidates, starts, streams)
        seen, cells, scores = _features(streams, starts, support)
        kept = seen.candidates >= 0
        ranked = self.ranked(seen, np.repeat(np.arange(len(starts) - 1), _n_asked(streams)))
        scores[cells[kept]] = 1.0 + ranked - ranked.min()  # above all others, whose log P is ≤ 0
        return scores

    def ranked(self, seen: Seen, phone: Indices) -> Floats:
        """The score of each candidate that is kept."""
        del phone
        features = seen.features[seen.candidates >= 0]
        return np.asarray(features[:, _SCORE] + self.model.predict(features))


class RankerOnline(Ranker):
    """Adds trees after each quarter of what is asked, learnt from the launches of that quarter."""

    name = "ranker-online"

    def ranked(self, seen: Seen, phone: Indices) -> Floats:
        kept = seen.candidates >= 0
        number = np.arange(len(phone)) - np.searchsorted(phone, phone)
        quarter = QUARTERS * number // np.bincount(phone)[phone]
        came = (seen.candidates == seen.launched[:, None]).any(axis=1)
        found, models = np.zeros(kept.shape), [self.model]
        for now in range(QUARTERS):
            rows = np.flatnonzero(quarter == now)
            features = seen.features[rows][kept[rows]]
            of_rows = features[:, _SCORE] + sum(model.predict(features) for model in models)
            found[rows] = _placed(kept[rows], of_rows)
            learnt = rows[came[rows]]
            if now + 1 < QUARTERS and len(learnt) > 0:
                start = found[learnt][kept[learnt]]
                examples = _examples(seen, learnt, start)
                models.append(_lightgbm().train(self.settings, examples, MORE_TREES))
        return np.asarray(found[kept])


def _placed(kept: npt.NDArray[np.bool_], values: Floats) -> Floats:
    """Values of the candidates that are kept, at their places."""
    found = np.zeros(kept.shape)
    found[kept] = values
    return found


def _n_asked(streams: Streams) -> Indices:
    """How many launches of each phone are asked for."""
    before = np.append(0, np.cumsum(streams.asked))
    return np.diff(before[streams.starts])


def _examples(seen: Seen, rows: Indices, start: Floats | None = None) -> Any:
    """A data set of LightGBM, which starts from the scores of the predictor or those given."""
    kept = seen.candidates[rows] >= 0
    features = seen.features[rows][kept]
    came = seen.candidates[rows] == seen.launched[rows, None]
    return _lightgbm().Dataset(
        features,
        came[kept].astype(np.int8),
        group=kept.sum(axis=1),
        init_score=features[:, _SCORE].astype(np.float64) if start is None else start,
        free_raw_data=False,
    )


def _lightgbm() -> Any:
    try:
        import lightgbm
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "ranker needs LightGBM: pip install lightgbm", name="lightgbm"
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
        timed=~asked,
    )
    return streams, starts, crowd_cells(crowd, users, pairs % history.n_apps, starts)


def _features(
    streams: Streams, starts: Indices, support: CrowdCells
) -> tuple[Seen, Indices, Floats]:
    """What is seen of the likeliest candidates, their cells, and log P by cell."""
    phone = np.repeat(np.arange(len(starts) - 1), np.diff(streams.starts))[streams.asked]
    width = np.diff(starts)[phone]
    number = np.arange(len(phone)) - np.searchsorted(phone, phone)
    seen = Seen(
        np.zeros((len(phone), N_CANDIDATES, len(SEEN)), np.float32),
        np.full((len(phone), N_CANDIDATES), -1, np.int32),
        np.zeros(len(phone), np.int32),
    )
    scores, by_ppm = np.empty((2, int(width.sum())))
    gate = np.array(DEFAULT.gate)
    _record(streams, starts, DEFAULT.start, gate, DEFAULT.rates, support, scores, seen)
    cells = (streams.cell[phone] + number * width)[:, None] + seen.candidates.astype(np.intp)
    match_partially(streams, starts, PPM.fades, PPM.escapes, by_ppm)
    other = np.log(by_ppm)[np.maximum(cells, 0)]
    features = np.concatenate([seen.features, other[:, :, None].astype(np.float32)], axis=2)
    return seen._replace(features=features), cells, scores


@compiled
def _note(
    seen: Seen,
    number: int,
    state: State,
    view: View,
    slots: Indices,
    scores: Floats,
    share: Floats,
    support: float,
) -> None:
    best = np.argsort(-scores)[: seen.candidates.shape[1]]
    for at in range(len(best)):
        i, slot = best[at], slots[best[at]]
        seen.candidates[number, at] = i
        features = seen.features[number, at]
        features[:_N_STATISTICS] = np.nan
        features[_N_STATISTICS:] = np.array([
            scores[i], 0.0, support, view.seen, view.seen_pair, -1.0, -1.0,
            float(view.rows[_AT_HOUR] - _FIRST_HOUR), float(state.known[0]), float(view.number),
        ])  # fmt: skip
        if len(share) > 0:
            features[_N_STATISTICS + 1] = share[i]
        if slot >= 0:
            features[:_N_STATISTICS] = view.features[:, slot]
            features[_N_STATISTICS + 5] = state.place[slot]
            features[_N_STATISTICS + 6] = view.ages[slot]


@compiled
def _record(
    streams: Streams,
    candidate_starts: Indices,
    start: Floats,
    gate: Floats,
    rates: Floats,
    crowd: CrowdCells,
    scores: Floats,
    seen: Seen,
) -> None:
    """The scores of `NextApp` by cell; the same loop, which also writes to `seen`."""
    nothing: Floats = np.zeros(0)
    number = 0  # of the launch asked for
    first_pair = 0  # cell of `pair_share` with which those of a phone begin
    for v in range(len(candidate_starts) - 1):
        k = candidate_starts[v + 1] - candidate_starts[v]
        room = min(k, _MAX_APPS)
        state = _new_state(room, start, gate, rates)
        slots, apps = np.full(k, -1), np.zeros(room, np.int64)
        share, own_share, support, evidence = nothing, nothing, 0.0, nothing
        last = -1
        cell = streams.cell[v]
        for row in range(streams.starts[v], streams.starts[v + 1]):
            app, when = streams.launches[row], streams.seconds[row]
            clock = state.clock[0]
            asked = streams.asked[row]
            timed = streams.timed[row]
            view = _look(state, when if timed else clock)
            if len(share) > 0:
                evidence = _crowd_evidence(view, support)
            if asked:
                chances = _answer(state, view, slots, share, evidence)
                scores[cell : cell + k] = np.log(np.maximum(chances, _LEAST_CHANCE))
                seen.launched[number] = app
                _note(seen, number, state, view, slots, scores[cell : cell + k], share, support)
                number += 1
                cell += k
                if not timed and when - clock > _SESSION_GAP:
                    view = _look(state, when)
            slot, new = slots[app], slots[app] < 0
            if new:
                slot = state.known[0]
                if slot == room:
                    slot = int(np.argmax(state.place))
                    slots[apps[slot]] = -1
                    _forget(state, slot)
                slots[app], apps[slot] = slot, app
            _observe(state, view, slot, when, new, own_share, evidence)
            if len(crowd.share) > 0:
                first = crowd.share_starts[v] + app * k
                share, support = crowd.share[first : first + k], 0.0
                if last >= 0:
                    pair = crowd.pair_of[crowd.share_starts[v] + last * k + app]
                    if pair >= 0:
                        share = crowd.pair_share[
                            first_pair + pair * k : first_pair + (pair + 1) * k
                        ]
                        support = crowd.support[crowd.pair_starts[v] + pair]
                own_share = share[apps[: state.known[0]]]
            last = app
        if len(crowd.share) > 0:
            first_pair += (crowd.pair_starts[v + 1] - crowd.pair_starts[v]) * k
