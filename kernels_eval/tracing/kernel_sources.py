"""Tracing process: collects the source of a launched kernel, its callees and the constants that it names.

Works on the candidate's live objects. The result is checked where it is executed (kernels_eval.trace.kernel_syntax).
"""

import ast
import contextlib
import inspect
import linecache
import math
import re
import types
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
import triton.language.extra

from kernels_eval.interpreter.triton_patches.names import is_constexpr_function, is_kernel, is_noinline
from kernels_eval.sandbox import inductor_helpers
from kernels_eval.sandbox.candidate_source import FILE_NAME
from kernels_eval.trace.kernel_syntax import COMBINING, OF_CONSTANTS, annotation_names, free_names
from kernels_eval.trace.named_tuples import is_named_tuple
from kernels_eval.trace.source_functions import functions, text_of

_MISSING = object()
HELPER = "inductor_helper_"
"""Prefix of the names of Inductor's helpers in kernels."""


class UnknownGlobalError(Exception):
    """A kernel uses something that kernels cannot use, or its source is not found."""


class _Part(NamedTuple):
    name: str
    source: str
    line: int
    used: list[str]
    """Global names of its body."""
    annotations: list[str]
    """Global names of its annotations alone."""
    fields: list[str]
    """Fields of the named tuples of its file."""


