"""Ranks between two engines: they stay if what they hold is small, and are replaced if it is not."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
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


@pytest.mark.long
@pytest.mark.parametrize(("limit", "stays"), [(ranks.SMALL_SHARE, True), (-1.0, False)])
def test_ranks_stay_where_they_hold_little(limit: float, stays: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU they hold nothing of a GPU."""
    monkeypatch.setattr(ranks, "SMALL_SHARE", limit)
    before = process_of_rank()
    assert ranks.make_room(ENGINE) is stays
    assert (process_of_rank() == before) is stays


@pytest.mark.long
def test_ranks_that_died_are_replaced() -> None:
    before = process_of_rank()
    ranks.stop_ranks(ENGINE)
    ranks.make_room(ENGINE)
    assert process_of_rank() != before


def processes_of_ranks() -> set[int]:
    """Return the processes that hold a rank, or are getting one."""
    titles = ((entry, entry.joinpath("cmdline")) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    found: set[int] = set()
    for entry, title in titles:
        with contextlib.suppress(OSError):  # it has ended
            if title.read_bytes().startswith(b"ray::Rank"):
                found.add(int(entry.name))
    return found


def test_ranks_that_are_prepared_are_those_that_run() -> None:
    ranks.stop_ranks(ENGINE)
    before = processes_of_ranks()
    assert ranks.prepare_ranks(ENGINE)
    until = time.monotonic() + 60
    while len(processes_of_ranks() - before) < ENGINE.ranks and time.monotonic() < until:
        time.sleep(0.05)
    assert process_of_rank() in processes_of_ranks() - before


def test_ranks_that_would_wait_for_gpus_are_not_prepared() -> None:
    assert not ranks.prepare_ranks(ENGINE.model_copy(update={"gpus_per_rank": 0.5}))
    assert not ranks.prepare_ranks(ENGINE, gpus_of_others=1.0)
