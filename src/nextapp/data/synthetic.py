"""Synthetic phones: seeded launch logs of any size, and twins of the paper's two data sets.

``make(LSAPP, seed)`` and ``make(APP_USAGE, seed)`` are synthetic twins, not the data: logs of the
same size on which the paper's simple rivals score about as printed in the paper. docs/synthetic.md
explains the model of a phone step by step and how its parameters were fitted.

A phone's launches depend only on (parameters, seed, phone), not on the number of phones.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit, ndtri

from nextapp.compiled import borrowing, compiled, loop
from nextapp.compiled_bits import (
    Key,
    below,
    cursor,
    exponential,
    normal,
    restart,
    room_for_long_stream,
    set_cursor,
    uniform,
    uniform_at,
)
from nextapp.data.log import Codes, LaunchLog, Times
from nextapp.randomness import KeyedBits, Words, purpose_word
from nextapp.settings import count, unknown

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
Kinds = npt.NDArray[np.int8]
Mask = npt.NDArray[np.bool_]
Result = TypeVar("Result")

_DAY = 86_400  # all times in the kernels are whole seconds since the log's first midnight
_SESSION_GAP = 901  # more than 15 minutes
_SHORTEST_PAUSE, _LONGEST_PAUSE = 4, 840  # more than a repeat's 3 s, less than a session gap
_LONGEST_SESSION = 5_000
_TRIES = 16
_SECOND = 0.25  # probability that a habit leads to the second follower of an app
_RECENT = 8  # number of apps of a session that a phone can return to
_AT_ONCE = 1_000  # phones that a thread generates at a time
_BINS, _OWN_BINS = 4_096, 128  # bins in which a search starts: over all apps, over a phone's apps
_FIRST_ROOM = 1 << 16  # rows allocated for them at first; arrays grow when needed

_SESSIONS = np.uint64(purpose_word("sessions"))
_LAUNCHES = np.uint64(purpose_word("launches"))
_OPENING, _LAUNCH, _ECHO = 0, 1, 2  # kinds of rows


def _number(default: float, low: float, high: float, meaning: str) -> Any:
    return field(default=default, metadata={"low": low, "high": high, "meaning": meaning})


@dataclass(frozen=True)
class Parameters:
    """Parameters of a synthetic log. A parameter of 0 switches its effect off.

    A field's ``metadata["meaning"]`` explains it; the docs have a table of all.
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
    mutual: float = _number(
        0.0, 0, 1, "share of apps, in pairs of neighbours in popularity, that follow each other"
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
# and adjusted by hand, LSAPP also to sums over the real LSApp; docs/synthetic.md says which
# parameters were fitted, and how well they fit.
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
    popularity=1.7,
    types=3,
    type_taste=0.8,
    installed=18.2,
    installed_spread=0.7,
    brings=0.08,
    installs=0.1,
    taste=1.62,
    taste_spread=0.2,
    drift=0.004,
    repeat=0.535,
    repeat_spread=0.3,
    habit=0.22,
    habit_spread=0.3,
    mutual=1.0,
    returning=0.85,
    returning_depth=0.37,
    own_habit=0.48,
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
    """Parameters of a fleet: per phone about 240 launches of 14 apps and 90 different transitions
    in 3 days."""
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
            f"a synthetic log must be written like 'synthetic:lsapp', 'synthetic:app-usage', "
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
    """Properties of phones that do not change; one entry per phone, from number ``first`` on."""

    first: int
    first_day: Whole
    last_day: Whole
    n_apps: Whole
    sessions: Floats  # per day
    taste: Floats
    type: Whole


def traits(parameters: Parameters, seed: int, first: int = 0, stop: int | None = None) -> Traits:
    """Traits of phones first to stop − 1 (default: all), evenly spread over their distributions.

    They are quasi-random: phone i takes the i-th point of a Kronecker sequence (multiples of
    irrational numbers modulo 1, shifted by the seed), so that a log of 300 phones has the right
    shares of all kinds of phones for every seed. Phone 0 is active from the first day to the last,
    so that the log spans all its days.
    """
    steps = np.sqrt([1.25, 2.0, 13.0, 3.0, 7.0, 11.0])
    shift = KeyedBits(seed, purpose="traits").generator().random(6)
    phone = np.arange(first, parameters.phones if stop is None else stop)
    evenly = (shift[:, None] + steps[:, None] * phone) % 1.0
    joins, stays, holds, opens, likes, types = np.clip(evenly, 1e-9, 1 - 1e-9)
    joined = np.zeros(len(phone), np.int64)
    if parameters.joining > 0:
        reach = -math.expm1(-parameters.days / parameters.joining)  # truncated at the log's end
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
    """What all phones share, for the compiled functions."""

    favourites: Whole  # (types + 1, apps): apps by falling popularity, per type; last row: overall
    popularity: Floats  # (apps,): cumulative
    popularity_bins: Whole  # (_BINS + 1,): where the search of `_pick` starts
    repeat: Floats  # (apps,)
    habit: Floats  # (apps,)
    hour: Whole  # (apps,): hour at which an app is most liked
    distaste: Floats  # (24,): probability of rejection, by hours after the app's hour
    rhythm: Floats  # (25,): cumulative hours of activity since midnight
    followers: Whole  # (apps, 2): the crowd's habits
    type_taste: float
    brings: float
    installs: float
    drift: float
    returning: float
    returning_depth: float
    own_habit: float
    launches: float  # mean of the logarithm of launches per session
    launches_spread: float
    session_seconds: float
    pause: float
    pauses: Whole  # (_BINS,): seconds between launches by the uniform number drawn; 0: look closer
    echo: float
    days: int


def _crowd(parameters: Parameters, seed: int) -> _Crowd:
    generator = KeyedBits(seed, purpose="crowd").generator()
    n = parameters.apps
    rank = np.arange(n)
    favourites = generator.permuted(np.tile(rank, (parameters.types + 1, 1)), axis=1)
    popularity = np.cumsum((rank + 1.0) ** -parameters.popularity)
    bins = np.empty(_BINS + 1, np.int64)
    _write_bins_by_numpy(popularity, bins)
    followers = np.empty((n, 2), np.int64)
    wrong = np.ones((n, 2), bool)
    for _ in range(_TRIES):  # no app follows itself, none follows its follower
        drawn = np.searchsorted(popularity[:-1], generator.random(wrong.sum()) * popularity[-1])
        followers[wrong] = favourites[-1][drawn]
        wrong = (followers == rank[:, None]) | (followers[followers] == rank[:, None, None]).any(2)
    if parameters.mutual > 0:
        pairs = favourites[-1][: n - n % 2].reshape(-1, 2)
        pairs = pairs[generator.random(len(pairs)) < parameters.mutual]
        followers[pairs, 0] = pairs[:, ::-1]
    lean = np.empty(n)  # from mostly followed to mostly repeated; evenly spread over popularity
    lean[favourites[-1]] = ndtri((0.5 + 0.6180339887498949 * rank) % 1.0)
    hours = np.arange(25)
    wave = np.cos(2 * np.pi * hours / 24)
    active = 1 - parameters.day_rhythm * np.roll(wave[:-1], 4)  # least at 4 h, most at 16 h
    return _Crowd(
        favourites,
        popularity,
        bins,
        expit(logit(parameters.repeat) + parameters.repeat_spread * lean),
        expit(logit(parameters.habit) - parameters.habit_spread * lean),
        generator.integers(24, size=n),
        parameters.hour_taste * (1 - wave[:-1]) / 2,
        np.concatenate([[0.0], np.cumsum(active)]),
        followers,
        parameters.type_taste,
        parameters.brings,
        parameters.installs,
        np.float64(parameters.drift),  # so that a division by 0 gives inf in every form
        parameters.returning,
        parameters.returning_depth,
        parameters.own_habit,
        math.log(parameters.launches) - parameters.launches_spread**2 / 2,
        parameters.launches_spread,
        parameters.launches * (parameters.pause + _SHORTEST_PAUSE),
        parameters.pause,
        _pauses(parameters.pause),
        parameters.echo,
        parameters.days,
    )


def _pauses(mean: float) -> Whole:
    """The seconds that `_pause` gives for all uniform numbers of a bin; 0 where they differ."""
    edges = np.append(np.arange(_BINS) / _BINS, 1.0 - 2.0**-53)
    seconds = -mean * np.log1p(-edges)
    doubt = 1e-9 * (1.0 + seconds)  # far above the rounding of any logarithm
    ends = np.maximum([(seconds - doubt)[:-1], (seconds + doubt)[1:]], 0.0).astype(np.int64)
    least, most = np.minimum(_SHORTEST_PAUSE + ends, _LONGEST_PAUSE)
    return np.where(least == most, least, 0)


def make(parameters: Parameters, seed: int, first: int = 0) -> LaunchLog:
    """A synthetic log. The same parameters and seed give the same log.

    It has the phones from number `first` on, exactly as in the log of all phones.
    """
    starts, app, time = _rows(parameters, seed, first, parameters.phones, timed=True)
    n_phones = len(starts) - 1
    return LaunchLog(
        np.repeat(np.arange(n_phones, dtype=np.int32), np.diff(starts)),
        app,
        1_000 * (time + _midnight(parameters)),
        tuple(f"phone-{phone:04d}" for phone in range(first, parameters.phones)),
        tuple(f"app-{code:04d}" for code in range(parameters.apps)),
        (f"synthetic, not people's data: {count(n_phones, 'phone')} made with seed {seed}",),
    )


def _midnight(parameters: Parameters) -> int:
    """The first midnight of the log, in seconds since 1970."""
    start = datetime.strptime(parameters.start, "%Y-%m-%d").replace(tzinfo=UTC)
    return int(start.timestamp())


def histories(parameters: Parameters, seed: int, first: int, stop: int) -> tuple[Whole, Codes]:
    """The launches of phones first to stop − 1, without times: starts (n + 1,) and apps.

    3-second repeats are included, as in the log.
    """
    starts, app, _ = _rows(parameters, seed, first, stop, timed=False)
    return starts, app


def _rows(
    parameters: Parameters, seed: int, first: int, stop: int, *, timed: bool
) -> tuple[Whole, Codes, Times]:
    """starts (n + 1,), apps and, if `timed`, times, row by row."""
    parts = _in_parts(parameters, seed, first, stop, timed, lambda _, *part: part)
    counts, app, time = zip(*parts, strict=True)
    starts = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
    return starts, np.concatenate(app), np.concatenate(time)


def for_histories(
    parameters: Parameters,
    seed: int,
    first: int,
    stop: int,
    work: Callable[[int, Whole, Codes], Result],
) -> list[Result]:
    """Call work(number of the first phone, starts, apps) on the `histories` of a thousand phones at
    a time, on all cores; returns the results in order. Histories are not kept in memory."""

    def play(begin: int, counts: Whole, app: Codes, _: Times) -> Result:
        return work(first + begin, np.concatenate([[0], np.cumsum(counts)]), app)

    return _in_parts(parameters, seed, first, stop, False, play)


def _in_parts(
    parameters: Parameters,
    seed: int,
    first: int,
    stop: int,
    timed: bool,
    work: Callable[[int, Whole, Codes, Times], Result],
) -> list[Result]:
    _check_phones(parameters, first, stop)
    crowd, phones = _crowd(parameters, seed), traits(parameters, seed, first, stop)
    key = np.uint64(seed)
    bounds = [*range(0, stop - first, _AT_ONCE), stop - first]

    def play(begin: int, end: int) -> Result:
        return work(begin, *_play(begin, end, key, crowd, phones, timed))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(play, bounds[:-1], bounds[1:]))


