"""Triton's private names: each is checked against the installed release, and used in one folder only."""

import ast
import dataclasses
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import CompiledKernel

from kernels_eval.interpreter.triton_patches import names
from kernels_eval.interpreter.triton_patches.names import language, semantic, upstream

ROOT = Path(__file__).parents[5]
PATCHES = ROOT / "kernels_eval" / "interpreter" / "triton_patches"
PUBLIC_MODULES = {
    "triton", "triton.language", "triton.language.extra", "triton.testing", "triton.tools.tensor_descriptor",
    "triton.compiler", "triton.backends.compiler",
}  # fmt: skip
PRIVATE_OBJECTS = {"upstream", "language", "semantic"}
"""Objects of names.py that only the folder's own modules may import."""
PRIVATE_ATTRIBUTES = {
    "_bench", "_do_bench", "_implicit_cvt", "_get_np_dtype", "_unwrap_shape", "interpreter_builder", "InterpretedFunction",
    "FunctionRewriter", "InterpreterBuilder", "TensorHandle", "device_caches", "pre_run_hooks", "set_active", "ast_transformer",
}  # fmt: skip
"""Attributes that outside of the folder no object may be asked for, as they are Triton's."""
_checked: set[str] = set()


def checks(*private: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Note which private names a test is about."""
    _checked.update(private)
    return lambda test: test


def add(x_ptr: Any, o_ptr: Any, N: Any, BLOCK: tl.constexpr) -> None:
    i = tl.arange(0, BLOCK)
    tl.store(o_ptr + i, tl.load(x_ptr + i, mask=i < N) + 1, mask=i < N)


@triton.constexpr_function
def _half(value: int) -> int:
    return value // 2


_jit: Any = triton.jit(add)


@pytest.fixture
def restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put back what a test replaces in Triton."""
    monkeypatch.setattr(upstream.InterpretedFunction, "run", upstream.InterpretedFunction.run)


def _pointers(array: np.ndarray[Any, Any], dtype: Any) -> Any:
    addresses = array.ctypes.data + array.itemsize * np.arange(array.size, dtype=np.uint64)
    return upstream.TensorHandle(addresses.astype(np.uint64), tl.pointer_type(dtype))


@checks("InterpretedFunction")
def test_kernels_are_recognised() -> None:
    assert names.is_kernel(_jit)
    assert names.is_kernel(_half)
    assert names.is_kernel(upstream.InterpretedFunction(add))
    assert not names.is_kernel(add)
    assert [names.is_constexpr_function(value) for value in (_half, _jit, add)] == [True, False, False]


@pytest.mark.usefixtures("restored")
@checks("InterpretedFunction")
def test_a_launch_goes_through_run_with_its_grid() -> None:
    seen: list[Any] = []
    names.replace_launcher(
        lambda kernel, *args, grid, warmup, **named: seen.append((kernel.fn, args, grid, warmup, named))
    )
    kernel = upstream.InterpretedFunction(add)
    kernel[(3,)](1, 2, BLOCK=4)
    assert seen == [(add, (1, 2), (3,), False, {"BLOCK": 4})]
    kernel.warmup(1, grid=(5,))
    assert seen[1][3] is True


@checks("InterpretedFunction")
def test_hooks_before_a_launch_are_a_list_of_functions() -> None:
    kernel = upstream.InterpretedFunction(add)
    kernel.add_pre_run_hook(print)
    assert names.pre_run_hooks(kernel) == [print]


@checks("InterpretedFunction")
def test_rewriting_an_interpreted_function_gives_a_plain_function() -> None:
    assert callable(upstream.InterpretedFunction(add).rewrite())
    assert "rewrite" in inspect.getsource(upstream.InterpretedFunction.__call__)


def test_compiled_functions_name_their_parameters() -> None:
    function = names.compiled_function(add, is_constexpr=False)
    assert names.parameter_names(function) == ["x_ptr", "o_ptr", "N", "BLOCK"]
    assert names.is_constexpr_function(names.compiled_function(_half.fn, is_constexpr=True))


@pytest.mark.parametrize("noinline", [False, True])
def test_a_function_that_is_not_inlined_is_compiled_so(noinline: bool) -> None:
    assert names.is_noinline(upstream.InterpretedFunction(add, noinline=noinline)) is noinline
    assert names.is_noinline(names.compiled_function(add, is_constexpr=False, noinline=noinline)) is noinline


class _Driver:
    utils = None

    def get_current_device(self) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)


