"""Shares of the work: even programs are all busy, idle ones are not, and the longest waits are kept."""

import pytest

from kernels_eval.interpreter.operation_log import OperationLog


def ran(*programs: tuple[float, int]) -> OperationLog:
    """Return the log of a launch whose programs did so many multiplications and loads."""
    log = OperationLog()
    log.start(warps=4)
    for multiplications, loads in programs:
        log.counts["fp32"] += multiplications
        log.counts["access"] += loads
        log.end_program(l2_bytes=0)
    return log


@pytest.mark.parametrize(
    ("programs", "share", "loads"),
    [
        ([(100, 2)] * 8, 1.0, 2),
        ([(100, 0), (0, 0)], 0.5, 0),
        ([(100, 0)] + [(0, 0)] * 9, 0.1, 0),
        ([(0, 0)] * 3, 1.0, 0),
    ],
)
def test_busy_share_and_waits(programs: list[tuple[float, int]], share: float, loads: int) -> None:
    log = ran(*programs)
    assert log.busy_share == pytest.approx(share)
    assert log.most_accesses == loads


def test_a_launch_begins_anew() -> None:
    log = ran((100, 3), (0, 0))
    log.start(warps=8)
    assert (log.threads, log.busy_share, log.most_accesses, dict(log.counts)) == (256, 1.0, 0, {})
