"""Layer 0 of the audit: does ``encode`` make exactly the stated report from given random words?

The random words of a report are chosen here, next to every threshold, and ``encode`` gets only
these words. The report must be the one that the protocol (`protocols`) makes from the same
words, in all its bytes: mechanism, round, length, payload. It must use exactly these words; the
public part must come from the coins, if there are any. The test is deterministic, so a correct
mechanism never fails, and a threshold that is off by one in 2^64 is detected.

It runs at the sizes of a deployment, with the inputs of real phones (`inputs`), and with
random sizes, options, ε, rounds and inputs. Statements of ``encode`` that never ran count as a
fault too (`unreached`).
"""

from __future__ import annotations

import struct
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import inputs
import numpy as np
from inputs import Input
from phone_draws import (
    OutOfWords,
    Script,
    build_phone,
    coin_words,
    encode_call_of_phone,
    system_bits,
)
from protocols import (
    PROTOCOLS,
    Chooser,
    Content,
    Protocol,
    content,
    protocol,
)
from unreached import Reach

from nextapp.crowd import Shares
from nextapp.privacy import (
    MECHANISMS,
    FiniteMechanism,
    Mechanism,
    find_class,
    requested_mechanism,
)
from nextapp.privacy import mechanism as create
from nextapp.randomness import Bits, KeyedBits, TokenCoins
from nextapp.wire import LARGEST_ROUND, Broadcast, Floats, ModelSettings, Report, ReportRequest

ROUNDS = (0, 1, 2, 77, 1000, 1 << 31, (1 << 32) + 5, (1 << 64) - 1)
"""Rounds that are tried in addition to random ones."""

OF_SHARES = ("walsh",)
"""Mechanisms through which phones also report shares."""

_MOST_FAULTS = 5
_PUBLIC_PARTS = 3  # number of seeds or sets of positions, each tried with every input
_TRACED = 8  # reports of a deployed size whose instructions are recorded
_MOST_COINS = 128
_MANY_CELLS = 1 << 20  # larger shares are only tried in sparse form, not as an array
_SLOW = {"kashin": 0.1}  # share of the reports at deployed sizes, since one takes milliseconds


@dataclass(frozen=True)
class Effort:
    """How much is replayed. Sizes are (n_apps, d, reports).

    ``sizes`` are for gradients, ``share_sizes`` for shares (`OF_SHARES`).
    """

    own: int = 3000
    sizes: tuple[tuple[int, int, int], ...] = ((87, 16, 1500), (500, 16, 150), (2000, 16, 15))
    share_sizes: tuple[tuple[int, int, int], ...] = ((87, 88, 300), (2000, 2001, 20))
    drawn: int = 120
    per_drawn: int = 6


DEFAULT = Effort()
QUICK = Effort(
    own=600,
    sizes=((87, 16, 250),),
    share_sizes=((87, 88, 60), (2000, 2001, 4)),
    drawn=20,
)


@dataclass(frozen=True)
class Replay:
    """The number of replayed reports, and descriptions of the first faults found."""

    n_reports: int
    n_sizes: int
    faults: tuple[str, ...]
    unreached: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return not self.faults and not self.unreached


def registered_name(mechanism: Mechanism) -> str | None:
    """The name under which the mechanism, or the class it is derived from, is known."""
    for kind in type(mechanism).__mro__:
        for name in MECHANISMS:
            if find_class(name) is kind:
                return name
    return None


def report_bytes(name: str, round: int, payload: bytes) -> bytes:
    """A report on the wire, version 1."""
    body = struct.pack("<2sBBQI", b"nR", 1, len(name), round, len(payload))
    body += name.encode() + payload
    return body + struct.pack("<I", zlib.crc32(body))


def replay(
    mechanism: Mechanism, seed: int, effort: Effort = DEFAULT, epsilon: float | None = None
) -> Replay | None:
    """Replay a mechanism and variants of its class; None if it has no protocol.

    ``epsilon`` is the requested ε, if known.
    """
    name = registered_name(mechanism)
    if name is None or name not in PROTOCOLS:
        return None
    found = _Faults()
    found.add(
        _wrong_setting(mechanism, {"epsilon": mechanism.epsilon if epsilon is None else epsilon})
    )
    number = 0
    for part in _parts(mechanism, name, seed, effort):
        number += 1
        part(found, KeyedBits(seed, phone=number, purpose="replay"))
        if len(found.faults) >= _MOST_FAULTS:
            break
    return Replay(found.n_reports, number, tuple(found.faults), tuple(found.unreached(seed)))


