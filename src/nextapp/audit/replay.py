"""Layer 0 of the audit: does ``encode`` make, word by word, the report that it states?

The random words of a report are chosen here, next to every threshold, and ``encode`` is given these
words and no others. The report must be the one that the protocol (`audit.protocols`) makes of the
same words, in all its bytes: mechanism, round, length, payload. It must use up exactly these words;
the public part must come from the coins where there are some. There is no chance in it, so a right
mechanism never fails, and a threshold that is off by one in 2^64 is seen.

It is done at the sizes of a deployment, with what phones hand over (`audit.inputs`), and with sizes,
options, ε, rounds and inputs drawn at random. Statements of ``encode`` that did not run in all that
count as a fault too (`audit.unreached`).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nextapp.audit import inputs
from nextapp.audit.inputs import Input
from nextapp.audit.protocols import PROTOCOLS, Chooser, Content, Protocol, content, protocol
from nextapp.audit.unreached import Reach
from nextapp.privacy import MECHANISMS, Mechanism
from nextapp.randomness import KeyedBits, Words
from nextapp.wire import Broadcast, Report

ROUNDS = (0, 1, 2, 77, 1000, 1 << 31, (1 << 32) + 5, (1 << 64) - 1)
"""Rounds that are tried beside random ones."""

_MOST_FAULTS = 5
_PUBLIC_PARTS = 3  # seeds or positions tried with every input


@dataclass(frozen=True)
class Effort:
    """How much is replayed. ``sizes`` are (n_apps, d, reports)."""

    own: int = 1500
    sizes: tuple[tuple[int, int, int], ...] = ((87, 16, 900), (500, 16, 60))
    oracle_sizes: tuple[tuple[int, int, int], ...] = ((87, 88, 900), (500, 501, 300), (2000, 2001, 60))
    drawn: int = 60
    per_drawn: int = 6


DEFAULT = Effort()
QUICK = Effort(
    own=600,
    sizes=((87, 16, 250),),
    oracle_sizes=((87, 88, 250), (2000, 2001, 15)),
    drawn=20,
)


@dataclass(frozen=True)
class Replay:
    """How many reports were replayed, and the faults found, the first few of them in words."""

    n_reports: int
    n_sizes: int
    faults: tuple[str, ...]
    unreached: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return not self.faults and not self.unreached


class Script:
    """Bits that are these words, once."""

    def __init__(self, words: Sequence[int]) -> None:
        self._words = np.array(words, np.uint64)
        self.n_drawn = 0

    def words(self, n: int) -> Words:
        if not 0 <= n <= self.n_left:
            self.n_drawn += max(n, 0)
            raise OutOfWords(f"asked for {n} words where {self.n_left} are left")
        self.n_drawn += n
        return self._words[self.n_drawn - n : self.n_drawn].copy()

    @property
    def n_left(self) -> int:
        return len(self._words) - self.n_drawn


class OutOfWords(Exception):
    """More words were drawn than the protocol takes."""


def registered_name(mechanism: Mechanism) -> str | None:
    """The name under which the mechanism, or the class it is made from, is known."""
    for kind in type(mechanism).__mro__:
        for name, known in MECHANISMS.items():
            if known is kind:
                return name
    return None


def report_bytes(name: str, round: int, payload: bytes) -> bytes:
    """A report on the wire, version 1."""
    body = struct.pack("<2sBBQI", b"nR", 1, len(name), round, len(payload))
    body += name.encode() + payload
    return body + struct.pack("<I", zlib.crc32(body))


def replay(mechanism: Mechanism, seed: int, effort: Effort = DEFAULT) -> Replay | None:
    """The replay of a mechanism and of others of its class; None where it has no protocol."""
    name = registered_name(mechanism)
    if name not in PROTOCOLS:
        return None
    found = _Faults()
    number = 0
    for part in _parts(mechanism, name, seed, effort):
        number += 1
        part(found, KeyedBits(seed, phone=number, purpose="replay"))
        if len(found.faults) >= _MOST_FAULTS:
            break
    return Replay(found.n_reports, number, tuple(found.faults), tuple(found.unreached()))


class _Faults:
    """What was found so far."""

    def __init__(self) -> None:
        self.n_reports = 0
        self.faults: list[str] = []
        self.reach = Reach()

    def add(self, fault: str | None) -> None:
        self.n_reports += 1
        if fault is not None and len(self.faults) < _MOST_FAULTS:
            self.faults.append(fault)

    def unreached(self) -> list[str]:
        return [] if self.faults else self.reach.unreached()


_Part = Callable[[_Faults, KeyedBits], None]


def _parts(mechanism: Mechanism, name: str, seed: int, effort: Effort) -> Iterator[_Part]:
    """The mechanism at hand; others of its class at deployed sizes; others at random."""
    options = own_options(mechanism)
    simplex = mechanism.ball == "simplex"

    def own(found: _Faults, bits: KeyedBits) -> None:
        rng = bits.generator()
        given = [*inputs.extremes(mechanism.n_apps, mechanism.d, mechanism.clip, simplex)]
        given += [
            inputs.random_input(rng, mechanism.n_apps, mechanism.d, mechanism.clip)
            for _ in range(20)
        ]
        _replay_all(found, mechanism, name, given, effort.own, bits)
        _refusals(found, mechanism, name, bits)

    yield own

    def at_size(n_apps: int, d: int, n_reports: int) -> _Part:
        def part(found: _Faults, bits: KeyedBits) -> None:
            phones = inputs.deployed(n_apps, d, seed, simplex)
            clip = 1.0 if simplex else _public_clip(phones, mechanism.ball)
            made = _create(found, mechanism, n_apps, d, mechanism.epsilon, clip, options)
            if made is None:
                return
            given = list(phones)
            if not simplex:
                for number, each in enumerate(phones):
                    factor = (1e-6, 1e6, clip / (inputs.length(each.given, made.ball) or 1.0))
                    scale = factor[number % 3]
                    given.append(
                        Input(f"{each.what}, times {scale:.3g}", inputs.scaled(each.given, scale))
                    )
            given += inputs.extremes(n_apps, d, clip, simplex)
            _replay_all(found, made, name, given, n_reports, bits)
            _refusals(found, made, name, bits)
            _through_phones(found, made, name, seed, bits)

        return part

    for size in effort.oracle_sizes if simplex else effort.sizes:
        yield at_size(*size)

    def at_random(found: _Faults, bits: KeyedBits) -> None:
        rng = bits.generator()
        n_apps, d = _random_size(rng, simplex)
        epsilon, clip, some = _random_settings(rng, name, n_apps * d, options)
        made = _create(found, mechanism, n_apps, d, epsilon, clip, some)
        if made is None:
            return
        given = [inputs.random_input(rng, n_apps, d, clip) for _ in range(4)]
        given += [*inputs.extremes(n_apps, d, clip, simplex)][int(rng.integers(3)) :: 3]
        given = [given[place] for place in rng.permutation(len(given))[: effort.per_drawn]]
        with found.reach:
            _replay_all(found, made, name, given, effort.per_drawn, bits, parts=1)
            found.reach.in_encode = False
            _read_back(made, given[0], bits)
            found.reach.in_encode = True

    for _ in range(effort.drawn):
        yield at_random


def own_options(mechanism: Any) -> dict[str, Any]:
    """The options that this mechanism was made with, beside size, ε and clip."""
    names = {"laplace": ("ball",), "privunit": ("form",), "kashin": ("K",)}
    return {
        option: getattr(mechanism, option)
        for option in names.get(registered_name(mechanism) or "", ())
    }


def _create(
    found: _Faults,
    like: Mechanism,
    n_apps: int,
    d: int,
    epsilon: float,
    clip: float,
    options: dict[str, Any],
) -> Mechanism | None:
    if like.ball != "simplex":
        options = {**options, "clip": clip}
    kind: Any = type(like)
    try:
        made: Mechanism = kind(n_apps=n_apps, d=d, epsilon=epsilon, **options)
    except Exception as error:  # a class that cannot be made cannot be audited
        found.add(f"{n_apps} x {d}, ε {epsilon:.3g}, {options}: cannot be made: {error!r}")
        return None
    return made


def _replay_all(
    found: _Faults,
    mechanism: Mechanism,
    name: str,
    given: Sequence[Input],
    n_reports: int,
    bits: KeyedBits,
    parts: int = _PUBLIC_PARTS,
) -> None:
    simplex = mechanism.ball == "simplex"
    stated = protocol(name, mechanism)
    told = [content(each.given, simplex) for each in given]
    public: list[list[list[int]]] = [[] for _ in given]
    rng = bits.generator()
    for number in range(n_reports):
        place = number % len(given)
        preset: Sequence[int] = ()
        if len(public[place]) == parts:
            preset = public[place][number // len(given) % parts]
        attempt = _Attempt(mechanism, name, stated, random_round(rng), with_coins=bool(rng.integers(4)))
        fault, words = attempt.run(told[place], bits, preset)
        if not preset:
            public[place].append(words)
        found.add(fault and f"{_words(mechanism)}, {given[place].what}: {fault}")
        if len(found.faults) >= _MOST_FAULTS:
            return


@dataclass(frozen=True)
class _Attempt:
    """One report that is replayed."""

    mechanism: Mechanism
    name: str
    stated: Protocol
    round: int
    with_coins: bool

    def run(
        self, told: Content, bits: KeyedBits, preset: Sequence[int] = ()
    ) -> tuple[str | None, list[int]]:
        """The fault, if there is one, and the words of the public part."""
        public, private = Chooser(bits, preset), Chooser(bits)
        with np.errstate(all="ignore"):
            payload = self.stated.payload(told, public, private)
        if self.with_coins:
            script, coins = Script(private.words), Script(public.words)
        else:
            script, coins = Script([*public.words, *private.words]), None
        try:
            with np.errstate(all="ignore"):
                report = self.mechanism.encode(told.given, script, self.round, coins=coins)
        except OutOfWords as error:
            return f"draws other words than stated: {error}", public.words
        except Exception as error:  # whatever it is, no report came
            return f"no report, but {error!r}", public.words
        return self.compare(report, payload, script, coins), public.words

    def compare(
        self, report: Report, payload: bytes, script: Script, coins: Script | None
    ) -> str | None:
        if type(report) is not Report:
            return f"returns {type(report).__name__}, not a plain Report"
        if report.mechanism != self.name:
            return f"names the mechanism {report.mechanism!r}"
        if report.round != self.round:
            return f"says round {report.round}, asked for {self.round}"
        if len(report.payload) != len(payload):
            return f"a payload of {len(report.payload)} bytes, stated are {len(payload)}"
        if report.payload != payload:
            return f"sends {report.payload[:24].hex()}, stated is {payload[:24].hex()}"
        if report.to_bytes() != report_bytes(self.name, self.round, payload) or len(
            vars(report)
        ) != 3:
            return "the report on the wire is not mechanism, round and payload"
        if script.n_left:
            return f"leaves {script.n_left} of its words undrawn"
        if coins is not None and coins.n_left:
            return f"leaves {coins.n_left} of its coins undrawn"
        return None


def _refusals(found: _Faults, mechanism: Mechanism, name: str, bits: KeyedBits) -> None:
    """No report is made of what is not a number."""
    simplex = mechanism.ball == "simplex"
    for each in inputs.not_numbers(mechanism.n_apps, mechanism.d, simplex):
        fault: str | None = None
        try:
            mechanism.encode(each.given, bits, 0)
            fault = f"{_words(mechanism)}, {each.what}: makes a report of it"
        except ValueError:
            pass
        except Exception as error:
            fault = f"{_words(mechanism)}, {each.what}: {error!r}, not a ValueError"
        found.add(fault)


def _through_phones(
    found: _Faults, mechanism: Mechanism, name: str, seed: int, bits: KeyedBits
) -> None:
    """`Device.report` makes the report that the protocol makes of the phone's content.

    Two reports of each phone, with a launch in between.
    """
    simplex = mechanism.ball == "simplex"
    stated = protocol(name, mechanism)
    histories, first = inputs.world(mechanism.n_apps, 4 if simplex else mechanism.d, seed)
    rng = bits.generator()
    for number, history in enumerate(histories):
        broadcast = Broadcast(random_round(rng), first.app_vectors, first.settings)
        device = inputs.phone(history, broadcast)
        for turn in range(2):
            if turn:
                device.observe(int(rng.integers(mechanism.n_apps)), 60.0 * len(history))
                history = device.history
                device.update(broadcast)
            handed = inputs.handed_over(history, broadcast, simplex)
            told = content(handed.given, simplex)
            public, private = Chooser(bits), Chooser(bits)
            with np.errstate(all="ignore"):
                payload = stated.payload(told, public, private)
            script = Script([*public.words, *private.words])
            attempt = _Attempt(mechanism, name, stated, broadcast.round, with_coins=False)
            try:
                report = device.report(broadcast, mechanism, script, allow_float=True)
                fault = attempt.compare(report, payload, script, None)
            except Exception as error:
                fault = f"no report, but {error!r}"
            found.add(fault and f"{_words(mechanism)}, report {turn + 1} of phone {number}: {fault}")


def _read_back(mechanism: Mechanism, given: Input, bits: KeyedBits) -> None:
    """What a server does with a report: it runs the parts that encode and decode share."""
    try:
        report = mechanism.encode(given.given, bits, 0)
        mechanism.decode([report])
        mechanism.check(report)
    except Exception:
        return  # found by the replay, if it is a fault


def _public_clip(phones: Sequence[Input], ball: str) -> float:
    return float(np.median([inputs.length(each.given, ball) for each in phones])) or 1.0


def random_round(rng: np.random.Generator) -> int:
    kind = int(rng.integers(3))
    if kind == 0:
        return int(rng.choice(np.array(ROUNDS, np.uint64)))
    return int(rng.integers(1 << 12 if kind == 1 else 1 << 63))


def _random_size(rng: np.random.Generator, simplex: bool) -> tuple[int, int]:
    n_apps = round(2.0 ** rng.uniform(0, 9))
    if simplex or rng.integers(3) == 0:
        n_apps = min(n_apps, 60 if not simplex else 512)
        return n_apps, n_apps + 1
    return n_apps, round(2.0 ** rng.uniform(0, 6 if n_apps < 128 else 4))


def _random_settings(
    rng: np.random.Generator, name: str, size: int, options: dict[str, Any]
) -> tuple[float, float, dict[str, Any]]:
    """ε, clip and options that the mechanism can be made with."""
    epsilon = float(rng.choice([2.0**-30, 1e-3, 0.3, 1.0, 4.5, 8.0, 20.0, 50.0, 100.0]))
    if rng.integers(2):
        epsilon = float(10.0 ** rng.uniform(-4, 1.7))
    clip = float(10.0 ** rng.uniform(-4, 4)) if rng.integers(2) else 1.0
    drawn = dict(options)
    chosen = rng.integers(3) > 0
    if name in ("harmony", "qharmony"):
        if chosen:
            drawn["k"] = int(rng.integers(1, min(size, 40) + 1))
        if name == "qharmony":
            drawn["scale"] = ("unbiased", "paper")[int(rng.integers(2))]
    elif name in ("kashin", "simhash") and chosen:
        most = min(16, 2 << (size - 1).bit_length()) if name == "kashin" else 16
        drawn["b"] = int(rng.integers(1, most + 1))
    elif name == "codebook":
        drawn["b"] = int(rng.integers(1, (12 if size < 500 else 9) + 1)) if chosen else 8
    elif name == "subset" and chosen:
        q, t = ((2, 3), (3, 3), (5, 2), (2, 7), (7, 3), (11, 2), (31, 3), (251, 2))[
            int(rng.integers(8))
        ]
        drawn |= {"q": q, "t": t}
    if name == "kashin":
        drawn["K"] = float(rng.choice([1.0, 1.8, 3.0]))
    if drawn.get("form") == "seed":
        epsilon = min(epsilon, 6.0)
    return epsilon, clip, drawn


def _words(mechanism: Mechanism) -> str:
    """A mechanism's settings, short."""
    more = [
        f"{option} {getattr(mechanism, option)}"
        for option in ("k", "b", "q", "t", "form")
        if isinstance(getattr(mechanism, option, None), int | str)
    ]
    return ", ".join([f"{mechanism.n_apps} x {mechanism.d}", f"ε {mechanism.epsilon:.3g}", *more])
