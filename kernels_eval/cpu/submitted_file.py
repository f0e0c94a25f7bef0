"""CPU worker: what a candidate's file says of its kernels, against which all that its tracing process sends is held.

The tracing process runs the candidate's code, which can replace every function in it: what it sends may be another
kernel's text, or another value of a global name. The worker parses the submitted file itself. A kernel has to be a
function of the file, with its text and line, and each global name has to mean what the file's statements say.

Not fixed by the file, and therefore taken as sent, as arguments of a launch are: a name that is bound more than once or
by an expression that has to run, and a variable of the function around a kernel.
"""

import ast
import functools
import importlib
import operator
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import triton
import triton.language as tl
from pydantic import TypeAdapter

from kernels_eval.error_categories import ErrorCategory
from kernels_eval.interpreter.triton_patches.names import is_kernel
from kernels_eval.sandbox import inductor_helpers
from kernels_eval.sandbox.child import CandidateFailedError
from kernels_eval.sandbox.source_lines import lines_of
from kernels_eval.trace.kernel_syntax import CONSTANT_BUILTINS, free_names
from kernels_eval.trace.schema import Global, KernelReference, KernelSource
from kernels_eval.trace.source_functions import functions, held_by, statements, text_of
from kernels_eval.tracing.kernel_sources import (
    HELPER,
    HELPER_FILE,
    KernelSources,
    UnknownGlobalError,
    with_helpers_by_name,
)
from kernels_eval.verdict import Status

_ANYTHING: Any = object()
"""Stands for a value that the file does not fix."""
_GLOBAL: TypeAdapter[Any] = TypeAdapter(Global)
_FILES_KEPT = 16
"""A candidate's sessions follow each other. More syntax trees cost the garbage collector more than parsing again."""
_ARITHMETIC: Mapping[type[ast.operator], Any] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}  # fmt: skip


