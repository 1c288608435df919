"""All that crosses between a phone and its server: `Broadcast` goes down, `Report` comes up.

A Broadcast travels in the safetensors format (8 bytes of header length, a JSON header, raw
arrays), which other tools read too; its SHA-256 is in the header, so that a damaged copy is
refused. A Report is a few bytes of header, the payload that its mechanism packed, and a CRC-32.
Reading either allocates no more than the bytes that came.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]

READINGS = ("example", "equation", "authors", "none")
INFERENCES = ("sum", "mean", "last", "none")


class WireError(ValueError):
    """Bytes that are not what they should be."""


class WrongSize(WireError):
    """A payload that is longer or shorter than every payload of its mechanism."""


@dataclass(frozen=True)
class ModelSettings:
    """What a phone must know to solve its user vector and to predict; the same for all phones.

    ``reading`` is how S_u is read (PAPER.md, R1); ``none`` leaves S_u out, which is the MF model.
    ``inference`` is how the launches of the session so far enter the light score (R7): their
    ``sum``, their ``mean``, only the ``last``, the sum of the last l by ``window:l``, or ``none``.
    """

    lam: float = 0.3
    alpha: float = 0.001
    gamma: float = 1.0
    reading: str = "example"
    inference: str = "sum"

    def __post_init__(self) -> None:
        for name in ("lam", "alpha", "gamma"):
            _check_number(name, getattr(self, name))
        for name in ("reading", "inference"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"{name} must be a word, got {getattr(self, name)!r}.")
        if not self.lam > 0:
            raise ValueError(
                f"lam must be a finite number > 0, got {self.lam!r}: it keeps the user solve "
                f"well defined whatever the history."
            )
        for name in ("alpha", "gamma"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise ValueError(f"{name} must lie in [0, 1], got {value!r}.")
        if self.reading not in READINGS:
            raise ValueError(f"reading must be one of {', '.join(READINGS)}, got {self.reading!r}.")
        inference_window(self.inference)


def _check_number(name: str, value: object) -> None:
    """Raise unless it is a number that a float holds: JSON has words, 10^400 and NaN too."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        with suppress(OverflowError):
            if math.isfinite(value):
                return
    raise ValueError(f"{name} must be a finite number, got {value!r:.80}.")


def inference_window(inference: str) -> int | None:
    """The l of ``window:l``; None for the other ways of inference, which are checked by name."""
    if inference in INFERENCES:
        return None
    kind, _, number = inference.partition(":")
    if kind == "window" and re.fullmatch("0*[1-9][0-9]{0,5}", number):
        return int(number)
    raise ValueError(
        f"inference must be one of {', '.join(INFERENCES)} or 'window:l' with l from 1 to 999999, "
        f"got {inference!r:.80}."
    )


