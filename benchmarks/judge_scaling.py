"""Simulation of the judge on 1 to 64 nodes: efficiency, and what saturates first; and a check of it on this machine.

    python benchmarks/judge_scaling.py [--costs FILE] [--workers 16] [--check 1 2]

The code that hands kernels out is the judge's own, driven in virtual time (virtual_time.py):
`tasks.rollout.judge_actors` chooses the node, `kernels_eval.pool.job_queue` the worker, and verdicts are cached as by
the judge. Simulated is what they wait for: a node's cores, which all its kernels share; the verdict's CPU time, drawn
from measured ones; the reference of a problem that a worker does not know; kernels that hang without computing; and the
process that sends kernels, one after the other, at a measured cost. All costs are CPU seconds, measured on this machine
or read from `--costs` (judge_costs.py). `--check` predicts a batch on that many local workers, judges it, and prints
both: on a busy machine the measured time is longer.

Efficiency is the kernels' CPU time, divided by the cores and by the time taken. Saturated is the dispatcher (always
busy), references, or the tail (the last kernels leave cores idle).
"""

import argparse
import os
import random
import time
from pathlib import Path

from judge_costs import Costs, measure_services, read_or_measure, renamed
from judge_mix import mixed_kernels
from judge_simulation import Kernel, simulate, simulate_local
from judge_throughput import cpu_s

from kernels_eval import Judge, JudgeConfig, Problem

NODES = (1, 2, 4, 8, 16, 32, 64)


def batch_of(costs: Costs, count: int, samples: int, generator: random.Random) -> list[Kernel]:
    """Return a batch with drawn costs; the samples of many problems come mixed, as in a rollout."""
    problems = [Problem(problem_id=f"problem {number}", source=f"# {number}") for number in range(-(-count // samples))]
    batch = [
        Kernel(problems[number // samples], str(number), *generator.choice(costs.services)) for number in range(count)
    ]
    generator.shuffle(batch)
    return batch


def check(workers: int, config: JudgeConfig, kernels: int, rounds: int) -> None:
    """Predict and measure batches on local workers; print both.

    The costs of each kernel are measured first, on one worker. Then the same kernels, with new texts, are a batch.
    """
    cores = len(os.sched_getaffinity(0))
    samples = mixed_kernels(kernels, seed=workers)
    services, reference_s = measure_services(config, samples)
    costs = Costs(services, reference_s, 0.0)
    with Judge(config.model_copy(update={"workers": workers})) as measured:
        warm = mixed_kernels(8 * workers, seed=20_000)
        measured.evaluate_many([(sample.problem, sample.kernel) for sample in warm])
        for number in range(rounds):
            name = f"round{number}"
            batch = [
                Kernel(
                    Problem(problem_id=sample.problem, source=sample.problem), renamed(sample.kernel, name), *service
                )
                for sample, service in zip(samples, services, strict=True)
            ]
            # From the second round on, most references are known.
            known = costs if number == 0 else Costs(services, 0.0, 0.0)
            predicted = simulate_local(batch, known, workers, cores)
            began, before = time.perf_counter(), cpu_s(os.getpid())
            measured.evaluate_many([(kernel.problem, kernel.source) for kernel in batch])
            seconds, spent = time.perf_counter() - began, cpu_s(os.getpid()) - before
            print(
                f"{workers} workers, {kernels} kernels: predicted {predicted.seconds:.1f} s, measured {seconds:.1f} s "
                f"({predicted.seconds / seconds:.2f}); CPU time predicted "
                f"{sum(cpu for cpu, _ in services):.1f} s, measured {spent:.1f} s; load {os.getloadavg()[0]:.1f}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--costs", type=Path, default=None, help="JSON file: read if it exists, else written")
    parser.add_argument("--measured", type=int, default=200, help="kernels that are measured")
    parser.add_argument("--compile", default="correct", choices=["never", "correct"])
    parser.add_argument("--timeout", type=float, default=10.0)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--nodes", type=int, nargs="+", default=NODES)
    parser.add_argument("--kernels", type=int, nargs="+", default=[512, 4096, 32768])
    parser.add_argument("--samples", type=int, default=8, help="kernels of one problem")
    parser.add_argument("--check", type=int, nargs="+", default=[], metavar="WORKERS")
    parser.add_argument("--rounds", type=int, default=2, help="of the check")
    options = parser.parse_args()
    config = JudgeConfig(compile=options.compile, timeout_s=options.timeout)
    for workers in options.check:
        check(workers, config, options.measured, options.rounds)
    if options.check:
        return
    costs = read_or_measure(options.costs, config, options.measured)
    cpu = sum(cpu for cpu, _ in costs.services) / len(costs.services)
    print(
        f"{options.workers} workers a node; CPU time of a verdict {1e3 * cpu:.0f} ms on average, "
        f"of a reference {1e3 * costs.reference_s:.0f} ms, of a dispatch {1e3 * costs.dispatch_s:.2f} ms"
    )
    for count in options.kernels:
        batch = batch_of(costs, count, options.samples, random.Random(0))
        print(f"\n{count:,} kernels of {-(-count // options.samples):,} problems")
        print(" nodes  workers  seconds  kernels/s  efficiency  dispatcher   tail  references  saturated")
        for nodes in options.nodes:
            found = simulate(batch, costs, nodes, options.workers)
            print(
                f"{nodes:>6}{nodes * options.workers:>9}{found.seconds:>9.1f}{count / found.seconds:>11.0f}"
                f"{found.efficiency:>12.0%}{found.dispatcher:>12.0%}{found.tail:>7.0%}{found.references:>12.0%}"
                f"  {found.limit}",
                flush=True,
            )


if __name__ == "__main__":
    main()