class _Faults:
    """The faults found so far, and the code that ran."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.n_reports = 0
        self.faults: list[str] = []
        self.reach = Reach()
        self.read_back = Reach()

    def add(self, fault: str | None) -> None:
        self.n_reports += 1
        if fault is not None and len(self.faults) < _MOST_FAULTS:
            self.faults.append(fault)

    def unreached(self, seed: int) -> list[str]:
        """Lines of ``encode`` that ran neither here, nor in other mechanisms, nor in a server."""
        if self.faults:
            return []
        return self.reach.unreached(self.read_back, *_reach_of_others(seed, self.name))


_Part = Callable[[_Faults, KeyedBits], None]


def _parts(mechanism: Mechanism, name: str, seed: int, effort: Effort) -> Iterator[_Part]:
    """The mechanism itself; variants of its class at deployed sizes; random variants."""
    options = own_options(mechanism)

    def own(found: _Faults, bits: KeyedBits) -> None:
        rng = bits.generator()
        given = [*inputs.extremes(mechanism.n_apps, mechanism.d, mechanism.clip)]
        given += [
            inputs.random_input(rng, mechanism.n_apps, mechanism.d, mechanism.clip, mechanism.ball)
            for _ in range(20)
        ]
        _replay_all(found, mechanism, name, given, effort.own, bits)
        _refusals(found, mechanism, name, bits)

    yield own

    def at_size(n_apps: int, d: int, n_reports: int) -> _Part:
        def part(found: _Faults, bits: KeyedBits) -> None:
            phones = inputs.inputs_of_a_deployment(n_apps, d, seed, "gradient")
            clip = _public_clip(phones, mechanism.ball)
            variant = _create(found, mechanism, n_apps, d, mechanism.epsilon, clip, options)
            if variant is None:
                return
            given = list(phones)
            for number, each in enumerate(phones):
                to_clip = clip / (inputs.length(each.given, variant.ball) or 1.0)
                scale = (1e-6, 1e6, to_clip, 0.7 * to_clip, 1.5 * to_clip)[number % 5]
                given.append(_times(each, scale))
            given += inputs.extremes(n_apps, d, clip)
            with found.reach:
                _replay_all(found, variant, name, given, _TRACED, bits)
            _replay_all(found, variant, name, given, n_reports, bits)
            _refusals(found, variant, name, bits)
            _through_phones(found, variant, name, seed, bits, "gradient")

        return part

    for n_apps, d, n_reports in effort.sizes:
        yield at_size(n_apps, d, max(10, int(_SLOW.get(name, 1.0) * n_reports)))

    for size in effort.share_sizes if name in OF_SHARES else ():
        yield _shares_at(mechanism, name, seed, size)

    def at_random(found: _Faults, bits: KeyedBits) -> None:
        rng = bits.generator()
        n_apps, d = _random_size(rng)
        epsilon, clip, drawn = _random_settings(rng, name, n_apps * d, options)
        variant = _create(found, mechanism, n_apps, d, epsilon, clip, drawn)
        if variant is None:
            return
        given = [inputs.random_input(rng, n_apps, d, clip, variant.ball) for _ in range(4)]
        given += [*inputs.extremes(n_apps, d, clip)][int(rng.integers(3)) :: 3]
        given = [given[place] for place in rng.permutation(len(given))[: effort.per_drawn]]
        with found.reach:
            _replay_all(found, variant, name, given, effort.per_drawn, bits)
        _read_back(found.read_back, variant, given[0], bits)

    for _ in range(effort.drawn):
        yield at_random


def _shares_at(mechanism: Mechanism, name: str, seed: int, size: tuple[int, int, int]) -> _Part:
    """Clipped shares of a deployed size: in sparse form, and as arrays if they are small."""
    n_apps, d, n_reports = size

    def part(found: _Faults, bits: KeyedBits) -> None:
        phones = [
            each
            for each in inputs.inputs_of_a_deployment(n_apps, d, seed, "transitions")
            if n_apps * d < _MANY_CELLS or isinstance(each.given, Shares)
        ]
        clip = _public_clip(phones, mechanism.ball)
        options = own_options(mechanism)
        variant = _create(found, mechanism, n_apps, d, mechanism.epsilon, clip, options)
        if variant is not None:
            given = [*phones, *(_times(each, 0.5) for each in phones)]
            with found.reach:
                _replay_all(found, variant, name, given, _TRACED, bits)
            _replay_all(found, variant, name, given, n_reports, bits)
            if n_apps * d < _MANY_CELLS:
                _through_phones(found, variant, name, seed, bits, "transitions")

    return part


def _times(each: Input, scale: float) -> Input:
    return Input(f"{each.what}, times {scale:.3g}", inputs.scale(each.given, scale))


def own_options(mechanism: Any) -> dict[str, Any]:
    """The options that this mechanism was created with, other than size, ε and clip."""
    names = {"laplace": ("ball",), "kashin": ("K",)}
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
    options = {**options, "clip": clip}
    kind: Any = type(like)
    try:
        variant: Mechanism = kind(n_apps=n_apps, d=d, epsilon=epsilon, **options)
    except Exception as error:  # a class that cannot be created cannot be audited
        found.add(f"{n_apps} x {d}, ε {epsilon:.3g}, {options}: cannot be created: {error!r}")
        return None
    asked = {"n_apps": n_apps, "d": d, "epsilon": epsilon, **options}
    if fault := _wrong_setting(variant, asked):
        found.add(fault)
        return None
    return variant


def _wrong_setting(mechanism: Mechanism, asked: dict[str, Any]) -> str | None:
    """A setting that is not the requested one, or a guaranteed ε that differs from it."""
    for word, value in asked.items():
        if getattr(mechanism, word, value) != value:
            return f"asked for {word} {value!r}, got {getattr(mechanism, word)!r}"
    charged = mechanism.guarantee.epsilon
    if charged != asked["epsilon"]:
        return f"made with ε {asked['epsilon']!r}, promises {charged!r}"
    return None


def _replay_all(
    found: _Faults,
    mechanism: Mechanism,
    name: str,
    given: Sequence[Input],
    n_reports: int,
    bits: KeyedBits,
) -> None:
    """Replay reports, each with another input than the one before."""
    stated = protocol(name, mechanism)
    data = [content(each.given) for each in given]
    public: list[list[int]] = []
    rng = bits.generator()
    same = np.empty((mechanism.n_apps, mechanism.d))
    for number in range(n_reports):
        place, turn = number % len(given), number // len(given)
        part = turn % _PUBLIC_PARTS
        preset: Sequence[int] = public[part] if part < len(public) else ()
        attempt = _Attempt(mechanism, name, stated, random_round(rng), int(rng.integers(6)))
        fault, words = attempt.run(data[place], bits, preset, same)
        if part == len(public):
            public.append(words)
        found.add(fault and f"{_words(mechanism)}, {given[place].what}: {fault}")
        if len(found.faults) >= _MOST_FAULTS:
            return


@dataclass(frozen=True)
class _Attempt:
    """One replayed report. ``sources`` determines the source of bits and coins."""

    mechanism: Mechanism
    name: str
    stated: Protocol
    round: int
    sources: int

    def run(
        self, data: Content, bits: KeyedBits, preset: Sequence[int], same: Floats
    ) -> tuple[str | None, list[int]]:
        """The fault, if any, and the words of the public part.

        Sometimes an array is passed in the memory of the array before, `same`.
        """
        token = bits.words(4).tobytes()
        of_device = self.sources == 1
        if of_device:
            preset = coin_words(token, _MOST_COINS)
        public, private = Chooser(bits, preset), Chooser(bits)
        with np.errstate(all="ignore"):
            payload = self.stated.payload(data, public, private)
        coins: Script | None = None if self.sources == 0 else Script(public.words)
        private_words = private.words if coins is not None else [*public.words, *private.words]
        script = Script(private_words)
        source: Bits | None = coins
        if of_device and len(public.words) < _MOST_COINS:
            source, coins = TokenCoins(token), None
        given = data.given
        if isinstance(given, np.ndarray) and given.dtype == np.float64 and self.sources % 2:
            np.copyto(same, given)
            given = same
        try:
            with np.errstate(all="ignore"), system_bits(script) as system:
                own: Bits = system if self.sources < 3 else script
                report = self.mechanism.encode(given, own, self.round, coins=source)
        except OutOfWords as error:
            return f"draws other words than stated: {error}", public.words
        except Exception as error:  # any error means that there is no report
            return f"no report, but {error!r}", public.words
        return self.compare(report, payload, script, coins), public.words

    def compare(
        self, report: Report, payload: bytes, script: Script, coins: Script | None
    ) -> str | None:
        kinds = type(report), *(type(value) for value in vars(report).values())
        if kinds != (Report, str, int, bytes):
            return f"returns {', '.join(kind.__name__ for kind in kinds)}: not a plain Report"
        coins_left = coins.n_left if coins is not None else 0
        wire = report_bytes(self.name, self.round, payload)
        faults = (
            (report.mechanism != self.name, f"names the mechanism {report.mechanism!r}"),
            (report.round != self.round, f"says round {report.round}, asked for {self.round}"),
            (
                len(report.payload) != len(payload),
                f"a payload of {len(report.payload)} bytes, stated are {len(payload)}",
            ),
            (
                report.payload != payload,
                f"sends {report.payload[:24].hex()}, stated is {payload[:24].hex()}",
            ),
            (report.to_bytes() != wire, "is not mechanism, round and payload on the wire"),
            (script.n_left > 0, f"leaves {script.n_left} of its words undrawn"),
            (coins_left > 0, f"leaves {coins_left} of its coins undrawn"),
        )
        return next((fault for is_wrong, fault in faults if is_wrong), None)


def _refusals(found: _Faults, mechanism: Mechanism, name: str, bits: KeyedBits) -> None:
    """Check that inputs with NaN or infinity are rejected."""
    for each in inputs.not_numbers(mechanism.n_apps, mechanism.d):
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
    found: _Faults, mechanism: Mechanism, name: str, seed: int, bits: KeyedBits, question: str
) -> None:
    """Check that `PhoneCore.draw_report` makes the report that the protocol makes.

    Two reports of each phone, with a launch in between, with the phone's own bits.
    """
    found.add(_request(mechanism, name, question))
    stated = protocol(name, mechanism)
    histories, first = inputs.world(
        mechanism.n_apps, 4 if question == "transitions" else mechanism.d, seed
    )
    request = _request_for(mechanism, name, question)
    rng = bits.generator()
    for number, history in enumerate(histories):
        round = random_round(rng) & LARGEST_ROUND
        broadcast = Broadcast(round, first.app_vectors, first.settings, request=request)
        core = build_phone(history, broadcast)
        for turn in range(2):
            if turn:
                core.observe(int(rng.integers(mechanism.n_apps)), 60.0 * len(history))
                core.take(broadcast)
            handed = encode_call_of_phone(core.history, broadcast)
            data = content(handed.given)
            public, private = Chooser(bits), Chooser(bits)
            with np.errstate(all="ignore"):
                payload = stated.payload(data, public, private)
            script = Script([*public.words, *private.words])
            attempt = _Attempt(mechanism, name, stated, broadcast.round, 0)
            try:
                with system_bits(script):
                    report = core.draw_report(mechanism, broadcast.round)
                fault = attempt.compare(report, payload, script, None)
            except Exception as error:
                fault = f"no report, but {error!r}"
            found.add(
                fault and f"{_words(mechanism)}, report {turn + 1} of phone {number}: {fault}"
            )


def _request_for(mechanism: Mechanism, name: str, question: str) -> ReportRequest:
    return ReportRequest(name, mechanism.epsilon, mechanism.clip, own_options(mechanism), question)


def _request(mechanism: Mechanism, name: str, question: str) -> str | None:
    """Check that a broadcast's request for this mechanism gives the requested ε and clip."""
    if not isinstance(mechanism, FiniteMechanism):
        return None  # it is asked of nobody
    vectors = np.zeros((mechanism.n_apps, 1 if question == "transitions" else mechanism.d))
    request = _request_for(mechanism, name, question)
    variant = requested_mechanism(Broadcast(5, vectors, ModelSettings(), request=request))
    fault = _wrong_setting(
        variant, {"n_apps": mechanism.n_apps, "epsilon": mechanism.epsilon, "clip": mechanism.clip}
    )
    return fault and f"requested by a broadcast: {fault}"


