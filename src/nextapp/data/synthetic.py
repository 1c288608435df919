"""Synthetic phones: seeded launch logs of any size, and twins of the paper's two data sets.

``make(LSAPP, seed)`` and ``make(APP_USAGE, seed)`` are synthetic twins, not the data: logs of the
same size on which the paper's simple rivals score about what the paper prints. docs/synthetic.md
tells the story of a phone step by step and how its numbers were fitted.

A phone's launches depend on (parameters, seed, phone) only, not on how many phones there are.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit, ndtri

from nextapp.compiled import compiled
from nextapp.compiled_bits import Key, below, exponential, normal, stream, uniform
from nextapp.data.log import Codes, Indices, LaunchLog, Times
from nextapp.names import unknown
from nextapp.randomness import KeyedBits, Words, purpose_word

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
Kinds = npt.NDArray[np.int8]
Mask = npt.NDArray[np.bool_]

_DAY = 86_400  # all times in the kernels are whole seconds since the log's first midnight
_SESSION_GAP = 901  # more than 15 minutes
_SHORTEST_PAUSE, _LONGEST_PAUSE = 4, 840  # over the 3 s of a repeat, under the 15 min of a session
_LONGEST_SESSION = 5_000
_TRIES = 16
_SECOND = 0.25  # how often a habit leads to the second follower of an app
_RECENT = 8  # how many apps of a session a phone can return to

_SESSIONS = np.uint64(purpose_word("sessions"))
_LAUNCHES = np.uint64(purpose_word("launches"))
_OPENING, _LAUNCH, _ECHO = 0, 1, 2  # kinds of rows


def _number(default: float, low: float, high: float, meaning: str) -> Any:
    return field(default=default, metadata={"low": low, "high": high, "meaning": meaning})


@dataclass(frozen=True)
class Parameters:
    """What the phones of a synthetic log are like. Each ingredient is gone when its number is 0.

    A field's ``metadata["meaning"]`` says what it is; docs/synthetic.md has them as a table.
    """

    phones: int = _number(100, 1, 1e8, "number of phones")
    apps: int = _number(100, 2, 1e6, "number of apps in the world")
    days: int = _number(30, 1, 1e5, "calendar days (UTC) that the log spans")
    start: str = field(default="2020-01-01", metadata={"meaning": "first day, as YYYY-MM-DD"})

    joining: float = _number(
        0.0, 0, 1e6, "mean day on which a phone joins (exponential); 0: all from the first day"
    )
    stay: float = _number(math.inf, 0, math.inf, "median days that a phone stays (lognormal)")
    stay_spread: float = _number(0.0, 0, 5, "log-sd of the stay")
    sessions: float = _number(8.0, 0.01, 60, "median sessions a day of a phone, roughly")
    sessions_spread: float = _number(0.3, 0, 3, "log-sd of the sessions a day between phones")
    launches: float = _number(8.0, 1, 1e3, "mean launches in a session, roughly")
    launches_spread: float = _number(1.0, 0, 3, "log-sd of the launches in a session")
    pause: float = _number(20.0, 0, 500, "mean seconds between launches, beyond the first 4 s")
    echo: float = _number(0.05, 0, 0.9, "chance that a launch is logged again within 3 s")
    day_rhythm: float = _number(0.8, 0, 1, "how much more sessions start at 16 h than at 4 h")

    popularity: float = _number(0.8, 0, 5, "Zipf exponent of the apps' popularity in the crowd")
    types: int = _number(8, 1, 1e4, "number of user types")
    type_taste: float = _number(
        0.5, 0, 1, "share of a phone's apps taken from the favourites of its type"
    )
    installed: float = _number(20.0, 1, 1e4, "median number of apps on a phone (lognormal)")
    installed_spread: float = _number(0.3, 0, 3, "log-sd of the number of apps on a phone")
    brings: float = _number(0.5, 0, 1, "chance that an app brings along the one that follows it")
    installs: float = _number(0.2, 0, 1, "share of a phone's apps that come during its stay")

    taste: float = _number(1.2, 0, 5, "Zipf exponent of a phone's own taste among its apps")
    taste_spread: float = _number(0.2, 0, 2, "log-sd of that exponent between phones")
    drift: float = _number(0.2, 0, 100, "neighbours in a phone's taste that swap, a day")
    hour_taste: float = _number(0.5, 0, 1, "how much less an app is liked 12 h from its hour")

    repeat: float = _number(0.4, 0, 1, "median chance that the same app is launched again")
    repeat_spread: float = _number(0.5, 0, 10, "sd of its log-odds between apps")
    habit: float = _number(0.2, 0, 1, "if not: median chance that the crowd's habit is followed")
    habit_spread: float = _number(
        0.5, 0, 10, "sd of its log-odds between apps: high where repeat is low"
    )
    returning: float = _number(0.3, 0, 1, "if not: chance to return to an app of the session")
    returning_depth: float = _number(0.3, 0, 0.99, "chance to go back one app further")
    own_habit: float = _number(0.1, 0, 1, "if not: chance that the phone's own habit is followed")

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.type == "str":
                continue
            low, high = each.metadata["low"], each.metadata["high"]
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"{each.name} must be a number, got {value!r}.")
            if each.type == "int" and value != int(value):
                raise ValueError(f"{each.name} must be a whole number, got {value!r}.")
            if not low <= value <= high:
                raise ValueError(
                    f"{each.name} must be from {low:g} to {high:g}, got {value!r} "
                    f"({each.metadata['meaning']})."
                )
        try:
            datetime.strptime(self.start, "%Y-%m-%d")
        except ValueError:
            raise ValueError(
                f"start must be a day written YYYY-MM-DD, got {self.start!r}."
            ) from None


# Fitted by benchmarks/fit_synthetic.py to the rivals' hit rates in the paper's tables, then rounded
# and trimmed by hand; docs/synthetic.md says which numbers were fitted and shows how well.
LSAPP = Parameters(
    phones=292,
    apps=87,
    days=243,
    start="2018-01-01",
    joining=60.0,
    stay=19.0,
    stay_spread=1.6,
    sessions=2.42,
    launches=11.3,
    launches_spread=0.67,
    popularity=1.2,
    types=6,
    type_taste=0.8,
    installed=17.9,
    installed_spread=0.7,
    brings=0.1,
    installs=0.1,
    taste=1.62,
    taste_spread=0.2,
    drift=0.004,
    repeat=0.538,
    repeat_spread=0.3,
    habit=0.25,
    habit_spread=0.3,
    returning=0.87,
    returning_depth=0.33,
    own_habit=0.45,
)

# The same for App Usage.
APP_USAGE = Parameters(
    phones=1_000,
    apps=2_000,
    days=7,
    start="2016-04-20",
    sessions=9.2,
    launches=12.0,
    launches_spread=0.82,
    installed=48.6,
    installed_spread=0.15,
    brings=0.69,
    taste=1.18,
    taste_spread=0.27,
    repeat=0.185,
    repeat_spread=1.68,
    habit=0.43,
    habit_spread=0.83,
    returning=0.85,
    returning_depth=0.17,
    own_habit=0.6,
)

PRESETS = {"lsapp": LSAPP, "app-usage": APP_USAGE}


def fleet_parameters(phones: int, apps: int, days: int = 3) -> Parameters:
    """Phones for a fleet: in 3 days about 240 launches of 14 apps, 90 different transitions."""
    return replace(
        APP_USAGE,
        phones=phones,
        apps=apps,
        days=days,
        installed=15.0,
        taste=0.5,
        repeat=0.2,
        repeat_spread=0.5,
        echo=0.0,
    )


def parse(text: str) -> Parameters:
    """Parameters from ``synthetic:PRESET``, ``synthetic:NAME=VALUE,…`` or both, preset first.

    A preset is one of `PRESETS`, or ``fleet`` for `fleet_parameters`.

    >>> parse("synthetic:lsapp,phones=1000").phones
    1000
    """
    word, _, rest = text.partition(":")
    items = [item.strip() for item in rest.split(",")]
    if word != "synthetic" or not rest.strip():
        raise ValueError(
            f"a synthetic log is written 'synthetic:lsapp', 'synthetic:app-usage', "
            f"'synthetic:phones=5000,apps=300,days=30' or 'synthetic:lsapp,phones=1000'; "
            f"got {text!r}."
        )
    base = Parameters()
    if "=" not in items[0]:
        named = {**PRESETS, "fleet": fleet_parameters(100_000, 87)}
        if items[0] not in named:
            raise ValueError(unknown("preset", items[0], named))
        base = named[items.pop(0)]
    known = {each.name: each.type for each in fields(Parameters)}
    given: dict[str, Any] = {}
    for item in items:
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals:
            raise ValueError(f"{item!r} in {text!r} must be written NAME=VALUE.")
        if name not in known:
            raise ValueError(unknown("parameter", name, known))
        if name in given:
            raise ValueError(f"parameter {name} is given twice in {text!r}.")
        try:
            given[name] = {"int": int, "float": float, "str": str}[str(known[name])](value)
        except ValueError:
            whole = "a whole number" if known[name] == "int" else "a number"
            raise ValueError(f"{name} must be {whole}, got {value!r}.") from None
    return replace(base, **given)


class Traits(NamedTuple):
    """What sets phones apart before they launch anything; one entry per phone.

    They are the phones from number ``first`` on.
    """

    first: int
    first_day: Whole
    last_day: Whole
    n_apps: Whole
    sessions: Floats  # a day
    taste: Floats
    type: Whole


def traits(parameters: Parameters, seed: int, first: int = 0, stop: int | None = None) -> Traits:
    """Traits of phones first to stop − 1 (of all), spread over their distributions, not drawn.

    Phone i takes the i-th point of a Kronecker sequence (multiples of irrational numbers modulo 1,
    shifted by the seed), so that a log of 300 phones has its share of every kind of phone whatever
    the seed. Phone 0 is there from the first day to the last, so that the log spans all its days.
    """
    steps = np.sqrt([1.25, 2.0, 13.0, 3.0, 7.0, 11.0])
    shift = KeyedBits(seed, purpose="traits").generator().random(6)
    phone = np.arange(first, parameters.phones if stop is None else stop)
    evenly = (shift[:, None] + steps[:, None] * phone) % 1.0
    joins, stays, holds, opens, likes, types = np.clip(evenly, 1e-9, 1 - 1e-9)
    joined = np.zeros(len(phone), np.int64)
    if parameters.joining > 0:
        reach = -math.expm1(-parameters.days / parameters.joining)  # cut at the log's end
        joined = (-parameters.joining * np.log1p(-joins * reach)).astype(np.int64)
    stay = parameters.stay * np.exp(parameters.stay_spread * ndtri(stays))
    last = np.minimum(joined + stay, parameters.days - 1).astype(np.int64)
    if first == 0:
        joined[0], last[0] = 0, parameters.days - 1
    n_apps = np.rint(parameters.installed * np.exp(parameters.installed_spread * ndtri(holds)))
    return Traits(
        first,
        joined,
        last,
        np.clip(n_apps, 1, parameters.apps).astype(np.int64),
        parameters.sessions * np.exp(parameters.sessions_spread * ndtri(opens)),
        parameters.taste * np.exp(parameters.taste_spread * ndtri(likes)),
        (types * parameters.types).astype(np.int64),
    )


class _Crowd(NamedTuple):
    """What all phones share, as the kernels want it."""

    favourites: Whole  # (types + 1, apps): apps by falling popularity, per type; last: everybody
    popularity: Floats  # (apps,): cumulated
    repeat: Floats  # (apps,)
    habit: Floats  # (apps,)
    hour: Whole  # (apps,): when an app is liked most
    distaste: Floats  # (24,): by hours from an app's hour
    rhythm: Floats  # (25,): hours of activity since midnight
    followers: Whole  # (apps, 2): the crowd's habits
    type_taste: float
    brings: float
    installs: float
    drift: float
    returning: float
    returning_depth: float
    own_habit: float
    launches: float  # mean of the logarithm
    launches_spread: float
    session_seconds: float
    pause: float
    echo: float
    days: int


def _crowd(parameters: Parameters, seed: int) -> _Crowd:
    generator = KeyedBits(seed, purpose="crowd").generator()
    n = parameters.apps
    rank = np.arange(n)
    favourites = generator.permuted(np.tile(rank, (parameters.types + 1, 1)), axis=1)
    popularity = np.cumsum((rank + 1.0) ** -parameters.popularity)
    followers = np.empty((n, 2), np.int64)
    wrong = np.ones((n, 2), bool)
    for _ in range(_TRIES):  # no app follows itself, none follows its follower
        drawn = np.searchsorted(popularity[:-1], generator.random(wrong.sum()) * popularity[-1])
        followers[wrong] = favourites[-1][drawn]
        wrong = (followers == rank[:, None]) | (followers[followers] == rank[:, None, None]).any(2)
    lean = np.empty(n)  # from mostly followed to mostly repeated, even over popularity
    lean[favourites[-1]] = ndtri((0.5 + 0.6180339887498949 * rank) % 1.0)
    hours = np.arange(25)
    wave = np.cos(2 * np.pi * hours / 24)
    active = 1 - parameters.day_rhythm * np.roll(wave[:-1], 4)  # least at 4 h, most at 16 h
    return _Crowd(
        favourites,
        popularity,
        expit(logit(parameters.repeat) + parameters.repeat_spread * lean),
        expit(logit(parameters.habit) - parameters.habit_spread * lean),
        generator.integers(24, size=n),
        parameters.hour_taste * (1 - wave[:-1]) / 2,
        np.concatenate([[0.0], np.cumsum(active)]),
        followers,
        parameters.type_taste,
        parameters.brings,
        parameters.installs,
        parameters.drift,
        parameters.returning,
        parameters.returning_depth,
        parameters.own_habit,
        math.log(parameters.launches) - parameters.launches_spread**2 / 2,
        parameters.launches_spread,
        parameters.launches * (parameters.pause + _SHORTEST_PAUSE),
        parameters.pause,
        parameters.echo,
        parameters.days,
    )


def make(parameters: Parameters, seed: int, first: int = 0) -> LaunchLog:
    """A synthetic log. The same parameters and seed give the same log.

    It holds the phones from number `first` on, as they are in the log of all of them.
    """
    starts, app, time = _rows(parameters, seed, first, parameters.phones)
    n_phones = len(starts) - 1
    return LaunchLog(
        np.repeat(np.arange(n_phones, dtype=np.int32), np.diff(starts)),
        app,
        1_000 * (time + _midnight(parameters)),
        tuple(f"phone-{phone:04d}" for phone in range(first, parameters.phones)),
        tuple(f"app-{code:04d}" for code in range(parameters.apps)),
        (f"synthetic twin, not the data: {n_phones:,} phones made with seed {seed}",),
    )


def _midnight(parameters: Parameters) -> int:
    """The log's first, in seconds since 1970."""
    start = datetime.strptime(parameters.start, "%Y-%m-%d").replace(tzinfo=UTC)
    return int(start.timestamp())


