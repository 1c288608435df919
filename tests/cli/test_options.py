"""Options made from settings classes."""

from __future__ import annotations

from dataclasses import dataclass

import click
import pytest
from click.testing import CliRunner

from nextapp.cli import serve
from nextapp.cli.commands import COMMANDS, Command, app, load, options_and_file, options_of
from nextapp.settings import setting, settings_from


@dataclass(frozen=True)
class Colours:
    HEADING = "Paper"
    paper: str = setting("white", "Colour of the paper.")
    ink: str | None = setting(None, "Colour of the ink.")
    line_width: float = setting(1.5, "Width of a line.", metavar="MM")
    sheets: int = setting(3, "Number of sheets.", least=1)
    names: tuple[str, ...] = setting(("a", "b"), "Names on it.", heading="Text")
    sizes: tuple[float, ...] = setting((), "Sizes of the names.", option="--size")
    grid: bool = setting(False, "Draw a grid.")
    secret: int = 7

    def __post_init__(self) -> None:
        if self.line_width <= 0:
            raise ValueError(f"--line-width must be > 0, got {self.line_width}.")


def invoke(command: click.Command, *words: str):
    return CliRunner().invoke(command, words, env={"COLUMNS": "120"})


def test_a_command_gets_one_object_from_the_options_of_its_fields():
    got = []

    @click.command(cls=Command)
    @click.argument("title")
    @options_of(Colours, "colours")
    def draw(title: str, colours: Colours) -> None:
        """Draw it."""
        got.append((title, colours))

    assert invoke(draw, "a").exit_code == 0
    words = ["b", "--paper", "red", "--ink", "blue", "--line-width", "2", "--sheets", "1"]
    words += ["--names", "x, y", "--size", "1,2.5", "--grid"]
    assert invoke(draw, *words).exit_code == 0
    assert got == [
        ("a", Colours()),
        ("b", Colours("red", "blue", 2.0, 1, ("x", "y"), (1.0, 2.5), True)),
    ]
    assert invoke(draw, "a", "--no-grid").exit_code == 2
    assert invoke(draw, "a", "--secret", "1").exit_code == 2
    assert invoke(draw, "a", "--sheets", "0").exit_code == 2
    refused = invoke(draw, "a", "--line-width", "0")
    assert (refused.exit_code, refused.output) == (1, "error: --line-width must be > 0, got 0.0.\n")
    refused = invoke(draw, "a", "--size", "1,x")
    assert refused.output == "error: --size takes numbers separated by commas, got '1,x'.\n"
    text = invoke(draw, "--help").output
    for part in (
        "  Draw it.\n",
        "\nPaper:\n  --paper TEXT     Colour of the paper.  [default: white]\n",
        "  --ink TEXT       Colour of the ink.\n",
        "  --line-width MM  Width of a line.  [default: 1.5]\n",
        "  --grid           Draw a grid.\n",
        "\nText:\n  --names NAMES  Names on it.  [default: a, b]\n",
    ):
        assert part in text


def test_settings_of_a_file_are_overridden_by_options_that_were_given(tmp_path):
    got = []

    @click.command(cls=Command)
    @options_and_file(Colours, "given", "paper", "sheets", "names", "grid")
    def draw(given: dict[str, object]) -> None:
        got.append(settings_from(Colours, given))

    file = tmp_path / "s.toml"
    file.write_text('paper = "red"\nink = "blue"\ngrid = true\nnames = ["c"]\n')
    words = ["--settings", str(file), "--paper", "white", "--names", "d,e"]
    assert invoke(draw, *words).exit_code == 0
    assert got == [Colours("white", "blue", names=("d", "e"), grid=True)]
    assert invoke(draw, "--ink", "blue").exit_code == 2  # it is no option of this command
    file.write_text("papre = 3\n")
    assert "paper" in str(invoke(draw, "--settings", str(file)).output)


def test_a_setting_without_a_default_must_be_given():
    @dataclass(frozen=True)
    class Needed:
        colour: str = setting(text="The colour.")

    with pytest.raises(ValueError, match="the settings name no colour"):
        settings_from(Needed, {})
    assert settings_from(Needed, {"colour": "red"}) == Needed("red")


def test_every_option_of_every_command_has_a_help_text_with_an_end():
    for name in COMMANDS:
        command = load(name)
        for inner in getattr(command, "commands", {name: command}).values():
            for parameter in inner.params:
                words = (parameter.help or "").partition(" [default: ")[0]
                assert words.endswith((".", "…")), (name, inner.name, parameter.name)


def test_given_options_override_the_file_and_others_do_not(tmp_path):
    got = []

    @click.command(cls=Command)
    @serve.federation_options
    def command(given: dict[str, object]) -> None:
        got.append(serve.resolve(given, tmp_path))

    file = tmp_path / "s.toml"
    file.write_text('mechanism = "harmony"\nepsilon = 2.0\ngoal = 10\napps = ["a", "b"]\n')
    assert invoke(command, "--settings", str(file), "--epsilon", "1", "--apps", "3").exit_code == 0
    values, catalogue = got.pop()
    assert values == {"mechanism": "harmony", "epsilon": 1.0, "goal": 10, "minimum": 5}
    assert catalogue == ("app-0000", "app-0001", "app-0002")
    (tmp_path / "settings.json").touch()  # a federation that continues keeps its minimum
    assert invoke(command, "--settings", str(file)).exit_code == 0
    values, catalogue = got.pop()
    assert (values["epsilon"], "minimum" in values, catalogue) == (2.0, False, ("a", "b"))


def test_the_log_options_are_the_same_in_every_command_that_reads_a_log():
    wanted = {
        "--user-column", "--time-column", "--app-column", "--skip-bad-rows",
        "--zone", "--leave-out",
    }  # fmt: skip
    readers = ["evaluate", "train", "dynamic", "new-phones", "tune", "explain"]
    for words in ([name] for name in readers), (["data", "describe"],):
        for command in words:
            assert wanted <= set(invoke(app, *command, "--help").output.split())
