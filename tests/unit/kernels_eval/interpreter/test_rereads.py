"""What a program reads again: from how far away on it counts, in which programs, and what programs share."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.interpreter.rereads import Rereads

KB = 1 << 10
SIZE = 1 << 26


def read(log: Rereads, start: int, nbytes: int, block: int = 4 * KB, number: int = 0) -> None:
    """Read float32 from a byte on, in blocks."""
    for first in range(start, start + nbytes, block):
        log.note(number, np.arange(first, min(first + block, start + nbytes), 4), SIZE)


def of_rows(row_bytes: int, passes: int, programs: int = 1) -> Rereads:
    log = Rereads()
    for program in range(programs):
        log.begin_batch(1)
        for _ in range(passes):
            read(log, program * row_bytes, row_bytes)
    return log


def test_a_row_that_is_read_once_is_not_read_again() -> None:
    assert of_rows(256 * KB, 1, programs=4).found(100, 100 * 256 * KB) == (0.0, 0.0)


def test_a_long_row_that_is_read_twice_counts_once_more_for_every_program() -> None:
    found = of_rows(256 * KB, 2, programs=4).found(100, 100 * 256 * KB)
    assert found.nbytes == 100 * 256 * KB
    assert found.reach == pytest.approx(256 * KB, rel=0.02)


def test_a_short_row_stays_near() -> None:
    assert of_rows(32 * KB, 3).found(100, 100 * 32 * KB) == (0.0, 0.0)


def test_what_another_program_read_is_not_read_again() -> None:
    log = Rereads()
    for _ in range(5):
        log.begin_batch(1)
        read(log, 0, 256 * KB)
    assert log.found(5, 256 * KB) == (0.0, 0.0)


def test_programs_that_read_the_same_share_it() -> None:
    log = Rereads()
    for _ in range(4):
        log.begin_batch(1)
        read(log, 0, 256 * KB)
        read(log, 0, 256 * KB)
    found = log.found(64, 256 * KB)
    assert found.nbytes == 256 * KB
    assert found.reach == pytest.approx(256 * KB / 64, rel=0.02)


def test_a_sector_in_one_access_counts_once() -> None:
    log = Rereads()
    log.begin_batch(1)
    log.note(0, np.zeros(4096, np.int64), SIZE)
    read(log, 64, 48 * KB)
    log.note(0, np.zeros(4096, np.int64), SIZE)
    found = log.found(1, 48 * KB + 32)
    assert found.nbytes == 32
    assert found.reach == pytest.approx(48 * KB, rel=0.01)


def test_a_program_stands_for_all_of_its_batch() -> None:
    log = Rereads()
    for programs, passes in ((16, 1), (48, 2)):
        log.begin_batch(programs)
        for _ in range(passes):
            read(log, programs << 16, 64 * KB)
    assert log.found(64, 64 * 64 * KB).nbytes == 48 * 64 * KB


def test_a_program_that_reads_more_than_is_remembered_counts_less() -> None:
    log = Rereads()
    log.begin_batch(1)
    for _ in range(2):
        read(log, 0, 48 << 20, 1 << 20)
    assert 16 << 20 <= log.found(1, 48 << 20).nbytes <= 32 << 20


def test_one_in_eight_of_programs_that_run_one_by_one_stands_for_all() -> None:
    log = Rereads()
    for program in range(16):
        log.begin_program()
        for _ in range(2 if program % 8 == 0 else 1):  # the others are not looked at
            read(log, program * 64 * KB, 64 * KB)
    assert log.found(16, 16 * 64 * KB).nbytes == 16 * 64 * KB


def test_a_launch_begins_without_what_the_one_before_it_read() -> None:
    log = of_rows(256 * KB, 1)
    log.start()
    log.begin_batch(1)
    read(log, 0, 256 * KB)
    assert log.found(1, 256 * KB) == (0.0, 0.0)


@given(st.lists(st.tuples(st.integers(0, 63), st.integers(1, 64)), min_size=1, max_size=30))
def test_it_counts_what_a_list_of_all_reads_gives(spans: list[tuple[int, int]]) -> None:
    """Spans in units of 4 KB: each access is one of these, and a sector is far if more than 32 KB were read since."""
    log = Rereads()
    log.begin_batch(1)
    for start, length in spans:
        log.note(0, np.arange(start * 4 * KB, (start + length) * 4 * KB, 4), SIZE)
    times: dict[int, list[int]] = {}
    position = 0
    for start, length in spans:
        for unit in range(start, start + length):
            times.setdefault(unit, []).append(position)
        position += length
    apart = [later - earlier for seen in times.values() for earlier, later in pairwise(seen) if later - earlier > 8]
    found = log.found(1, len(times) * 4 * KB)
    assert found.nbytes == len(apart) * 4 * KB
    assert found.reach == pytest.approx(sum(apart) / len(apart) * 4 * KB if apart else 0.0)
