"""fp16 product with tensor descriptors made on the host

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.randn(128, 96, dtype=torch.float16), torch.randn(96, 72, dtype=torch.float16)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def mm(a_desc, b_desc, c_desc, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pm = tl.program_id(0) * BM
    pn = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        a = a_desc.load([pm, k])
        b = b_desc.load([k, pn])
        acc = tl.dot(a, b, acc)
    c_desc.store([pm, pn], acc.to(tl.float16))


class ModelNew(nn.Module):
    def forward(self, a, b):
        M, K = a.shape
        N = b.shape[1]
        c = torch.empty((M, N), device=a.device, dtype=a.dtype)
        A = TensorDescriptor.from_tensor(a, [32, 32])
        B = TensorDescriptor.from_tensor(b, [32, 32])
        C = TensorDescriptor.from_tensor(c, [32, 32])
        mm[(triton.cdiv(M, 32), triton.cdiv(N, 32))](A, B, C, M, N, K, BM=32, BN=32, BK=32)
        return c
