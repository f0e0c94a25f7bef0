"""Occupancy: the figures of NVIDIA's occupancy calculator for compute capability 8.0, 8.6 and 9.0."""

import pytest

from kernels_eval.cost.occupancy import Usage, resident_programs


@pytest.mark.parametrize(
    ("warps", "registers", "shared", "architecture", "expected"),
    [
        (4, 32, 0, "cuda:90", 16),
        (4, 64, 0, "cuda:90", 8),
        (4, 65, 0, "cuda:90", 7),
        (4, 255, 0, "cuda:90", 2),
        (1, 32, 0, "cuda:90", 32),
        (8, 32, 100 << 10, "cuda:90", 2),
        (8, 32, 227 << 10, "cuda:90", 1),
        (4, 32, 0, "cuda:86", 12),
        (1, 32, 0, "cuda:86", 16),
        (32, 64, 0, "cuda:80", 1),
    ],
)
def test_resident_programs(warps: int, registers: int, shared: int, architecture: str, expected: int) -> None:
    assert resident_programs(warps, Usage(registers, shared), architecture) == expected


def test_a_kernel_that_does_not_fit_counts_as_one() -> None:
    assert resident_programs(32, Usage(255, 1 << 20), "cuda:90") == 1