def _check_phones(parameters: Parameters, first: int, stop: int) -> None:
    if not 0 <= first < stop <= parameters.phones:
        raise ValueError(
            f"phones must be from 0 to {parameters.phones - 1}, got {first} to {stop - 1}."
        )


class Chances(NamedTuple):
    """The true launch probabilities of a phone for each row of its log, given its hidden state.

    ``odds[row, k]`` is the probability of ``apps[k]`` just before the row was drawn;
    ``apps[launched[row]]`` is the app drawn. An echo is not a launch: it repeats the row before it.
    """

    apps: Whole  # (n_apps of the phone,)
    odds: Floats  # (n_rows, n_apps of the phone)
    launched: Whole  # (n_rows,)
    time: Times  # (n_rows,), in milliseconds since 1970
    echo: Mask  # (n_rows,)


def chances(parameters: Parameters, seed: int, phones: Iterable[int]) -> Iterator[Chances]:
    """The exact probabilities from which `make` draws the launches of each of these phones."""
    crowd, key = _crowd(parameters, seed), np.uint64(seed)
    place = np.full(parameters.apps, -1, np.int64)
    for phone in phones:
        _check_phones(parameters, phone, phone + 1)
        one = traits(parameters, seed, phone, phone + 1)
        own, odds, launched, time, kind = _play_with_odds(key, crowd, one, place)
        yield Chances(own, odds, launched, 1_000 * (time + _midnight(parameters)), kind == _ECHO)


