"""Eager PyTorch as launches: operations by unit, what an earlier operator left in the cache, fused functions."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as functional

from kernels_eval.cost.launch import Launch
from kernels_eval.cost.operators import EagerCounter


def counted(run: Callable[[], object]) -> list[Launch]:
    with EagerCounter() as counter:
        run()
    return counter.launches


X = torch.ones(64, 32)


def test_rms_norm_is_one_launch() -> None:
    (launch,) = counted(lambda: functional.rms_norm(X, (32,)))
    assert (launch.kernel, launch.dram_bytes, launch.written_bytes) == ("aten.rms_norm", 2 * 4 * 64 * 32, 4 * 64 * 32)


def test_a_tensor_is_read_again_by_the_second_operator() -> None:
    first, second = counted(lambda: (X + 1.0) * 2.0)
    assert (first.again_bytes, second.again_bytes) == (0, 4 * 64 * 32)


@pytest.mark.parametrize(
    ("dtype", "unit"),
    [
        (torch.float32, "dot_fp32"),
        (torch.float16, "dot_half"),
        (torch.bfloat16, "dot_half"),
        (torch.float64, "dot_fp64"),
    ],
)
def test_products_by_their_type(dtype: torch.dtype, unit: str) -> None:
    (launch,) = counted(lambda: torch.matmul(A.to(dtype), A.to(dtype)))[-1:]
    assert launch.operations == {unit: 2 * 32**3}


A = torch.ones(32, 32)


@pytest.mark.parametrize("key_heads", [4, 2, 1])
def test_attention_counts_both_products_also_where_heads_share_keys(key_heads: int) -> None:
    query, key = torch.ones(2, 4, 7, 16), torch.ones(2, key_heads, 9, 16)
    launches = counted(lambda: functional.scaled_dot_product_attention(query, key, key, enable_gqa=key_heads < 4))
    products = sum(launch.operations.get("dot_fp32", 0.0) for launch in launches)
    assert products == 2 * (2 * 4 * 7 * 9 * 16) * 2


def test_special_functions_and_powers() -> None:
    (exponential,) = counted(lambda: torch.exp(X))
    (square,) = counted(lambda: X**2)
    (power,) = counted(lambda: X**2.7)
    assert exponential.operations["sfu"] == 64 * 32
    assert square.operations == {"fp32": 64 * 32}
    assert sum(power.operations.values()) > 50 * 64 * 32
