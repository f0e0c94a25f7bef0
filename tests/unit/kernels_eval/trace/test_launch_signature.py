"""Launches are described to the compiler as Triton's own launcher specialises them."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from triton._C.libtriton import native_specialize_impl
from triton.backends.compiler import BaseBackend

from kernels_eval.sandbox.tensor_bytes import NAMES
from kernels_eval.trace.launch_signature import describe_launch
from kernels_eval.trace.schema import Descriptor, KernelReference, LaunchKernel, Plain, Sequence, TypeName, View


def described(*constexprs: str, **arguments: Any) -> dict[str, Any]:
    launch = LaunchKernel(kernel=3, arguments=arguments, grid=(2, 3, 4), line=7, options={"num_warps": 8, "debug": 1})
    return describe_launch(launch, "kernel", constexprs)


def specialised(value: Any) -> tuple[str, Any]:
    """Return the type and the key that Triton's launcher gives an argument."""
    return native_specialize_impl(BaseBackend, value, False, True, True)


def assert_as_triton(found: dict[str, Any], value: Any) -> None:
    kind, key = specialised(value)
    assert found["signature"] == {"x": kind}
    assert found["divisible"] == (("x",) if key == "D" else ())
    if kind == "constexpr":
        assert found["constants"]["x"].value == value


@given(st.integers(-(2**63), 2**64 - 1) | st.integers(-40, 40))
def test_integers(value: int) -> None:
    assert_as_triton(described(x=Plain(value=value)), value)


@pytest.mark.parametrize("value", [True, False, 0.5, 1.0, None, 1, 16, 2**31, 2**63])
def test_other_scalars(value: Any) -> None:
    assert_as_triton(described(x=Plain(value=value)), value)


@pytest.mark.parametrize("dtype", [dtype for dtype in NAMES if not dtype.is_complex])
@pytest.mark.parametrize("offset", [0, 1, 2, 4, 8, 16])
def test_tensors(dtype: torch.dtype, offset: int) -> None:
    whole = torch.empty(64, dtype=torch.uint8, device="cpu")
    assert whole.data_ptr() % 16 == 0
    tensor = torch.empty(0, dtype=dtype).set_(whole.untyped_storage(), offset, (1,), (1,))
    assert_as_triton(described(x=View(storage=0, dtype=NAMES[dtype], shape=(1,), strides=(1,), offset=offset)), tensor)


def test_compile_time_arguments_are_constants_of_their_kind() -> None:
    found = described("a", "b", "c", a=Plain(value=64), b=TypeName(name="fp32"), c=KernelReference(kernel=2))
    assert found["signature"] == dict.fromkeys("abc", "constexpr")
    assert {name: (c.kind, c.value) for name, c in found["constants"].items()} == {
        "a": ("plain", 64), "b": ("dtype", "fp32"), "c": ("kernel", 2),
    }  # fmt: skip
    assert found["uncompilable"] is None


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Sequence(items=(Plain(value=2),)), "argument x is a sequence"),
        (Descriptor(base=View(storage=0, dtype="float32", shape=(4,), strides=(1,)), shape=(4,), strides=(1,), block_shape=(4,)),
         "argument x is a tensor descriptor"),
        (Plain(value="text"), "argument x is a plain"),
    ],
)  # fmt: skip
def test_what_cannot_be_described_is_said(value: Any, message: str) -> None:
    assert described(x=value)["uncompilable"] == message
    assert described("x", x=Sequence(items=()))["uncompilable"] == "compile-time argument x is a sequence"


def test_grid_line_and_options() -> None:
    found = described(x=Plain(value=5))
    assert (found["programs"], found["line"], found["kernel"], found["kernel_number"]) == (24, 7, "kernel", 3)
    assert found["options"] == {"num_warps": 8}
