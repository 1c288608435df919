from __future__ import annotations

import math
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from contextlib import closing
from datetime import date
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from nextapp.phone.ledger import (
    DAY,
    LEAP_DAYS,
    Amounts,
    BudgetSpent,
    ClockError,
    Ledger,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFull,
)

NOON = 20_000 * DAY + DAY / 2  # 2024-10-04


@pytest.fixture(autouse=True)
def _every_file_is_closed(monkeypatch):
    opened = []
    connect = sqlite3.connect

    def remembered(*words, **more):
        opened.append(connect(*words, **more))
        return opened[-1]

    monkeypatch.setattr(sqlite3, "connect", remembered)
    yield
    for connection in opened:
        connection.close()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "phone.db"


def connect(path, *, timeout=5.0):
    return sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False)


def new_ledger(path, lifetime=10, per_day=3):
    """In a file of its own, as a part of what makes it."""
    phone = connect(path)
    phone.execute("PRAGMA journal_mode = WAL")
    phone.execute("BEGIN")
    Ledger.create(phone, lifetime=lifetime, per_day=per_day)
    phone.execute("COMMIT")
    return Ledger(phone, path)


def reopened(path):
    return Ledger(connect(path), path)


def charge(ledger, epsilon, when=NOON, **more):
    ledger.charge(epsilon, when, round=0, mechanism="harmony", **more)


def test_a_charge_is_kept_with_all_that_was_said_of_it(path):
    ledger = new_ledger(path)
    ledger.charge(1.1, NOON, round=2**53 - 1, mechanism="walsh")
    assert ledger.left(NOON) == Amounts(today=1.9, lifetime=8.9)
    (entry,) = reopened(path).entries()
    assert (entry.epsilon, entry.when, entry.day) == (1.1, NOON, date(2024, 10, 4))
    assert (entry.round, entry.mechanism) == (2**53 - 1, "walsh")
    assert ledger.spent(NOON) == Amounts(1.1, 1.1)
    assert ledger.spent(NOON + DAY) == Amounts(0.0, 1.1)


def test_the_day_is_over_at_midnight_utc_and_the_refusal_says_so(path):
    ledger = new_ledger(path)
    charge(ledger, 2.0)
    with pytest.raises(
        BudgetSpent, match=r"1 is left today, 8 for life.* from 2024-10-05 00:00"
    ) as no:
        charge(ledger, 1.5)
    assert no.value.left == Amounts(1.0, 8.0)
    assert no.value.again == 20_001 * DAY
    with pytest.raises(BudgetSpent):
        charge(ledger, 1.5, no.value.again - 1)
    charge(ledger, 1.5, no.value.again)


@pytest.mark.parametrize("epsilon", [3.1, 1e300])
def test_a_report_dearer_than_a_day_may_never_be_sent(path, epsilon):
    with pytest.raises(BudgetSpent, match="never") as no:
        charge(new_ledger(path), epsilon)
    assert no.value.again is None


def test_a_life_that_is_spent_stays_spent(path):
    ledger = new_ledger(path, 4, 3)
    charge(ledger, 3.0)
    charge(ledger, 1.0, NOON + DAY)
    with pytest.raises(BudgetSpent, match="never") as no:
        charge(ledger, 1e-9, NOON + 2 * DAY)
    assert no.value.left == Amounts(0.0, 0.0)


def test_ten_tenths_are_one_and_an_eleventh_does_not_fit(path):
    ledger = new_ledger(path, 1, 1)
    for _ in range(10):
        charge(ledger, 0.1)
    assert ledger.spent(NOON).lifetime == 1.0
    with pytest.raises(BudgetSpent):
        charge(ledger, 1e-12)


def test_a_billionth_too_much_is_too_much(path):
    ledger = new_ledger(path, 10, 1)
    charge(ledger, 0.999999999)
    with pytest.raises(BudgetSpent):
        charge(ledger, 1.0000001e-9)
    charge(ledger, 1e-9)
    assert ledger.left(NOON) == Amounts(0.0, 9.0)


