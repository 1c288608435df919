"""examples/client.mjs, a phone in JavaScript: against the vectors, a server and a rude one."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import itertools
import json
import shutil
import sqlite3
import subprocess
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from servers import ServerProcess

from nextapp.privacy.tokens import from_base64, to_base64
from nextapp.wire import Broadcast, History
from phone.small_server import FIRST, SECRET

ROOT = Path(__file__).parents[2]
VECTORS = ROOT / "tests" / "vectors"
NODE = shutil.which("node")
HISTORY = "app-0001,app-0003,app-0001,app-0004,unknown,app-0001"


def major_version() -> int:
    if NODE is None:
        return 0
    said = subprocess.run([NODE, "--version"], capture_output=True, text=True, check=False).stdout
    return int(said.lstrip("v").partition(".")[0] or 0)


pytestmark = pytest.mark.skipif(
    major_version() < 18, reason="Node.js 18 or later is not installed: apt install nodejs"
)


def node(*arguments: object, timeout: float = 300) -> subprocess.CompletedProcess:
    return subprocess.run(
        [NODE, *map(str, arguments)], capture_output=True, text=True, timeout=timeout, check=False
    )


def phone(port: int, *options: object, history: str = HISTORY) -> subprocess.CompletedProcess:
    generous = ["--epsilon", 9, "--day", 99, "--life", 99, "--hours", 0]
    return node(
        ROOT / "examples" / "client.mjs", "--server", f"http://127.0.0.1:{port}", "--now",
        "--history", history, *generous, *options,
    )  # fmt: skip


def vectors(name: str):
    return json.loads((VECTORS / name).read_text(encoding="utf-8"))


def test_it_agrees_with_every_vector():
    done = node(Path(__file__).parent / "javascript_vectors.mjs")
    assert done.returncode == 0, done.stderr
    met = json.loads(done.stdout)
    reports = Counter(one["request"]["mechanism"] for one in vectors("reports.json"))
    assert {name: met.get(name) for name in reports if name != "walsh"} == {
        name: n for name, n in reports.items() if name != "walsh"
    }
    told = vectors("walsh.json")
    assert met["walsh"] == reports["walsh"] + len(told["places"]) + len(told["codewords"])
    told = vectors("history.json")
    assert met["history"] == len(told["files"]) + len(told["long"])
    for name in ("broadcasts", "coins", "tokens", "bad-reports"):
        assert met[name] == len(vectors(f"{name}.json"))
    assert {path.stem for path in VECTORS.glob("*.json")} <= {*met, "reports"}


CROWD = {"learn": "crowd", "clip": None, "epsilon": 1.0}


@pytest.mark.parametrize(
    ("settings", "history"),
    [
        ({"mechanism": "harmony"}, HISTORY),
        ({**CROWD, "mechanism": "walsh"}, HISTORY),
        ({**CROWD, "mechanism": "walsh", "listed": False}, "mail,chat,mail,maps"),
    ],
    ids=["gradient", "transitions", "launches by bucket"],
)
def test_it_joins_a_round(tmp_path, settings, history):
    with ServerProcess(tmp_path, goal=2, minimum=1, **settings) as server:
        done = phone(server.port, "--code", server.code(1), history=history)
        assert done.stdout.strip().endswith("201 accepted"), done.stderr
        assert server.round().n_reports == 1


def test_it_follows_a_server_from_round_to_round_and_no_other(tmp_path):
    state = tmp_path / "state.json"
    with ServerProcess(tmp_path / "server", goal=1) as server:
        client = server.client()

        def until(round: int) -> None:
            while client.round() < round:
                time.sleep(0.02)

        for number in range(2):
            done = phone(server.port, "--state", state, "--code", server.code(1))
            assert done.stdout.startswith(f"round {number}:"), done.stderr
            assert done.stdout.strip().endswith("201 accepted")
            until(number + 1)
        seen = json.loads(state.read_text())
        state.write_text(json.dumps({**seen, "held": {**seen["held"], "digest": "ab" * 32}}))
        for away, answer in ((0, "does not continue round 1"), (8 * 86400, "201 accepted")):
            doubted = json.loads(state.read_text())
            if away:  # a week after the first refusal a server is believed again
                doubted["refusedSince"] -= away
                state.write_text(json.dumps(doubted))
            done = phone(server.port, "--state", state)
            assert answer in done.stdout + done.stderr
        until(3)
        assert phone(server.port, "--state", state).stdout.startswith("round 3:")


def test_a_phone_whose_secret_is_gone_enrols_anew_and_keeps_its_ledger(tmp_path):
    state = tmp_path / "state.json"
    charged = [[time.time() - 9e6, 2]]
    state.write_text(json.dumps({"secret": "main." + "B" * 43, "charged": charged}))
    with ServerProcess(tmp_path / "server", goal=9) as server:
        done = phone(server.port, "--state", state)
        assert (done.returncode, "401 unknown_secret" in done.stderr) == (1, True), done.stderr
        kept = json.loads(state.read_text())
        assert (kept["report"], kept["charged"]) == (None, charged)
        done = phone(server.port, "--state", state, "--anew", "--code", server.code(1))
        assert done.stdout.strip().endswith("201 accepted"), done.stderr
        assert [epsilon for _, epsilon in json.loads(state.read_text())["charged"]] == [2, 2]


def test_a_token_is_spent_hours_later_and_once(tmp_path):
    state = tmp_path / "state.json"
    with ServerProcess(tmp_path / "server", goal=9, tokens=1) as server:
        command = ["--server", f"http://127.0.0.1:{server.port}", "--history", HISTORY]
        command += ["--epsilon", 9, "--day", 99, "--life", 99, "--hours", 0, "--state", state]
        done = node(ROOT / "examples" / "client.mjs", *command, "--code", server.code(1))
        assert "spent hours after" in done.stdout, done.stderr
        kept = json.loads(state.read_text())
        ((token,),) = [each["signed"] for each in kept["tokens"].values()]
        assert 4 * 3600 - 60 < token["ready"] - time.time() < 28 * 3600 + 60
        assert "spent hours after" in node(ROOT / "examples" / "client.mjs", *command).stdout
        assert phone(server.port, "--state", state).stdout.strip().endswith("201 accepted")
        kept = json.loads(state.read_text())
        assert [each["signed"] for each in kept["tokens"].values()] == [[]]
        state.write_text(json.dumps({**kept, "drawn": None}))
        assert "are spent" in phone(server.port, "--state", state).stderr
        assert server.round().n_reports == 1


def test_after_a_long_absence_it_asks_for_the_digests_of_all_rounds(tmp_path):
    """The one in hand is older than the 64 that the new one's history lists."""
    links = vectors("history.json")["links"]
    listed = [[link["round"], link["digest"]] for link in links]
    history = History(tuple(map(tuple, listed[6:])), links[-1]["chain_of_the_next"])
    read = Broadcast.from_bytes((VECTORS / "broadcast-buckets.bin").read_bytes())
    new = replace(read, round=70, history=history).to_bytes()
    held = {key: links[5][key] for key in ("round", "digest", "chain")}
    state = tmp_path / "state.json"
    with RudeServer(new, [(201, {})]) as server:
        for digests, answer in ((listed[6:], "does not continue"), (listed, "201 scripted")):
            state.write_text(json.dumps({"secret": SECRET, "held": held}))
            server.digests = digests
            done = phone(server.server_address[1], "--state", state)
            assert answer in done.stdout + done.stderr
        asked = [path for path, *_ in server.seen if path.startswith("/v1/digests")]
    starts = [listed[number][0] for number in (6 + 20, 6 + 40, 6 + 60)], [20, 40, 60]
    assert asked == [f"/v1/digests?from={first}" for some in starts for first in (0, *some)]


