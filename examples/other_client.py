"""A phone in plain Python: no NumPy, nothing of nextapp. Written from docs/protocol.md alone.

It shows that the protocol page is enough to write a client in another language, and how much there
is to write: the two file formats, two equations, and one of the mechanisms harmony and codebook.

    python examples/other_client.py --server http://127.0.0.1:8443 --code ABCD-… --history a,b,a

A real phone must also keep its token and the bytes of its report, and count what it has spent.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import math
import os
import ssl
import statistics
import struct
import urllib.request
import zlib
from collections import Counter
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from itertools import pairwise

W = 1 << 64


# Formats


def read_broadcast(data: bytes) -> dict:
    """Round, apps, settings, request and the rows of Q; an error unless its digest is right."""
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    words, body = header.pop("__metadata__"), data[8 + length :]
    digest = words.pop("sha256")
    text = json.dumps([header, words], sort_keys=True).encode()
    if hashlib.sha256(text + b"\0" + body).hexdigest() != digest:
        raise ValueError("the broadcast is damaged")
    entry = header["app_vectors"]
    n_apps, d = entry["shape"]
    start, stop = entry["data_offsets"]
    numbers = struct.unpack(f"<{n_apps * d}d", body[start:stop])
    return {
        "round": int(words["round"]),
        "settings": json.loads(words["settings"]),
        "apps": json.loads(words["apps"]),
        "request": json.loads(words["request"]),
        "Q": [list(numbers[row * d : row * d + d]) for row in range(n_apps)],
    }


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


def harmony(F: list[list[float]], request: dict, bits) -> bytes:
    x = [value for row in F for value in row]
    D, epsilon, clip = len(x), request["epsilon"], request["clip"]
    k = request["options"].get("k") or min(
        range(1, min(D, math.ceil(epsilon) + 1) + 1),
        key=lambda k: 1 / (k * math.tanh(epsilon / (2 * k)) ** 2),
    )
    floor = math.ceil(W / (1 + exp_from_below(epsilon, k)))
    positions = distinct(bits, k, D)
    signs = []
    for position in positions:
        value = min(max(x[position], -clip), clip) / clip
        steps = min(max(int((1 + value) * 2**52), 0), 2**53)
        signs.append(bits.next() < floor + ((W - 2 * floor) * steps >> 53))
    width = (D - 1).bit_length()
    return packed([*positions, *map(int, signs)], [width] * k + [1] * k)


def codebook(F: list[list[float]], request: dict, bits) -> bytes:
    x = [value for row in F for value in row]
    D, epsilon, clip = len(x), request["epsilon"], request["clip"]
    b = request["options"].get("b", 8)
    m = 1 << b
    k = favoured(epsilon, m)
    gain = (exp_from_below(epsilon, 1) - 1) * k
    threshold = min(math.floor(W * gain / (gain + m)), W - 1)
    largest = max(map(abs, x))
    y = [value / largest for value in x] if largest else x
    norm = math.sqrt(sum(value * value for value in y))
    scale = (1 / norm if largest > clip / norm else largest / clip) if largest else 0.0
    x = [value * scale for value in y]
    grid = [round(value * 2**22) for value in x]
    grid.append(round(math.sqrt(max(0.0, 1 - sum(value * value for value in x))) * 2**22))
    seed, coin = bits.next(), bits.next()
    purpose = int.from_bytes(b"codebook", "little")
    table = gaussian_table()
    scores = [0] * m
    for group in range(D // 16 + 1):
        part = grid[16 * group : 16 * group + 16]
        if any(part):
            for j in range(m):
                words = philox((group * m + j + 1, 0, 0, 0), (seed, purpose))
                pieces = [word >> shift & 0xFFFF for word in words for shift in (0, 16, 32, 48)]
                scores[j] += sum(
                    table[piece] * entry for piece, entry in zip(pieces, part, strict=False)
                )
    best = sorted(sorted(range(m), key=lambda j: -scores[j])[:k])
    j = best[below(bits, k)] if coin < threshold else below(bits, m)
    return packed([seed, j], [64, b])


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


def gaussian_table() -> list[int]:
    """The mean of each of 2^16 equally likely slices of N(0, 1), in units of 2^-16."""
    normal, half, unit = statistics.NormalDist(), 1 << 15, 1 << 16
    density = [normal.pdf(normal.inv_cdf(0.5 + i / unit)) for i in range(half)] + [0.0]
    upper = [round((density[i] - density[i + 1]) * unit * unit) for i in range(half)]
    return [-value for value in reversed(upper)] + upper


def philox(counter: tuple[int, ...], key: tuple[int, int]) -> tuple[int, ...]:
    """Philox 4x64-10."""
    a, b, c, d = counter
    k0, k1 = key
    for _ in range(10):
        first, second = 0xD2E7470EE14C6C93 * a, 0xCA5A826395121157 * c
        a, b, c, d = second >> 64 ^ b ^ k0, second % W, first >> 64 ^ d ^ k1, first % W
        k0, k1 = (k0 + 0x9E3779B97F4A7C15) % W, (k1 + 0xBB67AE8584CAA73B) % W
    return a, b, c, d


MECHANISMS = {"harmony": harmony, "codebook": codebook}


# HTTP


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--server", required=True)
    parser.add_argument("--ca")
    parser.add_argument("--code", required=True)
    parser.add_argument("--history", required=True, help="app names, oldest first, by commas")
    given = parser.parse_args()
    context = ssl.create_default_context(cafile=given.ca)

    def call(path: str, body: bytes | None = None, **headers: str):
        request = urllib.request.Request(given.server + path, body, headers)
        return urllib.request.urlopen(request, context=context, timeout=30)

    token = json.loads(call("/v1/enrol", json.dumps({"code": given.code}).encode()).read())["token"]
    answer = call("/v1/broadcast", **{"Accept-Encoding": "gzip"})
    data = answer.read()
    if answer.headers.get("Content-Encoding") == "gzip":
        data = gzip.decompress(data)
    if answer.headers["ETag"] != f'"{hashlib.sha256(data).hexdigest()}"':
        raise ValueError("these are not the bytes that the server named")
    broadcast = read_broadcast(data)
    rows = {name: row for row, name in enumerate(broadcast["apps"])}
    history = [rows[name] for name in given.history.split(",") if name in rows]
    _, F = gradient(history, broadcast["Q"], broadcast["settings"])
    request = broadcast["request"]
    payload = MECHANISMS[request["mechanism"]](F, request, SystemWords())
    report = report_bytes(request["mechanism"], broadcast["round"], payload)
    answer = call("/v1/report", report, Authorization=f"Bearer {token}")
    print(f"round {broadcast['round']}: {len(report)} bytes, ε = {request['epsilon']}", end=", ")
    print(answer.status, json.loads(answer.read())["status"])


if __name__ == "__main__":
    main()
