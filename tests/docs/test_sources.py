"""The sources as text: what they name in backticks exists, and no signature is too long to read."""

from __future__ import annotations

import ast
import builtins
import importlib
import keyword
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "nextapp"
FILES = sorted(PACKAGE.rglob("*.py"))
FILE_NAMES = {file.name for file in PACKAGE.rglob("*.*") if "__pycache__" not in file.parts}
ELSEWHERE = {"knowledgeC.db", "checkpoint.json"}  # files that are not in the package
_QUOTED = re.compile(r"`{1,2}([A-Za-z_][\w.]*)(?:\([^`]*\))?`{1,2}")
_PATHS = re.compile(r"\b((?:docs|tests|benchmarks|deploy)/[\w./-]+\.(?:md|py|toml|json))\b")


@cache
def trees() -> dict[Path, ast.Module]:
    return {file: ast.parse(file.read_text(encoding="utf-8")) for file in FILES}


@cache
def identifiers() -> frozenset[str]:
    """All names that the package's code uses, short strings (keys, options) among them."""
    found = {*dir(builtins), *keyword.kwlist}
    for file, tree in trees().items():
        found |= {file.stem, file.parent.name}
        for node in ast.walk(tree):
            match node:
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    found.add(name)
                case ast.arg(arg=name) | ast.Name(id=name) | ast.Attribute(attr=name):
                    found.add(name)
                case ast.keyword(arg=str(name)) | ast.Constant(value=str(name)) if len(name) < 40:
                    found.add(name)
                case ast.alias(name=name, asname=other):
                    found |= {*name.split("."), other or ""}
    return frozenset(found)


@cache
def members() -> dict[str, frozenset[str]]:
    """What each class of the package has: methods, fields, attributes that it sets or inherits."""
    found: dict[str, set[str]] = {}
    parents: dict[str, set[str]] = {}
    for tree in trees().values():
        for node in ast.walk(tree):
            if not isinstance(node, ast.ClassDef):
                continue
            own = found.setdefault(node.name, set())
            heads = {base.value if isinstance(base, ast.Subscript) else base for base in node.bases}
            parents.setdefault(node.name, set()).update(
                head.attr if isinstance(head, ast.Attribute) else getattr(head, "id", "")
                for head in heads
            )
            for inner in ast.walk(node):
                match inner:
                    case ast.FunctionDef(name=name) | ast.Attribute(attr=name):
                        own.add(name)
                    case ast.Name(id=name, ctx=ast.Store()):
                        own.add(name)
    for _ in found:  # as often as needed for the deepest of them
        for name, above in parents.items():
            for parent in above & found.keys():
                found[name] |= found[parent]
    return {name: frozenset(own) for name, own in found.items()}


def is_there(name: str) -> bool:
    if name.startswith("nextapp."):
        return imports(name)
    if name in FILE_NAMES:
        return True
    first, *rest = name.split(".")
    if rest and first in members():
        return rest[0] in members()[first]
    return all(part in identifiers() for part in (first, *rest))


def imports(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    parts = name.split(".")
    for n in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:n]))
        except ModuleNotFoundError:
            continue
        for part in parts[n:]:
            known = getattr(found, "__annotations__", {})
            if not hasattr(found, part):
                return part in known
            found = getattr(found, part)
        return True
    return False


def test_what_the_sources_refer_to_exists():
    missing = {}
    for file in FILES:
        text = file.read_text(encoding="utf-8")
        found = {name for name in _QUOTED.findall(text) if not is_there(name)} - ELSEWHERE
        found |= {path for path in _PATHS.findall(text) if not (ROOT / path).exists()}
        if found:
            missing[str(file.relative_to(ROOT))] = sorted(found)
    assert not missing


def test_a_name_that_is_gone_is_noticed():
    assert is_there("PhoneCore.draw_report")
    assert not is_there("PhoneCore.report")
    assert is_there("nextapp.learners.CrowdLearner")
    assert not is_there("nextapp.crowd.CrowdLearner")
    assert is_there("launches_every")
    assert not is_there("resumed_or_" + "founded")


def test_no_function_takes_more_than_fifteen_parameters():
    """Options of commands come from dataclasses (`nextapp.cli.commands`)."""
    lengths = {
        f"{file.relative_to(ROOT)}:{node.lineno}": len(node.args.args) + len(node.args.kwonlyargs)
        for file, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {place: n for place, n in lengths.items() if n > 15} == {}