class SubmittedFile:
    """Functions and module-level names of one source file."""

    def __init__(self, source: str, helpers: types.ModuleType | None = None) -> None:
        """`helpers`: the imported module, if the file is that of Inductor's helpers, which is the judge's own."""
        self._lines = lines_of(source)
        try:
            self._tree = ast.parse("".join(self._lines))
        except (SyntaxError, ValueError, RecursionError, MemoryError):  # then no kernel of it can be launched either
            self._tree = ast.Module([], [])
        self._helpers = helpers
        self._functions: dict[tuple[int, str], ast.FunctionDef] = {
            (node.lineno, node.name): node for node in functions(self._tree)
        }
        self._closures = dict(_closures(self._tree.body, frozenset()))
        """Names bound by the functions around each function."""
        self._bindings: dict[str, list[Any]] = {}
        for name, value in _bindings(self._tree.body):
            self._bindings.setdefault(name, []).append(value)
        every = list(statements(self._tree.body, into_functions=True))
        self._free_names = functools.cache(free_names)
        self._sources = KernelSources()
        self._changed = {name for node in every if isinstance(node, ast.Global) for name in node.names}
        self._is_open = "*" in self._bindings
        """An import of all names of a module may bind any."""

    def difference(self, kernel: KernelSource, known: Mapping[int, KernelSource]) -> str | None:
        """Return in what a kernel is not the file's own, or None. `known`: kernels that were accepted, by number."""
        node = self._functions.get((kernel.line, kernel.name))
        if node is None:
            return f"{kernel.name} is no function of the submitted file"
        source, names = text_of(node, self._lines), self._free_names(node)
        helpers = [name for name in names if self._value(node, name) is inductor_helpers]
        if helpers:
            source, _, names = with_helpers_by_name(source, helpers)
        if kernel.source != source:
            return f"{kernel.name} has another text than in the submitted file"
        kinds = [self._evaluated(decorator) for decorator in node.decorator_list]
        others = (triton.jit,) if kernel.is_constexpr_function else (triton.constexpr_function, tl.constexpr)
        if any(kind is other for kind in kinds for other in others):
            return f"{kernel.name} is of another kind than in the submitted file"
        for name, sent in kernel.globals.items():
            if not self._may_mean(node, name, sent, known):
                return f"{kernel.name}: {name} means something else than in the submitted file"
        hidden = sorted(names & CONSTANT_BUILTINS & self._bindings.keys() - kernel.globals.keys())
        return f"{kernel.name}: the submitted file's own {hidden[0]} is left out" if hidden else None

    def _may_mean(self, node: ast.FunctionDef, name: str, sent: Any, known: Mapping[int, KernelSource]) -> bool:
        if name.startswith(HELPER) and name not in self._bindings:
            value = getattr(inductor_helpers, name.removeprefix(HELPER), None)
        else:
            value = self._value(node, name)
        if value is _ANYTHING:
            return True
        choices = value if isinstance(value, _Choice) else [value]
        return any(_is_meant(each, sent, known, self._sources) for each in choices)

    def _value(self, node: ast.FunctionDef, name: str) -> Any:
        """Return what a name means within a function: a value, a `_Choice` of several, or _ANYTHING."""
        if name in self._closures[node] or name in self._changed or self._is_open:
            return _ANYTHING
        if self._helpers is not None:
            return getattr(self._helpers, name, None)
        values = [self._evaluated(value) for value in self._bindings.get(name, [])]
        if any(value is _ANYTHING for value in values):
            return _ANYTHING
        return values[0] if len(values) == 1 else _Choice(values)

    def _evaluated(self, value: Any) -> Any:
        try:
            return self._value_of(value)
        except (ArithmeticError, AttributeError, ImportError, TypeError, ValueError, RecursionError):
            return _ANYTHING

    def _value_of(self, value: Any) -> Any:
        """Return the value of an expression whose value its text fixes; _ANYTHING if it does not."""
        if isinstance(value, ast.Constant) and isinstance(value.value, bool | int | float | str | None):
            return value.value
        if isinstance(value, ast.Tuple | ast.List):
            items = [self._value_of(item) for item in value.elts]
            return _ANYTHING if any(item is _ANYTHING for item in items) else items
        if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub):
            return -_number(self._value_of(value.operand))
        if isinstance(value, ast.BinOp) and type(value.op) in _ARITHMETIC:
            left, right = (_number(self._value_of(side)) for side in (value.left, value.right))
            return _ARITHMETIC[type(value.op)](left, right)
        if isinstance(value, ast.Call):
            is_constant = self._value_of(value.func) is tl.constexpr and len(value.args) == 1 and not value.keywords
            inner = self._value_of(value.args[0]) if is_constant else _ANYTHING
            return inner if inner is _ANYTHING or isinstance(inner, ast.FunctionDef) else tl.constexpr(inner)
        if isinstance(value, ast.Attribute):
            owner = self._value_of(value.value)
            return getattr(owner, value.attr) if isinstance(owner, types.ModuleType) else _ANYTHING
        if isinstance(value, ast.Name):
            known = self._bindings.get(value.id, [])
            return self._value_of(known[0]) if len(known) == 1 and value.id not in self._changed else _ANYTHING
        if isinstance(value, _Imported):
            return value.found()
        return value if isinstance(value, ast.FunctionDef) and self._is_plain(value) else _ANYTHING

    def _is_plain(self, function: ast.FunctionDef) -> bool:
        """True if a function's name stands for it: all decorators are Triton's."""
        called = [each.func if isinstance(each, ast.Call) else each for each in function.decorator_list]
        return all(str(getattr(self._evaluated(each), "__module__", "")).startswith("triton") for each in called)


class _Choice(list[Any]):
    """Values of which a name has one."""


class _Imported:
    """A name that an import binds."""

    def __init__(self, module: str, name: str | None) -> None:
        self._module = module
        self._name = name

    def found(self) -> Any:
        """Return what is imported, if kernels can use it; _ANYTHING else."""
        if self._module.endswith("_inductor.runtime.triton_helpers") and self._name is not None:
            return getattr(inductor_helpers, self._name)
        if self._name == "triton_helpers" and "_inductor" in self._module:
            return inductor_helpers
        top = self._module.partition(".")[0]
        if top not in ("triton", "math"):
            return _ANYTHING
        module = importlib.import_module(self._module)
        return module if self._name is None else getattr(module, self._name)