def test_a_cost_is_rounded_up_and_a_budget_down(path):
    ledger = new_ledger(path, 1.0000000019, 1.0000000019)
    assert ledger.left(NOON).lifetime == 1.000000001
    charge(ledger, 1e-30)
    charge(ledger, 1 / 3)
    assert [entry.epsilon for entry in ledger.entries()] == [1e-9, 0.333333334]


def test_a_clock_set_back_does_not_bring_the_day_back(path):
    ledger = new_ledger(path)
    charge(ledger, 3.0)
    charge(ledger, 1.0, NOON + DAY)
    for back in (DAY, 5 * DAY, 20_000 * DAY):
        assert ledger.left(NOON + DAY - back).today == 2.0
    charge(ledger, 2.0, 0.0)
    with pytest.raises(BudgetSpent) as no:
        charge(ledger, 0.5, NOON)
    assert no.value.again == 20_002 * DAY
    assert {entry.day for entry in ledger.entries()[1:]} == {date(2024, 10, 5)}


def test_a_clock_far_ahead_is_not_believed_until_someone_vouches_for_it(path):
    ledger = new_ledger(path)
    charge(ledger, 3.0)
    drawer = NOON + (LEAP_DAYS + 1) * DAY
    with pytest.raises(ClockError, match=r"2024-11-05.*31 days.*2024-10-04.*trust_clock"):
        charge(ledger, 1.0, drawer)
    charge(reopened(path), 1.0, drawer - DAY)  # nothing was moved by it
    ledger.trust_clock(drawer + 900 * DAY)
    charge(ledger, 3.0, drawer + 900 * DAY)


def test_a_clock_that_ran_ahead_is_set_right_without_a_fresh_day(path):
    ledger = new_ledger(path, 20, 3)
    charge(ledger, 1.0, NOON + 5000 * DAY)  # the first charge: nothing to compare the clock with
    charge(ledger, 1.0, NOON)
    ledger.trust_clock(NOON)
    assert ledger.left(NOON).today == 1.0
    assert ledger.left(NOON + DAY).today == 3.0
    charge(ledger, 3.0, NOON + DAY)
    ledger.trust_clock(NOON)  # contradicts what was said before: all since then counts
    assert ledger.left(NOON).today == 0.0
    assert reopened(path).left(NOON).today == 0.0


def test_vouching_for_the_day_it_is_changes_nothing(path):
    ledger = new_ledger(path)
    ledger.trust_clock(NOON)
    charge(ledger, 2.0)
    ledger.trust_clock(NOON + 60)
    assert ledger.left(NOON).today == 1.0


def test_other_budgets_are_kept_and_larger_ones_are_told(path):
    ledger = new_ledger(path)
    ledger.set_budgets(lifetime=8, per_day=2)
    ledger.set_budgets(lifetime=8, per_day=2)
    assert "raised" not in ledger.statement(NOON)
    ledger.set_budgets(lifetime=10, per_day=3)
    assert reopened(path).left(NOON) == Amounts(3.0, 10.0)
    assert "The budget has been raised 1 time." in ledger.statement(NOON)


def test_a_budget_below_what_is_spent_leaves_nothing(path):
    ledger = new_ledger(path)
    charge(ledger, 3.0)
    ledger.set_budgets(lifetime=2, per_day=2)
    assert ledger.left(NOON) == Amounts(0.0, 0.0)
    with pytest.raises(BudgetSpent, match="never"):
        charge(ledger, 1.0, NOON + DAY)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf])
def test_a_cost_that_is_none_is_refused(path, epsilon):
    with pytest.raises(ValueError, match="epsilon must be a finite number > 0"):
        charge(new_ledger(path), epsilon)


@pytest.mark.parametrize("when", [-1.0, math.nan, math.inf, 1e12])
def test_a_time_that_is_none_is_refused(path, when):
    with pytest.raises(ValueError, match="when must be in seconds since 1970"):
        charge(new_ledger(path), 1.0, when)


