"""Scaled products: scales have the type that the operands are computed in."""

from typing import Any

import numpy as np
import pytest
import triton.language as tl

from kernels_eval.interpreter.triton_patches import dot_scaled
from kernels_eval.interpreter.triton_patches.names import upstream

SIZE, GROUP = 16, 32
EXPONENT = -26
"""Of a power of two that is zero in float16, and none that a bfloat16 would round."""


def product(dtype: Any, numpy_type: Any, one: Any) -> Any:
    """Return a product of elements that are 1024, those of one operand times 2^-26."""
    builder = upstream.interpreter_semantic.builder
    left = upstream.TensorHandle(np.full((SIZE, GROUP), one, numpy_type), dtype)
    right = upstream.TensorHandle(np.full((GROUP, SIZE), one, numpy_type), dtype)
    scale = upstream.TensorHandle(np.full((SIZE, 1), 127 + EXPONENT, np.uint8), tl.uint8)
    sums = upstream.TensorHandle(np.zeros((SIZE, SIZE), np.float32), tl.float32)
    found = dot_scaled._dot_scaled(builder, left, scale, None, right, None, None, False, True, True, sums)
    return np.unique(found.data).tolist()


@pytest.mark.parametrize(
    ("dtype", "numpy_type", "one", "expected"),
    [
        (tl.float16, np.float16, 1024.0, 0.0),
        (tl.bfloat16, np.uint16, 0x4480, GROUP * 1024.0 * 1024.0 * 2.0**EXPONENT),
    ],
)
def test_a_scale_is_rounded_as_the_operands_are(dtype: Any, numpy_type: Any, one: Any, expected: float) -> None:
    assert product(dtype, numpy_type, one) == [expected]
