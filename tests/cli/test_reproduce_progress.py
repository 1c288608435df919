"""The progress line of `nextapp reproduce`: shares and estimates worked out by hand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from nextapp.cli.reproduce import _OneLine


def line(jobs=2, **seconds):
    made = _OneLine([SimpleNamespace(name=n, seconds=s) for n, s in seconds.items()], jobs)
    made.start = 0.0
    made.bar = SimpleNamespace(update=lambda *words, **values: None)
    made.task = None
    return made


def test_nothing_done_is_the_sum_over_the_jobs_or_the_longest():
    assert line(a=600.0, b=600.0).estimate(0.0) == (0.0, "about 10 min left")
    assert line(a=1200.0, b=60.0).estimate(0.0) == (0.0, "about 20 min left")


def test_a_slow_machine_shows_in_what_is_done():
    """100 s of work by two jobs took 300 s: six times as slow, so 300 s more take 30 minutes."""
    progress = line(a=100.0, b=300.0)
    progress.played, progress.todo = {"a"}, {"b"}
    share, left = progress.estimate(300.0)
    assert (share, left) == (pytest.approx(0.25), "about 30 min left")  # b runs alone


def test_the_bar_moves_with_time_but_never_says_done_too_early():
    progress = line(jobs=1, a=100.0)
    progress.began["a"] = 0.0
    assert progress.estimate(50.0)[0] == pytest.approx(0.5)
    assert progress.estimate(5_000.0)[0] == pytest.approx(0.95)
    progress.todo = set()
    progress.played = {"a"}
    assert progress.estimate(5_000.0) == (1.0, "done")


def test_what_was_finished_before_says_nothing_of_the_speed():
    progress = line(jobs=1, a=100.0, b=60.0)
    progress.hear("a", "finished before", 1, 1)
    assert progress.estimate(0.0) == (pytest.approx(100 / 160), "about 1 min left")
