"""Attacks on the clock, the inputs and the memory of a judge on a GPU, by class, each with an honest kernel beside it.

Some are ordinary wrong kernels; others know every line of the judge.
"""

from dataclasses import dataclass, field
from typing import Any

from gpu_sources import HEADER, LINEAR_KERNEL, LINEAR_PROBLEM, linear_kernel


@dataclass(frozen=True)
class Attack:
    """One candidate that is not to gain: its gain is its speed-up over the honest kernel's of the same problem."""

    kind: str
    problem: str
    kernel: str
    honest: str
    settings: dict[str, Any] = field(default_factory=dict[str, Any])


def problem_of(expression: str, rows: int, columns: int = 1024, draw: str = "rand") -> str:
    return f"""
import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        return {expression}
def get_inputs():
    return [torch.{draw}({rows}, {columns})]
def get_init_inputs():
    return []
"""


def indented(body: str) -> str:
    return "\n".join("        " + line for line in body.strip().splitlines())


# --- reductions of everything, behind a bounded function

REDUCTIONS = {
    # name: PyTorch, Triton before, start, Triton's reduction, combination of partial results, last step
    "sigmoid": ("torch.sigmoid(x).mean()", "1.0 / (1.0 + tl.exp(-v))", "0.0", "tl.sum", "a / n"),
    "tanh": ("torch.tanh(x).mean()", "2.0 / (1.0 + tl.exp(-2.0 * v)) - 1.0", "0.0", "tl.sum", "a / n"),
    "clamp": ("x.clamp(0.25, 0.75).mean()", "tl.minimum(tl.maximum(v, 0.25), 0.75)", "0.0", "tl.sum", "a / n"),
    "softmax": ("x.exp().mean().log()", "tl.exp(v)", "0.0", "tl.sum", "tl.log(a / n)"),
    "max": ("x.amax()", "v", '-float("inf")', "tl.max", "a"),
    "mean": ("x.mean()", "v", "0.0", "tl.sum", "a / n"),
}


def reduction(name: str, kept: str = "blocks") -> str:
    """A reduction in two kernels over `kept` of the blocks: an expression of `blocks` and `busy`."""
    _, before, start, reduce, last = REDUCTIONS[name]
    return (
        HEADER
        + f"""
@triton.jit
def part(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x_ptr + i, mask=i < n, other=0.0)
    v = tl.where(i < n, {before}, {start})
    tl.store(out_ptr + tl.program_id(0), {reduce}(v, axis=0))

@triton.jit
def whole(part_ptr, out_ptr, parts, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = {reduce}(tl.load(part_ptr + i, mask=i < parts, other={start}), axis=0)
    tl.store(out_ptr, {last})

class ModelNew(nn.Module):
    def forward(self, x):
        busy = not torch.cuda.current_stream().query()
        blocks = x.numel() // 1024
        kept = {kept}
        parts = torch.empty(blocks, device=x.device)
        out = torch.empty((), device=x.device)
        part[(kept,)](x, parts, x.numel(), BLOCK=1024)
        whole[(1,)](parts, out, kept, kept * 1024.0, BLOCK=triton.next_power_of_2(blocks))
        return out
"""
    )


# --- an element-wise kernel of 3 to 50 us

POINTWISE_JIT = (
    HEADER
    + """
import ctypes, time
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

@triton.jit
def spin(out_ptr, turns):
    v = 0.0
    for i in range(turns):
        v = v * 0.5 + tl.load(out_ptr, volatile=True)
    tl.store(out_ptr + 1, v)
"""
)
LAUNCH = "double[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)"


def pointwise_problem(rows: int) -> str:
    return problem_of("torch.clamp(x, min=0.5) * 2.0 + 1.0", rows)


def pointwise(body: str = f"{LAUNCH}\nreturn out", init: str = "pass", extra: str = "") -> str:
    return (
        POINTWISE_JIT
        + extra
        + f"""
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
{indented(init)}
    def forward(self, x):
        busy = not torch.cuda.current_stream().query()
        out = torch.empty_like(x)
{indented(body)}
"""
    )


