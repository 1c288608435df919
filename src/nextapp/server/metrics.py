"""Counts, gauges and histograms in the text format of Prometheus. One thread writes and reads."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Counter:
    """A count for each value of a label, or for each values of several."""

    def __init__(
        self, name: str, labels: str | tuple[str, ...], words: str, values: Sequence[str] = ()
    ) -> None:
        self.name, self.words = name, words
        self.labels = (labels,) if isinstance(labels, str) else labels
        self.counts: dict[tuple[str, ...], int] = {(value,): 0 for value in values}

    def add(self, *values: str, n: int = 1) -> None:
        self.counts[values] = self.counts.get(values, 0) + n

    kind = "counter"

    def samples(self) -> list[str]:
        return [
            f"{self.name}{_labels(zip(self.labels, values, strict=True))} {count}"
            for values, count in self.counts.items()
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

    kind = "histogram"

    def samples(self) -> list[str]:
        lines, below = [], 0
        for bound, count in zip((*self.bounds, "+Inf"), self.counts, strict=True):
            below += count
            labels = _labels([("le", str(bound))])
            lines.append(f"{self.name}_bucket{labels} {below}")
        return [*lines, f"{self.name}_sum {self.total!r}", f"{self.name}_count {below}"]


@dataclass(frozen=True)
class Gauge:
    """A value that is read off at this moment; a ``counter`` if it can only grow."""

    name: str
    value: float
    words: str
    kind: str = "gauge"

    def samples(self) -> list[str]:
        return [f"{self.name} {self.value!r}"]


Metric = Counter | Histogram | Gauge


def exposition(metrics: Iterable[Metric]) -> list[str]:
    """The lines of all metrics."""
    lines = []
    for each in metrics:
        lines += [f"# HELP {each.name} {each.words}", f"# TYPE {each.name} {each.kind}"]
        lines += each.samples()
    return lines


def _labels(pairs: Iterable[tuple[str, str]]) -> str:
    named = ",".join(f'{label}="{value}"' for label, value in pairs)
    return f"{{{named}}}" if named else ""
