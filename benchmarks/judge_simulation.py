"""The judge in virtual time: its own code hands kernels out; what it waits for is simulated (`judge_scaling.py`)."""

import asyncio
from collections.abc import Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from judge_costs import VERDICT, Costs
from virtual_time import Cores, VirtualLoop, threading_in, time_in

from kernels_eval import JudgeConfig, Problem, Verdict, judge
from kernels_eval.pool import job_queue
from kernels_eval.pool.job_queue import Dispatcher, Job
from kernels_eval.pool.verdict_cache import VerdictCache
from tasks.rollout import judge_actors
from tasks.rollout.config import JudgeActorsConfig
from tasks.rollout.judge_actors import ActorJudge


@dataclass(frozen=True)
class Kernel:
    """One kernel of a batch: its problem, CPU seconds and seconds of waiting."""

    problem: Problem
    source: str
    cpu_s: float
    wait_s: float = 0.0


@dataclass
class Counts:
    """Sums over a simulation."""

    judged: int = 0
    references: int = 0
    last_taken: float = 0.0
    sending_s: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """Result of a simulation."""

    seconds: float
    efficiency: float
    dispatcher: float
    """Share of the time that the process that sends kernels was busy."""
    tail: float
    """Share of the time after the last kernel was taken by a worker."""
    references: float
    """Share of the cores' time spent on references."""
    judged: int
    """Kernels that a worker judged."""

    @property
    def limit(self) -> str:
        """Component that limits the efficiency."""
        if self.efficiency > 0.9:
            return "–"
        if self.dispatcher > 0.8:
            return "dispatcher"
        return "references" if self.references > self.tail else "tail"


@dataclass
class Node:
    """A node with a judge, as `ActorJudge` sees it: `node.evaluate.remote(problem, kernel).future()`."""

    loop: VirtualLoop
    kernels: dict[tuple[str, str], Kernel]
    counts: Counts
    workers: int
    cores: int
    costs: Costs
    sender: "Sender | None" = None
    dispatcher: Dispatcher = field(init=False)

    def __post_init__(self) -> None:
        config = JudgeConfig(workers=self.workers)
        self.dispatcher = Dispatcher(self.workers, judge._YOUNG_S)
        self._cores = Cores(self.loop, self.cores)
        self._cache = VerdictCache(None)
        self.evaluate = SimpleNamespace(remote=self._remote)
        for worker in range(self.workers + judge._reserves(config)):
            self.loop.start(self._serve, worker)

    def submit(self, problem: Problem, source: str) -> "Future[Verdict]":
        """Queue a kernel on this node."""
        job = Job(f"{problem.problem_id} {source}", problem, source, JudgeConfig())
        if self._cache.get(job.key) is None:
            return self.dispatcher.submit(job)
        known: Future[Verdict] = Future()
        known.set_result(VERDICT)
        return known

    def _remote(self, problem: Problem, source: str, settings: Mapping[str, Any]) -> SimpleNamespace:
        """Send a kernel to this node: it arrives when the sending process has got to it. It takes no settings."""
        assert not settings
        answer: Future[Verdict] = Future()

        def arrive() -> None:
            self.submit(problem, source).add_done_callback(lambda done: answer.set_result(done.result()))

        assert self.sender is not None
        self.loop.call_at(self.sender.send(self.costs.dispatch_s), arrive)
        return SimpleNamespace(future=lambda: answer)

    def _serve(self, worker: int) -> None:
        """Do what a worker's thread does (kernels_eval.judge), in virtual time."""
        known: set[str] = set()
        while (job := self.dispatcher.take(worker)) is not None:
            kernel = self.kernels[job.problem.problem_id, job.kernel_source]
            self.counts.last_taken = self.loop.time()
            self.counts.judged += 1
            if job.topic not in known:
                known.add(job.topic)
                self.counts.references += 1
                self._cores.work(self.costs.reference_s)
            self._cores.work(kernel.cpu_s)
            if kernel.wait_s:
                self.loop.sleep(kernel.wait_s)
            self._cache.put(job.key, VERDICT)
            self.dispatcher.finish(job, VERDICT)


@dataclass
class Sender:
    """The process that sends kernels: one after the other."""

    loop: VirtualLoop
    counts: Counts
    free_at: float = 0.0

    def send(self, seconds: float) -> float:
        """Return the time at which a kernel that is to be sent now has been sent."""
        self.free_at = max(self.free_at, self.loop.time()) + seconds
        self.counts.sending_s += seconds
        return self.free_at


class SimulatedJudge(ActorJudge):
    """The rollout's judge, with simulated nodes instead of Ray actors."""

    def __init__(self, nodes: Sequence[Node], workers: int) -> None:
        self._nodes = list(nodes)
        with patch.object(judge_actors, "options_in_worker", lambda _: {}):
            super().__init__(JudgeConfig(), JudgeActorsConfig(count=len(nodes), workers=workers), silence_s=1e9)

    def _new_actor(self) -> Any:
        return self._nodes.pop()


@contextmanager
def virtual_time() -> Generator[VirtualLoop]:
    """Let the judge's queue run in virtual time."""
    loop = VirtualLoop()
    with patch.multiple(job_queue, threading=threading_in(loop), time=time_in(loop)):
        yield loop
    loop.close()


def simulate(batch: Sequence[Kernel], costs: Costs, nodes: int, workers: int) -> Outcome:
    """Judge a batch on `nodes` nodes, each with `workers` workers and as many cores, through the rollout's judge."""
    with virtual_time() as loop:
        counts = Counts()
        sender = Sender(loop, counts)
        known = {(kernel.problem.problem_id, kernel.source): kernel for kernel in batch}
        made = [Node(loop, known, counts, workers, workers, costs, sender) for _ in range(nodes)]
        ours = SimulatedJudge(made, workers)

        async def run() -> None:
            await asyncio.gather(*(ours.evaluate_async(kernel.problem, kernel.source) for kernel in batch))

        loop.run_until_complete(run())
        return _outcome(loop.time(), known.values(), counts, costs, nodes * workers)


def simulate_local(batch: Sequence[Kernel], costs: Costs, workers: int, cores: int) -> Outcome:
    """Judge a batch on this machine: `Judge.evaluate_many` with so many workers."""
    with virtual_time() as loop:
        counts = Counts()
        known = {(kernel.problem.problem_id, kernel.source): kernel for kernel in batch}
        node = Node(loop, known, counts, workers, cores, costs)

        async def run() -> None:
            futures = [node.submit(kernel.problem, kernel.source) for kernel in batch]
            await asyncio.gather(*map(asyncio.wrap_future, futures))

        loop.run_until_complete(run())
        return _outcome(loop.time(), known.values(), counts, costs, min(workers, cores))


def _outcome(seconds: float, kernels: Iterable[Kernel], counts: Counts, costs: Costs, cores: int) -> Outcome:
    available = seconds * cores
    return Outcome(
        seconds=seconds,
        efficiency=sum(kernel.cpu_s for kernel in kernels) / available,
        dispatcher=counts.sending_s / seconds,
        tail=(seconds - counts.last_taken) / seconds,
        references=counts.references * costs.reference_s / available,
        judged=counts.judged,
    )
