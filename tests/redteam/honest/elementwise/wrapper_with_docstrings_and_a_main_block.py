"""wrapper function with assertions, docstrings and a __main__ block

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        x = torch.relu(x)
        return x * 2.0 + 1.0


def get_inputs():
    return [torch.rand(1024, 96)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def affine_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.maximum(x, 0.0) * 2.0 + 1.0, mask=mask)


def triton_affine(x: torch.Tensor) -> torch.Tensor:
    """Fused ReLU, scale and shift.

    Launches one program for each block.
    """
    assert x.is_cuda, "Tensor must be on CUDA."
    assert x.dtype == torch.float32
    x = x.contiguous()
    out = torch.empty_like(x)
    n_elements = x.numel()
    BLOCK_SIZE = 1024
    affine_kernel[(triton.cdiv(n_elements, BLOCK_SIZE),)](x, out, n_elements, BLOCK=BLOCK_SIZE)
    return out


class ModelNew(nn.Module):
    """Optimised model."""

    def __init__(self) -> None:
        super(ModelNew, self).__init__()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return triton_affine(x)


if __name__ == "__main__":
    print(ModelNew()(torch.rand(4, 4).cuda()))
