"""Interpreter and compiler processes: fields of named tuples, under names that nothing else in a kernel has.

A kernel's body runs as Python, and Triton's compiler reads attributes of its own objects. So the fields that a file
declares get a prefix there: `rows.pointer` is read as `rows.field_pointer`, which only a named tuple can have.
"""

import ast
import collections
from collections.abc import Iterable, Set
from typing import Any

from kernels_eval.sandbox.source_lines import lines_of

_PREFIX = "field_"


def field_name(name: str, allowed: Iterable[str] = ()) -> str:
    """Return the name of a field in the processes. Attributes that are `allowed` of all values keep theirs."""
    return name if name in allowed else _PREFIX + name


def named_tuple(fields: Iterable[str], defaults: Iterable[Any] = ()) -> type[Any]:
    """Return a class of named tuples with these fields, whose names are those of the processes."""
    return collections.namedtuple("NamedTuple", fields, defaults=defaults)  # pyright: ignore[reportUntypedNamedTuple]


def is_named_tuple(value: Any) -> bool:
    """Return True for a class of named tuples."""
    return isinstance(value, type) and issubclass(value, tuple) and hasattr(value, "_fields")


def with_renamed_fields(source: str, first_line: int, function: ast.FunctionDef, classes: Set[str]) -> str:
    """Return the text of a function with the names that the fields in its tree have.

    `first_line`: number of the text's first line in the tree. `classes`: names of classes of named tuples.
    Raises ValueError for a field that is written otherwise: Python normalises names.
    """
    lines = [line.encode() for line in lines_of(source)]
    for line, end, name in sorted(_places(function, classes), reverse=True):
        text = lines[line - first_line]
        start = end - len(name) + len(_PREFIX)
        if text[start:end] != name[len(_PREFIX) :]:
            field = name[len(_PREFIX) :].decode()
            raise ValueError(f"line {line}: the field {field} is written with other letters, which Python takes for it")
        lines[line - first_line] = text[:start] + name + text[end:]
    return b"".join(lines).decode()


def _places(function: ast.FunctionDef, classes: Set[str]) -> Iterable[tuple[int, int, bytes]]:
    """Yield the line of each renamed field, the byte behind its name there, and the new name."""
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and node.attr.startswith(_PREFIX):
            yield node.end_lineno or 0, node.end_col_offset or 0, node.attr.encode()
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in classes:
            for given in node.keywords:
                name = (given.arg or "").encode()
                if name.startswith(_PREFIX.encode()):
                    yield given.lineno, given.col_offset + len(name) - len(_PREFIX), name
