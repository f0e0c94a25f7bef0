"""Timings of the judge on a real GPU against independent measurements, and honest fast kernels that must not be refused.

    python3 tools/gpu/timing_on_gpu.py [--parts fast,many,tampering,large] [--repeats 3] [--budget SECONDS]

Needs what judge_on_gpu.py needs. `fast`: problems of 3 µs to 1 ms, verdicts by the judge beside the times of a process
that knows nothing of it, over as many sets of inputs as the L2 cache does not hold: device events around calls that wait
in the device's queue (`queue`), around a CUDA graph of them, which has no gaps between launches, and do_bench, which
empties the cache before each call. `many`: verdicts on honest kernels of 3 to 50 µs by several workers; none may be
refused. `tampering`: candidates that forge what their own process measures. `large`: element-wise problems of up to 6.4
GB, the memory that they take, and the seconds of a warm verdict. Prints as it goes; writes `$OUT/timing_gpu.json`.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]
os.environ["PYTHONPATH"] = f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"

import gpu_sources as sources  # noqa: E402
import judge_on_gpu  # noqa: E402

from kernels_eval import Judge, JudgeConfig  # noqa: E402

OUT = Path(os.environ.get("OUT", "."))
FAST = [
    ("gelu", 2048, 512, 0),
    ("relu>double>softmax", 2048, 1024, 0),
    ("layer_norm>gelu>halve", 4096, 512, 0),
    ("square>tanh>sum", 8192, 512, 0),
    ("cosine>amax", 4096, 64, 0),
    ("linear>layer_norm>tanh", 8192, 64, 96),
    ("linear>relu>softmax", 16384, 128, 256),
    ("sigmoid>transpose", 4096, 1024, 0),
    ("silu>log_softmax", 8192, 1024, 0),
    ("gelu>double>sigmoid>increment", 16384, 1024, 0),
]
SLOW = [
    ("relu>double>softmax", 16384, 1024, 0),
    ("layer_norm>gelu>halve", 16384, 4096, 0),
    ("elu>hardswish>increment>double>halve>negate", 65536, 4096, 0),
]
_PEER = """
import json, sys, types, linecache, torch, triton
def load(name, text):
    module = types.ModuleType(name); sys.modules[name] = module
    linecache.cache[name + ".py"] = (len(text), None, text.splitlines(True), name + ".py")
    exec(compile(text, name + ".py", "exec"), module.__dict__); return module
