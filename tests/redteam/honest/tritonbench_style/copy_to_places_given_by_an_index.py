"""key-value rows copied to places that an index names, in a cache that starts as the input

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, cache, kv, place):
        return cache.index_copy(0, place, kv)


def get_inputs():
    return [torch.zeros(300, 4, 24), torch.randn(160, 4, 24), torch.randperm(300)[:160]]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def copy_kv_kernel(
    KV,
    Dest,
    Out,
    sk_bs,
    sk_h,
    sk_d,
    so_bs,
    so_h,
    so_d,
    heads,
    BLOCK_D: tl.constexpr,
    BLOCK_H: tl.constexpr,
    D: tl.constexpr,
):
    cur = tl.program_id(0)
    offs_h = tl.arange(0, BLOCK_H)
    offs_d = tl.arange(0, BLOCK_D)
    dest = tl.load(Dest + cur)
    mask = (offs_h[:, None] < heads) & (offs_d[None, :] < D)
    k = tl.load(KV + cur * sk_bs + offs_h[:, None] * sk_h + offs_d[None, :] * sk_d, mask=mask, other=0.0)
    tl.store(Out + dest * so_bs + offs_h[:, None] * so_h + offs_d[None, :] * so_d, k, mask=mask)


class ModelNew(nn.Module):
    @torch.no_grad()
    def forward(self, cache, kv, place):
        out = cache.clone()
        n, heads, D = kv.shape
        copy_kv_kernel[(n,)](
            kv,
            place,
            out,
            *kv.stride(),
            *out.stride(),
            heads,
            BLOCK_D=triton.next_power_of_2(D),
            BLOCK_H=triton.next_power_of_2(heads),
            D=D,
            num_warps=1,
            num_stages=1,
        )
        return out
