"""A candidate that takes the device's memory is told from a problem that is too large."""

import pytest

from kernels_eval.gpu.grader import took_memory

GIB = 1 << 30


@pytest.mark.parametrize(
    ("held", "left", "share", "took"),
    [
        pytest.param(71.6, 0.3, 68.7, True, id="nothing is left"),
        pytest.param(71.6, 1.5, 68.7, True, id="PyTorch gave back what it kept"),
        pytest.param(70.0, 3.0, 5.5, True, id="one of eight workers"),
        pytest.param(1.0, 0.5, 68.7, False, id="context and copies of a call"),
        pytest.param(5.0, 40.0, 68.7, False, id="a large problem beside memory that is free"),
        pytest.param(2.0, 30.0, 5.5, False, id="a small share is used up"),
        pytest.param(8.7, 105.1, 8.5, False, id="other workers gave memory back meanwhile"),
    ],
)
def test_who_took_the_memory(held: float, left: float, share: float, took: bool) -> None:
    assert took_memory(int(held * GIB), int(left * GIB), int(share * GIB)) is took