def test_minus_nought_is_a_time_like_any_other(path):
    charge(new_ledger(path), 1.0, -0.0)
    assert reopened(path).entries()[0].when == 0.0


def test_the_statement_is_in_plain_words(path):
    ledger = new_ledger(path, 20, 2.2)
    assert ledger.statement(NOON).startswith("This phone has sent 0 reports")
    for day in range(3):
        charge(ledger, 1.1, NOON + day * DAY)
    assert ledger.statement(NOON + 2 * DAY) == (
        "This phone has sent 3 reports with privacy protection since 2024-10-04.\n"
        "Together that cost epsilon 3.3 of the 20 it may spend in its life; 16.7 is left.\n"
        "On 2024-10-06 (UTC) it cost 1.1 of the 2.2 of a day; 1.1 is left."
    )


# In the phone's own file


def test_it_lives_in_the_phones_file_and_leaves_its_settings_alone(path):
    new_ledger(path)
    phone = connect(path)
    phone.execute("PRAGMA synchronous = NORMAL")
    charge(Ledger(phone, path), 1.0)
    assert phone.execute("PRAGMA synchronous").fetchone() == (1,)
    assert reopened(path).left(NOON) == Amounts(2.0, 9.0)


def test_a_charge_inside_another_transaction_is_refused(path):
    """Rolled back with it, the charge would be undone after the report had left."""
    new_ledger(path)
    phone = connect(path)
    ledger = Ledger(phone, path)
    phone.execute("BEGIN")
    with pytest.raises(StoreError, match="inside a transaction"):
        charge(ledger, 1.0)
    phone.execute("ROLLBACK")
    charge(ledger, 1.0)
    assert ledger.spent(NOON).lifetime == 1.0


def test_what_is_written_along_is_kept_with_the_charge_or_not_at_all(path):
    ledger = new_ledger(path)
    phone = connect(path)
    phone.execute("CREATE TABLE reports (data BLOB)")

    def keep(cursor):
        cursor.execute("INSERT INTO reports VALUES (x'AB')")

    def keep_and_fail(cursor):
        keep(cursor)
        raise KeyError("no more")

    charge(ledger, 1.0, along=keep)
    with pytest.raises(KeyError):
        charge(ledger, 1.0, along=keep_and_fail)
    with pytest.raises(BudgetSpent):
        charge(ledger, 2.5, along=keep)
    assert phone.execute("SELECT data FROM reports").fetchall() == [(b"\xab",)]
    assert ledger.left(NOON) == Amounts(2.0, 9.0)


def test_every_charge_asks_the_disk_itself(path):
    """Seen from SQLite: EXTRA while the line is written."""
    new_ledger(path)
    phone = connect(path)
    ledger = Ledger(phone, path)
    told = []
    phone.set_trace_callback(told.append)
    charge(ledger, 1.0)
    phone.set_trace_callback(None)
    order = [
        word for line in told for word in ("EXTRA", "BEGIN", "INSERT", "COMMIT") if word in line
    ]
    assert order == ["EXTRA", "BEGIN", "INSERT", "COMMIT"]


@pytest.mark.parametrize(
    "change", ["UPDATE privacy_ledger SET life = 0", "DELETE FROM privacy_ledger"]
)
def test_no_line_can_be_changed_or_deleted_by_accident(path, change):
    charge(new_ledger(path), 1.0)
    phone = connect(path)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        phone.execute(change)


def test_the_file_alone_without_its_wal_holds_every_charge(path, tmp_path):
    ledger = new_ledger(path)
    charge(ledger, 1.0)
    charge(ledger, 1.5)
    alone = tmp_path / "alone.db"
    alone.write_bytes(path.read_bytes())
    assert reopened(alone).spent(NOON).lifetime == 2.5


# When the disk does not do its part


def test_a_locked_file_means_no_report(path):
    new_ledger(path)
    ledger = Ledger(connect(path, timeout=0.01), path)
    other = connect(path)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy, match="another process is writing"):
        charge(ledger, 1.0)
    other.rollback()
    charge(ledger, 1.0)
    assert ledger.spent(NOON).lifetime == 1.0


