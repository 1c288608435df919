"""The test vectors of docs/protocol.md, and a client that was written from that page alone."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest
from servers import ServerProcess

from nextapp.wire import Broadcast, Report, WireError

ROOT = Path(__file__).parents[2]
VECTORS = ROOT / "tests" / "vectors"


def loaded(path: Path):
    spec = spec_from_file_location(path.stem, path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


other = loaded(ROOT / "examples" / "other_client.py")


def vectors(name: str):
    return json.loads((VECTORS / name).read_text(encoding="utf-8"))


class GivenWords:
    def __init__(self, words):
        self.left = list(words)

    def next(self) -> int:
        return self.left.pop(0)


def test_the_vectors_are_what_their_script_writes():
    make = loaded(VECTORS / "make.py")
    for name, data in make.broadcasts().items():
        assert (VECTORS / name).read_bytes() == data
    for name, text in make.texts().items():
        if name == "gradient.json":
            continue  # floats that a solve gives may end in other digits on other machines
        assert vectors(name) == json.loads(text), name


def test_the_other_client_imports_nothing_but_the_standard_library():
    code = (
        "import sys; sys.path.insert(0, 'examples'); import other_client; "
        "assert not {'numpy', 'nextapp'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


@pytest.mark.parametrize("name", vectors("broadcasts.json"))
def test_another_client_reads_the_broadcasts(name):
    data, expected = (VECTORS / name).read_bytes(), vectors("broadcasts.json")[name]
    read = other.read_broadcast(data)
    assert read["Q"] == expected["app_vectors"]
    for key in ("round", "apps", "settings", "request"):
        assert read[key] == expected[key]
    ours = Broadcast.from_bytes(data)
    assert ours.app_vectors.tolist() == read["Q"]
    with pytest.raises(ValueError, match="damaged"):
        other.read_broadcast(data[:-1] + bytes([data[-1] ^ 1]))


def test_another_client_solves_the_same_user_vector_and_gradient():
    expected = vectors("gradient.json")
    read = other.read_broadcast((VECTORS / expected["broadcast"]).read_bytes())
    p, F = other.gradient(expected["history"], read["Q"], read["settings"])
    tolerance = expected["relative_tolerance"]
    np.testing.assert_allclose(p, expected["user_vector"], rtol=tolerance)
    np.testing.assert_allclose(F, expected["gradient"], rtol=tolerance, atol=1e-12)
    words = GivenWords(loaded(VECTORS / "make.py").word(i) for i in range(expected["words_taken"]))
    payload = other.harmony(F, read["request"], words)
    assert other.report_bytes("harmony", read["round"], payload).hex() == expected["report"]
    assert not words.left


@pytest.mark.parametrize("mechanism", ["harmony", "codebook"])
def test_another_client_draws_the_same_reports_from_the_same_words(mechanism):
    some = [one for one in vectors("reports.json") if one["request"]["mechanism"] == mechanism]
    assert len(some) == 9
    for one in some:
        words = GivenWords(one["words"])
        payload = other.MECHANISMS[mechanism](one["gradient"], one["request"], words)
        assert payload.hex() == one["payload"]
        assert not words.left
        assert other.report_bytes(mechanism, one["round"], payload).hex() == one["report"]


def test_another_client_draws_the_same_reports_of_the_crowd():
    some = [one for one in vectors("reports.json") if one["request"]["mechanism"] == "subset"]
    assert len(some) == 18
    designs = {(one["constants"]["q"], one["constants"]["t"]) for one in some}
    assert {(2, 2), (89, 3), (5, 3)} < designs
    for one in some:
        F = [[0.0] * (one["n_apps"] + 1) for _ in range(one["n_apps"])]
        for row, column, share in one["shares"]:
            F[row][column] = share
        words = GivenWords(one["words"])
        payload = other.subset(F, one["request"], words)
        assert payload.hex() == one["payload"]
        assert not words.left
        assert other.report_bytes("subset", one["round"], payload).hex() == one["report"]


def test_another_client_reports_the_same_of_a_history():
    expected = vectors("shares.json")
    F = other.shares(expected["history"], expected["n_apps"])
    assert expected["shares"] == F
    for one in expected["reports"]:
        words = GivenWords(one["words"])
        payload = other.subset(F, expected["request"], words)
        assert other.report_bytes("subset", expected["round"], payload).hex() == one["report"]
        assert not words.left


def test_bad_reports_are_refused():
    for one in vectors("bad-reports.json"):
        with pytest.raises(WireError):
            Report.from_bytes(bytes.fromhex(one["report"]))


@pytest.mark.parametrize(
    "settings", [{}, {"mechanism": "subset", "epsilon": 4.5, "clip": None}], ids=["Q", "crowd"]
)
def test_another_client_joins_a_round(tmp_path, settings):
    with ServerProcess(tmp_path, goal=2, minimum=1, **settings) as server:
        command = [
            sys.executable, str(ROOT / "examples" / "other_client.py"),
            "--server", f"http://127.0.0.1:{server.port}", "--code", server.code(1),
            "--history", "app-0001,app-0003,app-0001,app-0004,unknown,app-0001",
        ]  # fmt: skip
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
        assert done.stdout.strip().endswith("201 accepted")
        assert server.client().json("GET", "/v1/round")[1]["n_reports"] == 1
