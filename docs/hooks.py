"""Hooks of the docs site: pages from outside `docs/`, and pages that are made from the code.

* Markdown files of the repository that a page links to are pages too, under ``project/``.
* ``reference/commands.md`` is written from the commands themselves, ``reference/api.md`` from what
  can be imported from `nextapp`, ``reference/settings.md`` from the dataclasses of settings,
  ``decisions/index.md`` from the titles of the decisions.
* A notebook of ``notebooks/`` is run and shown with its outputs; an error in it stops the build.
* A link to a file that is not text for people, such as a source file, is shown as its name.
"""

from __future__ import annotations

import base64
import inspect
import os
import posixpath
import re
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
OUTSIDE = ("README.md", "PAPER.md", "CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md",
           "SECURITY.md", "ARCHITECTURE.md")  # fmt: skip
_SHIM = "https://unpkg.com/iframe-worker/shim"
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: Any) -> Files:
    for name in OUTSIDE:
        if (ROOT / name).exists():
            text = (ROOT / name).read_text(encoding="utf-8")
            files.append(File.generated(config, f"project/{name}", content=text))
    if "index.md" not in files.src_uris:
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        files.append(File.generated(config, "index.md", content=text))
    files.append(File.generated(config, "reference/commands.md", content=commands_page()))
    files.append(File.generated(config, "reference/api.md", content=api_page()))
    files.append(File.generated(config, "reference/settings.md", content=settings_page()))
    files.append(File.generated(config, "decisions/index.md", content=decisions_page()))
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        text = notebook_page(path)
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    here = page.file.src_uri
    home = _repository_path(here)

    def link(match: re.Match[str]) -> str:
        picture, words, target = match.groups()
        if re.match(r"[a-z]+:|#", target):
            return match[0]
        path, hash_, anchor = target.partition("#")
        found = posixpath.normpath(posixpath.join(posixpath.dirname(home), path))
        for uri in _site_paths(found):
            if uri in files.src_uris:
                there = posixpath.relpath(uri, posixpath.dirname(here) or ".")
                return f"{picture}[{words}]({there}{hash_}{anchor})"
        return words if (ROOT / found).exists() else match[0]

    return _LINK.sub(link, markdown)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """The theme loads one script from elsewhere; it stands in the site itself."""
    shim = posixpath.relpath("assets/iframe-worker.js", posixpath.dirname(page.url) or ".")
    return output.replace(_SHIM, shim)


def on_post_template(output: str, template_name: str, config: Any) -> str:
    """The same for pages without a source of their own: 404.html."""
    return output.replace(_SHIM, "assets/iframe-worker.js")


def _repository_path(uri: str) -> str:
    """Where in the repository the text of a page stands."""
    if uri.startswith("project/"):
        return uri.removeprefix("project/")
    if uri.startswith("notebooks/"):
        return uri
    if uri == "index.md" and not (ROOT / "docs/index.md").exists():
        return "README.md"
    return f"docs/{uri}"


def _site_paths(path: str) -> list[str]:
    """Where on the site a file of the repository may stand."""
    if path.startswith("docs/"):
        inside = path.removeprefix("docs/")
        return [inside, f"{inside}/README.md", f"{inside}/index.md"]
    if path.startswith("notebooks/"):
        return [path.replace(".ipynb", ".md")]
    return [f"project/{path}", f"project/{path}/README.md"]


def api_page() -> str:
    import nextapp

    names = sorted(set(nextapp.__all__) - {"__version__"})
    parts = ["# Python\n", "What can be imported from `nextapp`.\n"]
    for name in names:
        home = getattr(nextapp, name)
        module = getattr(home, "__module__", None)
        if module is not None:
            parts.append(f"::: {module}.{home.__qualname__}\n    options: {{heading_level: 2}}\n")
    return "\n".join(parts)


def settings_page() -> str:
    """The keys of every settings file, with types and defaults, from the dataclasses."""
    from nextapp.phone import Limits
    from nextapp.predictors.training import Training
    from nextapp.server.settings import FederationSettings
    from nextapp.studies.dynamic import DynamicExperiment
    from nextapp.studies.experiment import Experiment
    from nextapp.studies.new_phones import NewPhoneStudy
    from nextapp.wire import ModelSettings

    kinds: list[tuple[str, type[Any]]] = [
        ("nextapp evaluate, tune, train", Experiment),
        ("The tables [seqmf] and [mf]: training", Training),
        ("The tables [seqmf] and [mf]: model", ModelSettings),
        ("nextapp dynamic", DynamicExperiment),
        ("nextapp new-phones", NewPhoneStudy),
        ("nextapp serve, flower", FederationSettings),
        ("A phone's limits (nextapp phone limits)", Limits),
    ]
    parts = [
        "# Settings\n",
        "Settings come from options, from a TOML file where a command has `--settings FILE`, or "
        "both; options win. An unknown key is an error that names the nearest known one. The "
        "settings as they were used are written into every result.\n",
        "A file for `nextapp evaluate`:\n",
        '```toml\npreset = "paper"\nmodels = ["mru", "sr-od", "seqmf", "nextapp"]\nseed = 0\n\n'
        "[seqmf]\ndim = 32\nrounds = 40\nlam = 0.3\n```\n",
    ]
    for title, kind in kinds:
        rows = "".join(
            f"| `{each.name}` | {_type(str(each.type))} | {_default(each)} |\n"
            for each in fields(kind)
            if each.init and each.name != "model"  # its keys stand in the same table of a file
        )
        words = _as_markdown(inspect.getdoc(kind) or "")
        parts.append(f"## {title}\n\n{words}\n\n| key | type | default |\n|---|---|---|\n{rows}")
    return "\n".join([*parts, synthetic_phones()])


