"""The values printed in the paper: Tables 1 and 2, row by row, in the order of `METRICS`."""

from __future__ import annotations

from collections.abc import Mapping

from nextapp.evaluation import METRICS

Row = tuple[float, ...]

TITLE = "Federated Privacy-preserving Collaborative Filtering for On-Device Next App Prediction"

# fmt: off
TABLES: Mapping[str, Mapping[str, Row]] = {
    "table1": {
        "random": (.089, .239, .365, .089, .153, .181, .089, .175, .227),
        "mru":    (.618, .823, .849, .618, .716, .722, .618, .744, .754),
        "mfu":    (.403, .669, .777, .403, .516, .541, .403, .555, .600),
        "sr":     (.610, .801, .863, .610, .695, .709, .610, .723, .748),
        "sr-od":  (.612, .824, .893, .612, .707, .722, .612, .737, .765),
        "mf":     (.379, .649, .784, .379, .497, .527, .379, .536, .591),
        "seqmf":  (.522, .797, .871, .522, .643, .660, .522, .683, .713),
    },
    "table2": {
        "random": (.029, .093, .152, .029, .056, .069, .029, .065, .090),
        "mru":    (.393, .660, .707, .393, .516, .527, .393, .553, .572),
        "mfu":    (.229, .436, .546, .229, .319, .344, .229, .349, .394),
        "sr":     (.477, .664, .746, .477, .559, .578, .477, .586, .620),
        "sr-od":  (.414, .591, .659, .414, .493, .508, .414, .518, .546),
        "mf":     (.227, .426, .520, .227, .314, .336, .227, .343, .382),
        "seqmf":  (.402, .615, .686, .402, .497, .513, .402, .527, .557),
    },
}
# fmt: on


def row_of_paper(table: str, model: str) -> dict[str, float] | None:
    """The paper's row of a model by metric, or None if the paper has no such row."""
    row = TABLES.get(table, {}).get(model)
    return None if row is None else dict(zip(METRICS, row, strict=True))
