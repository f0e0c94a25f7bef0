"""Functions that generated host code calls work on any tensor, and refuse another size or stride."""

import sys
from typing import Any

import pytest
import torch

from kernels_eval.tracing import generated_code

NAMES = ("assert_size_stride", "_empty_strided_cuda", "_reinterpret_tensor")


@pytest.fixture
def guards(monkeypatch: pytest.MonkeyPatch) -> Any:
    native: Any = sys.modules["torch._C"]
    found = native._dynamo.guards
    for name in NAMES:
        monkeypatch.setattr(found, name, getattr(found, name, None), raising=False)  # restored after the test
    generated_code.install()
    return found


def test_sizes_and_strides_are_asserted(guards: Any) -> None:
    tensor = torch.empty(4, 1, 3)
    guards.assert_size_stride(tensor, (4, 1, 3), (3, 3, 1), "op")
    guards.assert_size_stride(tensor, (4, 1, 3), (3, 99, 1))  # the stride of one element does not matter
    for size, stride in (((4, 3, 1), (3, 3, 1)), ((4, 1, 3), (1, 3, 4)), ((4, 1), (3, 3))):
        with pytest.raises((AssertionError, ValueError)):
            guards.assert_size_stride(tensor, size, stride)


def test_tensors_are_made_and_seen_in_another_form(guards: Any) -> None:
    made = guards._empty_strided_cuda((2, 3), (1, 2), torch.float16)
    assert (made.shape, made.stride(), made.dtype) == ((2, 3), (1, 2), torch.float16)
    base = torch.arange(12.0)[2:]
    assert guards._reinterpret_tensor(base, (2, 2), (4, 1), 1).tolist() == [[3.0, 4.0], [7.0, 8.0]]
