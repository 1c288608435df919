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
from nextapp.predictors.rivals import MFU, MRU, SR, Random, SROnDevice, SROnDeviceByS

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
    """{table: {user: [metric]}} by PAPER.md, R9 to R18; what the tables are, see metrics.TABLES."""
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

    result = {"all": {}, "different": {}, "openings": {}}
    n_predictions = {table: {} for table in result}
    for user, rows in test.items():
        by_session = {table: [] for table in result}
        for whole_session in [rows] if preset == "neural" else sessions_of(rows):
            session = whole_session
            if preset == "authors":
                session = [e for e in session if e[0] in seen_apps and train[user]]
            values = {table: [] for table in result}
            for k in range(len(session)):
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
                elif not prefix:  # rules need a launch before
                    score = dict.fromkeys(candidates, 0)
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
                if k == 0:
                    earlier = [t for _, t in events[user] if t < when]
                    tables = ["openings"] if not earlier or when - earlier[-1] > GAP else []
                else:
                    tables = ["all"] if target == prefix[-1] else ["all", "different"]
                for table in tables:
                    if table == "different":
                        score = {a: s for a, s in score.items() if a != prefix[-1]}
                    if target not in score:
                        values[table].append([0.0] * 9)
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
                    values[table].append(row)
            for table, rows_of in values.items():
                if rows_of:
                    by_session[table].append(rows_of)
        for table, sessions in by_session.items() if by_session["all"] else ():
            if not sessions:
                continue
            if preset == "authors":
                result[table][user] = np.mean([v for s in sessions for v in s], axis=0)
            elif preset == "neural":
                result[table][user] = np.sum(sessions[0], axis=0)
                n_predictions[table][user] = len(sessions[0])
            else:
                result[table][user] = np.mean([np.mean(s, axis=0) for s in sessions], axis=0)
    if preset == "neural":  # their mean is that of all predictions
        for table, found in result.items():
            total = sum(n_predictions[table].values())
            result[table] = {user: row * len(found) / total for user, row in found.items()}
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
        users = sorted(expected["all"])
        assert result.exam.users.tolist() == users
        nothing = np.full(9, np.nan)
        for table, by_user in expected.items():
            rows = [by_user.get(user, nothing) for user in users]
            np.testing.assert_allclose(result.marks[0].tables[table], rows, atol=1e-12)


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
