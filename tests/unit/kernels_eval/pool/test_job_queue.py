"""The queue: each job is told exactly one verdict, whatever the order of submissions, cancellations, faults and closing."""

import threading
import time
from concurrent.futures import Future
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from kernels_eval.config import JudgeConfig
from kernels_eval.errors import InfrastructureError
from kernels_eval.pool.job_queue import Dispatcher, Job
from kernels_eval.problem import Problem
from kernels_eval.verdict import Status, Verdict

RIGHT = Verdict(status=Status.CORRECT, correct=True)
FAULT = Verdict(status=Status.INFRASTRUCTURE_ERROR)


def job(key: str, problem: str = "p") -> Job:
    return Job(key, Problem(problem_id="p", source=problem), "kernel", JudgeConfig())


def take_all(dispatcher: Dispatcher, worker: int, count: int) -> list[Job]:
    taken = [dispatcher.take(worker) for _ in range(count)]
    return [item for item in taken if item is not None]


def test_first_come_first_served_and_equal_jobs_run_once() -> None:
    dispatcher = Dispatcher()
    futures = [dispatcher.submit(job(key, problem=key)) for key in "abca"]
    taken = take_all(dispatcher, 0, 3)
    assert [item.key for item in taken] == ["a", "b", "c"]
    assert (dispatcher.waiting, dispatcher.running) == (0, 3)
    joined = dispatcher.submit(job("b", problem="b"))
    for item in taken:
        dispatcher.finish(item, RIGHT)
    assert all(future.result(timeout=0) is RIGHT for future in [*futures, joined])
    assert (dispatcher.waiting, dispatcher.running) == (0, 0)


def test_a_worker_keeps_to_problems_that_it_knows_but_passes_none_over_for_ever() -> None:
    dispatcher = Dispatcher()
    dispatcher.submit(job("0", problem="mine"))
    assert take_all(dispatcher, 7, 1)
    dispatcher.submit(job("theirs-0", problem="theirs"))
    assert take_all(dispatcher, 8, 1)
    dispatcher.submit(job("theirs-1", problem="theirs"))
    for index in range(1, 200):
        dispatcher.submit(job(str(index), problem="mine"))
    order = [item.key for item in take_all(dispatcher, 7, 100)]
    assert order[:10] == [str(index) for index in range(1, 11)]
    assert order.index("theirs-1") == 64


def test_a_worker_prefers_a_problem_that_nobody_knows_to_one_of_anothers() -> None:
    dispatcher = Dispatcher()
    dispatcher.submit(job("a0", problem="a"))
    take_all(dispatcher, 0, 1)
    for key in ("a1", "a2", "b0"):
        dispatcher.submit(job(key, problem=key[0]))
    assert [item.key for item in take_all(dispatcher, 1, 3)] == ["b0", "a1", "a2"]


def test_an_idle_worker_gets_the_job_that_suits_it() -> None:
    dispatcher = Dispatcher()
    got: dict[int, list[str]] = {0: [], 1: []}

    def work(worker: int) -> None:
        while (item := dispatcher.take(worker)) is not None:
            got[worker].append(item.problem.source)
            dispatcher.finish(item, RIGHT)

    threads = [threading.Thread(target=work, args=[worker]) for worker in got]
    for thread in threads:
        thread.start()
    for index in range(40):
        dispatcher.submit(job(f"x{index}", problem=f"p{index % 2}")).result(timeout=5)
        time.sleep(0.002)  # so that both are idle again
    dispatcher.close(lambda _: FAULT)
    for thread in threads:
        thread.join(timeout=5)
    by_problem = [{worker for worker, problems in got.items() if f"p{index}" in problems} for index in range(2)]
    assert all(len(workers) == 1 for workers in by_problem), got


def test_a_cancelled_job_is_dropped_unless_another_waits_for_it() -> None:
    dispatcher = Dispatcher()
    alone, shared, also = (dispatcher.submit(job(key)) for key in ("alone", "shared", "shared"))
    assert alone.cancel()
    assert shared.cancel()
    assert dispatcher.waiting == 1
    (taken,) = take_all(dispatcher, 0, 1)
    assert taken.key == "shared"
    dispatcher.finish(taken, RIGHT)
    assert also.result(timeout=0) is RIGHT


def test_a_running_job_may_be_cancelled() -> None:
    dispatcher = Dispatcher()
    future = dispatcher.submit(job("a"))
    (taken,) = take_all(dispatcher, 0, 1)
    assert future.cancel()
    dispatcher.finish(taken, RIGHT)
    assert dispatcher.running == 0


def test_what_is_put_back_comes_first() -> None:
    dispatcher = Dispatcher()
    for key in "ab":
        dispatcher.submit(job(key, problem=key))
    (first,) = take_all(dispatcher, 0, 1)
    dispatcher.put_back(first, lambda _: FAULT)
    assert [item.key for item in take_all(dispatcher, 1, 2)] == ["a", "b"]


