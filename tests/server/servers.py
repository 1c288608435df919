"""Servers and clients for the tests: real processes, real sockets, loopback only."""

from __future__ import annotations

import hashlib
import http.client
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np

from fixed_ports import fixed_port
from nextapp.privacy import mechanism
from nextapp.privacy.tokens import MESSAGE, Token, from_base64, public_key, to_base64
from nextapp.randomness import KeyedBits
from nextapp.server.issuing import secret_hash
from nextapp.server.operator import operator_secret
from nextapp.server.vault import Round, Vault
from nextapp.wire import Broadcast, Report, WireError

N_APPS, DIM = 12, 4
SETTINGS = {
    "learn": "seqmf",
    "mechanism": "harmony", "epsilon": 2.0, "clip": 1.0, "goal": 10**6, "minimum": 1,
    "deadline": 1e6, "grace": 0.0, "dim": DIM, "optimiser": "sgd", "rate": 0.01,
}  # fmt: skip
MECHANISM = mechanism("harmony", n_apps=N_APPS, d=DIM, epsilon=2.0, clip=1.0)


class Device:
    """A device's secret, and its tokens: one for each round from 0 on."""

    def __init__(self, secret: str, tokens: list[Token]) -> None:
        self.secret, self.tokens = secret, tokens

    def token(self, round: int = 0) -> Token:
        return self.tokens[round]


def report_of(device: int, round: int = 0, draw: int = 0, by: Device | None = None) -> bytes:
    """A report that a vault takes, the same bytes for the same numbers.

    With `by` also the gateway takes it, since it is drawn with the coins of that device's token.
    """
    gradient = np.random.default_rng([device, round]).normal(size=(N_APPS, DIM))
    bits = KeyedBits(7 + draw, device, round, "report")
    coins = None if by is None else by.token(round).coins
    return MECHANISM.encode(gradient, bits, round, coins).to_bytes()


def unsigned_token(name: str | int) -> Token:
    """What a vault takes for a token, since its gateway has looked at the signature."""
    nonce = hashlib.sha256(str(name).encode()).digest()
    return Token("main-" + "0" * 32, nonce, nonce * 8)


def device_name(secret: str) -> str:
    """What an operator calls the device with this secret."""
    return secret_hash(secret).hex()[:16]


def until(true: Callable[[], bool], seconds: float = 120.0) -> None:
    """Wait until it is; a busy machine may take its time."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


class ServerProcess:
    """A server on a folder; `start` and `kill` as often as wanted, always on the same port."""

    def __init__(
        self,
        folder: Path,
        *,
        limits: dict | None = None,
        options: dict | None = None,
        **settings,
    ):
        self.folder, self.port, self.operator_port = folder, fixed_port(), 0
        self.options = options or {}
        self.log = ""  # what it wrote to standard error, once it has ended
        self.settings = {**SETTINGS, **settings}
        self.limits = limits or {"device_burst": 1e9, "address_burst": 1e9}
        self.process: subprocess.Popen | None = None
        self._clients: list[Client] = []
        folder.mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        self.process = subprocess.Popen(
            [
                sys.executable, str(Path(__file__).parent / "server_process.py"),
                str(self.folder), str(self.port), json.dumps(self.settings),
                json.dumps(self.limits), json.dumps(self.options),
            ],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(self.process.communicate()[1])
        self.port, self.operator_port = map(int, line.split())

    def kill(self) -> None:
        """kill -9"""
        self.process.kill()
        self._end()

    def stop(self) -> int:
        """SIGTERM; what it returned."""
        self.process.terminate()
        return self._end()

    def _end(self) -> int:
        self.log += self.process.communicate(timeout=120)[1]
        return self.process.returncode

    def code(self, uses: int = 1000) -> str:
        vault = Vault(self.folder / "vault.sqlite", busy_seconds=10)
        code = vault.devices.issue_code(uses=uses, expires=1e12)
        vault.close()
        return code

    def round(self) -> Round:
        """The current round, from the vault."""
        with closing(Vault(self.folder / "vault.sqlite", busy_seconds=10)) as vault:
            return vault.round()

    def ready(self) -> bool:
        """What the operator's port says."""
        with closing(Client(self.operator_port, 60.0)) as operator:
            return operator.request("GET", "/ready")[0] == 200

    def enrolled(self, n: int, rounds: int = 1) -> list[Device]:
        """New devices, each with a token for every round from 0 on."""
        code = self.code(n)
        with closing(self.client()) as client:
            return [client.enrolled(code, rounds) for _ in range(n)]

    def metric(self, name: str) -> float:
        """A sample of the operator's metrics, by name and labels."""
        operator = self.operator()
        text = operator.request("GET", "/metrics")[2].decode()
        operator.close()
        (value,) = re.findall(rf"^{re.escape(name)} (.*)$", text, re.MULTILINE)
        return float(value)

    def operator(self, timeout: float = 60.0) -> Client:
        secret = operator_secret(self.folder)
        self._clients.append(Client(self.operator_port, timeout, f"Bearer {secret}"))
        return self._clients[-1]

    def client(self, timeout: float = 60.0) -> Client:
        self._clients.append(Client(self.port, timeout))
        return self._clients[-1]

    def __enter__(self) -> ServerProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()
        for client in self._clients:
            client.close()


