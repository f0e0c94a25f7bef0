"""Measure the pairs of `benchmarks/estimate_pairs*.py` on one NVIDIA GPU: the defect's time over the good kernel's.

    python3 tools/gpu/estimate_pairs_on_gpu.py [--out FILE]

Needs torch and triton. Kernels are compiled by a pool of processes first, then measured by one, with times taken as in
`estimate_calibration.py`; what host code waits for is in them.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import statistics
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from estimate_calibration import Stopwatch, load, say  # noqa: E402  # pyright: ignore[reportMissingImports]
from estimate_pairs import all_pairs  # noqa: E402  # pyright: ignore[reportMissingImports]
from estimate_pairs_of_memory import memory_pairs  # noqa: E402  # pyright: ignore[reportMissingImports]
from estimate_pairs_of_work import work_pairs  # noqa: E402  # pyright: ignore[reportMissingImports]

PROCESSES = 8
"""Compile."""


def built(problem: str, kernel: str) -> tuple[Any, Any, list[Any]]:
    """Return the reference, the candidate and the inputs, on the device."""
    import torch

    reference, candidate = load("problem", problem), load("kernel", kernel)
    torch.manual_seed(0)
    inputs = [value.cuda() for value in reference.get_inputs()]
    return reference.Model().cuda(), candidate.ModelNew().cuda(), inputs


def run_once(pair: Any) -> None:
    """Run both kernels of a pair, so that Triton's cache holds them. A fault shows when they are measured."""
    import torch

    for kernel in (pair.good, pair.defect):
        with contextlib.suppress(Exception), torch.no_grad():
            _, new, inputs = built(pair.problem, kernel)
            new(*inputs)
            torch.cuda.synchronize()


def measured(stopwatch: Any, problem: str, kernel: str) -> tuple[float, bool]:
    """Return the milliseconds of a kernel, and True if it agrees with the reference."""
    import torch

    model, new, inputs = built(problem, kernel)
    with torch.no_grad():
        expected, found = model(*inputs), new(*inputs)
        agrees = torch.allclose(expected.double(), found.double(), rtol=1e-2, atol=1e-2)
        return statistics.median(stopwatch.ms(lambda: new(*inputs))), agrees


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")) / "estimate_pairs.json")
    options = parser.parse_args()
    pairs = [*all_pairs(), *memory_pairs(), *work_pairs()]
    with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")) as pool:
        list(pool.map(run_once, pairs))
    import torch

    stopwatch, rows = Stopwatch(), dict[str, Any]()
    say(torch.cuda.get_device_name())
    for pair in pairs:
        try:
            (good, right), (defect, still) = (
                measured(stopwatch, pair.problem, each) for each in (pair.good, pair.defect)
            )
        except Exception as error:  # noqa: BLE001 (one pair must not end the run)
            say(f"{pair.name}: {type(error).__name__}: {str(error)[:300]}")
            continue
        rows[pair.name] = {"good_ms": good, "defect_ms": defect, "agrees": right and still}
        say(
            f"{pair.name}: {1e3 * good:.1f} us, {1e3 * defect:.1f} us: {defect / good:.2f}x{'' if right and still else ' WRONG'}"
        )
    options.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