def test_the_driver_that_is_set_is_the_active_one() -> None:
    driver: Any = names._runtime_driver
    mine = _Driver()
    try:
        names.set_driver(mine)
        assert driver.active is mine
        names.load_driver()
    finally:
        driver._active = None


def test_compiled_kernels_are_found_in_the_caches_of_a_jit_function() -> None:
    kernel = names.compiled_function(add, is_constexpr=False)
    driver: Any = names._runtime_driver
    try:
        names.set_driver(_Driver())
        kernel.device_caches[0][0]["key"] = SimpleNamespace(asm={"cubin": b""})
    finally:
        driver._active = None
    heuristics = SimpleNamespace(fn=kernel)
    assert [(name, found.asm) for name, found in names.compiled_kernels(heuristics)] == [("add", {"cubin": b""})]
    assert list(names.compiled_kernels(7)) == []


def test_suppressed_launches_do_not_ask_for_a_device() -> None:
    kernel = names.compiled_function(add, is_constexpr=False)
    run = type(kernel).run
    with names.launches_suppressed():
        kernel[(1,)](None, None, 1, BLOCK=2)
    assert type(kernel).run is run


def test_a_compiled_kernel_loads_its_figures_by_the_method_that_the_stand_in_has() -> None:
    assert callable(CompiledKernel._init_handles)
    stand_in = names.WarmedKernel()
    stand_in._init_handles()
    assert (stand_in.n_regs, stand_in.n_spills) == (32, 0)
    assert "n_regs" in inspect.getsource(CompiledKernel)


@checks("FunctionRewriter", "interpreter_semantic", "_InterpreterComparison")
def test_rewritten_code_keeps_tritons_types() -> None:
    tree = ast.parse("def f(a):\n    b: tl.constexpr = a\n    c = a\n    return c")
    code = ast.unparse(names.rewritten(tree.body[0]))  # pyright: ignore[reportArgumentType]
    assert "interpreter_semantic" in code
    assert "interpreter_semantic" in names.interpreter_globals({"interpreter_semantic", "no such name"})
    assert "no such name" not in names.interpreter_globals({"interpreter_semantic", "no such name"})


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (3, tl.int32),
        (0, tl.int32),
        (-1, tl.int32),
        (1 << 40, tl.int64),
        (1 << 31, tl.int64),
        (1 << 63, tl.uint64),
        (True, tl.int1),
        (False, tl.int1),
        (0.5, tl.float32),
        (1.0, tl.float32),
    ],
)
@checks("TensorHandle")
def test_numbers_become_tensors_of_the_type_that_the_launcher_gives_them(value: Any, dtype: Any) -> None:
    tensor = names.runtime_value(value)
    assert tensor.dtype == dtype
    assert tensor.handle.data.item() == value


def test_floats_are_rounded_to_single_precision() -> None:
    assert names.runtime_value(0.1).handle.data.item() == float(np.float32(0.1))


@checks("_implicit_cvt")
def test_other_values_are_passed_as_they_are() -> None:
    assert names.runtime_value(1) == 1
    assert type(names.runtime_value(1)) is int
    assert names.runtime_value(None) is None
    assert [item.dtype for item in names.runtime_value((2, 3))] == [tl.int32, tl.int32]


@checks("interpreter_semantic")
@pytest.mark.parametrize(("left", "right", "wider"), [(tl.int32, tl.int64, tl.int64), (tl.int32, tl.int32, tl.int32)])
def test_rules_of_the_interpreter_promote_integers(left: Any, right: Any, wider: Any) -> None:
    assert upstream.interpreter_semantic.integer_promote_impl(left, right) == wider


@checks("_ir", "InterpreterBuilder")
def test_atomics_have_an_order_and_a_scope() -> None:
    orders = {upstream._ir.MEM_SEMANTIC.ACQUIRE, upstream._ir.MEM_SEMANTIC.RELEASE}
    assert orders.isdisjoint({upstream._ir.MEM_SEMANTIC.ACQUIRE_RELEASE, upstream._ir.MEM_SEMANTIC.RELAXED})
    assert upstream._ir.MEM_SYNC_SCOPE.CTA != upstream._ir.MEM_SYNC_SCOPE.GPU
    assert list(inspect.signature(upstream.InterpreterBuilder.create_barrier).parameters) == ["self"]


