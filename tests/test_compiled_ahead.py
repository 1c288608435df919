"""The loop of the predictor is compiled in another process, while a demonstration makes phones."""

from __future__ import annotations

from nextapp.compiled import Loop, loop_of
from nextapp.data.loading import read_log
from nextapp.predictors import predictor_loop
from nextapp.studies.experiment import Experiment, run


def test_what_is_compiled_ahead_is_what_a_log_needs(monkeypatch):
    monkeypatch.setattr(predictor_loop, "SECONDS", 1e3)  # large enough for machine code
    predictor_loop.compile_now()
    machine = loop_of(predictor_loop._answers).form(1e3)
    ahead = list(machine.signatures)
    source = "synthetic:phones=6,apps=10,days=20"
    run(Experiment(source, models=("nextapp", "nextapp-alone")), read_log(source, seed=0))
    assert machine.signatures == ahead


def test_a_log_waits_for_the_other_process(monkeypatch, tmp_path):
    done = tmp_path / "done"
    work = f"import pathlib, time; time.sleep(0.3); pathlib.Path({str(done)!r}).touch()"
    monkeypatch.setattr(predictor_loop, "_AHEAD", work)
    monkeypatch.setattr(Loop, "is_on_disk", lambda _: False)
    predictor_loop.compile_ahead()
    predictor_loop.loop_for(0)
    assert done.exists()


def test_nothing_is_compiled_ahead_that_is_on_disk(monkeypatch):
    monkeypatch.setattr(Loop, "is_on_disk", lambda _: True)
    predictor_loop.compile_ahead()
    assert not predictor_loop._compiling_ahead
