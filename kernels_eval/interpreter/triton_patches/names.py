"""Triton's private names: classes, functions and attributes that Triton may change in any release.

The modules of this folder use them directly. All other code calls the functions of this module, the only ones that a
new release of Triton may affect. tests/unit/kernels_eval/interpreter/test_triton_names.py checks each name against the
installed release.
"""

import ast
import contextlib
import dataclasses
from collections.abc import Callable, Collection, Generator, Iterator
from types import FunctionType
from typing import Any

import numpy as np
import triton
import triton.language as tl
import triton.runtime.jit
from triton.backends.amd.compiler import HIPOptions
from triton.backends.nvidia.compiler import CUDAOptions
from triton.language import core as _core
from triton.language.semantic import TritonSemantic as _TritonSemantic
from triton.runtime import _allocation
from triton.runtime import driver as _driver
from triton.runtime import interpreter as _interpreter
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import ConstexprFunction, JITFunction, KernelInterface

upstream: Any = _interpreter
"""Triton's interpreter: runs a kernel's Python on NumPy arrays. Untyped, as everything here is private to Triton."""
language: Any = _core
"""Module behind `triton.language`: types, tensors and their constructors."""
semantic: Any = _TritonSemantic
"""Class with the type rules of each operation: promotion and broadcasting of operands."""
_runtime_driver: Any = _driver
OPTIONS: frozenset[str] = frozenset(
    field.name for options in (CUDAOptions, HIPOptions) for field in dataclasses.fields(options)
)
"""Keyword arguments of a launch that one of Triton's vendors takes beside those of the kernel."""


def is_kernel(value: Any) -> bool:
    """Return True for results of `@triton.jit` and `@triton.constexpr_function`, interpreted or not."""
    return isinstance(value, upstream.InterpretedFunction | JITFunction | ConstexprFunction)


def is_constexpr_function(value: Any) -> bool:
    """Return True for a result of `@triton.constexpr_function`."""
    return isinstance(value, ConstexprFunction)


def is_noinline(value: Any) -> bool:
    """Return True for a result of `@triton.jit(noinline=True)`: it stays a function of its own."""
    return bool(getattr(value, "kwargs", {}).get("noinline") or getattr(value, "noinline", False))


def compiled_function(function: FunctionType, is_constexpr: bool, noinline: bool = False) -> Any:
    """Wrap a plain function for Triton's compiler, as its decorators do if nothing is interpreted."""
    return ConstexprFunction(function) if is_constexpr else JITFunction(function, noinline=noinline or None)


def parameter_names(function: Any) -> list[str]:
    """Return the names of a jit function's parameters, in order."""
    return list(function.arg_names)


def rewritten(function: ast.FunctionDef) -> Any:
    """Return a kernel's syntax tree as the interpreter runs it: assignments and comparisons keep Triton's types."""
    return upstream.FunctionRewriter.ast_transformer.visit(function)


def interpreter_globals(names: Collection[str]) -> dict[str, Any]:
    """Return those of the names that `rewritten` code refers to and that this release has (3.8 added one)."""
    return {name: getattr(upstream, name) for name in names if hasattr(upstream, name)}


def runtime_value(value: Any) -> Any:
    """Return a number, tuple or tensor descriptor that a launch passes in the form that a compiled kernel gets.

    A bool becomes an int1 tensor; an int an int32 tensor if it fits, else int64 or uint64; a float a float32 tensor.
    The int 1 stays as it is, since Triton compiles it in.
    """
    if isinstance(value, bool):
        return scalar(value, np.bool_, tl.int1)
    if isinstance(value, float):
        return scalar(value, np.float32, tl.float32)
    if isinstance(value, int):
        return value if value == 1 else _integer(value)
    return upstream._implicit_cvt(value)


def scalar(value: Any, numpy_type: Any, dtype: tl.dtype) -> Any:
    """Return a number as a scalar tensor of the interpreter."""
    handle = upstream.TensorHandle(np.array([value], dtype=numpy_type), dtype)
    return tl.tensor(handle, dtype)  # pyright: ignore[reportArgumentType]


