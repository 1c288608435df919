"""How many files of nextapp a walk crosses: a launch to the next prediction, a CSV to a cell.

    python benchmarks/walk.py [--list] [--check]

    launch   a phone observes, predicts, reports to `nextapp serve`, which closes the round and
             publishes what it learnt; the phone fetches that and predicts again
    csv      `nextapp evaluate launches.csv --models mru,sr`

Printed are the files crossed, the functions called in them, the hops (pairs of a function and one
that it calls) and, for the second walk, the modules of nextapp that the command imports. What runs
while a module is imported does not count, nor do machine code and the set-up of phone and server.
--list names the files; --check fails above the limits.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import nextapp

PACKAGE = str(Path(nextapp.__file__).parent)
MOST_FILES, MOST_MODULES = 20, 60
LOG = "synthetic:phones=20,apps=30,days=20"


class Walk:
    """The calls of functions of nextapp in all threads, while `on`."""

    def __init__(self) -> None:
        self.on = False
        self.functions: set[CodeType] = set()
        self.hops: set[tuple[CodeType, CodeType]] = set()
        self._importing = threading.local()

    def install(self) -> None:
        threading.setprofile(self._event)
        sys.setprofile(self._event)

    def _event(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if code.co_name == "<module>" and not code.co_filename.endswith("__main__.py"):
            depth = getattr(self._importing, "depth", 0)
            self._importing.depth = depth + {"call": 1, "return": -1}.get(event, 0)
            return
        imports = getattr(self._importing, "depth", 0)
        if event == "call" and self.on and not imports and is_ours(code):
            self._note(frame)

    def _note(self, frame: FrameType) -> None:
        self.functions.add(frame.f_code)
        caller = frame.f_back
        while caller is not None and not is_ours(caller.f_code):
            caller = caller.f_back
        if caller is not None:
            self.hops.add((caller.f_code, frame.f_code))

    def as_json(self) -> dict[str, Any]:
        return {
            "functions": sorted(map(place, self.functions)),
            "hops": sorted([place(caller), place(called)] for caller, called in self.hops),
            "modules": sorted(name for name in sys.modules if name.partition(".")[0] == "nextapp"),
        }


def is_ours(code: CodeType) -> bool:
    """Whether this is a function of nextapp; those of one expression count to their function."""
    return code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<")


def place(code: CodeType) -> str:
    return f"{Path(code.co_filename).relative_to(PACKAGE)}:{code.co_firstlineno} {code.co_name}"


def trace_command(out: Path, arguments: list[str], *, from_start: bool) -> None:
    """Run a command of nextapp. SIGUSR1 starts the record of a server, and ends it again."""
    walk = Walk()
    walk.on = from_start
    signal.signal(signal.SIGUSR1, lambda *_: vars(walk).update(on=not walk.on))
    sys.argv = ["nextapp", *arguments]
    walk.install()
    with suppress(SystemExit):
        runpy.run_module("nextapp", run_name="__main__")
    sys.setprofile(None)
    out.write_text(json.dumps(walk.as_json()))


def start_command(out: Path, *arguments: str, from_start: bool) -> subprocess.Popen[str]:
    begin = ["--trace", str(out), *(["--from-start"] if from_start else []), "--"]
    return subprocess.Popen(
        [sys.executable, __file__, *begin, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={
            **os.environ,
            "COLUMNS": "200",
            "PYTHONUNBUFFERED": "1",
            "NUMBA_CACHE_DIR": str(out.parent / "cache"),  # empty, as after an install
        },
    )


def launch_walk(folder: Path) -> dict[str, Any]:
    from nextapp.phone import Client, Phone, Store

    served, apps = folder / "server", folder / "apps.txt"
    apps.write_text("".join(f"app {number}\n" for number in range(10)), encoding="utf-8")
    process = start_command(
        folder / "server.json", "serve", "--data", str(served), "--dev-tls", "--port", "0",
        "--operator", "off", "--goal", "1", "--minimum", "1", "--grace", "0",
        "--reports-per-period", "9", "--apps", str(apps),
        from_start=False,
    )  # fmt: skip
    url = None
    while url is None:
        url = re.search(r"https://[\w.:]+", process.stdout.readline())
    code = subprocess.check_output(
        [sys.executable, "-m", "nextapp", "enrol-code", str(served)],
        stderr=subprocess.DEVNULL,
        text=True,
    ).strip()
    walk = Walk()
    walk.install()
    with (
        Store.create(folder / "phone.db", hours=0.0, per_day=5.0, lifetime=5.0) as store,
        Client(url[0], ca=served / "tls" / "ca.pem") as client,
    ):
        phone = Phone(store)
        now = time.time()
        for number in range(60):
            phone.observe(f"app {number * 7 % 10}", now - 100 * (60 - number))
        phone.join(client, code)
        process.send_signal(signal.SIGUSR1)
        time.sleep(0.5)
        for turn in range(3):
            walk.on = True
            phone.observe("app 3", now + turn)
            phone.predict(5)
            outcome = phone.sync(client, now=True)
            walk.on = False
            assert outcome.report == "accepted", outcome
            wait_for_round(client, outcome.round + 1)
        walk.on = True
        phone.sync(client, now=True)
        phone.predict(5)
        walk.on = False
    sys.setprofile(None)
    threading.setprofile(None)
    process.send_signal(signal.SIGUSR1)
    time.sleep(0.5)
    process.terminate()
    process.communicate(timeout=60)
    of_server, of_phone = json.loads((folder / "server.json").read_text()), walk.as_json()
    return {name: of_server[name] + of_phone[name] for name in of_phone}


def wait_for_round(client: Any, number: int) -> None:
    until = time.monotonic() + 60
    while client.published().round < number:
        assert time.monotonic() < until, "the round was not closed"
        time.sleep(0.2)


def csv_walk(folder: Path) -> dict[str, Any]:
    log = folder / "launches.csv"
    make = [sys.executable, "-m", "nextapp", "data", "make", LOG, "--out", str(log)]
    subprocess.run(make, check=True, capture_output=True)
    out = folder / "csv.json"
    process = start_command(out, "evaluate", str(log), "--models", "mru,sr", from_start=True)
    process.communicate(timeout=300)
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--list", action="store_true", help="name the files")
    parser.add_argument("--check", action="store_true", help="fail above the limits")
    parser.add_argument("--walk", choices=("launch", "csv"), help="only this one")
    parser.add_argument("--trace", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--from-start", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("command", nargs="*", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.trace is not None:
        trace_command(given.trace, given.command, from_start=given.from_start)
        return
    too_long = False
    for name, walk in (("launch", launch_walk), ("csv", csv_walk)):
        if given.walk not in (None, name):
            continue
        with tempfile.TemporaryDirectory() as folder:
            found = walk(Path(folder))
        functions = set(found["functions"])
        files = sorted({function.partition(":")[0] for function in functions})
        hops = len({tuple(hop) for hop in found["hops"]})
        said = f"{name}: {len(files)} files, {len(functions)} functions, {hops} hops"
        too_long |= len(files) > MOST_FILES
        if name == "csv":
            n_modules = len(found["modules"])
            said += f", {n_modules} modules imported"
            too_long |= n_modules > MOST_MODULES
        print(said)
        if given.list:
            for file in files:
                called = sum(function.startswith(f"{file}:") for function in functions)
                print(f"  {file:<36} {called:>3} functions")
    if given.check and too_long:
        sys.exit(f"more than {MOST_FILES} files or {MOST_MODULES} modules")


if __name__ == "__main__":
    main()
