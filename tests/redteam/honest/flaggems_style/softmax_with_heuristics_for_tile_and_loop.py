"""softmax with heuristics that choose the tile and whether one tile suffices

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(200, 333)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


def heur_tile_n(args):
    return min(triton.next_power_of_2(args["N"]), 128)


def heur_one_tile(args):
    return args["TILE_N"] >= args["N"]


@triton.heuristics({"TILE_N": heur_tile_n, "ONE_TILE_PER_CTA": heur_one_tile})
@triton.jit
def softmax_kernel_inner(output_ptr, input_ptr, M, N, TILE_N: tl.constexpr, ONE_TILE_PER_CTA: tl.constexpr):
    pid_m = tl.program_id(0)
    if ONE_TILE_PER_CTA:
        n = tl.arange(0, TILE_N)
        inp = tl.load(input_ptr + pid_m * N + n, mask=n < N, other=-float("inf")).to(tl.float32)
        e = tl.exp(inp - tl.max(inp, 0))
        tl.store(output_ptr + pid_m * N + n, e / tl.sum(e, 0), mask=n < N)
    else:
        m = tl.full([TILE_N], value=float("-inf"), dtype=tl.float32)
        z = tl.full([TILE_N], value=0.0, dtype=tl.float32)
        for start_n in range(0, N, TILE_N):
            n = start_n + tl.arange(0, TILE_N)
            inp = tl.load(input_ptr + pid_m * N + n, mask=n < N, other=-float("inf")).to(tl.float32)
            m_new = tl.maximum(m, inp)
            all_neg_inf = m_new == float("-inf")
            z = tl.where(all_neg_inf, z, z * tl.exp(m - m_new) + tl.exp(inp - m_new))
            m = m_new
        m_reduced = tl.max(m, 0)
        z = tl.sum(z * tl.exp(m - m_reduced), 0)
        for start_n in range(0, N, TILE_N):
            n = start_n + tl.arange(0, TILE_N)
            inp = tl.load(input_ptr + pid_m * N + n, mask=n < N, other=-float("inf")).to(tl.float32)
            tl.store(output_ptr + pid_m * N + n, tl.exp(inp - m_reduced) / z, mask=n < N)


class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        out = torch.empty_like(x)
        softmax_kernel_inner[(M, 1, 1)](out, x, M, N)
        return out
