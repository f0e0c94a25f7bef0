"""Gives arguments of a constructor default values, as modules have them whose callers pass the first few alone."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from kernels_eval.syntax import syntax_tree
from tasks.problems.modules.draw import Draw
from tasks.problems.modules.pair import ModulePair

OFTEN = 0.4
"""Share of the problems with such arguments that get defaults; 44 of KernelBench's 100 of level 1 have some."""
_SIZES = re.compile(r"(in|out|num)_\w+|groups|\w*(size|shape|features|channels)")
"""Arguments whose value depends on the inputs: no module has a default for them."""


@dataclass(frozen=True)
class Default:
    """An argument of the constructor that has a default value."""

    name: str
    value: str
    kind: str = "int"


def with_defaults(source: str, defaults: tuple[Default, ...]) -> str:
    """Return the module with these defaults in its constructor; an argument that it lacks comes last."""
    line = next((line for line in source.splitlines() if line.lstrip().startswith("def __init__(self")), "")
    typed, changed = ": " in line, line
    for default in defaults:
        kind = f": {default.kind} = " if typed else "="
        pattern = rf"(?<=, ){default.name}(: \w+)?(?=[,)])"
        if re.search(pattern, changed):
            changed = re.sub(pattern, f"{default.name}{kind}{default.value}", changed, count=1)
        else:
            changed = changed.replace("):", f", {default.name}{kind}{default.value}):")
    return source.replace(line, changed, 1) if line else source


def with_drawn_defaults(rng: Draw, pair: ModulePair) -> ModulePair:
    """Return the pair with defaults for the last arguments of its constructor, in the problem and in each kernel.

    The caller mostly passes them no longer. A pair without such arguments, or with defaults, is returned as it is.
    """
    defaults = tuple(_possible_defaults(pair.problem_source))[::-1] if rng.chance(OFTEN) else ()
    if not defaults:
        return pair
    defaults = defaults[rng.randrange(len(defaults)) :]
    problem = with_defaults(pair.problem_source, defaults)
    return pair.model_copy(
        update={
            "problem_source": _without_last_values(problem, len(defaults)) if rng.chance(0.7) else problem,
            "kernel_source": with_defaults(pair.kernel_source, defaults),
            "earlier_source": pair.earlier_source and with_defaults(pair.earlier_source, defaults),
            "slower": tuple(with_defaults(source, defaults) for source in pair.slower),
        }
    )


def _possible_defaults(source: str) -> Iterator[Default]:
    """Yield the arguments of a problem's constructor that may have a default, the last one first."""
    tree = syntax_tree(source)
    constants = {
        statement.targets[0].id: statement.value
        for statement in tree.body
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
    }
    made = next(
        (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "__init__"), None
    )
    if made is None or made.args.defaults:
        return
    for argument, given in zip(made.args.args[:0:-1], _initial_values(tree).elts[::-1], strict=True):
        value = constants.get(given.id, given) if isinstance(given, ast.Name) else given
        text = ast.get_source_segment(source, value) or ""
        if _SIZES.fullmatch(argument.arg) or not re.fullmatch(r"-?[\d.e-]+|True|False", text):
            return
        kind = ast.get_source_segment(source, argument.annotation) if argument.annotation else None
        yield Default(argument.arg, text, kind or "int")


def _initial_values(tree: ast.Module) -> ast.List:
    """Return the list that `get_init_inputs`, the last function of a problem, returns."""
    result = tree.body[-1]
    assert isinstance(result, ast.FunctionDef)
    assert isinstance(result.body[-1], ast.Return)
    assert isinstance(result.body[-1].value, ast.List)
    return result.body[-1].value


def _without_last_values(source: str, count: int) -> str:
    """Return the problem whose caller passes `count` values fewer, without the constants that served them alone."""
    kept = _initial_values(syntax_tree(source)).elts[:-count]
    values = ", ".join(ast.get_source_segment(source, value) or "" for value in kept)
    head, _, _ = source.rpartition("    return [")
    source = f"{head}    return [{values}]\n"
    callers = [part for part in syntax_tree(source).body if not isinstance(part, ast.ClassDef)]
    names = [node for part in callers for node in ast.walk(part) if isinstance(node, ast.Name)]
    used = {name.id for name in names if isinstance(name.ctx, ast.Load)}
    for name in names:
        if isinstance(name.ctx, ast.Store) and name.id not in used:
            source = re.sub(rf"^{name.id} = .*\n", "", source, flags=re.MULTILINE)
    return source