def test_it_keeps_the_bytes_while_a_server_takes_none(tmp_path):
    state = tmp_path / "state.json"
    with ServerProcess(tmp_path / "server", goal=9) as server:
        vault = sqlite3.connect(server.folder / "vault.sqlite", timeout=60)
        vault.execute(
            "CREATE TRIGGER full BEFORE INSERT ON reports BEGIN SELECT RAISE(ABORT, 'full'); END"
        )
        before = time.time()
        done = phone(server.port, "--state", state, "--code", server.code(1), "--patience", 0)
        assert (done.returncode, "503 storage" in done.stderr) == (75, True), done.stderr
        kept = json.loads(state.read_text())
        assert before + 9.9 < kept["notBefore"] < time.time() + 10.1  # Retry-After
        done = phone(server.port, "--state", state)
        assert "the server asked to wait another" in done.stderr
        vault.execute("DROP TRIGGER full")
        vault.close()
        for answer in ("201 accepted", "200 repeated"):
            state.write_text(json.dumps({**kept, "notBefore": 0}))
            done = phone(server.port, "--state", state)
            assert done.stdout.strip().endswith(answer), done.stderr
        vault.close()
        assert server.round().n_reports == 1


def test_it_waits_as_long_as_a_server_asks(tmp_path):
    state = tmp_path / "state.json"
    limits = {"device_burst": 1, "device_seconds": 8, "address_burst": 1e9}
    with ServerProcess(tmp_path / "server", goal=9, limits=limits) as server:
        client = server.client()
        secret = client.json("POST", "/v1/enrol", {"code": server.code()})[1]["secret"]
        state.write_text(json.dumps({"secret": secret}))
        assert client.ask(secret, "x", [b"nonsense"])[0] == 409
        start = time.monotonic()
        done = phone(server.port, "--state", state)
        assert done.stdout.strip().endswith("201 accepted"), done.stderr
        assert time.monotonic() - start > 1
        assert server.metric('nextapp_requests_total{code="too_many_requests",route="tokens"}') == 1


