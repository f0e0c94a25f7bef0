"""Judge actors on this machine: the time of a batch, with one kernel that hangs, or one actor that fails.

    python benchmarks/judge_farm.py [--actors 1 2 4] [--workers 2] [--kernels 48] [--seconds 3] [--timeout 10]

The judge, its actors and Ray are the real ones. The kernels are right, and sleep while they are loaded: cores decide
little, and a machine of two can run eight workers. A batch is judged in four cases: as it is (`-`); with a kernel that
sleeps for ever (`hangs`); with an actor that is stopped (SIGSTOP) after a quarter of the batch (`stands still`); with
an actor that answers every kernel with a fault at once (`faults`).

Efficiency is the time that the kernels take one by one, over the kernels that can be judged at once and the time of the
batch; a kernel that hangs counts as the judge's time limit. An actor judges twice as many such kernels at once as it
has workers: those that take longer than half a second go on with a worker in reserve. No batch ends sooner than the
limit after its hanging kernel was taken. The last column is the CPU time of this process, which sends the kernels.
Exits with 1 if a verdict is not the expected one.
"""

import argparse
import asyncio
import os
import signal
import sys
import time

import ray

from flows.services.environment import set_defaults
from kernels_eval import JudgeConfig, Problem, Status, Verdict
from kernels_eval.verdict import fault
from tasks.rollout.config import JudgeActorsConfig
from tasks.rollout.judge_actors import ActorJudge

CASES = ("-", "hangs", "stands still", "faults")
PROBLEM = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * {number}.0


def get_inputs():
    return [torch.randn(64, 32)]


def get_init_inputs():
    return []
"""
KERNEL = """import time
import torch
import torch.nn as nn
import triton
import triton.language as tl

time.sleep({seconds})  # {name}


@triton.jit
def scale(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * {number}.0, mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        scale[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
"""


@ray.remote
class FaultyActor:
    """An actor on which the machine fails."""

    async def ping(self) -> int:
        """Return the process id."""
        return os.getpid()

    async def evaluate(self, *_: object) -> Verdict:
        """Return a fault."""
        return fault("judge_fault", "the device is lost")


def kernel(number: int, name: str, seconds: float) -> tuple[Problem, str]:
    """Return a problem and a kernel for it that is new to every cache."""
    problem = Problem(problem_id=f"scale_{number}", source=PROBLEM.format(number=number))
    return problem, KERNEL.format(number=number, name=name, seconds=seconds)


async def judged(judge: ActorJudge, case: str, count: int, seconds: float) -> tuple[float, list[Verdict]]:
    """Judge a batch; return its time and the verdicts, the kernel that hangs being in the middle."""
    batch = [kernel(2 + number % 8, f"{case} {number}", seconds) for number in range(count)]
    if case == "hangs":
        batch[count // 2] = kernel(2, "hangs", 1e6)
    if case == "faults":
        ray.kill(judge.farm.places[-1].judge)
        judge.farm.places[-1].judge = FaultyActor.remote()
    stopped = await judge.farm.places[-1].judge.ping.remote() if case == "stands still" else None
    began = time.perf_counter()
    calls = [asyncio.ensure_future(judge.evaluate_async(*one)) for one in batch]
    while stopped is not None and sum(call.done() for call in calls) < count // 4:
        await asyncio.sleep(0.05)
    if stopped is not None:
        os.kill(stopped, signal.SIGSTOP)
    verdicts = list(await asyncio.gather(*calls))
    return time.perf_counter() - began, verdicts


async def alone(judge: ActorJudge, seconds: float, times: int = 3) -> float:
    """Return the seconds of one kernel on judges that do nothing else."""
    await judge.evaluate_async(*kernel(2, "first", 0.0))
    began = time.perf_counter()
    for number in range(times):
        await judge.evaluate_async(*kernel(2, f"alone {number}", seconds))
    return (time.perf_counter() - began) / times


async def measure(options: argparse.Namespace, actors: int, case: str) -> bool:
    """Measure one case on so many actors, and print it. Returns whether every verdict is the expected one."""
    config = JudgeConfig(compile="never", trials=1, timeout_s=options.timeout)
    judge = ActorJudge(config, JudgeActorsConfig(count=actors, workers=options.workers))
    try:
        for number in range(4 * actors):  # every actor starts its processes, and knows some problem
            await judge.evaluate_async(*kernel(2 + number % 8, f"warm {number}", 0.0))
        one_s = await alone(judge, options.seconds)
        before = time.process_time()
        seconds, verdicts = await judged(judge, case, options.kernels, options.seconds)
        sending_ms = 1e3 * (time.process_time() - before) / options.kernels
        expected = [Status.CORRECT] * options.kernels
        if case == "hangs":
            expected[options.kernels // 2] = Status.TIMEOUT
        work = one_s * (options.kernels - (case == "hangs")) + options.timeout * (case == "hangs")
        efficiency = work / (2 * actors * options.workers * seconds)
        print(
            f"| {actors} | {case} | {one_s:.2f} | {seconds:.1f} | {efficiency:.0%} | "
            f"{judge.farm.copies} | {judge.farm.overtaken} | {judge.replaced} | {sending_ms:.1f} |",
            flush=True,
        )
        return [verdict.status for verdict in verdicts] == expected
    finally:
        judge.close()


def main() -> None:
    """Measure all cases, print a table, and compare the verdicts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actors", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--workers", type=int, default=2, help="of each actor")
    parser.add_argument("--kernels", type=int, default=48)
    parser.add_argument("--seconds", type=float, default=3.0, help="that a kernel sleeps")
    parser.add_argument("--timeout", type=float, default=10.0, help="the judge's limit for a kernel")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=CASES)
    options = parser.parse_args()
    set_defaults()  # of a run: by default Ray's workers have less of a core than other processes
    ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=80 * 2**20)
    print(f"{options.kernels} kernels, {options.workers} workers an actor, load {os.getloadavg()[0]:.1f}")
    print("| actors | | one kernel, s | batch, s | efficiency | sent twice | second first | replaced | ms to send |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    right = [
        asyncio.run(measure(options, actors, case))
        for actors in options.actors
        for case in options.cases
        if actors > 1 or case in ("-", "hangs")
    ]
    print(f"verdicts: {'as expected' if all(right) else 'DIFFER from what is expected'}")
    sys.exit(0 if all(right) else 1)


if __name__ == "__main__":
    main()
