"""Cheaper bookkeeping of Triton's types: operands come out as upstream's own functions make them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import triton.language as tl
from hypothesis import given
from hypothesis import strategies as some

from kernels_eval.interpreter.triton_patches import types
from kernels_eval.interpreter.triton_patches.names import language, upstream

SHAPES = ((), (1,), (4,), (8,), (4, 1), (1, 8), (4, 8), (1, 1), (2, 4, 1), (8, 2))
SCALARS = (
    tl.float32,
    tl.float64,
    tl.float16,
    tl.int32,
    tl.int64,
    tl.int8,
    tl.uint32,
    tl.int1,
    tl.pointer_type(tl.float32),
)
NUMBERS = (
    0,
    1,
    -1,
    True,
    2**31 - 1,
    -(2**31),
    2**31,
    2**40,
    -(2**40),
    2**63,
    0.0,
    -2.5,
    1e-40,
    1e300,
    float("inf"),
    float("nan"),
)


def tensor(shape: tuple[int, ...], scalar: Any) -> Any:
    data = np.arange(max(1, int(np.prod(shape)))).reshape(shape or (1,)).astype(upstream._get_np_dtype(scalar))
    kind = language.block_type(scalar, list(shape)) if shape else scalar
    return tl.tensor(upstream.TensorHandle(data, scalar), kind)


OPERANDS = some.one_of(
    some.builds(tensor, some.sampled_from(SHAPES), some.sampled_from(SCALARS)), some.sampled_from(NUMBERS)
)


def outcome(function: Callable[..., Any], *operands: Any) -> Any:
    """Types, shapes and values of both results, or the exception."""
    try:
        results = function(upstream.interpreter_semantic, *operands)
    except Exception as error:  # noqa: BLE001 (whatever upstream raises)
        return type(error), str(error)
    return [
        (str(each.type), str(each.dtype), [int(size) for size in each.shape], each.handle.data.dtype, each.handle.data.shape, each.handle.data.tobytes())
        for each in results
    ]  # fmt: skip


@given(OPERANDS, OPERANDS, some.tuples(*[some.booleans()] * 4))
def test_operands_are_promoted_and_broadcast_as_upstream_does(left: Any, right: Any, flags: tuple[bool, ...]) -> None:
    assert outcome(types._checked_operands, left, right, *flags) == outcome(types._check_operands, left, right, *flags)


@given(*[some.builds(tensor, some.sampled_from(SHAPES), some.sampled_from(SCALARS))] * 2)
def test_shapes_are_broadcast_as_upstream_does(left: Any, right: Any) -> None:
    assert outcome(types._broadcasted, left, right) == outcome(types._broadcast, left, right)


@pytest.mark.parametrize(
    "value",
    [
        3,
        2.5,
        True,
        "x",
        None,
        tl.constexpr(4),
        [tl.constexpr(4), 8],
        (tl.constexpr(2), [1]),
        *SCALARS,
        tensor((4,), tl.float32),
    ],
)
def test_constants_are_unwrapped_as_upstream_does(value: Any) -> None:
    unwrapped = types._unwrap(value)
    assert types._unwrapped(value) is unwrapped or types._unwrapped(value) == unwrapped
    assert type(types._unwrapped(value)) is type(types._unwrap(value))


@pytest.mark.parametrize("shape", [(4, 8), [4, 8], (tl.constexpr(4), 8), [tl.constexpr(4), tl.constexpr(8)]])
def test_one_shape_is_one_object_however_it_is_written(shape: Any) -> None:
    assert types._shape(shape) is types._shape((4, 8))
    assert types._shape(shape).sizes == (4, 8)


@pytest.mark.parametrize("shape", [(3,), (4, 6), ("4",), (tl.constexpr(6),)])
def test_shapes_that_triton_refuses_stay_refused(shape: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="Shape element"):
        types._shape(shape)


def test_types_are_equal_as_upstream_says() -> None:
    assert all(types._equal(one, other) == types._equal_types(one, other) for one in SCALARS[:-1] for other in SCALARS)
