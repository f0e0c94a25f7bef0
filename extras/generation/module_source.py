"""A problem's source from a class in a file: the class under the name `Model`, and all that it uses of its file.

Of the file's other statements only those are taken whose names the class, `get_inputs` or `get_init_inputs` use,
directly or not: imports, assignments, functions and classes at the top level. Relative imports and names that are made
in other ways are not supported; the judge then says what is missing.
"""

import ast
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernels_eval.errors import InputError

_NO_ARGUMENTS = "def get_init_inputs():\n    return []\n"


def problem_source(
    module: type, get_inputs: Callable[[], Any] | None = None, get_init_inputs: Callable[[], Any] | None = None
) -> str:
    """Return the problem that a class poses. Functions that are not given are those of its file.

    Without any `get_init_inputs` the constructor has no arguments. Raises InputError if the class is not at the top
    level of a file, or there is no `get_inputs`.
    """
    statements = _statements(module)
    name = module.__name__
    wanted = {"Model": name, "get_inputs": _name(get_inputs), "get_init_inputs": _name(get_init_inputs)}
    roots: list[ast.stmt] = []
    for role, found in wanted.items():
        statement = statements.get(found or role)
        if statement is None and role == "get_inputs":
            raise InputError(f"{name}: expected get_inputs() at the top level of its file, or as an argument")
        if statement is not None:
            roots.append(_renamed(statement, role))
    taken = _used(roots, statements, set(wanted.values()) | set(wanted))
    body = [statement for statement in dict.fromkeys(statements.values()) if statement in taken]
    source = ast.unparse(ast.fix_missing_locations(ast.Module([*body, *roots], [])))
    if "get_init_inputs" not in {root.name for root in roots if isinstance(root, ast.FunctionDef)}:
        source += f"\n\n{_NO_ARGUMENTS}"
    return source + "\n"


def _statements(module: type) -> dict[str, ast.stmt]:
    """Return the top-level statements of the class's file by each name that they define."""
    name = module.__qualname__
    try:
        file = inspect.getsourcefile(module)
        tree = ast.parse(Path(file or "").read_text(encoding="utf-8"))
    except (OSError, TypeError, SyntaxError, ValueError) as error:
        raise InputError(f"{name}: expected a class in a Python file: {error}") from error
    found: dict[str, ast.stmt] = {}
    for statement in tree.body:
        for defined in _defined(statement):
            found[defined] = statement
    if name != "Model" and "Model" in found:
        raise InputError(f"{name}: its file defines another `Model`, which is the class's name in a problem")
    if not isinstance(found.get(name), ast.ClassDef):
        raise InputError(f"{name}: expected a class at the top level of {file}")
    return found


def _defined(statement: ast.stmt) -> list[str]:
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [statement.name]
        case ast.Import() | ast.ImportFrom():
            return [alias.asname or alias.name.partition(".")[0] for alias in statement.names]
        case ast.Assign() | ast.AnnAssign():
            return [node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and _is_stored(node)]
        case _:
            return []


def _is_stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def _name(function: Callable[[], Any] | None) -> str | None:
    if function is None:
        return None
    if not inspect.isfunction(function) or "<" in function.__qualname__:
        raise InputError(f"{function!r}: expected a function at the top level of the class's file")
    return function.__name__


def _renamed(statement: ast.stmt, name: str) -> ast.stmt:
    """Return a definition under another name, also where it names itself, without its decorators."""
    copy = ast.parse(ast.unparse(statement)).body[0]
    assert isinstance(copy, ast.ClassDef | ast.FunctionDef)
    old, copy.name, copy.decorator_list = copy.name, name, []
    for node in ast.walk(copy):
        if isinstance(node, ast.Name) and node.id == old:
            node.id = name
    return copy


def _used(roots: list[ast.stmt], statements: dict[str, ast.stmt], own: set[str | None]) -> set[ast.stmt]:
    """Return the statements whose names are used from the roots on; those in `own` are roots themselves."""
    taken: set[ast.stmt] = set()
    waiting = list(roots)
    while waiting:
        names = {node.id for node in ast.walk(waiting.pop()) if isinstance(node, ast.Name)}
        for name in names - own:
            statement = statements.get(name)
            if statement is not None and statement not in taken:
                taken.add(statement)
                waiting.append(statement)
    return taken