@loop(seconds=lambda key, crowd, phone, _: 5.0 * _seconds_to_play(0, 1, key, crowd, phone, True))
def _play_with_odds(
    seed: Key, crowd: _Crowd, phone: Traits, place: Whole
) -> tuple[Whole, Floats, Whole, Times, Kinds]:
    """The apps of the only phone, and for each row the odds, the place of its app among them, its
    time and its kind. `place` is -1 everywhere before and after."""
    bits, n_apps = room_for_long_stream(), phone.n_apps[0]
    n_rows = _clock(bits, 0, seed, crowd, phone, np.empty(0, np.int64), np.empty(0, np.int8))
    time, kind = np.empty(n_rows, np.int64), np.empty(n_rows, np.int8)
    app, odds = np.empty(n_rows, np.int32), np.empty((n_rows, n_apps))
    _clock(bits, 0, seed, crowd, phone, time, kind)
    built = _build_phone(bits, 0, seed, crowd, phone, place, _room_for_phone(n_apps))
    _launch(bits, crowd, built, time, kind, app, odds)
    place[built.own] = np.arange(n_apps)
    launched = place[app]
    place[built.own] = -1
    return built.own, odds, launched, time, kind


def _seconds_to_play(
    first: int, stop: int, _seed: Key, crowd: _Crowd, phones: Traits, _timed: bool
) -> float:
    """How long `_play` takes in plain Python, about."""
    days = (phones.last_day - phones.first_day + 1)[first:stop]
    launches = math.exp(crowd.launches + crowd.launches_spread**2 / 2)
    n_rows = float((days * phones.sessions[first:stop]).sum()) * launches
    return 1e-3 * (stop - first) + 1e-5 * n_rows


