"""A server of the agreed protocol in a few lines, that can be told to misbehave."""

from __future__ import annotations

import gzip
import hashlib
import json
import ssl
import threading
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from nextapp.privacy.tokens import MESSAGE, BadSignature, PrivateKey, Token, from_base64, to_base64
from nextapp.wire import Broadcast, History, Report, TokenKey

VECTORS = Path(__file__).parents[1] / "vectors" / "blind_signatures.json"
_, FIRST, SECOND = (
    PrivateKey(int(vector["p"], 16), int(vector["q"], 16))
    for vector in json.loads(VECTORS.read_text())["vectors"]
)
SECRET = "main." + "t" * 43


def listed(key: PrivateKey = FIRST, tokens: int = 20, region: str = "main") -> TokenKey:
    """A key as broadcasts list it."""
    return TokenKey(region, f"{key.public.n:0512x}", tokens)


KEY = listed()


def new_token() -> Token:
    """Of the first key."""
    blinding = FIRST.public.new_blinding(MESSAGE)
    return Token.of(KEY, blinding, FIRST.sign(FIRST.public.blind(blinding)))


class SmallServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, broadcast: Broadcast, certificate: tuple[str, str] | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        scheme = "http"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True)
            scheme = "https"
        self.url = f"{scheme}://localhost:{self.server_address[1]}"
        self.history = History()
        self.round = -1
        self.digest: str | None = None  # that it publishes; None: the true one
        self.publish(broadcast)
        self.taken: dict[int, bytes] = {}
        self.arrived: list[bytes] = []
        self.asked: list[list[str]] = []  # blinded, of each request for tokens
        self.key = FIRST
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.mishap: Callable[[Handler], bool] = lambda handler: False

    def publish(self, broadcast: Broadcast | bytes) -> None:
        """Hand out a broadcast; a later one gets the history of those before it."""
        if isinstance(broadcast, Broadcast):
            if broadcast.round > self.round:
                broadcast = replace(broadcast, history=self.history)
                self.history = self.history.after(broadcast.round, broadcast.to_bytes())
            self.round = broadcast.round
        self.broadcast = broadcast

    def data(self) -> bytes:
        data = self.broadcast
        return data if isinstance(data, bytes) else data.to_bytes()

    def handle_error(self, request, client_address):
        pass


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: SmallServer

    def log_message(self, *_):
        pass

    def answer(self, status: int, body: bytes | dict = b"", **headers: str) -> bool:
        if isinstance(body, dict):
            body = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)
        return True

    def do_GET(self):
        self.body = b""
        self.server.requests.append(("GET", self.path, dict(self.headers)))
        if self.server.mishap(self):
            return
        data = self.server.data()
        digest = hashlib.sha256(data).hexdigest()
        etag = f'"{digest}"'
        if self.path == "/v1/digest":
            self.answer(200, {"round": self.server.round, "sha256": self.server.digest or digest})
        elif "gzip" in self.headers.get("Accept-Encoding", ""):
            self.answer(200, gzip.compress(data, 1), ETag=etag, Content_Encoding="gzip")
        else:
            self.answer(200, data, ETag=etag)

    def do_POST(self):
        self.body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append(("POST", self.path, dict(self.headers)))
        if self.path == "/v1/report":
            self.server.arrived.append(self.body)
        if self.server.mishap(self):
            return
        if self.path == "/v1/enrol":
            if json.loads(self.body) == {"code": "welcome"}:
                self.server.asked.clear()  # another device
                self.answer(201, {"secret": SECRET})
            else:
                self.answer(403, {"error": "bad_code", "message": "no such code"})
        elif self.path == "/v1/tokens":
            self.sign()
        else:
            self.take(self.body)

    def sign(self) -> None:
        if self.headers.get("Authorization") != f"Bearer {SECRET}":
            self.answer(401, {"error": "unknown_secret", "message": "who is this?"})
            return
        blinded = json.loads(self.body)["blinded"]
        self.server.asked.append(blinded)
        if blinded != self.server.asked[0]:
            self.answer(409, {"error": "already_issued", "message": "once only"})
            return
        key = self.server.key
        numbers = [int.from_bytes(from_base64(each)) % key.public.n for each in blinded]
        signed = [to_base64(key.sign(number.to_bytes(256))) for number in numbers]
        self.answer(200, {"signatures": signed})

    def take(self, body: bytes) -> None:
        try:
            token = Token.from_text(self.headers.get("Authorization", "").removeprefix("Token "))
            token.check(FIRST.public)
        except BadSignature:
            self.answer(401, {"error": "bad_token", "message": "not signed here"})
            return
        round_ = Report.from_bytes(body).round
        if round_ < self.server.round:
            self.answer(410, {"error": "round_closed", "message": "too late"})
        elif self.server.taken.setdefault(round_, body) == body:
            self.answer(201)
        else:
            self.answer(409, {"error": "already_spent", "message": "other bytes"})


@contextmanager
def serving(broadcast: Broadcast, certificate: tuple[str, str] | None = None):
    server = SmallServer(broadcast, certificate)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
