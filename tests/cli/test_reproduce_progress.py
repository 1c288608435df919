"""The progress line of `nextapp reproduce`: shares and estimates worked out by hand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from nextapp.cli import reproduce
from nextapp.cli.reproduce import _OneLine


def line(jobs=2, **seconds):
    made = _OneLine([SimpleNamespace(name=n, seconds=s) for n, s in seconds.items()], jobs)
    made.bar = SimpleNamespace(update=lambda *words, **values: None)
    made.task = None
    return made


def test_nothing_done_is_the_sum_over_the_jobs_or_the_longest():
    assert line(a=600.0, b=600.0).estimate(0.0) == (0.0, "about 10 min left")
    assert line(a=1200.0, b=60.0).estimate(0.0) == (0.0, "about 20 min left")


def test_a_slow_machine_shows_in_what_is_done():
    """100 s of work took 600 s: six times as slow, so 300 s more take 30 minutes."""
    progress = line(a=100.0, b=300.0)
    progress.took, progress.todo = {"a": 600.0}, {"b"}
    share, left = progress.estimate(600.0)
    assert (share, left) == (pytest.approx(0.25), "about 30 min left")  # b runs alone


def test_what_runs_beside_it_does_not_make_a_finished_part_look_slower():
    """Both took ten times as long as they say; one ends a moment before the other."""
    progress = line(a=60.0, b=60.0, c=240.0)
    progress.began = {"a": 0.0, "b": 0.0}
    progress.took, progress.todo = {"a": 599.0}, {"b", "c"}
    assert progress.estimate(599.0)[1] == "about 40 min left"  # c, at a tenth of the speed


def test_an_overdue_part_tells_of_a_slow_machine_before_any_is_done():
    progress = line(a=60.0, b=60.0, c=240.0)
    progress.began = {"a": 0.0, "b": 0.0}
    assert progress.estimate(30.0)[1] == "about 4 min left"
    assert progress.estimate(300.0)[1] == "about 20 min left"  # five times as slow: c takes that


def test_the_bar_moves_with_time_but_never_says_done_too_early():
    progress = line(jobs=1, a=100.0)
    progress.began["a"] = 0.0
    assert progress.estimate(50.0)[0] == pytest.approx(0.5)
    assert progress.estimate(5_000.0)[0] == pytest.approx(0.95)
    progress.todo = set()
    progress.took = {"a": 5_000.0}
    assert progress.estimate(5_000.0) == (1.0, "done")


def test_a_log_file_hears_of_every_part_and_of_quiet_minutes(monkeypatch):
    """Where no terminal shows the line: parts that begin and end, and one line a minute."""
    clock, said = [0.0], []
    monkeypatch.setattr(reproduce, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(
        reproduce.screen,
        "err",
        SimpleNamespace(is_terminal=False, print=lambda words, **_: said.append(words)),
    )
    progress = line(jobs=1, a=100.0)
    for moment, what, done in ((0, "starting", 0), (10, "cycle", 1), (59, "cycle", 2),
                               (61, "cycle", 3), (70, "cycle", 4), (100, "done", 1)):  # fmt: skip
        clock[0] = float(moment)
        progress.show("a", what, done, 0 if what == "starting" else 9)
    assert said == [
        "a starting; 0%, about 2 min left",
        "a cycle 3/9; 61%, about 1 min left",
        "a done; 100%, done",
    ]


def test_what_was_finished_before_says_nothing_of_the_speed():
    progress = line(jobs=1, a=100.0, b=60.0)
    progress.show("a", "finished before", 1, 1)
    assert progress.estimate(0.0) == (pytest.approx(100 / 160), "about 1 min left")
