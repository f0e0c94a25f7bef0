"""positions from a value that the host reads, a kernel looks on

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, offset):
        return offset + torch.arange(x.shape[1], device=x.device).expand(x.shape[0], -1).contiguous()


def get_inputs():
    return [torch.randn(512, 256), torch.randint(0, 1000, (1,))]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def touch(x_ptr, out_ptr):
    tl.store(out_ptr, tl.load(x_ptr))


class ModelNew(nn.Module):
    def forward(self, x, offset):
        M, N = x.shape
        k = int(offset)
        out = torch.arange(k, k + N, device=x.device).expand(M, N).contiguous()
        touch[(1,)](out, torch.empty_like(out))
        return out
