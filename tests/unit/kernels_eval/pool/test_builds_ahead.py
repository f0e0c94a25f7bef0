"""Builds ahead: candidates that wait for a worker on a GPU are built meanwhile, each once."""

import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any

import pytest

from kernels_eval.compile.one_shot import Compiled
from kernels_eval.config import JudgeConfig
from kernels_eval.errors import InfrastructureError
from kernels_eval.pool.builds_ahead import BuildsAhead, spare_processors
from kernels_eval.pool.job_queue import Job
from kernels_eval.problem import EXAMPLE_PROBLEM, Problem

CONFIG = JudgeConfig(backend="cuda", device="cuda")
WAIT_S = 20.0


class Builds:
    """In the place of builders: notes what it is asked for, and answers when `may_end` is set."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.made = self.closed = 0
        self.began, self.may_end = threading.Semaphore(0), threading.Event()
        self.error: Exception | None = None

    def new(self) -> Any:
        self.made += 1
        return self

    def build(self, backend: str, source: str, *_: Any) -> Compiled:
        assert backend == "cuda"
        self.asked.append(source)
        self.began.release()
        assert self.may_end.wait(WAIT_S)
        if self.error is not None:
            raise self.error
        return Compiled(message=source)

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def builds() -> Generator[Builds]:
    made = Builds()
    yield made
    made.may_end.set()


Make = Callable[..., BuildsAhead]


@pytest.fixture
def ahead(builds: Builds) -> Generator[Make]:
    made: list[BuildsAhead] = []

    def make(at_once: int = 1) -> BuildsAhead:
        made.append(BuildsAhead(builds.new, at_once))
        return made[-1]

    yield make
    for each in made:
        each.close()


def job_of(name: str, config: JudgeConfig = CONFIG) -> Job:
    return Job(name, Problem(problem_id="p", source=EXAMPLE_PROBLEM), f"# {name}", config)


def test_what_has_begun_is_waited_for_and_what_has_not_is_left_to_the_worker(builds: Builds, ahead: Make) -> None:
    waiting = ahead(at_once=1)
    first, second = job_of("first"), job_of("second")
    for job in (first, second):
        waiting.begin(job, Future())
    assert builds.began.acquire(timeout=WAIT_S)
    assert waiting.outcome(second) is None, "its build has not begun"
    builds.may_end.set()
    assert waiting.outcome(first) == Compiled(message="# first")
    assert waiting.outcome(first) is None, "each is asked for once"
    assert builds.asked == ["# first"]


def test_as_many_as_are_asked_for_build_at_once_each_in_a_process_of_its_own(builds: Builds, ahead: Make) -> None:
    waiting = ahead(at_once=3)
    jobs = [job_of(str(number)) for number in range(3)]
    for job in jobs:
        waiting.begin(job, Future())
    for _ in jobs:
        assert builds.began.acquire(timeout=WAIT_S)
    builds.may_end.set()
    assert [waiting.outcome(job) for job in jobs] == [Compiled(message=f"# {number}") for number in range(3)]
    assert builds.made == 3
    waiting.close()
    assert builds.closed == 3


def test_a_fault_of_the_machine_is_left_to_the_worker_which_builds_again(builds: Builds, ahead: Make) -> None:
    waiting, job = ahead(), job_of("job")
    builds.error = InfrastructureError("the process died")
    builds.may_end.set()
    waiting.begin(job, Future())
    assert waiting.outcome(job) is None


def test_what_nobody_waits_for_any_more_is_not_built(builds: Builds, ahead: Make) -> None:
    waiting, first, second = ahead(), job_of("first"), job_of("second")
    verdict: Future[object] = Future()
    waiting.begin(first, Future())
    waiting.begin(second, verdict)
    assert verdict.cancel()
    builds.may_end.set()
    assert waiting.outcome(first) is not None
    last = job_of("last")
    waiting.begin(last, Future())
    assert waiting.outcome(last) == Compiled(message="# last") or builds.asked == ["# first"]
    assert "# second" not in builds.asked


@pytest.mark.parametrize("config", [CONFIG.model_copy(update={"backend": "triton"}), CONFIG])
def test_nothing_is_built_that_needs_no_build_or_without_processors(
    builds: Builds, ahead: Make, config: JudgeConfig
) -> None:
    waiting = ahead(at_once=0 if config is CONFIG else 1)
    waiting.begin(job_of("job", config), Future())
    assert waiting.outcome(job_of("job", config)) is None
    assert not builds.asked


def test_processors_that_workers_need_are_not_spare() -> None:
    spare = [spare_processors(workers) for workers in range(100)]
    assert spare[-1] == 0
    assert sorted(spare, reverse=True) == spare
    assert spare[0] <= 16
