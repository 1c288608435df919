"""Which extra a command needs, proved by processes in which the other libraries cannot be found."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import tomllib
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest

from nextapp.cli.commands import EXTRAS
from nextapp.phone import Client
from nextapp.wire import Broadcast

ROOT = Path(__file__).parents[2]
LAB = ["polars", "numba", "scipy", "matplotlib", "optuna", "dp_accounting", "ray", "lightgbm"]
BLOCKED = """
import json, sys
from importlib.abc import MetaPathFinder

class Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

blocked = json.loads(sys.argv.pop(1))
sys.meta_path.insert(0, Missing())
from nextapp.cli import main
main()
"""


def command(blocked: list[str], *words: str) -> list[str]:
    return [sys.executable, "-c", BLOCKED, json.dumps(blocked), *words]


def run(blocked: list[str], *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(blocked, *words), cwd=cwd, capture_output=True, text=True, check=False, timeout=60
    )


def libraries(extra: str) -> set[str]:
    """What an extra installs, the extras in it followed; as import names."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: set[str] = set()
    for line in wanted["optional-dependencies"][extra]:
        inner = re.match(r"nextapp\[(.+)\]", line)
        if inner:
            for name in inner[1].split(","):
                found |= libraries(name)
        else:
            found.add(re.match(r"[\w-]+", line)[0].replace("-", "_"))
    return {name.removesuffix("_skinny") for name in found}


def test_the_extra_that_is_named_is_the_smallest_that_has_the_library():
    extras = ("cli", "lab", "ray", "serve", "flower")
    sizes = {extra: libraries(extra) for extra in extras}
    assert set(EXTRAS) == set().union(*sizes.values())
    for library, extra in EXTRAS.items():
        assert extra == min((len(each), name) for name, each in sizes.items() if library in each)[1]


def test_a_server_installs_nothing_of_the_lab():
    assert not libraries("serve") & set(LAB)


def test_a_server_runs_without_the_lab(tmp_path):
    """From its first start over an enrolled phone to its end by SIGTERM."""
    shown = run(LAB, "serve", "--help", cwd=tmp_path)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "--epsilon" in shown.stdout
    server = subprocess.Popen(
        command(
            LAB, "serve", "--data", "f", "--port", "0", "--operator", "off",
            "--apps", "5", "--goal", "3", "--grace", "0",
        ),
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    watchdog = threading.Timer(60, server.kill)
    watchdog.start()
    try:
        first = server.stdout.readline()
        assert first.startswith("http://127.0.0.1:"), server.stderr.read()
        address = first.split()[0]
        with urllib.request.urlopen(f"{address}/v1/digest", timeout=20) as answer:
            assert answer.status == 200
        code = run(LAB, "enrol-code", "f", cwd=tmp_path)
        assert code.returncode == 0, code.stderr
        with closing(Client(address)) as client:
            client.enrol(code.stdout.strip())
            assert Broadcast.from_bytes(client.broadcast()).n_apps == 5
        server.send_signal(signal.SIGTERM)
        told, errors = server.communicate(timeout=30)
    finally:
        watchdog.cancel()
        server.kill()
        server.communicate()
    assert server.returncode == 0, errors
    assert "stopped at round 0" in told


@pytest.mark.parametrize(
    ("blocked", "words", "says"),
    [
        ("polars", "evaluate synthetic:lsapp", "needs polars,"),
        ("polars", "data describe log.csv", "needs polars,"),
        ("numba", "simulate --phones 3", "needs numba,"),
        ("matplotlib", "demo", "needs matplotlib,"),
        ("polars", "play-phones --server http://127.0.0.1:1 --code x", "needs polars,"),
        ("starlette", "serve --data f", "needs starlette,"),
    ],
)
def test_a_missing_library_is_one_line_that_names_the_extra(tmp_path, blocked, words, says):
    done = run([blocked], *words.split(), cwd=tmp_path)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert says in line
    assert line.endswith(f"install nextapp[{EXTRAS[blocked]}] (docs/install.md)")
    assert not os.listdir(tmp_path)


def test_what_flower_brings_is_asked_for_at_once(tmp_path):
    """Not nextapp[serve] first, and then nextapp[flower]."""
    done = run(["cryptography"], "flower", "certificate", "f", "localhost", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.endswith("needs cryptography, which is not installed: "
                                "install nextapp[flower] (docs/install.md)\n")  # fmt: skip


def test_without_click_the_command_says_what_to_install(tmp_path):
    done = run(["click"], "--version", cwd=tmp_path)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "for a server alone nextapp[serve]" in done.stderr


def test_completion_stays_silent_where_a_library_is_missing(tmp_path):
    code = BLOCKED.replace("import json, sys", "import json, sys; sys.argv[0] = 'nextapp'", 1)
    words = {"COMP_WORDS": "nextapp evaluate --se", "COMP_CWORD": "2"}
    done = subprocess.run(
        [sys.executable, "-c", code, '["polars"]'],
        env=os.environ | {"_NEXTAPP_COMPLETE": "bash_complete"} | words,
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.stdout.strip(), done.stderr) == ("", "")
