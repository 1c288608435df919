"""Gateway and coordinator in one process on one SQLite file."""

from __future__ import annotations

from nextapp.federation.coordinator import Closed, Coordinator
from nextapp.federation.rounds import RoundRules, Verdict
from nextapp.federation.vault import Vault


class Embedded:
    """A coordinator and the one vault it takes its reports from.

    Every step can be cut off by a crash and done again: a round is closed in the vault, reduced in
    the vault, absorbed with a checkpoint, and only then the next one is published. `resume` goes on
    from whichever of these was the last.
    """

    def __init__(self, coordinator: Coordinator, vault: Vault, rules: RoundRules) -> None:
        self.coordinator = coordinator
        self.vault = vault
        self.rules = rules

    def resume(self, now: float) -> None:
        """Bring vault and coordinator to the same round after a start or a crash."""
        round = self.vault.round()
        if round is not None:
            while self.coordinator.round < round.number:
                self._absorb_again(round.number)
            if round.number < self.coordinator.round and self.vault.reduced(round.number) is None:
                # A vault older than its checkpoints: these reports are in a step already.
                self.vault.close_round(round.number)
                self.vault.reduce(round.number, self.coordinator.learner.mechanism)
        self._publish(now)
        self.vault.amend(self.coordinator.round, self.rules)

    def tick(self, now: float) -> Closed | Verdict:
        """Close, reduce, step and publish if it is time; else what the rules say."""
        verdict = self.vault.settle(now)
        if verdict is not Verdict.CLOSE:
            return verdict
        number = self.coordinator.round
        reduced = self.vault.reduce(number, self.coordinator.learner.mechanism)
        closed = self.coordinator.absorb([reduced])
        self._publish(now)
        return closed

    def _publish(self, now: float) -> None:
        broadcast = self.coordinator.learner.broadcast
        self.vault.publish(
            self.rules.opened(broadcast.round, now), broadcast.to_bytes(), self.rules
        )

    def _absorb_again(self, vault_round: int) -> None:
        number = self.coordinator.round
        reduced = self.vault.reduced(number)
        if reduced is None:
            raise ValueError(
                f"the checkpoints end at round {number}, the vault is at round {vault_round} and "
                f"no longer has the sums in between: restore checkpoints and vault from the same "
                f"backup, or go on from these app vectors with --skip-to {vault_round + 1}."
            )
        self.coordinator.absorb([reduced])