def histories(parameters: Parameters, seed: int, first: int, stop: int) -> tuple[Whole, Codes]:
    """What phones first to stop − 1 launch, without the times: starts (n + 1,) and apps.

    3-second repeats are in it as they are in the log.
    """
    starts, app, _ = _rows(parameters, seed, first, stop)
    return starts, app


def _rows(parameters: Parameters, seed: int, first: int, stop: int) -> tuple[Whole, Codes, Times]:
    _check_phones(parameters, first, stop)
    crowd, phones = _crowd(parameters, seed), traits(parameters, seed, first, stop)
    key = np.uint64(seed)
    n_phones = stop - first
    n_threads = min(os.cpu_count() or 1, 1 + n_phones // 64)
    cuts = np.linspace(0, n_phones, 4 * n_threads + 1).astype(int).tolist()
    counts = np.zeros(n_phones, np.int64)

    def count(begin: int, end: int) -> None:
        _count(begin, end, key, crowd, phones, counts)

    def fill(begin: int, end: int) -> None:
        _fill(begin, end, key, crowd, phones, starts, time, app)

    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(count, cuts[:-1], cuts[1:]))
        starts = np.concatenate([[0], np.cumsum(counts)])
        time = np.empty(starts[-1], np.int64)
        app = np.empty(starts[-1], np.int32)
        list(pool.map(fill, cuts[:-1], cuts[1:]))
    return starts, app, time


