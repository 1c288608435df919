"""Write the test vectors of docs/protocol.md: python tests/vectors/make.py

The words of random bits are public: word i is the first 8 bytes, lowest first, of
SHA-256("nextapp vector" followed by i as 8 bytes, lowest first). Words and other numbers that may
be above 2^53 are decimal strings, since JSON's numbers are floats in some languages.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from nextapp.crowd import transition_vector
from nextapp.phone.core import PhoneCore
from nextapp.privacy import mechanism, requested_mechanism
from nextapp.privacy.tokens import Token, to_base64
from nextapp.privacy.walsh import places, rows_and_signs, sign_bits
from nextapp.randomness import TokenCoins, distinct
from nextapp.wire import (
    READINGS,
    Broadcast,
    Buckets,
    Crowd,
    History,
    ModelSettings,
    Report,
    ReportRequest,
    TokenKey,
    digest_of,
)

FOLDER = Path(__file__).parent
HISTORY = [2, 0, 1, 2, 2, 0, 4, 2, 0, 1]
LEFT_OUT = 4  # an app of the history that is outside the catalogue of the transition vector
CONSTANTS = (
    "k", "b", "m", "floor", "threshold",
)  # fmt: skip
LARGE = ("floor", "threshold")
APPS = ("browser", "camera", "chat", "clock", "Müsli ☕")


class PublicWords:
    """The words above, and how many were taken."""

    def __init__(self, first: int = 0) -> None:
        self.first = self.next_ = first

    def words(self, n: int) -> np.ndarray:
        words = [word(i) for i in range(self.next_, self.next_ + n)]
        self.next_ += n
        return np.array(words, np.uint64)

    def taken(self) -> list[str]:
        return [str(word(i)) for i in range(self.first, self.next_)]


class CountedCoins:
    """The coins of a token, and those that were taken."""

    def __init__(self, signature: bytes) -> None:
        self._coins = TokenCoins(signature)
        self.taken: list[str] = []

    def words(self, n: int) -> np.ndarray:
        words = self._coins.words(n)
        self.taken += map(str, words.tolist())
        return words


def signature(i: int) -> bytes:
    """256 bytes that stand for a signature; no key has made them."""
    start = b"nextapp signature of a vector" + i.to_bytes(8, "little")
    return b"".join(hashlib.sha256(start + bytes([part])).digest() for part in range(8))


def coins_of(i: int) -> CountedCoins:
    return CountedCoins(signature(i))


def coin_vectors() -> list[dict]:
    return [
        {
            "signature": to_base64(signature(i)),
            "words": list(map(str, coins_of(i).words(4).tolist())),
            "distinct_5_of_1600": distinct(TokenCoins(signature(i)), 5, 1600),
        }
        for i in range(5)
    ]


def token_vectors() -> list[dict]:
    """From what blind_signatures.json has of other programs: the tokens that they make."""
    found = []
    for vector in json.loads((FOLDER / "blind_signatures.json").read_text())["vectors"][1:]:
        n = int(vector["p"], 16) * int(vector["q"], 16)
        key = TokenKey("main", f"{n:x}", 3)
        nonce, signed = bytes.fromhex(vector["prefix"]), bytes.fromhex(vector["signature"])
        made = Token(key.id, nonce, signed)
        found.append(
            {
                "key": {"region": key.region, "modulus": key.modulus, "tokens": key.tokens},
                "id": key.id,
                "nonce": nonce.hex(),
                "salt": vector["salt"],
                "factor": vector["factor"],
                "blinded": to_base64(bytes.fromhex(vector["blinded"])),
                "answer": to_base64(bytes.fromhex(vector["answer"])),
                "token": made.text,
                "words": list(map(str, made.coins.words(2).tolist())),
            }
        )
    return found


def word(i: int) -> int:
    digest = hashlib.sha256(b"nextapp vector" + i.to_bytes(8, "little")).digest()
    return int.from_bytes(digest[:8], "little")


def broadcast(request: ReportRequest | None = None, crowd: Crowd | None = None) -> Broadcast:
    """Entries that are exact in binary, so that they read the same in every language."""
    numbers = [(word(1000 + i) % 2001 - 1000) / 1024 for i in range(15)]
    settings = ModelSettings(lam=0.25, alpha=0.125, gamma=0.5)
    keys = tuple(TokenKey(**each["key"]) for each in token_vectors())
    return Broadcast(7, np.array(numbers).reshape(5, 3), settings, APPS, request, crowd, keys=keys)


def crowd() -> Crowd:
    return Crowd(
        np.array([0.5, 0.25, 0.125, 0.125, 0.0]),
        np.array([0, 2, 2, 3, 3, 3]),
        np.array([1, 2, 0]),
        np.array([0.5, 0.25, 0.75]),
    )


def broadcasts() -> dict[str, bytes]:
    """Of rounds 7, 7, 8 and 10; the last two continue the first."""
    harmony = ReportRequest("harmony", 2.0, 0.5)
    walsh = ReportRequest("walsh", 4.5, 0.5, {"b": 8})
    first = broadcast(harmony)
    second = replace(first, round=8, history=History().after(7, first.to_bytes()))
    third = replace(second, round=10, history=second.history.after(8, second.to_bytes()))
    return {
        "broadcast-harmony.bin": first.to_bytes(),
        "broadcast-walsh-crowd.bin": broadcast(walsh, crowd()).to_bytes(),
        "broadcast-second.bin": second.to_bytes(),
        "broadcast-third.bin": third.to_bytes(),
        "broadcast-buckets.bin": bucket_broadcast().to_bytes(),
    }


def bucket_broadcast() -> Broadcast:
    """A catalogue of hashes: no names, no app vectors, launches asked for by bucket."""
    request = ReportRequest("walsh", 1.0, 0.5, {"b": 6}, "launches")
    of_names = Buckets(64, "a salt", np.zeros(0, np.int64))
    slots = np.array([of_names.bucket(name) for name in ("mail", "org.maps", "음악")])
    told = Crowd(
        np.array([0.5, 0.375, 0.125]),
        np.array([0, 2, 2, 3]),
        np.array([1, 2, 0]),
        np.array([0.5, 0.25, 0.75]),
    )
    return Broadcast(
        2,
        np.zeros((3, 0)),
        ModelSettings(),
        (),
        request,
        told,
        buckets=replace(of_names, slots=slots),
        keys=(TokenKey(**token_vectors()[0]["key"]),),
    )


def launches_vector() -> dict:
    """From names to buckets, and from a history of names to the launches that are reported."""
    read = Broadcast.from_bytes(broadcasts()["broadcast-buckets.bin"])
    names = ["mail", "org.maps", "음악", "com.example.chat", "x"]
    device = PhoneCore()
    for number, app in enumerate(HISTORY):
        device.observe(app, 60.0 * number)
    device.take(read, buckets=lambda app: read.buckets.bucket(names[app]))
    launches = device.launches()
    return {
        "broadcast": "broadcast-buckets.bin",
        "n_buckets": read.buckets.n_buckets,
        "salt": read.buckets.salt,
        "slots": read.buckets.slots.tolist(),
        "bucket_of": {name: read.buckets.bucket(name) for name in names},
        "history": [names[app] for app in HISTORY],
        "launches": dict(
            zip(map(str, launches.cells.tolist()), launches.share.tolist(), strict=True)
        ),
        "crowd": {
            "popularity": read.crowd.popularity.tolist(),
            "starts": read.crowd.starts.tolist(),
            "following": read.crowd.following.tolist(),
            "share": read.crowd.share.tolist(),
        },
    }


def history_vectors() -> dict:
    """A chain by hand, and broadcasts in hand held against those that a server then offers."""
    chain, links = bytes(32), []
    for round in range(70):
        digest = hashlib.sha256(b"broadcast %d" % round).digest()
        before, chain = chain, hashlib.sha256(chain + digest).digest()
        links.append(
            {
                "round": round,
                "digest": digest.hex(),
                "chain": before.hex(),
                "chain_of_the_next": chain.hex(),
            }
        )
    files = broadcasts()
    first, other, second, third, _ = (
        {
            "round": read.round,
            "digest": digest_of(data),
            "chain": read.history.chain,
        }
        for data, read in ((data, Broadcast.from_bytes(data)) for data in files.values())
    )
    zeros = "00" * 32
    cases = [
        (first, "broadcast-second.bin", True), (first, "broadcast-third.bin", True),
        (second, "broadcast-third.bin", True), (other, "broadcast-second.bin", False),
        (other, "broadcast-third.bin", False), (third, "broadcast-second.bin", False),
        ({**second, "chain": zeros}, "broadcast-third.bin", False),
        ({**second, "round": 9}, "broadcast-third.bin", False),
    ]  # fmt: skip
    return {
        "links": links,
        "files": [
            {"held": held, "offered": offered, "continues": told} for held, offered, told in cases
        ],
        "long": [
            {
                "held": {key: links[round][key] for key in ("round", "digest", "chain")},
                "first_told": first_told,
                "last_told": first_told + n - 1,
                "continues": told,
            }
            for round, first_told, n, told in (
                (6, 6, 64, True), (5, 6, 64, None), (5, 6, 63, False), (69, 6, 64, True),
            )
        ],
    }  # fmt: skip


def read_values(data: bytes) -> dict:
    read = Broadcast.from_bytes(data)
    return {
        "round": read.round,
        "sha256": digest_of(data),
        "history": asdict(read.history),
        "apps": list(read.apps),
        "app_vectors": read.app_vectors.tolist(),
        "settings": vars(read.settings),
        "request": {**vars(read.request), "options": dict(read.request.options)},
    }


def phone_with(read: Broadcast) -> PhoneCore:
    device = PhoneCore()
    for number, app in enumerate(HISTORY):
        device.observe(app, 60.0 * number)
    device.take(read)
    return device


def gradient_vector() -> dict:
    """From a history to p and F, and on to a report, against the first broadcast."""
    read = Broadcast.from_bytes(broadcasts()["broadcast-harmony.bin"])
    device = phone_with(read)
    by_reading = {
        reading: phone_with(replace(read, settings=replace(read.settings, reading=reading)))
        for reading in READINGS
    }
    bits = PublicWords()
    asked = requested_mechanism(read)
    report = asked.encode(device.answer(), bits, read.round, coins_of(0))
    return {
        "broadcast": "broadcast-harmony.bin",
        "history": HISTORY,
        "signature": to_base64(signature(0)),
        "user_vector": device.user_vector.tolist(),
        "gradient": device.gradient().dense().tolist(),
        "readings": [
            {
                "reading": reading,
                "user_vector": other.user_vector.tolist(),
                "gradient": other.gradient().dense().tolist(),
            }
            for reading, other in by_reading.items()
        ],
        "relative_tolerance": 1e-9,
        "words_taken": bits.next_,
        "payload": report.payload.hex(),
        "report": report.to_bytes().hex(),
    }


def transitions_vector() -> dict:
    """From a history to its transition vector, and on to reports of the crowd."""
    read = broadcast(ReportRequest("walsh", 4.5, 1.0, {"b": 5}, "transitions"))
    device = phone_with(read)
    vector = {
        "round": read.round,
        "history": HISTORY,
        "n_apps": read.n_apps,
        "request": asdict(read.request),
        "left_out": LEFT_OUT,
        "transition_vector": transition_vector(
            np.where(np.array(HISTORY) == LEFT_OUT, -1, HISTORY), read.n_apps
        )
        .dense()
        .tolist(),
        "reports": [],
    }
    for first in range(0, 200, 20):
        bits = PublicWords(first)
        asked = requested_mechanism(read)
        report = asked.encode(device.answer(), bits, read.round, coins_of(first))
        vector["reports"].append(
            {
                "signature": to_base64(signature(first)),
                "words": bits.taken(),
                "report": report.to_bytes().hex(),
            }
        )
    return vector


def report_vectors() -> list[dict]:
    """Gradient or shares and words in, report out, for every mechanism that phones may send."""
    small = np.array([[(word(2000 + i) % 2001 - 1000) / 512 for i in range(12)]]).reshape(4, 3)
    long = np.array([(word(3000 + i) % 2001 - 1000) / 16384 for i in range(60)]).reshape(20, 3)
    cases = [
        ("harmony", small, 2.0, 1.0, {}), ("harmony", long, 4.5, 0.05, {}),
        ("harmony", small, 1.0, 1.0, {"k": 3}), ("kashin", small, 4.5, 1.0, {}),
    ]  # fmt: skip
    few, many = shares_of(4), shares_of(87)
    cases += [
        ("walsh", small, 4.5, 1.0, {}), ("walsh", long, 1.0, 0.5, {"b": 6}),
        ("walsh", 0 * small, 4.5, 1.0, {}), ("walsh", few, 4.5, 0.25, {}),
        ("walsh", many, 1.0, 0.125, {}), ("walsh", 0 * many, 1.0, 0.125, {}),
    ]  # fmt: skip
    spike = np.zeros((20, 3))  # which kashin has to spread
    spike[3, 1] = 1.0
    cases += [
        ("kashin", long, 8.0, 0.5, {"b": 8}), ("kashin", spike, 8.0, 1.0, {"b": 8, "K": 1.0}),
    ]  # fmt: skip
    vectors = []
    for number, (name, F, epsilon, clip, options) in enumerate(cases):
        m = mechanism(name, n_apps=len(F), d=F.shape[1], epsilon=epsilon, clip=clip, **options)
        for repeat in range(3):
            bits, coins = PublicWords(100 * number + 20 * repeat), coins_of(3 * number + repeat)
            report = m.encode(F, bits, number, coins)
            vectors.append(
                {
                    "request": {
                        "mechanism": name, "epsilon": epsilon, "clip": clip, "options": options,
                    },
                    **written(F, shares=F.shape[1] == len(F) + 1),
                    "first_word": bits.first,
                    "words_taken": bits.next_ - bits.first,
                    "words": bits.taken(),
                    "signature": to_base64(signature(3 * number + repeat)),
                    "coins": coins.taken,
                    "constants": {
                        key: str(getattr(m, key)) if key in LARGE else getattr(m, key)
                        for key in CONSTANTS if hasattr(m, key)
                    },
                    "round": number,
                    "payload": report.payload.hex(),
                    "report": report.to_bytes().hex(),
                }
            )  # fmt: skip
    return vectors


def walsh_vectors() -> dict:
    """The parts of a codeword of walsh: places and their signs, rows and signs of a seed."""
    places_ = [(n, i) for n in (1, 2, 5, 13, 22) for i in (0, 1, 2, 5, 30, 8191, 4_000_000)]
    seeds = [(word(5000), 0), (word(5000), 201), (word(5001), 7), (word(5002), 63)]
    return {
        "places": [
            {
                "n": n,
                "entry": i,
                "place": int(places(np.array([i]), n)[0]),
                "sign": 1 - 2 * int(sign_bits(places(np.array([i]), n))[0]),
            }
            for n, i in places_
            if i < 1 << n
        ],
        "codewords": [
            {
                "n": n,
                "seed": str(seed),
                "j": j,
                "rows": rows[0].tolist(),
                "signs": signs[0].tolist(),
            }
            for n in (3, 13, 22)
            for seed, j in seeds
            for rows, signs in [rows_and_signs(np.array([seed], np.uint64), np.array([j]), n)]
        ],
    }


def shares_of(n_apps: int) -> np.ndarray:
    """Shares of transitions and launches of a phone, in units of 1/1024, so that they are exact."""
    history = [word(4000 + i) % n_apps for i in range(12)]
    F = np.zeros((n_apps, n_apps + 1))
    for last, following in itertools.pairwise(history):
        F[last, following] += 0.95 / 11
    for app in history:
        F[app, n_apps] += 0.05 / 12
    return np.floor(1024 * F) / 1024


def written(F: np.ndarray, *, shares: bool) -> dict:
    """A gradient in full; shares by their cells, [row, column, share]."""
    if not shares:
        return {"gradient": F.tolist()}
    cells = [[int(j), int(i), float(F[j, i])] for j, i in zip(*np.nonzero(F), strict=True)]
    return {"n_apps": len(F), "shares": cells}


def bad_reports() -> list[dict]:
    """Bytes that a server refuses, whatever the mechanism."""
    good = Report("harmony", 7, bytes([5, 1])).to_bytes()
    return [
        {"why": "empty", "report": ""},
        {"why": "cut short", "report": good[:-1].hex()},
        {"why": "one byte more", "report": (good + b"\0").hex()},
        {"why": "another magic", "report": (b"nX" + good[2:]).hex()},
        {"why": "another version", "report": (good[:2] + b"\2" + good[3:]).hex()},
        {"why": "a bit turned", "report": (good[:9] + bytes([good[9] ^ 1]) + good[10:]).hex()},
    ]


def texts() -> dict[str, str]:
    """The JSON files, by name."""
    values = {
        "broadcasts.json": {name: read_values(data) for name, data in broadcasts().items()},
        "gradient.json": gradient_vector(),
        "transitions.json": transitions_vector(),
        "launches.json": launches_vector(),
        "reports.json": report_vectors(),
        "walsh.json": walsh_vectors(),
        "coins.json": coin_vectors(),
        "tokens.json": token_vectors(),
        "history.json": history_vectors(),
        "bad-reports.json": bad_reports(),
    }
    return {name: json.dumps(value, indent=1, ensure_ascii=False) for name, value in values.items()}


def main() -> None:
    for name, data in broadcasts().items():
        (FOLDER / name).write_bytes(data)
    for name, text in texts().items():
        (FOLDER / name).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