@checks("_get_np_dtype")
def test_numpys_types() -> None:
    wanted = {
        tl.float32: np.float32,
        tl.float16: np.float16,
        tl.int64: np.int64,
        tl.uint8: np.uint8,
        tl.bfloat16: np.uint16,
    }
    for dtype, expected in wanted.items():
        assert upstream._get_np_dtype(dtype) == np.dtype(expected)
    assert upstream._get_np_dtype(tl.pointer_type(tl.float32)) == np.dtype(np.uint64)


@checks("_interpreter", "TensorHandle")
def test_loads_and_stores_go_to_addresses_under_a_mask() -> None:
    memory = np.arange(4, dtype=np.float32)
    pointers = _pointers(memory, tl.float32)
    assert pointers.get_element_ty() == tl.float32
    mask = np.array([True, False, True, True])
    other = np.full(4, -1, np.float32)
    assert upstream._interpreter.load(pointers.data, mask, other, np.dtype(np.float32)).tolist() == [0, -1, 2, 3]
    upstream._interpreter.store(pointers.data, np.full(4, 9, np.float32), mask)
    assert memory.tolist() == [9, 1, 9, 9]


@checks("interpreter_builder")
def test_the_builder_knows_the_program_and_the_grid() -> None:
    builder = upstream.interpreter_builder
    builder.set_grid_dim(2, 3, 4)
    builder.grid_idx = (1, 2, 3)
    assert [int(builder.create_get_program_id(axis).data.item()) for axis in range(3)] == [1, 2, 3]
    assert [int(builder.create_get_num_programs(axis).data.item()) for axis in range(3)] == [2, 3, 4]
    assert dataclasses.replace(builder.options, sanitize_overflow=False).sanitize_overflow is False


SIGNATURES = {
    "create_masked_load": (3, ("ptrs", "mask", "other")),
    "create_masked_store": (3, ("ptrs", "value", "mask")),
    "create_atomic_rmw": (6, ()),
    "create_atomic_cas": (5, ()),
    "create_dot": (5, ("a", "b", "d")),
    "binary_op": (3, ("lhs", "rhs", "op")),
    "unary_op": (2, ()),
    "cast_impl": (2, ()),
}
"""Fewest arguments that our replacements take, and the leading names where they matter."""


@pytest.mark.parametrize("name", SIGNATURES)
@checks("InterpreterBuilder", "_ir")
def test_operations_of_the_builder_take_the_arguments_of_their_replacements(name: str) -> None:
    parameters = list(inspect.signature(getattr(upstream.InterpreterBuilder, name)).parameters)[1:]
    count, leading = SIGNATURES[name]
    assert tuple(parameters[: len(leading)]) == leading
    if name.startswith("create_masked"):  # hints follow, as many as a release has
        assert len(parameters) >= count
    else:
        assert len(parameters) == count
    assert upstream._ir.INPUT_PRECISION.TF32 != upstream._ir.INPUT_PRECISION.IEEE


@checks("_patch_builtin", "_patch_attr", "_patch_lang_tensor", "_patch_lang_core", "_LangPatchScope")
def test_patches_of_the_language_are_in_a_scope(monkeypatch: pytest.MonkeyPatch) -> None:
    patched: list[str] = []
    original = upstream._patch_attr

    def spy(owner: Any, name: str, member: Any, builder: Any, scope: Any) -> None:
        patched.append(name)
        original(owner, name, member, builder, scope)

    monkeypatch.setattr(upstream, "_patch_attr", spy)
    before, index, reduce = (
        tl.core.load,
        tl.core.tensor.__index__ if hasattr(tl.core.tensor, "__index__") else None,
        tl.core.reduce,
    )
    scope = upstream._LangPatchScope()
    upstream._patch_builtin(tl.core, upstream.interpreter_builder, scope)
    upstream._patch_lang_tensor(tl.core.tensor, scope)
    upstream._patch_lang_core(tl.core, scope)
    scope.set_attr(tl.core.tensor, "__index__", int)
    assert {"load", "store", "dot", "arange"} <= set(patched)
    assert tl.core.load is not before
    assert tl.core.reduce is not reduce
    scope.restore()
    assert tl.core.load is before
    assert tl.core.reduce is reduce
    assert getattr(tl.core.tensor, "__index__", None) is index


