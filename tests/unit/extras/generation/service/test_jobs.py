"""Jobs on disk: whatever was reported as stored is there after a kill, and one process has the file."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from extras.generation.result import GeneratedKernel, Outcome
from extras.generation.search import Attempt, Stop
from extras.generation.service.jobs import JobStore
from extras.generation.service.schemas import JobState, KernelRequest
from kernels_eval.errors import InputError
from kernels_eval.problem import EXAMPLE_PROBLEM
from kernels_eval.verdict import Status, Verdict

REQUEST = KernelRequest(problem_source=EXAMPLE_PROBLEM, budget=8)


def attempt(number: int, speedup: float | None = None) -> Attempt:
    correct = speedup is not None
    verdict = Verdict(status=Status.CORRECT if correct else Status.INCORRECT, correct=correct, speedup=speedup)
    return Attempt(
        conversation=number, turn=1, kernel_source="k", verdict=verdict, prompt_tokens=1, completion_tokens=1, at_s=1.0
    )


def result(speedup: float | None, judged: int = 8) -> GeneratedKernel:
    outcome = Outcome.ORIGINAL if speedup is None else Outcome.IMPROVED
    return GeneratedKernel(
        outcome=outcome, source="x", speedup=speedup, problem_digest="d", policy="p", policy_digest="q", judged=judged,
        seconds=1.0, stopped=Stop.BUDGET,
    )  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Any:
    store = JobStore(tmp_path)
    yield store
    store.close()


def test_a_killed_process_loses_nothing_that_it_reported(tmp_path: Path):
    code = f"""
import os, signal
from pathlib import Path
from extras.generation.service.jobs import JobStore
from extras.generation.service.schemas import KernelRequest
store = JobStore(Path({str(tmp_path)!r}))
for n in range(7):
    job, _ = store.add(KernelRequest(problem_source="p", seed=n), "d", "c", f"key {{n}}")
    print(job.id, flush=True)
store.take()
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -9, done.stderr
    reported = done.stdout.split()
    store = JobStore(tmp_path)
    assert [job.id for job in reversed(store.newest(100))] == reported
    assert [job.request.seed for job in reversed(store.newest(100))] == list(range(7))
    assert (store.count(JobState.RUNNING), store.requeue_interrupted(), store.count(JobState.QUEUED)) == (1, 1, 7)
    assert [event.kind for event in store.events(reported[0])] == ["queued", "started", "resumed"]
    store.close()


def test_a_second_service_on_the_same_folder_is_refused(store: JobStore, tmp_path: Path):
    with pytest.raises(InputError, match=r"jobs\.sqlite"):
        JobStore(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "jobs.sqlite").write_text("no database, but long enough to be taken for one " * 20)
    with pytest.raises(InputError, match=r"jobs\.sqlite"):
        JobStore(tmp_path / "other")


def test_the_oldest_job_is_taken_first_and_one_that_waits_is_not(store: JobStore):
    first, second = (store.add(REQUEST, "d", "c", None)[0] for _ in range(2))
    store.retry(first.id, 1, not_before=4e9, message="no engine")
    taken = store.take()
    assert taken is not None
    assert taken.id == second.id
    assert store.take() is None
    assert store.job(first.id).failures == 1


def test_progress_is_numbered_and_forgets_faults(store: JobStore):
    job, _ = store.add(REQUEST, "d", "c", None)
    store.retry(job.id, 3, not_before=0, message="no engine")
    for number, speedup in enumerate((None, 1.5, 1.2)):
        store.note_attempt(job.id, attempt(number, speedup))
    assert [event.number for event in store.events(job.id)] == [1, 2, 3, 4, 5]
    assert [event.number for event in store.events(job.id, after=3)] == [4, 5]
    assert store.attempts(job.id) == [attempt(0), attempt(1, 1.5), attempt(2, 1.2)]
    found = store.job(job.id)
    assert (found.judged, found.best_speedup, found.failures) == (3, 1.5, 0)


@pytest.mark.parametrize(
    ("speedup", "judged", "asked", "serves"),
    [
        (2.0, 8, {"budget": 100}, True),
        (2.0, 8, {"min_speedup": 2.5}, False),
        (None, 8, {"budget": 8}, True),
        (None, 8, {"budget": 9}, False),
        (None, 8, {"budget": 4, "min_speedup": 1.01}, False),  # it was searched for more
    ],
)
def test_a_result_answers_a_request_that_asks_for_no_more(
    store: JobStore, speedup: float | None, judged: int, asked: dict[str, Any], serves: bool
):
    job, _ = store.add(REQUEST, "d", "c", None)
    store.finish(job.id, result(speedup, judged))
    request = KernelRequest(problem_source=EXAMPLE_PROBLEM, **asked)
    assert (store.cached("c", request) is not None) is serves
    assert store.cached("other", request) is None


def test_the_same_key_gets_the_same_job(store: JobStore):
    job, is_new = store.add(REQUEST, "d", "c", "key")
    again, is_new_again = store.add(REQUEST.model_copy(update={"seed": 5}), "d", "c", "key")
    assert (is_new, is_new_again, again.id, again.request.seed) == (True, False, job.id, 0)
    assert store.add(REQUEST, "d", "c", None)[1]
