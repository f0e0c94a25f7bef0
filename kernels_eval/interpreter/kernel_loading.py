"""Interpreter and compiler processes: make functions from the sources of kernels (KernelSource).

A source runs only if kernels_eval.trace.kernel_syntax accepts all of it. Its global names have the meanings that the
kernel declares, and no others.
"""

import ast
import linecache
import math
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from kernels_eval.interpreter.triton_patches import control_flow
from kernels_eval.interpreter.triton_patches.interpreter import DeviceFunction
from kernels_eval.interpreter.triton_patches.libdevice import InterpretedLibdevice
from kernels_eval.interpreter.triton_patches.names import compiled_function, interpreter_globals, rewritten
from kernels_eval.sandbox.candidate_source import FILE_NAME
from kernels_eval.sandbox.source_lines import lines_of
from kernels_eval.sandbox.tensor_bytes import DTYPES
from kernels_eval.trace.kernel_syntax import (
    BUILTINS,
    COMBINING,
    CONSTANT_BUILTINS,
    INTERPRETER_NAMES,
    LIMITS,
    OF_CONSTANTS,
    checked_tree,
    constexpr_parameters,
    own_field,
    parameters,
)
from kernels_eval.trace.named_tuples import named_tuple, with_renamed_fields
from kernels_eval.trace.schema import (
    Constexpr,
    KernelReference,
    KernelSource,
    LanguageName,
    Limits,
    ModuleName,
    NamedTupleClass,
    Plain,
    Sequence,
    TypeName,
)

_MODULES: dict[str, Any] = {
    "triton": triton,
    "triton.language": tl,
    "triton.language.math": tl.math,
    "triton.language.extra": tl.extra,
    "libdevice": libdevice,
    "math": math,
}
_DTYPES = {str(value): value for value in vars(tl).values() if isinstance(value, tl.dtype)}
_builtins: Any = __builtins__
_CONSTANT_BUILTINS = {name: getattr(_builtins, name, None) or _builtins[name] for name in CONSTANT_BUILTINS} | {
    "print": lambda *_, **__: None
}
_SAFE_BUILTINS = {name: _CONSTANT_BUILTINS[name] for name in BUILTINS}