def _reach_of_others(seed: int, name: str) -> list[Reach]:
    """The code that runs when other mechanisms encode, since they share some code.

    Only of mechanisms that are replayed without a fault.
    """
    return [reach for other in PROTOCOLS if other != name and (reach := _reach_of(seed, other))]


_REACHED: dict[tuple[int, str, type[Mechanism]], Reach] = {}


def _reach_of(seed: int, name: str) -> Reach | None:
    if (known := _REACHED.get((seed, name, find_class(name)))) is not None:
        return known
    found = _Faults()
    for number, more in enumerate(_OTHER_OPTIONS.get(name, ({},) * 2)):
        for n_apps in (3, 20):
            bits = KeyedBits(seed, phone=number, round=n_apps, purpose="shared")
            rng = bits.generator()
            variant = create(name, n_apps=n_apps, d=n_apps + 1, epsilon=1.5, clip=1.0, **more)
            given = [
                inputs.random_input(rng, n_apps, variant.d, 1.0, variant.ball) for _ in range(12)
            ]
            given += inputs.extremes(n_apps, variant.d, 1.0)
            with found.reach:
                _replay_all(found, variant, name, given, len(given), bits)
            _read_back(found.reach, variant, given[0], bits)
    if found.faults:
        return None
    return _REACHED.setdefault((seed, name, find_class(name)), found.reach)