@dataclass(frozen=True)
class ReportRequest:
    """What a phone is asked to send in a round: the mechanism, its ε, clip and other options.

    It is a request. A phone holds it against the limits of its owner before anything is drawn.
    """

    mechanism: str
    epsilon: float
    clip: float | None = None
    options: Mapping[str, int | float | str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        name = self.mechanism
        if not (isinstance(name, str) and name.isascii() and 1 <= len(name) <= 64):
            raise ValueError(f"a mechanism's name has 1 to 64 plain characters, got {name!r:.80}.")
        for word, value in (("epsilon", self.epsilon), ("clip", self.clip)):
            if value is None and word == "clip":
                continue
            _check_number(word, value)
            if value is not None and not value > 0:
                raise ValueError(f"{word} must be a number > 0, got {value!r}.")
        if not isinstance(self.options, Mapping):
            raise ValueError(f"options must be a table, got {self.options!r:.80}.")
        for option, given in self.options.items():
            if not isinstance(given, str):
                _check_number(f"option {option!r:.40}", given)


@dataclass(frozen=True, eq=False)
class Crowd:
    """What many phones know together: P(app), and P(next | last) where enough of them spoke.

    ``popularity`` (n_apps,) sums to 1. Row j of P(next | last = j) gives the apps
    ``following[starts[j]:starts[j + 1]]``, none twice, their ``share``. What the shares of a row
    leave to 1 is not told: a phone fills it with what it knows itself.
    """

    popularity: Floats
    starts: npt.NDArray[np.int64]
    following: npt.NDArray[np.int64]
    share: Floats

    def __post_init__(self) -> None:
        for name in ("popularity", "starts", "following", "share"):
            array, kind = getattr(self, name), "f" if name in ("popularity", "share") else "i"
            if array.ndim != 1 or array.dtype.kind != kind:
                raise ValueError(
                    f"{name} must be one row of {'floats' if kind == 'f' else 'integers'}, got "
                    f"shape {array.shape} of {array.dtype}."
                )
        n_apps, n_cells = len(self.popularity), len(self.following)
        if not (np.all(self.popularity >= 0) and abs(self.popularity.sum() - 1) < 1e-6):
            raise ValueError("popularity must be a distribution: entries >= 0 that sum to 1.")
        if (
            self.starts.shape != (n_apps + 1,)
            or self.share.shape != (n_cells,)
            or (self.starts[0], self.starts[-1]) != (0, n_cells)
            or self.starts.min() < 0
            or self.starts.max() > n_cells  # else differences may overflow
            or np.any(np.diff(self.starts) < 0)
        ):
            raise ValueError(
                f"starts must rise from 0 to {n_cells} in {n_apps + 1} steps, one share a cell."
            )
        if n_cells and not (self.following.min() >= 0 and self.following.max() < n_apps):
            raise ValueError(f"following must hold apps 0 to {n_apps - 1}.")
        cells = np.repeat(np.arange(n_apps), np.diff(self.starts)) * n_apps + self.following
        if len(np.unique(cells)) < n_cells:
            raise ValueError("following must name no app twice in a row.")
        rows = np.add.reduceat(np.append(self.share, 0.0), self.starts[:-1]) * (
            np.diff(self.starts) > 0
        )
        if not (np.all(self.share >= 0) and np.all(rows <= 1 + 1e-6)):
            raise ValueError("the shares of a row must be >= 0 and sum to 1 or less.")

    @property
    def n_apps(self) -> int:
        return len(self.popularity)

    def shares(
        self, apps: npt.NDArray[np.int64], last: int | None, before: int | None = None
    ) -> tuple[Floats, float]:
        """The share of each of these apps in what comes after `last`; and 0, as nothing is known of
        what comes after `before` and `last`.

        Shares are of all that comes after `last` on any phone, so those of a phone's apps sum to 1
        or less. After an unknown app, or None, they are 0, as are those of apps that are not in the
        catalogue.
        """
        if last is None or not 0 <= last < self.n_apps:
            return np.zeros(len(apps)), 0.0
        row = slice(self.starts[last], self.starts[last + 1])
        dense = np.zeros(self.n_apps + 1)
        dense[self.following[row]] = self.share[row]
        known = np.where((apps >= 0) & (apps < self.n_apps), apps, self.n_apps)
        return dense[known], 0.0

    def after(self, last: int | None) -> Floats:
        """P(next | last) for all apps, (n_apps,), the rest of a row by popularity; plain popularity
        where `last` is not known."""
        if last is None or not 0 <= last < self.n_apps:
            return self.popularity
        row = slice(self.starts[last], self.starts[last + 1])
        shares = self.share[row]
        known = (1.0 - min(1.0, float(shares.sum()))) * self.popularity
        np.add.at(known, self.following[row], shares)
        return known


HISTORY_KEPT = 64
"""Broadcasts that one tells of; a phone that was away for longer cannot check what it missed."""


@dataclass(frozen=True)
class History:
    """The broadcasts of a server before this one, so that a phone can tell if it was shown others.

    ``digests`` are rounds and the SHA-256 of their bytes, in hex, the latest last. ``chain`` stands
    for all of them since the first: of one broadcast to the next

        chain := SHA-256(chain ‖ digest of the broadcast),   32 zero bytes at the start
    """

    digests: tuple[tuple[int, str], ...] = ()
    chain: str = "00" * 32

    def __post_init__(self) -> None:
        for word in (self.chain, *(digest for _, digest in self.digests)):
            if not is_digest(word):
                raise ValueError(f"a digest has 64 hexadecimal digits, got {word!r:.80}.")
        rounds = [round for round, _ in self.digests]
        if len(rounds) > HISTORY_KEPT or any(
            type(round) is not int or not 0 <= round <= LARGEST_ROUND for round in rounds
        ):
            raise ValueError(f"a history has at most {HISTORY_KEPT} rounds, each >= 0.")
        if any(one >= next_one for one, next_one in pairwise(rounds)):
            raise ValueError("the rounds of a history must ascend.")

    @property
    def previous(self) -> str:
        """The digest of the broadcast before; empty for the first."""
        return self.digests[-1][1] if self.digests else ""

    def after(self, round: int, data: bytes) -> History:
        """The history of the broadcast that comes after the one of these bytes."""
        digest = digest_of(data)
        return History((*self.digests, (round, digest))[-HISTORY_KEPT:], _link(self.chain, digest))

    def continues(self, round: int, digest: str, chain: str) -> bool | None:
        """Whether a broadcast with this round, digest and chain is part of this history.

        None where it is too long ago to tell.
        """
        long_ago = len(self.digests) == HISTORY_KEPT and self.digests[0][0] > round
        return None if long_ago else self.continues_by(self.digests, round, digest, chain)

    def continues_by(
        self, digests: Sequence[tuple[int, str]], round: int, digest: str, chain: str
    ) -> bool:
        """The same by a longer list of digests, up to the broadcast before this one."""
        later = [(number, other) for number, other in digests if number >= round]
        if not later or later[0] != (round, digest):
            return False
        for _, each in later:
            chain = _link(chain, each)
        return chain == self.chain


LARGEST_ROUND = (1 << 53) - 1  # of a broadcast: a whole number in every language


def digest_of(data: bytes) -> str:
    """The SHA-256 of bytes, in hex: what a broadcast is known by."""
    return hashlib.sha256(data).hexdigest()


def is_digest(word: object) -> bool:
    return isinstance(word, str) and len(word) == 64 and not set(word) - set("0123456789abcdef")


def _link(chain: str, digest: str) -> str:
    return hashlib.sha256(bytes.fromhex(chain + digest)).hexdigest()


@dataclass(frozen=True, eq=False)
class Broadcast:
    """What the server publishes for a round: the app vectors Q and the settings of the model.

    ``apps`` are the names of the catalogue, row by row; empty where apps are known by number only.
    ``request`` is what phones are asked to send in this round, ``crowd`` what phones have told
    together so far, ``history`` which broadcasts came before.
    """

    round: int
    app_vectors: Floats
    settings: ModelSettings
    apps: tuple[str, ...] = ()
    request: ReportRequest | None = None
    crowd: Crowd | None = None
    history: History = History()

    def __post_init__(self) -> None:
        if not 0 <= self.round <= LARGEST_ROUND:
            raise ValueError(f"round must be from 0 to 2^53 - 1, got {self.round!r:.80}.")
        if any(round >= self.round for round, _ in self.history.digests):
            raise ValueError(f"the history of round {self.round} tells of later rounds.")
        if not all(isinstance(name, str) for name in self.apps):
            raise ValueError("the catalogue has names that are no text.")
        if self.app_vectors.ndim != 2 or self.app_vectors.dtype != np.float64:
            raise ValueError(
                f"app_vectors must be a (n_apps, d) array of float64, got shape "
                f"{self.app_vectors.shape} of {self.app_vectors.dtype}."
            )
        if not np.isfinite(self.app_vectors).all():
            raise ValueError("app_vectors must be finite; a step of the server went wrong.")
        if self.apps and len(self.apps) != len(self.app_vectors):
            raise ValueError(
                f"a catalogue of {len(self.apps)} names does not fit {len(self.app_vectors)} rows."
            )
        if self.crowd is not None and self.crowd.n_apps != len(self.app_vectors):
            raise ValueError(
                f"a crowd of {self.crowd.n_apps} apps does not fit {len(self.app_vectors)} rows."
            )

    @property
    def n_apps(self) -> int:
        return len(self.app_vectors)

    @property
    def dim(self) -> int:
        return int(self.app_vectors.shape[1])

    @cached_property
    def gram(self) -> Floats:
        """QᵀQ, computed once a round and sent along: a phone's cost does not grow with n_apps."""
        return self.app_vectors.T @ self.app_vectors

    def to_bytes(self, **words: str) -> bytes:
        """The broadcast as a safetensors file; further `words` are kept in its header."""
        tensors = {"app_vectors": self.app_vectors, "gram": self.gram}
        if self.crowd is not None:
            tensors |= {f"crowd.{name}": getattr(self.crowd, name) for name in _CROWD_TENSORS}
        own = {
            "kind": "nextapp broadcast",
            "round": str(self.round),
            "settings": json.dumps(asdict(self.settings)),
            "apps": json.dumps(self.apps),
        }
        if self.history.digests:
            own["previous"] = self.history.previous
            own["history"] = json.dumps(asdict(self.history))
        if self.request is not None:
            own["request"] = json.dumps(asdict(self.request))
        return pack(tensors, {**words, **own})

    @classmethod
    def from_bytes(cls, data: bytes) -> Broadcast:
        tensors, metadata = unpack(data)
        if metadata.get("kind") != "nextapp broadcast":
            raise WireError(f"expected a nextapp broadcast, got {metadata.get('kind')!r}.")
        try:
            broadcast = cls(
                round=int(metadata["round"]),
                app_vectors=np.array(tensors["app_vectors"]),
                settings=settings_from(json.loads(metadata["settings"])),
                apps=tuple(json.loads(metadata["apps"])),
                request=(
                    ReportRequest(**json.loads(metadata["request"]))
                    if "request" in metadata
                    else None
                ),
                crowd=(
                    Crowd(**{name: np.array(tensors[f"crowd.{name}"]) for name in _CROWD_TENSORS})
                    if f"crowd.{_CROWD_TENSORS[0]}" in tensors
                    else None
                ),
                history=history_from(json.loads(metadata.get("history", "{}"))),
            )
            gram = np.array(tensors["gram"])
        except (
            ArithmeticError,
            AttributeError,
            IndexError,
            KeyError,
            RecursionError,
            TypeError,
            ValueError,
        ) as error:
            raise WireError(f"a broadcast that cannot be read: {error}") from error
        if gram.shape != (broadcast.dim, broadcast.dim):
            raise WireError(f"gram has shape {gram.shape}, expected {(broadcast.dim,) * 2}.")
        broadcast.__dict__["gram"] = gram
        return broadcast


_CROWD_TENSORS = tuple(field.name for field in fields(Crowd))


def history_from(values: Mapping[str, Any]) -> History:
    if not values:
        return History()
    digests = tuple((round, digest) for round, digest in values["digests"])
    return History(digests, values["chain"])


def settings_from(values: Mapping[str, Any]) -> ModelSettings:
    known = {field.name for field in fields(ModelSettings)}
    if unknown := set(values) - known:
        raise WireError(f"unknown model settings {sorted(unknown)}; known are {sorted(known)}.")
    return ModelSettings(**values)


_REPORT_HEAD = struct.Struct(
    "<2sBBQI"
)  # magic, version, length of the name, round, length of payload
_REPORT_MAGIC = b"nR"
_REPORT_VERSION = 1
_CRC = struct.Struct("<I")


@dataclass(frozen=True)
class Report:
    """What one phone sends for one round. The payload is its mechanism's affair."""

    mechanism: str
    round: int
    payload: bytes

    def __post_init__(self) -> None:
        name = self.mechanism
        if not (name.isascii() and name.isprintable() and 1 <= len(name) <= 64):
            raise ValueError(f"a mechanism's name has 1 to 64 plain characters, got {name!r}.")
        if not 0 <= self.round < 1 << 64:
            raise ValueError(f"round must be from 0 to 2^64 - 1, got {self.round!r}.")

    def to_bytes(self) -> bytes:
        name = self.mechanism.encode()
        head = _REPORT_HEAD.pack(
            _REPORT_MAGIC, _REPORT_VERSION, len(name), self.round, len(self.payload)
        )
        body = head + name + self.payload
        return body + _CRC.pack(zlib.crc32(body))

    @classmethod
    def from_bytes(cls, data: bytes) -> Report:
        """The report in `data`, or a `WireError`; never anything else, whatever the bytes are."""
        if len(data) < _REPORT_HEAD.size + _CRC.size:
            raise WireError(
                f"a report has at least {_REPORT_HEAD.size + _CRC.size} bytes, got {len(data)}."
            )
        magic, version, n_name, round_, n_payload = _REPORT_HEAD.unpack_from(data)
        if magic != _REPORT_MAGIC or version != _REPORT_VERSION:
            raise WireError(
                f"not a report of version {_REPORT_VERSION}: it starts with {data[:3]!r}."
            )
        expected = _REPORT_HEAD.size + n_name + n_payload + _CRC.size
        if len(data) != expected:
            raise WireError(f"the report's header announces {expected} bytes, got {len(data)}.")
        body, (crc,) = data[: -_CRC.size], _CRC.unpack(data[-_CRC.size :])
        if crc != zlib.crc32(body):
            raise WireError("the report's checksum does not fit: it was damaged on the way.")
        start = _REPORT_HEAD.size
        try:
            return cls(body[start : start + n_name].decode("ascii"), round_, body[start + n_name :])
        except ValueError as error:
            raise WireError(f"a report that cannot be read: {error}") from error


_DTYPES = {"F64": np.float64, "F32": np.float32, "I64": np.int64, "U8": np.uint8}
_DTYPE_NAMES = {np.dtype(dtype): name for name, dtype in _DTYPES.items()}
_HEADER_LIMIT = 4 << 20  # 100,000 app names; JSON takes fifty times as much memory when read


def pack(tensors: Mapping[str, npt.NDArray[Any]], metadata: Mapping[str, str]) -> bytes:
    """Arrays and words as one safetensors file, with the SHA-256 of the arrays among the words."""
    header: dict[str, Any] = {}
    chunks = []
    offset = 0
    for name, tensor in tensors.items():
        data = np.ascontiguousarray(tensor).tobytes()
        header[name] = {
            "dtype": _DTYPE_NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + len(data)],
        }
        chunks.append(data)
        offset += len(data)
    body = b"".join(chunks)
    header["__metadata__"] = {**metadata, "sha256": _digest(header, metadata, body)}
    words = json.dumps(header).encode()
    words += b" " * (-len(words) % 8)
    return struct.pack("<Q", len(words)) + words + body


