"""The progress line of `nextapp reproduce`."""

from __future__ import annotations

from types import SimpleNamespace

from nextapp.cli import reproduce


def test_parts_weigh_the_seconds_of_their_settings_and_a_log_file_hears_of_each(monkeypatch):
    said, shown = [], []
    quiet = SimpleNamespace(is_terminal=False, print=lambda words, **_: said.append(words))
    monkeypatch.setattr(reproduce.screen, "err", quiet)
    parts = [
        SimpleNamespace(name=name, seconds=s)
        for name, s in (("a", 100.0), ("b", 60.0), ("c", 40.0))
    ]
    show = reproduce._one_line(parts, lambda *words: shown.append(words))
    show("c", "finished before", 1, 1)
    show("a", "starting", 0, 0)
    show("b", "starting", 0, 0)
    show("a", "cycle", 3, 9)
    show("b", "done", 1, 1)
    show("a", "done", 1, 1)
    assert said == ["a starting", "b starting", "b done", "a done"]
    assert shown[0] == ("parts: ", 40, 200)
    assert shown[3] == ("parts: a cycle 3/9 · b starting", 40, 200)
    assert shown[-2:] == [("parts: a cycle 3/9", 100, 200), ("parts: ", 200, 200)]