@checks("language._unwrap_shape", "language.validate_block_shape", "language.constexpr_type", "language.tuple")
def test_shapes() -> None:
    assert tuple(language._unwrap_shape([tl.constexpr(4), 8])) == (4, 8)
    assert language.validate_block_shape((4, 8)) == 32
    with pytest.raises(ValueError, match="power of 2"):
        language.validate_block_shape((3,))
    assert list(language.tuple((4, 8))) == [4, 8]
    assert language.constexpr_type(4) == tl.constexpr(4).type


@checks("language._unwrap_if_constexpr", "language.dtype", "language.pointer_type")
def test_constants_and_types_are_compared_in_one_place() -> None:
    """Functions of the module find the quicker ones in its namespace, and types are equal by their names."""
    assert language._unwrap_if_constexpr([tl.constexpr(4), 8]) == [4, 8]
    assert "_unwrap_if_constexpr" in language._unwrap_shape.__code__.co_names
    assert isinstance(tl.float32, language.dtype)
    assert type(tl.pointer_type(tl.float32)) is language.pointer_type
    assert language.dtype("fp32") == tl.float32 != tl.float64


@checks("language.constexpr", "language.block_type", "language.tensor")
def test_constructors_set_the_attributes_that_the_quicker_ones_set() -> None:
    assert set(vars(tl.constexpr(4))) >= {"value"}
    block: Any = language.block_type(tl.float32, [4, 8])
    assert (block.element_ty, tuple(block.shape), block.numel) == (tl.float32, (4, 8), 32)
    handle = upstream.TensorHandle(np.zeros((4, 8), np.float32), tl.float32)
    tensor: Any = language.tensor(handle, block)
    assert set(vars(tensor)) >= {"handle", "type", "dtype", "shape", "numel"}
    assert [size.value for size in tensor.shape] == [4, 8]


@checks("semantic.binary_op_type_checking_impl", "semantic.broadcast_impl_value")
def test_operands_are_promoted_and_broadcast() -> None:
    rules: Any = upstream.interpreter_semantic
    assert isinstance(rules, semantic)
    whole, real = names.runtime_value(3), names.runtime_value(0.5)
    left, right = rules.binary_op_type_checking_impl(whole, real)
    assert (left.dtype, right.dtype) == (tl.float32, tl.float32)
    row = language.tensor(
        upstream.TensorHandle(np.zeros((1, 8), np.float32), tl.float32), tl.block_type(tl.float32, [1, 8])
    )
    square = language.tensor(
        upstream.TensorHandle(np.zeros((4, 8), np.float32), tl.float32), tl.block_type(tl.float32, [4, 8])
    )
    wide, _ = rules.broadcast_impl_value(row, square)
    assert [size.value for size in wide.shape] == [4, 8]


SPIED_KERNEL = """
import json
import torch, triton, triton.language as tl
from triton.runtime import interpreter as i

called = set()
def spy(owner, name):
    inner = getattr(owner, name)
    def call(*args, **named):
        called.add(f"{owner.__name__}.{name}")
        return inner(*args, **named)
    setattr(owner, name, call)

B = i.InterpreterBuilder
for name in ("create_masked_load", "create_masked_store", "create_atomic_rmw", "create_atomic_cas", "create_dot",
             "binary_op", "unary_op", "create_clampf", "create_fma", "create_rsqrt", "cast_impl"):
    spy(B, name)
for owner, name in ((i.ReduceOps, "apply_impl"), (i.ScanOps, "apply_impl"), (i.ReduceOps, "generic_reduce"), (i.ScanOps, "generic_scan")):
    spy(owner, name)

@triton.jit
def combine(a, b):
    return a * b + a + b

@triton.jit
def kernel(x_ptr, o_ptr, flags_ptr, N, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < N, other=0.0)
    square = tl.dot(tl.broadcast_to(x[:, None], (BLOCK, BLOCK)), tl.broadcast_to(x[None, :], (BLOCK, BLOCK)))
    y = tl.fma(tl.exp(x), x, tl.rsqrt(x * x + 1.0)) + tl.clamp(x, 0.0, 1.0) + tl.sum(square, axis=1)
    y = y + tl.reduce(x, 0, combine) + tl.associative_scan(x, 0, combine)
    tl.store(o_ptr + i, y.to(tl.float16).to(tl.float32), mask=i < N)
    tl.atomic_add(flags_ptr, 1)
    tl.atomic_cas(flags_ptr + 1, 0, 7)

x = torch.linspace(0, 0.5, 16)
o, flags = torch.empty(16), torch.zeros(2, dtype=torch.int32)
kernel[(1,)](x, o, flags, 16, BLOCK=16)
product = torch.cumprod(1 + x, 0) - 1
rows = (x[:, None].expand(16, 16) @ x[None, :].expand(16, 16)).sum(1)
wanted = x.exp() * x + (x * x + 1).rsqrt() + x.clamp(0, 1) + rows + product[-1] + product
print(json.dumps([sorted(called), torch.allclose(o, wanted, rtol=2e-3), flags.tolist()]))
"""


