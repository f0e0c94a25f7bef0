"""A run's second line of stages: order, results, errors, and the end of the block."""

import threading
from contextvars import ContextVar

import pytest

from flows.run.lane import Lane

WITHIN_S = 60.0
"""Longest wait of a test that should not wait at all."""


class Stop:
    """Counts calls, and lets work end that waits for it."""

    def __init__(self) -> None:
        self.called = threading.Event()

    def __call__(self) -> None:
        self.called.set()


def test_work_is_done_in_its_order_beside_the_block_and_all_of_it():
    done: list[int] = []
    first_may_end = threading.Event()

    def work(number: int) -> int:
        assert first_may_end.wait(WITHIN_S)
        done.append(number)
        return number * 10

    with Lane(Stop()) as lane:
        futures = [lane.submit(work, number) for number in range(3)]
        assert done == [], "the block goes on meanwhile"
        first_may_end.set()
        assert futures[1].result(WITHIN_S) == 10
    assert done == [0, 1, 2]
    assert futures[2].result(0) == 20


def test_work_sees_the_context_in_which_it_was_given():
    flow_run: ContextVar[str] = ContextVar("flow_run", default="none")
    with Lane(Stop()) as lane:
        flow_run.set("this one")
        assert lane.submit(flow_run.get).result(WITHIN_S) == "this one"


def test_what_follows_failed_work_is_not_begun():
    begun: list[str] = []

    def fail() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"), Lane(Stop()) as lane:  # noqa: PT012
        lane.submit(fail)
        second = lane.submit(begun.append, "second")
        with pytest.raises(ValueError, match="broken"):
            second.result(WITHIN_S)
    assert begun == []


def test_an_error_that_nobody_waited_for_is_raised_at_the_end():
    def fail() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"), Lane(Stop()) as lane:
        lane.submit(fail)


def test_an_error_of_the_block_stops_the_work_and_is_the_one_that_is_raised():
    stop, at_work, begun = Stop(), threading.Event(), list[str]()

    def work() -> None:
        at_work.set()
        assert stop.called.wait(WITHIN_S)
        raise RuntimeError("its worker was killed")

    with pytest.raises(ValueError, match="the update failed"), Lane(stop) as lane:  # noqa: PT012
        first = lane.submit(work)
        second = lane.submit(begun.append, "second")
        assert at_work.wait(WITHIN_S)
        raise ValueError("the update failed")
    assert isinstance(first.exception(0), RuntimeError)
    assert isinstance(second.exception(0), ValueError)
    assert begun == []
