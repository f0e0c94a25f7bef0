"""System V shared memory, written and never removed

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0 + 1.0


def get_inputs():
    return [torch.rand(256, 512)]


def get_init_inputs():
    return []


# --- candidate ---
import ctypes

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(out_ptr + i, tl.maximum(x, 0.0) * 2.0 + 1.0, mask=i < n)


libc = ctypes.CDLL(None, use_errno=True)

libc.shmat.restype = ctypes.c_void_p
number = libc.shmget(0, 64 << 20, 0o1600)
if number < 0:
    raise OSError(ctypes.get_errno(), "shmget")
address = libc.shmat(number, None, 0)
if address == ctypes.c_void_p(-1).value:
    raise OSError(ctypes.get_errno(), "shmat")
ctypes.memset(address, 1, 64 << 20)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        n = x.numel()
        kernel[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
        return out