_OTHER_OPTIONS: dict[str, tuple[dict[str, Any], ...]] = {
    "laplace": ({"ball": "linf"}, {"ball": "l1"}),
}


def _read_back(reach: Reach, mechanism: Mechanism, given: Input, bits: KeyedBits) -> None:
    """Decode a report, since a server shares code with ``encode``."""
    try:
        report = mechanism.encode(given.given, bits, 0)
        with reach, warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            mechanism.decode([report])
    except Exception:
        return  # if this is a fault, the replay finds it


def _public_clip(phones: Sequence[Input], ball: str) -> float:
    return float(np.median([inputs.length(each.given, ball) for each in phones])) or 1.0


def random_round(rng: np.random.Generator) -> int:
    kind = int(rng.integers(3))
    if kind == 0:
        return int(rng.choice(np.array(ROUNDS, np.uint64)))
    return int(rng.integers(1 << 12 if kind == 1 else 1 << 63))


def _random_size(rng: np.random.Generator) -> tuple[int, int]:
    n_apps = round(2.0 ** rng.uniform(0, 9))
    if rng.integers(3) == 0:
        n_apps = min(n_apps, 60)
        return n_apps, n_apps + 1
    return n_apps, round(2.0 ** rng.uniform(0, 6 if n_apps < 128 else 4))


