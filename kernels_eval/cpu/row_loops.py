"""CPU worker: loops of kernels whose length depends on a size, read in their text.

Work that is counted at small sizes and extended by the number of programs, or in a line, misses what such loops add.
"""

import ast
import math
from collections.abc import Iterable, Mapping
from functools import lru_cache

from kernels_eval.syntax import syntax_tree
from kernels_eval.trace.schema import Constexpr, KernelSource, LaunchKernel, Plain, TraceAnswer

_PROGRAM_CALLS = frozenset({"program_id", "num_programs"})


def may_read_rows_again(seen: TraceAnswer, true: TraceAnswer, kernels: Iterable[KernelSource]) -> bool:
    """Return True if more programs at the full size each have a loop whose length depends on a size that grows.

    `seen` and `true` are the same program, at a smaller size and at the full size. The work of such kernels may grow
    with the square of the rows, which smaller sizes do not show where one tile has all rows.
    """
    sources = {kernel.number: kernel.source for kernel in kernels}
    pairs = zip(seen.launches, true.launches, strict=False)
    return any(
        math.prod(small.grid) < math.prod(large.grid) and loop_growth(small, large, sources[large.kernel]) > 1
        for small, large in pairs
    )


def loop_growth(small: LaunchKernel, large: LaunchKernel, source: str) -> float:
    """Return how many times longer the loop of a kernel gets that grows most between two launches of it, at least 1.

    Loops over a program's share of tiles (`range(tl.program_id(0), tiles, tl.num_programs(0))`) do not count.
    """
    tree = kernel_tree(source)
    shares = names_of_programs(tree)
    ratios = {name: after / before for name, (before, after) in growing_numbers(small, large).items()}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and (grown := ratios.keys() & _names_in(node.value)):
            ratio = max(ratios[name] for name in grown)
            ratios |= {name: ratio for target in node.targets for name in _names_in(target) - ratios.keys()}
    found = 1.0
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.While):
            bound = node.iter if isinstance(node, ast.For) else node.test
            if not (_names_in(bound) & shares or calls_program(bound)):
                found = max([found, *(ratios[name] for name in ratios.keys() & _names_in(bound))])
    return found


def growing_numbers(small: LaunchKernel, large: LaunchKernel) -> dict[str, tuple[int, int]]:
    """Return the whole numbers among a launch's arguments that grow with the size, with their two values."""
    return {
        name: (before, after)
        for name in small.arguments
        if (before := whole_number(small.arguments[name])) is not None
        and (after := whole_number(large.arguments.get(name))) is not None
        and 0 < before < after
    }


def growing_counters(tree: ast.AST, growing: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """Return the counters of loops up to a number that grows with the size, with its two values."""
    return {
        loop.target.id: growing[part.id]
        for loop in ast.walk(tree)
        if isinstance(loop, ast.For) and isinstance(loop.target, ast.Name)
        for part in ast.walk(loop.iter)
        if isinstance(part, ast.Name) and part.id in growing
    }


@lru_cache(maxsize=1024)
def kernel_tree(source: str) -> ast.Module:
    """Return the syntax tree of a kernel's text, which is read once."""
    return syntax_tree(source)


def whole_number(value: object) -> int | None:
    """Return a whole number among a launch's arguments or a kernel's constants, or None for anything else."""
    if isinstance(value, Constexpr):
        value = value.value
    return value.value if isinstance(value, Plain) and type(value.value) is int else None


def calls_program(node: ast.AST) -> bool:
    """Return True if an expression asks for the index or the number of programs."""
    return any(isinstance(part, ast.Attribute | ast.Name) and _last(part) in _PROGRAM_CALLS for part in ast.walk(node))


def _names_in(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _last(node: ast.Attribute | ast.Name) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id


def names_of_programs(tree: ast.AST) -> set[str]:
    """Return the names assigned directly from the index or the number of programs."""
    values: Mapping[str, ast.expr] = {
        node.targets[0].id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
    }
    return {name for name, value in values.items() if isinstance(value, ast.Call) and calls_program(value.func)}
