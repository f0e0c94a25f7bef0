"""Builds ahead: candidates that wait for a worker on a GPU are built meanwhile, each once."""

import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from kernels_eval.compile.one_shot import Compiled
from kernels_eval.config import JudgeConfig
from kernels_eval.errors import InfrastructureError
from kernels_eval.pool import builds_ahead
from kernels_eval.pool.builds_ahead import BuildsAhead, spare_processors
from kernels_eval.pool.job_queue import Job
from kernels_eval.problem import EXAMPLE_PROBLEM, Problem

CONFIG = JudgeConfig(backend="cuda", device="cuda")
WARM = JudgeConfig(device="cuda", compile_ahead=True)
WAIT_S = 20.0


class Builds:
    """In the place of builders: notes what it is asked for, and answers when `may_end` is set."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
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

    def warm(self, backend: str, source: str, arguments: list[Any], target: str, *_: Any) -> str | None:
        assert (backend, target) == ("triton", "cuda:90")
        self.build("cuda", source)
        folder = self.folder / source.removeprefix("# ")
        folder.mkdir()
        return str(folder)

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Builds]:
    monkeypatch.setattr(builds_ahead, "gpu_target", lambda: "cuda:90")
    made = Builds(tmp_path)
    yield made
    made.may_end.set()


Make = Callable[..., BuildsAhead]


@pytest.fixture
def ahead(builds: Builds) -> Generator[Make]:
    made: list[BuildsAhead] = []

    def make(at_once: int = 1) -> BuildsAhead:
        made.append(BuildsAhead(builds.new, at_once, builds.new))
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


def until(found: Callable[[], object]) -> bool:
    deadline = time.monotonic() + WAIT_S
    while not found() and time.monotonic() < deadline:
        time.sleep(0.005)
    return bool(found())


def test_kernels_are_compiled_ahead_and_removed_with_their_verdict(builds: Builds, ahead: Make) -> None:
    waiting, job = ahead(), job_of("job", WARM)
    verdict: Future[object] = Future()
    waiting.begin_warming(job, verdict)
    assert builds.began.acquire(timeout=WAIT_S)
    assert waiting.warmed(job) is None, "nobody waits for it"
    builds.may_end.set()
    assert until(lambda: waiting.warmed(job))
    assert waiting.warmed(job) == str(builds.folder / "job"), "a job that is tried again finds it again"
    verdict.set_result(None)
    assert waiting.warmed(job) is None
    assert not (builds.folder / "job").exists()


def test_what_is_compiled_when_its_verdict_is_there_is_removed_when_it_ends(builds: Builds, ahead: Make) -> None:
    waiting, first, second = ahead(), job_of("first", WARM), job_of("second", WARM)
    verdict: Future[object] = Future()
    waiting.begin_warming(first, verdict)
    waiting.begin_warming(second, Future())
    assert builds.began.acquire(timeout=WAIT_S)
    assert waiting.warmed(second) is None, "it has not begun, and never will"
    verdict.set_result(None)
    builds.may_end.set()
    waiting.begin_warming(job_of("last", WARM), Future())
    assert until(lambda: (builds.folder / "last").exists())
    assert [path.name for path in builds.folder.iterdir()] == ["last"]


def test_what_fails_ahead_is_left_to_the_launch(builds: Builds, ahead: Make) -> None:
    builds.may_end.set()
    for builds.error in (InfrastructureError("the process died"), OSError("the disk is full")):
        waiting, job, verdict = ahead(), job_of("job", WARM), Future[object]()
        waiting.begin_warming(job, verdict)
        waiting.begin(job_of("next"), Future())
        assert waiting.warmed(job) is None
        verdict.set_result(None)


@pytest.mark.parametrize("change", [{"compile_ahead": False}, {"backend": "cuda"}, {"device": "cpu"}])
def test_kernels_are_compiled_ahead_only_where_that_is_asked_for(
    builds: Builds, ahead: Make, change: dict[str, Any]
) -> None:
    waiting, job = ahead(), job_of("job", WARM.model_copy(update=change))
    builds.may_end.set()
    waiting.begin_warming(job, Future())
    waiting.close()
    assert builds.asked == []
