"""What one flipped bit does to a vault: is it noticed at the start, and if not, what has changed?

    python benchmarks/flip_bits.py [--flips 900] [--log-flips 300]

A vault with sums of a round, and 400 reports of the current round. Bits are flipped one at a time:
anywhere in the file, in its sums, in its reports, and in the write-ahead log that a kill leaves
behind. After each the vault is checked as a server does at its start. It ends with 1 if sums,
reports or broadcasts have changed unnoticed, or more than what was committed last is lost.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shutil
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import numpy as np
from signed_tokens import signed_tokens

from nextapp.privacy import mechanism
from nextapp.randomness import KeyedBits
from nextapp.server.federation import check_vault
from nextapp.server.vault import RoundRules, Submission, Vault

N_DEVICES = 400
HARMONY = mechanism("harmony", n_apps=200, d=16, epsilon=1.0, clip=1.0)
TABLES = {
    "sums, reports, broadcasts": (
        "SELECT number, n_reports, tally, shape FROM tallies",
        "SELECT key, payload FROM reports",
        "SELECT * FROM broadcasts",
    ),
    "the round": ("SELECT number, n_reports, closed FROM rounds",),
    "devices, codes": ("SELECT * FROM devices", "SELECT * FROM codes"),
    "hashes of spent tokens": ("SELECT * FROM spent",),
    "digests of earlier rounds": ("SELECT * FROM digests",),
}


def build_vault(path: Path) -> Vault:
    """Round 0 reduced, round 1 open; half of its reports are in the log only."""
    vault, rules = Vault(path), RoundRules(10**6, 1, 1e6)
    code = vault.devices.issue_code(uses=N_DEVICES, expires=1e12, name="phones")
    for _ in range(N_DEVICES):
        vault.devices.enrol(code, 1.0)
    vault.keys.for_next_round(1.0)
    gradient = np.random.default_rng(0).normal(size=(200, 16))
    for number in range(2):
        broadcast = bytes(KeyedBits(number).words(512).tobytes())
        vault.publish(rules.open_round(number, 0.0), broadcast, rules)
        for device, token in enumerate(signed_tokens(vault, N_DEVICES)):
            if number and device == N_DEVICES // 2:
                vault.database.tidy()
            report = HARMONY.encode(gradient, KeyedBits(1, device, number, "report"), number)
            vault.admit([Submission(token, number, report.payload)])
        if number == 0:
            vault.close_round(0)
            vault.reduce(0, HARMONY)
    return vault


def content(path: Path) -> dict[str, list[str]]:
    with closing(sqlite3.connect(path)) as read:
        read.text_factory = bytes  # a damaged text need not be UTF-8
        return {
            name: [sorted(map(repr, read.execute(each).fetchall())) for each in queries]
            for name, queries in TABLES.items()
        }


def n_reports(path: Path) -> int:
    with closing(sqlite3.connect(path)) as read:
        return int(read.execute("SELECT count(*) FROM reports").fetchone()[0])


def noticed(path: Path) -> bool:
    try:
        check_vault(path)
    except (OSError, ValueError):
        return True
    return False


def places_of(whole: bytes, path: Path) -> dict[str, list[int]]:
    with closing(sqlite3.connect(path)) as read:
        keys = [row[0] for row in read.execute("SELECT key FROM reports")]
        (tally,) = read.execute("SELECT tally FROM tallies").fetchone()
    length = HARMONY.payload_bytes
    at = [whole.find(key) for key in keys]
    middle = len(tally) // 2  # a long value lies on several pages: around one of its middles
    start = whole.find(tally[middle : middle + 64])
    return {
        "anywhere in the file": list(range(len(whole))),
        "in a report": [place + 12 + k for place in at if place >= 0 for k in range(length)],
        "in a sum": list(range(start, start + 64)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--flips", type=int, default=900, help="in the file, in all")
    parser.add_argument("--log-flips", type=int, default=300, help="in the log")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given = parser.parse_args()
    draw = random.Random(given.seed)
    found: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source, killed, copy = (folder / each for each in ("source", "killed", "copy"))
        vault = build_vault(source)
        for ending in ("", "-wal"):  # as a kill leaves them
            shutil.copy(f"{source}{ending}", f"{killed}{ending}")
        vault.close()
        before, n_before = content(source), n_reports(source)
        whole, log = source.read_bytes(), Path(f"{killed}-wal").read_bytes()

        def flip(what: str, file: bytes, wal: bytes | None, at: int) -> Counter[str]:
            for each in folder.glob("copy*"):
                each.unlink()
            bad = bytearray(file if wal is None else wal)
            bad[at] ^= 1 << draw.randrange(8)
            copy.write_bytes(bad if wal is None else file)
            if wal is not None:
                Path(f"{copy}-wal").write_bytes(bad)
            counted = found.setdefault(what, Counter())
            counted["flips"] += 1
            return counted

        places = places_of(whole, source)
        for trial in range(given.flips):
            what = list(places)[trial % 3]
            counted = flip(what, whole, None, draw.choice(places[what]))
            if noticed(copy):
                counted["noticed"] += 1
                continue
            after = content(copy)
            changed = [part for part in TABLES if after[part] != before[part]]
            counted.update([f"unnoticed: {part}" for part in changed] or ["nothing has changed"])
        for _ in range(given.log_flips):
            counted = flip("in the log of a killed server", killed.read_bytes(), log,
                           draw.randrange(len(log)))  # fmt: skip
            if noticed(copy):
                counted["noticed"] += 1
                continue
            lost = n_before
            with contextlib.suppress(sqlite3.DatabaseError):
                lost -= n_reports(copy)
            words = {0: "nothing has changed", 1: "unnoticed: the last commit"}
            counted[words.get(lost, "unnoticed: commits lost")] += 1
    for what, counted in found.items():
        print(f"{what:32} {json.dumps(counted)}")
    bad = sum(
        counted["unnoticed: sums, reports, broadcasts"] + counted["unnoticed: commits lost"]
        for counted in found.values()
    )
    print(f"seed {given.seed}: {bad} changed what is learnt unnoticed, 0 wanted")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