FULL_DISK = """
import resource, sqlite3, sys
from pathlib import Path
from nextapp.phone.ledger import Ledger, StoreFull
ledger = Ledger(sqlite3.connect(sys.argv[1], isolation_level=None), Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
for number in range(1000):
    try:
        ledger.charge(1.0, 1.7e9, round=number, mechanism="harmony")
    except StoreFull:
        break
print(number)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
ledger.charge(1.0, 1.7e9, round=number, mechanism="harmony")
"""


def test_a_full_disk_means_no_report_and_with_room_again_it_goes_on(path):
    """A file may not grow beyond 20,000 bytes: SQLite's own writes fail, at whatever step."""
    new_ledger(path, 1000, 1000)
    run = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(path)], capture_output=True, text=True, check=True
    )
    sent = int(run.stdout)
    ledger = reopened(path)
    assert 0 < sent < len(ledger.entries()) == ledger.spent(1.7e9).lifetime <= sent + 2


def test_a_read_only_file_means_no_report(path):
    new_ledger(path)
    phone = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)
    with pytest.raises(StoreFull, match="readonly"):
        charge(Ledger(phone, path), 1.0)


def test_a_closed_file_means_no_report(path):
    new_ledger(path)
    phone = connect(path)
    ledger = Ledger(phone, path)
    phone.close()
    with pytest.raises(StoreError, match="closed"):
        charge(ledger, 1.0)


# A damaged file is never a fresh budget


def spent_file(path, n=40):
    ledger = new_ledger(path, 1000, 1000)
    for _ in range(n):
        charge(ledger, 1.0)
    ledger._connection.close()
    return path.read_bytes()


@pytest.mark.parametrize("damage", [b"", b"not a database " * 500, b"\x00" * 8192])
def test_a_file_that_is_something_else_is_refused(path, damage):
    spent_file(path)
    path.write_bytes(damage)
    with pytest.raises(StoreDamaged):
        reopened(path)
    assert path.read_bytes() == damage