def test_closing_ends_what_waits_and_sends_workers_home() -> None:
    dispatcher = Dispatcher()
    home: list[Job | None] = []
    running, waiting = dispatcher.submit(job("running")), dispatcher.submit(job("waiting"))
    (taken,) = take_all(dispatcher, 0, 1)
    late = Dispatcher()
    worker = threading.Thread(target=lambda: home.append(late.take(0)))
    worker.start()
    late.close(lambda _: FAULT)
    worker.join(timeout=5)
    assert home == [None]
    dispatcher.close(lambda _: FAULT)
    assert waiting.result(timeout=0) is FAULT
    assert not running.done()
    dispatcher.put_back(taken, lambda _: FAULT)
    assert running.result(timeout=0) is FAULT
    assert dispatcher.take(0) is None
    with pytest.raises(InfrastructureError, match="closed"):
        dispatcher.submit(job("late"))


class Queue(RuleBasedStateMachine):
    """Any sequence of events, checked against the simplest account of them."""

    futures = Bundle("futures")

    def __init__(self) -> None:
        super().__init__()
        self.dispatcher = Dispatcher()
        self.taken: list[Job] = []
        self.given: list[Future[Verdict]] = []

    @rule(target=futures, key=st.integers(0, 5), problem=st.integers(0, 2))
    def submit(self, key: int, problem: int) -> Any:
        future = self.dispatcher.submit(job(f"{key}/{problem}", problem=str(problem)))
        self.given.append(future)
        return future

    @rule(future=futures)
    def cancel(self, future: Any) -> None:
        future.cancel()

    @rule(worker=st.integers(0, 3))
    def take(self, worker: int) -> None:
        if self.dispatcher.waiting:
            item = self.dispatcher.take(worker)
            assert item is not None
            assert item not in self.taken
            self.taken.append(item)

    @rule(index=st.integers(0, 10))
    def finish(self, index: int) -> None:
        if index < len(self.taken):
            self.dispatcher.finish(self.taken.pop(index), RIGHT)

    @rule(index=st.integers(0, 10))
    def put_back(self, index: int) -> None:
        if index < len(self.taken) and self.taken[index].is_wanted:
            self.dispatcher.put_back(self.taken.pop(index), lambda _: FAULT)

    @invariant()
    def keys_run_once(self) -> None:
        keys = [item.key for item in self.taken]
        assert len(keys) == len(set(keys)) == self.dispatcher.running

    def teardown(self) -> None:
        while self.dispatcher.waiting:
            self.take(0)
        for item in self.taken:
            self.dispatcher.finish(item, RIGHT)
        assert all(future.cancelled() or future.result(timeout=0) is RIGHT for future in self.given)


TestQueue = Queue.TestCase
TestQueue.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


class Workers:
    """Threads that take jobs and finish those that are let go."""

    def __init__(self, dispatcher: Dispatcher, count: int) -> None:
        self.dispatcher = dispatcher
        self.taken: list[tuple[str, int]] = []
        self.released: dict[str, threading.Event] = {}
        self.threads = [threading.Thread(target=self._work, args=[number]) for number in range(count)]
        for thread in self.threads:
            thread.start()

    def _work(self, number: int) -> None:
        while (item := self.dispatcher.take(number)) is not None:
            self.taken.append((item.key, number))
            if item.key in self.released:
                self.released[item.key].wait()
            self.dispatcher.finish(item, RIGHT)

    def hold(self, *keys: str) -> None:
        self.released |= {key: threading.Event() for key in keys}

    def close(self) -> None:
        for event in self.released.values():
            event.set()
        self.dispatcher.close(lambda _: FAULT)
        for thread in self.threads:
            thread.join(timeout=5)


def test_what_takes_long_holds_nobody_up_and_what_is_young_does() -> None:
    workers = Workers(Dispatcher(slots=1, young_s=1.0), 3)
    try:
        workers.hold("slow", "slower")
        began = time.monotonic()
        slow, slower = workers.dispatcher.submit(job("slow")), workers.dispatcher.submit(job("slower", problem="q"))
        quick = [workers.dispatcher.submit(job(f"quick-{index}", problem="r")) for index in range(20)]
        running = workers.dispatcher.running
        assert running == 1 or time.monotonic() - began > 1.0, "one slot, and a young job in it"
        for future in quick:
            future.result(timeout=60)
        assert time.monotonic() - began > 1.5, "each of the two had its slot for 1 s"
        assert not slow.done()
        assert not slower.done()
        assert {number for key, number in workers.taken if key.startswith("quick")} == {2}
    finally:
        workers.close()
    assert slow.result(timeout=0) is RIGHT is slower.result(timeout=0)


def test_reserves_are_asked_last() -> None:
    workers = Workers(Dispatcher(slots=2, young_s=60), 4)
    try:
        for index in range(30):
            workers.dispatcher.submit(job(str(index), problem=str(index))).result(timeout=5)
            time.sleep(0.002)
        assert {number for _, number in workers.taken} <= {0, 1}, workers.taken
        workers.hold("a", "b")
        held = [workers.dispatcher.submit(job(key)) for key in ("a", "b", "c")]
        time.sleep(0.1)
        assert (workers.dispatcher.running, workers.dispatcher.waiting) == (2, 1)
        workers.released["a"].set()
        assert held[2].result(timeout=5) is RIGHT
    finally:
        workers.close()