def synthetic_phones() -> str:
    """The parameters of synthetic logs, and those of the twins."""
    from nextapp.data.synthetic import APP_USAGE, LSAPP, Parameters

    rows = "".join(
        f"| `{each.name}` | {each.metadata['meaning']} | "
        + " | ".join(str(getattr(one, each.name)) for one in (Parameters(), LSAPP, APP_USAGE))
        + " |\n"
        for each in fields(Parameters)
    )
    head = "| parameter | meaning | default | `lsapp` | `app-usage` |\n|---|---|--:|--:|--:|\n"
    return f"## Synthetic phones\n\n{head}{rows}"


def _type(words: str) -> str:
    plain = {"str": "text", "int": "whole number", "float": "number", "bool": "true or false"}
    if found := re.fullmatch(r"tuple\[(\w+), \.\.\.\]", words):
        return f"list of {plain.get(found[1], found[1])}"
    base, _, none = words.partition(" | None")
    if base.startswith("Mapping"):
        return "table"
    kind = plain.get(base, "a table of its own" if base == "Training" else base)
    return f"{kind}, or none" if none or words.endswith("| None") else kind


def _as_markdown(docstring: str) -> str:
    """A docstring with ``names`` and indented explanations as Markdown."""
    lines: list[str] = []
    for line in docstring.splitlines():
        if line.startswith("    ") and lines:
            lines[-1] += f" {line.strip()}"
        elif re.fullmatch(r"(``[^`]+``(, )?)+", line):
            lines.append(f"- {line}:")
        else:
            lines.append(line)
    return "\n".join(lines).replace("``", "`")


def _default(each: Field[Any]) -> str:
    if each.default is MISSING:
        return "needed" if each.default_factory is MISSING else "empty"
    if hasattr(each.default, "__dataclass_fields__"):
        return "see below"
    if isinstance(each.default, tuple):
        return f"`{', '.join(map(str, each.default))}`" if each.default else "none"
    return f"`{each.default!r}`" if each.default != "" else "by the data"


def decisions_page() -> str:
    """The decisions by number, with their titles."""
    rows = []
    for path in sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md")):
        title = path.read_text(encoding="utf-8").split("\n", 1)[0].removeprefix("# ")
        rows.append(f"| {int(path.name[:4])} | [{title}]({path.name}) |")
    head = (
        "# Decisions\n\nChoices that could have gone another way: what was tried, what it gave, "
        "and what would change our mind.\n\n| | decision |\n|---|---|\n"
    )
    return head + "\n".join(rows) + "\n"


def notebook_page(path: Path) -> str:
    """A notebook as a page: its text, its code, and what the code printed when run just now."""
    import nbformat
    from nbclient import NotebookClient
    from traitlets.config import Config

    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    local = Config({"KernelManager": {"transport": "ipc"}})  # a socket in the file system, not TCP
    NotebookClient(notebook, timeout=900, kernel_name="python3", config=local).execute()
    parts = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
        else:
            parts.append(f"```python\n{cell.source}\n```")
            printed = "".join(each.text for each in cell.outputs if each.output_type == "stream")
            if printed:
                parts.append(f"```text\n{printed.rstrip()}\n```")
            parts += [_shown(each.data) for each in cell.outputs if "data" in each]
    source = f"`notebooks/{path.name}` is this page as a notebook; it was run to build it."
    return "\n\n".join([*parts, f"*{source}*"]) + "\n"


def _shown(data: Any) -> str:
    """What a cell showed, in the best form a page has for it."""
    if "image/svg+xml" in data:
        picture = base64.b64encode(data["image/svg+xml"].encode()).decode()
        return f'<img alt="figure" src="data:image/svg+xml;base64,{picture}">'
    if "image/png" in data:
        return f'<img alt="figure" src="data:image/png;base64,{data["image/png"].strip()}">'
    if "text/html" in data:
        html = data["text/html"].replace("\n", " ")  # one block of Markdown
        return f"<div>{html}</div>"
    return f"```text\n{data['text/plain']}\n```"


def commands_page() -> str:
    """Every command with its help, as the terminal shows it at 80 columns."""
    os.environ.update(COLUMNS="80", TERM="dumb", NO_COLOR="1")
    from click.testing import CliRunner

    from nextapp.cli.commands import COMMANDS, app, load

    runner, parts = CliRunner(), ["# Commands\n"]

    def section(words: list[str], level: int) -> None:
        found = runner.invoke(app, [*words, "--help"])
        text = "\n".join(line.rstrip() for line in found.output.strip().splitlines())
        parts.append(f"{'#' * level} nextapp {' '.join(words)}\n\n```text\n{text}\n```\n")

    for name in COMMANDS:
        section([name], 2)
        for child in getattr(load(name), "commands", {}):
            section([name, child], 3)
    return "\n".join(parts)