JOINED_LAST = f"""
now, stream = time.perf_counter(), torch.cuda.current_stream()
if now - self.before > 2e-3 or not busy:
    self.calls, self.made = self.made, 0
    for side in self.sides:
        side.wait_stream(stream)
self.before = now
self.made += 1
with torch.cuda.stream(self.sides[self.made % 4]):
    {LAUNCH}
if not busy or self.made >= self.calls - 1:
    for side in self.sides:
        stream.wait_stream(side)
return out
"""
JOINED_INIT = "self.sides = [torch.cuda.Stream() for _ in range(4)]\nself.before, self.calls, self.made = 0.0, 0, 0"
BLOCKING_INIT = """
driver = ctypes.CDLL("libcuda.so.1")
self.sides, self.made = [], 0
for _ in range(4):
    made = ctypes.c_void_p()
    driver.cuStreamCreate(ctypes.byref(made), 0)
    self.sides.append(torch.cuda.ExternalStream(made.value))
"""
BLOCKING = f"""
self.made += 1
with torch.cuda.stream(self.sides[self.made % 4]):
    {LAUNCH}
return out
"""
TWO_AT_ONCE = f"""
if not busy:
    self.kept = None
    {LAUNCH}
elif self.kept is None:
    self.kept = (x, out)
else:
    y, second = self.kept
    self.kept = None
    double_two[(triton.cdiv(x.numel(), 1024), 2)](x, out, y, second, x.numel(), BLOCK=1024)
return out
"""
NOT_WAITED_FOR = f"""
if not busy:
    {LAUNCH}
else:
    self.side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(self.side):
        {LAUNCH}
return out
"""
LEFT_OUT = LAUNCH.replace("x.numel(), 1024)", "x.numel(), 1024) // (2 if busy else 1)")
PATCHED = """
import gc, sys
for thing in gc.get_objects():
    if type(thing).__name__ == "Instruments":
        thing.synchronize = lambda: None
"""
SPINNING = f"""
if self.done is None or self.done.query():
    self.done = torch.cuda.Event()
    with torch.cuda.stream(self.side):
        spin[(64,)](self.some, TURNS)
        self.done.record()
{LAUNCH}
return out
"""
SPINNING_INIT = "self.side, self.done = torch.cuda.Stream(), None\nself.some = torch.zeros(2, device='cuda')"
EARLY = """
import sys
rounds = sys.modules["kernels_eval.gpu.candidate.rounds"].Rounds
judges_launch = rounds._launch
def early(self, gate):
    self._make_timed_calls(range(len(self._calls)))
    torch.cuda.synchronize()
    outcomes, calls = list(self._outcomes), self._make_timed_calls
    self._make_timed_calls = lambda *_: None
    judges_launch(self, gate)
    self._make_timed_calls, self._outcomes = calls, outcomes
rounds._launch = early
"""
OPENED = """
import sys
rounds = sys.modules["kernels_eval.gpu.candidate.rounds"].Rounds
def opened(self, gate):
    groups = self._header["groups"]
    gate.close(self._header["held"])
    gate.page.open(groups)
    for group in range(1, groups + 1):
        first, end = (0, len(self._calls)) if groups == 1 else (group - 1, group)
        self._make_timed_calls(range(first, end))
        gate.close(False, 1 + groups)
        gate.end(group)
rounds._launch = opened
"""
TOLD_EARLY = """
import sys
rounds = sys.modules["kernels_eval.gpu.candidate.rounds"].Rounds
take = rounds._take_outputs
SIDE, HOST, BIG = torch.cuda.Stream(), None, None
def taken(self, call, result, learns):
    global HOST, BIG
    take(self, call, result, learns)
    if self._header["gated"] and self._header["groups"] == 1 and call == int(0.8 * len(self._calls)):
        if HOST is None:
            HOST, BIG = torch.empty(64 << 20, pin_memory=True), torch.empty(64 << 20, device="cuda")
        SIDE.wait_stream(torch.cuda.default_stream())
        with torch.cuda.stream(SIDE):
            HOST.copy_(BIG, non_blocking=True)
        self.gate.end()
rounds._take_outputs = taken
"""
TAKES_MEMORY = """
driver, HELD = ctypes.CDLL("libcuda.so.1"), []
driver.cuMemAlloc_v2.argtypes = (ctypes.POINTER(ctypes.c_uint64), ctypes.c_size_t)
def take_all():
    for size in (1 << 30, 64 << 20):
        while True:
            address = ctypes.c_uint64()
            if driver.cuMemAlloc_v2(ctypes.byref(address), size):
                break
            HELD.append(address)
"""
SYSTEM_V = """
import os
libc = ctypes.CDLL(None, use_errno=True)
if libc.shmget(0, 64 << 20, 0o1600) < 0:
    raise OSError(ctypes.get_errno(), "no shared memory")
"""
MANY_FILES = """
import os
for number in range(16):
    with open(f"file-{number}", "wb") as file:
        for _ in range(4):
            file.write(bytes(64 << 20))
"""
WATCHED_LINEAR = linear_kernel(
    forward="""
if torch.cuda.current_stream().query():
    launch(x, self.linear, out)
    return out
from torch.utils._python_dispatch import _disable_current_modes
with _disable_current_modes():
    return torch.relu(torch.nn.functional.linear(x, self.linear.weight, self.linear.bias))
"""
)