@pytest.fixture(scope="module")
def spied(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Run a kernel by the installed release's own interpreter; returns which of its operations were used, and the results."""
    script = tmp_path_factory.mktemp("spied") / "kernel.py"
    script.write_text(SPIED_KERNEL)
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return json.loads(ran.stdout)


@pytest.mark.parametrize(
    "operation",
    [
        *(f"InterpreterBuilder.{name}" for name in [*SIGNATURES, "create_clampf", "create_fma", "create_rsqrt"]),
        "ReduceOps.apply_impl",
        "ScanOps.apply_impl",
        "ReduceOps.generic_reduce",
        "ScanOps.generic_scan",
    ],
)
@checks("InterpreterBuilder", "ReduceOps", "ScanOps")
def test_kernels_use_the_operations_that_are_replaced(spied: Any, operation: str) -> None:
    assert operation in spied[0]


def test_the_kernel_that_uses_them_is_right(spied: Any) -> None:
    assert spied[1:] == [True, [1, 7]]


def _sources(*folders: str) -> Iterator[tuple[Path, ast.Module]]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if PATCHES not in path.parents and not {"hacks", "honest"} & set(path.parts):  # those are candidates' code
                yield path, ast.parse(path.read_text())


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def private_uses(tree: ast.Module) -> list[str]:
    """Find imports of Triton's internal modules, and attributes that are Triton's private ones."""
    found: list[str] = []
    bound: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported = [alias for alias in node.names if alias.name.split(".")[0] == "triton"]
            found += [alias.name for alias in imported if alias.name not in PUBLIC_MODULES]
            bound |= {alias.asname or "triton" for alias in imported}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported_names = {alias.name for alias in node.names}
            if node.module.split(".")[0] == "triton":
                is_public = node.module in PUBLIC_MODULES and "runtime" not in imported_names
                private = sorted(name for name in imported_names if is_private(name) or not is_public)
                found += [f"{node.module}.{name}" for name in private]
                bound |= {alias.asname or alias.name for alias in node.names}
            elif node.module.endswith("triton_patches.names"):
                found += sorted(imported_names & PRIVATE_OBJECTS)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            is_tritons = _root(node) in bound and (is_private(node.attr) or node.attr == "runtime")
            if is_tritons or node.attr in PRIVATE_ATTRIBUTES:
                found.append(node.attr)
    return found


def test_private_names_are_used_in_one_folder_only() -> None:
    found = {
        str(path.relative_to(ROOT)): private_uses(tree)
        for path, tree in _sources("kernels_eval", "tasks", "extras", "flows")
    }
    assert {path: uses for path, uses in found.items() if uses} == {}
    assert len(found) > 100


@pytest.mark.parametrize(
    "code",
    [
        "from triton.runtime import interpreter",
        "from triton.runtime.jit import JITFunction",
        "import triton._C.libtriton",
        "import triton\ntriton.runtime.driver",
        "import triton.language as tl\ntl.core._unwrap_shape",
        "kernel.device_caches",
        "from kernels_eval.interpreter.triton_patches.names import upstream",
    ],
)
def test_the_search_finds_private_names(code: str) -> None:
    assert private_uses(ast.parse(code))


def test_every_private_name_of_the_folder_is_checked_here() -> None:
    used: set[str] = set()
    for path in PATCHES.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                if node.value.id == "upstream":
                    used.add(node.attr)
                elif node.value.id in ("language", "semantic"):
                    used.add(f"{node.value.id}.{node.attr}")
    public = {"language.dot", "language.dot_scaled", "language.map_elementwise"}
    assert used - _checked - public == set()
