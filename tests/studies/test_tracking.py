"""Results in TensorBoard and MLflow, read back: event files byte by byte, runs by MLflow itself."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nextapp.cli.commands import app
from nextapp.studies.tracking import open_tracker, track_result

SMALL = "synthetic:phones=12,apps=30,days=10"
RESULT = {
    "settings": {"seed": 3, "seqmf": {"dim": 4}},
    "models": {"mru": {"HR@1": 0.25, "HR@5": 0.5, "ci95": {"HR@1": [0, 1], "HR@5": [0, 1]}}},
    "rounds": [{"round": 0, "hr5": 0.5, "loss": 2.0}, {"round": 1, "hr5": 0.75, "loss": None}],
}


def scalars(folder: Path) -> list[tuple[str, int, float]]:
    """Tag, step and value of all scalars of the event files: TFRecord, then protocol buffers."""
    event_pb2 = pytest.importorskip(
        "tensorboardX.proto.event_pb2", reason="needs pip install 'nextapp[tracking]'"
    )
    found = []
    for file in folder.glob("events*"):
        data = file.read_bytes()
        while data:
            (length,) = struct.unpack_from("<Q", data)
            event = event_pb2.Event.FromString(data[12 : 12 + length])
            data = data[16 + length :]
            found += [
                (value.tag, event.step, value.simple_value)
                for value in event.summary.value
                if value.HasField("simple_value")
            ]
    return found


def test_tensorboard_gets_every_figure_with_its_step(tmp_path):
    pytest.importorskip("tensorboardX", reason="needs pip install 'nextapp[tracking]'")
    with open_tracker(f"tensorboard:{tmp_path}/runs") as tracker:
        track_result(tracker, RESULT)
    assert scalars(tmp_path / "runs") == [
        ("HR_at_1/mru", 0, 0.25),
        ("HR_at_5/mru", 0, 0.5),
        ("hr5", 1, 0.5),
        ("loss", 1, 2.0),
        ("hr5", 2, 0.75),
    ]


def test_mlflow_gets_settings_and_figures(tmp_path):
    mlflow = pytest.importorskip("mlflow", reason="needs pip install 'nextapp[tracking]'")
    with open_tracker(f"mlflow:{tmp_path}/runs") as tracker:
        track_result(tracker, RESULT)
    (run,) = mlflow.search_runs(output_format="list")
    assert run.data.params == {"seed": "3", "seqmf.dim": "4"}
    assert run.data.metrics == {"HR_at_1/mru": 0.25, "HR_at_5/mru": 0.5, "hr5": 0.75, "loss": 2.0}
    history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "hr5")
    assert [(point.step, point.value) for point in history] == [(1, 0.5), (2, 0.75)]


ASK_MLFLOW = """
import sys
from nextapp.studies.tracking import open_tracker
with open_tracker(f"mlflow:{sys.argv[1]}") as tracker:
    tracker.figures({"hr5": 0.5}, step=0)
from mlflow.telemetry import get_telemetry_client
from mlflow.telemetry.utils import is_telemetry_disabled
print(is_telemetry_disabled(), get_telemetry_client())
"""


def test_mlflow_reports_to_nobody(tmp_path):
    """MLflow 3 tells its makers how it is used, except where it sees a test or a CI job."""
    pytest.importorskip("mlflow", reason="needs pip install 'nextapp[tracking]'")
    as_a_user = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-c", ASK_MLFLOW, str(tmp_path / "runs")],
        env=as_a_user | {"HOME": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "None"]


def test_evaluate_sends_what_it_prints(tmp_path):
    pytest.importorskip("tensorboardX", reason="needs pip install 'nextapp[tracking]'")
    where = tmp_path / "runs"
    done = CliRunner().invoke(
        app, ["evaluate", SMALL, "--models", "mru,mfu", "--track", f"tensorboard:{where}"]
    )
    assert done.exit_code == 0, done.output
    tags = {tag for tag, _, _ in scalars(where)}
    assert {"HR_at_5/mru", "NDCG_at_3/mfu"} <= tags


@pytest.mark.parametrize(
    ("where", "says"),
    [("wandb:runs", "tensorboard"), ("tensorboard", "written tensorboard:FOLDER")],
)
def test_an_unknown_tracker_is_refused_before_the_work(where, says):
    done = CliRunner().invoke(app, ["evaluate", "no-such.csv", "--track", where])
    assert done.exit_code == 1
    assert says in done.output
    assert "no-such" not in done.output
