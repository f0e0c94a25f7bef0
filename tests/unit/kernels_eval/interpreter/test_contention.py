"""Atomics that meet: rounds of a warp on one sector, and lanes on one element."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kernels_eval.interpreter.contention import count_atomics, most_contended
from kernels_eval.interpreter.memory_accesses import ACCESS_LOG, Region
from kernels_eval.interpreter.operation_log import OPERATION_LOG

BASE = 1 << 20


@pytest.fixture(autouse=True)
def launch() -> Iterator[None]:
    storage: Any = SimpleNamespace(number=0)
    ACCESS_LOG.start([Region("out_ptr", storage, BASE, 1 << 16)])
    OPERATION_LOG.start(4)
    yield
    ACCESS_LOG.start([])


def counted(elements: Any, mask: Any = None, itemsize: int = 4) -> tuple[float, float, float]:
    """Return rounds of the busiest sector, lanes of the busiest element, and rounds in all."""
    addresses = np.uint64(BASE) + np.asarray(elements, np.uint64) * np.uint64(itemsize)
    count_atomics(addresses, mask, itemsize)
    return *most_contended(), OPERATION_LOG.counts["atomic"] / 32


LANES = np.arange(128)


def test_lanes_on_one_address_follow_one_another() -> None:
    assert counted(LANES * 0) == (128.0, 128.0, 128.0)


def test_lanes_on_neighbours_go_together() -> None:
    rounds, lanes, total = counted(LANES)
    assert (rounds, lanes, total) == (pytest.approx(6.4), 1.0, 16.0)


def test_warps_on_the_same_neighbours_meet() -> None:
    rounds, lanes, _ = counted(LANES % 32)
    assert (rounds, lanes) == (pytest.approx(6.4 + 3.0), 4.0)


def test_accesses_of_one_launch_add_up_and_masked_lanes_do_not_count() -> None:
    mask = LANES < 64
    counted(LANES * 0, mask)
    assert counted(np.zeros((8, 16)), None)[:2] == (192.0, 192.0)
    assert counted(LANES * 0, LANES < 0)[:2] == (192.0, 192.0)


def test_elements_of_eight_bytes_meet_by_eights_too() -> None:
    rounds, lanes, _ = counted(LANES % 8, itemsize=8)
    assert (rounds, lanes) == (pytest.approx(6.4 + 3 * 4), 16.0)
