"""Ranks between two engines: they stay if what they hold is small, and are replaced if it is not."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tasks.training import ranks
from tasks.training.config import EngineConfig
from tasks.training.program import RankContext

ENGINE = EngineConfig(ranks=2, threads_per_rank=1)


def process_program(rank: RankContext, job: Any) -> Iterator[int]:
    """Yield the number of rank 0's process."""
    yield os.getpid()


def process_of_rank() -> int:
    (process,) = ranks.run_on_ranks(ENGINE, process_program, None)
    return process


@pytest.mark.parametrize(("limit", "stays"), [(ranks.SMALL_SHARE, True), (-1.0, False)])
def test_ranks_stay_where_they_hold_little(limit: float, stays: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU they hold nothing of a GPU."""
    monkeypatch.setattr(ranks, "SMALL_SHARE", limit)
    before = process_of_rank()
    assert ranks.make_room(ENGINE) is stays
    assert (process_of_rank() == before) is stays


def test_ranks_that_died_are_replaced() -> None:
    before = process_of_rank()
    ranks.stop_ranks(ENGINE)
    ranks.make_room(ENGINE)
    assert process_of_rank() != before