@loop(seconds=_seconds_to_play)
def _play(
    first: int, stop: int, seed: Key, crowd: _Crowd, phones: Traits, timed: bool
) -> tuple[Whole, Codes, Times]:
    """The number of rows of each phone, all apps and, if `timed`, all times."""
    counts = np.zeros(stop - first, np.int64)
    place = np.full(crowd.favourites.shape[1], -1, np.int64)  # index of an app on the phone
    room = _room_for_phone(phones.n_apps[first:stop].max())
    bits, no_odds = room_for_long_stream(), np.empty((0, 0))
    app, time = np.empty(_FIRST_ROOM, np.int32), np.empty(_FIRST_ROOM, np.int64)
    kind = np.empty(_FIRST_ROOM, np.int8)
    n, at = 0, 0  # rows so far; start of the phone's times
    for phone in range(first, stop):
        n_rows = _clock(bits, phone, seed, crowd, phones, time[at:], kind)
        if n_rows > min(len(time) - at, len(kind)):  # too little room: grow and repeat
            time, kind = _grow(time, at, 2 * (at + n_rows)), np.empty(2 * n_rows, np.int8)
            _clock(bits, phone, seed, crowd, phones, time[at:], kind)
        if n + n_rows > len(app):
            app = _grow(app, n, 2 * (n + n_rows))
        played = _build_phone(bits, phone, seed, crowd, phones, place, room)
        when, what = time[at : at + n_rows], app[n : n + n_rows]
        _launch(bits, crowd, played, when, kind[:n_rows], what, no_odds)
        counts[phone - first] = n_rows
        n += n_rows
        if timed:
            at = n
    return counts, app[:n].copy(), time[:at].copy()


