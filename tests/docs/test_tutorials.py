"""Every command and every Python block of a tutorial runs as written, in an empty folder.

``bash`` blocks run in bash, one after the other. ``python`` blocks of a page share their names, as
in one session. A ``text`` block is what the block before it prints; ``...`` stands for anything.
A block whose title says "leave it running" goes on in the background until the page ends.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from fixed_ports import fixed_port

FOLDER = Path(__file__).parents[2] / "docs" / "tutorials"
SLOW = {"private-federation", "reproduce-the-paper"}  # minutes of training or waiting
PORT = "8443"
_FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
_LIKE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Block(NamedTuple):
    language: str
    title: str
    text: str


def blocks(page: Path) -> list[Block]:
    return [Block(*found) for found in _FENCE.findall(page.read_text(encoding="utf-8"))]


class Reader:
    """Someone who does what a page says, block by block."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        programs = folder / ".bin"
        programs.mkdir()
        for name, words in (("nextapp", "-m nextapp "), ("python", "")):
            program = programs / name
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words}"$@"\n')
            program.chmod(0o755)
        self.environment = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "COLUMNS": "80",
            "NO_COLOR": "1",
            "TERM": "dumb",
            "TZ": "UTC",
        }
        self.port = str(fixed_port())
        self.names: dict[str, object] = {"__name__": "__main__"}
        self.running: list[subprocess.Popen[bytes]] = []

    def follow(self, page: list[Block]) -> Iterator[tuple[Block, str]]:
        """Each block that is done, and what it printed."""
        for block in page:
            if block.language == "bash":
                text = block.text.replace(PORT, self.port)
                if "leave it running" in block.title:
                    yield block, self.start(text)
                else:
                    yield block, self.run(text).replace(self.port, PORT)
            elif block.language == "python":
                said = io.StringIO()
                with contextlib.redirect_stdout(said):
                    exec(compile(block.text, "<tutorial>", "exec"), self.names)
                yield block, said.getvalue()

    def run(self, text: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def start(self, text: str) -> str:
        """A server: it goes on, and is ready when it has named its address."""
        log = self.folder / f"running-{len(self.running)}.log"
        with log.open("wb") as output:
            self.running.append(
                subprocess.Popen(
                    ["bash", "-c", f"exec {text}"],
                    cwd=self.folder,
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            )
        address = f"://127.0.0.1:{self.port if self.port in text else ''}"
        for _ in range(1200):
            said = log.read_text(errors="replace")
            assert self.running[-1].poll() is None, f"{text}\n{said}"
            if address in said:
                return said
            time.sleep(0.1)
        raise AssertionError(f"not ready after two minutes: {text}\n{log.read_text()}")

    def leave(self) -> None:
        for process in self.running:
            process.send_signal(signal.SIGINT)
        for process in self.running:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def test_there_are_six_tutorials():
    assert len(list(FOLDER.glob("*.md"))) == 6


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.sweep if page.stem in SLOW else pytest.mark.slow)
        for page in sorted(FOLDER.glob("*.md"))
    ],
    ids=lambda page: page.stem,
)
def test_a_tutorial_runs_as_written(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    everything = blocks(page)
    assert {block.language for block in everything} <= {"bash", "python", "text", "toml"}
    after = dict(zip(map(id, everything), everything[1:], strict=False))
    reader, checker = Reader(tmp_path), doctest.OutputChecker()
    n_done = 0
    try:
        for block, printed in reader.follow(everything):
            n_done += 1
            follower = after.get(id(block))
            if follower is not None and follower.language == "text":
                wanted = follower.text
                assert checker.check_output(wanted, printed, _LIKE), (
                    f"after\n{block.text}\nthe page has\n{wanted}\nbut was printed\n{printed}"
                )
    finally:
        reader.leave()
    assert n_done >= 3
