"""`LaunchLog`: users, apps and times of launches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from html import escape
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import polars as pl

from nextapp.settings import count
from nextapp.storage import write_public
from nextapp.table import Column, Table

if TYPE_CHECKING:
    import pandas as pd

Codes = npt.NDArray[np.int32]
Times = npt.NDArray[np.int64]
Indices = npt.NDArray[np.intp]

_SHOWN = 5  # launches in a notebook


@dataclass(frozen=True, eq=False)
class LaunchLog:
    """Launches as columns, sorted by user and then by time.

    ``user`` and ``app`` are codes into the names ``users`` and ``apps``; ``time`` is in
    milliseconds since 1970-01-01 UTC. Launches of one user at the same millisecond keep their input
    order. ``notes`` are sentences about what a loader or a filter did. ``zone`` says by how many
    seconds local time was ahead of UTC; None: the log does not tell.
    """

    user: Codes
    app: Codes
    time: Times
    users: tuple[str, ...]
    apps: tuple[str, ...]
    notes: tuple[str, ...] = field(default=())
    zone: Codes | None = None

    def __post_init__(self) -> None:
        if not len(self.user) == len(self.app) == len(self.time):
            raise ValueError(
                f"the columns user, app and time must have the same length, got "
                f"{len(self.user)}, {len(self.app)} and {len(self.time)}."
            )
        for name, codes, names in (
            ("user", self.user, self.users),
            ("app", self.app, self.apps),
        ):
            if len(codes) and (codes.min() < 0 or codes.max() >= len(names)):
                raise ValueError(
                    f"column {name} must have codes from 0 to {len(names) - 1}, one per name, got "
                    f"{codes.min()} to {codes.max()}."
                )
        later = (self.user[1:] > self.user[:-1]) | (
            (self.user[1:] == self.user[:-1]) & (self.time[1:] >= self.time[:-1])
        )
        if not later.all():
            raise ValueError(
                "launches must be sorted by user and then by time: use LaunchLog.from_columns, "
                "which sorts them."
            )

    @classmethod
    def from_columns(
        cls,
        user: npt.ArrayLike,
        app: npt.ArrayLike,
        time: npt.ArrayLike,
        users: Sequence[str],
        apps: Sequence[str],
        notes: Sequence[str] = (),
        zone: Codes | None = None,
    ) -> LaunchLog:
        """A log from unsorted columns of codes; the sort is stable."""
        user = np.asarray(user, np.int32)
        time = np.asarray(time, np.int64)
        order = np.lexsort((time, user))
        app = np.asarray(app, np.int32)
        names = (tuple(users), tuple(apps), tuple(notes))
        return cls(
            user[order], app[order], time[order], *names, None if zone is None else zone[order]
        )

    def __len__(self) -> int:
        return len(self.user)

    def __repr__(self) -> str:
        return f"<LaunchLog of {self._size()}>"

    def _repr_html_(self) -> str:
        """The size, the first launches and the notes, for notebooks."""
        first = Table(
            [Column("user", "name"), Column("time (UTC)", "text"), Column("app", "text")],
            [
                [self.users[user], moment(time)[:19], self.apps[app]]
                for user, time, app in zip(
                    self.user[:_SHOWN].tolist(),
                    self.time[:_SHOWN].tolist(),
                    self.app[:_SHOWN].tolist(),
                    strict=True,
                )
            ],
        )
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        return f"<p>{self._size()}</p>{first.html()}<ul>{notes}</ul>"

    def _size(self) -> str:
        size = ", ".join(
            (
                count(len(self), "launch", "launches"),
                count(self.n_users, "user"),
                count(self.n_apps, "app"),
            )
        )
        if not len(self):
            return size
        first, last = (moment(int(time))[:10] for time in (self.time.min(), self.time.max()))
        return f"{size}, {first} to {last}"

    @property
    def n_users(self) -> int:
        return len(self.users)

    @property
    def n_apps(self) -> int:
        return len(self.apps)

    @property
    def starts(self) -> Indices:
        """(n_users + 1,): launches of user u are ``starts[u]:starts[u + 1]``."""
        return np.searchsorted(self.user, np.arange(self.n_users + 1))

    def where(self, keep: npt.NDArray[np.bool_], *notes: str) -> LaunchLog:
        """The launches for which `keep` is True; codes and names do not change."""
        return replace(
            self,
            user=self.user[keep],
            app=self.app[keep],
            time=self.time[keep],
            zone=None if self.zone is None else self.zone[keep],
            notes=(*self.notes, *notes),
        )

    def to_polars(self) -> pl.DataFrame:
        """A data frame with the columns user_id, timestamp and app_name, as `write` writes it."""
        return pl.DataFrame(
            {
                "user_id": pl.Series(self.users, dtype=pl.String).gather(self.user),
                "timestamp": pl.Series(self.time).cast(pl.Datetime("ms")),
                "app_name": pl.Series(self.apps, dtype=pl.String).gather(self.app),
            }
        )

    def to_pandas(self) -> pd.DataFrame:
        """The rows of `to_polars`, for pandas."""
        import pandas as pd

        return pd.DataFrame(self.to_polars().to_dict(as_series=False))

    def write(self, path: str | PathLike[str]) -> None:
        """Write CSV, or Parquet if the name ends in .parquet; `read_log` reads both."""
        path = Path(path)
        data = BytesIO()
        if path.suffix == ".parquet":
            self.to_polars().write_parquet(data)
        else:
            self.to_polars().write_csv(data, datetime_format="%Y-%m-%d %H:%M:%S%.3f")
        write_public(path, data.getvalue())


def moment(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(" ", "seconds")