class RudeServer(http.server.ThreadingHTTPServer):
    """Hands out one broadcast; answers reports by a script and keeps what it was sent."""

    def __init__(self, broadcast: bytes, script: list, endless: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), RudeHandler)
        self.broadcast, self.script, self.seen, self.endless = broadcast, script, [], endless
        self.digests: list = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


class RudeHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: RudeServer

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _note(self, body: bytes = b"") -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.seen.append((self.path, headers, body, self.client_address, time.monotonic()))

    def do_GET(self) -> None:
        self._note()
        if self.server.endless and self.path == "/v1/broadcast":  # 64 KiB that unpack to 64 MiB
            return self._answer(200, gzip.compress(bytes((64 << 20) + 1)), Content_Encoding="gzip")
        if self.path.startswith("/v1/digests?from="):
            first = int(self.path.partition("=")[2])
            page = [each for each in self.server.digests if each[0] >= first][:20]
            return self._answer(200, json.dumps({"digests": page}).encode())
        if self.path == "/v1/digest":
            digest = hashlib.sha256(self.server.broadcast).hexdigest()
            return self._answer(200, json.dumps({"round": 2, "sha256": digest}).encode())
        return self._answer(200, gzip.compress(self.server.broadcast), Content_Encoding="gzip")

    def do_POST(self) -> None:
        self._note(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/v1/enrol":
            return self._answer(201, json.dumps({"secret": SECRET}).encode())
        if self.path == "/v1/tokens":
            asked = json.loads(self.server.seen[-1][2])["blinded"]
            signed = [to_base64(FIRST.sign(from_base64(each))) for each in asked]
            return self._answer(200, json.dumps({"signatures": signed}).encode())
        step = self.server.script.pop(0)
        if step is None:  # no answer at all
            self.close_connection = True
            return None
        status, headers = step
        return self._answer(status, b'{"status": "scripted", "error": "scripted"}', **headers)

    def log_message(self, *_: object) -> None:
        pass


def test_it_sends_the_same_bytes_until_there_is_an_answer(tmp_path):
    script = [(503, {"Retry_After": "1"}), None, (429, {}), (201, {})]
    broadcast = (VECTORS / "broadcast-buckets.bin").read_bytes()
    with RudeServer(broadcast, script) as server:
        port = server.server_address[1]
        done = phone(port, "--code", "X", "--state", tmp_path / "s", history="mail,x,mail")
        assert done.stdout.strip().endswith("201 scripted"), done.stderr
        assert script == []
        reports = [each for each in server.seen if each[0] == "/v1/report"]
        assert len({body for _, _, body, _, _ in reports}) == 1 < len(reports) == 4
        assert reports[1][4] - reports[0][4] >= 1
        assert json.loads((tmp_path / "s").read_text())["report"] is None


def test_what_it_asks_for_tells_nothing_of_the_phone(tmp_path):
    """A new phone and one with a state make the same requests, with no secret or token, each on its
    own connection."""
    broadcast = (VECTORS / "broadcast-buckets.bin").read_bytes()
    old = {"secret": SECRET, "held": {"round": 1, "digest": "ab" * 32, "chain": "00" * 32}}
    (tmp_path / "old").write_text(json.dumps({**old, "refusedSince": 0}))
    asked = []
    for name, history in (("new", ""), ("old", "mail,x,mail")):
        with RudeServer(broadcast, [(201, {})]) as server:
            port = server.server_address[1]
            done = phone(port, "--code", "X", "--state", tmp_path / name, history=history)
            assert done.returncode == 0, done.stderr
            connections = [each[3] for each in server.seen]
            assert len(set(connections)) == len(connections)
            asked.append(
                [
                    (path, {**headers, "host": ""})
                    for path, headers, *_ in server.seen
                    if path in ("/v1/digest", "/v1/broadcast")
                ]
            )
            for path, headers, *_ in server.seen:
                known = {"/v1/report": "Token main-", "/v1/tokens": f"Bearer {SECRET}"}
                assert headers.get("authorization", "").startswith(known.get(path, ""))
                assert ("authorization" in headers) == (path in known)
    assert asked[0] == asked[1] != []


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        (("--epsilon", 0.5), "beyond the owner's 0.5"),
        (("--day", 0.5), "left of this day's 0.5"),
        (("--life", 0.5), "left of this phone's 0.5"),
        (("--hours", 20), "less than 20 hours ago"),
    ],
    ids=["report", "day", "life", "hours"],
)
def test_it_reports_within_its_owners_limits_only(tmp_path, limit, says):
    state = tmp_path / "state"
    charged = [[time.time() - 3600, 0.1]] if "--hours" in limit else []
    state.write_text(json.dumps({"secret": SECRET, "charged": charged}))
    with RudeServer((VECTORS / "broadcast-buckets.bin").read_bytes(), [(201, {})]) as server:
        port = server.server_address[1]
        done = phone(port, "--state", state, *limit)
        assert done.returncode == 1
        assert says in done.stderr
        assert {path for path, *_ in server.seen} == {"/v1/digest", "/v1/broadcast"}
        for answer in ("201 scripted", "no report to send"):  # once the owner allows it
            done = phone(port, "--state", state)
            assert done.stdout.strip().endswith(answer), done.stderr


def test_it_reads_nothing_that_is_not_published():
    class Liar(RudeServer):
        @property
        def broadcast(self) -> bytes:
            return next(self.others)

        @broadcast.setter
        def broadcast(self, _: bytes) -> None:
            self.others = (b"other bytes %d" % i for i in itertools.count())

    with Liar(b"", []) as server:
        done = phone(server.server_address[1], "--code", "X")
        assert "not the bytes whose digest the server publishes" in done.stderr


def test_it_reads_no_answer_beyond_its_limit():
    with RudeServer(b"", [], endless=True) as server:
        done = phone(server.server_address[1], "--code", "X")
        assert "/v1/broadcast answers with more than 4194304 bytes" in done.stderr
