"""The compiled evaluation against one written plainly, with lists and dictionaries, from
PAPER.md alone.

It shares no code with the package but the log itself: it collapses, splits, cuts sessions,
scores the rivals, ranks and averages on its own.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from itertools import pairwise

import numpy as np
import pytest

from nextapp.data.cutting import Split, session_starts
from nextapp.data.log import LaunchLog
from nextapp.evaluation import evaluate, exam, find_preset
from nextapp.predictors import MFU, MRU, SR, Random, SROnDevice, SROnDeviceByS

GAP = 15 * 60_000


def random_log(rng, n_users=6, n_apps=7, n=260) -> LaunchLog:
    user = rng.integers(0, n_users, n)
    app = np.minimum(rng.geometric(0.35, n) - 1 + (user % 3), n_apps - 1)
    gaps = rng.choice([500, 2000, 3000, 60_000, 1_200_000], n)
    return LaunchLog.from_columns(
        user,
        app,
        np.cumsum(gaps),
        [f"u{k}" for k in range(n_users)],
        [f"a{k}" for k in range(n_apps)],
    )


def sessions_of(events):
    found = []
    for event in events:
        if not found or event[1] - found[-1][-1][1] > GAP:
            found.append([])
        found[-1].append(event)
    return found


def plainly(log, fraction, preset, model):
    """{user: [metric]} by PAPER.md, R9 to R18."""
    events = defaultdict(list)
    previous = None
    for user, app, time in zip(log.user, log.app, log.time, strict=True):
        row = (int(user), int(app), int(time))
        limit = 3001 if preset == "authors" else 3000
        repeat = previous is not None and previous[:2] == row[:2] and row[2] - previous[2] < limit
        if not repeat or preset == "neural":
            events[row[0]].append(row[1:])
        previous = row
    train = {u: rows[: math.floor(fraction * len(rows) + 1e-9)] for u, rows in events.items()}
    test = {u: rows[len(train[u]) :] for u, rows in events.items()}
    counts = {u: Counter(a for a, _ in rows) for u, rows in train.items()}
    own = {u: Counter((x[0], y[0]) for x, y in pairwise(rows)) for u, rows in train.items() if rows}
    pooled = sum(own.values(), Counter())
    seen_apps = {a for c in counts.values() for a in c}

    result, n_predictions = {}, {}
    for user, rows in test.items():
        by_session = []
        for whole_session in [rows] if preset == "neural" else sessions_of(rows):
            session = whole_session
            if preset == "authors":
                session = [e for e in session if e[0] in seen_apps and train[user]]
            if len(session) < 2:
                continue
            values = []
            for k in range(1, len(session)):
                prefix, (target, when) = [a for a, _ in session[:k]], session[k]
                if preset == "authors":
                    candidates = set(counts[user]) | {target}
                elif preset == "paper":
                    candidates = {a for a, _ in events[user]}
                elif preset == "neural":
                    candidates = set(range(log.n_apps))
                else:
                    candidates = {a for a, t in events[user] if (t, a) < (when, -1)}
                if model == "mru":
                    score = {
                        a: max((i + 1 for i, x in enumerate(prefix) if x == a), default=0)
                        for a in candidates
                    }
                elif model == "mfu":
                    score = {a: counts[user][a] for a in candidates}
                elif model == "sr":
                    score = {a: pooled[(prefix[-1], a)] for a in candidates}
                elif model == "sr-od":
                    score = {a: own.get(user, Counter())[(prefix[-1], a)] for a in candidates}
                elif model == "sr-od-su":  # the share of all transitions into the app
                    rules = own.get(user, Counter())
                    into = Counter()
                    for (_, app), n in rules.items():
                        into[app] += n
                    score = {
                        a: rules[(prefix[-1], a)] / into[a] if into[a] else 0 for a in candidates
                    }
                else:
                    score = dict.fromkeys(candidates, 0)
                if target not in candidates:
                    values.append([0.0] * 9)
                    continue
                better = sum(s > score[target] for s in score.values())
                level = sum(s == score[target] for s in score.values())
                if preset == "authors" and model != "random":
                    places = [better + level]
                else:
                    places = list(range(better + 1, better + level + 1))
                row = []
                for weight in (lambda r: 1.0, lambda r: 1 / r, lambda r: 1 / math.log2(r + 1)):
                    for n in (1, 3, 5):
                        row.append(sum(weight(r) for r in places if r <= n) / len(places))
                values.append(row)
            by_session.append(values)
        if by_session:
            if preset == "authors":
                result[user] = np.mean([v for s in by_session for v in s], axis=0)
            elif preset == "neural":
                result[user] = np.sum(by_session[0], axis=0)
                n_predictions[user] = len(by_session[0])
            else:
                result[user] = np.mean([np.mean(s, axis=0) for s in by_session], axis=0)
    if preset == "neural":  # their mean is that of all predictions
        total = sum(n_predictions.values())
        result = {user: row * len(result) / total for user, row in result.items()}
    return result


@pytest.mark.parametrize("preset", ["authors", "paper", "honest", "neural"])
@pytest.mark.parametrize("model", [Random, MRU, MFU, SR, SROnDevice, SROnDeviceByS])
@pytest.mark.usefixtures("form")
def test_every_figure_of_every_user(seed, preset, model):
    for number in range(6):
        log = random_log(np.random.default_rng([seed, number]))
        test = exam(log, Split.parse("fraction:0.6,0,0.4"), find_preset(preset))
        predictor = model()
        result = evaluate(test, [predictor], seed=0)
        expected = plainly(log, 0.6, preset, predictor.name)
        assert result.exam.users.tolist() == sorted(expected)
        np.testing.assert_allclose(
            result.marks[0].by_user, [expected[u] for u in sorted(expected)], atol=1e-12
        )


def test_the_logs_of_these_tests_have_every_case(seed):
    """Repeats at exactly 3 s, targets unknown to the history, sessions of one launch."""
    repeats = strangers = lonely = 0
    for number in range(6):
        log = random_log(np.random.default_rng([seed, number]))
        same = (log.user[1:] == log.user[:-1]) & (log.app[1:] == log.app[:-1])
        repeats += (np.diff(log.time)[same] == 3000).sum()
        test = exam(log, Split.parse("fraction:0.6,0,0.4"), find_preset("authors"))
        strangers += (test.seen_from > 0).sum()
        lonely += (np.diff(session_starts(log)) == 1).sum()
    assert min(repeats, strangers, lonely) > 0
