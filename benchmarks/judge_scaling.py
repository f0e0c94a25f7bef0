"""How judging scales from one worker to 64 nodes, by simulation: efficiency, and what saturates first.

    python benchmarks/judge_scaling.py [--run RUN_FOLDER] [--service 0.35] [--dispatch 0.0008] [--workers 16] [--kernels 4096]

Simulated is what `tasks.rollout.judge_actors` does: one process hands kernels out, one after the other, each at a cost (`--dispatch`:
pickling, Ray's call and the answer; a raw call of Ray's takes 0.8 ms); kernels of a problem go to the node that has its reference, unless
that one is busier by more than its workers; a node judges as many at a time as it has workers, builds each reference once
(`--reference`), and needs the verdict's own time (`--service`, spread log-normally; `--slow` of them take `--timeout`). With `--run` the
times are those that a run has stored for its turns (`evaluation_s`).

Efficiency is the time that one worker would take, divided by workers and by the time that was taken. What saturates is named by
where time went: the dispatcher (it is busy all the time), the tail (the last kernels leave most workers idle), or references.
"""

import argparse
import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

NODES = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Setting:
    """What a simulation is of."""

    dispatch_s: float
    reference_s: float
    workers: int
    """Of each node."""


@dataclass(frozen=True)
class Outcome:
    """What came of it."""

    seconds: float
    efficiency: float
    dispatcher: float
    """Share of the time that the dispatcher was busy."""
    tail: float
    """Share of the time from when the last kernel was handed out."""
    references: float
    """Share of the workers' time that went into references."""

    @property
    def limit(self) -> str:
        """What there is most to gain from."""
        if self.efficiency > 0.9:
            return "–"
        if self.dispatcher > 0.8:
            return "dispatcher"
        return "references" if self.references > self.tail else "tail"


def simulate(services: Sequence[float], problems: Sequence[int], nodes: int, setting: Setting) -> Outcome:
    """Judge all kernels on so many nodes."""
    free: list[list[float]] = [[0.0] * setting.workers for _ in range(nodes)]
    load = [0] * nodes
    ends: list[tuple[float, int]] = []
    home: dict[int, int] = {}
    known: set[tuple[int, int]] = set()
    now = last = building = 0.0
    for service, problem in zip(services, problems, strict=True):
        now += setting.dispatch_s
        while ends and ends[0][0] <= now:
            load[heapq.heappop(ends)[1]] -= 1
        # An actor is sent little more than it can judge at once: then the dispatcher waits.
        while min(load) >= 2 * setting.workers:
            now, node = heapq.heappop(ends)
            load[node] -= 1
        idlest = min(range(nodes), key=load.__getitem__)
        node = home.setdefault(problem, idlest)
        if load[node] - load[idlest] > setting.workers or load[node] >= 2 * setting.workers:
            node = idlest
        if (node, problem) not in known:
            known.add((node, problem))
            building += setting.reference_s
            service += setting.reference_s
        begin = max(now, heapq.heappop(free[node]))
        heapq.heappush(free[node], begin + service)
        heapq.heappush(ends, (begin + service, node))
        load[node] += 1
        last = max(last, begin + service)
    work = sum(services)
    return Outcome(
        seconds=last,
        efficiency=work / (last * nodes * setting.workers),
        dispatcher=len(services) * setting.dispatch_s / last,
        tail=(last - now) / last,
        references=building / (last * nodes * setting.workers),
    )


def drawn_services(count: int, mean: float, slow: float, timeout: float, generator: random.Random) -> list[float]:
    """Draw service times: log-normal with this mean, some of them a timeout."""
    spread = 0.6
    location = mean / 2.718281828459045 ** (spread**2 / 2)
    return [
        timeout if generator.random() < slow else location * generator.lognormvariate(0, spread) for _ in range(count)
    ]


def stored_services(run_dir: Path, count: int, generator: random.Random) -> list[float]:
    """Draw from the times that a run's turns took to be judged; cached verdicts (no time at all) are left out."""
    import polars as pl

    found: list[float] = []
    for file in sorted((run_dir / "trajectories").glob("*/turns.parquet")):
        found += pl.read_parquet(file, columns=["evaluation_s"])["evaluation_s"].drop_nulls().to_list()
    return generator.choices([seconds for seconds in found if seconds > 0.005], k=count)


def main() -> None:
    """Run it."""
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
    setting = Setting(arguments.dispatch, arguments.reference, arguments.workers)
    print(
        f"{arguments.workers} workers a node; {arguments.dispatch * 1e3:g} ms to hand a kernel out; a reference takes {arguments.reference:g} s"
    )
    for count in arguments.kernels:
        generator = random.Random(0)
        if arguments.run is None:
            services = drawn_services(count, arguments.service, arguments.slow, arguments.timeout, generator)
        else:
            services = stored_services(arguments.run, count, generator)
        # Samples of many problems are under way at once: they come mixed.
        problems = [number // arguments.samples for number in range(count)]
        generator.shuffle(problems)
        print(
            f"\n{count:,} kernels of {count // arguments.samples:,} problems, {sum(services) / count:.2f} s each on average"
        )
        print(
            f"{'nodes':>6}{'workers':>9}{'seconds':>9}{'kernels/s':>11}{'efficiency':>12}{'dispatcher':>12}{'tail':>7}  saturated"
        )
        for nodes in NODES:
            found = simulate(services, problems, nodes, setting)
            print(
                f"{nodes:>6}{nodes * arguments.workers:>9}{found.seconds:>9.1f}{count / found.seconds:>11.0f}{found.efficiency:>12.0%}"
                f"{found.dispatcher:>12.0%}{found.tail:>7.0%}  {found.limit}"
            )


if __name__ == "__main__":
    main()
