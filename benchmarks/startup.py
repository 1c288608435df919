"""Processor time and peak memory of every command's --help, and of a phone's commands.

    python benchmarks/startup.py [--runs 5] [--check]

The least of several runs, each in a process of its own; `import numpy` and `import click` are the
peers: a phone's command cannot take less than the one, no command less than the other. --check
fails where a limit (0.3 s, 60 MB) is passed by --version, --help or a phone's command. Linux counts
this script's own 18 MB at least.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from nextapp.cli.commands import COMMANDS

SECONDS, MEGABYTES = 0.3, 60
PEERS = {
    "python -c pass": ["-c", "pass"],
    "import click": ["-c", "import click"],
    "import numpy": ["-c", "import numpy"],
}
LIMITED = {
    "nextapp --version": ["--version"],
    "nextapp --help": ["--help"],
    "nextapp phone --help": ["phone", "--help"],
    "nextapp phone init": ["phone", "init", "--lifetime", "5", "--per-day", "1"],
    "nextapp phone log": ["phone", "log", "maps", "mail", "maps"],
    "nextapp phone predict": ["phone", "predict", "-n", "3"],
    "nextapp phone status": ["phone", "status"],
    "nextapp phone export": ["phone", "export"],
}


def measure(arguments: list[str], folder: Path) -> tuple[float, float]:
    """Seconds of user and system time, and megabytes, of one process that must succeed."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(arguments)} failed with exit code {process.returncode}")
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, kilobytes elsewhere
    return used.ru_utime + used.ru_stime, used.ru_maxrss * unit / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()

    helps = {f"nextapp {name} --help": [name, "--help"] for name in COMMANDS if name != "phone"}
    cases = PEERS | {name: ["-m", "nextapp", *words] for name, words in (LIMITED | helps).items()}
    too_much = []
    print(f"{'':28} {'seconds':>8} {'MB':>6}")
    for name, arguments in cases.items():
        runs = []
        for _ in range(given.runs):
            with tempfile.TemporaryDirectory() as folder:
                if "phone" in arguments and "init" not in arguments:
                    init = LIMITED["nextapp phone init"]
                    measure(["-m", "nextapp", *init], Path(folder))
                runs.append(measure(arguments, Path(folder)))
        seconds, megabytes = min(run[0] for run in runs), min(run[1] for run in runs)
        print(f"{name:28} {seconds:8.3f} {megabytes:6.0f}", flush=True)
        if name in LIMITED and (seconds > SECONDS or megabytes > MEGABYTES):
            too_much.append(name)
    if given.check and too_much:
        sys.exit(f"more than {SECONDS} s or {MEGABYTES} MB: {', '.join(too_much)}")


if __name__ == "__main__":
    main()