def test_no_damage_anywhere_in_the_file_gives_a_fresh_budget(path, seed):
    """400 random wounds: bits flipped, blocks zeroed or swapped, ends cut off."""
    whole = spent_file(path)
    dice = random.Random(seed)
    refused = 0
    for _ in range(400):
        data = bytearray(whole)
        at = dice.randrange(len(data))
        kind = dice.choice(["flip", "zero", "swap", "cut"])
        if kind == "flip":
            data[at] ^= 1 << dice.randrange(8)
        elif kind == "zero":
            size = dice.choice([8, 512, 4096])
            data[at - at % size : at - at % size + size] = bytes(size)
        elif kind == "swap":
            other = dice.randrange(len(data) // 512) * 512
            at -= at % 512
            data[at : at + 512], data[other : other + 512] = (
                data[other : other + 512],
                data[at : at + 512],
            )
        else:
            del data[at:]
        path.write_bytes(data)
        try:
            with closing(connect(path)) as phone:
                ledger = Ledger(phone, path)
                charge(ledger, 1.0)
                assert ledger.left(NOON).lifetime <= 959.0
        except StoreError:
            refused += 1
        for file in path.parent.iterdir():
            file.unlink()
    assert refused > 200


def test_a_file_that_has_forgotten_its_tables_is_not_taken_for_a_new_one(path):
    """Page 1 as that of an empty database; the pages of the ledger belong to nobody."""
    data = bytearray(spent_file(path))
    data[103:107] = (0).to_bytes(2, "big") + (4096).to_bytes(2, "big")  # no cells, none stored
    path.write_bytes(data)
    phone = connect(path)
    assert phone.execute("SELECT COUNT(*) FROM sqlite_master").fetchone() == (0,)
    with pytest.raises(StoreDamaged):
        Ledger(phone, path)


@pytest.mark.parametrize(
    ("wound", "words"),
    [
        ("UPDATE privacy_ledger SET life = 0 WHERE number = 41", "line 41"),
        ("UPDATE privacy_ledger SET lifetime = lifetime + 1 WHERE number = 7", "line 7"),
        ("DELETE FROM privacy_ledger WHERE number = 3", "line 3"),
        ("DELETE FROM privacy_ledger", "lost all its lines"),
        ("ALTER TABLE privacy_ledger RENAME COLUMN life TO live", "no such column"),
    ],
)
def test_a_line_that_was_tampered_with_is_found_on_opening(path, wound, words):
    spent_file(path)
    phone = connect(path)
    phone.execute("DROP TRIGGER privacy_ledger_is_never_changed")
    phone.execute("DROP TRIGGER privacy_ledger_never_forgets")
    phone.execute(wound)
    with pytest.raises(StoreDamaged, match=words):
        Ledger(phone, path)


def test_a_last_line_damaged_under_an_open_ledger_stops_the_next_charge(path):
    ledger = new_ledger(path)
    charge(ledger, 1.0)
    phone = connect(path)
    phone.execute("DROP TRIGGER privacy_ledger_is_never_changed")
    phone.execute("UPDATE privacy_ledger SET today = 0, life = 0 WHERE number = 2")
    with pytest.raises(StoreDamaged, match="last line"):
        charge(ledger, 1.0)


# Killed, or in company

CHILD = """
import sqlite3, sys
from pathlib import Path
from nextapp.phone.ledger import BudgetSpent, Ledger
ledger = Ledger(sqlite3.connect(sys.argv[1], isolation_level=None), Path(sys.argv[1]))
print("open", flush=True)
sys.stdin.readline()
number = int(sys.argv[2])
try:
    while True:
        number += 1
        ledger.charge(0.1, 1.7e9, round=number, mechanism="harmony")
        print(number, flush=True)
except BudgetSpent:
    print("spent", flush=True)
"""


def child(path, first):
    """A process that charges rounds from `first` on until the budget is spent."""
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path), str(first)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_killed_at_any_instant_it_never_forgets_a_charge_it_acknowledged(path, seed):
    """SIGKILL after a random while, the opening of the file included; one file throughout."""
    dice = random.Random(seed)
    new_ledger(path, 1e6, 1e6)
    acknowledged: set[int] = set()
    for life in range(20):
        process = child(path, 1_000_000 * life)
        first = ""
        if life % 4:
            assert process.stdout.readline() == "open\n"
            process.stdin.write("\n")
            process.stdin.flush()
            first = process.stdout.readline() + process.stdout.readline()  # however slow the disk
            delay = dice.uniform(0, 0.1)
        else:
            delay = dice.uniform(0.02, 0.2)  # somewhere between the start and the open file
        threading.Event().wait(delay)
        process.send_signal(signal.SIGKILL)
        with process:
            printed = process.stdout.read()  # what was read ahead among it
        acknowledged |= {int(number) for number in (first + printed).split() if number != "open"}
        ledger = reopened(path)
        entries = ledger.entries()
        recorded = {entry.round for entry in entries}
        assert acknowledged <= recorded
        assert len(recorded) == len(entries)
        assert len(recorded) - len(acknowledged) <= life + 1  # one in flight at each kill
        total = sum((Fraction(repr(entry.epsilon)) for entry in entries), Fraction(0))
        assert ledger.spent(1.7e9).lifetime == float(total)
    assert len(acknowledged) > 20


def test_two_processes_at_once_never_spend_more_than_one_budget(path):
    new_ledger(path, 10.05, 10.05)
    processes = [child(path, first) for first in (0, 1_000_000)]
    for process in processes:
        assert process.stdout.readline() == "open\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    outputs = [process.communicate(timeout=60)[0].split() for process in processes]
    assert [output.pop() for output in outputs] == ["spent", "spent"]
    assert len(outputs[0]) + len(outputs[1]) == 100
    ledger = reopened(path)
    assert ledger.spent(1.7e9) == Amounts(10.0, 10.0)
    assert {str(entry.round) for entry in ledger.entries()} == {*outputs[0], *outputs[1]}