class Client:
    """Plain http.client on one connection."""

    def __init__(self, port: int, timeout: float, authorization: str = "") -> None:
        self._always = {"authorization": authorization} if authorization else {}
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)

    def request(self, method, path, body=None, **headers):
        """(status, headers, body)"""
        named = self._always | {name.replace("_", "-"): value for name, value in headers.items()}
        chunked = "transfer-encoding" in named
        self._connection.request(method, path, body, named, encode_chunked=chunked)
        with self._connection.getresponse() as answer:  # closed also if it breaks off
            return answer.status, dict(answer.getheaders()), answer.read()

    def json(self, method, path, values=None, **headers):
        body = None if values is None else json.dumps(values)
        status, _, data = self.request(method, path, body, **headers)
        return status, json.loads(data)

    def round(self) -> int:
        """The round that is open, -1 if none is."""
        return self.json("GET", "/v1/digest")[1].get("round", -1)

    def enrolled(self, code: str, n_tokens: int = 1) -> Device:
        secret = self.json("POST", "/v1/enrol", {"code": code})[1]["secret"]
        return Device(secret, self.tokens(secret, n_tokens))

    def tokens(self, secret: str, n: int = 1) -> list[Token]:
        """Tokens of the newest key that the broadcast lists for the region of this secret."""
        keys = Broadcast.from_bytes(self.request("GET", "/v1/broadcast")[2]).keys
        key = [key for key in keys if key.region == secret.partition(".")[0]][-1]
        public = public_key(key)
        blindings = [public.new_blinding(MESSAGE) for _ in range(n)]
        status, words = self.ask(secret, key.id, [public.blind(each) for each in blindings])
        assert status == 200, words
        answers = map(from_base64, words["signatures"])
        return [Token.of(key, *pair) for pair in zip(blindings, answers, strict=True)]

    def ask(self, secret: str, key: str, blinded: list[bytes]) -> tuple[int, dict]:
        """(status, words) of a request for tokens"""
        values = {"key": key, "blinded": [to_base64(each) for each in blinded]}
        return self.json("POST", "/v1/tokens", values, authorization=f"Bearer {secret}")

    def report(self, device: Device | Token | str, body: bytes) -> tuple[int, str]:
        """(status, code), with the device's token of the report's round"""
        if isinstance(device, Device):
            try:
                device = device.token(Report.from_bytes(body).round)
            except (WireError, IndexError):
                device = device.token()
        text = device.text if isinstance(device, Token) else device
        status, _, data = self.request("POST", "/v1/report", body, authorization=f"Token {text}")
        words = json.loads(data)
        return status, words.get("error") or words["status"]

    def close(self) -> None:
        self._connection.close()


def payload(body: bytes) -> bytes:
    return Report.from_bytes(body).payload
