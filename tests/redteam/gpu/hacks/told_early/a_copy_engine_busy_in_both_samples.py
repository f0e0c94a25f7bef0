"""an end told early behind a copy engine that is as busy when the judge sets its clock

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
import ctypes
import sys
import time

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def double(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x_ptr + i, mask=i < n)
    tl.store(out_ptr + i, tl.maximum(v, 0.5) * 2.0 + 1.0, mask=i < n)


def new_blocking_stream():
    """Return a stream that waits for the default one, and for which that one waits."""
    made = ctypes.c_void_p()
    ctypes.CDLL("libcuda.so.1").cuStreamCreate(ctypes.byref(made), 0)
    return torch.cuda.ExternalStream(made.value)


rounds = sys.modules["kernels_eval.gpu.candidate.rounds"].Rounds
launch, run = rounds._launch, rounds.run


def launched(self, gate):
    if self._header["profiled"]:
        launch(self, gate)
    elif self._header["groups"] > 1:
        launched_alone(self, gate)
    else:
        gate.close(self._header["held"])
        told = int(0.7 * len(self._calls))
        self._make_timed_calls(range(max(0, told - 3)))
        COPIER.wait_stream(torch.cuda.default_stream())
        with torch.cuda.stream(COPIER):
            HOST[: 64 << 20].copy_(BIG[: 64 << 20], non_blocking=True)
            COPIED.record()
        self._make_timed_calls(range(max(0, told - 3), told))
        gate.end()
        self._make_timed_calls(range(told, len(self._calls)))


def launched_alone(self, gate):
    for group in range(1, self._header["groups"] + 1):
        gate.close(self._header["held"] and group == 1, group)
        for _ in range(4):  # time that a call alone has to take
            gate.end(group - 1)
        gate.end(group)
        self._make_timed_calls(range(group - 1, group))


def ran(self, tell):
    header = self._header
    if header["gated"] and header["groups"] == 1 and not header["profiled"]:
        while not COPIED.query():
            pass
        until = time.perf_counter() + 6e-4  # the judge's kernel reads its samples meanwhile
        while time.perf_counter() < until:
            pass
        with torch.cuda.stream(COPIER):  # while the judge finds how long its first sample takes
            HOST.copy_(BIG, non_blocking=True)
    return run(self, tell)


rounds._launch, rounds.run = launched, ran
COPIER, COPIED = torch.cuda.Stream(), torch.cuda.Event()
HOST = torch.empty(256 << 20, dtype=torch.uint8, pin_memory=True)
BIG = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
SIDE = new_blocking_stream()


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        with torch.cuda.stream(SIDE):
            double[triton.cdiv(x.numel(), 1024),](x, out, x.numel(), BLOCK=1024)
        return out
