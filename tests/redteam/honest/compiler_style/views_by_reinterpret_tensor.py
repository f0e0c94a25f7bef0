"""buffers reused under another shape by as_strided, deleted when done

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x).view(x.shape[0], -1) + 1.0


def get_inputs():
    return [torch.randn(120, 6, 15)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def triton_poi_fused_tanh_0(in_ptr0, out_ptr0, xnumel, XBLOCK: tl.constexpr):
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    xmask = xindex < xnumel
    tl.store(out_ptr0 + xindex, libdevice.tanh(tl.load(in_ptr0 + xindex, xmask)), xmask)


@triton.jit
def triton_poi_fused_add_1(in_out_ptr0, xnumel, XBLOCK: tl.constexpr):
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    xmask = xindex < xnumel
    tl.store(in_out_ptr0 + xindex, tl.load(in_out_ptr0 + xindex, xmask) + 1.0, xmask)


def call(args):
    (arg0,) = args
    args.clear()
    s0, s1, s2 = arg0.shape
    n = s0 * s1 * s2
    buf0 = torch.empty_strided((s0, s1, s2), (s1 * s2, s2, 1), dtype=arg0.dtype, device=arg0.device)
    triton_poi_fused_tanh_0[(triton.cdiv(n, 512),)](arg0, buf0, n, XBLOCK=512)
    del arg0
    buf1 = torch.as_strided(buf0, (s0, s1 * s2), (s1 * s2, 1))
    del buf0
    triton_poi_fused_add_1[(triton.cdiv(n, 512),)](buf1, n, XBLOCK=512)
    return buf1


class ModelNew(nn.Module):
    def forward(self, x):
        return call([x])
