"""Honest kernels of 1 to 60 us, and small problems under little memory, judged on a GPU: less than two minutes.

    python3 tools/gpu/honest_on_gpu.py [--parts honest,memory] [--budget SECONDS] [--load PROCESSES] [--overlaps]

Needs one NVIDIA GPU. Writes `$OUT/honest_gpu.json` after every part: honest kernels that are refused, and verdicts on 64
kernels by eight workers of 4 GiB, after a problem that leaves its worker no room. Exit code 1 if an honest kernel is
refused, or a small problem does not fit. `--load`: so many processes keep the host's cores busy meanwhile.
`--overlaps`: how far a call alone is from what its round predicts, share of the call, by time of the call.
`kernelmill judge redteam --device cuda` attacks the judge.
"""

import argparse
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]
os.environ["PYTHONPATH"] = f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"

from judge_on_gpu import COMPOSITIONS, brief, generated  # noqa: E402

from kernels_eval import Judge, JudgeConfig  # noqa: E402
from kernels_eval.gpu.timing.statistics import alone_s  # noqa: E402
from kernels_eval.redteam.case import Case  # noqa: E402
from kernels_eval.redteam.suite import FOLDER, load_cases  # noqa: E402

OUT = Path(os.environ.get("OUT", "."))
STARTED = time.monotonic()
FOUND: dict[str, Any] = {}
POINTWISE_ROWS = 256
"""Rows of the element-wise problem that others are made of."""
DIAGONAL_PROBLEM = """import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, a, b):
        return torch.diag(a) @ b

def get_inputs():
    return [torch.rand(4096), torch.rand(4096, 4096)]

def get_init_inputs():
    return []
"""
DIAGONAL_KERNEL = """import torch
import triton
import triton.language as tl

@triton.jit
def scaled_rows(a_ptr, b_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row, places = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = places < columns
    values = tl.load(b_ptr + row * columns + places, mask=mask, other=0.0)
    tl.store(out_ptr + row * columns + places, tl.load(a_ptr + row) * values, mask=mask)

class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        out = torch.empty_like(b)
        rows, columns = b.shape
        scaled_rows[(rows, triton.cdiv(columns, 1024))](a, b, out, columns, BLOCK=1024)
        return out
"""
"""Takes less time than the arithmetic of the reference's whole product."""


WATCH = """import json
from kernels_eval.gpu.timing import statistics

_plain = statistics.overlapped_s


def overlapped_s(*times):
    with open({path!r}, "a") as file:
        file.write(json.dumps(times) + "\\n")
    return _plain(*times)


statistics.overlapped_s = overlapped_s
"""
"""A `sitecustomize.py` of the judge's processes: it writes down the times that the judge compares."""
CALLS_US = (0.0, 4.0, 8.0, 16.0, 32.0, math.inf)
"""Bounds of the rows of `--overlaps`."""
QUANTILES = {"least": 0.0, "median": 0.5, "95 %": 0.95, "99 %": 0.99, "most": 1.0}


def say(text: str) -> None:
    print(f"[{time.monotonic() - STARTED:6.1f}] {text}", flush=True)


def keep() -> None:
    partial = OUT / "honest_gpu.json.partial"
    partial.write_text(json.dumps(FOUND, indent=1, default=str))
    partial.replace(OUT / "honest_gpu.json")


def honest_cases() -> list[Case]:
    return [case for case in load_cases(FOLDER / "gpu") if case.is_honest]


def pointwise(rows: int) -> tuple[str, str]:
    """Return an element-wise problem of so many rows of 1024 elements, and its kernel."""
    case = next(case for case in honest_cases() if case.path.stem == f"rows_{POINTWISE_ROWS}")
    return case.problem.replace(f"torch.rand({POINTWISE_ROWS}, ", f"torch.rand({rows}, "), case.kernel


