"""The messages between a phone and its server: `Broadcast` goes down, `Report` goes up.

A Broadcast is sent in the safetensors format (8 bytes of header length, a JSON header, raw
arrays), which other tools read too; its SHA-256 is in the header, so that a damaged copy is
detected. A Report is a few bytes of header, the payload of its mechanism, and a CRC-32. Reading
either allocates no more memory than the received bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]

READINGS = ("example", "equation", "authors", "none")
INFERENCES = ("sum", "mean", "last", "none")
QUESTIONS = ("gradient", "launches", "transitions")
_SHOWN = 8  # apps that a crowd shows of itself in a notebook


class WireError(ValueError):
    """Received bytes that are not valid."""


_UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


class WrongSize(WireError):
    """A payload whose size does not fit its mechanism."""


@dataclass(frozen=True)
class ModelSettings:
    """The settings with which all phones solve their user vectors and predict.

    ``reading`` is the interpretation of S_u (PAPER.md, R1); ``none`` leaves S_u out, which is the
    MF model. ``inference`` is how the launches of the session so far enter the light score (R7):
    their ``sum``, their ``mean``, only the ``last``, the sum of the last l with ``window:l``, or
    ``none``.
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
                f"lam must be a finite number > 0, got {self.lam!r}: otherwise the user vector is "
                f"not well defined for every history."
            )
        for name in ("alpha", "gamma"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise ValueError(f"{name} must lie in [0, 1], got {value!r}.")
        if self.reading not in READINGS:
            raise ValueError(f"reading must be one of {', '.join(READINGS)}, got {self.reading!r}.")
        inference_window(self.inference)


def _check_number(name: str, value: object) -> None:
    """Raise unless it is a finite number; JSON may also contain strings, 10^400 and NaN."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        with suppress(OverflowError):
            if math.isfinite(value):
                return
    raise ValueError(f"{name} must be a finite number, got {value!r:.80}.")


def inference_window(inference: str) -> int | None:
    """The l of ``window:l``; None for other known values of inference; raises for unknown ones."""
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
    """What phones are asked to send in a round: the mechanism, its ε, clip and other options.

    A phone checks the request against its owner's limits before it makes a report. ``question`` is
    the kind of data to report:

        gradient      F(u), eq. (12), (n_apps, d): the paper's training
        launches      √(share of its launches) of each bucket of the catalogue, (n_buckets, 1)
        transitions   shares as in `nextapp.crowd`, (n_apps, n_apps + 1)
    """

    mechanism: str
    epsilon: float
    clip: float | None = None
    options: Mapping[str, int | float | str] = field(default_factory=dict)
    question: str = "gradient"

    def __post_init__(self) -> None:
        if self.question not in QUESTIONS:
            raise ValueError(
                f"question must be one of {', '.join(QUESTIONS)}, got {self.question!r:.80}."
            )
        name = self.mechanism
        if not (isinstance(name, str) and name.isascii() and 1 <= len(name) <= 64):
            raise ValueError(f"a mechanism's name has 1 to 64 plain characters, got {name!r:.80}.")
        for word, value in (("epsilon", self.epsilon), ("clip", self.clip)):
            if value is not None or word == "epsilon":
                _check_number(word, value)
            if value is not None and not value > 0:
                raise ValueError(f"{word} must be a number > 0, got {value!r}.")
        if not isinstance(self.options, Mapping):
            raise ValueError(f"options must be a table, got {self.options!r:.80}.")
        for option, given in self.options.items():
            if not isinstance(given, str):
                _check_number(f"option {option!r:.40}", given)


MOST_BUCKETS = 1 << 20
MOST_CELLS = 1 << 17  # of a crowd that is sent: 64 followers of 2,048 apps
LONGEST_SALT = 64


@dataclass(frozen=True, eq=False)
class Buckets:
    """A catalogue without app names: each app is in one of ``n_buckets`` by a hash of its name.

    Row s of all tables is for the bucket ``slots[s]``; no bucket occurs twice. An app whose bucket
    has no slot is not in the catalogue. Another ``salt`` gives other collisions.
    """

    n_buckets: int
    salt: str
    slots: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        n = self.n_buckets
        if type(n) is not int or not 1 < n <= MOST_BUCKETS or n & (n - 1):
            raise ValueError(
                f"n_buckets must be a power of two from 2 to {MOST_BUCKETS}, got {n!r:.80}."
            )
        if not (isinstance(self.salt, str) and len(self.salt) <= LONGEST_SALT):
            raise ValueError(
                f"the salt of a catalogue must have at most {LONGEST_SALT} characters, got "
                f"{self.salt!r:.80}."
            )
        slots = self.slots
        if slots.ndim != 1 or slots.dtype.kind != "i" or len(slots) > n:
            raise ValueError(
                f"slots must be one row of at most {n} buckets, got shape {slots.shape} of "
                f"{slots.dtype}."
            )
        if len(slots) and not (slots.min() >= 0 and slots.max() < n):
            raise ValueError(f"slots must have buckets from 0 to {n - 1}.")
        if len(np.unique(slots)) < len(slots):
            raise ValueError("slots must name no bucket twice.")

    def bucket(self, name: str) -> int:
        """The bucket of an app, from the first 8 bytes of a SHA-256:

        SHA-256("nextapp bucket" ‖ salt ‖ 0 ‖ name) mod n_buckets,   lowest byte first
        """
        words = f"nextapp bucket{self.salt}\0{name}".encode("utf-8", "surrogatepass")
        return int.from_bytes(hashlib.sha256(words).digest()[:8], "little") % self.n_buckets


@dataclass(frozen=True, eq=False)
class Crowd:
    """The prior learnt from many phones: P(app), and P(next | last) where there is enough data.

    ``popularity`` (n_apps,) sums to 1. In row j of P(next | last = j), the apps
    ``following[starts[j]:starts[j + 1]]``, all different, have the probabilities ``share``. If a
    row sums to less than 1, the remaining probability is unknown: a phone uses its own data.
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
                f"starts must be {n_apps + 1} ascending numbers from 0 to {n_cells}, and share "
                f"must have one entry per cell."
            )
        if n_cells and not (self.following.min() >= 0 and self.following.max() < n_apps):
            raise ValueError(f"following must have apps from 0 to {n_apps - 1}.")
        cells = np.repeat(np.arange(n_apps), np.diff(self.starts)) * n_apps + self.following
        if np.any(np.diff(np.sort(cells)) == 0):
            raise ValueError("following must name no app twice in a row.")
        rows = np.add.reduceat(np.append(self.share, 0.0), self.starts[:-1]) * (
            np.diff(self.starts) > 0
        )
        if not (np.all(self.share >= 0) and np.all(rows <= 1 + 1e-6)):
            raise ValueError("the shares of a row must be >= 0 and sum to 1 or less.")

    @property
    def n_apps(self) -> int:
        return len(self.popularity)

    def _repr_html_(self) -> str:
        """For a notebook: the most used apps, and what follows each of them most."""
        rows = []
        for app in np.argsort(-self.popularity, kind="stable")[:_SHOWN].tolist():
            row = slice(self.starts[app], self.starts[app + 1])
            order = np.argsort(-self.share[row], kind="stable")[:3]
            followers = ", ".join(
                f"{self.following[row][place]} ({self.share[row][place]:.3f})" for place in order
            )
            popularity = f"{self.popularity[app]:.3f}"
            rows.append(f"<tr><td>{app}</td><td>{popularity}</td><td>{followers}</td></tr>")
        return (
            f"<p>{self.n_apps:,} apps, {len(self.share):,} transitions</p><table>"
            "<tr><th>app</th><th>share of launches</th><th>followed by (share)</th></tr>"
            f"{''.join(rows)}</table>"
        )

    def rounded(self) -> Crowd:
        """The crowd after sending: shares rounded to 1 part in 30, popularities to 1 in 3,000.

        Rounding is idempotent. Followers with a share below 1/1,600 are left out.
        """
        return _crowd_of(_crowd_codes(self))

    def shares(
        self, apps: npt.NDArray[np.int64], last: int | None, before: int | None = None
    ) -> tuple[Floats, float]:
        """P(app | last) of each of these apps; and 0, since the pair (`before`, `last`) is unknown.

        They are probabilities over all apps of all phones, so for a phone's apps they sum to 1 or
        less. They are 0 for an unknown `last` or None, and for apps that are not in the catalogue.
        """
        n = self.n_apps
        if last is None or not 0 <= last < n:
            return np.zeros(len(apps)), 0.0
        row = slice(self.starts[last], self.starts[last + 1])
        dense = np.zeros(n + 1)  # the last for apps of other numbers; below 0, they wrap beyond n
        dense[self.following[row]] = self.share[row]
        return dense[np.minimum(apps.astype(np.uint64), n)], 0.0