def _check_phones(parameters: Parameters, first: int, stop: int) -> None:
    if not 0 <= first < stop <= parameters.phones:
        raise ValueError(
            f"phones {first} to {stop - 1} are not among the {parameters.phones} there are."
        )


class Chances(NamedTuple):
    """What a phone was about to launch, row by row of its log, given all that is hidden.

    ``odds[row, k]`` is the chance of ``apps[k]`` just before the row was drawn, if a launch it was;
    what was drawn is ``apps[launched[row]]``. An echo is no launch: it repeats the row before it.
    """

    apps: Whole  # (n_apps of the phone,)
    odds: Floats  # (n_rows, n_apps of the phone)
    launched: Whole  # (n_rows,)
    time: Times  # (n_rows,), in milliseconds since 1970
    echo: Mask  # (n_rows,)


def chances(parameters: Parameters, seed: int, phones: Iterable[int]) -> Iterator[Chances]:
    """The chances of each of these phones, exact: those by which `make` draws."""
    crowd, key = _crowd(parameters, seed), np.uint64(seed)
    place = np.full(parameters.apps, -1, np.int64)
    for phone in phones:
        _check_phones(parameters, phone, phone + 1)
        one = traits(parameters, seed, phone, phone + 1)
        n_rows = _clock(0, key, crowd, one, np.empty(0, np.int64), np.empty(0, np.int8))
        time, kind = np.empty(n_rows, np.int64), np.empty(n_rows, np.int8)
        app, odds = np.empty(n_rows, np.int32), np.empty((n_rows, one.n_apps[0]))
        _clock(0, key, crowd, one, time, kind)
        own = _launch(0, key, crowd, one, time, kind, app, place, odds)
        place[own] = np.arange(len(own))
        launched = place[app]
        place[own] = -1
        yield Chances(own, odds, launched, 1_000 * (time + _midnight(parameters)), kind == _ECHO)


