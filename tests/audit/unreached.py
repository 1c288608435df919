"""Code coverage of an audit: which lines of a mechanism did not run.

A fault that needs a round, a size or an input that the audit does not try is in code that the audit
never runs. So for every function that ``encode`` entered, this module lists the statements that did
not run, and also the branches of ``a if c else b``, of ``and`` and ``or``, and the elements of
comprehensions. Code that only raises an error is left out. Conditions inside arithmetic expressions
are not covered.
"""

from __future__ import annotations

import ast
import functools
import sys
import sysconfig
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import nextapp

_MODULES = ("inputs", "phone_draws", "protocols", "replay", "unreached")
Place = tuple[int, int]
Span = tuple[Place, Place]

_PACKAGE = Path(nextapp.__file__).parent
_AUDIT = (_PACKAGE / "audit", *(Path(__file__).with_name(f"{name}.py") for name in _MODULES))
_SILENT = (ast.Pass, ast.Break, ast.Continue, ast.Global, ast.Nonlocal, ast.Raise, ast.Import,
           ast.ImportFrom)  # fmt: skip
_NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


class Reach:
    """Records the instructions that run, except those of libraries and of the audit.

    A context manager around the code to watch.
    """

    def __init__(self) -> None:
        self._ran: defaultdict[CodeType, set[int]] = defaultdict(set)
        self._before: Callable[..., Any] | None = None

    def __enter__(self) -> Reach:
        self._before = sys.gettrace()
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def unreached(self, *elsewhere: Reach) -> list[str]:
        """file:line of code in the functions entered that ran neither here nor in `elsewhere`."""
        spans: defaultdict[str, set[Span]] = defaultdict(set)
        pieces = [piece for reach in (self, *elsewhere) for piece in reach._ran.items()]
        for code, offsets in pieces:
            positions = list(code.co_positions())
            for offset in offsets:
                line, end_line, column, end_column = positions[offset // 2]
                if line and end_line and column is not None and end_column is not None:
                    spans[code.co_filename].add(((line, column), (end_line, end_column)))
        found = set()
        for code in self._ran:
            ran = spans[code.co_filename]
            for node in _units(code):
                start = (node.lineno, node.col_offset)
                end = (node.end_lineno or 0, node.end_col_offset or 0)
                if not any(start <= first and last <= end for first, last in ran):
                    found.add((Path(code.co_filename).name, node.lineno))
        return [f"{name}:{line}" for name, line in sorted(found)]

    def _call(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        if not _is_watched(frame.f_code.co_filename):
            return None
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        return functools.partial(self._step, self._ran[frame.f_code])

    def _step(self, ran: set[int], frame: FrameType, event: str, _: Any) -> Callable[..., Any]:
        if event == "opcode":
            ran.add(frame.f_lasti)
        return functools.partial(self._step, ran)


@functools.cache
def _is_watched(filename: str) -> bool:
    path = Path(filename)
    if path.suffix != ".py" or any(path.is_relative_to(each) for each in _AUDIT):
        return False
    libraries = (
        sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")
    )
    return path.is_relative_to(_PACKAGE) or not any(path.is_relative_to(each) for each in libraries)


def _units(code: CodeType) -> Iterator[ast.stmt | ast.expr]:
    """The statements and branches of the function that this code was compiled from."""
    for node in _functions(code.co_filename).get((code.co_name, code.co_firstlineno), ()):
        yield from _in_block(node.body)


@functools.cache
def _functions(filename: str) -> dict[tuple[str, int], list[ast.FunctionDef]]:
    try:
        tree = ast.parse(Path(filename).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return {}
    found: dict[tuple[str, int], list[ast.FunctionDef]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            found.setdefault((node.name, first), []).append(node)
    return found


def _in_block(block: list[ast.stmt]) -> Iterator[ast.stmt | ast.expr]:
    if block and isinstance(block[-1], ast.Raise):
        return
    for statement in block:
        docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        bare = isinstance(statement, ast.AnnAssign) and statement.value is None
        if isinstance(statement, (*_SILENT, *_NESTED)) or docstring or bare:
            continue
        yield statement
        for name, value in ast.iter_fields(statement):
            if name in ("body", "orelse", "finalbody"):
                yield from _in_block(value)
            elif name in ("handlers", "cases"):
                for each in value:
                    yield from _in_block(each.body)
            else:
                for each in value if isinstance(value, list) else [value]:
                    if isinstance(each, ast.AST):
                        yield from _arms(each)


def _arms(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, _NESTED):
        return
    if isinstance(node, ast.IfExp):
        yield from (node.body, node.orelse)
    elif isinstance(node, ast.BoolOp):
        yield from node.values[1:]
    elif isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp):
        yield node.elt
    elif isinstance(node, ast.DictComp):
        yield from (node.key, node.value)
    for child in ast.iter_child_nodes(node):
        yield from _arms(child)