HISTORY_KEPT = 64
"""Number of earlier broadcasts listed; a phone that missed more cannot check them."""


@dataclass(frozen=True)
class History:
    """The earlier broadcasts of a server, so that a phone can detect if it was shown other ones.

    ``digests`` are rounds and the SHA-256 of their bytes, in hex, the latest last. ``chain`` is a
    hash chain over all broadcasts since the first, from one to the next

        chain := SHA-256(chain ‖ digest of the broadcast),   32 zero bytes at the start
    """

    digests: tuple[tuple[int, str], ...] = ()
    chain: str = "00" * 32

    def __post_init__(self) -> None:
        for word in (self.chain, *(digest for _, digest in self.digests)):
            if not is_digest(word):
                raise ValueError(f"a digest has 64 hexadecimal digits, got {word!r:.80}.")
        rounds = [round for round, _ in self.digests]
        if len(rounds) > HISTORY_KEPT or not all(map(is_round, rounds)):
            raise ValueError(f"a history has at most {HISTORY_KEPT} rounds, each >= 0.")
        if any(earlier >= later for earlier, later in pairwise(rounds)):
            raise ValueError("the rounds of a history must be ascending.")

    def after(self, round: int, data: bytes) -> History:
        """The history of the broadcast that follows the one with these bytes."""
        digest = digest_of(data)
        return History((*self.digests, (round, digest))[-HISTORY_KEPT:], _link(self.chain, digest))

    def continues(self, round: int, digest: str, chain: str) -> bool | None:
        """Whether a broadcast with this round, digest and chain is part of this history.

        None if it is older than the list of digests.
        """
        long_ago = len(self.digests) == HISTORY_KEPT and self.digests[0][0] > round
        return None if long_ago else self.continues_by(self.digests, round, digest, chain)

    def continues_by(
        self, digests: Sequence[tuple[int, str]], round: int, digest: str, chain: str
    ) -> bool:
        """The same with a longer list of digests, up to the previous broadcast."""
        later = [(number, other) for number, other in digests if number >= round]
        if not later or later[0] != (round, digest):
            return False
        for _, each in later:
            chain = _link(chain, each)
        return chain == self.chain


