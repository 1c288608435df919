"""One table, four ways to show it; every expectation is written out by hand."""

from __future__ import annotations

import io
from html.parser import HTMLParser

import pytest
from rich.console import Console

from nextapp.evaluation import METRICS
from nextapp.evaluation.static import NOT_RANKED, figures_table
from nextapp.table import Column, Measured, Table, ranks


@pytest.fixture
def table() -> Table:
    return Table(
        [
            Column("model", "name"),
            Column("HR@5", ranked=True),
            Column("gain", "interval", form="signed", ranked=True),
            Column("kept", "interval", digits=0, form="percent"),
            Column("said", "text"),
        ],
        [
            ["mru", 0.5, Measured(0.01, -0.02, 0.04), None, "<b>[red]plain[/]"],
            ["nextapp", 0.75, Measured(0.2, 0.1, 0.3, "of .9"), Measured(0.7, 0.6, 0.8), ""],
            ["sr", 0.625, "reference", None, ""],
            ["ceiling", 1.0, Measured(0.5, 0.4, 0.6), None, ""],
        ],
        unranked=("ceiling",),
    )


def shown(table: Table, width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    with console.capture() as captured:
        console.print(table.terminal())
    return captured.get().splitlines()


def test_a_terminal_shows_each_kind_in_its_form(table):
    head, mru, nextapp, sr, ceiling = (" ".join(line.split()) for line in shown(table))
    assert head == "model HR@5 gain kept said"
    assert mru == "mru .500 +0.010 (-0.020 to +0.040) – <b>[red]plain[/]"
    assert nextapp == "nextapp .750 +0.200 (+0.100 to +0.300) 70% (60% to 80%)"
    assert sr == "sr .625 reference –"
    assert ceiling == "ceiling 1.000 +0.500 (+0.400 to +0.600) –"


def test_a_narrow_terminal_wraps_words_and_loses_no_digit():
    numbers = [0.123 + place / 1000 for place in range(9)]
    wide = Table(
        [
            Column("model", "name"),
            *(Column(metric) for metric in METRICS),
            Column("gain", "interval", form="signed"),
        ],
        [["a-long-name-of-a-model", *numbers, Measured(0.1, 0.05, 0.15)]],
    )
    lines = shown(wide)
    assert max(map(len, lines)) <= 80
    assert len(lines) > 2  # it had to wrap
    for value in numbers:
        assert any(f"{value:.3f}".removeprefix("0") in line for line in lines)
    assert "…" not in "".join(lines)


def test_best_and_second_are_marked_and_the_ceiling_is_not_ranked(table):
    assert table.marks(1) == ["", "best", "second", "unranked"]
    assert table.marks(2) == ["second", "best", "", "unranked"]  # a word has no rank
    assert table.marks(3) == ["", "", "", ""]
    assert ranks([0.3, 0.3, 0.2, None], [True] * 4) == ["best", "best", "second", ""]
    assert ranks([0.9, 0.3], [False, True]) == ["unranked", "best"]


def test_controls_and_the_ceiling_are_not_ranked_among_models():
    row = dict.fromkeys(METRICS, 0.9) | {"ci95": {key: [0.8, 0.95] for key in METRICS}}
    lower = dict.fromkeys(METRICS, 0.5) | {"ci95": {key: [0.4, 0.6] for key in METRICS}}
    found = figures_table({"ceiling": row, "seqmf-frozen": row, "mru": lower})
    assert set(NOT_RANKED) == {"ceiling", "seqmf-frozen"}
    for place in range(1, 10):
        assert found.marks(place) == ["unranked", "unranked", "best"]


class Cells(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.words = [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)

    def handle_data(self, data):
        self.words.append(data)


def test_html_is_escaped_and_has_the_same_figures(table):
    page = Cells()
    page.feed(table.html("figures"))
    assert "<b>[red]plain[/]" in page.words
    assert page.tags.count("b") == 2  # the best of two columns, none from the words
    assert page.tags.count("u") == 2
    assert page.tags.count("i") == 2
    for word in (".500", ".750", "+0.100 to +0.300", "of .9", "60% to 80%", "1.000", "reference"):
        assert word in page.words


def test_a_row_of_the_wrong_length_is_named():
    with pytest.raises(ValueError, match="each of 2 columns, got \\['mru'\\]"):
        Table([Column("model", "name"), Column("HR@5")], [["mru"]])


def test_a_narrow_terminal_loses_columns_of_numbers_and_no_names():
    columns = [Column("model", "name"), *(Column(f"HR@{n}") for n in range(1, 8))]
    table = Table(columns, [["nextapp", *[0.5] * 7]])
    assert table.fitting(80) is table
    narrow = table.fitting(30)
    assert [each.heading for each in narrow.columns] == ["model", "HR@1", "HR@2", "HR@3"]
    assert narrow.rows == [["nextapp", 0.5, 0.5, 0.5]]
    assert narrow.caption == "a wider terminal shows all columns"
