"""Products of the interpreter are counted by the unit that a GPU computes them in, twice the multiplications each."""

from types import SimpleNamespace
from typing import Any

import pytest
import triton.language as tl
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.interpreter.operation_log import OPERATION_LOG
from kernels_eval.interpreter.triton_patches.operation_counts import count_product


def block(dtype: Any, *shape: int) -> Any:
    return SimpleNamespace(dtype=dtype, type=tl.block_type(dtype, list(shape)))


def counted(dtype: Any, m: int, n: int, k: int, precision: Any = None, allow_tf32: Any = None) -> dict[str, float]:
    OPERATION_LOG.start(warps=4)
    count_product(block(dtype, m, k), block(dtype, k, n), precision, allow_tf32)
    return {name: count for name, count in OPERATION_LOG.counts.items() if count}


@pytest.mark.parametrize(
    ("dtype", "precision", "allow_tf32", "unit"),
    [
        (tl.float16, None, None, "dot_half"),
        (tl.bfloat16, "ieee", None, "dot_half"),
        (tl.float32, None, None, "dot_tf32"),
        (tl.float32, "tf32", None, "dot_tf32"),
        (tl.float32, tl.constexpr("ieee"), None, "dot_fp32"),
        (tl.float32, None, tl.constexpr(False), "dot_fp32"),
        (tl.float64, None, None, "dot_fp64"),
        (tl.int8, None, None, "dot_byte"),
    ],
)
def test_the_unit_follows_type_and_precision(dtype: Any, precision: Any, allow_tf32: Any, unit: str) -> None:
    assert counted(dtype, 16, 32, 64, precision, allow_tf32) == {unit: 2 * 16 * 32 * 64}


SIZES = st.sampled_from([1, 2, 8, 16, 64, 256])


@given(SIZES, SIZES, SIZES)
def test_three_passes_of_tf32_count_three_times(m: int, n: int, k: int) -> None:
    assert counted(tl.float32, m, n, k, "tf32x3") == {"dot_tf32": 3 * 2 * m * n * k}
