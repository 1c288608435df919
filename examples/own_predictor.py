"""A predictor of one's own, measured beside the others.

python examples/own_predictor.py synthetic:phones=60,apps=50,days=40
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict

import numpy as np

from nextapp import LaunchLog, evaluate, read_log
from nextapp.predictors import Questions


class RecentOften:
    """Counts of the session so far, then counts of the history."""

    name = "recent-often"
    in_expectation = False

    def fit(self, history: LaunchLog) -> None:
        self.counts: dict[int, Counter[int]] = defaultdict(Counter)
        for user, app in zip(history.user.tolist(), history.app.tolist(), strict=True):
            self.counts[user][app] += 1

    def score(self, questions: Questions) -> np.ndarray:
        scores = []
        for user, session, candidates in questions:  # one prediction at a time
            recent, often = Counter(session.tolist()), self.counts[user]
            total = sum(often.values()) or 1
            scores.append([recent[app] + often[app] / total for app in candidates.tolist()])
        return np.concatenate(scores)


def main() -> None:
    log = read_log(sys.argv[1] if len(sys.argv) > 1 else "synthetic:lsapp,phones=60")
    result = evaluate(log, [RecentOften(), "mru", "mfu", "sr-od"]).summary()
    for name, figures in result["models"].items():
        print(f"{name:13} HR@1 {figures['HR@1']:.3f}  HR@5 {figures['HR@5']:.3f}")


if __name__ == "__main__":
    main()
