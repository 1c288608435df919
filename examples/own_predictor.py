"""A predictor of one's own, measured beside the others.

python examples/own_predictor.py synthetic:phones=60,apps=50,days=40
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict

import numpy as np

from nextapp import LaunchLog, Split, evaluate, exam, find_preset, read_log
from nextapp.predictors import MFU, MRU, Questions, SROnDevice


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
    log = read_log(sys.argv[1] if len(sys.argv) > 1 else "synthetic:lsapp,phones=60", seed=0)
    test = exam(log, Split.parse("fraction:0.8,0,0.2"), find_preset("honest"))
    result = evaluate(test, [RecentOften(), MRU(), MFU(), SROnDevice()], seed=0).summary()
    for name, figures in result["models"].items():
        print(f"{name:13} HR@1 {figures['HR@1']:.3f}  HR@5 {figures['HR@5']:.3f}")


if __name__ == "__main__":
    main()
