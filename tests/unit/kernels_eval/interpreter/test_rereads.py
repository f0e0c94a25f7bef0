"""Data that a program reads again: from how far away on it counts, and what other programs read in between."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.interpreter.rereads import Rereads

KB = 1 << 10
SIZE = 1 << 26


def note(log: Rereads, offsets: Any, mask: Any = None, storage: int = 0, size: int = SIZE) -> None:
    """Note a load by the offsets of its lanes, with a row for each program."""
    taking = [row if mask is None else row[mask[number]] for number, row in enumerate(offsets)]
    log.note(storage, size, offsets, mask, np.array([np.unique(row >> 5).size for row in taking]))


def read(log: Rereads, start: int, nbytes: int, block: int = 4 * KB, storage: int = 0) -> None:
    """Read float32 from a byte on, in blocks."""
    for first in range(start, start + nbytes, block):
        note(log, np.arange(first, min(first + block, start + nbytes), 4)[None, :], storage=storage)


def read_together(log: Rereads, starts: list[int], nbytes: int, taking_part: Any = None) -> None:
    """Read from several places at once, in blocks of 4 KB, a program for each."""
    for first in range(0, nbytes, 4 * KB):
        offsets = np.array(starts)[:, None] + np.arange(first, first + 4 * KB, 4)
        note(log, offsets, None if taking_part is None else np.broadcast_to(taking_part[:, None], offsets.shape))


def of_rows(row_bytes: int, passes: int, programs: int = 1) -> Rereads:
    log = Rereads()
    for program in range(programs):
        log.begin(1)
        for _ in range(passes):
            read(log, program * row_bytes, row_bytes)
    return log


def test_a_row_that_is_read_once_is_not_read_again() -> None:
    assert of_rows(256 * KB, 1, programs=4).found() == (0.0, 0.0)


def test_a_long_row_that_is_read_twice_counts_once_more_for_every_program() -> None:
    found = of_rows(256 * KB, 2, programs=4).found()
    assert found.nbytes == 4 * 256 * KB
    assert found.reach == pytest.approx(256 * KB, rel=0.02)


def test_programs_that_run_together_count_as_those_that_run_one_by_one() -> None:
    together = Rereads()
    together.begin(4)
    for _ in range(2):
        read_together(together, [program * 256 * KB for program in range(4)], 256 * KB)
    assert together.found() == of_rows(256 * KB, 2, programs=4).found()


def test_a_program_that_reads_twice_counts_whatever_the_others_of_its_batch_do() -> None:
    log = Rereads()
    log.begin(16)
    rows = [program * 64 * KB for program in range(16)]
    read_together(log, rows, 64 * KB)
    read_together(log, rows, 64 * KB, np.arange(16) % 7 == 2)
    assert log.found().nbytes == 2 * 64 * KB


def test_a_short_row_stays_near() -> None:
    assert of_rows(32 * KB, 3).found() == (0.0, 0.0)


def test_a_program_does_not_read_again_what_another_one_read() -> None:
    log = Rereads()
    for _ in range(5):
        log.begin(1)
        read(log, 0, 256 * KB)
    assert log.found() == (0.0, 0.0)


def test_what_all_programs_read_stays_in_the_cache_and_lies_in_between() -> None:
    log = Rereads()
    log.begin(8)
    log.read_by_all(256 * KB // 32)
    log.read_by_all(256 * KB // 32)
    assert log.found() == (0.0, 0.0)
    rows = [program * 4 * KB for program in range(8)]
    read_together(log, rows, 4 * KB)
    log.read_by_all(64 * KB // 32)
    read_together(log, rows, 4 * KB)
    assert log.found() == (8 * 4 * KB, 68 * KB)


def test_a_sector_in_one_access_counts_once() -> None:
    """In any order of its lanes: a tile that is read once more, transposed, is as near as in the order of rows."""
    log = Rereads()
    log.begin(1)
    tile = np.arange(64)[:, None] * 4096 + np.arange(64)[None, :] * 4
    for _ in range(2):
        note(log, tile.T.reshape(1, -1))
    assert log.found() == (0.0, 0.0)
    note(log, np.tile([0, 4096], 4096)[None, :], storage=1)
    read(log, 0, 48 * KB, storage=2)
    note(log, np.zeros((1, 4096), np.int64), storage=1)
    assert log.found().nbytes == 32
    assert log.found().reach == pytest.approx(48 * KB, rel=0.01)


def test_a_program_that_another_one_interrupts_goes_on_with_what_it_had_read() -> None:
    log = Rereads()
    log.begin(1)
    read(log, 0, 64 * KB)
    for other in (1, 2):
        outer = log.suspend()
        log.begin(1)
        for _ in range(2):
            read(log, other << 20, 64 * KB)
        log.resume(outer)
    read(log, 0, 64 * KB)
    found = log.found()
    assert found.nbytes == 3 * 64 * KB
    assert found.reach == pytest.approx(64 * KB, rel=0.02)


@pytest.mark.parametrize("size", [31 << 20, 32 << 20, 64 << 20])
def test_tensors_of_any_size_are_noted_apart(size: int) -> None:
    log = Rereads()
    log.begin(1)
    for _ in range(2):
        for storage in range(3):
            note(log, np.arange(0, 256 * KB, 4)[None, :], storage=storage, size=size)
    assert log.found().nbytes == 3 * 256 * KB


def test_a_program_that_reads_more_than_is_remembered_counts_less() -> None:
    log = Rereads()
    log.begin(1)
    for _ in range(2):
        read(log, 0, 48 << 20, 1 << 20)
    assert log.found().nbytes == 32 << 20


def test_a_launch_begins_without_what_the_one_before_it_read() -> None:
    log = of_rows(256 * KB, 1)
    log.start()
    log.begin(1)
    read(log, 0, 256 * KB)
    assert log.found() == (0.0, 0.0)


Spans = list[tuple[int, int]]
SPANS = st.lists(st.tuples(st.integers(0, 63), st.integers(1, 64)), max_size=20)


@given(st.lists(SPANS, min_size=1, max_size=3), st.booleans())
def test_it_counts_what_lists_of_all_reads_give(programs: list[Spans], are_together: bool) -> None:
    """Spans in units of 4 KB, each program's in memory of its own: far is what more than 32 KB were read since."""
    log, again, expected = Rereads(), 0, 0
    if are_together:
        log.begin(len(programs))
    for number, spans in enumerate(programs):
        if not are_together:
            log.begin(1)
        times: dict[int, list[int]] = {}
        position = 0
        for start, length in spans:
            offsets: Any = (np.arange(start * 4 * KB, (start + length) * 4 * KB, 4) + (number << 20))[None, :]
            if are_together:
                offsets = np.repeat(offsets, len(programs), axis=0)
                mask = np.broadcast_to((np.arange(len(programs)) == number)[:, None], offsets.shape)
                note(log, offsets, mask)
            else:
                note(log, offsets)
            for unit in range(start, start + length):
                times.setdefault(unit, []).append(position)
            position += length
        apart = [later - earlier for seen in times.values() for earlier, later in pairwise(seen) if later - earlier > 8]
        again, expected = again + len(apart), expected + sum(apart)
    found = log.found()
    assert found.nbytes == again * 4 * KB
    assert found.reach == pytest.approx(expected / again * 4 * KB if again else 0.0)
