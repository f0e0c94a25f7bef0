"""Costs of the judge on this machine, in CPU seconds: what `judge_scaling.py` simulates with."""

import asyncio
import json
import os
import re
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from judge_mix import Sample, mixed_kernels
from judge_throughput import cpu_s

from kernels_eval import Judge, JudgeConfig, Problem, Status, Verdict

VERDICT = Verdict(status=Status.CORRECT, compiled=True, correct=True, speedup=1.5)


@dataclass(frozen=True)
class Costs:
    """Measured costs."""

    services: tuple[tuple[float, float], ...]
    """(CPU seconds, seconds of waiting) of a verdict on a known problem, one entry a kernel. Kernels that hang without
    computing wait."""
    reference_s: float
    """CPU seconds more for the first kernel of a problem on a worker."""
    dispatch_s: float
    """CPU seconds of the rollout's process for one kernel judged on a Ray actor."""


def read_or_measure(file: Path | None, config: JudgeConfig, kernels: int) -> Costs:
    """Return the costs in `file`; measure and write them if there is no such file."""
    if file is not None and file.exists():
        stored = json.loads(file.read_text())
        return Costs(tuple((cpu, wait) for cpu, wait in stored.pop("services")), **stored)
    services, reference_s = measure_services(config, mixed_kernels(kernels, seed=1, problems=max(kernels // 8, 1)))
    costs = Costs(services, reference_s, measure_dispatch())
    if file is not None:
        file.write_text(json.dumps(asdict(costs)))
    return costs


def measure_services(config: JudgeConfig, samples: Sequence[Sample]) -> tuple[tuple[tuple[float, float], ...], float]:
    """Return the cost of each kernel on a known problem, and of a reference: of the worker and all its children.

    One kernel at a time, so that no queue is in it, and CPU time, so that other processes are not.
    """
    with Judge(config.model_copy(update={"workers": 1})) as judge:
        warm = mixed_kernels(4, seed=10_000)[0]
        judge.evaluate(warm.problem, warm.kernel)
        first = [_cost(judge, sample.problem, sample.kernel) for sample in samples]
        again = [_cost(judge, sample.problem, renamed(sample.kernel, "again")) for sample in samples]
    seen: set[str] = set()
    extra: list[float] = []
    for sample, (before, _), (after, _) in zip(samples, first, again, strict=True):
        if sample.problem not in seen:
            seen.add(sample.problem)
            extra.append(before - after)
    return tuple(again), max(statistics.median(extra), 0.0)


def renamed(kernel: str, name: str) -> str:
    """Return the kernel with other names of its functions: as new to the judge, and to its compiler's cache."""
    return re.sub(r"\b(\w+)_kernel\b", rf"\1_{name}_kernel", kernel)


def _cost(judge: Judge, problem: str, kernel: str) -> tuple[float, float]:
    before = cpu_s(os.getpid())
    verdict = judge.evaluate(problem, kernel)
    spent = cpu_s(os.getpid()) - before
    waited = max(judge.config.timeout_s - spent, 0.0) if verdict.status is Status.TIMEOUT else 0.0
    # A kernel that computes until its time-out on a busy machine has not waited.
    return spent, waited if spent < judge.config.timeout_s / 4 else 0.0


def measure_dispatch(calls: int = 400) -> float:
    """Return the CPU seconds of this process for one kernel sent to a Ray actor, and its verdict received."""
    import ray

    class Actor:
        async def evaluate(self, problem: Problem, kernel_source: str) -> Verdict:
            return VERDICT

    sample = mixed_kernels(1, seed=2)[0]
    problem = Problem(problem_id="problem", source=sample.problem)
    started = not ray.is_initialized()
    if started:
        ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=80 * 2**20)
    try:
        actor = ray.remote(Actor).options(max_concurrency=1000, num_cpus=0).remote()

        async def ask(count: int) -> None:
            answers = [actor.evaluate.remote(problem, sample.kernel) for _ in range(count)]
            await asyncio.gather(*(asyncio.wrap_future(answer.future()) for answer in answers))

        asyncio.run(ask(20))
        began = time.process_time()
        asyncio.run(ask(calls))
        return (time.process_time() - began) / calls
    finally:
        if started:
            ray.shutdown()
