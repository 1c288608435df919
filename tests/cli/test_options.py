"""Options made from dataclasses."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from nextapp.cli import dynamic, options, server_options, simulate
from nextapp.cli.commands import COMMANDS, app
from nextapp.cli.dataclass_options import expand_options, option_parameters
from nextapp.server.settings import FederationSettings
from nextapp.studies.settings import Experiment

DATACLASSES = [
    found
    for module in (options, server_options, simulate, dynamic)
    for found in vars(module).values()
    if is_dataclass(found) and found.__module__ == module.__name__
]


SHEETS = typer.Option(min=1, metavar="N", help="Number of sheets.")


@dataclass(frozen=True)
class Colours:
    paper: Annotated[str, "Colour of the paper."]
    ink: Annotated[str | None, "Colour of the ink."] = None
    line_width: Annotated[float, "Width of a line."] = 1.5
    grid: Annotated[bool, "Draw a grid."] = False

    def __post_init__(self) -> None:
        if self.line_width <= 0:
            raise ValueError(f"--line-width must be > 0, got {self.line_width}.")


def test_a_command_gets_one_object_from_the_options_of_its_fields():
    got = []

    @expand_options
    def draw(
        title: str, *, colours: Colours, out: Annotated[Path, typer.Option()] = Path("out")
    ) -> None:
        """Draw it."""
        got.append((title, colours, out))

    one = typer.Typer()
    one.command()(draw)
    run = CliRunner().invoke
    assert run(one, ["a", "--paper", "white"]).exit_code == 0
    words = ["b", "--paper", "red", "--ink", "blue", "--line-width", "2", "--grid", "--out", "x"]
    assert run(one, words).exit_code == 0
    assert got == [
        ("a", Colours("white"), Path("out")),
        ("b", Colours("red", "blue", 2.0, True), Path("x")),
    ]
    assert run(one, ["a"]).exit_code == 2  # --paper has no default
    assert run(one, ["a", "--paper", "white", "--no-grid"]).exit_code == 2
    refused = run(one, ["a", "--paper", "white", "--line-width", "0"])
    assert (refused.exit_code, refused.output) == (1, "error: --line-width must be > 0, got 0.0.\n")
    text = run(one, ["--help"], env={"COLUMNS": "120"}).output
    for part in ("Draw it.", "--paper", "Colour of the paper.", "1.5", "Draw a grid."):
        assert part in text


def test_a_field_may_have_an_option_of_its_own_which_stays_as_it_is():
    @dataclass
    class Sheets:
        HEADING = "Paper"
        sheets: Annotated[int, SHEETS] = 3

    [found] = option_parameters(Sheets)
    [option] = found.annotation.__metadata__
    assert (option.min, option.metavar, option.help) == (1, "N", "Number of sheets.")
    assert (option.rich_help_panel, option.show_default, found.default) == ("Paper", True, 3)
    assert SHEETS.rich_help_panel is None


def test_a_field_without_a_help_text_is_refused():
    @dataclass
    class Bare:
        colour: str = ""

    @dataclass
    class Empty:
        colour: Annotated[str, " "] = ""

    @dataclass
    class Silent:
        colour: Annotated[str, typer.Option(metavar="NAME")] = ""

    for kind in (Bare, Empty, Silent):
        with pytest.raises(TypeError, match="colour needs a help text"):
            option_parameters(kind)


def test_a_default_that_cannot_be_shown_is_refused():
    @dataclass
    class Listed:
        colours: Annotated[list[str], "Colours."] = field(default_factory=list)

    with pytest.raises(TypeError, match="plain default"):
        option_parameters(Listed)


def test_two_options_of_one_name_are_refused():
    def draw(*, colours: Colours, ink: str = "") -> None: ...

    with pytest.raises(ValueError, match="duplicate parameter name"):
        expand_options(draw)


@pytest.mark.parametrize("kind", DATACLASSES)
def test_every_field_has_a_help_text_with_an_end(kind):
    found = option_parameters(kind)
    assert [each.name for each in found] == [each.name for each in fields(kind)]
    for each in found:
        [option] = each.annotation.__metadata__
        assert option.help == option.help.strip()
        assert option.help.endswith((".", "…"))


def test_every_option_of_every_command_has_a_help_text():
    for name, row in COMMANDS.items():
        command = row.load(name)
        for inner in getattr(command, "commands", {name: command}).values():
            for parameter in inner.params:
                assert (parameter.help or "").strip(), (name, inner.name, parameter.name)


def test_options_that_stand_in_a_settings_file_are_named_as_there():
    for kind, settings, besides in (
        (options.ExperimentOptions, Experiment, {"settings"}),
        (server_options.ServerOptions, FederationSettings, {"settings", "apps", "categories"}),
    ):
        names = {each.name for each in fields(kind)}
        assert names - besides <= {each.name for each in fields(settings)}


def test_given_options_override_the_file_and_others_do_not(tmp_path):
    file = tmp_path / "s.toml"
    file.write_text('mechanism = "harmony"\nepsilon = 2.0\ngoal = 10\napps = ["a", "b"]\n')
    given = server_options.ServerOptions(settings=file, epsilon=1.0, apps="3")
    values, catalogue = given.resolve(tmp_path)
    assert values == {"mechanism": "harmony", "epsilon": 1.0, "goal": 10, "minimum": 5}
    assert catalogue == ("app-0000", "app-0001", "app-0002")
    (tmp_path / "settings.json").touch()  # a federation that continues keeps its minimum
    values, catalogue = server_options.ServerOptions(settings=file).resolve(tmp_path)
    assert (values["epsilon"], "minimum" in values, catalogue) == (2.0, False, ("a", "b"))


def test_the_log_options_are_the_same_in_every_command_that_reads_a_log():
    wanted = {f"--{each.name.replace('_', '-')}" for each in fields(options.LogOptions)}
    readers = ["evaluate", "train", "dynamic", "new-phones", "tune", "explain"]
    for words in ([name] for name in readers), (["data", "describe"],):
        for command in words:
            text = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "120"}).output
            assert wanted <= set(text.replace("│", " ").split())


def test_the_signature_is_made_of_plain_parameters():
    from nextapp.cli.serve import serve

    names = inspect.signature(serve).parameters
    assert {"epsilon", "host", "deadline", "skip_to"} <= set(names)
    assert not {"listen", "server"} & set(names)
