"""Period of the judge's looks at a call (kernels_eval.gpu.device.watch), by what the device does meanwhile.

    python3 tools/gpu/watch_on_gpu.py [--repeats 50]

Needs one NVIDIA GPU. The host reads the clock when it finds that a look has come, so a period is no shorter than the
host's reading of a word. Writes `$OUT/watch_gpu.json`: microseconds between two looks, idle, beside a kernel that
computes, and beside one that copies. Exit code 1 if a look does not come.
"""

import argparse
import ctypes
import itertools
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

import torch  # noqa: E402

from kernels_eval.gpu.device.cuda_driver import CudaDriver  # noqa: E402
from kernels_eval.gpu.device.watch import LOOKS, Watch  # noqa: E402

OUT = Path(os.environ.get("OUT", "."))
_PATIENCE_S = 1.0


def arrivals(watch: Watch, word: torch.Tensor, piece: torch.Tensor) -> list[float]:
    """Return the seconds at which the host found each look of one watch to have come."""
    watch.queue((0, 0, 0), word.data_ptr(), piece.data_ptr(), group=1)
    mark, words = watch._mark, watch._words
    watch.begin()
    step, found, deadline = len(words) // LOOKS, list[float](), time.perf_counter() + _PATIENCE_S
    for place in range(0, len(words), step):
        while words[place] == mark:
            if time.perf_counter() > deadline:
                sys.exit(f"look {place // step} of {LOOKS} did not come within {_PATIENCE_S:g} s")
        found.append(time.perf_counter())
    return found


def periods(busy: Callable[[], None], repeats: int) -> dict[str, float]:
    """Return median and 99th percentile of the microseconds between looks, and of those of all looks."""
    memory = torch.zeros(1 << 20, dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    watch, between, whole = Watch(CudaDriver()), list[float](), list[float]()
    for _ in range(repeats):
        busy()
        times = arrivals(watch, memory[:1], memory[1 << 19 :])
        between += [1e6 * (after - before) for before, after in itertools.pairwise(times)]
        whole.append(1e6 * (times[-1] - times[0]))
        torch.cuda.synchronize()
    return {"median": median(between), "p99": quantiles(between, n=100)[98], "all looks": median(whole)}


def main() -> None:
    """Measure each case, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=50)
    given = parser.parse_args()
    left, right = (torch.rand(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    source, target = (torch.zeros(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(2))
    cases: dict[str, Callable[[], None]] = {
        "idle": lambda: None,
        "beside a product": lambda: [torch.mm(left, right) for _ in range(3)].clear(),
        "beside a copy": lambda: [target.copy_(source) for _ in range(6)].clear(),
    }
    found = {name: periods(busy, given.repeats) for name, busy in cases.items()}
    reading = ctypes.c_uint32.from_buffer(bytearray(4))
    started = time.perf_counter()
    for _ in range(10_000):
        _ = reading.value
    found["a read of the host"] = {"median": 1e2 * (time.perf_counter() - started)}
    (OUT / "watch_gpu.json").write_text(json.dumps(found, indent=1))
    print(json.dumps(found, indent=1), flush=True)


if __name__ == "__main__":
    main()
