"""Rounds, reports, crashes and clocks in any order, held against a model in plain Python."""

from __future__ import annotations

import math
import shutil
import tempfile
from fractions import Fraction
from pathlib import Path

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from servers import MECHANISM, N_APPS, payload, report_of, unsigned_token

from nextapp.learners import SeqMFLearner, sgd
from nextapp.server.federation import Closed, Coordinator, Federation
from nextapp.server.vault import Due, Outcome, RoundRules, Submission, Vault
from nextapp.wire import ModelSettings, Report, ReportRequest

GOAL, MINIMUM, SECONDS, GRACE = 4, 2, 10.0, 3.0
RATE, LAM = 0.01, 0.3
RULES = RoundRules(GOAL, MINIMUM, SECONDS, GRACE)
DEVICES = 6


class CutOff(Exception):
    """The process dies here."""


class Rounds(RuleBasedStateMachine):
    """The model: for each round which devices were acknowledged, with which draw."""

    @initialize()
    def start(self):
        memory = Path("/dev/shm")
        self.folder = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
        self.now, self.round, self.opened, self.deadline = 100.0, 0, 100.0, 100.0 + SECONDS
        self.ends = math.inf  # reports that are under way are taken until then
        self.acknowledged: dict[int, int] = {}
        self.vectors = np.random.default_rng(0).normal(size=(N_APPS, 4))
        request = ReportRequest("harmony", 2.0, 1.0)
        server = SeqMFLearner(
            self.vectors, ModelSettings(lam=LAM), sgd(RATE), MECHANISM, (), request
        )
        self.coordinator = Coordinator.start(server, self.folder / "checkpoints")
        self.spent = Fraction(0)
        self._connect()

    def _connect(self):
        self.vault = Vault(self.folder / "vault.sqlite")
        self.embedded = Federation(self.coordinator, self.vault)
        self.embedded.resume(RULES, self.now)

    def _restart(self):
        self.vault.close()
        self.coordinator = Coordinator.resume(
            self.folder / "checkpoints",
            lambda state: SeqMFLearner.restore(state, sgd(RATE), MECHANISM),
        )
        self._connect()

    def _stepped(self):
        """The model's own step: the mean of the reports by hand, then eq. (11)."""
        signs = np.zeros(N_APPS * 4)
        for device, draw in self.acknowledged.items():
            report = Report.from_bytes(report_of(device, self.round, draw))
            positions, positive = MECHANISM._fields.unpack(
                np.frombuffer(report.payload, np.uint8)[None]
            )
            signs[positions[0]] += positive[0]
        scale = MECHANISM.D / MECHANISM.k * MECHANISM.c * MECHANISM.clip
        total = scale * signs.reshape(N_APPS, 4)
        self.vectors = self.vectors - RATE * (total + LAM * self.vectors)
        self.spent += 2
        self.round += 1
        self.acknowledged = {}
        self.opened, self.deadline, self.ends = self.now, self.now + SECONDS, math.inf

    @rule(device=st.integers(0, DEVICES - 1), draw=st.integers(0, 1), behind=st.integers(0, 1))
    def send(self, device, draw, behind):
        number = max(0, self.round - behind)
        body = payload(report_of(device, number, draw))
        (outcome,) = self.vault.admit(
            [Submission(unsigned_token(f"{device} {number}"), number, body)]
        )
        if number < self.round:  # spent tokens are known over rounds
            assert outcome is not Outcome.ACCEPTED
        elif device not in self.acknowledged:
            assert outcome is Outcome.ACCEPTED
            self.acknowledged[device] = draw
        elif self.acknowledged[device] == draw:
            assert outcome is Outcome.REPEATED
        else:
            same = body == payload(report_of(device, number, self.acknowledged[device]))
            assert outcome is (Outcome.REPEATED if same else Outcome.ALREADY_SPENT)

    @rule(seconds=st.sampled_from([0.0, 1.0, 9.0, 11.0]))
    def time_passes(self, seconds):
        self.now += seconds

    def _has_enough(self):
        n = len(self.acknowledged)
        return n >= GOAL or (self.now >= self.deadline and n >= MINIMUM)

    @rule()
    def tick(self):
        ended = self.embedded.tick(self.now)
        n = len(self.acknowledged)
        if self._has_enough() and math.isinf(self.ends):
            assert ended is Due.END
            self.ends = self.now + GRACE
        elif self.now >= self.ends:
            assert isinstance(ended, Closed)
            assert (ended.round, ended.n_reports, ended.stepped) == (self.round, n, True)
            self._stepped()
        elif self.now >= self.deadline and math.isinf(self.ends):
            assert ended is Due.EXTEND
            self.deadline = self.now + SECONDS
        else:
            assert ended is Due.WAIT

    @rule()
    def crash_and_restart(self):
        self._restart()

    @rule(after=st.sampled_from(["set_round", "reduce", "save"]))
    def crash_in_the_middle_of_closing(self, after):
        """The process dies right after one of the steps of a close; the next start ends it."""
        if self.now < self.ends:
            return
        owner = self.coordinator if after == "save" else self.vault
        real = getattr(owner, after)

        def cut_off(*arguments):
            real(*arguments)
            raise CutOff

        setattr(owner, after, cut_off)
        try:
            self.embedded.tick(self.now)
        except CutOff:
            pass
        else:
            raise AssertionError("the close did not get there")
        finally:
            delattr(owner, after)
        self._restart()
        if after == "save":
            self._stepped()
        else:
            self.tick()

    @invariant()
    def the_app_vectors_are_those_of_the_model(self):
        held = self.coordinator.learner.broadcast
        assert held.round == self.round
        np.testing.assert_allclose(held.app_vectors, self.vectors, rtol=1e-12, atol=1e-12)
        assert self.coordinator.accounting.epsilon_worst_case == float(self.spent)
        round = self.vault.round()
        assert (round.number, round.n_reports) == (self.round, len(self.acknowledged))
        assert (round.opened, round.deadline) == (self.opened, self.deadline)
        assert round.ends == self.ends

    def teardown(self):
        self.vault.close()
        shutil.rmtree(self.folder)


Rounds.TestCase.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
TestRounds = Rounds.TestCase