def _is_meant(value: Any, sent: Any, known: Mapping[int, KernelSource], sources: KernelSources) -> bool:
    """Return whether a meaning that was sent is that of a value. `sources`: any; they describe values."""
    if isinstance(value, ast.FunctionDef) or _is_helper(value):
        kernel = known.get(sent.kernel) if isinstance(sent, KernelReference) else None
        if kernel is None:
            return False
        if isinstance(value, ast.FunctionDef):
            return (kernel.line, kernel.name) == (value.lineno, value.name)
        return kernel.name == value.__name__ and helper_file().difference(kernel, known) is None
    try:
        meaning = sources.meaning(value, "")
    except UnknownGlobalError:
        return False
    return repr(_GLOBAL.validate_python(meaning)) == repr(sent)  # 1, 1.0 and True are equal, and not the same


def _is_helper(value: Any) -> bool:
    return is_kernel(value) and value.__module__ == inductor_helpers.__name__


def _number(value: Any) -> Any:
    if type(value) not in (int, float):
        raise TypeError
    return value


def _bindings(body: Sequence[ast.AST]) -> Iterator[tuple[str, Any]]:
    """Yield the names that statements bind in their own scope, with an expression, a function or an import."""
    for node in statements(body, into_functions=False):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node
        elif isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                yield alias.asname or top, _Imported(alias.name if alias.asname else top, None)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                found = _Imported(node.module or "", alias.name) if not node.level else _ANYTHING
                yield alias.asname or alias.name, found
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            if node.value is not None:
                yield node.target.id, node.value
        else:
            yield from ((name, _ANYTHING) for name in _stored(node))


def _stored(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement binds otherwise; those of the statements that it holds apart."""
    held = {id(part) for part in held_by(node)}
    waiting = [node]
    while waiting:
        part = waiting.pop()
        waiting += [child for child in ast.iter_child_nodes(part) if id(child) not in held]
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store | ast.Del):
            yield part.id
        elif isinstance(part, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and part.name is not None:
            yield part.name
        elif isinstance(part, ast.MatchMapping) and part.rest is not None:
            yield part.rest


def _closures(body: Sequence[ast.AST], around: frozenset[str]) -> Iterator[tuple[ast.FunctionDef, frozenset[str]]]:
    """Yield each function with the names that the functions around it bind."""
    for node in statements(body, into_functions=False):
        if isinstance(node, ast.ClassDef):
            yield from _closures(node.body, around)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if isinstance(node, ast.FunctionDef):
                yield node, around
            arguments = {part.arg for part in ast.walk(node.args) if isinstance(part, ast.arg)}
            bound = arguments | {name for name, _ in _bindings(node.body)}
            yield from _closures(node.body, around | bound)


@functools.lru_cache(maxsize=_FILES_KEPT)
def submitted_file(source: str) -> SubmittedFile:
    """Return a candidate's file, parsed once."""
    return SubmittedFile(source)


@functools.cache
def helper_file() -> SubmittedFile:
    """Return the file of Inductor's helpers, which kernels may call beside their own."""
    return SubmittedFile(Path(HELPER_FILE).read_text(encoding="utf-8"), inductor_helpers)


def check_kernel(file: SubmittedFile, kernel: KernelSource, known: Mapping[int, KernelSource]) -> None:
    """Raise CandidateFailedError unless a kernel that a tracing process sent is the submitted file's own.

    `known`: those that were accepted before, by number.
    """
    difference = f"kernel {kernel.number} was sent twice" if kernel.number in known else file.difference(kernel, known)
    if difference is not None and (kernel.number in known or helper_file().difference(kernel, known) is not None):
        raise CandidateFailedError(Status.REJECTED, ErrorCategory.OTHER_SOURCE, difference)
