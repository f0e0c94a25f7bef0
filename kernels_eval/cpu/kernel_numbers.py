"""CPU worker: whole numbers that expressions of a kernel's text have in one launch, without running it.

A number may depend on the program: then it is an array with one for each program of the grid.
"""

import ast
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from kernels_eval.cpu.row_loops import kernel_tree, whole_number
from kernels_eval.trace.schema import KernelReference, KernelSource, LanguageName, LaunchKernel, ModuleName

Number = int | np.ndarray[Any, np.dtype[np.int64]]
_MOST_PROGRAMS = 1 << 20
_END = 1 << 31
"""Of the numbers that are followed: 32 bits of a kernel hold no more, and 64 any product of two of them."""
_BUILTINS = frozenset({"min", "max", "range"})
_LEAST = ("min", "minimum")
_LARGEST = ("max", "maximum")


class KernelNumbers:
    """Numbers of one launch of a kernel, or (`launch` is None) of a function that it calls."""

    def __init__(self, kernel: KernelSource, launch: LaunchKernel | None) -> None:
        self._globals = kernel.globals
        self._launch = launch
        function = kernel_tree(kernel.source).body[0]
        assert isinstance(function, ast.FunctionDef)
        self._parameters = {argument.arg for argument in function.args.args + function.args.kwonlyargs}
        self._values, self._names = _bindings(function)
        self._known: dict[str, Number | None] = {}
        """Of names that were asked for: `b = a + a; c = b + b; …` names each of them twice."""

    def of(self, node: ast.expr) -> Number | None:
        """Return the number, never negative, that an expression has; None if the text does not tell."""
        found = self._of(node, frozenset())
        return None if found is None or np.min(found) < 0 else found

    def is_own(self, name: str) -> bool:
        """Return whether a name stands for a value that the text gives it, or for a parameter that is no kernel."""
        given = None if self._launch is None else self._launch.arguments.get(name)
        return name in self._names or (name in self._parameters and not isinstance(given, KernelReference))

    def function(self, node: ast.Call) -> str | None:
        """Return the name of the function of Python or of Triton's language that is called; None for any other."""
        function = node.func
        if isinstance(function, ast.Name):
            known = self._globals.get(function.id)
            if isinstance(known, LanguageName):
                return known.name
            is_own = known is not None or function.id in self._parameters or function.id in self._names
            return function.id if function.id in _BUILTINS and not is_own else None
        if isinstance(function, ast.Attribute):
            root = function.value
            is_module = isinstance(root, ast.Name) and isinstance(self._globals.get(root.id), ModuleName)
            return function.attr if is_module or function.attr == "to" else None
        return None

    def _of(self, node: ast.expr, asked: frozenset[str]) -> Number | None:
        found = self._any(node, asked)
        return None if found is None or np.max(np.abs(found)) >= _END else found

    def _any(self, node: ast.expr, asked: frozenset[str]) -> Number | None:
        if isinstance(node, ast.Constant):
            return node.value if type(node.value) is int else None
        if isinstance(node, ast.Name):
            return self._named(node.id, asked)
        if isinstance(node, ast.BinOp):
            left, right = self._of(node.left, asked), self._of(node.right, asked)
            return None if left is None or right is None else _combined(node.op, left, right)
        return self._called(node, asked) if isinstance(node, ast.Call) else None

    def _named(self, name: str, asked: frozenset[str]) -> Number | None:
        if name in self._names:  # bound in the text: once, or its value depends on the place
            if name not in self._known:
                value = self._values.get(name)
                is_told = value is not None and name not in asked and name not in self._parameters
                self._known[name] = self._of(value, asked | {name}) if is_told and value is not None else None
            return self._known[name]
        if name in self._parameters:
            return None if self._launch is None else whole_number(self._launch.arguments.get(name))
        return whole_number(self._globals.get(name))

    def _called(self, node: ast.Call, asked: frozenset[str]) -> Number | None:
        name = self.function(node)
        if name == "to" and isinstance(node.func, ast.Attribute):
            return self._of(node.func.value, asked)
        values = [self._of(argument, asked) for argument in node.args]
        known = [value for value in values if value is not None]
        if name is None or len(known) < len(values) or node.keywords:
            return None
        if name in ("program_id", "num_programs") and len(known) == 1:
            return self._of_grid(name, known[0])
        if name == "cdiv" and len(known) == 2:
            return _combined(ast.FloorDiv(), known[0] + known[1] - 1, known[1])
        if name == "next_power_of_2" and len(known) == 1 and isinstance(known[0], int):
            return 1 << max(known[0] - 1, 0).bit_length()
        if name in _LEAST + _LARGEST and len(known) == 2:
            return _chosen(known[0], known[1], name in _LEAST)
        return None

    def _of_grid(self, name: str, axis: Number) -> Number | None:
        if self._launch is None or not isinstance(axis, int) or axis not in (0, 1, 2):
            return None
        grid = self._launch.grid
        if name == "num_programs":
            return grid[axis]
        if not 0 < math.prod(grid) <= _MOST_PROGRAMS:
            return None
        return np.indices(grid)[axis].ravel()


def _chosen(first: Number, second: Number, is_least: bool) -> Number:
    if isinstance(first, int) and isinstance(second, int):
        return min(first, second) if is_least else max(first, second)
    return np.minimum(first, second) if is_least else np.maximum(first, second)


def _combined(operator: ast.operator, left: Number, right: Number) -> Number | None:
    if isinstance(operator, ast.Add):
        return left + right
    if isinstance(operator, ast.Sub):
        return left - right
    if isinstance(operator, ast.Mult):
        return left * right
    if np.min(left) < 0 or np.min(right) <= 0:  # Triton rounds towards zero, Python does not
        return None
    if isinstance(operator, ast.FloorDiv):
        return left // right
    return left % right if isinstance(operator, ast.Mod) else None


def _bindings(function: ast.FunctionDef) -> tuple[Mapping[str, ast.expr], set[str]]:
    """Return the values of names that are bound once, by an assignment to them alone, and all names that are bound."""
    times: dict[str, int] = {}
    values: dict[str, ast.expr] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            times[node.id] = times.get(node.id, 0) + 1
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            values[node.targets[0].id] = node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            values[node.target.id] = node.value
    return {name: value for name, value in values.items() if times[name] == 1}, set(times)