def graph_us(model, sets):
    for inputs in sets[:3]: model(*inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = [model(*inputs) for inputs in sets]
    times = []
    for _ in range(7):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(500000); start.record(); graph.replay(); end.record(); torch.cuda.synchronize()
        times.append(1e3 * start.elapsed_time(end) / len(sets))
    return sorted(times)[3]
def queue_us(model, sets):
    sets = sets[:64]
    kept = [model(*inputs) for inputs in sets]
    del kept
    times = []
    for _ in range(5):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(20000000); start.record(); kept = [model(*inputs) for inputs in sets]; end.record()
        torch.cuda.synchronize(); del kept
        times.append(1e3 * start.elapsed_time(end) / len(sets))
    return sorted(times)[2]
torch.backends.cuda.matmul.allow_tf32 = False
found = []
for number, (problem, kernel) in enumerate(json.load(sys.stdin)):
    reference, candidate = load(f"problem{number}", problem), load(f"candidate{number}", kernel)
    arguments = reference.get_init_inputs()
    with torch.no_grad():
        model, new = reference.Model(*arguments).cuda(), candidate.ModelNew(*arguments).cuda()
        one = [value.cuda() for value in reference.get_inputs()]
        nbytes = sum(value.numel() * value.element_size() for value in one)
        sets = [[value.clone() for value in one] for _ in range(max(4 if nbytes > 1e8 else 16, min(400, 200000000 // nbytes)))]
        row = {}
        for name, what in (("candidate", new), ("reference", model)):
            row[name] = {
                "graph": graph_us(what, sets),
                "queue": queue_us(what, sets),
                "do_bench": 1e3 * triton.testing.do_bench(lambda: what(*sets[0]), return_mode="median"),
            }
            row[name] = {key: round(value, 2) for key, value in row[name].items()}
        found.append(row)
        del sets; torch.cuda.empty_cache()
print(json.dumps(found))
"""


_NARROW = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(k, n) / k**0.5)
    def forward(self, x):
        return torch.matmul(x, self.weight)
def get_inputs():
    return [torch.randn(8192, 128)]
def get_init_inputs():
    return [128, 64]
"""
_NARROW_KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl
@triton.jit
def product(x_ptr, w_ptr, out_ptr, M, N, K, ROWS: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    columns = tl.arange(0, BLOCK)[None, :]
    total = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for first in range(0, K, STEP):
        steps = first + tl.arange(0, STEP)
        left = tl.load(x_ptr + rows * K + steps[None, :], mask=(rows < M) & (steps[None, :] < K), other=0.0)
        right = tl.load(w_ptr + steps[:, None] * N + columns, mask=(steps[:, None] < K) & (columns < N), other=0.0)
        total = tl.dot(left, right, total, input_precision="tf32x3")
    tl.store(out_ptr + rows * N + columns, total, mask=(rows < M) & (columns < N))
class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(k, n) / k**0.5)
    def forward(self, x):
        (M, K), N = x.shape, self.weight.shape[1]
        out = torch.empty(M, N, device=x.device)
        product[(triton.cdiv(M, 32),)](x, self.weight, out, M, N, K, ROWS=32, BLOCK=triton.next_power_of_2(N), STEP=32)
        return out
"""
"""Of 12 to 20 µs: a kernel of this kind was refused for clocks that disagree, before the gate."""


def say(text: str) -> None:
    print(text, flush=True)


def median_of_right(times: list[float]) -> float:
    return median([value for value in times if value] or [float("nan")])


def independent(items: list[tuple[str, str]]) -> list[dict[str, dict[str, float]]]:
    """Return microseconds of reference and candidate of each item, measured without the judge."""
    command = [sys.executable, "-c", _PEER]
    ran = subprocess.run(command, input=json.dumps(items), capture_output=True, text=True, timeout=120, cwd=ROOT)
    if ran.returncode:
        say(f"  the independent measurement failed: {ran.stderr[-1500:]}")
        return []
    return json.loads(ran.stdout.splitlines()[-1])


def fast_kernels(repeats: int, seconds: float) -> dict[str, Any]:
    began = time.monotonic()
    chosen = [*FAST, *SLOW]
    items = [judge_on_gpu.generated(*composition, "fused") for composition in chosen]
    items.append((_NARROW, _NARROW_KERNEL))
    peers = independent(items)
    say(f"  the independent times are there ({time.monotonic() - began:.0f} s)")
    ends_at = time.monotonic() + seconds
    worst = 0.0
    rows: list[dict[str, Any]] = []
    refused = judged = 0
    with Judge(JudgeConfig(workers=1, device="cuda")) as judge:
        for number, (problem, kernel) in enumerate(items):
            row: dict[str, Any] = {
                "problem": " ".join(map(str, chosen[number])) if number < len(chosen) else "narrow product"
            }
            verdicts = []
            started = time.monotonic()
            for repeat in range(repeats):
                if time.monotonic() < ends_at:
                    verdicts.append(judge.evaluate(problem, f"{kernel}# {repeat}"))
            row["seconds"] = (time.monotonic() - started) / max(len(verdicts), 1)
            if not verdicts:
                break
            judged += len(verdicts)
            wrong = [verdict for verdict in verdicts if not verdict.correct]
            refused += len(wrong)
            for verdict in wrong[:1]:
                row["refused"] = judge_on_gpu.brief(verdict)
            row["us"] = [round(1e3 * (verdict.candidate_ms or 0), 2) for verdict in verdicts]
            row["reference_us"] = [round(1e3 * (verdict.reference_ms or 0), 2) for verdict in verdicts]
            if peers:
                row["independent_us"] = peers[number]
                for name, measured in (("candidate", row["us"]), ("reference", row["reference_us"])):
                    error = median_of_right(measured) / peers[number][name]["queue"] - 1
                    row[f"{name} beside the queue"] = f"{error:+.1%}"
                    worst = max(worst, abs(error))
            rows.append(row)
            say(f"  {json.dumps(row)}")
    say(f"  {judged} verdicts, {refused} refused; largest difference from the queue's times {worst:.1%}")
    return {"judged": judged, "refused": refused, "rows": rows, "largest difference": worst}


def many_kernels(workers: int, ends_at: float) -> dict[str, Any]:
    """Judge honest kernels of 3 to 50 µs again and again, several at once; counts those that are not correct."""
    items = [judge_on_gpu.generated(*composition, style) for composition in FAST for style in ("fused", "small_blocks")]
    items.append((_NARROW, _NARROW_KERNEL))
    judged = 0
    refused: list[str] = []
    times: dict[int, list[float]] = {}
    warm_from = 0.0
    with Judge(JudgeConfig(workers=workers, device="cuda")) as judge:
        for repeat in range(1000):
            if time.monotonic() > ends_at:
                break
            if repeat == 1:  # workers and references are there
                warm_from = time.monotonic()
            futures = [judge.submit(problem, f"{kernel}# {repeat}") for problem, kernel in items]
            for number, future in enumerate(futures):
                verdict = future.result()
                judged += 1
                if verdict.correct:
                    times.setdefault(number, []).append(verdict.candidate_ms or 0.0)
                else:
                    refused.append(judge_on_gpu.brief(verdict))
                    say(f"  NOT CORRECT {number}: {refused[-1]}")
        used = device_memory()
        spent = time.monotonic() - warm_from
    spreads = sorted((max(given) - min(given)) / median(given) for given in times.values())
    found = {"verdicts": judged, "not correct": refused, "workers": workers, "memory": used}
    found["warm verdicts a minute"] = 60 * (judged - len(items)) / spent
    found["range of a kernel's times, median and largest"] = [median(spreads), spreads[-1]]
    say(f"  {json.dumps({**found, 'not correct': len(refused)})}")
    return found


def device_memory() -> str:
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


_LARGE = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.rand({rows}, 393216)]
def get_init_inputs():
    return []
"""
_LARGE_KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl
@triton.jit
def relu(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.maximum(tl.load(x + at, mask=at < n), 0.0), mask=at < n)
class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        relu[(triton.cdiv(x.numel(), 4096),)](x, y, x.numel(), BLOCK=4096, num_warps=8)
        return y
"""


def large() -> dict[str, Any]:
    found: dict[str, Any] = {}
    items = [(f"relu {rows} x 393216", _LARGE.format(rows=rows), _LARGE_KERNEL) for rows in (512, 1024, 4096)]
    items += [(" ".join(map(str, made)), *judge_on_gpu.generated(*made, "fused")) for made in SLOW]
    with Judge(JudgeConfig(workers=1, device="cuda", timeout_s=60)) as judge:
        for name, problem, kernel in items:
            seconds: list[float] = []
            for repeat in range(3):
                started = time.monotonic()
                verdict = judge.evaluate(problem, f"{kernel}# {repeat}")
                seconds.append(round(time.monotonic() - started, 2))
            found[name] = {"verdict": judge_on_gpu.brief(verdict), "seconds": seconds, "memory": device_memory()}
            say(f"  {name}: {json.dumps(found[name])}")
    return found


TAMPERING = (
    "patched clocks over a slow kernel",
    "a gate that never closes",
    "an end that is told after half of the calls",
    "an end that is told after nine tenths of the calls",
    "calls before the inputs are complete",
    "an answer before the device is done",
    "a fork and a join of streams",
    "side stream, one launch that nothing waits for",
    "side stream that starts before the first event",
    "cached by pointer",
    "every other call",
)


def tampering() -> dict[str, Any]:
    found: dict[str, Any] = {}
    with Judge(JudgeConfig(workers=1, device="cuda", compile_timeout_s=15.0)) as judge:
        base = judge.evaluate(sources.ROW_PROBLEM, sources.ROW_KERNEL)
        say(f"  base: {judge_on_gpu.brief(base)}")
        for name in TAMPERING:
            case = {**sources.HONEST, **sources.HACKS}[name]
            verdict = judge.evaluate(case.problem, case.kernel)
            good = judge_on_gpu.judged_well(case, verdict, base)
            found[name] = {"good": good, "verdict": judge_on_gpu.brief(verdict)}
            say(f"  {'ok ' if good else 'BAD'} {name}: {found[name]['verdict']}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="fast,many,tampering,large")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--budget", type=float, default=300.0)
    chosen = parser.parse_args()
    started = time.monotonic()
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "fast": lambda: fast_kernels(chosen.repeats, 0.3 * chosen.budget),
        "many": lambda: many_kernels(chosen.workers, time.monotonic() + 0.5 * chosen.budget),
        "tampering": tampering,
        "large": large,
    }
    found: dict[str, Any] = {}
    for name in chosen.parts.split(","):
        say(f"=== {name} ({time.monotonic() - started:.0f} s)")
        try:
            found[name] = parts[name]()
        except Exception as error:  # noqa: BLE001 (one part's failure must not cost the others)
            found[name] = {"error": f"{type(error).__name__}: {error}"}
            say(f"  {found[name]}")
        (OUT / "timing_gpu.json").write_text(json.dumps(found, indent=1))
    say(f"=== done ({time.monotonic() - started:.0f} s)")


if __name__ == "__main__":
    main()
