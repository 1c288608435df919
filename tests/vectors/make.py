"""Write the test vectors of docs/protocol.md: python tests/vectors/make.py

The words of random bits are public: word i is the first 8 bytes, lowest first, of
SHA-256("nextapp vector" followed by i as 8 bytes, lowest first).
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np

from nextapp.phone.core import PhoneCore
from nextapp.privacy import mechanism, requested
from nextapp.privacy.codewords import table
from nextapp.shares import transition_shares
from nextapp.wire import Broadcast, Crowd, ModelSettings, Report, ReportRequest

FOLDER = Path(__file__).parent
HISTORY = [2, 0, 1, 2, 2, 0, 4, 2, 0, 1]
CONSTANTS = (
    "k", "b", "m", "q", "t", "n_blocks", "block", "n_favoured", "n_outputs", "scattering",
    "floor", "threshold",
)  # fmt: skip
APPS = ("browser", "camera", "chat", "clock", "Müsli ☕")


class PublicWords:
    """The words above, and how many were taken."""

    def __init__(self, first: int = 0) -> None:
        self.first = self.next_ = first

    def words(self, n: int) -> np.ndarray:
        words = [word(i) for i in range(self.next_, self.next_ + n)]
        self.next_ += n
        return np.array(words, np.uint64)


def word(i: int) -> int:
    digest = hashlib.sha256(b"nextapp vector" + i.to_bytes(8, "little")).digest()
    return int.from_bytes(digest[:8], "little")


def broadcast(request: ReportRequest | None = None, crowd: Crowd | None = None) -> Broadcast:
    """Entries that are exact in binary, so that they read the same in every language."""
    numbers = [(word(1000 + i) % 2001 - 1000) / 1024 for i in range(15)]
    settings = ModelSettings(lam=0.25, alpha=0.125, gamma=0.5)
    return Broadcast(7, np.array(numbers).reshape(5, 3), settings, APPS, request, crowd)


def crowd() -> Crowd:
    return Crowd(
        np.array([0.5, 0.25, 0.125, 0.125, 0.0]),
        np.array([0, 2, 2, 3, 3, 3]),
        np.array([1, 2, 0]),
        np.array([0.5, 0.25, 0.75]),
    )


def broadcasts() -> dict[str, bytes]:
    harmony = ReportRequest("harmony", 2.0, 0.5)
    codebook = ReportRequest("codebook", 4.5, 0.5, {"b": 8})
    return {
        "broadcast-harmony.bin": broadcast(harmony).to_bytes(),
        "broadcast-codebook-crowd.bin": broadcast(codebook, crowd()).to_bytes(),
    }


def read_values(data: bytes) -> dict:
    read = Broadcast.from_bytes(data)
    return {
        "round": read.round,
        "etag": f'"{hashlib.sha256(data).hexdigest()}"',
        "apps": list(read.apps),
        "app_vectors": read.app_vectors.tolist(),
        "settings": vars(read.settings),
        "request": {**vars(read.request), "options": dict(read.request.options)},
    }


def gradient_vector() -> dict:
    """From a history to p and F, and on to a report, against the first broadcast."""
    read = Broadcast.from_bytes(broadcasts()["broadcast-harmony.bin"])
    device = PhoneCore()
    for number, app in enumerate(HISTORY):
        device.observe(app, 60.0 * number)
    device.update(read)
    bits = PublicWords()
    report = device.report(read, requested(read), bits)
    return {
        "broadcast": "broadcast-harmony.bin",
        "history": HISTORY,
        "user_vector": device.user_vector.tolist(),
        "gradient": dense_gradient(read, device).tolist(),
        "relative_tolerance": 1e-9,
        "words_taken": bits.next_,
        "payload": report.payload.hex(),
        "report": report.to_bytes().hex(),
    }


def shares_vector() -> dict:
    """From a history to shares, and on to a report of the crowd."""
    read = broadcast(ReportRequest("subset", 4.5))
    device = PhoneCore()
    for number, app in enumerate(HISTORY):
        device.observe(app, 60.0 * number)
    vector = {
        "round": read.round,
        "history": HISTORY,
        "n_apps": read.n_apps,
        "request": {"mechanism": "subset", "epsilon": 4.5, "clip": None, "options": {}},
        "shares": transition_shares(np.array(HISTORY), read.n_apps).dense().tolist(),
        "reports": [],
    }
    for first in range(0, 200, 20):
        bits = PublicWords(first)
        report = device.report(read, requested(read), bits)
        vector["reports"].append(
            {
                "words": [word(i) for i in range(bits.first, bits.next_)],
                "report": report.to_bytes().hex(),
            }
        )
    return vector


def dense_gradient(read: Broadcast, device: Device) -> np.ndarray:
    plain = mechanism("identity", n_apps=read.n_apps, d=read.dim)
    report = device.report(read, plain, PublicWords(), allow_unsafe=True)
    return plain.decode([report])


def report_vectors() -> list[dict]:
    """Gradient or shares and words in, report out, for every mechanism that phones may send."""
    small = np.array([[(word(2000 + i) % 2001 - 1000) / 512 for i in range(12)]]).reshape(4, 3)
    long = np.array([(word(3000 + i) % 2001 - 1000) / 16384 for i in range(60)]).reshape(20, 3)
    cases = [
        ("harmony", small, 2.0, 1.0, {}), ("harmony", long, 4.5, 0.05, {}),
        ("harmony", small, 1.0, 1.0, {"k": 3}), ("qharmony", small, 2.0, 1.0, {}),
        ("codebook", small, 4.5, 1.0, {}), ("codebook", long, 1.0, 0.5, {"b": 6}),
        ("codebook", 0 * small, 4.5, 1.0, {}), ("simhash", small, 4.5, 1.0, {}),
        ("kashin", small, 4.5, 1.0, {}), ("duchi", small, 2.0, 1.0, {}),
    ]  # fmt: skip
    few, many, unsure = shares_of(4), shares_of(87), shares_of(6) / 4
    cases += [
        (name, F, epsilon, None, options)
        for name, options in (("subset", {}), ("hadamard", {}), ("subset", {"q": 5, "t": 3}))
        for F, epsilon in ((few, 4.5), (many, 4.5), (many, 1.0), (unsure, 2.0))
        if not options or F is not many
    ]
    vectors = []
    for number, (name, F, epsilon, clip, options) in enumerate(cases):
        radius = {} if clip is None else {"clip": clip}
        m = mechanism(name, n_apps=len(F), d=F.shape[1], epsilon=epsilon, **radius, **options)
        for repeat in range(3):
            bits = PublicWords(100 * number + 20 * repeat)
            report = m.encode(F, bits, round=number)
            vectors.append(
                {
                    "request": {
                        "mechanism": name, "epsilon": epsilon, "clip": clip, "options": options,
                    },
                    **written(F, shares=clip is None),
                    "first_word": bits.first,
                    "words_taken": bits.next_ - bits.first,
                    "words": [word(i) for i in range(bits.first, bits.next_)],
                    "constants": {
                        key: getattr(m, key)
                        for key in CONSTANTS if hasattr(m, key)
                    },
                    "round": number,
                    "payload": report.payload.hex(),
                    "report": report.to_bytes().hex(),
                }
            )  # fmt: skip
    return vectors


def shares_of(n_apps: int) -> np.ndarray:
    """Shares of a phone of twelve launches, in units of 1/1024, so that they are exact."""
    history = [word(4000 + i) % n_apps for i in range(12)]
    return np.floor(1024 * transition_shares(np.array(history), n_apps).dense()) / 1024


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
    entries = table()
    values = {
        "broadcasts.json": {name: read_values(data) for name, data in broadcasts().items()},
        "gradient.json": gradient_vector(),
        "shares.json": shares_vector(),
        "reports.json": report_vectors(),
        "bad-reports.json": bad_reports(),
        "gaussian-table.json": {
            "entries": {str(i): int(entries[i]) for i in (0, 1, 2, 32766, 32767, 32768, 65535)},
            "sha256_of_int32_little_endian": hashlib.sha256(
                entries.astype("<i4").tobytes()
            ).hexdigest(),
        },
    }
    return {name: json.dumps(value, indent=1, ensure_ascii=False) for name, value in values.items()}


def main() -> None:
    for name, data in broadcasts().items():
        (FOLDER / name).write_bytes(data)
    for name, text in texts().items():
        (FOLDER / name).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
