"""Judge problems at KernelBench's sizes on a real GPU: which are judged, in which time and memory, beside its procedure.

    python3 tests/gpu/kernelbench_sizes_on_gpu.py [--workers 1] [--budget 500] [--peer] [--compiled] [--as-is GB]

Needs torch, triton, pydantic and cachetools. Every kernel (kernelbench_problems.py) should be `correct`; what is not is
printed. Each problem is judged twice, by another text of the same kernel: the second time its reference and the worker
are warm. `--peer`: in a process of its own the same pairs by the procedure that KernelBench publishes: five comparisons
and 100 timed calls, with inputs made on the GPU, warm as the judge is; `--compiled`: once more with the kernel's machine
code from Triton's cache, which has no new kernel's; `--as-is`: with inputs made on the CPU too, as its scripts do, where
they have at most so many GB (6 GB take a minute). Writes `$OUT/kernelbench_sizes.json` after each problem. `--tiny` rehearses without a GPU, at small sizes; there the judge sees that a kernel which copies computes
nothing (`decoy_kernel`), and the element-wise ones are correct.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]
os.environ["PYTHONPATH"] = f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"

import torch  # noqa: E402
from kernelbench_problems import Operator, operators  # noqa: E402
from timing_on_gpu import device_memory, say  # noqa: E402

from kernels_eval import Judge, JudgeConfig  # noqa: E402

_PEER = """
import json, linecache, sys, time, types, torch
def load(name, text):
    module = types.ModuleType(name); sys.modules[name] = module
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    exec(compile(text, name, "exec"), module.__dict__); return module
def moved(values):
    return [value.cuda() if isinstance(value, torch.Tensor) else value for value in values]
def evaluate(problem, kernel, where):
    started = time.perf_counter()
    with torch.no_grad(), torch.device(where):
        a, b = load("reference", problem), load("candidate", kernel)
        torch.manual_seed(42); model = a.Model().cuda()
        torch.manual_seed(42); new = b.ModelNew().cuda()
        for seed in range(5):
            torch.manual_seed(seed); inputs = moved(a.get_inputs())
            expected, found = model(*inputs), new(*inputs)
            torch.cuda.synchronize()
            right = torch.allclose(expected, found, rtol=1e-2, atol=1e-2)
            del expected, found, inputs
        torch.manual_seed(42); inputs = moved(a.get_inputs())
        for _ in range(3): new(*inputs)
        for _ in range(100):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record(); new(*inputs); end.record(); torch.cuda.synchronize()
            last = start.elapsed_time(end)
    del inputs, model, new; torch.cuda.empty_cache()
    return {"seconds": round(time.perf_counter() - started, 2), "right": right, "ms": last}
for line in sys.stdin:
    problem, kernel, places = json.loads(line)
    found = {}
    for where in set(places) - {"compiled"}:
        try:
            if where == "cuda":
                evaluate(problem, kernel.replace("BLOCK: tl.constexpr):", "BLOCK: tl.constexpr):  # warm"), where)
            found[where] = evaluate(problem, kernel, where)
            if "compiled" in places and where == "cuda":
                found["compiled"] = evaluate(problem, kernel, where)
        except Exception as error:
            found[where] = {"error": f"{type(error).__name__}: {str(error)[:200]}"}
            torch.cuda.empty_cache()
    print(json.dumps(found), flush=True)
"""


def input_gb(operator: Operator) -> float:
    """Return the size of a problem's inputs in GB."""
    with torch.device("meta"):
        tensors = [eval(value, {"torch": torch, **operator.sizes}) for value in operator.inputs.values()]
    return sum(value.nbytes for value in tensors if isinstance(value, torch.Tensor)) / 1e9


def judged(judge: Judge, operator: Operator) -> dict[str, Any]:
    """Judge one problem twice; a reference's own code counts as the kernel's only under `mixed`."""
    settings = {} if operator.kernel else {"policy": "mixed"}
    seconds: list[float] = []
    for number in range(2):
        started = time.monotonic()
        verdict = judge.submit(operator.problem, f"{operator.candidate}# {number}", "triton", settings).result()
        seconds.append(round(time.monotonic() - started, 2))
    if not verdict.correct:
        reason = f"{verdict.status.value} [{verdict.error_category}] {(verdict.error_message or '')[:160]}"
        say(f"  NOT CORRECT {operator.name}: {reason}")
    return {
        "status": verdict.status.value,
        "category": verdict.error_category,
        "first_s": seconds[0],
        "warm_s": seconds[1],
        "candidate_ms": verdict.candidate_ms,
        "reference_ms": verdict.reference_ms,
        "memory": device_memory() if judge.config.device == "cuda" else "",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--budget", type=float, default=500.0, help="seconds; no problem starts later")
    parser.add_argument("--every", type=int, default=1, help="every so many problems")
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--compiled", action="store_true", help="with --peer: also with compiled kernels")
    parser.add_argument(
        "--as-is", type=float, default=0.0, metavar="GB", help="with --peer: also with inputs of the CPU"
    )
    parser.add_argument("--tiny", action="store_true")
    given = parser.parse_args()
    out = Path(os.environ.get("OUT", ".")) / "kernelbench_sizes.json"
    began = time.monotonic()
    chosen = [operator.small() if given.tiny else operator for operator in operators()][:: given.every]
    peer = None
    if given.peer:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
        peer = subprocess.Popen([sys.executable, "-c", _PEER], **pipes)
    rows: dict[str, dict[str, Any]] = {}
    device = "cpu" if given.tiny else "cuda"
    # The share of own kernels is small by construction: what they copy, a library computed.
    config = JudgeConfig(workers=given.workers, device=device, min_own_time=0.0, timeout_s=60.0, compile_timeout_s=60.0)
    with Judge(config) as judge:
        for operator in chosen:
            if time.monotonic() - began > given.budget:
                break
            row = rows[operator.name] = judged(judge, operator)
            if peer is not None and peer.stdin is not None and peer.stdout is not None:
                places = ["cuda", *["compiled"] * given.compiled, *["cpu"] * (input_gb(operator) <= given.as_is)]
                peer.stdin.write(json.dumps([operator.problem, operator.candidate, places]) + "\n")
                row["peer"] = json.loads(peer.stdout.readline() or "{}")
            say(f"  {operator.name}: {json.dumps(row)}")
            out.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    if peer is not None:
        peer.kill()
    right = [row for row in rows.values() if row["status"] == "correct"]
    summary = {
        "problems": len(rows),
        "of": len(chosen),
        "correct": len(right),
        "warm_s": median(row["warm_s"] for row in right) if right else None,
    }
    for where in ("cuda", "compiled", "cpu"):
        pairs = [
            (row["peer"][where]["seconds"], row["warm_s"])
            for row in right
            if "seconds" in row.get("peer", {}).get(where, {})
        ]
        if pairs:
            summary[f"peer ({where}) over ours: median"] = median(peer / ours for peer, ours in pairs)
    say(json.dumps(summary))


if __name__ == "__main__":
    main()