LARGEST_ROUND = (1 << 53) - 1  # of a broadcast: an exact integer in every language


def digest_of(data: bytes) -> str:
    """The SHA-256 of bytes, in hex, which identifies a broadcast."""
    return hashlib.sha256(data).hexdigest()


def is_round(number: object) -> TypeGuard[int]:
    return type(number) is int and 0 <= number <= LARGEST_ROUND


def is_digest(word: object) -> TypeGuard[str]:
    return isinstance(word, str) and len(word) == 64 and not set(word) - set("0123456789abcdef")


def _link(chain: str, digest: str) -> str:
    return hashlib.sha256(bytes.fromhex(chain + digest)).hexdigest()


_REGION = re.compile("[a-z0-9]{1,16}")
_MODULUS = re.compile("[89a-f][0-9a-f]{510}[13579bdf]")
MOST_KEYS = 64
KEYS_OF_A_REGION = 2
"""A report tells its token's key, so each key splits the phones into smaller crowds."""
MOST_TOKENS = 100


@dataclass(frozen=True)
class TokenKey:
    """The public key by which a gateway signs the tokens of a period (docs/protocol.md, Tokens).

    ``region`` is the gateway's name, ``modulus`` 2,048 bits in hex, ``tokens`` how many of them a
    phone gets. It is known by its ``id``: the region, and a hash of the modulus.
    """

    region: str
    modulus: str
    tokens: int = 1

    def __post_init__(self) -> None:
        if not (isinstance(self.region, str) and _REGION.fullmatch(self.region)):
            raise ValueError(f"a region has 1 to 16 of a-z and 0-9, got {self.region!r:.80}.")
        if not (isinstance(self.modulus, str) and _MODULUS.fullmatch(self.modulus)):
            raise ValueError("a modulus is an odd number of 2,048 bits, in hex.")
        if type(self.tokens) is not int or not 1 <= self.tokens <= MOST_TOKENS:
            raise ValueError(
                f"a phone gets 1 to {MOST_TOKENS} tokens of a key, got {self.tokens!r:.80}."
            )

    @cached_property
    def id(self) -> str:
        return f"{self.region}-{digest_of(bytes.fromhex(self.modulus))[:32]}"


