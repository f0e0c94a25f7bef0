"""Loads the tasks of robust-kbench: a folder a task, with `func_forward.py` and `config_forward.json`.

`func_forward.py` has `forward_fn`, `Model` whose `forward` takes the inputs and `fn=forward_fn`, and
`get_inputs(…)`. The JSON file has lists of keyword arguments: `single_init_configs` for `Model`, `single_input_configs`
for `get_inputs`, `single_shared_configs` for both, which count last; and the same with `multi_`. Every combination is a
problem in KernelBench's format: the module's text, with `get_inputs()` and `get_init_inputs()` of these arguments.
"""

import ast
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kernels_eval.errors import InputError
from kernels_eval.problem import Problem, check_problem_source
from kernels_eval.syntax import syntax_tree
from tasks.pipeline.json_file import read_json_object
from tasks.problems.config import Variants
from tasks.problems.module_folders import level_of
from tasks.problems.row import Entry, derived_id

MODULE = "func_forward.py"
CONFIG = "config_forward.json"
_BACKWARD = "func_backward.py"
_RENAMED = "task_inputs"


def load_tasks(path: Path, variants: Variants) -> Iterator[Entry | InputError]:
    """Yield the problems of the tasks below a path, which may be a checkout or one task's folder.

    `tasks/layernorm` becomes `layernorm`, `tasks/kernelbench/level_2/task_3` becomes `level2_task_3` of level 2; of
    several combinations `layernorm_1`, `layernorm_2` …, which stay on one side of the split. Order: path, then as the
    JSON file has them. An InputError stands for a task that gives no problem. Raises InputError if there is no task.
    """
    if not path.is_dir():
        raise InputError(f"{path}: expected a folder of robust-kbench's tasks, found a file")
    top, folders = _tasks_below(path)
    backward = sorted(file.parent for file in top.rglob(_BACKWARD) if file.parent not in folders)
    if not folders and not backward:
        raise InputError(f"{path}: expected robust-kbench's tasks, folders with {MODULE} and {CONFIG}; found none")
    for folder in folders:
        try:
            yield from _problems_of(folder, top, variants)
        except InputError as error:
            yield error
    for folder in backward:
        yield InputError(f"{folder}: expected {MODULE}, found {_BACKWARD} alone: gradients are not judged")


def task_folders(path: Path) -> list[Path]:
    """Return the tasks' folders below a path, sorted."""
    return _tasks_below(path)[1]


def _tasks_below(path: Path) -> tuple[Path, list[Path]]:
    """Return the folder that holds the tasks, and theirs."""
    top = path / "tasks" if (path / "tasks").is_dir() and not (path / MODULE).is_file() else path
    top = top.resolve()
    return top, sorted(file.parent for file in top.rglob(MODULE))


def _problems_of(folder: Path, top: Path, variants: Variants) -> Iterator[Entry]:
    source = _text(folder / MODULE)
    combinations = _combinations(folder / CONFIG, variants)
    named = folder.parts[len(top.parts) - 2 : -1]  # the path itself may be one level's folder, or a task in one
    level = next((found for part in reversed(named) if (found := level_of(part))), None)
    above = folder.relative_to(top).parts[:-1]
    prefix = "".join(f"{part}_" for part in above) if level is None else f"level{level}_"
    task = derived_id(prefix + folder.name)
    for number, (init, inputs) in enumerate(combinations, start=1):
        name = task if len(combinations) == 1 else f"{task}_{number}"
        where = str(folder / MODULE) if len(combinations) == 1 else f"{folder / MODULE} combination {number}"
        problem = Problem(
            problem_id=name, source=problem_source(source, init, inputs, where), level=level or 1, name=name
        )
        yield Entry(problem=problem, where=where, composition=task)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: not readable as UTF-8 text: {error}") from error


def _combinations(file: Path, variants: Variants) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return the arguments of `Model` and of `get_inputs`, a pair for each combination."""
    if not file.is_file():
        raise InputError(f"{file}: no such file; robust-kbench's task has its arguments there")
    stored = read_json_object(file)
    init, inputs, shared = (
        _configs(stored, f"{variants}_{kind}_configs", file) for kind in ("init", "input", "shared")
    )
    return [({**a, **c}, {**b, **c}) for a, b, c in itertools.product(init, inputs, shared)]


def _configs(stored: dict[str, Any], key: str, file: Path) -> list[dict[str, Any]]:
    found = stored.get(key)
    if not isinstance(found, list) or not found or not all(isinstance(item, dict) for item in found):
        raise InputError(f"{file}: `{key}`: expected a list of objects with arguments, found {str(found)[:80]}")
    return found


def problem_source(source: str, init: dict[str, Any], inputs: dict[str, Any], where: str) -> str:
    """Return a task's module as a problem with these arguments of `Model` and of `get_inputs`.

    Raises InputError, naming `where`, if the module lacks one of them or they do not take the arguments.
    """
    try:
        tree = syntax_tree(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"{where}: not Python: {type(error).__name__}: {error}") from error
    model = next((node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Model"), None)
    drawn = next((node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "get_inputs"), None)
    if model is None or drawn is None:
        raise InputError(f"{where}: expected a robust-kbench task that defines Model and get_inputs")
    made = next((node for node in model.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"), None)
    if made is None and init:
        raise InputError(f"{where}: Model has no __init__, but the configuration has arguments {', '.join(init)}")
    positional = [] if made is None else _positional(made, init, where)
    _check_names(_names(drawn.args), inputs, f"{where}: get_inputs")
    renamed = _RENAMED
    while renamed in source:
        renamed = f"_{renamed}"
    lines = source.split("\n")
    lines[drawn.lineno - 1] = lines[drawn.lineno - 1].replace("get_inputs", renamed, 1)
    arguments = ", ".join(f"{name}={value!r}" for name, value in inputs.items())
    made_source = "\n".join(lines).rstrip("\n") + (
        f"\n\n\ndef get_inputs():\n    return {renamed}({arguments})\n"
        f"\n\ndef get_init_inputs():\n    return [{', '.join(positional)}]\n"
    )
    check_problem_source(made_source, where)
    return made_source


def _positional(function: ast.FunctionDef, given: dict[str, Any], where: str) -> list[str]:
    """Return the arguments of a constructor in its order, as Python text: what is given, else the default."""
    arguments = function.args
    names = _names(arguments)[1:]
    _check_names(names, given, f"{where}: Model")
    defaults = {
        name: ast.unparse(value) for name, value in zip(reversed(names), reversed(arguments.defaults), strict=False)
    }
    found: list[str] = []
    for name in names:
        if name in given:
            found.append(repr(given[name]))
        elif name in defaults:
            found.append(defaults[name])
        else:
            raise InputError(f"{where}: Model: the configuration gives no `{name}`, which has no default")
    return found


def _names(arguments: ast.arguments) -> list[str]:
    return [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]


def _check_names(names: Sequence[str], given: dict[str, Any], what: str) -> None:
    """Raise InputError if an argument is none of a function's."""
    unknown = [name for name in given if name not in names]
    if unknown:
        raise InputError(f"{what}: expected arguments {', '.join(names) or 'none'}; the configuration has {unknown[0]}")
