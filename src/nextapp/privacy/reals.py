"""Random numbers and payloads of the mechanisms that use real numbers.

They are not for phones: see `guarantee.REAL_NUMBERS`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nextapp.randomness import Bits
from nextapp.wire import Floats, WireError


def uniform(bits: Bits, n: int) -> Floats:
    """n uniform numbers strictly between 0 and 1, from 53 bits of one word each."""
    return ((bits.words(n) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def as_floats(rows: npt.NDArray[np.uint8]) -> Floats:
    """Rows of bytes as floats of 4 bytes each; all must be finite."""
    values = np.frombuffer(rows.tobytes(), "<f4").astype(np.float64).reshape(len(rows), -1)
    if not np.isfinite(values).all():
        raise WireError("the report has numbers that are not finite.")
    return values
