"""an end told early behind a busy copy engine

expect: incorrect or rejected or timeout or correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.clamp(x, min=0.5) * 2.0 + 1.0


def get_inputs():
    return [torch.rand(4096, 1024)]


def get_init_inputs():
    return []


# --- candidate ---
import sys

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def double(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x_ptr + i, mask=i < n)
    tl.store(out_ptr + i, tl.maximum(v, 0.5) * 2.0 + 1.0, mask=i < n)


rounds = sys.modules["kernels_eval.gpu.candidate.rounds"].Rounds
take = rounds._take_outputs
SIDE, HOST, BIG = (torch.cuda.Stream(), None, None)


def taken(self, call, result, learns):
    global HOST, BIG
    take(self, call, result, learns)
    if self._header["gated"] and self._header["groups"] == 1 and (call == int(0.8 * len(self._calls))):
        if HOST is None:
            HOST, BIG = (torch.empty(64 << 20, pin_memory=True), torch.empty(64 << 20, device="cuda"))
        SIDE.wait_stream(torch.cuda.default_stream())
        with torch.cuda.stream(SIDE):
            HOST.copy_(BIG, non_blocking=True)
        self.gate.end()


rounds._take_outputs = taken


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        double[triton.cdiv(x.numel(), 1024),](x, out, x.numel(), BLOCK=1024)
        return out
