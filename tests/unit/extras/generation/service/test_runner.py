"""Every job ends once, whatever fails in between; what was judged is not judged again; cancelled work stops."""

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from extras.generation.config import SearchConfig, ServiceConfig
from extras.generation.result import GeneratedKernel, Outcome
from extras.generation.search import Attempt, Stop
from extras.generation.service.jobs import Job, JobStore
from extras.generation.service.runner import Runner
from extras.generation.service.schemas import JobState, KernelRequest
from kernels_eval.errors import InfrastructureError, InputError
from kernels_eval.problem import EXAMPLE_PROBLEM, Problem
from kernels_eval.verdict import Status, Verdict

QUICK = ServiceConfig(retry_s=0.01, attempts=3, jobs_at_once=2)


def request(seed: int = 0, **fields: Any) -> KernelRequest:
    return KernelRequest(problem_source=EXAMPLE_PROBLEM, seed=seed, use_cache=False, **fields)


class Work:
    """Judges `budget` answers; raises the next of `failures` after each answer, until there are no more."""

    def __init__(self, failures: Sequence[Exception | None] = (), delay_s: float = 0.0) -> None:
        self.failures = list(failures)
        self.delay_s = delay_s
        self.at_once = self.most_at_once = 0
        self.began: list[int] = []
        """Number of earlier attempts at each beginning."""

    async def __call__(
        self, problem: Problem, config: SearchConfig, on_attempt: Callable[[Attempt], None], earlier: Sequence[Attempt]
    ) -> GeneratedKernel:
        self.began.append(len(earlier))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            for number in range(len(earlier), config.budget):
                await asyncio.sleep(self.delay_s)
                if self.failures and (error := self.failures.pop(0)) is not None:
                    raise error
                on_attempt(
                    Attempt(
                        conversation=number, turn=1, kernel_source=None, verdict=Verdict(status=Status.COMPILE_ERROR),
                        prompt_tokens=2, completion_tokens=1, at_s=1.0,
                    )
                )  # fmt: skip
        finally:
            self.at_once -= 1
        return GeneratedKernel(
            outcome=Outcome.ORIGINAL, source="x", problem_digest="d", policy="p", policy_digest="q",
            judged=config.budget, seconds=1.0, stopped=Stop.BUDGET,
        )  # fmt: skip


async def until_ended(runner: Runner, names: Sequence[str], limit_s: float = 20.0) -> list[Job]:
    async with asyncio.timeout(limit_s):
        for name in names:
            async for _ in runner.events(name, 0):
                pass
    return [runner.store.job(name) for name in names]


def run(store: JobStore, work: Work, requests: Sequence[KernelRequest], config: ServiceConfig = QUICK) -> Any:
    async def all_of_it() -> tuple[Runner, list[Job]]:
        runner = Runner(store, work, config, "identity")
        runner.start()
        names = [runner.submit(one, "digest", None)[0].id for one in requests]
        ended = await until_ended(runner, names)
        await runner.stop()
        return runner, ended

    return asyncio.run(all_of_it())


@pytest.fixture
def store(tmp_path: Path) -> Any:
    store = JobStore(tmp_path)
    yield store
    store.close()


def test_every_job_ends_once_and_no_more_than_allowed_run(store: JobStore):
    work = Work(delay_s=0.002)
    runner, jobs = run(store, work, [request(seed, budget=3) for seed in range(12)])
    assert [job.state for job in jobs] == [JobState.FINISHED] * 12
    assert work.most_at_once == 2
    for job in jobs:
        kinds = [event.kind for event in store.events(job.id)]
        assert kinds == ["queued", "started", "attempt", "attempt", "attempt", "finished"]
    assert runner.counts["answers", "compile_error"] == 36
    assert runner.counts["tokens", "prompt"] == 72


def test_faults_put_a_job_back_with_what_it_has_and_only_faults_in_a_row_end_it(store: JobStore):
    away = InfrastructureError("no engine")
    work = Work([None, away, away, None, away, away, None, None, None])
    runner, (job,) = run(store, work, [request(budget=4)])
    assert (job.state, job.judged) == (JobState.FINISHED, 4)
    assert work.began == [0, 1, 1, 2, 2]
    assert runner.counts["retried", ""] == 4
    _, (job,) = run(store, Work([away] * 3), [request(budget=4)])
    assert (job.state, job.error) == (JobState.FAILED, "the machine failed 3 times: no engine")
    _, (job,) = run(store, Work([ZeroDivisionError("bug")]), [request(budget=1)])
    assert job.state is JobState.FINISHED  # a bug is no verdict on the request either


def test_a_bad_problem_fails_at_once(store: JobStore):
    _, (job,) = run(store, Work([InputError("Model raised")]), [request()])
    assert (job.state, job.error) == (JobState.FAILED, "Model raised")


def test_a_stopped_service_goes_on_where_it_was(store: JobStore):
    async def part() -> str:
        runner = Runner(store, Work([None, None, *[None] * 100], delay_s=0.03), QUICK, "identity")
        runner.start()
        name = runner.submit(request(budget=50), "digest", None)[0].id
        async for event in runner.events(name, 0):
            if event.kind == "attempt":
                break
        await runner.stop()
        return name

    name = asyncio.run(part())
    before = store.job(name)
    assert before.state is JobState.RUNNING
    assert before.judged >= 1

    async def rest() -> None:
        runner = Runner(store, work, QUICK, "identity")
        runner.start()
        await until_ended(runner, [name])
        await runner.stop()
        assert runner.counts["resumed", ""] == 1

    work = Work()
    asyncio.run(rest())
    assert work.began == [before.judged]
    assert (store.job(name).state, store.job(name).judged) == (JobState.FINISHED, 50)


def test_cancelling_stops_waiting_and_running_jobs(store: JobStore):
    async def cancelled() -> tuple[Runner, list[Job], Work]:
        work = Work(delay_s=30)
        runner = Runner(store, work, QUICK, "identity")
        runner.start()
        names = [runner.submit(request(seed), "digest", None)[0].id for seed in range(4)]
        while work.at_once < 2:
            await asyncio.sleep(0.01)
        began = time.monotonic()
        for name in names:
            runner.cancel(name)
            runner.cancel(name)
        jobs = await until_ended(runner, names)
        while work.at_once:
            await asyncio.sleep(0.01)
        assert time.monotonic() - began < 25, "no job was waited for"
        await runner.stop()
        return runner, jobs, work

    runner, jobs, work = asyncio.run(cancelled())
    assert [job.state for job in jobs] == [JobState.CANCELLED] * 4
    assert len(work.began) == 2
    assert runner.counts["ended", "cancelled"] == 4


def test_a_known_result_ends_a_job_without_work(store: JobStore):
    work = Work()
    asked = KernelRequest(problem_source=EXAMPLE_PROBLEM, budget=2)
    run(store, work, [asked])
    runner, (job,) = run(store, work, [asked])
    assert (job.state, job.cached, work.began) == (JobState.FINISHED, True, [0])
    assert runner.counts["cached", ""] == 1
    _, (job,) = run(store, work, [asked.model_copy(update={"use_cache": False})])
    assert (job.cached, work.began) == (False, [0, 0])
