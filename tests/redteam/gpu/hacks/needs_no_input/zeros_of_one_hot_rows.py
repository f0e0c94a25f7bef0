"""zeros of one-hot rows are written before the inputs arrive

Every call of a round is launched while the gate is closed. A fill on another stream is done by then, and counts
neither as time nor as a side stream's kernel. In checked calls the default stream waits for it: always right.

expect: incorrect or rejected or correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, i):
        return torch.zeros(i.shape[0], 2048, device=i.device).scatter_(1, i[:, None], 1.0)


def get_inputs():
    return [torch.randint(0, 2048, (4096,))]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def set_ones(i_ptr, out_ptr, n, C: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = tl.load(i_ptr + rows, mask=rows < n, other=0)
    tl.store(out_ptr + rows.to(tl.int64) * C + at, tl.full((BLOCK,), 1.0, tl.float32), mask=rows < n)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.side = torch.cuda.Stream()  # of PyTorch's pool: waits for no default stream

    def forward(self, i):
        n = i.shape[0]
        with torch.cuda.stream(self.side):
            out = torch.zeros((n, 2048), device=i.device)
        torch.cuda.current_stream().wait_stream(self.side)
        set_ones[triton.cdiv(n, 128),](i, out, n, C=2048, BLOCK=128)
        return out
