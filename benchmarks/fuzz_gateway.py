"""Random and mutated requests against a gateway, none of which may be answered by a 5xx.

    python benchmarks/fuzz_gateway.py --requests 100000

Most are bytes on the socket: our own requests with bytes changed, doubled, cut or put in, several
on one connection, or plain noise. The rest is made by schemathesis from /openapi.json, valid and
not, and every answer is held against the description. At the end the gateway must be healthy, have
written no traceback, and take a report.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.specs.openapi.checks import positive_data_acceptance
from signed_tokens import signed_tokens

from nextapp.privacy import mechanism
from nextapp.randomness import KeyedBits
from nextapp.server import listening
from nextapp.server.folders import open_federation
from nextapp.server.gateway import Gateway
from nextapp.server.listening import ServerLimits
from nextapp.server.vault import Vault

N_APPS, DIM = 12, 4
SETTINGS = {
    "learn": "seqmf",
    "mechanism": "harmony", "epsilon": 2.0, "clip": 1.0, "goal": 10**9, "minimum": 1,
    "deadline": 1e6, "dim": DIM,
}  # fmt: skip
LIMITS = ServerLimits(device_burst=1e9, address_burst=1e9, request_seconds=0.5)
HEALTHY = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


def serve(folder: Path) -> None:
    apps = tuple(f"app-{number:04d}" for number in range(N_APPS))
    federation, _ = open_federation(folder, SETTINGS, apps, now=time.time())
    opened = listening.open_socket("127.0.0.1", 0)
    print(opened.getsockname()[1], flush=True)
    listening.serve(federation, Gateway(federation.vault, LIMITS), opened)


def requests_of(token: str, report: bytes) -> list[bytes]:
    return [
        b"POST /v1/report HTTP/1.1\r\nhost: x\r\nauthorization: Token %s\r\ncontent-length: %d"
        b"\r\n\r\n%s" % (token.encode(), len(report), report),
        b'GET /v1/broadcast HTTP/1.1\r\nhost: x\r\nif-none-match: "x"\r\naccept-encoding: gzip'
        b"\r\n\r\n",
        b'POST /v1/enrol HTTP/1.1\r\nhost: x\r\ncontent-length: 16\r\n\r\n{"code": "ABCD"}',
        b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
        b"POST /v1/report HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
        b"GET /v1/digest HTTP/1.0\r\n\r\n",
        b"GET /v1/digest HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET /v1/digests HTTP/1.1\r\nhost: x\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET http://other/v1/digest?a=%00 HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n\r\n",
    ]


def mutated(chance: random.Random, originals: list[bytes]) -> bytes:
    if chance.random() < 0.1:
        return chance.randbytes(chance.randrange(1, 500))
    request = bytearray(chance.choice(originals))
    for _ in range(chance.randrange(0, 7)):
        at = chance.randrange(len(request))
        kind = chance.randrange(5)
        if kind == 0:
            request[at] = chance.randrange(256)
        elif kind == 1:
            request[at:at] = request[: chance.randrange(1, 80)]
        elif kind == 2:
            del request[at : at + chance.randrange(1, 30)]
        elif kind == 3:
            request[at:at] = chance.choice(
                [b"\r\n", b"\0", b"\r\n\r\n", b"%00", b"\xff" * 9, b": ", b"../", b"{" * 50, b"-1"]
            )
        else:
            request[at] ^= 1 << chance.randrange(8)
        request = request or bytearray(b"x")
    return bytes(request)


def shelled(port: int, token: str, report: bytes, seed: int, n: int) -> Counter[str]:
    """n requests, a few on each connection; the statuses of the answers."""
    chance, statuses = random.Random(seed), Counter()
    originals = requests_of(token, report)
    done = 0
    while done < n:
        with socket.create_connection(("127.0.0.1", port), timeout=10.0) as opened:
            some = min(n - done, chance.randrange(1, 5))
            try:
                for _ in range(some):
                    opened.sendall(mutated(chance, originals))
                opened.shutdown(socket.SHUT_WR)
                answer = b""
                while part := opened.recv(1 << 16):
                    answer += part
            except OSError:
                statuses["reset"] += 1
            done += some
        for piece in answer.split(b"HTTP/1.1 ")[1:]:
            statuses[piece[:3].decode("latin-1")] += 1
    return statuses


def described(port: int, token: str, n: int) -> int:
    """About n requests by schemathesis, each answer checked."""
    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{port}/openapi.json")
    operations = [operation.ok() for operation in schema.get_all_operations()]
    made = 0
    modes = [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE]
    for operation in operations:
        for mode in modes:
            strategy = operation.as_strategy(generation_mode=mode)

            @settings(
                max_examples=n // (2 * len(operations)),
                deadline=None,
                database=None,
                suppress_health_check=HEALTHY,
            )
            @given(case=strategy)
            def check(case):
                nonlocal made
                made += 1
                report = case.path == "/v1/report"
                case.call_and_validate(
                    headers={"Authorization": f"Token {token}"} if report else None,
                    excluded_checks=[positive_data_acceptance] if report else [],
                )

            with suppress(Unsatisfiable):  # some requests cannot be made wrong
                check()
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--described", type=int, default=2_000, help="Of these by schemathesis.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [sys.executable, __file__, "serve", folder],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        (port,) = process.stdout.readline().split()
        url = f"http://127.0.0.1:{port}"
        with closing(Vault(Path(folder) / "vault.sqlite", busy_seconds=10.0)) as vault:
            tokens = signed_tokens(vault, 2)
        m = mechanism("harmony", n_apps=N_APPS, d=DIM, epsilon=2.0, clip=1.0)
        report, good = (
            m.encode(np.zeros((N_APPS, DIM)), KeyedBits(1), 0, token.coins).to_bytes()
            for token in tokens
        )
        start = time.monotonic()
        made = described(int(port), tokens[0].text, arguments.described)
        share = (arguments.requests - made) // 4
        with ProcessPoolExecutor(2) as pool:
            parts = [
                pool.submit(shelled, int(port), tokens[0].text, report, arguments.seed + n, share)
                for n in range(4)
            ]
            statuses = sum((part.result() for part in parts), Counter())
        seconds = time.monotonic() - start
        healthy = json.loads(urllib.request.urlopen(f"{url}/v1/digest").read())
        last = urllib.request.Request(
            f"{url}/v1/report", good, {"Authorization": f"Token {tokens[1].text}"}
        )
        accepted = urllib.request.urlopen(last).status
        process.terminate()
        errors = process.communicate(timeout=30)[1]
    result = {
        "by_schemathesis": made,
        "on_the_socket": 4 * share,
        "seconds": round(seconds, 1),
        "answers": dict(sorted(statuses.items())),
        "healthy": "sha256" in healthy,
        "took_a_report": accepted == 201,
        "tracebacks": errors.count("Traceback"),
    }
    print(json.dumps(result, indent=2))
    if errors:
        print(errors[:3000], file=sys.stderr)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")
    bad = any(status.startswith("5") for status in statuses) or result["tracebacks"]
    sys.exit(bool(bad or not result["healthy"] or not result["took_a_report"]))


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(Path(sys.argv[2]))
    else:
        main()
