"""CPU worker: turns that the loops of a kernel take at a problem's own sizes, read in its text.

`for row in range(tl.program_id(0), M, tl.num_programs(0))`: of 264 programs 66 have one of 66 cut rows, and all have
some of the problem's 2112 rows. What was counted at the cut sizes has to be what the loop says there. Else nothing is
concluded, as where a condition leaves programs out.
"""

import ast
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from kernels_eval.cpu.kernel_numbers import KernelNumbers, Number
from kernels_eval.cpu.row_loops import kernel_tree
from kernels_eval.trace.kernel_syntax import constexpr_parameters
from kernels_eval.trace.schema import KernelSource, LaunchKernel, TraceAnswer

_RANGES = ("range", "static_range")
_HINTS = {"num_stages", "loop_unroll_factor", "flatten", "disallow_acc_multi_buffer", "warp_specialize"}
"""Arguments of `tl.range` that leave its turns as they are."""
_ALIKE = 0.05, 0.02
"""Excess of the counted share over the loop's, relative and absolute, that work before the loop may cause."""
_BRANCHES = (ast.While, ast.IfExp, ast.Break, ast.Continue, ast.BoolOp, ast.Return)


class SharedLoop(NamedTuple):
    """Loop that programs share, at a problem's own sizes."""

    busy_share: float
    """Mean number of a program's turns over that of the program with the most."""
    turns: float
    """Turns of all programs over those at the cut sizes."""


def shared_loop(small: LaunchKernel, large: LaunchKernel, kernel: KernelSource, busy_share: float) -> SharedLoop | None:
    """Return the loop of the `large` launch, where the same kernel was counted in the `small` one.

    `busy_share`: mean work over most work, as counted. None: the text does not tell, or it tells something else.
    """
    function = kernel_tree(kernel.source).body[0]
    assert isinstance(function, ast.FunctionDef)
    constants = constexpr_parameters(function)
    if any(_leaves_out(node, constants) for node in ast.walk(function)):
        return None
    counts: list[tuple[float, float]] = []
    for launch in (small, large):
        turns = list(_turns(function, KernelNumbers(kernel, launch)))
        if len(turns) != 1 or turns[0] is None:
            return None
        if turns[0].max() < 1:
            return None
        counts.append((float(turns[0].mean() / turns[0].max()), float(turns[0].sum())))
    (before, few), (after, many) = counts
    is_explained = before * (1 - _ALIKE[0]) <= busy_share <= before * (1 + _ALIKE[0]) + _ALIKE[1]
    return SharedLoop(after, many / few) if is_explained else None


def tells_turns(
    seen: TraceAnswer, true: TraceAnswer, kernels: Iterable[KernelSource], shares: Iterable[float], times: float
) -> bool:
    """Return whether the text tells that programs, as many for all rows as for a few, take `times` as many turns.

    `seen` and `true` are the same program at few rows and at `times` as many; `shares`: mean work over most work of
    each launch, as counted in `seen`.
    """
    sources = {kernel.number: kernel for kernel in kernels}
    for small, large, share in zip(seen.launches, true.launches, shares, strict=False):
        if small.grid == large.grid:
            loop = shared_loop(small, large, sources[large.kernel], share)
            if loop is None or loop.turns < times * (1 - _ALIKE[1]):
                return False
    return True


def longer_loops(small: LaunchKernel, large: LaunchKernel, kernel: KernelSource) -> float:
    """Return how many times more turns the loops of a program take in the `large` launch, at least 1.

    Of loops in one another it is the product. Loops that programs share, and others that the text does not tell, do not
    count.
    """
    pair = KernelNumbers(kernel, small), KernelNumbers(kernel, large)
    return _longest(kernel_tree(kernel.source), pair)


def _longest(node: ast.AST, pair: tuple[KernelNumbers, KernelNumbers]) -> float:
    own = 1.0
    if isinstance(node, ast.For):
        few, many = (_turns_of(node.iter, numbers) for numbers in pair)
        if isinstance(few, int) and isinstance(many, int) and few > 0:
            own = max(1.0, many / few)
    return own * max((_longest(child, pair) for child in ast.iter_child_nodes(node)), default=1.0)


def _turns(function: ast.FunctionDef, numbers: KernelNumbers) -> Iterator[np.ndarray | None]:
    """Yield the turns of each program for each loop that programs share; None: not known."""
    for node in function.body:
        if not isinstance(node, ast.For):
            continue
        turns = _turns_of(node.iter, numbers)
        if turns is None or isinstance(turns, np.ndarray):
            yield turns if not _has_uneven_loop(node, numbers) else None


def _turns_of(node: ast.expr, numbers: KernelNumbers) -> Number | None:
    if not isinstance(node, ast.Call) or numbers.function(node) not in _RANGES:
        return None
    if not {keyword.arg for keyword in node.keywords} <= _HINTS:
        return None
    ends = [numbers.of(argument) for argument in node.args]
    known = [end for end in ends if end is not None]
    if len(known) < len(ends) or not 1 <= len(known) <= 3:
        return None
    start, stop = (0, known[0]) if len(known) == 1 else known[:2]
    step = known[2] if len(known) == 3 else 1
    if np.min(step) < 1:
        return None
    turns = np.maximum(stop - start + step - 1, 0) // step
    return turns if turns.ndim else int(turns)


def _has_uneven_loop(loop: ast.For, numbers: KernelNumbers) -> bool:
    """True unless the loops within have as many turns in each turn and program."""
    inner = [node for node in ast.walk(loop) if isinstance(node, ast.For) and node is not loop]
    return any(not isinstance(_turns_of(node.iter, numbers), int) for node in inner)


def _leaves_out(node: ast.AST, constants: Collection[str]) -> bool:
    """True for what may leave a part of the work out in some programs."""
    if isinstance(node, ast.If):
        return any(isinstance(part, ast.Name) and part.id not in constants for part in ast.walk(node.test))
    return isinstance(node, _BRANCHES)
