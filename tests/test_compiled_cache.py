"""Machine code that is kept on disk never outlives the sources that it was made from."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import nextapp
from nextapp.compiled import cache_folder, digest_of_sources, sources_of, writable_folder

PACKAGE = Path(nextapp.__file__).parent

ASK = """
from nextapp.compiled_bits import stream
from nextapp.fleet.encoders import inside
print(inside(stream(7, 3, 0, 5)), sum(inside.machine.stats.cache_hits.values()))
"""

ASK_WHEN_COMPILING = f"""
from nextapp.compiled import at_next_compilation
at_next_compilation.append(lambda: print("compiling"))
{ASK}"""


@pytest.fixture
def package(tmp_path) -> Path:
    copy = tmp_path / "nextapp"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def ask(package: Path, **settings: str) -> tuple[float, int]:
    """A draw by `fleet.encoders.inside`, over `compiled_bits`, and how often it came from disk."""
    value, hits = output(ASK, package, **settings).split()
    return float(value), int(hits)


def output(script: str, package: Path, **settings: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    return subprocess.run(
        [sys.executable, "-c", script],
        env=kept | {"PYTHONPATH": str(package.parent)} | settings,
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip


def test_the_first_run_is_told_that_it_compiles_and_the_next_is_not(package):
    """The cache folder has subfolders from the import on, so an empty one is no sign of it."""
    assert output(ASK_WHEN_COMPILING, package).count("compiling") == 1
    assert "compiling" not in output(ASK_WHEN_COMPILING, package)


def change(file: Path, before: str, after: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert text.count(before) == 1
    file.write_text(text.replace(before, after), encoding="utf-8")


def test_a_change_in_a_helper_reaches_its_callers_in_other_modules(package):
    value, hits = ask(package)
    assert hits == 0
    assert ask(package) == (value, 1)  # from disk
    change(package / "compiled_bits.py", "for _ in range(10):", "for _ in range(9):")
    changed, hits = ask(package)
    assert changed != value
    assert hits == 0
    change(package / "compiled_bits.py", "for _ in range(9):", "for _ in range(10):")
    assert ask(package) == (value, 1)  # and back


def test_an_install_that_cannot_be_written_to_keeps_code_with_the_user(package, tmp_path):
    (package / "__pycache__").write_text("in the way")  # also a superuser cannot write below it
    value, _ = ask(package, XDG_CACHE_HOME=str(tmp_path / "mine"))
    assert ask(package, XDG_CACHE_HOME=str(tmp_path / "mine")) == (value, 1)
    (tmp_path / "file").write_text("in the way")
    assert ask(package, XDG_CACHE_HOME=str(tmp_path / "file")) == (value, 0)  # none is kept


def test_numbas_own_setting_says_where(package, tmp_path):
    value, _ = ask(package, NUMBA_CACHE_DIR=str(tmp_path / "there"))
    assert list((tmp_path / "there").glob("numba-*/*/*.nbi"))
    assert not list((package / "__pycache__").glob("numba-*"))
    change(package / "compiled_bits.py", "for _ in range(10):", "for _ in range(9):")
    assert ask(package, NUMBA_CACHE_DIR=str(tmp_path / "there"))[0] != value


def test_the_digest_covers_every_source_that_a_loop_can_take_anything_from():
    """The oracle is Python's own import: what it loads of the package."""
    script = (
        "import importlib, json, sys; importlib.import_module('nextapp.' + sys.argv[1]);"
        "print(json.dumps([m.__file__ for n, m in sys.modules.items() if n.startswith('nextapp')]))"
    )
    for module in ("fleet.walsh", "evaluation.revealing", "data.synthetic"):
        done = subprocess.run(
            [sys.executable, "-c", script, module], capture_output=True, text=True, check=True,
        )  # fmt: skip
        file = PACKAGE / Path(*module.split(".")).with_suffix(".py")
        assert set(map(Path, json.loads(done.stdout))) <= sources_of(file)


def test_a_change_in_a_file_that_is_not_imported_keeps_the_code(package):
    value, _ = ask(package)
    change(package / "predictor.py", "\nPLACE_FADE", "\n\nPLACE_FADE")
    assert ask(package) == (value, 1)


def test_only_the_latest_folders_are_left(tmp_path):
    for number in range(9):
        assert writable_folder([tmp_path], f"numba-a-{number}") == tmp_path / f"numba-a-{number}"
        os.utime(tmp_path / f"numba-a-{number}", (number, number))
    (tmp_path / "other").mkdir()
    assert writable_folder([tmp_path], "numba-b-1") == tmp_path / "numba-b-1"
    assert sorted(each.name for each in tmp_path.glob("numba-*")) == [
        "numba-a-5", "numba-a-6", "numba-a-7", "numba-a-8", "numba-b-1",
    ]  # fmt: skip


def test_this_run_keeps_its_code_under_the_digest_of_these_sources():
    file = PACKAGE / "fleet" / "encoders.py"
    folder = cache_folder(file)
    assert folder is not None
    assert folder.name == f"numba-encoders-{digest_of_sources(file)}"
