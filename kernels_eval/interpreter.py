"""Triton's interpreter, made countable and quick. Installed once in the process that candidates are forked from.

- A launch runs with its tensors in place (upstream copies each storage twice) and with `triton.language` patched once and
  for all (upstream patches it on every launch and every device-function call: a third of the time of a small kernel).
- Every access is checked and counted (kernels_eval.accounting); `tl.dot` counts its operations.
"""

import ast
import dataclasses
import inspect
import linecache
from typing import Any

import numpy as np
import torch
import triton.language as tl
from pydantic import ValidationError
from triton.runtime import interpreter as _upstream
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import mangle_type

from kernels_eval.accounting import LEDGER, SECTOR_BYTES, Region, account
from kernels_eval.launches import Constant, Launch

upstream: Any = _upstream
"""Untyped: everything that is patched here is private to Triton."""

_MAX_LAUNCHES = 4096


class KernelError(Exception):
    """A kernel failed while it was interpreted; the cause is what it raised."""

    def __init__(self, kernel: str) -> None:
        super().__init__(kernel)
        self.kernel = kernel


def install() -> None:
    """Patch Triton's interpreter in this process (TRITON_INTERPRET=1 must be set before triton is imported)."""
    scope = upstream._LangPatchScope()
    builder = upstream.interpreter_builder
    for language in (tl, tl.core):
        upstream._patch_builtin(language, builder, scope)
        upstream._patch_builtin(language.tensor, builder, scope)
        upstream._patch_lang_tensor(language.tensor, scope)
        upstream._patch_lang_core(language, scope)
    upstream._patch_builtin(tl.math, builder, scope)
    upstream._patch_builtin(tl.core.tensor_descriptor_base, builder, scope)
    upstream.InterpretedFunction.run = _run
    upstream.InterpretedFunction.__call__ = _call_device_function
    upstream.InterpreterBuilder.create_masked_load = _masked_load
    upstream.InterpreterBuilder.create_masked_store = _masked_store
    upstream.InterpreterBuilder.create_atomic_rmw = _atomic_rmw
    upstream.InterpreterBuilder.create_atomic_cas = _atomic_cas
    upstream.InterpreterBuilder.create_dot = _dot
    upstream._get_np_dtype = _numpy_type
    # Upstream checks every integer operation for overflow in 64 bits, which the compiled kernel does not do either.
    builder.options = dataclasses.replace(builder.options, sanitize_overflow=False)
    for library in (tl.standard, tl.math):
        for function in list(vars(library).values()):
            if isinstance(function, upstream.InterpretedFunction):
                function.rewrite()
    upstream.FunctionRewriter.rewrite_ast = _rewrite_ast
    # No clock means anything here: an autotuned kernel runs with its first configuration.
    autotuner: Any = Autotuner
    autotuner._bench = lambda self, *args, **kwargs: [1.0, 1.0, 1.0]


def _rewrite_ast(self: Any) -> Any:
    """Rewrite a kernel for the interpreter from its file's syntax tree (upstream tokenises its lines three times over)."""
    code = self.fn.__code__
    tree = ast.parse("".join(linecache.getlines(code.co_filename)))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == self.fn.__name__:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first == code.co_firstlineno:
                node.decorator_list = []
                self.filename = code.co_filename
                lone = ast.Module([node], [])
                return self._compile_and_exec(ast.fix_missing_locations(self.ast_transformer.visit(lone)))
    return _upstream_rewrite_ast(self)


def _numpy_type(dtype: Any) -> np.dtype[Any]:
    """NumPy's type for a Triton type. Upstream builds a table of all types on every call."""
    scalar = dtype.scalar
    return _POINTER if scalar.is_ptr() else _NUMPY_TYPES[scalar.name]


def _call_device_function(self: Any, *args: Any, **kwargs: Any) -> Any:
    return self.rewrite()(*args, **kwargs)


def _run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
    if warmup:
        return
    if len(LEDGER.launches) >= _MAX_LAUNCHES:
        raise RuntimeError(f"more than {_MAX_LAUNCHES} kernel launches in one forward call")
    for hook in self.pre_run_hooks:
        hook(*args, **kwargs)
    LEDGER.inside_launch = True
    try:
        _interpret(self, args, kwargs, grid)
    finally:
        LEDGER.inside_launch = False
        LEDGER.regions = []


def _interpret(kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any) -> None:
    options = {name: int(kwargs[name]) for name in ("num_warps", "num_stages") if isinstance(kwargs.get(name), int)}
    signature = inspect.signature(kernel.fn)
    parameters = signature.parameters
    given = signature.bind(*args, **{name: value for name, value in kwargs.items() if name in parameters})
    given.apply_defaults()
    bound: dict[str, Any] = dict(given.arguments)
    constexprs = {name for name, parameter in parameters.items() if _is_constexpr(parameter.annotation)}
    grid = grid(dict(bound)) if callable(grid) else grid
    if isinstance(grid, int):
        grid = (grid,)
    grid = tuple(int(size) for size in grid) + (1,) * (3 - len(grid))
    described: dict[str, Any] = _describe(bound, constexprs) | {"kernel": kernel.fn.__name__[:200], "options": options}
    described["programs"] = grid[0] * grid[1] * grid[2]
    if LEDGER.only_grids:
        LEDGER.launches.append(Launch(dram_bytes=0, l2_bytes=0, flops=0, **described))
        return
    LEDGER.regions = _regions(bound)
    LEDGER.l2_bytes = LEDGER.flops = 0
    builder = upstream.interpreter_builder
    try:
        converted = {
            name: value if name in constexprs else upstream._implicit_cvt(value) for name, value in bound.items()
        }
        function = kernel.rewrite()
        builder.set_grid_dim(*grid)
        for x in range(grid[0]):
            for y in range(grid[1]):
                for z in range(grid[2]):
                    builder.grid_idx = LEDGER.program = (x, y, z)
                    function(**converted)
    except Exception as error:
        raise KernelError(kernel.fn.__name__) from error
    sectors = sum(
        int(np.count_nonzero(marks))
        for region in LEDGER.regions
        for marks in (region.read, region.written)
        if marks is not None
    )
    LEDGER.launches.append(
        Launch(dram_bytes=sectors * SECTOR_BYTES, l2_bytes=LEDGER.l2_bytes, flops=LEDGER.flops, **described)
    )


