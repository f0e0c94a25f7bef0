"""Interpreter process: Triton's interpreter, faster and with counts. Installed once, in the fork server.

- A launch runs with its tensors in place (upstream copies each storage twice). `triton.language` is patched once
  (upstream patches it on every launch and every device-function call: a third of the time of a small kernel).
- Every access is checked and counted (kernels_eval.interpreter.memory_accesses), every operation is counted
  (`operation_counts`).
"""

import dataclasses
import inspect
import types as python_types
from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl

from kernels_eval.interpreter.memory_accesses import record_access
from kernels_eval.interpreter.triton_patches import (
    arithmetic,
    batched_builder,
    control_flow,
    dependent_launches,
    descriptors,
    dot_scaled,
    float8,
    inline_asm,
    made_pointers,
    map_elementwise,
    open_order,
    operation_counts,
    programs,
    types,
)
from kernels_eval.interpreter.triton_patches.dot_precision import DOT_PRECISION
from kernels_eval.interpreter.triton_patches.names import upstream
from kernels_eval.interpreter.triton_patches.undefined_lanes import undefined


class KernelError(Exception):
    """Raised if a kernel failed while it was interpreted; the cause is the kernel's exception."""

    def __init__(self, kernel: str) -> None:
        super().__init__(kernel)
        self.kernel = kernel


class DeviceFunction(upstream.InterpretedFunction):
    """A function of the candidate that the interpreter runs. `fn` is the Python function."""

    def __init__(self, function: python_types.FunctionType, constexprs: frozenset[str], names: tuple[str, ...]) -> None:
        self.fn = function
        self.constexprs = constexprs
        """Names of its compile-time parameters."""
        self.names = names
        """Names of all its parameters."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it as a call from another kernel."""
        return self.fn(*args, **kwargs)


def install() -> None:
    """Patch Triton's interpreter in this process (TRITON_INTERPRET=1 must be set before triton is imported)."""
    types.install()
    upstream._patch_attr = _patch_builtin_directly
    scope = upstream._LangPatchScope()
    builder = upstream.interpreter_builder
    for language in (tl, tl.core):
        upstream._patch_builtin(language, builder, scope)
        upstream._patch_builtin(language.tensor, builder, scope)
        upstream._patch_lang_tensor(language.tensor, scope)
        upstream._patch_lang_core(language, scope)
    _patch_methods_of_math(builder, scope)
    # Triton 3.6 passes NumPy an array of one element here. NumPy 2.4 rejects it: `for k in range(0, K, BLOCK)` would
    # fail.
    scope.set_attr(tl.tensor, "__index__", lambda self: int(self.handle.data.squeeze()))
    upstream._patch_builtin(tl.math, builder, scope)
    upstream._patch_builtin(tl.core.tensor_descriptor_base, builder, scope)
    upstream.InterpretedFunction.__call__ = _call_device_function
    upstream.InterpreterBuilder.create_masked_load = _masked_load
    upstream.InterpreterBuilder.create_masked_store = _masked_store
    upstream.InterpreterBuilder.create_dot = _dot
    upstream.InterpreterBuilder.get_all_ones_value = _all_ones
    for name, compare in list(vars(upstream.InterpreterBuilder).items()):
        if name.startswith(("create_icmp", "create_fcmp")):
            setattr(upstream.InterpreterBuilder, name, _truth_values(compare))
    arithmetic.install()
    float8.install()
    made_pointers.install()
    open_order.install()
    inline_asm.install()
    dot_scaled.install()
    descriptors.install()
    map_elementwise.install()
    programs.install()
    control_flow.install()
    operation_counts.install()
    dependent_launches.install()
    for language in (tl, tl.core):
        language.dot = _in_default_precision(language.dot)  # pyright: ignore[reportAttributeAccessIssue]
    upstream._get_np_dtype = _numpy_type
    # Upstream checks every integer operation for overflow in 64 bits, which the compiled kernel does not do either.
    builder.options = dataclasses.replace(
        builder.options, sanitize_overflow=False, allowed_dot_input_precisions=_PRECISIONS
    )
    for library in (tl.standard, tl.math):
        for function in list(vars(library).values()):
            if isinstance(function, upstream.InterpretedFunction):
                function.rewrite()
    batched_builder.install()


