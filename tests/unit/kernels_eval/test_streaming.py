"""Verdicts as they come in."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels_eval.errors import InputError
from kernels_eval.problem import Problem
from kernels_eval.streaming import stream_verdicts
from kernels_eval.verdict import Status, Verdict


class Evaluations:
    """Stands for a judge: takes as many turns of the loop as the kernel's source says."""

    def __init__(self) -> None:
        self.under_way = self.most = self.cancelled = 0

    async def __call__(self, problem: Problem | str, kernel: str, backend: str | None) -> Verdict:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            for _ in range(int(kernel)):
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.under_way -= 1
        if problem == "bad":
            raise InputError("problem: not Python")
        return Verdict(status=Status.CORRECT, error_message=f"{kernel} {backend}")


@given(durations=st.lists(st.integers(0, 20), max_size=40), at_once=st.integers(1, 8), is_async=st.booleans())
@settings(max_examples=60, deadline=None)
def test_each_item_once_and_never_too_many(durations: list[int], at_once: int, is_async: bool) -> None:
    evaluate = Evaluations()

    async def as_async() -> AsyncIterator[tuple[str, str]]:
        for duration in durations:
            await asyncio.sleep(0)
            yield "p", str(duration)

    async def collect() -> list[tuple[int, Verdict]]:
        items = as_async() if is_async else (("p", str(duration)) for duration in durations)
        return [pair async for pair in stream_verdicts(evaluate, items, at_once)]

    found = asyncio.run(collect())
    assert sorted(index for index, _ in found) == list(range(len(durations)))
    assert all(verdict.error_message == f"{durations[index]} None" for index, verdict in found)
    assert evaluate.most <= at_once


def test_the_quick_overtake_the_slow_and_back_ends_are_passed_on() -> None:
    async def collect() -> list[tuple[int, str | None]]:
        items = [("p", "50", "cuda"), ("p", "1", None), ("p", "2")]
        return [(index, verdict.error_message) async for index, verdict in stream_verdicts(Evaluations(), items, 8)]

    assert asyncio.run(collect()) == [(1, "1 None"), (2, "2 None"), (0, "50 cuda")]


def test_endless_items_are_taken_as_needed_and_what_is_left_is_cancelled() -> None:
    evaluate = Evaluations()
    generator = random.Random(0)
    taken = 0

    def endless() -> Iterator[tuple[str, str]]:
        nonlocal taken
        while True:
            taken += 1
            yield "p", str(generator.randrange(5))

    async def collect() -> None:
        async with aclosing(stream_verdicts(evaluate, endless(), 4)) as stream:
            seen = 0
            async for _ in stream:
                seen += 1
                if seen == 10:
                    break
        await asyncio.sleep(0)

    asyncio.run(collect())
    assert taken <= 10 + 4
    assert evaluate.under_way == 0


def test_a_bad_item_raises() -> None:
    async def collect() -> None:
        async for _ in stream_verdicts(Evaluations(), [("p", "3"), ("bad", "1"), ("p", "100")], 4):
            pass

    with pytest.raises(InputError, match="not Python"):
        asyncio.run(collect())
