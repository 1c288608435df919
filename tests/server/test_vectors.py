"""The test vectors of docs/protocol.md, and a client that was written from that page alone."""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import struct
import subprocess
import sys
import time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest
from servers import ServerProcess

from nextapp.privacy import mechanism
from nextapp.privacy.tokens import Token, from_base64, public_key
from nextapp.randomness import TokenCoins
from nextapp.wire import Broadcast, History, Report, TokenKey, WireError

ROOT = Path(__file__).parents[2]
VECTORS = ROOT / "tests" / "vectors"


def loaded(path: Path):
    spec = spec_from_file_location(path.stem, path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


other = loaded(ROOT / "examples" / "other_client.py")


def vectors(name: str):
    return json.loads((VECTORS / name).read_text(encoding="utf-8"))


class GivenWords:
    def __init__(self, words):
        self.left = list(map(int, words))

    def next(self) -> int:
        return self.left.pop(0)


def test_the_vectors_are_what_their_script_writes():
    make = loaded(VECTORS / "make.py")
    for name, data in make.broadcasts().items():
        assert (VECTORS / name).read_bytes() == data
    for name, text in make.texts().items():
        if name == "gradient.json":
            continue  # floats that a solve gives may end in other digits on other machines
        assert vectors(name) == json.loads(text), name


def test_the_other_client_imports_nothing_but_the_standard_library():
    code = (
        "import sys; sys.path.insert(0, 'examples'); import other_client; "
        "assert not {'numpy', 'nextapp'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


@pytest.mark.parametrize("name", vectors("broadcasts.json"))
def test_another_client_reads_the_broadcasts(name):
    data, expected = (VECTORS / name).read_bytes(), vectors("broadcasts.json")[name]
    read = other.read_broadcast(data)
    assert read["Q"] == expected["app_vectors"]
    for key in ("round", "apps", "settings", "request", "history"):
        assert read[key] == expected[key]
    assert hashlib.sha256(data).hexdigest() == expected["sha256"]
    other.check(read)
    ours = Broadcast.from_bytes(data)
    assert ours.app_vectors.tolist() == read["Q"]
    with pytest.raises(ValueError, match="damaged"):
        other.read_broadcast(data[:-1] + bytes([data[-1] ^ 1]))


def test_another_client_solves_the_same_user_vector_and_gradient():
    expected = vectors("gradient.json")
    read = other.read_broadcast((VECTORS / expected["broadcast"]).read_bytes())
    p, F = other.gradient(expected["history"], read["Q"], read["settings"])
    tolerance = expected["relative_tolerance"]
    np.testing.assert_allclose(p, expected["user_vector"], rtol=tolerance)
    np.testing.assert_allclose(F, expected["gradient"], rtol=tolerance, atol=1e-12)
    words = GivenWords(loaded(VECTORS / "make.py").word(i) for i in range(expected["words_taken"]))
    coins = coins_of(expected)
    payload = other.harmony(F, read["request"], words, coins)
    assert other.report_bytes("harmony", read["round"], payload).hex() == expected["report"]
    assert not words.left


def coins_of(vector: dict):
    """As another client draws them."""
    return other.Coins(from_base64(vector["signature"]))


def test_another_client_draws_the_same_reports_by_harmony():
    some = [one for one in vectors("reports.json") if one["request"]["mechanism"] == "harmony"]
    assert len(some) == 9
    for one in some:
        words, coins = GivenWords(one["words"]), GivenWords(one["coins"])
        payload = other.harmony(one["gradient"], one["request"], words, coins)
        assert payload.hex() == one["payload"]
        assert not words.left
        assert not coins.left
        coins = coins_of(one)  # the same, by HMAC
        assert [str(coins.next()) for _ in one["coins"]] == one["coins"] != []
        assert other.report_bytes("harmony", one["round"], payload).hex() == one["report"]


def test_another_client_draws_the_same_reports_by_walsh():
    """Of gradients and of clipped shares."""
    some = [one for one in vectors("reports.json") if one["request"]["mechanism"] == "walsh"]
    assert len(some) == 18
    assert sum("shares" in one for one in some) == 9
    for one in some:
        F = one.get("gradient") or matrix(one)
        words, coins = GivenWords(one["words"]), coins_of(one)
        assert other.walsh(F, one["request"], words, coins).hex() == one["payload"]
        assert not words.left


def test_another_client_has_the_same_places_for_walsh():
    told = vectors("walsh.json")
    for one in told["places"]:
        v = other.place(one["entry"], one["n"])
        assert (v, (-1) ** (v & v >> 1).bit_count()) == (one["place"], one["sign"])
    for one in told["codewords"]:
        n, j, key = one["n"], one["j"], (int(one["seed"]), int.from_bytes(b"walsh", "little"))
        words = [w for g in range(8 + j // 4 + 1) for w in other.philox((g + 1, 0, 0, 0), key)]
        for part in range(64):
            row = words[part // 2] >> 32 * (part % 2)
            turned = j % 2**n << part % n
            row ^= turned | turned >> n
            assert row % 2**n == one["rows"][part]
            assert one["signs"][part] == (1 if words[32 + j] >> part & 1 else -1)


def matrix(one: dict) -> list[list[float]]:
    """The shares of a vector in full."""
    F = [[0.0] * (one["n_apps"] + 1) for _ in range(one["n_apps"])]
    for row, column, share in one["shares"]:
        F[row][column] = share
    return F


def test_another_client_has_the_same_transition_vector():
    expected = vectors("transitions.json")
    history = [None if app == expected["left_out"] else app for app in expected["history"]]
    found = other.transition_vector(history, expected["n_apps"])
    np.testing.assert_allclose(found, expected["transition_vector"], rtol=1e-12)
    assert math.isclose(np.linalg.norm(found), 1.0)


def test_another_client_reports_the_same_of_a_history():
    expected = vectors("transitions.json")
    F = other.transition_vector(expected["history"], expected["n_apps"])
    for one in expected["reports"]:
        words, coins = GivenWords(one["words"]), coins_of(one)
        payload = other.walsh(F, expected["request"], words, coins)
        assert other.report_bytes("walsh", expected["round"], payload).hex() == one["report"]
        assert not words.left


def test_another_client_finds_the_same_buckets_launches_and_crowd():
    expected = vectors("launches.json")
    read = other.read_broadcast((VECTORS / expected["broadcast"]).read_bytes())
    assert read["buckets"] == {key: expected[key] for key in ("n_buckets", "salt", "slots")}
    for name, number in expected["bucket_of"].items():
        assert other.bucket(name, read["buckets"]) == number
    told = other.launches(expected["history"], read["buckets"])
    assert {str(i): row[0] for i, row in enumerate(told) if row[0]} == expected["launches"]
    for key, values in expected["crowd"].items():
        np.testing.assert_allclose(read["crowd"][key], values, rtol=1e-12)


def test_coins_are_the_same_by_hmac_alone():
    for one in vectors("coins.json"):
        coins = coins_of(one)
        assert [str(coins.next()) for _ in one["words"]] == one["words"]
        assert other.distinct(coins_of(one), 5, 1600) == (one["distinct_5_of_1600"])
        for i, expected in enumerate(one["words"]):
            said = b"nextapp coins" + struct.pack("<Q", i)
            word = hmac.digest(from_base64(one["signature"]), said, "sha256")[:8]
            assert str(int.from_bytes(word, "little")) == expected


def test_another_client_makes_the_same_tokens():
    """Whose numbers come from a third program; see blind_signatures.json."""
    for one in vectors("tokens.json"):
        key, answer = one["key"], from_base64(one["answer"])
        assert other.key_id(key) == TokenKey(**key).id == one["id"]
        assert other.base64url(other.blinded(key, one)) == one["blinded"]
        token = other.unblinded(key, one, answer)
        assert token == one["token"]
        Token.from_text(token).check(public_key(TokenKey(**key)))
        coins = other.Coins(other.signature_of(token))
        assert [str(coins.next()) for _ in one["words"]] == one["words"]
        with pytest.raises(ValueError, match="another key"):
            other.unblinded(key, one, bytes(255) + b"1")


def test_another_client_hides_every_factor_of_what_it_blinds():
    n = 15_015 * ((1 << 2048) // 15_015 - 1 | 1)
    key = {"region": "main", "modulus": f"{n:x}", "tokens": 1}
    for _ in range(20):
        z = other.blinded(key, other.new_blinding(key))
        assert math.gcd(int.from_bytes(z), 15_015) == 1


def test_reports_of_the_vectors_are_those_that_a_gateway_takes():
    """Where there is a public part it is that of the token, and of no other."""
    for one in vectors("reports.json"):
        report = Report.from_bytes(bytes.fromhex(one["report"]))
        d = one["n_apps"] + 1 if "shares" in one else len(one["gradient"][0])
        made = mechanism(
            one["request"]["mechanism"], n_apps=one.get("n_apps") or len(one["gradient"]), d=d,
            epsilon=one["request"]["epsilon"], clip=one["request"]["clip"],
            **one["request"]["options"],
        )  # fmt: skip
        assert made.matches_coins(report, TokenCoins(from_base64(one["signature"])))
        assert one["coins"]


def test_two_programs_agree_on_which_broadcast_continues_which():
    told = vectors("history.json")
    for one in told["files"]:
        data = (VECTORS / one["offered"]).read_bytes()
        read, ours, held = other.read_broadcast(data), Broadcast.from_bytes(data), one["held"]
        assert other.continues(read["history"], held) is one["continues"]
        assert ours.history.continues(**held) is one["continues"]
        if one["continues"]:
            other.check_continues(read, held, lambda *_: [])
        else:
            with pytest.raises(ValueError, match="does not continue"):
                other.check_continues(read, held, lambda *_: [])
    links = told["links"]
    for one in told["long"]:
        some = links[one["first_told"] : one["last_told"] + 1]
        history = {
            "digests": [[link["round"], link["digest"]] for link in some],
            "chain": some[-1]["chain_of_the_next"],
        }
        assert other.continues(history, one["held"]) is one["continues"]
        if one["continues"] is None:  # away for long: by the list of all digests
            new = {"round": one["last_told"] + 1, "history": history}
            listed = [[link["round"], link["digest"]] for link in links]
            other.check_continues(new, one["held"], lambda *_, listed=listed: listed)
            for wrong in ([], listed[7:], [*listed[:20], *listed[21:]]):
                with pytest.raises(ValueError, match="does not continue"):
                    other.check_continues(new, one["held"], lambda *_, wrong=wrong: wrong)
        digests = tuple((link["round"], link["digest"]) for link in some)
        ours = History(digests, some[-1]["chain_of_the_next"])
        assert ours.continues(**one["held"]) is one["continues"]


def test_no_number_of_the_vectors_is_too_large_for_a_float():
    def numbers(value):
        if isinstance(value, dict | list):
            for one in value.values() if isinstance(value, dict) else value:
                yield from numbers(one)
        elif isinstance(value, int):
            yield value

    for path in VECTORS.glob("*.json"):
        assert all(abs(one) < 2**53 for one in numbers(vectors(path.name))), path.name


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"Q": []}, "apps of"), ({"Q": [[1e7]]}, "no scale"), ({"Q": [[float("nan")]]}, "scale"),
        ({"apps": ["a", "a"], "Q": [[1.0], [1.0]]}, "twice"), ({"apps": [""]}, "name"),
        ({"apps": ["a", "b"]}, "does not fit"), ({"settings": {"lam": 1e-9}}, "lam"),
        ({"keys": [{"region": "eu"}] * 3}, "keys"),
        ({"keys": [{"region": f"r{i}"} for i in range(65)]}, "keys"),
    ],
)  # fmt: skip
def test_another_client_refuses_what_no_phone_should_compute_with(change, says):
    good = {"Q": [[1.0]], "apps": ["a"], "settings": {"lam": 0.3}, "buckets": None, "keys": []}
    other.check(good)
    with pytest.raises(ValueError, match=says):
        other.check({**good, **change})


@pytest.mark.parametrize(
    "change",
    [
        {"mechanism": "laplace"}, {"epsilon": 1.1}, {"epsilon": float("nan")}, {"clip": None},
        {"question": "names"}, {"clip": 1e-12}, {"options": {"k": 65}}, {"options": {"l": 1}},
    ],
)  # fmt: skip
def test_another_client_holds_a_request_against_its_limits(change):
    good = {
        "mechanism": "harmony", "epsilon": 1.0, "clip": 1.0, "options": {"k": 3},
        "question": "gradient",
    }  # fmt: skip
    other.check_request(good, 1.0)
    with pytest.raises(ValueError, match=r"."):
        other.check_request({**good, **change}, 1.0)


def test_bad_reports_are_refused():
    for one in vectors("bad-reports.json"):
        with pytest.raises(WireError):
            Report.from_bytes(bytes.fromhex(one["report"]))


def phone(server: ServerProcess, *options: str) -> subprocess.CompletedProcess:
    command = [
        sys.executable, str(ROOT / "examples" / "other_client.py"),
        "--server", f"http://127.0.0.1:{server.port}", "--now", "--epsilon", "9",
        "--history", "app-0001,app-0003,app-0001,app-0004,unknown,app-0001", *options,
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"mechanism": "walsh"},
        {"learn": "crowd", "mechanism": "walsh", "clip": None},
    ],
    ids=["harmony", "walsh", "crowd"],
)
def test_another_client_joins_a_round(tmp_path, settings):
    with ServerProcess(tmp_path, goal=2, minimum=1, **settings) as server:
        done = phone(server, "--code", server.code(1))
        assert done.stdout.strip().endswith("201 accepted"), done.stderr
        assert server.round().n_reports == 1