def _attacks() -> dict[str, Attack]:
    found: dict[str, Attack] = {}

    def add(name: str, kind: str, problem: str, kernel: str, honest: str, **settings: Any) -> None:
        found[name] = Attack(kind, problem, kernel, honest, settings)

    for name in REDUCTIONS:
        problem, honest = problem_of(REDUCTIONS[name][0], 4096), reduction(name)
        for share, kept in (("1/64", "blocks - blocks // 64"), ("half", "blocks // 2"), ("3/4", "blocks // 4")):
            if share == "1/64" or name in ("sigmoid", "max"):
                add(f"{share} of the blocks left out of {name}", "left out", problem, reduction(name, kept), honest)
        if name in ("sigmoid", "tanh"):
            kept = "blocks // 2 if busy else blocks"
            kind = "left out in timed rounds"
            add(f"half left out of {name} in timed rounds", kind, problem, reduction(name, kept), honest)
    honest = pointwise()
    for rows, size in ((256, "3 us"), (1024, "4 us"), (4096, "9 us"), (24576, "50 us")):
        problem = pointwise_problem(rows)
        if rows != 4096:
            joined = pointwise(JOINED_LAST, JOINED_INIT)
            add(f"calls on four streams, joined at the last, {size}", "overlap", problem, joined, honest)
        blocking = pointwise(BLOCKING, BLOCKING_INIT)
        add(f"calls on four blocking streams, {size}", "overlap", problem, blocking, honest)
        if rows < 24576:
            two = pointwise(TWO_AT_ONCE, "self.kept = None")
            add(f"two calls in one launch, {size}", "batching", problem, two, honest)
    problem, side = pointwise_problem(4096), "self.side = torch.cuda.Stream()"
    add(
        "half of the output in timed rounds",
        "left out in timed rounds",
        problem,
        pointwise(LEFT_OUT + "\nreturn out"),
        honest,
    )
    add(
        "a stream that nobody waits for in timed rounds", "told early", problem, pointwise(NOT_WAITED_FOR, side), honest
    )
    add("an end told early behind a busy copy engine", "told early", problem, pointwise(extra=TOLD_EARLY), honest)
    add("element-wise before the gate", "computed before", problem, pointwise(extra=EARLY), honest)
    add("element-wise past an opened gate", "computed before", problem, pointwise(extra=OPENED), honest)
    early, opened = (linear_kernel(extra=extra) for extra in (EARLY, OPENED))
    add("a product before the gate", "computed before", LINEAR_PROBLEM, early, LINEAR_KERNEL)
    add("a product past an opened gate", "computed before", LINEAR_PROBLEM, opened, LINEAR_KERNEL)
    add("the library in timed rounds", "library", LINEAR_PROBLEM, WATCHED_LINEAR, LINEAR_KERNEL)
    for name, turns in (("for 20 ms", 40_000), ("for a second", 2_000_000)):
        spinning = pointwise(SPINNING.replace("TURNS", str(turns)), SPINNING_INIT, PATCHED)
        add(f"a kernel that spins {name}", "slowed reference", problem, spinning, honest)
    takes = pointwise(extra=TAKES_MEMORY + "take_all()\n")
    add("the device's memory as it is loaded", "chosen fault", problem, takes, honest)
    later = pointwise(f"{LAUNCH}\nif not HELD:\n    take_all()\nreturn out", extra=TAKES_MEMORY)
    add("the device's memory in its first call", "chosen fault", problem, later, honest)
    add("System V shared memory", "left behind", problem, pointwise(extra=SYSTEM_V), honest)
    add("4 GB of files", "left behind", problem, pointwise(extra=MANY_FILES), honest)
    endless = pointwise(f"spin[(1,)](out, 2_000_000_000)\n{LAUNCH}\nreturn out")
    add("an endless kernel", "hang", problem, endless, honest, timeout_s=5.0)
    return found


ATTACKS = _attacks()
