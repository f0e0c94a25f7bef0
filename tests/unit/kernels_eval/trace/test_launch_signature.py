"""Launches are described to the compiler as Triton's own launcher specialises them."""

from typing import Any

import pytest
import torch
import triton.language as tl
from hypothesis import given
from hypothesis import strategies as st
from triton._C.libtriton import native_specialize_impl
from triton.backends.compiler import BaseBackend
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels_eval.sandbox.tensor_bytes import NAMES
from kernels_eval.trace.launch_signature import describe_launch, signature_type
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


DESCRIBED: list[tuple[Any, Any]] = [
    (Sequence(items=(Plain(value=2), Plain(value=1), Plain(value=32), Plain(value=None))), (2, 1, 32, None)),
    (Sequence(items=()), ()),
    (Sequence(items=(Sequence(items=(Plain(value=0.5), Plain(value=True))), Plain(value=16))), ((0.5, True), 16)),
]


@pytest.mark.parametrize(("value", "given"), DESCRIBED)
def test_tuples_are_described_item_by_item(value: Any, given: Any) -> None:
    found, (kind, key) = described(x=value), specialised(given)
    assert signature_type(found["signature"]["x"]) == kind
    assert found["divisible"] == tuple(f"x.{place}" for place in range(len(given)) if key[place] == "D")
    constants = {f"x.{place}": given[place] for place in range(len(given)) if kind[place] == "constexpr"}
    assert {path: constant.value for path, constant in found["constants"].items()} == constants


def test_descriptors_have_the_type_that_triton_gives_them() -> None:
    base = View(storage=0, dtype="float16", shape=(32, 64), strides=(64, 1))
    value = Descriptor(base=base, shape=(32, 64), strides=(64, 1), block_shape=(16, 32))
    given = TensorDescriptor.from_tensor(torch.empty(32, 64, dtype=torch.float16, device="cpu"), [16, 32])
    assert described(x=value)["signature"] == {"x": specialised(given)[0]}


def test_a_compile_time_tuple_is_one_constant() -> None:
    constant = described("x", x=Sequence(items=(Plain(value=4), TypeName(name="fp32"))))["constants"]["x"]
    assert (constant.kind, [(item.kind, item.value) for item in constant.items]) == (
        "tuple", [("plain", 4), ("dtype", "fp32")],
    )  # fmt: skip


@pytest.mark.parametrize(("value", "given"), [(Plain(value="text"), "text"), (TypeName(name="fp32"), tl.float32)])
def test_what_tritons_launcher_refuses_is_refused(value: Any, given: Any) -> None:
    with pytest.raises(TypeError, match="failed to specialize"):
        specialised(given)
    with pytest.raises(TypeError, match="failed to specialize argument x"):
        described(x=value)
    with pytest.raises(TypeError, match=r"failed to specialize argument x\.1"):
        described(x=Sequence(items=(Plain(value=2), value)))


def test_a_tensor_as_a_compile_time_argument_is_refused() -> None:
    with pytest.raises(TypeError, match="compile-time argument x is a view"):
        described("x", x=View(storage=0, dtype="float32", shape=(4,), strides=(1,)))


def test_grid_line_and_options() -> None:
    found = described(x=Plain(value=5))
    assert (found["programs"], found["line"], found["kernel"], found["kernel_number"]) == (24, 7, "kernel", 3)
    assert found["options"] == {"num_warps": 8}