@compiled
def _count(first: int, stop: int, seed: Key, crowd: _Crowd, phones: Traits, counts: Whole) -> None:
    nowhere, no_kinds = np.empty(0, np.int64), np.empty(0, np.int8)
    for phone in range(first, stop):
        counts[phone] = _clock(phone, seed, crowd, phones, nowhere, no_kinds)


@compiled
def _fill(
    first: int,
    stop: int,
    seed: Key,
    crowd: _Crowd,
    phones: Traits,
    starts: Indices,
    time: Times,
    app: Codes,
) -> None:
    place = np.full(crowd.favourites.shape[1], -1, np.int64)  # where an app stands on the phone
    no_odds = np.empty((0, 0))
    for phone in range(first, stop):
        rows = slice(starts[phone], starts[phone + 1])
        kind = np.empty(starts[phone + 1] - starts[phone], np.int8)
        _clock(phone, seed, crowd, phones, time[rows], kind)
        _launch(phone, seed, crowd, phones, time[rows], kind, app[rows], place, no_odds)


@compiled
def _clock(phone: int, seed: Key, crowd: _Crowd, phones: Traits, time: Times, kind: Kinds) -> int:
    """When a phone launches something. Returns the number of rows; writes as many as have room.

    The first session is on the phone's first day, the last on its last; between them, waits are
    exponential in hours of activity.
    """
    bits = stream(seed, phones.first + phone, 0, _SESSIONS)
    wait = max(_DAY / phones.sessions[phone] - crowd.session_seconds - _SESSION_GAP, 60.0)
    now = _later(phones.first_day[phone] * _DAY, 24 * uniform(bits), crowd.rhythm)
    closing = _later(phones.last_day[phone] * _DAY, 24 * uniform(bits), crowd.rhythm)
    if closing < now + _SESSION_GAP:
        closing = now
    row = 0
    while True:
        last = now == closing
        end = crowd.days * _DAY - 1 if last else closing - _SESSION_GAP
        length = math.exp(crowd.launches + crowd.launches_spread * normal(bits))
        for launch in range(min(max(round(length), 1), _LONGEST_SESSION)):
            if launch > 0:
                pause = int(crowd.pause * exponential(bits))
                now += min(_SHORTEST_PAUSE + pause, _LONGEST_PAUSE)
                if now > end:
                    now = end
                    break
            if row < len(time):
                time[row] = now
                kind[row] = _OPENING if launch == 0 else _LAUNCH
            row += 1
            if crowd.echo > 0 and uniform(bits) < crowd.echo:
                echo = min(now + 1 + below(bits, 3), end)
                if row < len(time):
                    time[row] = echo
                    kind[row] = _ECHO
                row += 1
        if last:
            return row
        now = _later(now + _SESSION_GAP + 3, wait / 3600 * exponential(bits), crowd.rhythm)
        if now > closing - _SESSION_GAP:
            now = closing