@dataclass(frozen=True, eq=False)
class Broadcast:
    """What the server publishes for a round: the app vectors Q and the settings of the model.

    ``apps`` are the names of the catalogue, row by row; empty if apps are known by number only.
    ``request`` is what phones are asked to send in this round, ``crowd`` the prior learnt so far,
    ``history`` the earlier broadcasts. ``buckets`` replaces the names if the catalogue has hashes.
    ``keys`` are those by whose tokens reports are taken, of each region the newest last.
    App vectors may have no columns (d = 0) if the server learns only the crowd.
    """

    round: int
    app_vectors: Floats
    settings: ModelSettings
    apps: tuple[str, ...] = ()
    request: ReportRequest | None = None
    crowd: Crowd | None = None
    history: History = History()
    buckets: Buckets | None = None
    keys: tuple[TokenKey, ...] = ()

    def __post_init__(self) -> None:
        if len(self.keys) > MOST_KEYS or len({key.id for key in self.keys}) < len(self.keys):
            raise ValueError(f"a broadcast has at most {MOST_KEYS} keys, each once.")
        regions = Counter(key.region for key in self.keys)
        if max(regions.values(), default=0) > KEYS_OF_A_REGION:
            raise ValueError(f"a broadcast has at most {KEYS_OF_A_REGION} keys of a region.")
        if not is_round(self.round):
            raise ValueError(f"round must be from 0 to 2^53 - 1, got {self.round!r:.80}.")
        if any(round >= self.round for round, _ in self.history.digests):
            raise ValueError(f"the history of round {self.round} contains later rounds.")
        if not all(isinstance(name, str) for name in self.apps):
            raise ValueError("the catalogue has names that are not strings.")
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
        if self.buckets is not None and (
            self.apps or len(self.buckets.slots) != len(self.app_vectors)
        ):
            raise ValueError(
                f"a catalogue of {len(self.buckets.slots)} buckets and {len(self.apps)} names does "
                f"not fit {len(self.app_vectors)} rows: give names or buckets, one per row."
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
        """QᵀQ, computed once per round: the cost of a user vector is independent of n_apps."""
        return self.app_vectors.T @ self.app_vectors

    def to_bytes(self) -> bytes:
        """The broadcast as a safetensors file; the crowd is rounded, see `Crowd.rounded`."""
        tensors: dict[str, npt.NDArray[Any]] = {}
        own = {
            "kind": "nextapp broadcast",
            "round": str(self.round),
            "settings": json.dumps(asdict(self.settings)),
            "apps": json.dumps(self.apps),
        }
        if self.dim:
            tensors["app_vectors"] = self.app_vectors
        else:
            own["n_apps"] = str(self.n_apps)
        if self.buckets is not None:
            own["buckets"] = json.dumps(
                {"n_buckets": self.buckets.n_buckets, "salt": self.buckets.salt}
            )
            tensors["slots"] = _narrow(self.buckets.slots, self.buckets.n_buckets)
        if self.crowd is not None:
            tensors |= {f"crowd.{name}": each for name, each in _crowd_codes(self.crowd).items()}
        if self.history.digests:
            own["history"] = json.dumps(asdict(self.history))
        if self.request is not None:
            own["request"] = json.dumps(asdict(self.request))
        if self.keys:
            own["keys"] = json.dumps([asdict(key) for key in self.keys])
        return pack(tensors, own)

    @classmethod
    def from_bytes(cls, data: bytes) -> Broadcast:
        tensors, metadata = unpack(data)
        if metadata.get("kind") != "nextapp broadcast":
            raise WireError(f"expected a nextapp broadcast, got {metadata.get('kind')!r}.")
        try:
            if "app_vectors" in tensors:
                vectors = np.array(tensors["app_vectors"])
            else:
                n_apps = int(metadata["n_apps"])
                if not 0 <= n_apps <= MOST_BUCKETS:
                    raise WireError(f"n_apps must be from 0 to {MOST_BUCKETS}, got {n_apps}.")
                vectors = np.zeros((n_apps, 0))
            if len(tensors.get("crowd.share", ())) > MOST_CELLS:
                raise WireError(f"its crowd has more than {MOST_CELLS:,} transitions.")
            buckets = None
            if "buckets" in metadata:
                slots = np.array(tensors["slots"]).astype(np.int64)
                buckets = Buckets(**json.loads(metadata["buckets"]), slots=slots)
            return cls(
                round=int(metadata["round"]),
                app_vectors=vectors,
                settings=model_settings_from(json.loads(metadata["settings"])),
                apps=tuple(json.loads(metadata["apps"])),
                request=(
                    ReportRequest(**json.loads(metadata["request"]))
                    if "request" in metadata
                    else None
                ),
                crowd=(
                    _crowd_of({name: tensors[f"crowd.{name}"] for name in _CROWD_CODES})
                    if f"crowd.{_CROWD_CODES[0]}" in tensors
                    else None
                ),
                history=history_from(json.loads(metadata.get("history", "{}"))),
                buckets=buckets,
                keys=tuple(TokenKey(**each) for each in json.loads(metadata.get("keys", "[]"))),
            )
        except _UNREADABLE as error:
            raise WireError(f"the broadcast cannot be read: {error}") from error


# A crowd in bytes. Shares and popularities are stored as logarithms, in one byte per share and two
# per popularity: a constant relative error, far below that of the estimates.
_CROWD_CODES = ("popularity", "followers", "following", "share")
_SHARE_STEPS = 24  # steps per factor of 2: rounded down by at most 3 %
_SMALLEST_SHARE = 2.0 ** (-255 / _SHARE_STEPS)  # 6e-4
_POPULARITY_STEPS = 2048
_NEVER = (1 << 16) - 1  # the code of a popularity of 0


def _narrow(numbers: npt.NDArray[np.int64], below: int) -> npt.NDArray[Any]:
    """Integers from 0 to below − 1 in 2 bytes each, or 4 if necessary."""
    return numbers.astype(np.uint16 if below <= 1 << 16 else np.uint32)


def _crowd_codes(crowd: Crowd) -> dict[str, npt.NDArray[Any]]:
    """The arrays in which a crowd is sent.

    popularity  2^(−code/2048) divided by their sum, 65535 for 0; the most popular has code 0
    followers   number of followers of each app, at most 255, the most likely ones
    following   the followers, ascending for each app
    share       2^(−code/24), rounded down, so that no row sums to more than 1
    """
    rows = np.repeat(np.arange(crowd.n_apps), np.diff(crowd.starts))
    order = np.lexsort((-crowd.share, rows))
    place = np.arange(len(rows)) - crowd.starts[rows]
    kept = order[(place < 255) & (crowd.share[order] >= _SMALLEST_SHARE)]
    kept = kept[np.lexsort((crowd.following[kept], rows[kept]))]
    codes = np.ceil(-_SHARE_STEPS * np.log2(np.minimum(crowd.share[kept], 1.0)) - 1e-6)
    popular = crowd.popularity / crowd.popularity.max(initial=0.0)
    with np.errstate(divide="ignore"):
        steps = np.minimum(np.rint(-_POPULARITY_STEPS * np.log2(popular)), _NEVER)
    return {
        "popularity": steps.astype(np.uint16),
        "followers": np.bincount(rows[kept], minlength=crowd.n_apps).astype(np.uint8),
        "following": _narrow(crowd.following[kept], crowd.n_apps),
        "share": np.clip(codes, 0, 255).astype(np.uint8),
    }


def _crowd_of(codes: Mapping[str, npt.NDArray[Any]]) -> Crowd:
    for name, kinds in zip(_CROWD_CODES, ((2,), (1,), (2, 4), (1,)), strict=True):
        kind = codes[name].dtype
        if kind.kind != "u" or kind.itemsize not in kinds:
            raise ValueError(f"crowd.{name} has numbers of {kind}.")
    steps = codes["popularity"]
    popularity = np.where(steps == _NEVER, 0.0, 2.0 ** (steps / -float(_POPULARITY_STEPS)))
    starts = np.append(0, np.cumsum(codes["followers"], dtype=np.int64))
    share = 2.0 ** (codes["share"] / -float(_SHARE_STEPS))
    total = float(popularity.sum())
    return Crowd(popularity / (total or 1.0), starts, codes["following"].astype(np.int64), share)


def history_from(values: Mapping[str, Any]) -> History:
    if not values:
        return History()
    digests = tuple((round, digest) for round, digest in values["digests"])
    return History(digests, values["chain"])


def model_settings_from(values: Mapping[str, Any]) -> ModelSettings:
    known = {field.name for field in fields(ModelSettings)}
    if unknown := set(values) - known:
        raise WireError(f"unknown model settings {sorted(unknown)}; known are {sorted(known)}.")
    return ModelSettings(**values)


_REPORT_HEAD = struct.Struct("<2sBBQI")  # magic, version, lengths of name, round and payload
_REPORT_MAGIC = b"nR"
_REPORT_VERSION = 1
_CRC = struct.Struct("<I")


@dataclass(frozen=True)
class Report:
    """What one phone sends in one round. The mechanism defines the payload."""

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
        """The report in `data`; raises a `WireError`, and no other error, if it is not valid."""
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
            raise WireError("the report's checksum is wrong: it was damaged in transit.")
        start = _REPORT_HEAD.size
        try:
            return cls(body[start : start + n_name].decode("ascii"), round_, body[start + n_name :])
        except ValueError as error:
            raise WireError(f"the report cannot be read: {error}") from error


_DTYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "I64": np.int64,
    "U8": np.uint8,
    "U16": np.uint16,
    "U32": np.uint32,
}
_DTYPE_NAMES = {np.dtype(dtype): name for name, dtype in _DTYPES.items()}
_HEADER_LIMIT = 4 << 20  # 100,000 app names; parsed JSON takes fifty times as much memory


def pack(tensors: Mapping[str, npt.NDArray[Any]], metadata: Mapping[str, str]) -> bytes:
    """Arrays and metadata as one safetensors file, with their SHA-256 in the metadata."""
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
        raise WireError(f"a file of {len(data)} bytes is too short.")
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
    except _UNREADABLE as error:
        raise WireError(f"the file cannot be read: {error!r:.200}") from error
    if not intact:
        raise WireError("the checksum is wrong: the file is damaged or incomplete.")
    return tensors, metadata


def _digest(
    header: Mapping[str, Any], metadata: Mapping[str, str], body: bytes | memoryview
) -> str:
    entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
    digest = hashlib.sha256(json.dumps([entries, metadata], sort_keys=True).encode() + b"\0")
    digest.update(body)
    return digest.hexdigest()
