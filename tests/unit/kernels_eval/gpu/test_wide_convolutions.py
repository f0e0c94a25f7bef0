"""Transposed convolutions of the float64 oracle."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from kernels_eval.gpu.wide_convolutions import WideConvolutions

LAYERS: list[Callable[[], nn.Module]] = [
    lambda: nn.ConvTranspose1d(4, 6, 3),
    lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2),
    lambda: nn.ConvTranspose3d(4, 6, 3, dilation=2, bias=False),
    lambda: nn.Conv2d(4, 6, 3),
]
SHAPES = [(2, 4, 9), (2, 4, 9, 7), (2, 4, 5, 6, 7), (2, 4, 9, 7)]


@pytest.mark.parametrize(("layer", "shape"), zip(LAYERS, SHAPES, strict=True))
def test_results_are_the_same(layer: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    made, x = layer().double(), torch.randn(shape, dtype=torch.float64)
    with torch.no_grad():
        expected = made(x)
        with WideConvolutions():
            assert torch.allclose(made(x), expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(
    ("dtype", "function", "enabled"),
    [
        (torch.float64, torch.conv_transpose2d, [False]),
        (torch.float32, torch.conv_transpose2d, [True]),
        (torch.float64, torch.conv2d, [True]),
    ],
)
def test_the_transposed_ones_in_float64_are_without_cudnn(
    dtype: torch.dtype, function: Any, enabled: list[bool]
) -> None:
    seen: list[bool] = []

    class Noted(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is function:
                seen.append(torch.backends.cudnn.enabled)
            return super().__torch_function__(func, types, args, kwargs or {})

    x, weight = torch.randn(1, 2, 5, 5, dtype=dtype).as_subclass(Noted), torch.randn(2, 2, 3, 3, dtype=dtype)
    before = torch.backends.cudnn.allow_tf32
    with WideConvolutions():
        function(x, weight)
    assert seen == enabled
    assert torch.backends.cudnn.enabled
    assert torch.backends.cudnn.allow_tf32 == before


def test_without_memory_for_columns_it_is_cudnn_again() -> None:
    tried: list[bool] = []

    class Full(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.conv_transpose2d:
                tried.append(torch.backends.cudnn.enabled)
                if not torch.backends.cudnn.enabled:
                    raise torch.cuda.OutOfMemoryError("columns")
            return super().__torch_function__(func, types, args, kwargs or {})

    x, weight = torch.randn(1, 2, 5, 5).double().as_subclass(Full), torch.randn(2, 2, 3, 3).double()
    with WideConvolutions():
        assert torch.conv_transpose2d(x, weight).shape == (1, 2, 7, 7)
    assert tried == [False, True]
