"""A phone in plain Python: no NumPy, nothing of nextapp. Written from docs/protocol.md alone.

It shows that the protocol page is enough to write a client in another language, and how much there
is to write: the two file formats; the mechanisms harmony and walsh; for app vectors two equations;
for the crowd the transition vector of a history.

    python examples/other_client.py --server http://127.0.0.1:8443 --code ABCD-… --history a,b,a

With --state FILE it keeps its secret and tokens, which
broadcast it has seen and the bytes of its report, as a
phone must. A real phone must also count what it has spent.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import hmac
import json
import math
import os
import secrets
import ssl
import struct
import sys
import time
import urllib.error
import urllib.request
import zlib
from collections import Counter
from collections.abc import Callable
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from itertools import accumulate, pairwise
from pathlib import Path

W = 1 << 64
LARGEST_BROADCAST, LARGEST_ANSWER = 4 << 20, 64 << 10


# Formats


def read_broadcast(data: bytes) -> dict:
    """Round, apps, settings, request, the rows of Q; buckets and crowd, or None where it has none.

    An error unless its digest is right.
    """
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    words, body = header.pop("__metadata__"), data[8 + length :]
    digest = words.pop("sha256")
    text = json.dumps([header, words], sort_keys=True).encode()
    if hashlib.sha256(text + b"\0" + body).hexdigest() != digest:
        raise ValueError("the broadcast is damaged")

    def numbers(name: str) -> tuple:
        start, stop = header[name]["data_offsets"]
        letter, size = {"F64": ("d", 8), "U8": ("B", 1), "U16": ("H", 2), "U32": ("I", 4)}[
            header[name]["dtype"]
        ]
        return struct.unpack(f"<{(stop - start) // size}{letter}", body[start:stop])

    if "app_vectors" in header:
        (n_apps, d), Q = header["app_vectors"]["shape"], numbers("app_vectors")
    else:  # a server of the crowd has no app vectors
        n_apps, d, Q = int(words["n_apps"]), 0, ()
    buckets = json.loads(words["buckets"]) if "buckets" in words else None
    if buckets is not None:
        buckets["slots"] = list(numbers("slots"))
    crowd = None
    if "crowd.share" in header:
        popular = [0.0 if q == 65535 else 2.0 ** (-q / 2048) for q in numbers("crowd.popularity")]
        crowd = {
            "popularity": [each / sum(popular) for each in popular],
            "starts": list(accumulate(numbers("crowd.followers"), initial=0)),
            "following": list(numbers("crowd.following")),
            "share": [2.0 ** (-q / 24) for q in numbers("crowd.share")],
        }
    return {
        "round": int(words["round"]),
        "settings": json.loads(words["settings"]),
        "apps": json.loads(words["apps"]),
        "request": json.loads(words["request"]) if "request" in words else None,
        "history": json.loads(words.get("history", "null")) or {"digests": [], "chain": "00" * 32},
        "Q": [list(Q[row * d : row * d + d]) for row in range(n_apps)],
        "buckets": buckets,
        "crowd": crowd,
        "keys": json.loads(words.get("keys", "[]")),
    }


def check(broadcast: dict) -> None:
    """Bounds that hold for every phone, before a launch is looked at; else a ValueError."""
    Q, apps, lam = broadcast["Q"], broadcast["apps"], broadcast["settings"]["lam"]
    n_apps, d = len(Q), len(Q[0]) if Q else 0
    least = 1 if broadcast["buckets"] is None else 0
    if not (least <= n_apps <= 1 << 14 and d <= 1 << 7 and n_apps * d <= 1 << 18):
        raise ValueError(f"{n_apps} apps of {d} dimensions are not for a phone")
    if not all(abs(value) <= 1e6 for row in Q for value in row):  # False for NaN, too
        raise ValueError("Q has entries that are no scale")
    if not 1e-6 <= lam <= 1e6:
        raise ValueError("lam is no scale")
    if apps and len(apps) != n_apps:
        raise ValueError("the catalogue does not fit Q")
    if len(set(apps)) != len(apps) or not all(0 < len(name) <= 255 for name in apps):
        raise ValueError("the catalogue names an app twice, or with no or too long a name")
    regions = [key["region"] for key in broadcast["keys"]]
    if len(regions) > 64 or any(regions.count(each) > 2 for each in regions):
        raise ValueError("so many keys would tell phones apart")


def check_request(request: dict, most_epsilon: float) -> None:
    """What the owner allows decides; the server only asks."""
    known = {
        "harmony": {"k": 64},
        "walsh": {"b": 8},
    }
    if request["mechanism"] not in known:
        raise ValueError(f"this phone does not report by {request['mechanism']!r}")
    if not 0 < request["epsilon"] <= most_epsilon:
        raise ValueError(f"ε = {request['epsilon']} is more than {most_epsilon} for a report")
    if request["question"] not in ("gradient", "launches", "transitions"):
        raise ValueError(f"this phone does not answer {request['question']!r}")
    if request["clip"] is None or not 1e-9 <= request["clip"] <= 1e9:
        raise ValueError("the clip is no scale")
    for option, value in request["options"].items():
        if not 0 < value <= known[request["mechanism"]].get(option, 0):
            raise ValueError(f"this phone does not do {option} = {value}")


def continues(history: dict, held: dict) -> bool | None:
    """Whether the broadcast that is held is part of the history that a new one tells.

    None where it is too long ago to tell.
    """
    later = [(number, digest) for number, digest in history["digests"] if number >= held["round"]]
    if not later or later[0] != (held["round"], held["digest"]):
        oldest = history["digests"][0][0] if len(history["digests"]) == 64 else 0
        return None if oldest > held["round"] else False
    chain = bytes.fromhex(held["chain"])
    for _, digest in later:
        chain = hashlib.sha256(chain + bytes.fromhex(digest)).digest()
    return chain.hex() == history["chain"]


def check_continues(new: dict, held: dict, digests: Callable[[int, int], list[list]]) -> None:
    """`digests` asks for those of all broadcasts between: for a phone that was away for long."""
    in_reach = 0 < new["round"] - held["round"] <= 1 << 20
    continued = continues(new["history"], held)
    if continued is None and in_reach:
        listed = digests(held["round"], new["round"])
        listed = [each for each in listed if each[0] < new["round"]]
        continued = continues({**new["history"], "digests": listed}, held)
    if not (in_reach and continued):
        raise ValueError(
            f"round {new['round']} does not continue round {held['round']} as it was seen here"
        )


def report_bytes(mechanism: str, round_: int, payload: bytes) -> bytes:
    name = mechanism.encode()
    body = struct.pack("<2sBBQI", b"nR", 1, len(name), round_, len(payload)) + name + payload
    return body + struct.pack("<I", zlib.crc32(body))


def packed(values: list[int], widths: list[int]) -> bytes:
    """Bit fields side by side, the first in the lowest bits."""
    word, shift = 0, 0
    for value, width in zip(values, widths, strict=True):
        word |= value << shift
        shift += width
    return word.to_bytes((shift + 7) // 8, "little")


# The phone's gradient


def gradient(history: list[int], Q: list[list[float]], settings: dict):
    """The user vector p and F(u), for the reading "example"."""
    n_apps, d = len(Q), len(Q[0])
    lam, alpha, gamma = settings["lam"], settings["alpha"], settings["gamma"]
    launches = Counter(history)
    powers = [float(launches[i]) ** gamma if launches[i] else 0.0 for i in range(n_apps)]
    total = sum(powers) + alpha * n_apps
    c = [(power + alpha) / total if total else 0.0 for power in powers]
    a = [1.0 if launches[i] else 0.0 for i in range(n_apps)]
    pairs, leaving = Counter(pairwise(history)), Counter(history[:-1])
    S = {(i, j): n / leaving[i] for (i, j), n in pairs.items()}
    h = [0.0] * n_apps
    for (i, j), weight in S.items():
        h[i] += weight * dot(Q[i], Q[j])
    A = [[lam * (r == s) for s in range(d)] for r in range(d)]
    b = [0.0] * d
    for i in range(n_apps):
        for r in range(d):
            b[r] += c[i] * (a[i] - h[i]) * Q[i][r]
            for s in range(d):
                A[r][s] += c[i] * Q[i][r] * Q[i][s]
    p = solved(A, b)
    D = [c[i] * (dot(Q[i], p) + h[i] - a[i]) for i in range(n_apps)]
    F = [[D[i] * value for value in p] for i in range(n_apps)]
    for (i, j), weight in S.items():
        for r in range(d):
            F[i][r] += D[i] * weight * Q[j][r]
            F[j][r] += D[i] * weight * Q[i][r]
    return p, F


def transition_vector(history: list[int | None], n_apps: int) -> list[list[float]]:
    """All transitions as one vector of length 1; None stands for an app outside the catalogue."""
    F = [[0.0] * (n_apps + 1) for _ in range(n_apps)]
    moves = Counter(move for move in pairwise(history) if None not in move)
    after = Counter()
    for (j, _), n in moves.items():
        after[j] += n
    for (j, i), n in moves.items():
        F[j][i] = (0.3 if i == j else 1.0) * n / math.sqrt(after[j])
    norm = math.sqrt(sum(value * value for row in F for value in row))
    return [[value / norm if norm else 0.0 for value in row] for row in F]


def bucket(name: str, buckets: dict) -> int:
    """The bucket that an app falls into by its name."""
    digest = hashlib.sha256(f"nextapp bucket{buckets['salt']}\0{name}".encode()).digest()
    return int.from_bytes(digest[:8], "little") % buckets["n_buckets"]


def launches(names: list[str], buckets: dict) -> list[list[float]]:
    """The root of the share of the launches in each bucket, (n_buckets, 1)."""
    counts = Counter(bucket(name, buckets) for name in names)
    return [[math.sqrt(counts[each] / max(1, len(names)))] for each in range(buckets["n_buckets"])]


def dot(x: list[float], y: list[float]) -> float:
    return sum(u * v for u, v in zip(x, y, strict=True))


def solved(A: list[list[float]], b: list[float]) -> list[float]:
    """A x = b by elimination; A is symmetric and positive definite."""
    d = len(b)
    rows = [[*row, value] for row, value in zip(A, b, strict=True)]
    for r in range(d):
        for s in range(r + 1, d):
            factor = rows[s][r] / rows[r][r]
            rows[s] = [y - factor * x for x, y in zip(rows[r], rows[s], strict=True)]
    x = [0.0] * d
    for r in reversed(range(d)):
        x[r] = (rows[r][d] - dot(rows[r][r + 1 : d], x[r + 1 :])) / rows[r][r]
    return x


# Bits and probabilities


class SystemWords:
    """64-bit words of the operating system."""

    def next(self) -> int:
        return int.from_bytes(os.urandom(8), "little")


class Coins:
    """Words that the server can compute, too: for what the phone must not choose."""

    def __init__(self, signature: bytes) -> None:
        self.signature, self.number = signature, 0

    def next(self) -> int:
        said = b"nextapp coins" + self.number.to_bytes(8, "little")
        self.number += 1
        return int.from_bytes(hmac.digest(self.signature, said, "sha256")[:8], "little")


def below(bits, bound: int) -> int:
    limit = W - W % bound
    while True:
        word = bits.next()
        if word < limit:
            return word % bound


def distinct(bits, n: int, bound: int) -> list[int]:
    taken: set[int] = set()
    for top in range(bound - n, bound):
        number = below(bits, top + 1)
        taken.add(top if number in taken else number)
    return sorted(taken)


def exp_from_below(epsilon: float, k: int) -> Fraction:
    share = min(Fraction(epsilon) / k, Fraction(64))
    context = Context(prec=60, rounding=ROUND_FLOOR)
    exponent = context.divide(Decimal(share.numerator), Decimal(share.denominator))
    return Fraction(context.exp(exponent)) * (1 - Fraction(1, 10**50))


# Mechanisms


def harmony(F: list[list[float]], request: dict, bits, coins) -> bytes:
    x = [value for row in F for value in row]
    D, epsilon, clip = len(x), request["epsilon"], request["clip"]
    k = request["options"].get("k") or min(
        range(1, min(D, math.ceil(epsilon) + 1) + 1),
        key=lambda k: 1 / (k * math.tanh(epsilon / (2 * k)) ** 2),
    )
    floor = math.ceil(W / (1 + exp_from_below(epsilon, k)))
    positions = distinct(coins, k, D)
    signs = []
    for position in positions:
        value = min(max(x[position], -clip), clip) / clip
        steps = min(max(int((1 + value) * 2**52), 0), 2**53)
        signs.append(bits.next() < floor + ((W - 2 * floor) * steps >> 53))
    width = (D - 1).bit_length()
    return packed([*positions, *map(int, signs)], [width] * k + [1] * k)


def walsh(F: list[list[float]], request: dict, bits, coins) -> bytes:
    x = {cell: value for cell, value in enumerate(v for row in F for v in row) if value}
    D, epsilon, clip = len(F) * len(F[0]), request["epsilon"], request["clip"]
    b = request["options"].get("b", 8)
    m, n = 1 << b, D.bit_length()
    k = favoured(epsilon, m)
    gain = (exp_from_below(epsilon, 1) - 1) * k
    threshold = min(math.floor(W * gain / (gain + m)), W - 1)
    whole = dict(zip(x, in_ball(list(x.values()), clip), strict=True))
    rest = max(0.0, 1 - sum(value * value for value in whole.values()))
    units = {cell: round(value * 2**22) for cell, value in whole.items()}
    units[D] = round(math.sqrt(rest) * 2**22)
    values = {}  # by place, with the sign of the place
    for cell, value in units.items():
        v = place(cell, n)
        values[v] = -value if (v & v >> 1).bit_count() % 2 else value
    seed, coin = coins.next(), bits.next()
    purpose = int.from_bytes(b"walsh", "little")
    blocks = [philox((g + 1, 0, 0, 0), (seed, purpose)) for g in range(8 + -(-m // 4))]
    words = [word for block in blocks for word in block]
    scores = [0] * m
    for part in range(64):
        row = words[part // 2] >> 32 * (part % 2) & (1 << n) - 1
        turn, sums = part % n, [0] * m
        for v, value in values.items():  # entries that share these bits count as one
            turned = (v >> turn | v << n - turn) & (1 << n) - 1 & m - 1
            sums[turned] += -value if (row & v).bit_count() % 2 else value
        sums = transformed(sums[: 1 << n])
        for j in range(m):
            positive = words[32 + j] >> part & 1
            scores[j] += sums[j % len(sums)] if positive else -sums[j % len(sums)]
    best = sorted(sorted(range(m), key=lambda j: -scores[j])[:k])
    j = best[below(bits, k)] if coin < threshold else below(bits, m)
    return packed([seed, j], [64, b])


def in_ball(x: list[float], clip: float) -> list[float]:
    """x divided by max(clip, ‖x‖), without overflow."""
    largest = max(map(abs, x), default=0.0)
    if not largest:
        return x
    y = [value / largest for value in x]
    norm = math.sqrt(sum(value * value for value in y))
    return [value / norm if largest > clip / norm else value * (largest / clip) for value in y]


def place(entry: int, n: int) -> int:
    """Where an entry stands among the 2^n places."""
    for factor in (0x9E3779B1, 0x85EBCA77):
        entry = entry * factor % (1 << n)
        entry ^= entry >> (n + 1) // 2
    return entry


def transformed(values: list[int]) -> list[int]:
    """Σ_v values[v] (−1)^(ones that v and j share), for all j."""
    half = 1
    while half < len(values):
        for start in range(0, len(values), 2 * half):
            for i in range(start, start + half):
                a, c = values[i], values[i + half]
                values[i], values[i + half] = a + c, a - c
        half *= 2
    return values


def favoured(epsilon: float, m: int) -> int:
    """k: how many codewords are favoured."""
    z = [-12 + 24 * i / 4800 for i in range(4801)]
    upper = [math.log(0.5 * math.erfc(v / math.sqrt(2))) for v in z]
    tops, total = [], 0.0
    means: list[float] = []
    for i in range(1, m // 2 + 1):
        log_comb = math.lgamma(m + 1) - math.lgamma(i) - math.lgamma(m - i + 1)
        means.append(
            sum(
                v * math.exp(log_comb - v * v / 2 + (m - i) * upper[4800 - n] + (i - 1) * upper[n])
                for n, v in enumerate(z)
            )
            * 0.005
            / math.sqrt(2 * math.pi)
        )
    for mean in [*means, *(-mean for mean in reversed(means))]:
        total += mean
        tops.append(total)
    excess = math.expm1(min(epsilon, 64))
    return 1 + max(range(m), key=lambda i: tops[i] / (excess * (i + 1) + m))


def philox(counter: tuple[int, ...], key: tuple[int, int]) -> tuple[int, ...]:
    """Philox 4x64-10."""
    a, b, c, d = counter
    k0, k1 = key
    for _ in range(10):
        first, second = 0xD2E7470EE14C6C93 * a, 0xCA5A826395121157 * c
        a, b, c, d = second >> 64 ^ b ^ k0, second % W, first >> 64 ^ d ^ k1, first % W
        k0, k1 = (k0 + 0x9E3779B97F4A7C15) % W, (k1 + 0xBB67AE8584CAA73B) % W
    return a, b, c, d


MECHANISMS = {"harmony": harmony, "walsh": walsh}


# Tokens: blind signatures, RFC 9474, RSABSSA-SHA384-PSS-Randomized


def key_id(key: dict) -> str:
    digest = hashlib.sha256(bytes.fromhex(key["modulus"])).hexdigest()
    return f"{key['region']}-{digest[:32]}"


def encoded(prepared: bytes, salt: bytes) -> int:
    """EMSA-PSS with SHA-384 for 2,048 bits: 1 bit free, 207 bytes masked, 48 of hash, 0xbc."""
    hashed = hashlib.sha384(bytes(8) + hashlib.sha384(prepared).digest() + salt).digest()
    mask = b"".join(hashlib.sha384(hashed + part.to_bytes(4, "big")).digest() for part in range(5))
    block = int.from_bytes(b"\1" + salt, "big") ^ int.from_bytes(mask[:207], "big")
    return int.from_bytes((block % (1 << 1655)).to_bytes(207, "big") + hashed + b"\xbc", "big")


def new_blinding(key: dict) -> dict:
    """To be kept before the server is asked: it makes the token, and asks for no second one.

    A factor that M shares with n would not be hidden, and r is divided by.
    """
    n = int(key["modulus"], 16)
    while True:
        nonce, salt, r = os.urandom(32), os.urandom(48), 1 + secrets.randbelow(n - 1)
        if math.gcd(encoded(nonce + b"nextapp token", salt) * r, n) == 1:
            return {"nonce": nonce.hex(), "salt": salt.hex(), "factor": f"{r:x}"}


def blinded(key: dict, blinding: dict) -> bytes:
    n, r = int(key["modulus"], 16), int(blinding["factor"], 16)
    prepared = bytes.fromhex(blinding["nonce"]) + b"nextapp token"
    M = encoded(prepared, bytes.fromhex(blinding["salt"]))
    return (M * pow(r, 65537, n) % n).to_bytes(256, "big")


def unblinded(key: dict, blinding: dict, answer: bytes) -> str:
    """The token, if the server has signed by the key that it publishes."""
    n, r = int(key["modulus"], 16), int(blinding["factor"], 16)
    s = int.from_bytes(answer, "big") * pow(r, -1, n) % n
    nonce = bytes.fromhex(blinding["nonce"])
    if pow(s, 65537, n) != encoded(nonce + b"nextapp token", bytes.fromhex(blinding["salt"])):
        raise ValueError("the server signs by another key than the one it publishes")
    return f"{key_id(key)}.{base64url(nonce + s.to_bytes(256, 'big'))}"


def signature_of(token: str) -> bytes:
    return base64.urlsafe_b64decode(token.partition(".")[2])[32:]


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


# HTTP


class NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


class Server:
    """Each request on a connection of its own; a token goes with its report and nothing else."""

    def __init__(self, url: str, ca: str | None) -> None:
        self.url = url
        self.opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}),
            NoRedirects(),
            urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=ca)),
        )

    def call(self, path: str, body: bytes | None = None, limit: int = LARGEST_ANSWER, **headers):
        """(status, body), also of a refusal."""
        request = urllib.request.Request(self.url + path, body, headers)
        try:
            answer = self.opener.open(request, timeout=30)
        except urllib.error.HTTPError as refusal:
            answer = refusal
        with answer:
            data = answer.read(limit + 1)
            if answer.headers.get("Content-Encoding") == "gzip":
                data = zlib.decompressobj(31).decompress(data, limit + 1)
        if len(data) > limit:
            raise ValueError(f"{path} answers with more than {limit} bytes")
        return answer.status, data

    def json(self, path: str, body: bytes | None = None, **headers) -> tuple[int, dict]:
        status, data = self.call(path, body, **headers)
        return status, json.loads(data)

    def enrolled(self, code: str) -> str:
        """The secret for a code."""
        status, words = self.json("/v1/enrol", json.dumps({"code": code}).encode())
        if status != 201:
            raise ValueError(f"not enrolled: {words['message']}")
        return words["secret"]

    def signed(self, secret: str, key: dict, sent: list[bytes]) -> list[bytes]:
        """The answers to what was blinded; asked again with the same they are the same."""
        ask = {"key": key_id(key), "blinded": list(map(base64url, sent))}
        bearer = {"Authorization": f"Bearer {secret}"}
        status, words = self.json("/v1/tokens", json.dumps(ask).encode(), **bearer)
        if status != 200:
            raise ValueError(f"no tokens: {words['message']}")
        return [base64.urlsafe_b64decode(each + "==") for each in words["signatures"]]

    def digest(self) -> str:
        """What the current broadcast is known by; no cache may answer this."""
        return self.json("/v1/digest")[1]["sha256"]

    def digests(self, first: int, end: int) -> list[list]:
        """Rounds and digests of the broadcasts that were handed out, in pages."""
        found, start = [], first - first % 1024  # what many phones ask for
        for _ in range(64):
            zipped = {"Accept-Encoding": "gzip"}
            page = (
                self.json(f"/v1/digests?from={start}", **zipped)[1]["digests"]
                if start < end
                else []
            )
            if not page or page[-1][0] < start:
                break
            found += page
            start = page[-1][0] + 1
        return found

    def broadcast(self, held: str | None) -> bytes | None:
        """The current broadcast if it is another than the one held. Nothing held is ever sent."""
        published = self.digest()
        if published == held:
            return None
        zipped = {"Accept-Encoding": "gzip"}
        _, data = self.call("/v1/broadcast", limit=LARGEST_BROADCAST, **zipped)
        digest = hashlib.sha256(data).hexdigest()
        if digest not in (published, self.digest()):  # a round may have closed in between
            raise ValueError("these are not the bytes whose digest the server publishes")
        return data


def drawn(broadcast: dict, names: list[str], token: str) -> bytes:
    """The report of a round. It must be drawn once only, and kept until the server has it."""
    request, buckets = broadcast["request"], broadcast["buckets"]
    if buckets is None:
        rows = {name: row for row, name in enumerate(broadcast["apps"])}
        found = [rows.get(name) for name in names]
    else:
        rows = {number: row for row, number in enumerate(buckets["slots"])}
        found = [rows.get(bucket(name, buckets)) for name in names]
    history = [row for row in found if row is not None]
    if request["question"] == "launches":
        F = launches(names, buckets)
    elif request["question"] == "transitions":
        F = transition_vector(found, len(broadcast["Q"]))
    else:
        _, F = gradient(history, broadcast["Q"], broadcast["settings"])
    coins = Coins(signature_of(token))
    payload = MECHANISMS[request["mechanism"]](F, request, SystemWords(), coins)
    return report_bytes(request["mechanism"], broadcast["round"], payload)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--server", required=True)
    parser.add_argument("--ca")
    parser.add_argument("--code", help="of the operator; not needed where --state has a secret")
    parser.add_argument("--history", required=True, help="app names, oldest first, by commas")
    parser.add_argument("--state", type=Path, help="a file that this phone keeps")
    parser.add_argument("--epsilon", type=float, default=1.0, help="the most for one report")
    parser.add_argument("--now", action="store_true", help="without the pauses before a report")
    given = parser.parse_args()
    state = {"secret": None, "held": None, "report": None, "token": None, "tokens": {}}
    if given.state is not None and given.state.exists():
        state = json.loads(given.state.read_text())

    def keep(**values: object) -> None:
        state.update(values)
        if given.state is not None:
            given.state.write_text(json.dumps(state))

    server = Server(given.server, given.ca)
    if state["secret"] is None:
        if given.code is None:
            sys.exit("a new phone needs a --code")
        keep(secret=server.enrolled(given.code))
    held = state["held"]
    data = server.broadcast(None if held and held["report_due"] else held and held["digest"])
    if data is not None:
        broadcast = read_broadcast(data)
        check(broadcast)
        digest = hashlib.sha256(data).hexdigest()
        if held is not None and held["digest"] != digest:
            check_continues(broadcast, held, server.digests)
        held = {
            "round": broadcast["round"],
            "digest": digest,
            "chain": broadcast["history"]["chain"],
            "report_due": broadcast["request"] is not None,
        }
        keep(held=held, report=None)
        if broadcast["request"] is not None:
            check_request(broadcast["request"], given.epsilon)
            token = token_for(broadcast, server, state, keep, given.now)
            if token is None:
                print(f"round {held['round']}: a token is spent hours after it was signed")
                return
            report = drawn(broadcast, given.history.split(","), token).hex()
            keep(report=report, token=token, tokens=state["tokens"])
            keep(held={**held, "report_due": False})
    if state["report"] is None:
        print(f"round {held['round']}: no report to send")
        return
    if not given.now:
        time.sleep(30 + 90 * SystemWords().next() / W)
    report = bytes.fromhex(state["report"])
    status, words = server.json("/v1/report", report, Authorization=f"Token {state['token']}")
    print(f"round {held['round']}: {len(report)} bytes,", status, words.get("status", words))


def token_for(
    broadcast: dict, server: Server, state: dict, keep: Callable[..., None], now: bool
) -> str | None:
    """A token of this phone's region that may be spent, taken out of the state; None: not yet.

    What is asked for is kept before it is asked, and a token is used with one report only.
    """
    keys = [key for key in broadcast["keys"] if key["region"] == state["secret"].split(".")[0]]
    for key in keys:
        for one in state["tokens"].get(key_id(key), {}).get("signed", []):
            if now or one["ready"] <= time.time():
                state["tokens"][key_id(key)]["signed"].remove(one)
                return one["token"]
    if not keys:
        raise ValueError("the broadcast lists no key of this phone's server")
    key, tokens = keys[-1], state["tokens"]
    if key_id(key) not in tokens:
        tokens[key_id(key)] = {"blindings": [new_blinding(key) for _ in range(key["tokens"])]}
        keep(tokens=tokens)
    mine = tokens[key_id(key)]
    if "signed" in mine:
        if mine["signed"]:
            return None
        raise ValueError("the tokens of this period are spent; there are others in the next")
    answers = server.signed(
        state["secret"], key, [blinded(key, each) for each in mine["blindings"]]
    )
    ready = time.time() + 3600 * (4 + 24 * SystemWords().next() / W)
    signed = [
        {"token": unblinded(key, *pair), "ready": ready}
        for pair in zip(mine["blindings"], answers, strict=True)
    ]
    keep(tokens={**tokens, key_id(key): {"signed": signed}})
    return token_for(broadcast, server, state, keep, now) if now else None


if __name__ == "__main__":
    main()