@compiled
def _grow(array: Any, n: int, room: int) -> Any:
    """A larger array that starts with the first n entries."""
    grown = np.empty(room, array.dtype)
    grown[:n] = array[:n]
    return grown


@borrowing
def _clock(
    bits: Words,
    phone: int,
    seed: Key,
    crowd: _Crowd,
    phones: Traits,
    time: Times,
    kind: Kinds,
) -> int:
    """The times of a phone's launches. Returns the number of rows; writes as many as there is room.

    The first session is on the phone's first day, the last on its last day; the waiting times
    between sessions are exponential in hours of activity.
    """
    room = min(len(time), len(kind))
    restart(bits, seed, phones.first + phone, 0, _SESSIONS)
    wait = max(_DAY / phones.sessions[phone] - crowd.session_seconds - _SESSION_GAP, 60.0)
    now = _later(phones.first_day[phone] * _DAY, 24 * uniform(bits), crowd.rhythm)
    closing = _later(phones.last_day[phone] * _DAY, 24 * uniform(bits), crowd.rhythm)
    if closing < now + _SESSION_GAP:
        closing = now
    pauses, mean_pause, echoes = crowd.pauses, crowd.pause, crowd.echo
    row = 0
    while True:
        last = now == closing
        end = crowd.days * _DAY - 1 if last else closing - _SESSION_GAP
        length = math.exp(crowd.launches + crowd.launches_spread * normal(bits))
        here = cursor(bits)
        for launch in range(min(max(round(length), 1), _LONGEST_SESSION)):
            if launch > 0:
                u, here = uniform_at(bits, here)
                pause = pauses[int(u * _BINS)]
                now += pause if pause > 0 else _pause(mean_pause, u)
                if now > end:
                    now = end
                    break
            if row < room:
                time[row] = now
                kind[row] = _OPENING if launch == 0 else _LAUNCH
            row += 1
            if echoes > 0:
                u, here = uniform_at(bits, here)
                if u < echoes:
                    set_cursor(bits, here)
                    echo = min(now + 1 + below(bits, 3), end)
                    here = cursor(bits)
                    if row < room:
                        time[row] = echo
                        kind[row] = _ECHO
                    row += 1
        set_cursor(bits, here)
        if last:
            return row
        now = _later(now + _SESSION_GAP + 3, wait / 3600 * exponential(bits), crowd.rhythm)
        if now > closing - _SESSION_GAP:
            now = closing


@borrowing
def _pause(mean: float, u: float) -> int:
    """Seconds between launches for a uniform number."""
    return min(_SHORTEST_PAUSE + int(mean * -math.log1p(-u)), _LONGEST_PAUSE)