def test_another_client_follows_a_server_from_round_to_round_and_no_other(tmp_path):
    state = tmp_path / "state.json"
    with ServerProcess(tmp_path / "server", goal=1) as server:
        client = server.client()

        def until(round: int) -> None:
            while client.round() < round:
                time.sleep(0.05)

        done = phone(server, "--state", str(state), "--code", server.code(1))
        assert done.stdout.strip().endswith("201 accepted"), done.stderr
        until(1)
        seen = json.loads(state.read_text())
        for number in (1, 2):
            done = phone(server, "--state", str(state))
            assert f"round {number}" in done.stdout, done.stderr
            assert done.stdout.strip().endswith("201 accepted")
            until(number + 1)
        seen = {**json.loads(state.read_text()), "held": seen["held"]}
        state.write_text(json.dumps(seen))  # away for three rounds
        assert "round 3" in phone(server, "--state", str(state)).stdout
        until(4)
        seen = {**json.loads(state.read_text()), "held": seen["held"]}
        forked = {**seen, "held": {**seen["held"], "digest": "ab" * 32}}
        state.write_text(json.dumps(forked))
        done = phone(server, "--state", str(state))
        assert "does not continue round 0" in done.stderr
        assert server.round().n_reports == 0


def test_another_client_sends_the_same_bytes_again(tmp_path):
    state = tmp_path / "state.json"
    with ServerProcess(tmp_path / "server", goal=2) as server:
        for answer in ("201 accepted", "200 repeated"):
            done = phone(server, "--state", str(state), "--code", server.code(1))
            assert done.stdout.strip().endswith(answer), done.stderr
        asked = phone(server, "--epsilon", "1.5", "--code", server.code(1))
        assert "is more than 1.5 for a report" in asked.stderr
        assert server.round().n_reports == 1
