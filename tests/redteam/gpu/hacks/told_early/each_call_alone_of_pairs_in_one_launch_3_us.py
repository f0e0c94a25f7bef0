"""two calls in one launch but in profiled rounds, and an end told early of each call alone, 3 us

expect: incorrect or rejected or correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.clamp(x, min=0.5) * 2.0 + 1.0


def get_inputs():
    return [torch.rand(256, 1024)]


def get_init_inputs():
    return []


# --- candidate ---
import ctypes
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


@triton.jit
def double_two(x_ptr, out_ptr, y_ptr, second_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if tl.program_id(1) == 0:
        v = tl.load(x_ptr + i, mask=i < n)
        tl.store(out_ptr + i, tl.maximum(v, 0.5) * 2.0 + 1.0, mask=i < n)
    else:
        v = tl.load(y_ptr + i, mask=i < n)
        tl.store(second_ptr + i, tl.maximum(v, 0.5) * 2.0 + 1.0, mask=i < n)


def new_blocking_stream():
    """Return a stream that waits for the default one, and for which that one waits."""
    made = ctypes.c_void_p()
    ctypes.CDLL("libcuda.so.1").cuStreamCreate(ctypes.byref(made), 0)
    return torch.cuda.ExternalStream(made.value)


rounds = sys.modules["kernels_eval.gpu.candidate.rounds"].Rounds
launch, make, FILLERS = rounds._launch, rounds._make_timed_calls, 1


def launched(self, gate):
    if self._header["groups"] == 1:
        launch(self, gate)
        return
    for group in range(1, self._header["groups"] + 1):
        gate.close(self._header["held"] and group == 1, group)
        for _ in range(FILLERS):  # time that a call alone has to take
            gate.end(group - 1)
        gate.end(group)
        self._make_timed_calls(range(group - 1, group))


def made(self, indices):
    header = self._header
    if not header["gated"] or header["profiled"] or header["groups"] > 1:
        make(self, indices)
        return
    make(self, range(1))
    self._outcomes *= len(self._calls)
    memory, calls = self.memory.tensor, header["calls"][1:]
    n = calls[0]["outputs"][0]["nbytes"] // 4 if calls else 0
    given = [memory[call["inputs"][0]["offset"] :][: 4 * n].view(torch.float32) for call in calls]
    slots = [memory[call["outputs"][0]["offset"] :][: 4 * n].view(torch.float32) for call in calls]
    with torch.cuda.stream(SIDE):
        for one in range(0, len(calls) - 1, 2):
            double_two[triton.cdiv(n, 1024), 2](given[one], slots[one], given[one + 1], slots[one + 1], n, BLOCK=1024)
        if len(calls) % 2:
            double[triton.cdiv(n, 1024),](given[-1], slots[-1], n, BLOCK=1024)


rounds._launch, rounds._make_timed_calls = launched, made
SIDE = new_blocking_stream()


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.is_warm = False

    def forward(self, x):
        out = torch.empty_like(x)
        with torch.cuda.stream(SIDE):
            if not self.is_warm:  # loaded now, since it is first used behind a gate
                double_two[triton.cdiv(x.numel(), 1024), 2](x, out, x, out, x.numel(), BLOCK=1024)
                self.is_warm = True
            double[triton.cdiv(x.numel(), 1024),](x, out, x.numel(), BLOCK=1024)
        return out
