"""The dynamic environment against phones one by one, in plain Python loops."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from all_reports import apply_reports
from nextapp import model
from nextapp.data.cutting import Cycling
from nextapp.data.log import LaunchLog
from nextapp.evaluation import METRICS, find_preset
from nextapp.evaluation.dynamic_environment import (
    FROZEN,
    ZERO,
    Courses,
    CycleStream,
    FederatedSeqMF,
    Refitted,
    run_cycles,
    start_vectors,
)
from nextapp.evaluation.seqmf import SeqMF
from nextapp.learners import SeqMFLearner, adam, sgd
from nextapp.phone.core import PhoneCore
from nextapp.predictors.rivals import SROnDevice
from nextapp.predictors.training import Training
from nextapp.privacy import mechanism
from nextapp.randomness import KeyedBits
from nextapp.wire import ModelSettings
from slow_seqmf import gradient_with

MINUTE = 60_000
GAP = 15 * MINUTE
TRAINING = Training(ModelSettings(lam=0.2, alpha=0.01, gamma=0.7), dim=3, scale=0.4, rounds=2)
Q_EVERY = 2


def trained(log: LaunchLog, training: Training, seed: int) -> np.ndarray:
    model = SeqMF(training, seed)
    model.fit(log)
    return model.app_vectors


def random_log(rng, n_users=5, n_apps=7) -> LaunchLog:
    """Users who join late, leave early, and come to know new apps."""
    rows = []
    for user in range(n_users):
        now = int(rng.integers(0, 400 * MINUTE))
        for step in range(rng.integers(30, 70)):
            now += int(rng.choice([1_000, 20_000, MINUTE, 40 * MINUTE], p=[0.1, 0.4, 0.3, 0.2]))
            newest = min(n_apps, 3 + step // 12)
            rows.append((user, (user + int(rng.geometric(0.4))) % newest, now))
    user, app, time = zip(*rows, strict=True)
    return LaunchLog.from_columns(
        user, app, time, [f"u{k}" for k in range(n_users)], [f"a{k}" for k in range(n_apps)]
    )


def stream_of(log: LaunchLog, preset: str, n: int = 6) -> CycleStream:
    chosen = find_preset(preset)
    return CycleStream(
        Cycling.parse(f"users:{n}").cut(chosen.collapse_repeats(log)),
        chosen,
    )


def marks(stream, cycle, scored):
    """{user: metrics} of a cycle; scored(user, prefix) gives the scores of all apps."""
    whole, preset = stream.cycles.whole, stream.preset.name
    rows = list(
        zip(
            whole.user.tolist(), whole.app.tolist(), whole.time.tolist(),
            stream.cycles.cycle.tolist(), strict=True,
        )
    )  # fmt: skip
    before = [row for row in rows if row[3] < cycle]
    seen_apps = {app for _, app, _, _ in before}
    found = {}
    for user in sorted({row[0] for row in rows if row[3] == cycle}):
        own = [row for row in rows if row[0] == user]
        known = {app for _, app, _, c in own if c < cycle}
        sessions = []
        for place, row in enumerate(own):
            if row[3] != cycle:
                continue
            if not sessions or row[2] - own[place - 1][2] > GAP:
                sessions.append([])
            sessions[-1].append((place, row[1]))
        by_session = []
        for whole_session in sessions:
            session = whole_session
            if preset == "authors":
                session = [each for each in session if each[1] in seen_apps and known]
            values = []
            for k in range(1, len(session)):
                place, target = session[k]
                if preset == "authors":
                    candidates = known | {target}
                elif preset == "paper":
                    candidates = {app for _, app, _, _ in own}
                else:
                    candidates = {app for _, app, _, _ in own[:place]}
                if target not in candidates:
                    values.append([0.0] * 9)
                    continue
                scores = scored(user, [app for _, app in session[:k]])
                better = sum(scores[a] > scores[target] + 1e-12 for a in candidates)
                level = sum(abs(scores[a] - scores[target]) <= 1e-12 for a in candidates)
                places = (
                    [better + level]
                    if preset == "authors"
                    else range(better + 1, better + level + 1)
                )
                values.append(
                    [
                        sum(weight(r) for r in places if r <= n) / len(places)
                        for weight in (lambda r: 1, lambda r: 1 / r, lambda r: 1 / math.log2(r + 1))
                        for n in (1, 3, 5)
                    ]
                )
            if values:
                by_session.append(values)
        if by_session:
            found[user] = (
                np.mean([v for s in by_session for v in s], axis=0)
                if preset == "authors"
                else np.mean([np.mean(s, axis=0) for s in by_session], axis=0)
            )
    return found


def one_by_one(stream, regime, source, start, app_vectors, optimiser, seed):
    """Phones that observe, solve and report by themselves; (n_cycles, n_users, 9)."""
    whole, cycle = stream.cycles.whole, stream.cycles.cycle
    devices = [PhoneCore() for _ in range(whole.n_users)]
    solved = list(start)  # the user vectors as of when they were solved last
    plain = mechanism("identity", n_apps=whole.n_apps, d=3)
    asked = plain if isinstance(source, str) else source
    server = SeqMFLearner(app_vectors, TRAINING.model, optimiser, asked)
    n_cycles = len(stream.cycles)
    found = np.full((n_cycles - 1, whole.n_users, 9), np.nan)
    reports = np.zeros(whole.n_users, int)
    waiting = set()
    for now in range(n_cycles):
        if now > 0:
            vectors = server.broadcast.app_vectors

            def scored(user, prefix, vectors=vectors):
                return model.light_scores(vectors, solved[user], prefix)

            for user, values in marks(stream, now, scored).items():
                found[now - 1, user] = values
        for row in np.flatnonzero(cycle == now):
            devices[whole.user[row]].observe(int(whole.app[row]), whole.time[row] / 1000)
            if now > 0:
                waiting.add(int(whole.user[row]))
        if now == 0:
            continue
        due = now % Q_EVERY == 0 and now < n_cycles - 1
        broadcast = server.broadcast
        if due and source == ZERO:
            server.apply_sum(np.zeros_like(app_vectors))
        elif due and source != FROZEN:
            sent = []
            for user in sorted(waiting):
                devices[user].take(broadcast)
                if regime != "global":
                    solved[user] = devices[user].user_vector
                bits = KeyedBits(seed, user, broadcast.round, "report")
                gradient = gradient_with(devices[user].history, broadcast, solved[user])
                sent.append(source.encode(gradient, bits, broadcast.round))
                reports[user] += 1
            apply_reports(server, sent)
        if due:
            waiting.clear()
        if regime == "full" or (regime == "rare" and due):
            for user, device in enumerate(devices):
                if len(device.history):
                    device.take(server.broadcast)
                    solved[user] = device.user_vector
    return found, server.broadcast.app_vectors, reports


@pytest.mark.parametrize("preset", ["authors", "paper", "honest"])
@pytest.mark.parametrize(
    ("regime", "source"),
    [
        ("full", "identity"), ("rare", "identity"), ("global", "identity"),
        ("full", "harmony"), ("full", "frozen"), ("full", "zero"),
    ],
)  # fmt: skip
def test_a_stream_is_its_phones_one_by_one(seed, preset, regime, source):
    stream = stream_of(random_log(np.random.default_rng([seed, 1])), preset)
    n_users = stream.cycles.whole.n_users
    app_vectors = trained(stream.cycles.before(1), TRAINING, seed)
    start = start_vectors(n_users, TRAINING, seed, "random")
    options = {"harmony": {"epsilon": 2.0, "clip": 0.1, "k": 4}}.get(source, {})
    if source not in (FROZEN, ZERO):
        source = mechanism(source, n_apps=stream.cycles.whole.n_apps, d=3, **options)
    arguments = (regime, source, start, app_vectors, sgd(0.05), seed)
    expected, vectors, reports = one_by_one(stream, *arguments)
    federation = FederatedSeqMF(
        "x", TRAINING, app_vectors, start, regime, Q_EVERY, sgd(0.05), source, seed
    )
    found = run_cycles(stream, [federation], METRICS)[0]
    np.testing.assert_allclose(found, expected, atol=1e-9)
    np.testing.assert_allclose(federation.server.broadcast.app_vectors, vectors, atol=1e-9)
    assert np.array_equal(federation.n_reports, reports)
    assert (vectors != app_vectors).any() == (source != FROZEN)


@pytest.mark.parametrize("preset", ["authors", "paper", "honest"])
def test_sr_od_is_counted_anew_before_each_cycle(seed, preset):
    stream = stream_of(random_log(np.random.default_rng([seed, 2])), preset)
    whole, cycle = stream.cycles.whole, stream.cycles.cycle
    found = run_cycles(stream, [Refitted(SROnDevice())], METRICS)[0]
    for now in stream.predicted_cycles:
        rules = []
        for user in range(whole.n_users):
            history = whole.app[(whole.user == user) & (cycle < now)].tolist()
            rules.append(Counter(pairwise(history)))

        def scored(user, prefix, rules=rules):
            return [rules[user][prefix[-1], app] for app in range(whole.n_apps)]

        expected = marks(stream, now, scored)
        assert set(np.flatnonzero(~np.isnan(found[now - 1, :, 0]))) == set(expected)
        for user, values in expected.items():
            np.testing.assert_allclose(found[now - 1, user], values, atol=1e-12)


def test_the_logs_of_these_tests_have_every_case(seed):
    """Targets unknown to the cycles before, phones that join late, phones that stay away."""
    strangers = late = away = 0
    for number in (1, 2):
        stream = stream_of(random_log(np.random.default_rng([seed, number])), "authors")
        for now in stream.predicted_cycles:
            test = stream.exam(now)
            strangers += (test.seen_from > 0).sum()
            active = stream.end_of(now).active
            away += (~active).sum()
            late += (active & (np.diff(stream.cycles.before(now).starts) == 0)).sum()
    assert min(strangers, late, away) > 0


@pytest.mark.parametrize("preset", ["authors", "honest"])
def test_the_future_changes_nothing(seed, preset):
    """Other launches in the last cycle leave all earlier figures as they were."""
    log = random_log(np.random.default_rng([seed, 3]))
    figures = []
    for change in (False, True):
        stream = stream_of(log, preset)
        whole, cycle = stream.cycles.whole, stream.cycles.cycle
        if change:
            whole.app[cycle == len(stream.cycles) - 1] = 1
        app_vectors = trained(stream.cycles.before(1), TRAINING, seed)
        start = start_vectors(whole.n_users, TRAINING, seed, "random")
        plain = mechanism("identity", n_apps=whole.n_apps, d=3)
        models = [
            FederatedSeqMF(
                "x", TRAINING, app_vectors, start, "full", Q_EVERY, adam(0.1), plain, seed
            ),
            Refitted(SROnDevice()),
            Refitted(SeqMF(TRAINING, seed)),
        ]
        figures.append(run_cycles(stream, models, ["HR@3"]))
    assert np.array_equal(figures[0][:, :-1], figures[1][:, :-1], equal_nan=True)
    assert not np.array_equal(figures[0][:, -1], figures[1][:, -1], equal_nan=True)


def test_models_that_share_their_vectors_are_asked_once_and_answer_alike(seed):
    stream = stream_of(random_log(np.random.default_rng([seed, 5])), "honest")
    app_vectors = trained(stream.cycles.before(1), TRAINING, seed)
    start = start_vectors(stream.cycles.whole.n_users, TRAINING, seed, "zero")
    made = [
        FederatedSeqMF(name, TRAINING, app_vectors, start, "full", Q_EVERY, sgd(0.5), name, seed)
        for name in (FROZEN, ZERO)
    ]
    assert made[0].state() == made[1].state()
    together = run_cycles(stream, made, ["MRR@5"])
    alone = [
        run_cycles(
            stream,
            [
                FederatedSeqMF(
                    name, TRAINING, app_vectors, start, "full", Q_EVERY, sgd(0.5), name, seed
                )
            ],
            ["MRR@5"],
        )[0]
        for name in (FROZEN, ZERO)
    ]
    assert np.array_equal(together, alone, equal_nan=True)
    assert not start.any()


def test_the_noise_of_a_mechanism_is_what_it_reports_of_gradients_of_zero(seed):
    """Without noise nothing but λQ moves Q; harmony draws a sign even where there is nothing."""
    stream = stream_of(random_log(np.random.default_rng([seed, 6])), "honest")
    app_vectors = trained(stream.cycles.before(1), TRAINING, seed)
    start = start_vectors(stream.cycles.whole.n_users, TRAINING, seed, "random")
    n_apps, d = app_vectors.shape
    plain = mechanism("identity", n_apps=n_apps, d=d)
    noisy = mechanism("harmony", n_apps=n_apps, d=d, epsilon=8.0, clip=0.1)

    def learnt(source, *, empty):
        model = FederatedSeqMF(
            "x", TRAINING, app_vectors, start, "full", Q_EVERY, sgd(0.05), source, seed, empty=empty
        )
        run_cycles(stream, [model], ["HR@3"])
        return model.server.broadcast.app_vectors

    zero = learnt(ZERO, empty=False)
    np.testing.assert_allclose(learnt(plain, empty=True), zero, atol=1e-12)
    assert not np.allclose(learnt(plain, empty=False), zero)
    assert not np.allclose(learnt(noisy, empty=True), zero)
    assert not np.array_equal(learnt(noisy, empty=True), learnt(noisy, empty=False))


# --- means and intervals, by hand


def courses(**values) -> Courses:
    """Arrays of (n_seeds, n_cycles, n_users), one metric."""
    return Courses({k: np.array(v, float)[..., None] for k, v in values.items()}, ["HR@5"], 0)


def test_means_are_over_the_users_of_a_cycle_then_over_seeds_and_deltas_add_up():
    nan = math.nan
    found = courses(
        full=[[[1.0, 0.5], [nan, 0.2]], [[0.0, 0.5], [nan, 0.4]]],
        other=[[[0.5, 0.5], [nan, 0.8]]],
    )
    assert found.curve("full", "HR@5").mean.tolist() == pytest.approx([0.5, 0.3])
    delta = found.cumulative_lead("other", "full", "HR@5")
    assert delta.mean.tolist() == pytest.approx([0.0, 0.5])
    assert found.overall("other", "HR@5", "full").mean.tolist() == pytest.approx([0.25])


def test_an_interval_covers_users_and_seeds():
    """Users alike and seeds apart, or the reverse, or neither: where the width comes from."""
    same = courses(x=[[[0.4] * 10]] * 4)
    by_seed = courses(x=[[[0.1] * 10], [[0.3] * 10], [[0.5] * 10], [[0.7] * 10]])
    by_user = courses(x=[[[0.0] * 6 + [1.0] * 4]] * 4)
    for found, wide in ((same, False), (by_seed, True), (by_user, True)):
        curve = found.curve("x", "HR@5")
        assert curve.mean[0] == pytest.approx(0.4)
        assert (curve.high[0] - curve.low[0] > 0.3) == wide
        assert curve.low[0] - 1e-12 <= 0.4 <= curve.high[0] + 1e-12


def test_with_fewer_than_ten_users_intervals_are_over_cycles():
    """Over all 27 samples of three cycles: the lowest and the highest mean have 1/27 > 2.5 %."""
    found = courses(full=[[[0.0], [0.3], [0.6]]], other=[[[0.0], [0.0], [0.0]]])
    overall = found.overall("full", "HR@5")
    assert [float(end[0]) for end in overall] == pytest.approx([0.3, 0.0, 0.6])
    assert np.isnan(found.curve("full", "HR@5").low).all()
    delta = found.cumulative_lead("full", "other", "HR@5")
    assert [float(end[-1]) for end in delta] == pytest.approx([0.9, 0.0, 1.8])
    assert found.intervals == "95 %, paired bootstrap over the cycles of 1 user and seeds"


def test_parts_of_users_have_sizes():
    """Two days of one user, of sizes 1 and 3: the mean and every resample by hand."""
    sums = np.array([1.0, 0.0] * 5)[None, None, :, None]
    found = Courses({"x": sums}, ["HR@5"], 0, np.array([0.5, 1.5] * 5))
    whole = found.overall("x", "HR@5")
    assert whole.mean[0] == pytest.approx(0.5)
    drawn = np.random.default_rng(1).binomial(10, 0.5, 40_000)
    expected = np.quantile(drawn / (0.5 * drawn + 1.5 * (10 - drawn)), [0.025, 0.975])
    assert [whole.low[0], whole.high[0]] == pytest.approx(expected, abs=1e-9)


def test_differences_are_paired():
    """Users far apart from each other, always the same distance from the reference."""
    base = np.linspace(0, 0.8, 30)
    found = courses(full=[[base, base]], other=[[base + 0.1, base + 0.1]])
    delta = found.cumulative_lead("other", "full", "HR@5")
    np.testing.assert_allclose(delta.low, [0.1, 0.2])
    np.testing.assert_allclose(delta.high, [0.1, 0.2])


def test_a_cycle_in_which_nobody_is_asked_has_no_figure():
    found = courses(full=[[[math.nan] * 2, [0.5, 0.7]]])
    curve = found.curve("full", "HR@5")
    assert np.isnan([curve.mean[0], curve.low[0], curve.high[0]]).all()
    assert curve.mean[1] == pytest.approx(0.6)
    assert found.cumulative_lead("full", "full", "HR@5").mean.tolist() == [0.0, 0.0]


def test_one_cycle_is_not_enough():
    with pytest.raises(ValueError, match="two or more cycles"):
        stream_of(random_log(np.random.default_rng(0)), "honest", n=1)