def _integer(value: int) -> Any:
    if -(2**31) <= value < 2**31:
        return scalar(value, np.int32, tl.int32)
    return scalar(value, np.int64, tl.int64) if value < 2**63 else scalar(value, np.uint64, tl.uint64)


def replace_launcher(run: Callable[..., Any]) -> None:
    """Replace `kernel[grid](...)` of all interpreted kernels by `run(kernel, *args, grid=, warmup=, **kwargs)`."""
    upstream.InterpretedFunction.run = run


def stand_for_compiled() -> None:
    """Let host code that asks whether a kernel is a `triton.JITFunction` find what it finds on a GPU."""
    modules: tuple[Any, ...] = (triton, triton.runtime, triton.runtime.jit)
    # Triton's modules that are imported later may derive classes from it, with a parameter.
    stand_in = _Compiled("JITFunction", (JITFunction,), {_STANDS_IN: True, "__class_getitem__": classmethod(_itself)})
    for module in modules:
        module.JITFunction = stand_in


class _Compiled(type):
    """Class of a class whose instances are jit functions, interpreted or not."""

    def __instancecheck__(cls, instance: Any) -> bool:
        is_kernel_too = _STANDS_IN in vars(cls) and isinstance(instance, upstream.InterpretedFunction | JITFunction)
        return is_kernel_too or super().__instancecheck__(instance)


_STANDS_IN = "_stands_in_for_compiled"


def _itself(cls: Any, _: Any) -> Any:
    return cls


def watch_definitions(see: Callable[[], None]) -> None:
    """Call a function whenever a kernel is defined, before Triton reads the kernel's source."""
    define = upstream.InterpretedFunction.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        see()
        define(self, *args, **kwargs)

    upstream.InterpretedFunction.__init__ = init


def pre_run_hooks(kernel: Any) -> list[Callable[..., Any]]:
    """Return the functions to call before a launch of an interpreted kernel."""
    return kernel.pre_run_hooks


class WarmedKernel:
    """Stand-in for the result of `kernel.warmup(...)` or of a launch: resource figures that host code reads."""

    n_regs = 32
    n_spills = 0

    def _init_handles(self) -> None:
        """Do nothing: there is no module to load. Host code calls it before it reads the figures."""


def has_allocator() -> bool:
    """Return whether host code has set an allocator for what kernels need beside their arguments."""
    return not isinstance(_allocation._allocator.get(), _allocation.NullAllocator)  # pyright: ignore[reportPrivateUsage]


def set_driver(driver: Any) -> None:
    """Make an object this process's driver, which host code asks for its device, stream and properties."""
    _runtime_driver.set_active(driver)


def load_driver() -> None:
    """Load Triton's launcher for this device. It is built once and found in the shared cache afterwards."""
    active = _runtime_driver.active
    active.get_current_device()
    active.get_current_target()
    _ = active.utils


@contextlib.contextmanager
def launches_suppressed() -> Generator[None]:
    """Launch no compiled kernel while the context is active."""
    function: Any = JITFunction
    run = function.run
    function.run = lambda self, *args, **kwargs: None
    try:
        yield
    finally:
        function.run = run


@contextlib.contextmanager
def launches_compiled(driver: Any) -> Generator[None]:
    """Have launches compile their kernels for the target that a driver names, and launch nothing."""
    function: Any = JITFunction
    run = function.run

    def compile_alone(self: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        return run(self, *args, grid=grid, warmup=True, **kwargs)

    set_driver(driver)
    function.run = compile_alone
    try:
        yield
    finally:
        function.run = run


def configurations(value: Any) -> int:
    """Return how many configurations an autotuned kernel has; 0 for anything else."""
    count = 0
    while isinstance(value, KernelInterface):
        count += len(value.configs) if isinstance(value, Autotuner) else 0
        value = getattr(value, "fn", None)
    return count


def compiled_kernels(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield name and compiled kernel of each variant of a jit function, also inside autotuners and heuristics."""
    while value is not None and not isinstance(value, JITFunction) and hasattr(value, "fn"):
        value = value.fn
    if isinstance(value, JITFunction):
        caches: dict[Any, Any] = getattr(value, "device_caches", {})
        for cached in caches.values():
            for kernel in dict(cached[0]).values():
                if hasattr(kernel, "asm"):
                    yield value.fn.__name__, kernel