class KernelLibrary:
    """Loaded kernels by number. `wrap` turns a plain function into one that kernels can call."""

    def __init__(self, wrap: Callable[[types.FunctionType, KernelSource, ast.FunctionDef], Any], for_interpreter: bool):
        self._wrap = wrap
        self._for_interpreter = for_interpreter
        self._functions: dict[int, Any] = {}
        self._lines: list[str] = []

    def __getitem__(self, number: int) -> Any:
        """Return a loaded function; raises KeyError if the number is unknown."""
        return self._functions[number]

    def load(self, kernels: Iterable[KernelSource]) -> None:
        """Load kernels, callees before callers. Raises ForbiddenSyntaxError if one uses syntax that is not allowed."""
        for kernel in kernels:
            self._remember_lines(kernel)  # a message on what is not allowed quotes them
            function = checked_tree(kernel)
            if kernel.fields:
                classes = {name for name, value in kernel.globals.items() if isinstance(value, NamedTupleClass)}
                source = with_renamed_fields(kernel.source, kernel.line, function, classes)
                kernel = kernel.model_copy(update={"source": source})
                self._remember_lines(kernel)
            self._functions[kernel.number] = self._wrap(self._define(kernel, function), kernel, function)

    def value_of(self, value: Any) -> Any:
        """Return the value of a declared global or of a compile-time argument."""
        if isinstance(value, ModuleName):
            return self._module(value.name)
        if isinstance(value, LanguageName):
            if value.name in OF_CONSTANTS:
                return self._of_constants(getattr(tl.standard, value.name, None) or getattr(tl.core, value.name))
            return getattr(tl.standard if value.name in COMBINING else self._module(value.module), value.name)
        if isinstance(value, Limits):
            return limits_of(value.name)
        if isinstance(value, Constexpr):
            return tl.constexpr(self.value_of(value.value))
        if isinstance(value, KernelReference):
            return self._functions[value.kernel]
        if isinstance(value, TypeName):
            return dtype_named(value.name)
        if isinstance(value, Sequence):
            return tuple_of([self.value_of(item) for item in value.items], value.fields)
        if isinstance(value, NamedTupleClass):
            defaults = [
                self.value_of(default) for default in value.defaults[: len(value.fields)]
            ]  # hostile ones may be more
            return named_tuple(map(own_field, value.fields), defaults)
        assert isinstance(value, Plain)
        return value.value

    def _of_constants(self, function: Any) -> Any:
        """Return a function of constants as it is called: Triton's compiler calls no plain one."""
        is_plain = isinstance(function, types.FunctionType) and not self._for_interpreter
        return compiled_function(function, is_constexpr=True) if is_plain else function

    def _module(self, name: str) -> Any:
        return InterpretedLibdevice if self._for_interpreter and name == "libdevice" else _MODULES[name]

    def _define(self, kernel: KernelSource, function: ast.FunctionDef) -> types.FunctionType:
        own = _CONSTANT_BUILTINS if kernel.is_constexpr_function else _SAFE_BUILTINS
        namespace: dict[str, Any] = {"__builtins__": own, "__name__": "candidate"}
        namespace |= {name: self.value_of(value) for name, value in kernel.globals.items()}
        if self._for_interpreter and not kernel.is_constexpr_function:
            namespace |= interpreter_globals(INTERPRETER_NAMES) | control_flow.GLOBALS
            namespace["__builtins__"] = _SAFE_BUILTINS | control_flow.BUILTINS
            variables = {name for name, value in kernel.globals.items() if isinstance(value, Plain | Limits)}
            function = rewritten(control_flow.rewrite(function, variables))
        annotations = [(argument, argument.annotation) for argument in parameters(function)]
        returns, function.returns = function.returns, None
        for argument, _ in annotations:
            argument.annotation = None
        code = compile(ast.fix_missing_locations(ast.Module([function], [])), FILE_NAME, "exec")
        exec(code, namespace)
        for argument, annotation in annotations:
            argument.annotation = annotation
        function.returns = returns
        return namespace[kernel.name]

    def _remember_lines(self, kernel: KernelSource) -> None:
        """Put the source in the cache in which tracebacks and Triton's compiler look for it."""
        lines = lines_of(kernel.source)
        start, end = kernel.line - 1, kernel.line - 1 + len(lines)
        self._lines += ["\n"] * (end - len(self._lines))
        self._lines[start:end] = lines
        linecache.cache[FILE_NAME] = (sum(map(len, self._lines)), None, self._lines, FILE_NAME)


def interpreted(function: types.FunctionType, kernel: KernelSource, tree: ast.FunctionDef) -> Any:
    """Wrap a function for the interpreter."""
    if kernel.is_constexpr_function:
        return _on_constants(function)
    names = tuple(argument.arg for argument in parameters(tree))
    return DeviceFunction(function, frozenset(constexpr_parameters(tree)), names)


def tuple_of(items: Iterable[Any], fields: tuple[str, ...]) -> Any:
    """Return a tuple, a named one if it has fields."""
    return named_tuple(map(own_field, fields))(*items) if fields else tuple(items)


def dtype_named(name: str) -> tl.dtype:
    """Return Triton's type of a name (`fp32`, `pointer<fp32>`); raises ValueError if the name is unknown."""
    if name.startswith("pointer<") and name.endswith(">"):
        return tl.pointer_type(dtype_named(name[8:-1]))
    if name not in _DTYPES:
        raise ValueError(f"{name} is no type of Triton")
    return _DTYPES[name]


def limits_of(name: str) -> types.SimpleNamespace:
    """Return the numbers of `torch.finfo` or `torch.iinfo` of a type of PyTorch, by its name."""
    dtype = DTYPES[name]
    limits: Any = (torch.finfo if dtype.is_floating_point or dtype.is_complex else torch.iinfo)(dtype)
    return types.SimpleNamespace(**{member: getattr(limits, member, None) for member in LIMITS})


def _on_constants(function: types.FunctionType) -> Callable[..., Any]:
    """A function that runs at compile time, on plain values."""

    def plain(value: Any) -> Any:
        return value.value if isinstance(value, tl.constexpr) else value

    return lambda *args, **kwargs: function(*map(plain, args), **{name: plain(v) for name, v in kwargs.items()})
