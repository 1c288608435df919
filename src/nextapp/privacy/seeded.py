"""What `codebook` and `simhash` share: a report is a seed and a value of b bits.

The seed is public and generates Gaussian vectors (`codewords`); the value says what the phone
chose among them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from nextapp.privacy.codewords import check_size
from nextapp.privacy.mechanism import FiniteMechanism, check_name
from nextapp.privacy.packing import pack_fields, read_word, unpack_fields
from nextapp.randomness import Bits
from nextapp.wire import Report


class SeededMechanism(FiniteMechanism):
    """Payload: the seed, 8 bytes, then the value, ``b`` bits. Coins: the seed."""

    ball = "l2"
    b: int

    def __init__(self, *, n_apps: int, d: int, epsilon: float, clip: float) -> None:
        super().__init__(n_apps=n_apps, d=d, epsilon=epsilon, clip=clip)
        check_size(self.D)

    @property
    def payload_bytes(self) -> int:
        return 8 + (self.b + 7) // 8

    @property
    def _widths(self) -> list[int]:
        return [32, 32, self.b]

    def check(self, report: Report) -> None:
        check_name(self, report)
        read_word(report.payload, self._widths)

    def matches_coins(self, report: Report, coins: Bits) -> bool:
        return report.payload[:8] == coins.words(1).astype("<u8").tobytes()

    def outputs(self, seed: int = 0) -> Iterator[Report]:
        """All reports with this seed."""
        for value in range(1 << self.b):
            yield self._report(seed, value, 0)

    def payload(self, seed: int, value: int) -> bytes:
        return pack_fields([seed & 0xFFFFFFFF, seed >> 32, value], self._widths)

    def _report(self, seed: int, value: int, round: int) -> Report:
        return Report(self.name, round, self.payload(seed, value))

    def _parts(
        self, reports: Sequence[Report]
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
        """The seeds and the values of reports."""
        fields = unpack_fields(self._payloads(reports, self.payload_bytes), self._widths)
        seeds = fields[:, 0].astype(np.uint64) | fields[:, 1].astype(np.uint64) << np.uint64(32)
        return seeds, fields[:, 2]