def _random_settings(
    rng: np.random.Generator, name: str, size: int, options: dict[str, Any]
) -> tuple[float, float, dict[str, Any]]:
    """Random ε, clip and options that the mechanism allows."""
    epsilon = float(rng.choice([2.0**-30, 1e-3, 0.3, 1.0, 4.5, 8.0, 20.0, 50.0, 100.0]))
    if rng.integers(2):
        epsilon = float(10.0 ** rng.uniform(-4, 1.7))
    clip = float(10.0 ** rng.uniform(-4, 4)) if rng.integers(2) else 1.0
    drawn = dict(options)
    chosen = rng.integers(3) > 0
    if name == "harmony" and chosen:
        drawn["k"] = int(rng.integers(1, min(size, 40) + 1))
    elif name == "kashin" and chosen:
        most = min(16, 2 << (size - 1).bit_length())
        drawn["b"] = int(rng.integers(1, most + 1))
    elif name == "walsh":
        drawn["b"] = int(rng.integers(1, (12 if size < 500 else 9) + 1)) if chosen else 8
    if name == "kashin":
        drawn["K"] = float(rng.choice([1.0, 1.8, 3.0]))
    return epsilon, clip, drawn


def _words(mechanism: Mechanism) -> str:
    """A short description of a mechanism's settings."""
    more = [
        f"{option} {getattr(mechanism, option)}"
        for option in ("k", "b")
        if isinstance(getattr(mechanism, option, None), int)
    ]
    return ", ".join([f"{mechanism.n_apps} x {mechanism.d}", f"ε {mechanism.epsilon:.3g}", *more])