def honest_kernels(workers: int, budget_s: float) -> int:
    """Judge honest kernels of 1 to 60 us; returns how many were refused."""
    rows_of = (4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
    items = [(f"pointwise {rows}", *pointwise(rows)) for rows in rows_of]
    for rows in (16, 256, 4096):
        problem, kernel = pointwise(rows)
        for place in ("out = torch", "return out"):
            waits = kernel.replace(place, f"first = x.view(-1)[0].item()\n        {place}")
            items.append((f"pointwise {rows} that waits before `{place}`", problem, waits))
    items.append(("product with a diagonal matrix", DIAGONAL_PROBLEM, DIAGONAL_KERNEL))
    items += [(case.name, case.problem, case.kernel) for case in honest_cases()]
    for key, rows, columns, inner in COMPOSITIONS:
        for style in ("fused", "small_blocks"):
            for part in (4, 16):
                items.append((f"{key} {style} /{part}", *generated(key, rows // part, columns, inner, style)))
    refused: dict[str, Any] = {}
    times: list[float] = []
    judged = 0
    with Judge(JudgeConfig(workers=workers, device="cuda")) as judge:
        for repeat in range(4):
            if time.monotonic() - STARTED > budget_s:
                break
            verdicts = judge.evaluate_many([(problem, f"{kernel}# {repeat}") for _, problem, kernel in items])
            for (name, _, _), verdict in zip(items, verdicts, strict=True):
                judged += 1
                if verdict.correct and verdict.candidate_ms is not None:
                    times.append(1e3 * verdict.candidate_ms)
                else:
                    refused[f"{name} # {repeat}"] = brief(verdict)
                    say(f"honest kernel refused: {name}: {brief(verdict)}")
    times.sort()
    spread = {"least": times[0], "median": times[len(times) // 2], "most": times[-1]} if times else {}
    FOUND["honest"] = {"kernels": len(items), "judged": judged, "refused": refused, "us": spread, "workers": workers}
    say(f"honest: {len(refused)} of {judged} refused; {spread}")
    keep()
    return len(refused)


def watch_overlaps(folder: Path) -> Path:
    """Have the judge's processes note the times of each verdict; returns their file."""
    path = folder / "overlaps.jsonl"
    (folder / "sitecustomize.py").write_text(WATCH.format(path=str(path)))
    os.environ["PYTHONPATH"] = f"{os.environ['PYTHONPATH']}:{folder}"
    return path


def keep_overlaps(path: Path) -> None:
    """Write what a call alone takes longer than its round predicts, as a share of the call: quantiles of honest calls.

    Of a verdict's lines the last one counts: calls that seem to overlap are made one by one again.
    """
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    excesses: list[tuple[float, float]] = []
    for call_s, serial_s, *reference in {times[0]: times for times in lines}.values():
        excess_s = serial_s - alone_s(call_s, *reference)
        excesses.append((1e6 * call_s, excess_s / call_s))
    rows: list[dict[str, float]] = []
    for least, most in itertools.pairwise(CALLS_US):
        found = sorted(excess for call_us, excess in excesses if least <= call_us < most)
        if found:
            places = {name: found[int(share * (len(found) - 1))] for name, share in QUANTILES.items()}
            rows.append({"from us": least, "to us": most, "verdicts": len(found)} | places)
    FOUND["overlaps"] = {"rows": rows, "excesses": excesses}
    for row in rows:
        say(f"overlaps: {row}")
    keep()


def small_problems() -> int:
    """Judge 64 kernels of 1 MiB by eight workers of 4 GiB, each after a large problem; returns how many had faults."""
    large, kernel = pointwise(163840)  # 640 MiB in and out: nothing is left beside both and the candidate's part
    small, _ = pointwise(256)
    with Judge(JudgeConfig(workers=8, device="cuda", device_memory_gb=32)) as judge:
        before = judge.evaluate_many([(large, f"{kernel}# {number}") for number in range(16)])
        after = judge.evaluate_many([(small, f"{kernel}# {number}") for number in range(64)])
    counts = [Counter(f"{v.status} {v.error_category or ''}".strip() for v in given) for given in (before, after)]
    FOUND["memory"] = {
        "large": counts[0],
        "small": counts[1],
        "messages": sorted({v.error_message or "" for v in (*before, *after)})[:6],
    }
    say(f"memory: large {dict(counts[0])}, small {dict(counts[1])}: {FOUND['memory']['messages']}")
    keep()
    return sum(not verdict.correct for verdict in after)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="memory,honest")
    parser.add_argument("--budget", type=float, default=280.0)
    parser.add_argument("--load", type=int, default=0)
    parser.add_argument("--overlaps", action="store_true")
    given = parser.parse_args()
    failures = 0
    overlaps = watch_overlaps(Path(tempfile.mkdtemp())) if given.overlaps else None
    load = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(given.load)]
    try:
        for part in given.parts.split(","):
            say(f"=== {part}")
            failures += small_problems() if part == "memory" else honest_kernels(4, 0.9 * given.budget)
    finally:
        for process in load:
            process.kill()
    if overlaps is not None:
        keep_overlaps(overlaps)
    FOUND["seconds"] = time.monotonic() - STARTED
    keep()
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