def _patch_builtin_directly(owner: Any, name: str, member: Any, builder: Any, scope: Any) -> None:
    """Install a function of the language, bound to the interpreter, without the two wrappers that upstream keeps."""
    plain: Any = getattr(member, "__wrapped__", member)  # checks of types are further in
    semantic: Any = upstream.interpreter_semantic

    def call(*args: Any, **kwargs: Any) -> Any:
        kwargs["_semantic"] = semantic
        return plain(*args, **kwargs)

    scope.set_attr(owner, name, call)


def _patch_methods_of_math(builder: Any, scope: Any) -> None:
    """Bind `x.exp()` and its like to the interpreter: the compiler does so for any method, upstream for builtins."""
    for name, member in inspect.getmembers(tl.tensor, inspect.isfunction):
        if "_semantic" in inspect.signature(member).parameters:
            _patch_builtin_directly(tl.tensor, name, _of_floats(member), builder, scope)


def _of_floats(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of a tensor that refuses whole numbers, as the compiler does after Triton's own checks."""

    def method(x: Any, **kwargs: Any) -> Any:
        if not x.dtype.is_floating():
            raise TypeError(f"expected a tensor of floating-point numbers, not of {x.dtype}")
        return function(x, **kwargs)

    return method


def _numpy_type(dtype: Any) -> np.dtype[Any]:
    """Return NumPy's type for a Triton type. Upstream builds a table of all types on every call."""
    scalar = dtype.scalar
    return _POINTER if scalar.is_ptr() else _NUMPY_TYPES[scalar.name]


def _call_device_function(self: Any, *args: Any, **kwargs: Any) -> Any:
    return self.rewrite()(*args, **kwargs)


def pointer(address: int, dtype_name: str) -> Any:
    """Return the pointer that a kernel gets for a tensor. `dtype_name`: Triton's name, e.g. `fp32`."""
    dtype = _POINTERS.get(dtype_name)
    if dtype is None:
        dtype = _POINTERS[dtype_name] = tl.str_to_ty(f"*{dtype_name}", None)
    return tl.tensor(upstream.TensorHandle(np.array([address], dtype=np.uint64), dtype), dtype)  # pyright: ignore[reportArgumentType]


# Triton 3.7 and 3.9 differ: the cache hints, which mean nothing here, are two arguments or one; a block pointer's mask
# is a plain array or a handle, whose `data` are lanes to NumPy either way.
def _truth_values(compare: Callable[..., Any]) -> Callable[..., Any]:
    """Return a comparison whose result is of the type of truth values. Upstream's has that of the operands.

    A scalar one that meets a block would be spread as numbers, which `&` and `|` refuse if they are floating-point.
    """

    def compared(self: Any, lhs: Any, rhs: Any) -> Any:
        result = compare(self, lhs, rhs)
        result.dtype = tl.int1
        return result

    return compared


def _masked_load(self: Any, ptrs: Any, mask: Any, other: Any, *hints: Any, **named: Any) -> Any:
    lanes = np.asarray(mask.data, dtype=bool)  # of a block and a scalar: numbers
    is_volatile = bool(named.get("is_volatile", hints[-1] if hints else False))
    record_access(ptrs, lanes, reads=True, writes=False, is_volatile=is_volatile)
    dtype_tt = ptrs.get_element_ty()
    dtype_np = upstream._get_np_dtype(dtype_tt)
    if other is None:
        other = upstream.TensorHandle(undefined(ptrs.data.shape, dtype_tt, dtype_np, lanes), dtype_tt)
    loaded = upstream._interpreter.load(ptrs.data, lanes, other.data, dtype_np)
    if is_volatile:
        programs.note_volatile(ptrs, loaded)
    return upstream.TensorHandle(loaded, dtype_tt)


def _masked_store(self: Any, ptrs: Any, value: Any, mask: Any, *hints: Any, **named: Any) -> Any:
    lanes = np.asarray(mask.data, dtype=bool)  # of a block and a scalar: numbers
    record_access(ptrs, lanes, reads=False, writes=True, values=value.data)
    return upstream._interpreter.store(ptrs.data, value.data, lanes)


def _all_ones(self: Any, type: Any) -> Any:
    """Return -1 of a signed type, and the largest number of the others (upstream raises for those)."""
    dtype = upstream._get_np_dtype(type)
    value = True if dtype.kind == "b" else -1 if dtype.kind == "i" else np.iinfo(dtype).max
    return upstream.TensorHandle(np.full(1, value, dtype=dtype), type.scalar)


def _dot(self: Any, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any) -> Any:
    if input_precision == _TF32 and a.data.dtype == np.float32:
        a = upstream.TensorHandle(arithmetic.to_tf32(a.data), a.dtype)
        b = upstream.TensorHandle(arithmetic.to_tf32(b.data), b.dtype)
    if d.data.dtype == np.float16:
        return _dot_in_halves(a, b, d)
    terms = _TERMS.get(input_precision, 1) if a.data.dtype == np.float32 else 1
    if terms == 1:
        return _upstream_dot(self, a, b, d, input_precision, max_num_imprecise_acc)
    left, right = (arithmetic.bfloat16_terms(each, terms) for each in (a, b))
    for total in reversed(range(terms)):  # small products first
        for first in range(total + 1):
            d = _upstream_dot(self, left[first], right[total - first], d, input_precision, max_num_imprecise_acc)
    return d


def _dot_in_halves(a: Any, b: Any, d: Any) -> Any:
    """Multiply into a sum of float16, which is rounded after each step of the matrix unit."""
    left, right, total = a.data.astype(np.float32), b.data.astype(np.float32), d.data
    with np.errstate(all="ignore"):
        for first in range(0, left.shape[-1], _STEP):
            product = np.matmul(left[..., first : first + _STEP], right[..., first : first + _STEP, :])
            total = (product + total.astype(np.float32)).astype(np.float16)
    return upstream.TensorHandle(total, d.dtype.scalar)


def _in_default_precision(dot: Any) -> Any:
    """Compute `tl.dot`; in the targets' own precision where the kernel names none."""

    def call(
        input: Any,
        other: Any,
        acc: Any = None,
        input_precision: Any = None,
        allow_tf32: Any = None,
        *rest: Any,
        **named: Any,
    ) -> Any:
        if input_precision is None and allow_tf32 is None:
            input_precision = DOT_PRECISION.chosen(input.dtype)
        operation_counts.count_product(input, other, input_precision, allow_tf32)
        return dot(input, other, acc, input_precision, allow_tf32, *rest, **named)

    return call


_TF32: Any = upstream._ir.INPUT_PRECISION.TF32
_STEP = 16
"""Elements of the reduced axis that the matrix unit takes at a time."""
_TERMS: dict[Any, int] = {upstream._ir.INPUT_PRECISION.BF16x3: 2, upstream._ir.INPUT_PRECISION.BF16x6: 3}
"""Parts in bfloat16 of a float32 operand; products of parts whose numbers add up to fewer than these are summed."""
_PRECISIONS = ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6")
"""Values of `input_precision` that Triton's compiler for NVIDIA takes; the interpreter lacks the last two."""
_POINTER = np.dtype(np.uint64)
_NUMPY_TYPES: dict[str, np.dtype[Any]] = {
    str(dtype.name): upstream._get_np_dtype(dtype)
    for dtype in (
        tl.int1, tl.int8, tl.int16, tl.int32, tl.int64, tl.uint8, tl.uint16, tl.uint32, tl.uint64, tl.float16,
        tl.bfloat16, tl.float32, tl.float64, tl.float8e5, tl.float8e5b16, tl.float8e4nv, tl.float8e4b8, tl.float8e4b15,
    )
}  # fmt: skip
_POINTERS: dict[str, Any] = {}
_upstream_dot = upstream.InterpreterBuilder.create_dot
