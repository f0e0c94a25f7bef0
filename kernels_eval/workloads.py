"""Several workloads of one problem: its constants at other values. Each is judged (kernels_eval.cells).

A problem may list them beside its constants, which the prompt shows as it shows the rest of the source:

    batch_size, dim, dtype = 16, 1024, torch.float32
    WORKLOADS = [{"dim": 1000}, {"batch_size": 256, "dtype": "torch.bfloat16"}]

The list is read, never run. Each entry names constants that the module assigns at its top level; a text that begins
with `torch.` stands for a data type. Without a list a problem has one workload, itself.
"""

import ast
import re
from typing import Any

from kernels_eval.errors import InputError
from kernels_eval.frozen import FrozenModel
from kernels_eval.syntax import syntax_tree

NAME = "WORKLOADS"
MOST = 16
"""Workloads of a problem, at most: each is judged like a problem of its own."""
_DATA_TYPE = re.compile(r"torch\.[a-z][a-z0-9_]*")
_FORM = f"expected a list of 1 to {MOST} objects with names and values of constants"


class Workload(FrozenModel):
    """Values of some constants of a problem."""

    name: str
    """The constants and values in words."""
    source: str
    """The problem's source with these values."""


def workloads_of(source: str, where: str) -> tuple[Workload, ...]:
    """Return the workloads that a problem lists; none if it has no list. Raises InputError, naming `where`.

    `source` parses (kernels_eval.problem.check_problem_source).
    """
    if NAME not in source:
        return ()
    tree = syntax_tree(source)
    values = _assigned(tree)
    if NAME not in values:
        return ()
    places = {name: node for name, node in values.items() if name != NAME}
    return tuple(_workload(entry, source, places, f"{where}: {NAME}") for entry in _entries(values[NAME], where))


def _assigned(tree: ast.Module) -> dict[str, ast.expr]:
    """Return the expressions that names are assigned at the top level, each name's last one."""
    found: dict[str, ast.expr] = {}
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            found[node.target.id] = node.value
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found[target.id] = node.value
                elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = zip(target.elts, node.value.elts, strict=False)
                    found |= {name.id: value for name, value in pairs if isinstance(name, ast.Name)}
    return found


def _entries(node: ast.expr, where: str) -> list[dict[str, Any]]:
    try:
        entries: Any = ast.literal_eval(node)
    except (ValueError, TypeError):
        raise InputError(f"{where}: {NAME}: {_FORM}, found what is no constant") from None
    if not isinstance(entries, list | tuple) or not all(entry and isinstance(entry, dict) for entry in entries):  # pyright: ignore[reportUnknownVariableType]
        raise InputError(f"{where}: {NAME}: {_FORM}, found {ast.unparse(node)[:80]}")
    if not 1 <= len(entries) <= MOST:  # pyright: ignore[reportUnknownArgumentType]
        raise InputError(f"{where}: {NAME}: {_FORM}, found {len(entries)}")  # pyright: ignore[reportUnknownArgumentType]
    return list(entries)  # pyright: ignore[reportUnknownArgumentType]


def _workload(entry: dict[str, Any], source: str, places: dict[str, ast.expr], where: str) -> Workload:
    lines = source.encode().split(b"\n")
    changed = sorted(entry, key=lambda name: _position(places, name, where), reverse=True)
    for name in changed:  # from the end, so that earlier positions stay
        node = places[name]
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        first, last = lines[node.lineno - 1][: node.col_offset], lines[node.end_lineno - 1][node.end_col_offset :]
        lines[node.lineno - 1 : node.end_lineno] = [first + _text(entry[name], f"{where}: {name}").encode() + last]
    words = ", ".join(f"{name}={value}" for name, value in entry.items())
    return Workload(name=words, source=b"\n".join(lines).decode())


def _position(places: dict[str, ast.expr], name: Any, where: str) -> tuple[int, int]:
    if name not in places:
        known = ", ".join(places) or "none"
        raise InputError(f"{where}: expected names of constants that the problem assigns ({known}), found {name!r}")
    return places[name].lineno, places[name].col_offset


def _text(value: Any, where: str) -> str:
    if isinstance(value, str) and _DATA_TYPE.fullmatch(value):
        return value
    if not isinstance(value, bool | int | float | str | list | tuple):
        raise InputError(f"{where}: expected a number, a text or a list, found {value!r}")
    return repr(value)  # pyright: ignore[reportUnknownArgumentType]