def _is_constexpr(annotation: Any) -> bool:
    return annotation is tl.constexpr or (isinstance(annotation, str) and "constexpr" in annotation)


def _tensors(value: Any, name: str) -> list[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        return [(name, value)]
    if isinstance(value, tuple):
        return [pair for item in value for pair in _tensors(item, name)]
    base = getattr(value, "base", None)  # a tensor descriptor, or a tensor reinterpreted as another type
    return [(name, base)] if isinstance(base, torch.Tensor) else []


def _regions(bound: dict[str, Any]) -> list[Region]:
    regions: dict[int, Region] = {}
    for name, tensor in (pair for key, value in bound.items() for pair in _tensors(value, key)):
        storage = tensor.untyped_storage()
        base = storage.data_ptr()
        if base not in regions:
            LEDGER.storages.append(storage)
            regions[base] = Region(name, base, storage.nbytes())
    return list(regions.values())


def _constant(value: Any) -> Constant:
    """ValidationError where the value is neither plain nor a type."""
    return Constant(kind="dtype", value=str(value.name)) if isinstance(value, tl.dtype) else Constant(value=value)


def _describe(bound: dict[str, Any], constexprs: set[str]) -> dict[str, Any]:
    """What the compiler has to know of the arguments, as Triton's own launcher would specialise them."""
    signature: dict[str, str] = {}
    constants: dict[str, Constant] = {}
    divisible: list[str] = []
    uncompilable: str | None = None
    for name, value in bound.items():
        value: Any = value.value if isinstance(value, tl.constexpr) else value
        if name in constexprs or value is None or (type(value) is int and value == 1):
            signature[name] = "constexpr"
            try:
                constants[name] = _constant(value)
            except ValidationError:
                uncompilable = f"compile-time argument {name} is a {type(value).__name__}"[:200]
        elif isinstance(value, torch.Tensor | int | float):
            signature[name] = mangle_type(value)
            number = value.data_ptr() if isinstance(value, torch.Tensor) else value
            if type(number) is int and number % 16 == 0:
                divisible.append(name)
        else:
            uncompilable = f"argument {name} is a {type(value).__name__}"[:200]
    return {
        "signature": signature,
        "constants": constants,
        "divisible": tuple(divisible),
        "uncompilable": uncompilable,
    }


# Triton 3.7 and 3.9 differ: the cache hints, which mean nothing here, are two arguments or one; a block pointer's mask
# is a plain array or a handle, whose `data` are lanes to NumPy either way.
def _masked_load(self: Any, ptrs: Any, mask: Any, other: Any, *hints: Any, **named: Any) -> Any:
    lanes = np.asarray(mask.data)
    account(ptrs, lanes, reads=True, writes=False)
    dtype_tt = ptrs.get_element_ty()
    dtype_np = upstream._get_np_dtype(dtype_tt)
    if other is None:
        other = upstream.TensorHandle(np.zeros_like(ptrs.data, dtype=dtype_np), dtype_tt)
    loaded = upstream._interpreter.load(ptrs.data, lanes, other.data, dtype_np)
    return upstream.TensorHandle(loaded, dtype_tt)


def _masked_store(self: Any, ptrs: Any, value: Any, mask: Any, *hints: Any, **named: Any) -> Any:
    lanes = np.asarray(mask.data)
    account(ptrs, lanes, reads=False, writes=True)
    return upstream._interpreter.store(ptrs.data, value.data, lanes)


def _atomic_rmw(self: Any, rmw_op: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
    account(ptr, mask.data, reads=True, writes=True)
    return _upstream_atomic_rmw(self, rmw_op, ptr, val, mask, sem, scope)


def _atomic_cas(self: Any, ptr: Any, cmp: Any, val: Any, sem: Any, scope: Any) -> Any:
    account(ptr, None, reads=True, writes=True)
    return _upstream_atomic_cas(self, ptr, cmp, val, sem, scope)


def _dot(self: Any, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any) -> Any:
    LEDGER.flops += 2 * int(np.prod(a.data.shape)) * int(b.data.shape[-1])
    return _upstream_dot(self, a, b, d, input_precision, max_num_imprecise_acc)


_POINTER = np.dtype(np.uint64)
_NUMPY_TYPES: dict[str, np.dtype[Any]] = {
    str(dtype.name): upstream._get_np_dtype(dtype)
    for dtype in (
        tl.int1, tl.int8, tl.int16, tl.int32, tl.int64, tl.uint8, tl.uint16, tl.uint32, tl.uint64, tl.float16, tl.bfloat16,
        tl.float32, tl.float64, tl.float8e5, tl.float8e5b16, tl.float8e4nv, tl.float8e4b8, tl.float8e4b15,
    )
}  # fmt: skip
_upstream_rewrite_ast = upstream.FunctionRewriter.rewrite_ast
_upstream_atomic_rmw = upstream.InterpreterBuilder.create_atomic_rmw
_upstream_atomic_cas = upstream.InterpreterBuilder.create_atomic_cas
_upstream_dot = upstream.InterpreterBuilder.create_dot
