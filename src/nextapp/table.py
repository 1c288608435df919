"""Results: 95 % intervals of figures, and tables of them for a terminal or as HTML.

Intervals are from a bootstrap over users, or over the days of fewer than ten.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from nextapp.randomness import KeyedBits
from nextapp.wire import Floats

if TYPE_CHECKING:
    import rich.table

Kind = Literal["name", "figure", "interval", "text"]
Form = Literal["share", "plain", "signed", "percent", "general", "count"]
Mark = Literal["", "best", "second", "unranked", "good", "bad", "unsure"]

NOTHING = "–"
_STYLES: Mapping[Mark, str] = {
    "": "",
    "best": "bold",
    "second": "underline",
    "unranked": "italic",
    "good": "green",
    "bad": "bold red",
    "unsure": "yellow",
}
_CSS: Mapping[Kind, str] = {"text": " class=words"}
_TAGS: Mapping[Mark, str] = {"best": "b", "second": "u", "unranked": "i"}


class Measured(NamedTuple):
    """A number with its 95 % interval, and a note that is shown below it in HTML."""

    mean: float | None
    low: float | None = None
    high: float | None = None
    note: str = ""


class Marked(NamedTuple):
    """Text with a style in a terminal: ``Marked("fails", "bad")`` is bold and red."""

    words: str
    mark: Mark


def ranks(values: Sequence[float | None], rivals: Sequence[bool]) -> list[Mark]:
    """Marks of the best (highest) and second best values; equal values share a mark.

    Controls and the ceiling are not rivals: they are shown, but not ranked.

    >>> ranks([0.5, 0.7, 0.7, 0.6, 0.9], [True, True, True, True, False])
    ['', 'best', 'best', 'second', 'unranked']
    """
    pairs = list(zip(values, rivals, strict=True))
    there = sorted({value for value, rival in pairs if rival and value is not None}, reverse=True)
    marks: dict[float | None, Mark] = dict(zip(there, ("best", "second"), strict=False))
    return [marks.get(value, "") if rival else "unranked" for value, rival in pairs]


def number(value: float | None, digits: int = 3, form: Form = "share") -> str:
    """A number as text; a share has no leading zero, as in the paper.

    >>> number(0.5), number(-0.5), number(1.0), number(None), number(0.5, 0, "percent")
    ('.500', '-.500', '1.000', '–', '50%')
    >>> number(0.5, 2, "signed"), number(-0.001, 2, "signed"), number(0.5, 2, "plain")
    ('+0.50', '0.00', '0.50')
    >>> number(12345, form="count")
    '12,345'
    """
    if value is None:
        return NOTHING
    if form == "percent":
        return f"{value:.{digits}%}"
    if form == "general":
        return f"{value:g}"
    if form == "count":
        return f"{value:,.0f}"
    if form == "signed":
        text = f"{value:+.{digits}f}"
        return text[1:] if float(text) == 0 else text
    text = f"{value:.{digits}f}"
    return text.replace("0.", ".", 1) if form == "share" and abs(value) < 1 else text


@dataclass(frozen=True)
class Column:
    """A heading and the format of its values.

    Kinds: a ``name`` names the row; a ``figure`` shows a number, an ``interval`` also its interval
    (both take a number, a `Measured` or None); a ``text`` is shown unchanged. The best and second
    best values of a ``ranked`` column are marked; other cells can be marked with `Marked`.
    """

    heading: str
    kind: Kind = "figure"
    digits: int = 3
    form: Form = "share"
    between: str = " to "
    ranked: bool = False

    def show(self, value: float | None) -> str:
        return number(value, self.digits, self.form)

    def ends(self, figure: Measured) -> str:
        """The interval as text; empty if there is none."""
        if self.kind != "interval" or figure.low is None:
            return ""
        return f"{self.show(figure.low)}{self.between}{self.show(figure.high)}"

    def text(self, value: Any) -> str:
        if isinstance(value, Marked):
            return value.words
        if not self.is_number(value):
            return "" if value is None else str(value)
        figure = as_measured(value)
        ends = self.ends(figure)
        return f"{self.show(figure.mean)} ({ends})" if ends else self.show(figure.mean)

    def html(self, value: Any, mark: Mark) -> str:
        if not self.is_number(value):
            return f"<td{_CSS.get(self.kind, '')}>{escape(self.text(value))}</td>"
        figure = as_measured(value)
        shown = self.show(figure.mean)
        if self.ranked:
            tag = _TAGS.get(mark, "span")
            shown = f"<{tag}>{shown}</{tag}>"
        ends = self.ends(figure)
        below = f" <small>{ends}</small>" if ends else ""
        note = f"<small class=beside>{escape(figure.note)}</small>" if figure.note else ""
        return f"<td>{shown}{below}{note}</td>"

    def is_number(self, value: Any) -> bool:
        """Whether to format the value as a number; a column of numbers may also contain text."""
        return self.kind in ("figure", "interval") and not isinstance(value, str | Marked)


def as_measured(value: float | str | Measured | Marked | None) -> Measured:
    """A cell as a number with its interval; None for text."""
    if isinstance(value, str | Marked):
        return Measured(None)
    return value if isinstance(value, Measured) else Measured(value)


def measured_from(found: Mapping[str, Any] | None) -> Measured | None:
    """A `Measured` from {mean, low, high} of a result."""
    return None if found is None else Measured(found["mean"], found["low"], found["high"])


@dataclass(frozen=True)
class Table:
    """Rows of values under columns; the first column names the row."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    title: str = ""
    caption: str = ""
    unranked: Collection[str] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(
                    f"a row must have a value for each of {len(self.columns)} columns, got {row!r}."
                )

    @classmethod
    def of_text(
        cls, headings: Sequence[str], rows: Sequence[Sequence[Any]], title: str = ""
    ) -> Table:
        """A table whose cells are texts."""
        return cls([Column(heading, "text") for heading in headings], rows, title)

    def marks(self, place: int) -> list[Mark]:
        """The marks of a column, one per row."""
        if not self.columns[place].ranked:
            cells = [row[place] for row in self.rows]
            return [cell.mark if isinstance(cell, Marked) else "" for cell in cells]
        return ranks(
            [as_measured(row[place]).mean for row in self.rows],
            [row[0] not in self.unranked for row in self.rows],
        )

    def fitting(self, width: int) -> Table:
        """The table without its last columns of numbers, if names and numbers are too wide."""
        widths = [
            max(len(column.heading), *(len(column.text(row[place])) for row in self.rows), 0)
            for place, column in enumerate(self.columns)
        ]
        kept = list(range(len(self.columns)))
        figures = [place for place in kept if place and self.columns[place].kind == "figure"]
        while len(figures) > 1 and sum(widths[place] + 2 for place in kept) - 2 > width:
            kept.remove(figures.pop())
        if len(kept) == len(self.columns):
            return self
        left_out = "a wider terminal shows all columns"
        return replace(
            self,
            columns=[self.columns[place] for place in kept],
            rows=[[row[place] for place in kept] for row in self.rows],
            caption=f"{self.caption}; {left_out}" if self.caption else left_out,
        )

    def terminal(
        self, *, header: bool = True, tight: bool = False, left: bool = False
    ) -> rich.table.Table:
        """For a terminal; if it is too narrow, texts and intervals wrap, but numbers never.

        ``left``: align all columns to the left, for columns of sentences.
        """
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(
            title=Text(self.title, "table.title") if self.title else None,
            title_justify="left",
            caption=self.caption or None,
            caption_justify="right",
            header_style="bold",
            show_header=header,
            box=None,
            pad_edge=False,
            collapse_padding=tight,
        )
        for place, column in enumerate(self.columns):
            table.add_column(
                Text(column.heading),
                justify="right" if place and header and not left else "left",
                no_wrap=column.kind == "figure",
                overflow="fold",
            )
        marks = [self.marks(place) for place in range(len(self.columns))]
        for number_, row in enumerate(self.rows):
            table.add_row(
                *(
                    Text(column.text(value), _STYLES[mark[number_]])
                    for column, value, mark in zip(self.columns, row, marks, strict=True)
                )
            )
        return table

    def html(self, css: str = "") -> str:
        """The table as HTML, with all text escaped."""
        head = "".join(
            f"<th{_CSS.get(column.kind, '')}>{escape(column.heading)}</th>"
            for column in self.columns
        )
        marks = [self.marks(place) for place in range(len(self.columns))]
        rows = []
        for number_, row in enumerate(self.rows):
            cells = "".join(
                column.html(value, mark[number_])
                for column, value, mark in zip(self.columns[1:], row[1:], marks[1:], strict=True)
            )
            name = escape(self.columns[0].text(row[0]))
            rows.append(f"<tr><th scope=row>{name}</th>{cells}</tr>")
        return (
            f"<table{f' class={css}' if css else ''}><thead><tr>{head}</tr></thead>"
            f"<tbody>{''.join(rows)}</tbody></table>"
        )


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """Rows as the text of a CSV file."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


# --- intervals ---

CONFIDENCE = 0.95
DRAWS = 2_000
FEWEST = 10  # users; an interval over fewer says nothing
_CELLS = 4_000_000


def bootstrap_means(
    by_user: Floats, seed: int, weights: Floats | None = None, stratum: int = 0
) -> Floats:
    """(DRAWS, columns): bootstrap means over users; NaN values are ignored.

    All columns use the same resamples of users, so differences between columns are paired. With
    ``weights`` (n_users,) the values were multiplied by them, and a mean is the sum of the values
    over the sum of the weights of the users drawn. Each ``stratum`` has its own draws.
    """
    generator = KeyedBits(seed, phone=stratum, purpose="boot").generator()
    n_users = len(by_user)
    there = ~np.isnan(by_user)
    filled = np.where(there, by_user, 0.0)
    counted = there if weights is None else there * weights[:, None]
    means = []
    step = max(1, _CELLS // n_users)
    for start in range(0, DRAWS, step):
        n = min(step, DRAWS - start)
        drawn = resample(generator, n_users, n)
        with np.errstate(invalid="ignore"):
            means.append((drawn @ filled) / (drawn @ counted))
    return np.concatenate(means)


def bootstrap_within(sums: Floats, sizes: Floats, owner: npt.NDArray[np.intp], seed: int) -> Floats:
    """(DRAWS, columns): bootstrap means over parts of users, such as days; no user is left out.

    A user's mean is the sum of ``sums`` (n_parts, columns) over that of ``sizes`` (n_parts,), of
    the user's parts in the resample. The result is the mean over users with any size.
    """
    drawn = [
        bootstrap_means(sums[owner == user], seed, sizes[owner == user], int(user))
        for user in np.unique(owner[sizes > 0])
    ]
    return np.mean(drawn, axis=0) if drawn else np.full((DRAWS, sums.shape[1]), np.nan)


def resample(generator: np.random.Generator, n: int, draws: int = DRAWS) -> Floats:
    """(draws, n): how often each of n items is in a bootstrap sample of size n."""
    return generator.multinomial(n, np.full(n, 1.0 / n), draws).astype(float)


def interval(means: Floats) -> Floats:
    """(2, columns) or (2,): the 2.5 % and 97.5 % quantiles of bootstrap means."""
    tail = (1 - CONFIDENCE) / 2
    return np.nanquantile(means, [tail, 1 - tail], axis=0)


def measured_mean(values: Floats, seed: int) -> dict[str, float]:
    """The mean of values (n_users,) with its interval over users, as plain values."""
    return measured(values.mean(), bootstrap_means(values[:, None], seed)[:, 0])


def measured(mean: float, means: Floats) -> dict[str, float]:
    """A figure with the interval of its bootstrap means, as plain values."""
    low, high = interval(means)
    return {"mean": float(mean), "low": float(low), "high": float(high)}