@compiled
def _later(now: int, hours: float, rhythm: Floats) -> int:
    """The second at which `hours` hours of activity have passed since `now`."""
    day, second = now // _DAY, now % _DAY
    hour = second // 3600
    share = (second % 3600) / 3600
    hours += rhythm[hour] + share * (rhythm[hour + 1] - rhythm[hour])
    day += int(hours // rhythm[24])
    hours %= rhythm[24]
    hour = int(np.searchsorted(rhythm[1:24], hours, side="right"))
    share = (hours - rhythm[hour]) / (rhythm[hour + 1] - rhythm[hour])
    return max(day * _DAY + hour * 3600 + int(3600 * share), now)


@compiled
def _launch(
    phone: int,
    seed: Key,
    crowd: _Crowd,
    phones: Traits,
    time: Times,
    kind: Kinds,
    app: Codes,
    place: Whole,
    odds: Floats,
) -> Whole:
    """What a phone launches at the given times, and its apps. Writes the odds that have room.

    `place` is -1 everywhere before and after.
    """
    bits = stream(seed, phones.first + phone, 1, _LAUNCHES)
    own, arrival = _install(phone, bits, crowd, phones, place)
    taste = np.cumsum(np.arange(1, len(own) + 1) ** -phones.taste[phone])
    habit, own_habit = _habits(bits, crowd, own, place, taste)
    liking = np.arange(len(own))  # by falling taste; drift changes the order
    recent = np.empty(_RECENT, np.int64)  # the session's apps, latest first
    n_recent = 0
    swap = time[0] + uniform(bits) * _DAY / crowd.drift  # when taste drifts next; never if 0
    now = 0  # the app launched last, by its place on the phone
    for row in range(len(time)):
        if kind[row] == _OPENING:
            n_recent = 0
            swap = _drift(bits, crowd, liking, swap, time[row])
        if row < len(odds):
            _weigh(
                odds[row], crowd, own, arrival, taste, liking, habit[now], own_habit[now], now,
                recent[:n_recent], time[row],
            )  # fmt: skip
        if kind[row] == _OPENING or (
            kind[row] == _LAUNCH and uniform(bits) >= crowd.repeat[own[now]]
        ):
            following = -1
            if n_recent > 0:
                if uniform(bits) < crowd.habit[own[now]]:
                    following = habit[now, int(uniform(bits) < _SECOND)]
                elif uniform(bits) < crowd.returning:
                    following = _back(bits, crowd, recent, n_recent)
                elif uniform(bits) < crowd.own_habit:
                    following = own_habit[now]
            if following < 0 or arrival[following] > time[row]:
                following = _liked(bits, crowd, own, arrival, taste, liking, time[row])
            now = following
            n_recent = _remember(recent, n_recent, now)
        app[row] = own[now]
    for k in range(len(own)):
        place[own[k]] = -1
    return own


@compiled
def _install(
    phone: int, bits: Words, crowd: _Crowd, phones: Traits, place: Whole
) -> tuple[Whole, Whole]:
    """A phone's apps, the best liked first, and the seconds at which they arrive."""
    n, n_apps = phones.n_apps[phone], len(place)
    own, arrival = np.empty(n, np.int64), np.zeros(n, np.int64)
    for k in range(n):
        brought = k > 0 and uniform(bits) < crowd.brings
        candidate = crowd.followers[own[k - 1], 0] if brought else -1
        for _ in range(_TRIES):
            if candidate >= 0 and place[candidate] < 0:
                break
            taste = phones.type[phone] if uniform(bits) < crowd.type_taste else -1
            mass = uniform(bits) * crowd.popularity[-1]
            rank = np.searchsorted(crowd.popularity[:-1], mass, side="right")
            candidate = crowd.favourites[taste, rank]
        while place[candidate] >= 0:
            candidate = (candidate + 1) % n_apps
        own[k] = candidate
        place[candidate] = k
        if k > 0 and uniform(bits) < crowd.installs:
            days = 1 + phones.last_day[phone] - phones.first_day[phone]
            arrival[k] = phones.first_day[phone] * _DAY + below(bits, days * _DAY)
    return own, arrival


@compiled
def _habits(
    bits: Words, crowd: _Crowd, own: Whole, place: Whole, taste: Floats
) -> tuple[Whole, Whole]:
    """For each app on the phone, those that follow it by the crowd's and by the phone's habit.

    The crowd's are -1 where the phone does not have them; the phone's own may be the app itself.
    """
    n = len(own)
    habit, own_habit = np.empty((n, 2), np.int64), np.empty(n, np.int64)
    for k in range(n):
        for rank in range(2):
            habit[k, rank] = place[crowd.followers[own[k], rank]]
        mass = uniform(bits) * taste[-1]
        own_habit[k] = np.searchsorted(taste[:-1], mass, side="right")
    return habit, own_habit


@compiled
def _drift(bits: Words, crowd: _Crowd, liking: Whole, swap: float, now: int) -> float:
    """Let neighbours in the phone's taste swap until `now`; returns the time of the next swap."""
    while swap < now and len(liking) > 1:
        rank = below(bits, len(liking) - 1)
        liking[rank], liking[rank + 1] = liking[rank + 1], liking[rank]
        swap += _DAY / crowd.drift
    return swap


@compiled
def _back(bits: Words, crowd: _Crowd, recent: Whole, n_recent: int) -> int:
    """An app of the session other than the last, the later the likelier; -1 if there is none."""
    depth = 1
    while uniform(bits) < crowd.returning_depth:
        depth += 1
    return int(recent[depth]) if depth < n_recent else -1


@compiled
def _remember(recent: Whole, n_recent: int, now: int) -> int:
    """Move an app to the front of the session's apps; returns how many there are."""
    here = 0
    while here < n_recent and recent[here] != now:
        here += 1
    if here == n_recent:
        n_recent = min(n_recent + 1, _RECENT)
        here = n_recent - 1
    for back in range(here, 0, -1):
        recent[back] = recent[back - 1]
    recent[0] = now
    return n_recent


@compiled
def _liked(
    bits: Words, crowd: _Crowd, own: Whole, arrival: Whole, taste: Floats, liking: Whole, now: int
) -> int:
    """An app by the phone's taste, the hour, and what is installed by now."""
    hour = now % _DAY // 3600
    for _ in range(_TRIES):
        mass = uniform(bits) * taste[-1]
        k = int(liking[np.searchsorted(taste[:-1], mass, side="right")])
        away = (hour - crowd.hour[own[k]]) % 24
        if arrival[k] <= now and uniform(bits) >= crowd.distaste[away]:
            return k
    return 0


@compiled
def _weigh(
    odds: Floats,
    crowd: _Crowd,
    own: Whole,
    arrival: Whole,
    taste: Floats,
    liking: Whole,
    habit: Whole,
    own_habit: int,
    now: int,
    recent: Whole,
    time: int,
) -> None:
    """Write the chance with which `_launch` draws each app of the phone after the app `now`."""
    odds[:] = 0.0
    left = 1.0  # the chance of what is not settled yet
    by_taste = 0.0  # of that, what gives way to taste
    if len(recent) > 0:
        repeat = crowd.repeat[own[now]]
        odds[now] += repeat
        left -= repeat

        share = left * crowd.habit[own[now]]
        left -= share
        for rank in range(2):
            part = share * (_SECOND if rank == 1 else 1.0 - _SECOND)
            by_taste += _give(odds, arrival, habit[rank], part, time)

        share = left * crowd.returning
        left -= share
        for depth in range(1, len(recent)):
            part = share * (1.0 - crowd.returning_depth)
            share -= part
            by_taste += _give(odds, arrival, recent[depth], part, time)
        by_taste += share  # further back than the session goes

        share = left * crowd.own_habit
        left -= share
        by_taste += _give(odds, arrival, own_habit, share, time)
    by_taste += left
    _spread(odds, by_taste, crowd, own, arrival, taste, liking, time)


@compiled
def _give(odds: Floats, arrival: Whole, app: int, chance: float, now: int) -> float:
    """Give an app its chance; returns the chance where the app is not on the phone by now."""
    if app < 0 or arrival[app] > now:
        return chance
    odds[app] += chance
    return 0.0


@compiled
def _spread(
    odds: Floats,
    chance: float,
    crowd: _Crowd,
    own: Whole,
    arrival: Whole,
    taste: Floats,
    liking: Whole,
    now: int,
) -> None:
    """Add the chance over the apps as `_liked` draws them: 16 tries, then the app liked first."""
    hour = now % _DAY // 3600
    taken = np.zeros(len(own))  # the chance that one try ends with an app
    for rank in range(len(own)):
        k = liking[rank]
        if arrival[k] <= now:
            mass = taste[rank] - (taste[rank - 1] if rank > 0 else 0.0)
            away = (hour - crowd.hour[own[k]]) % 24
            taken[k] = mass / taste[-1] * (1.0 - crowd.distaste[away])
    refused = 1.0 - taken.sum()
    reached, tries = 1.0, 0.0  # the chance that a try is reached; the mean number of tries
    for _ in range(_TRIES):
        tries += reached
        reached *= refused
    odds += chance * tries * taken
    odds[0] += chance * reached
