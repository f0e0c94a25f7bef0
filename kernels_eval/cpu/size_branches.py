"""Comparisons in a kernel that come out otherwise at the true size than at the sizes that are run: `if M > 1000`.

Only the plain forms are found: an argument that grows with the size, or the number or index of a program, in one comparison with a
constant (a literal, a compile-time argument, a global). Honest kernels have them too (a path for whole tiles); what is
behind such a comparison is then run at a size at which it comes out as at the true one.
"""

import ast
from collections.abc import Iterable, Mapping
from functools import lru_cache

from kernels_eval.trace.schema import Constexpr, KernelSource, LaunchKernel, Plain, TraceAnswer

_BEHIND = 0.75
_PROGRAM_CALLS = frozenset({"program_id", "num_programs"})


def size_needed(seen: TraceAnswer, true: TraceAnswer, kernels: Iterable[KernelSource], size: int) -> int | None:
    """Return a leading size at which every comparison has come out as at the true one; None: `size` is one already.

    The two programs are the same, at `size` and at the true size.
    """
    sources = {kernel.number: kernel for kernel in kernels}
    pairs = zip(_launches(seen), _launches(true), strict=True)
    factors = [factor for small, large in pairs for factor in _factors(small, large, sources[small.kernel])]
    return int(size * max(factors)) + 1 if factors else None


def zeros_that_grow(seen: TraceAnswer, true: TraceAnswer) -> list[tuple[int, str]]:
    """Return launches (by index) and names of arguments that are 0 at the small size and are not at the true one.

    `rows // 300`, passed as a flag, turns a kernel into another without any comparison of a size.
    """
    return [
        (index, name)
        for index, (small, large) in enumerate(zip(_launches(seen), _launches(true), strict=True))
        for name, value in small.arguments.items()
        if _number(value) == 0 and _number(large.arguments.get(name)) not in (0, None)
    ]


def is_past(trace: TraceAnswer, zeros: Iterable[tuple[int, str]]) -> bool:
    """True where none of those arguments is 0 any more."""
    launches = _launches(trace)
    return all(_number(launches[index].arguments.get(name)) != 0 for index, name in zeros)


def stalled(small: TraceAnswer, seen: TraceAnswer, other: TraceAnswer, sizes: tuple[int, int, int]) -> bool:
    """True where an argument that grew with the size between the first two programs is far behind it in the third.

    `min(rows * columns, 64000)`: the kernel does less at the true size than in proportion. `sizes`: of the three programs.
    """
    growth, further = sizes[1] / sizes[0], sizes[2] / sizes[1]
    return any(
        (first := _amount(value)) is not None
        and (second := _amount(middle.arguments.get(name))) is not None
        and (third := _amount(last.arguments.get(name))) is not None
        and 0 < first < second
        and abs(second - growth * first) <= growth
        and third < _BEHIND * further * second
        for before, middle, last in zip(_launches(small), _launches(seen), _launches(other), strict=False)
        for name, value in before.arguments.items()
    )


def _launches(trace: TraceAnswer) -> list[LaunchKernel]:
    return [command for command in trace.commands if isinstance(command, LaunchKernel)]


def _factors(small: LaunchKernel, large: LaunchKernel, kernel: KernelSource) -> list[float]:
    """By how much the size has to grow for each comparison that would come out otherwise."""
    growing = {
        name: (before, after)
        for name in small.arguments
        if (before := _number(small.arguments[name])) is not None
        and (after := _number(large.arguments.get(name))) is not None
        and 0 < before < after
    }
    programs = (max(small.grid), max(large.grid))
    constants = {name: _number(value) for name, value in {**kernel.globals, **large.arguments}.items()}
    tree = _tree(kernel.source)
    indices = _names_of_programs(tree)
    found: list[float] = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Compare):
            continue
        names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        ranges = [growing[name] for name in names & growing.keys()]
        if names & indices or _calls_program(node):
            ranges.append(programs)
        bounds = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and type(part.value) is int]
        bounds += [bound for name in names - growing.keys() if (bound := constants.get(name)) is not None]
        found += [
            bound / before
            for before, after in ranges
            for bound in bounds
            if before <= bound <= after and before < after
        ]
    return found


@lru_cache(maxsize=1024)
def _tree(source: str) -> ast.Module:
    return ast.parse(source)


def _number(value: object) -> int | None:
    if isinstance(value, Constexpr):
        value = value.value
    return value.value if isinstance(value, Plain) and type(value.value) is int else None


def _amount(value: object) -> float | None:
    """A number of either kind: what a kernel compares, it may be passed as a float."""
    if isinstance(value, Plain) and type(value.value) is float:
        return value.value
    return _number(value)


def _calls_program(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Attribute | ast.Name) and _last(part) in _PROGRAM_CALLS for part in ast.walk(node))


def _last(node: ast.Attribute | ast.Name) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id


def _names_of_programs(tree: ast.AST) -> set[str]:
    """Names that are nothing but the index or the number of programs."""
    values: Mapping[str, ast.expr] = {
        node.targets[0].id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
    }
    return {name for name, value in values.items() if isinstance(value, ast.Call) and _calls_program(value.func)}
