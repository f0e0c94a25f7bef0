"""Starts of candidates' processes on a GPU: seconds of each step, and starts that the device allows a minute.

    python3 tools/gpu/starts_on_gpu.py [--processes 1,4,10] [--seconds 15] [--all-gpus]

Needs torch, triton, pydantic and cachetools. Processes are forked from one that has imported all and has not used CUDA,
as candidates are (kernels_eval.gpu.candidate.warm_up), and end at once. For each number of them at the same time, with a CUDA
context alone, with the profiler too, and with all that a candidate's process makes: starts a minute, and the median of
each step's seconds. As candidates do, they reach one GPU of the machine, or with `--all-gpus` all of them. Prints as it
goes; writes `$OUT/starts_gpu.json`. `--tiny` rehearses without a GPU: no step is made.
"""

import argparse
import json
import os
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]
STEPS = ("context", "profiler", "driver")
KINDS = {"context": 1, "and profiler": 2, "and Triton's driver": 3}
"""How many of the steps a process makes."""
_RECORD = struct.Struct("3d")


def context() -> None:
    import torch

    torch.cuda.init()
    torch.zeros(1, device="cuda").fill_(1.0)
    torch.cuda.synchronize()


def profiler() -> None:
    import torch

    from kernels_eval.gpu.candidate.profiling import Profiler

    some = torch.zeros(1, device="cuda")
    Profiler(lambda: some.fill_(1.0)).warm_up()


def driver() -> None:
    from kernels_eval.interpreter.triton_patches.names import load_driver

    load_driver()


def started(steps: list[Callable[[], None]]) -> tuple[int, int]:
    """Fork a process that makes these steps and ends; returns its id and where it writes the seconds of each."""
    reads, writes = os.pipe()
    process = os.fork()
    if process:
        os.close(writes)
        return process, reads
    seconds = [0.0, 0.0, 0.0]
    for number, step in enumerate(steps):
        began = time.perf_counter()
        step()
        seconds[number] = time.perf_counter() - began
    os.write(writes, _RECORD.pack(*seconds))
    os._exit(0)


def rate(processes: int, seconds: float, steps: list[Callable[[], None]]) -> dict[str, Any]:
    """Keep so many processes starting for a time; returns starts a minute and the median of each step."""
    running: dict[int, int] = {}
    found: list[list[float]] = []
    began = time.perf_counter()
    while running or time.perf_counter() - began < seconds:
        while len(running) < processes and time.perf_counter() - began < seconds:
            process, reads = started(steps)
            running[process] = reads
        process, _ = os.wait()
        reads = running.pop(process)
        record = os.read(reads, _RECORD.size)
        os.close(reads)
        if len(record) == _RECORD.size:
            found.append([*_RECORD.unpack(record)])
    spent = time.perf_counter() - began
    return {
        "processes": processes,
        "starts_per_minute": round(60 * len(found) / spent, 1),
        "seconds_each": round(processes * spent / max(len(found), 1), 3),  # also forking and ending
        **{STEPS[step]: round(median(times), 3) for step, times in enumerate(zip(*found, strict=True))},
    }


def main() -> None:
    """Measure each kind with each number of processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", default="1,4,10")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each measurement")
    parser.add_argument("--all-gpus", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    given = parser.parse_args()
    if not given.all_gpus:
        from kernels_eval.gpu.candidate.limits import confine_fork_server
        from kernels_eval.gpu.device.detection import this_gpu_alone

        os.environ |= this_gpu_alone()
        confine_fork_server(may_fork=True)
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")  # as the judge's processes have it
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp()
    os.environ["TRITON_INTERPRET"] = "0"
    if not given.tiny:
        from kernels_eval.gpu.candidate.warm_up import close_nvml, warm_up_zygote

        warm_up_zygote()
        close_nvml()
    steps: list[Callable[[], None]] = [context, profiler, driver]
    if given.tiny:
        steps = [lambda: None] * len(steps)
    out = Path(os.environ.get("OUT", ".")) / "starts_gpu.json"
    found: list[dict[str, Any]] = []
    for kind, count in KINDS.items():
        for processes in map(int, given.processes.split(",")):
            found.append({"kind": kind, **rate(processes, given.seconds, steps[:count])})
            print(json.dumps(found[-1]), flush=True)
            out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
