"""How many reports come too late for their round, and so cost a phone its ε for nothing.

    python benchmarks/lost_epsilon.py [--hours 1] [--phones 1000000] [--goal 10000]

Phones visit at random; one that is handed a broadcast draws its report, waits from 30 to 120 s as
phones do, and sends it. The vault, its rules, the coordinator and what the gateway hands out are
those of a server; its clock is made up, so that hours take minutes. Without and with the grace
after the goal, at the mean rate of the fleet and at five times that.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import tempfile
from pathlib import Path

from nextapp.phone.phone import PAUSE
from nextapp.privacy.tokens import Token
from nextapp.server.folders import open_federation
from nextapp.server.gateway import Gateway
from nextapp.server.vault import Outcome, Submission

TICK = 0.25  # seconds between two looks of a gateway at its vault
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
APPS = ("one", "two")  # a small report: only times matter here


def play(hours: float, rate: float, goal: int | None, grace: float, seed: int) -> dict[str, float]:
    """``rate`` visits a second for ``hours``."""
    chance = random.Random(seed)
    clock = 1e9
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        given = {"goal": goal, "grace": grace, "minimum": 100, "deadline": 86_400.0}
        federation, _ = open_federation(Path(folder), given, APPS, now=clock)
        vault, mechanism = federation.vault, federation.coordinator.learner.mechanism
        gateway = Gateway(vault, clock=lambda: clock)
        (key,) = vault.keys.listed()
        payload = bytes(mechanism.payload_bytes)
        under_way: list[tuple[float, int]] = []
        counts = {"accepted": 0, "lost": 0, "asked to come back": 0, "rounds": 0}
        due = clock + chance.expovariate(rate)
        end = clock + 3600 * hours
        while clock < end or under_way:
            clock += TICK
            federation.tick(clock)
            gateway.refresh()
            while due <= min(clock, end):
                if gateway.is_open:
                    arrives = due + chance.uniform(*PAUSE)
                    heapq.heappush(under_way, (arrives, federation.coordinator.round))
                else:
                    counts["asked to come back"] += 1
                due += chance.expovariate(rate)
            sent = []
            while under_way and under_way[0][0] <= clock:
                nonce = chance.randbytes(32)
                token = Token(key.id, nonce, nonce * 8)
                sent.append(Submission(token, heapq.heappop(under_way)[1], payload))
            for outcome in vault.admit(sent) if sent else ():
                counts["accepted" if outcome is Outcome.ACCEPTED else "lost"] += 1
        counts["rounds"] = federation.coordinator.round
        vault.close()
    share = counts["lost"] / max(1, counts["lost"] + counts["accepted"])
    return {**counts, "share lost": round(share, 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--phones", type=int, default=1_000_000, help="that visit once a day")
    parser.add_argument("--goal", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rows = []
    for peak in (1, 5):
        for grace in (0.0, 300.0):
            rate = peak * given.phones / 86_400
            found = play(given.hours, rate, given.goal, grace, given.seed)
            rows.append({"peak": peak, "grace": grace, **found})
            print(json.dumps(rows[-1]), flush=True)
    if any(row["lost"] for row in rows if row["grace"]):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