def unpack(data: bytes) -> tuple[dict[str, npt.NDArray[Any]], dict[str, str]]:
    """The inverse of `pack`; the arrays are read-only views into `data`. Raises `WireError`."""
    if len(data) < 8:
        raise WireError(f"a file of {len(data)} bytes is too short to be read.")
    (n_words,) = struct.unpack_from("<Q", data)
    if n_words > min(_HEADER_LIMIT, len(data) - 8):
        raise WireError(f"the header announces {n_words} bytes, the file has {len(data)}.")
    try:
        header = json.loads(data[8 : 8 + n_words])
        metadata = {str(key): str(word) for key, word in header.pop("__metadata__").items()}
        digest = metadata.pop("sha256")
        body = memoryview(data)[8 + n_words :]
        intact = digest == _digest(header, metadata, body)
        tensors = {}
        for name, entry in header.items():
            start, stop = entry["data_offsets"]
            flat = np.frombuffer(body[start:stop], _DTYPES[entry["dtype"]])
            tensors[name] = flat.reshape(entry["shape"])
    except (
        ArithmeticError,
        AttributeError,
        KeyError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise WireError(f"the file cannot be read: {error!r:.200}") from error
    if not intact:
        raise WireError("the checksum does not fit: the file is damaged or was cut short.")
    return tensors, metadata


def _digest(
    header: Mapping[str, Any], metadata: Mapping[str, str], body: bytes | memoryview
) -> str:
    entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
    words = json.dumps([entries, metadata], sort_keys=True).encode()
    return hashlib.sha256(words + b"\0" + bytes(body)).hexdigest()
