"""Tracing and worker processes: the functions of a source file, and the text of one as programs carry it."""

import ast
from collections.abc import Iterator, Sequence

_BODIES = ("body", "handlers", "orelse", "finalbody", "cases")
"""Fields of a statement that hold statements, or parts with statements."""


def statements(nodes: Sequence[ast.AST], into_functions: bool) -> Iterator[ast.AST]:
    """Yield statements, and those that they hold; `into_functions`: also those of functions and classes."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        yield node
        if into_functions or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            waiting += held_by(node)


def held_by(node: ast.AST) -> list[ast.AST]:
    """Return the statements that a statement holds; no expression holds one."""
    return [part for name in _BODIES for part in getattr(node, name, ())]


def functions(module: ast.Module) -> Iterator[ast.FunctionDef]:
    """Yield the functions that a module's statements define, inner ones too."""
    for node in statements(module.body, into_functions=True):
        if isinstance(node, ast.FunctionDef):
            yield node


def text_of(function: ast.FunctionDef, lines: Sequence[str]) -> str:
    """Return a function's text without decorators and indentation. `lines`: those of its file, with their ends."""
    indent = function.col_offset
    return "".join(_outdented(line, indent) for line in lines[function.lineno - 1 : function.end_lineno])


def _outdented(line: str, indent: int) -> str:
    return line[indent:] if not line[:indent].strip() else line.lstrip()