@borrowing
def _later(now: int, hours: float, rhythm: Floats) -> int:
    """The second at which `hours` hours of activity have passed since `now`."""
    day, second = now // _DAY, now % _DAY
    hour = second // 3600
    share = (second % 3600) / 3600
    hours += rhythm[hour] + share * (rhythm[hour + 1] - rhythm[hour])
    if hours >= rhythm[24]:
        day += int(hours // rhythm[24])
        hours %= rhythm[24]
    hour = 0
    for each in range(1, 24):
        hour += rhythm[each] <= hours
    share = (hours - rhythm[hour]) / (rhythm[hour + 1] - rhythm[hour])
    return max(day * _DAY + hour * 3600 + int(3600 * share), now)


class _Phone(NamedTuple):
    """One phone as `_launch` plays it. Apps are numbered by their place in `own`."""

    own: Whole  # (n,): the apps on it, the best liked first
    arrival: Whole  # (n,): the second at which an app is installed
    repeat: Floats  # (n,)
    follow: Floats  # (n,): the chance that the crowd's habit is followed
    hour: Whole  # (n,)
    habit: Whole  # (n, 2): followers by the crowd's habit; -1: not on the phone
    own_habit: Whole  # (n,): the follower by the phone's own habit, maybe the app itself
    taste: Floats  # (n,): cumulated, by rank
    taste_bins: Whole  # (_OWN_BINS + 1,)
    liking: Whole  # (n,): apps by falling taste; drift changes the order
    recent: Whole  # (_RECENT,): room for the apps of a session, latest first


@compiled
def _room_for_phone(n: int) -> _Phone:
    """Room for a phone of up to n apps, which `_build_phone` uses for one phone after another."""
    return _Phone(
        np.empty(n, np.int64),
        np.empty(n, np.int64),
        np.empty(n),
        np.empty(n),
        np.empty(n, np.int64),
        np.empty((n, 2), np.int64),
        np.empty(n, np.int64),
        np.empty(n),
        np.empty(_OWN_BINS + 1, np.int64),
        np.empty(n, np.int64),
        np.empty(_RECENT, np.int64),
    )


@compiled
def _build_phone(
    bits: Words, phone: int, seed: Key, crowd: _Crowd, phones: Traits, place: Whole, room: _Phone
) -> _Phone:
    """A phone before its first launch, in this room. `place` is -1 everywhere before and after."""
    restart(bits, seed, phones.first + phone, 1, _LAUNCHES)
    n = phones.n_apps[phone]
    built = _Phone(
        room.own[:n],
        room.arrival[:n],
        room.repeat[:n],
        room.follow[:n],
        room.hour[:n],
        room.habit[:n],
        room.own_habit[:n],
        room.taste[:n],
        room.taste_bins,
        room.liking[:n],
        room.recent,
    )
    total = 0.0
    for rank in range(n):
        total += (rank + 1) ** -phones.taste[phone]
        built.taste[rank], built.liking[rank], built.arrival[rank] = total, rank, 0
    _write_bins(built.taste, built.taste_bins)
    _install(bits, phone, crowd, phones, place, built.own, built.arrival)
    _settle(bits, crowd, place, built)
    return built


@borrowing
def _launch(
    bits: Words,
    crowd: _Crowd,
    phone: _Phone,
    time: Times,
    kind: Kinds,
    app: Codes,
    odds: Floats,
) -> None:
    """Write the apps launched at the given times, and the probabilities of the first rows."""
    own, arrival, repeat, follow = phone.own, phone.arrival, phone.repeat, phone.follow
    habit, own_habit, recent = phone.habit, phone.own_habit, phone.recent
    returning, depth, own_chance = crowd.returning, crowd.returning_depth, crowd.own_habit
    swap = time[0] + uniform(bits) * _DAY / crowd.drift  # time of the next drift; never if 0
    here = cursor(bits)
    n_recent, now = 0, 0  # apps of the session; the app launched last
    for row in range(len(time)):
        again = kind[row] == _ECHO
        if kind[row] == _OPENING:
            n_recent = 0
            set_cursor(bits, here)
            swap = _drift(bits, crowd.drift, phone.liking, swap, time[row])
            here = cursor(bits)
        if row < len(odds):
            _weigh(odds[row], crowd, phone, now, recent[:n_recent], time[row])
        if kind[row] == _LAUNCH:
            u, here = uniform_at(bits, here)
            again = u < repeat[now]
        if not again:
            following = -1
            if n_recent > 0:
                u, here = uniform_at(bits, here)
                if u < follow[now]:
                    u, here = uniform_at(bits, here)
                    following = habit[now, int(u < _SECOND)]
                else:
                    u, here = uniform_at(bits, here)
                    if u < returning:
                        following, here = _back(bits, here, depth, recent, n_recent)
                    else:
                        u, here = uniform_at(bits, here)
                        following = own_habit[now] if u < own_chance else -1
            if following < 0 or arrival[following] > time[row]:
                following, here = _liked(bits, here, crowd.distaste, phone, time[row])
            now = following
            n_recent = _remember(recent, n_recent, now)
        app[row] = own[now]


@borrowing
def _install(
    bits: Words,
    phone: int,
    crowd: _Crowd,
    phones: Traits,
    place: Whole,
    own: Whole,
    arrival: Whole,
) -> None:
    """Choose a phone's apps, the most liked first, and the times (s) at which they are installed.

    `place` receives their index on the phone.
    """
    n_apps = len(place)
    for k in range(len(own)):
        brought = k > 0 and uniform(bits) < crowd.brings
        candidate = crowd.followers[own[k - 1], 0] if brought else -1
        for _ in range(_TRIES):
            if candidate >= 0 and place[candidate] < 0:
                break
            taste = phones.type[phone] if uniform(bits) < crowd.type_taste else -1
            rank = _pick(crowd.popularity, crowd.popularity_bins, uniform(bits))
            candidate = crowd.favourites[taste, rank]
        while place[candidate] >= 0:
            candidate = (candidate + 1) % n_apps
        own[k] = candidate
        place[candidate] = k
        if k > 0 and uniform(bits) < crowd.installs:
            days = 1 + phones.last_day[phone] - phones.first_day[phone]
            arrival[k] = phones.first_day[phone] * _DAY + below(bits, days * _DAY)


@borrowing
def _settle(bits: Words, crowd: _Crowd, place: Whole, phone: _Phone) -> None:
    """Write the properties and the followers of a phone's apps; reset their entries in `place`."""
    own = phone.own
    for k in range(len(own)):
        phone.repeat[k], phone.follow[k] = crowd.repeat[own[k]], crowd.habit[own[k]]
        phone.hour[k] = crowd.hour[own[k]]
        for rank in range(2):
            phone.habit[k, rank] = place[crowd.followers[own[k], rank]]
        phone.own_habit[k] = _pick(phone.taste, phone.taste_bins, uniform(bits))
    for k in range(len(own)):
        place[own[k]] = -1


@borrowing
def _drift(bits: Words, drift: float, liking: Whole, swap: float, now: int) -> float:
    """Swap neighbours in the phone's taste until `now`; returns the time of the next swap."""
    while swap < now and len(liking) > 1:
        rank = below(bits, len(liking) - 1)
        liking[rank], liking[rank + 1] = liking[rank + 1], liking[rank]
        swap += _DAY / drift
    return swap


@borrowing
def _back(bits: Words, here: int, further: float, recent: Whole, n_recent: int) -> tuple[int, int]:
    """An earlier app of the session, more likely a recent one; -1 if there is none.

    And the cursor of the bits.
    """
    depth = 1
    u, here = uniform_at(bits, here)
    while u < further:
        depth += 1
        u, here = uniform_at(bits, here)
    return recent[depth] if depth < n_recent else -1, here


@borrowing
def _remember(recent: Whole, n_recent: int, now: int) -> int:
    """Move an app to the front of the session's apps; returns their number."""
    moved = now
    for back in range(n_recent):
        moved, recent[back] = recent[back], moved
        if moved == now:
            return n_recent
    if n_recent < _RECENT:
        recent[n_recent] = moved
        n_recent += 1
    return n_recent


@borrowing
def _liked(bits: Words, here: int, distaste: Floats, phone: _Phone, now: int) -> tuple[int, int]:
    """Draw an installed app by the phone's taste and the hour; also returns the cursor."""
    hour = now % _DAY // 3600
    for _ in range(_TRIES):
        u, here = uniform_at(bits, here)
        k = phone.liking[_pick(phone.taste, phone.taste_bins, u)]
        if phone.arrival[k] <= now:
            away = hour - phone.hour[k]
            u, here = uniform_at(bits, here)
            if u >= distaste[away if away >= 0 else away + 24]:
                return k, here
    return 0, here


@borrowing
def _pick(cumulated: Floats, bins: Whole, u: float) -> int:
    """The first index whose cumulative sum is above u times the total; at most the last.

    `bins` are those of `_write_bins`: the search is between two of them.
    """
    mass = u * cumulated[-1]
    at = int(u * (len(bins) - 1))
    low, high = bins[at], bins[at + 1]
    while low < high:
        middle = (low + high) // 2
        if cumulated[middle] <= mass:
            low = middle + 1
        else:
            high = middle
    return low  # type: ignore[no-any-return]


def _write_bins_by_numpy(cumulated: Floats, bins: Whole) -> None:
    last, n = len(cumulated) - 1, len(bins) - 1
    masses = np.arange(n + 1) * (1.0 / n) * cumulated[last]
    bins[:] = np.searchsorted(cumulated[:last], masses, side="right")


@loop(plain=_write_bins_by_numpy, _nrt=False)
def _write_bins(cumulated: Floats, bins: Whole) -> None:
    """Where `_pick` ends for u = 0, 1/n, 2/n, …, 1. As rounding keeps the order, a u between two of
    them ends between theirs."""
    place, last, n = 0, len(cumulated) - 1, len(bins) - 1
    for at in range(n + 1):
        mass = at * (1.0 / n) * cumulated[last]
        while place < last and cumulated[place] <= mass:
            place += 1
        bins[at] = place


@compiled
def _weigh(odds: Floats, crowd: _Crowd, phone: _Phone, now: int, recent: Whole, time: int) -> None:
    """Write the probability with which `_launch` draws each app of the phone after app `now`."""
    odds[:] = 0.0
    left = 1.0  # probability not assigned yet
    by_taste = 0.0  # probability that the app is drawn by taste
    arrival = phone.arrival
    if len(recent) > 0:
        repeat = phone.repeat[now]
        odds[now] += repeat
        left -= repeat

        share = left * phone.follow[now]
        left -= share
        for rank in range(2):
            part = share * (_SECOND if rank == 1 else 1.0 - _SECOND)
            by_taste += _give(odds, arrival, phone.habit[now, rank], part, time)

        share = left * crowd.returning
        left -= share
        for depth in range(1, len(recent)):
            part = share * (1.0 - crowd.returning_depth)
            share -= part
            by_taste += _give(odds, arrival, recent[depth], part, time)
        by_taste += share  # further back than the start of the session

        share = left * crowd.own_habit
        left -= share
        by_taste += _give(odds, arrival, phone.own_habit[now], share, time)
    by_taste += left
    _spread(odds, by_taste, crowd.distaste, phone, time)


@compiled
def _give(odds: Floats, arrival: Whole, app: int, chance: float, now: int) -> float:
    """Add a probability to an app; if the app is not installed yet, return the probability."""
    if app < 0 or arrival[app] > now:
        return chance
    odds[app] += chance
    return 0.0


@compiled
def _spread(odds: Floats, chance: float, distaste: Floats, phone: _Phone, now: int) -> None:
    """Distribute a probability over the apps as `_liked` draws: 16 tries, then app 0."""
    hour, taste = now % _DAY // 3600, phone.taste
    taken = np.zeros(len(odds))  # probability that a try accepts each app
    for rank in range(len(taken)):
        k = phone.liking[rank]
        if phone.arrival[k] <= now:
            mass = taste[rank] - (taste[rank - 1] if rank > 0 else 0.0)
            taken[k] = mass / taste[-1] * (1.0 - distaste[(hour - phone.hour[k]) % 24])
    refused = 1.0 - taken.sum()
    reached, tries = 1.0, 0.0  # probability that a try is reached; expected number of tries
    for _ in range(_TRIES):
        tries += reached
        reached *= refused
    odds += chance * tries * taken
    odds[0] += chance * reached