def sequence_of(value: Any, items: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a list or tuple as encoded in a program, with its encoded items, and the fields of a named tuple.

    One with fields that no kernel can read (`_1`, of `namedtuple(…, rename=True)`) is sent as a plain tuple.
    """
    fields = getattr(value, "_fields", ())
    fields = () if any(field.startswith("_") for field in fields) else fields
    return {"kind": "sequence", "items": items} | ({"fields": list(fields)} if fields else {})


class KernelSources:
    """Numbers kernels and device functions in the order of first use. `fresh` holds those not sent yet."""

    def __init__(self) -> None:
        self.fresh: list[dict[str, Any]] = []
        self._numbers: dict[tuple[Any, str], int] = {}
        """Numbers by function and the meaning of its global names: with other ones it is another kernel."""
        self._parts: dict[Any, _Part] = {}
        self._open: set[Any] = set()
        """Functions whose callees are being numbered."""
        self._language = _members_of_the_language()
        self._trees: dict[str, tuple[int, dict[tuple[int, str], ast.FunctionDef]]] = {}

    def number_of(self, function: Any) -> int:
        """Return the number of a jit function. Raises UnknownGlobalError if it or a callee cannot be sent.

        A plain function, behind `tl.constexpr` or called by a function of constants, is one of constants itself.
        """
        plain = _plain_function(function)
        is_constant = function is plain or is_constexpr_function(function)
        part = self._part(plain)
        if plain in self._open:
            raise UnknownGlobalError(
                f"{part.name} calls itself: recursion is not interpreted, write a loop with tl.static_range"
            )
        self._open.add(plain)
        try:
            meanings = self._meanings(plain, part, is_constant)
        finally:
            self._open.discard(plain)
        key = plain, repr(meanings)
        known = self._numbers.get(key)
        if known is not None:
            return known
        number = self._numbers[key] = len(self._numbers)
        self.fresh.append(
            {
                "number": number,
                "name": part.name,
                "source": part.source,
                "line": part.line,
                "fields": part.fields,
                "is_constexpr_function": is_constant,
                "is_noinline": is_noinline(function),
                "globals": meanings,
            }
        )
        return number

    def _part(self, plain: types.FunctionType) -> "_Part":
        """Return what is the same for a function whatever its global names mean."""
        known = self._parts.get(plain)
        if known is None:
            node = self._definition(plain)
            source = text_of(node, linecache.getlines(plain.__code__.co_filename))
            line = node.lineno
            used = free_names(node)
            modules = [name for name in used if _lookup(plain, name) is inductor_helpers]
            if modules:
                source, node, used = with_helpers_by_name(source, modules)
            annotations = sorted(annotation_names(node) - used)
            classes = filter(is_named_tuple, list(plain.__globals__.values()))
            fields = sorted({field for each in classes for field in each._fields if field[0] != "_"})
            known = self._parts[plain] = _Part(node.name, source, line, sorted(used), annotations, fields)
        return known

    def _meanings(self, plain: types.FunctionType, part: "_Part", is_constant: bool) -> dict[str, Any]:
        named = {name: self._global(plain, name, is_constant) for name in part.used}
        for name in part.annotations:
            with contextlib.suppress(UnknownGlobalError):
                named[name] = self._global(plain, name, is_constant)
        return {name: value for name, value in named.items() if value is not None}

    def take_fresh(self) -> list[dict[str, Any]]:
        """Return the kernels that were not returned before, callees first."""
        fresh, self.fresh = self.fresh, []
        return fresh

    def encode(self, value: Any) -> dict[str, Any]:
        """Return a compile-time value as encoded in a program. Raises UnknownGlobalError if it is not one."""
        if isinstance(value, tl.constexpr):
            value = value.value
        if value is None or isinstance(value, bool | int | float | str):
            return {"kind": "plain", "value": _exactly_plain(value)}
        if isinstance(value, tl.dtype):
            return {"kind": "dtype", "name": str(value)}
        if is_kernel(value):
            return {"kind": "kernel", "kernel": self.number_of(value)}
        if isinstance(value, tuple | list):
            return sequence_of(value, [self.encode(item) for item in value])
        if isinstance(value, torch.dtype):
            raise UnknownGlobalError(f"{value} is a type of PyTorch, not of Triton")
        if type(value).__module__ == "numpy":
            return self.encode(value.item())
        raise UnknownGlobalError(f"a {type(value).__name__} is nothing that a kernel can use")

    def _global(self, function: types.FunctionType, name: str, is_constant: bool) -> dict[str, Any] | None:
        """Describe the value of a global name. Returns None if it is undefined or a Python built-in."""
        value = _lookup(function, name)
        if value is _MISSING:
            value = _helper(name)
        if value is _MISSING:
            return None
        return self.meaning(value, f"{function.__name__}: global name {name}", is_constant)

    def meaning(self, value: Any, place: str, is_constant: bool = False) -> dict[str, Any]:
        """Describe the value of a global name as encoded in a program. Raises UnknownGlobalError with its `place`.

        `is_constant`: a function of constants has the name. Such a function is Python, and may call plain functions.
        """
        if isinstance(value, types.ModuleType):
            found = _MODULES.get(value)
            if found is None:
                raise UnknownGlobalError(f"{place}: a kernel cannot use the module {value.__name__}")
            return {"kind": "module", "name": found}
        public = self._language.get(id(value))
        if public is None and is_constexpr_function(value):
            public = self._language.get(id(value.fn))
        if public is not None:
            return {"kind": "language", "name": public}
        if getattr(value, "__module__", None) in _LIBDEVICE and callable(value):
            return {"kind": "language", "name": value.__name__, "module": "libdevice"}
        if is_named_tuple(value):
            return self._named_tuple(value, place)
        if isinstance(value, torch.finfo | torch.iinfo):
            return {"kind": "limits", "name": str(value.dtype)}
        called = value.value if isinstance(value, tl.constexpr) else value if is_constant else None
        try:
            if isinstance(called, types.FunctionType):
                return {"kind": "kernel", "kernel": self.number_of(called)}
            encoded = self.encode(value)
        except UnknownGlobalError as error:
            raise UnknownGlobalError(f"{place}: {error}") from None
        # `NAME: tl.constexpr = 1.5` is no constant: Triton refuses it as any other plain global.
        return {"kind": "constexpr", "value": encoded} if isinstance(value, tl.constexpr) else encoded

    def _named_tuple(self, value: Any, place: str) -> dict[str, Any]:
        if any(field.startswith("_") for field in value._fields):
            raise UnknownGlobalError(f"{place}: a kernel cannot make a named tuple whose fields begin with _")
        defaults: list[dict[str, Any]] = []
        for name, default in value._field_defaults.items():
            defaults.append(self.meaning(default, f"{place}: default of {name}"))
            if defaults[-1]["kind"] not in ("plain", "dtype", "constexpr", "sequence"):
                raise UnknownGlobalError(f"{place}: default of {name}: neither a number, a type nor a constant")
        return {"kind": "named_tuple", "fields": list(value._fields), "defaults": defaults}

    def _definition(self, function: types.FunctionType) -> ast.FunctionDef:
        code = function.__code__
        if code.co_filename not in _FILES:
            raise UnknownGlobalError(f"{function.__name__} is not defined in the submitted file")
        lines = linecache.getlines(code.co_filename)
        known = self._trees.get(code.co_filename)
        if known is None or known[0] != len(lines):
            try:
                tree = ast.parse("".join(lines))
            except (SyntaxError, ValueError, RecursionError) as error:
                raise UnknownGlobalError(f"the source of {function.__name__} cannot be read") from error
            found = {
                (min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]), node.name): node
                for node in functions(tree)
            }
            known = self._trees[code.co_filename] = (len(lines), found)
        node = known[1].get((code.co_firstlineno, function.__name__))
        if node is None:
            raise UnknownGlobalError(f"the source of {function.__name__} is not to be found")
        return node


def with_helpers_by_name(source: str, modules: Iterable[str]) -> tuple[str, ast.FunctionDef, set[str]]:
    """Return a kernel in which members of Inductor's helpers have names of their own: kernels may use no such module.

    `triton_helpers.maximum(a, b)` becomes `inductor_helper_maximum(a, b)`, another function of the candidate's.
    `modules`: names of that module in the kernel.
    """
    for module in modules:
        source = re.sub(rf"\b{module}\.([a-z]\w*)", rf"{HELPER}\1", source)
    named = ast.parse(source).body[0]
    assert isinstance(named, ast.FunctionDef)
    return source, named, free_names(named)


def _helper(name: str) -> Any:
    """Return the helper of this name of `with_helpers_by_name`; _MISSING if there is none."""
    if not name.startswith(HELPER):
        return _MISSING
    value = getattr(inductor_helpers, name.removeprefix(HELPER), _MISSING)
    if value is _MISSING:
        raise UnknownGlobalError(f"triton_helpers.{name.removeprefix(HELPER)} is not known to the judge")
    return value


def _exactly_plain(value: bool | int | float | str | None) -> bool | int | float | str | None:
    """Convert instances of subclasses (an IntEnum, a NumPy float) to the plain type."""
    for plain in (bool, int, float, str):
        if isinstance(value, plain):
            return plain(value)
    return None


def _plain_function(function: Any) -> types.FunctionType:
    while not isinstance(function, types.FunctionType):
        inner = getattr(function, "fn", None)
        if inner is None:
            raise UnknownGlobalError(f"{function!r:.100} is no kernel")
        function = inner
    return function


def _lookup(function: types.FunctionType, name: str) -> Any:
    free = function.__code__.co_freevars
    if name in free:
        try:
            return (function.__closure__ or ())[free.index(name)].cell_contents
        except ValueError:
            return _MISSING
    return function.__globals__.get(name, _MISSING)


def _modules() -> dict[types.ModuleType, str]:
    found = {
        triton: "triton",
        tl: "triton.language",
        tl.core: "triton.language",
        tl.standard: "triton.language",
        tl.math: "triton.language.math",
        triton.language.extra: "triton.language.extra",
        math: "math",
    }
    from triton.language.extra import cuda, libdevice

    found |= {libdevice: "libdevice", cuda: "triton.language.extra"}
    for inner in (getattr(cuda, "libdevice", None), getattr(cuda, "utils", None)):
        if inspect.ismodule(inner):
            found[inner] = "libdevice"
    return found


HELPER_FILE = str(inductor_helpers.__file__)
linecache.getlines(HELPER_FILE)  # while it is the text that was imported
_FILES = (FILE_NAME, HELPER_FILE)
"""Files whose kernels can be launched."""
_MODULES = _modules()
_LIBDEVICE = frozenset(module.__name__ for module, name in _MODULES.items() if name == "libdevice")


def _members_of_the_language() -> dict[int, str]:
    """Return the names of the language's members by identity. To be asked after the interpreter has replaced some."""
    private = {
        id(getattr(module, name)): name
        for module in (tl.standard, tl.core)
        for name in (*OF_CONSTANTS, *COMBINING)
        if hasattr(module, name)
    }
    return private | {
        id(value): name
        for module in (tl.math, tl.core, tl.standard, tl)
        for name, value in vars(module).items()
        if not name.startswith("_") and hasattr(tl, name) and not isinstance(value, types.ModuleType | int | tl.dtype)
    }