# Against a model in plain Python

EPSILONS = st.sampled_from([0.1, 0.25, 0.7, 1.1, 1 / 3, 2.0])


class LedgerAgainstAList(RuleBasedStateMachine):
    """The model: a list of (day, cost) in exact fractions, and the latest day."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name, "phone.db")
        self.lifetime, self.per_day = 12.0, 2.5
        self.ledger = new_ledger(self.path, self.lifetime, self.per_day)
        self.charges: list[tuple[int, Fraction]] = []
        self.day: int | None = None
        self.carried = Fraction(0)  # charged on later days before the clock was set right
        self.since = []  # the charges after that
        self.now = NOON

    def teardown(self):
        self.ledger._connection.close()
        self.folder.cleanup()

    def today(self, day):
        if self.day is not None and day <= self.day:
            return self.carried + sum(cost for on, cost in self.since if on == self.day)
        return Fraction(0)

    @rule(seconds=st.floats(0, 2 * DAY))
    def time_passes(self, seconds):
        self.now += seconds

    @rule(days=st.integers(-40, 40))
    def the_clock_jumps(self, days):
        self.now = max(0.0, self.now + days * DAY)

    @rule(epsilon=EPSILONS)
    def charge(self, epsilon):
        cost = Fraction(math.ceil(Fraction(repr(epsilon)) * 10**9), 10**9)
        day = int(self.now // DAY)
        fits_life = sum(c for _, c in self.charges) + cost <= Fraction(repr(self.lifetime))
        fits_day = self.today(day) + cost <= Fraction(repr(self.per_day))
        if self.day is not None and day > self.day + LEAP_DAYS:
            with pytest.raises(ClockError):
                charge(self.ledger, epsilon, self.now)
            return
        if not (fits_life and fits_day):
            with pytest.raises(BudgetSpent) as no:
                charge(self.ledger, epsilon, self.now)
            never = not fits_life or cost > Fraction(repr(self.per_day))
            midnight = (max(day, self.day or 0) + 1) * DAY
            assert no.value.again == (None if never else midnight)
            return
        charge(self.ledger, epsilon, self.now)
        if self.day is None or day > self.day:
            self.day, self.carried, self.since = day, Fraction(0), []
        self.charges.append((self.day, cost))
        self.since = [*self.since, (self.day, cost)]

    @precondition(lambda self: self.day is not None)
    @rule()
    def someone_vouches_for_the_clock(self):
        self.ledger.trust_clock(self.now)
        day = int(self.now // DAY)
        if day < self.day:
            self.carried = sum((cost for on, cost in self.charges if on >= day), Fraction(0))
        elif day > self.day:
            self.carried = Fraction(0)
        if day != self.day:
            self.day, self.since = day, []

    @rule()
    def reopen(self):
        self.ledger._connection.close()
        self.ledger = reopened(self.path)

    @rule(lifetime=st.sampled_from([6.0, 12.0, 15.5]), per_day=st.sampled_from([1.0, 2.5, 4.0]))
    def change_the_budget(self, lifetime, per_day):
        self.ledger.set_budgets(lifetime=lifetime, per_day=per_day)
        self.lifetime, self.per_day = lifetime, per_day

    @invariant()
    def the_totals_agree(self):
        day = int(self.now // DAY)
        life = sum((cost for _, cost in self.charges), Fraction(0))
        assert self.ledger.spent(self.now) == Amounts(float(self.today(day)), float(life))
        left_life = max(Fraction(0), Fraction(repr(self.lifetime)) - life)
        left_day = max(Fraction(0), Fraction(repr(self.per_day)) - self.today(day))
        left = Amounts(float(min(left_day, left_life)), float(left_life))
        assert self.ledger.left(self.now) == left


LedgerAgainstAList.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
TestLedgerAgainstAList = LedgerAgainstAList.TestCase
