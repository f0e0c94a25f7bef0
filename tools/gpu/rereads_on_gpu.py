"""Measure kernels that read data again, on one NVIDIA GPU: rows that each program reads once or twice, and tables.

    python3 tools/gpu/rereads_on_gpu.py [--out FILE]

Rows of 16 KiB to 16 MiB, 256 MiB in all, a program for each: the sum of a row (one pass), and its maximum, then the sum
of its exponentials (two passes). A table of 1 to 256 MiB that 1,056 programs read whole, once or twice, in step.
Beside them PyTorch's sum, softmax and logsumexp of the rows. Times are taken as in `estimate_calibration.py`.
"""

import argparse
import json
import os
import statistics
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tools"), str(Path(__file__).resolve().parent)]

from estimate_calibration import Stopwatch, load, say  # noqa: E402  # pyright: ignore[reportMissingImports]

KERNELS = """import triton
import triton.language as tl

@triton.jit
def one_pass(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = x_ptr + tl.program_id(0).to(tl.int64) * columns
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        total += tl.load(row + start + tl.arange(0, BLOCK))
    tl.store(out_ptr + tl.program_id(0), tl.sum(total))

@triton.jit
def two_passes(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = x_ptr + tl.program_id(0).to(tl.int64) * columns
    largest = tl.full([BLOCK], -float("inf"), tl.float32)
    for start in range(0, columns, BLOCK):
        largest = tl.maximum(largest, tl.load(row + start + tl.arange(0, BLOCK)))
    peak = tl.max(largest)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        total += tl.exp(tl.load(row + start + tl.arange(0, BLOCK)) - peak)
    tl.store(out_ptr + tl.program_id(0), tl.sum(total))

@triton.jit
def of_table(x_ptr, out_ptr, columns, passes, BLOCK: tl.constexpr):
    total = tl.zeros([BLOCK], tl.float32)
    for _ in range(passes):
        for start in range(0, columns, BLOCK):
            total += tl.load(x_ptr + start + tl.arange(0, BLOCK))
    tl.store(out_ptr + tl.program_id(0), tl.sum(total))
"""
BLOCK, WARPS, WHOLE_BYTES, PROGRAMS = 4096, 8, 256 << 20, 1056


def rows_and_tables(stopwatch: Any) -> list[dict[str, Any]]:
    """Return a row of figures for each size; times in microseconds."""
    import torch

    kernels, found = load("rereads", KERNELS), list[dict[str, Any]]()

    def us(call: Any) -> float:
        return round(1e3 * statistics.median(stopwatch.ms(call)), 2)

    for row_bytes in (16 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20):
        rows, columns = WHOLE_BYTES // row_bytes, row_bytes // 4
        x, out = torch.randn(rows, columns, device="cuda"), torch.empty(rows, device="cuda")
        one, two = kernels.one_pass[(rows,)], kernels.two_passes[(rows,)]
        found.append(
            {
                "row bytes": row_bytes,
                "one pass": us(lambda one=one, x=x, out=out, n=columns: one(x, out, n, BLOCK=BLOCK, num_warps=WARPS)),
                "two passes": us(lambda two=two, x=x, out=out, n=columns: two(x, out, n, BLOCK=BLOCK, num_warps=WARPS)),
                "eager sum": us(lambda x=x: x.sum(-1)),
                "eager softmax": us(lambda x=x: torch.softmax(x, -1)),
                "eager logsumexp": us(lambda x=x: torch.logsumexp(x, -1)),
            }
        )
        say(str(found[-1]))
    for table_bytes in (1 << 20, 8 << 20, 32 << 20, 128 << 20, 256 << 20):
        x, out = torch.randn(table_bytes // 4, device="cuda"), torch.empty(PROGRAMS, device="cuda")
        launch = kernels.of_table[(PROGRAMS,)]

        def passes(number: int, x: Any = x, out: Any = out, launch: Any = launch) -> float:
            return us(lambda: launch(x, out, x.numel(), number, BLOCK=BLOCK, num_warps=WARPS))

        found.append({"table bytes": table_bytes, "once": passes(1), "twice": passes(2)})
        say(str(found[-1]))
    return found


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")) / "rereads.json")
    options = parser.parse_args()
    import torch

    say(torch.cuda.get_device_name())
    options.out.write_text(json.dumps(rows_and_tables(Stopwatch()), indent=1))


if __name__ == "__main__":
    main()
