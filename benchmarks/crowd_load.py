"""Reports a second from phones to a published crowd: gateway, vault, sum, shrinkage, broadcast.

    python benchmarks/crowd_load.py --apps 2000 --reports 120000 --rate 2200

Reports are sent at a fixed rate until the round has all that it wants; the clock stops when the
next broadcast, with the crowd that they tell, is handed out. Payloads are drawn at random, as those
of phones look. What a round costs after its last report is shown in parts.
"""

from __future__ import annotations

import argparse
import base64
import json
import multiprocessing
import resource
import secrets
import tempfile
import time
import urllib.request
from pathlib import Path

import uvloop
from gateway_load import Load, enrolled

from nextapp.randomness import DeviceCoins
from nextapp.server import listening, single_process
from nextapp.server.gateway import Gateway
from nextapp.wire import Report

MECHANISM = "walsh"


def requests_of(n: int, host: str) -> tuple[list[bytes], list[bytes]]:
    """n tokens, and one whole HTTP request of each for round 0."""
    tokens, requests = [secrets.token_bytes(32) for _ in range(n)], []
    for token in tokens:
        seed = DeviceCoins(token, 0).words(1).astype("<u8").tobytes()
        body = Report(MECHANISM, 0, seed + secrets.token_bytes(1)).to_bytes()
        bearer = base64.urlsafe_b64encode(token).rstrip(b"=")
        requests.append(
            b"POST /v1/report HTTP/1.1\r\nhost: %s\r\nauthorization: Bearer %s\r\n"
            b"content-type: application/octet-stream\r\ncontent-length: %d\r\n\r\n%s"
            % (host.encode(), bearer, len(body), body)
        )
    return tokens, requests


def settings_for(n_apps: int, n_reports: int) -> dict:
    return {
        "mechanism": MECHANISM, "epsilon": 1.0, "slots": n_apps, "goal": n_reports,
        "minimum": n_reports, "deadline": 1e6,
    }  # fmt: skip


def run_server(folder: str, given: dict, opened) -> None:
    federation, _ = single_process.open_federation(Path(folder), given, None, now=time.time())
    listening.serve(federation, Gateway(federation.vault), opened)


def round_at(port: int) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/digest", timeout=60) as answer:
        return int(json.loads(answer.read())["round"])


def parts_of(n_apps: int, n_reports: int, folder: Path) -> dict[str, float]:
    """Seconds of processor time of each step after the last report, in this process."""
    given = settings_for(n_apps, n_reports)
    apps = tuple(f"org.example.app{i:05d}" for i in range(n_apps))
    federation, _ = single_process.open_federation(folder, given, apps, now=0.0)
    learner, took = federation.coordinator.learner, {}
    reports = [Report(MECHANISM, 0, secrets.token_bytes(9)) for _ in range(n_reports)]

    def timed(name: str, step):
        start = time.process_time()
        found = step()
        took[name] = round(time.process_time() - start, 3)
        return found

    mechanism = learner.mechanism
    tally = timed("sum of all reports", lambda: mechanism.tally(reports))
    total = timed("transform", lambda: n_reports * mechanism.estimate(tally, n_reports))
    timed("crowd", lambda: learner.apply_sum(total, n_reports))
    timed("checkpoint", federation.coordinator.save)
    federation.vault.close()
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--apps", type=int, default=2000)
    parser.add_argument("--reports", type=int, default=120_000)
    parser.add_argument("--rate", type=float, default=2200.0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = {"parts, s": parts_of(given.apps, given.reports, Path(folder) / "parts")}
        data = Path(folder) / "served"
        settings = settings_for(given.apps, given.reports)
        apps = tuple(f"org.example.app{i:05d}" for i in range(given.apps))
        federation, _ = single_process.open_federation(data, settings, apps, now=0.0)
        opened = listening.open_socket("127.0.0.1", 0)
        port = opened.getsockname()[1]
        tokens, requests = requests_of(given.reports, f"127.0.0.1:{port}")
        enrolled(federation.vault, tokens)
        federation.vault.close()
        server = multiprocessing.get_context("fork").Process(
            target=run_server, args=(str(data), settings, opened)
        )
        server.start()
        while True:
            try:
                round_at(port)
                break
            except OSError:
                time.sleep(0.1)
        load = Load(requests, given.rate)
        start = time.perf_counter()
        taken = uvloop.run(load.play(port, given.reports / given.rate))
        while round_at(port) == 0:
            time.sleep(0.05)
        whole = time.perf_counter() - start
        server.terminate()
        server.join()
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    result |= {
        "apps": given.apps,
        "reports": given.reports,
        "statuses": {status.decode(): n for status, n in load.statuses.items()},
        "taken, s": round(taken, 1),
        "crowd published, s": round(whole, 1),
        "server's processor time, s": round(spent.ru_utime + spent.ru_stime, 1),
        "reports/s to a published crowd": round(given.reports / whole),
    }
    print(json.dumps(result, indent=2))
    if given.json:
        given.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
