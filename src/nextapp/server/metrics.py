"""Counts, gauges and histograms in the text format of Prometheus. One thread writes and reads."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Counter:
    """A count for each value of one label."""

    def __init__(self, name: str, label: str, words: str, values: Sequence[str] = ()) -> None:
        self.name, self.label, self.words = name, label, words
        self.counts = dict.fromkeys(values, 0)

    def add(self, value: str, n: int = 1) -> None:
        self.counts[value] = self.counts.get(value, 0) + n

    def lines(self) -> list[str]:
        return [
            f"# HELP {self.name} {self.words}",
            f"# TYPE {self.name} counter",
            *(
                f'{self.name}{{{self.label}="{value}"}} {count}'
                for value, count in self.counts.items()
            ),
        ]


class Histogram:
    """How often values fell at or below each of some bounds."""

    def __init__(self, name: str, words: str, bounds: Sequence[float] = SECONDS) -> None:
        self.name, self.words, self.bounds = name, words, tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self) -> list[str]:
        lines = [f"# HELP {self.name} {self.words}", f"# TYPE {self.name} histogram"]
        below = 0
        for bound, count in zip((*self.bounds, "+Inf"), self.counts, strict=True):
            below += count
            lines.append(f'{self.name}_bucket{{le="{bound}"}} {below}')
        return [*lines, f"{self.name}_sum {self.total!r}", f"{self.name}_count {below}"]


def gauges(values: Mapping[str, tuple[float, str]]) -> list[str]:
    """Lines for values that are read off at this moment, by name: (value, words)."""
    return [
        line
        for name, (value, words) in values.items()
        for line in (f"# HELP {name} {words}", f"# TYPE {name} gauge", f"{name} {value!r}")
    ]
