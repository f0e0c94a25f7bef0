"""Simulation of the judge on 1 to 64 nodes: efficiency, and what saturates first.

    python benchmarks/judge_scaling.py [--run RUN_FOLDER] [--service 0.35] [--dispatch 0.0008] [--workers 16]

It simulates `tasks.rollout.judge_actors`. One process hands kernels out, one after the other, at a cost each
(`--dispatch`: pickling, Ray's call and the answer; a raw call takes 0.8 ms). Kernels of a problem go to the node that
has its reference, unless that node is busier by more than its workers. A node judges as many kernels at a time as it
has workers, builds each reference once (`--reference`), and needs the verdict's time (`--service`, log-normal; the
share `--slow` takes `--timeout`). With `--run` the times are drawn from the `evaluation_s` of a run's turns.

Efficiency is the time of one worker, divided by the workers and by the time taken. Saturated is the dispatcher (always
busy), the tail (the last kernels leave most workers idle), or references.
"""

import argparse
import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

NODES = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Outcome:
    """Result of a simulation."""

    seconds: float
    efficiency: float
    dispatcher: float
    """Share of the time that the dispatcher was busy."""
    tail: float
    """Share of the time after the last kernel was handed out."""
    references: float
    """Share of the workers' time spent on references."""

    @property
    def limit(self) -> str:
        """Component that limits the efficiency."""
        if self.efficiency > 0.9:
            return "–"
        if self.dispatcher > 0.8:
            return "dispatcher"
        return "references" if self.references > self.tail else "tail"


def simulate(
    services: Sequence[float], problems: Sequence[int], nodes: int, workers: int, dispatch_s: float, reference_s: float
) -> Outcome:
    """Simulate judging all kernels on `nodes` nodes of `workers` workers each."""
    free: list[list[float]] = [[0.0] * workers for _ in range(nodes)]
    load = [0] * nodes
    ends: list[tuple[float, int]] = []
    home: dict[int, int] = {}
    known: set[tuple[int, int]] = set()
    now = last = building = 0.0
    for service, problem in zip(services, problems, strict=True):
        now += dispatch_s
        while ends and ends[0][0] <= now:
            load[heapq.heappop(ends)[1]] -= 1
        # An actor gets at most twice as many kernels as it has workers: then the dispatcher waits.
        while min(load) >= 2 * workers:
            now, node = heapq.heappop(ends)
            load[node] -= 1
        idlest = min(range(nodes), key=load.__getitem__)
        node = home.setdefault(problem, idlest)
        if load[node] - load[idlest] > workers or load[node] >= 2 * workers:
            node = idlest
        if (node, problem) not in known:
            known.add((node, problem))
            building += reference_s
            service += reference_s
        begin = max(now, heapq.heappop(free[node]))
        heapq.heappush(free[node], begin + service)
        heapq.heappush(ends, (begin + service, node))
        load[node] += 1
        last = max(last, begin + service)
    available = last * nodes * workers
    return Outcome(
        seconds=last,
        efficiency=sum(services) / available,
        dispatcher=len(services) * dispatch_s / last,
        tail=(last - now) / last,
        references=building / available,
    )


def drawn_services(count: int, mean: float, slow: float, timeout: float, generator: random.Random) -> list[float]:
    """Draw service times: log-normal with this mean, or a timeout."""
    spread = 0.6
    location = mean / 2.718281828459045 ** (spread**2 / 2)
    return [
        timeout if generator.random() < slow else location * generator.lognormvariate(0, spread) for _ in range(count)
    ]


def stored_services(run_dir: Path, count: int, generator: random.Random) -> list[float]:
    """Draw from the judge's times of a run's turns, without cached verdicts (no time at all)."""
    import polars as pl

    found: list[float] = []
    for file in sorted((run_dir / "trajectories").glob("*/turns.parquet")):
        found += pl.read_parquet(file, columns=["evaluation_s"])["evaluation_s"].drop_nulls().to_list()
    return generator.choices([seconds for seconds in found if seconds > 0.005], k=count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, default=None)
    parser.add_argument("--service", type=float, default=0.35)
    parser.add_argument("--slow", type=float, default=0.005)
    parser.add_argument("--timeout", type=float, default=10.0)
    parser.add_argument("--dispatch", type=float, default=0.0008)
    parser.add_argument("--reference", type=float, default=0.3)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--kernels", type=int, nargs="+", default=[512, 4096, 32768])
    parser.add_argument("--samples", type=int, default=8, help="kernels of one problem")
    arguments = parser.parse_args()
    costs = (arguments.workers, arguments.dispatch, arguments.reference)
    print("{} workers a node, {:g} s a dispatch, {:g} s a reference".format(*costs))
    for count in arguments.kernels:
        generator = random.Random(0)
        if arguments.run is None:
            services = drawn_services(count, arguments.service, arguments.slow, arguments.timeout, generator)
        else:
            services = stored_services(arguments.run, count, generator)
        # Samples of many problems are judged concurrently: they come mixed.
        problems = [number // arguments.samples for number in range(count)]
        generator.shuffle(problems)
        distinct = count // arguments.samples
        print(f"\n{count:,} kernels of {distinct:,} problems, {sum(services) / count:.2f} s on average")
        print(" nodes  workers  seconds  kernels/s  efficiency  dispatcher   tail  saturated")
        for nodes in NODES:
            found = simulate(services, problems, nodes, *costs)
            print(
                f"{nodes:>6}{nodes * arguments.workers:>9}{found.seconds:>9.1f}{count / found.seconds:>11.0f}"
                f"{found.efficiency:>12.0%}{found.dispatcher:>12.0%}{found.tail:>7.0%}  {found.limit}"
            )


if __name__ == "__main__":
    main()
