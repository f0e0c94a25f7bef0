"""Worker process: measures how large an output's elements are, and how far the reference's own ones are off."""

import math

import torch

SMALLEST_SCALE = 1e-12
NOISE_QUANTILE = 0.75
BLOCK = 1 << 22
"""Elements that are compared at once in float64. Each takes about 100 bytes meanwhile, and what is made of a block of
this size stays in the L2 cache of a large GPU."""
NARROW_BLOCK = 1 << 24
"""Elements that are compared at once in their own precision: some 20 bytes each. With smaller blocks a GPU spends more
time on beginning operations than on 6 GB of elements."""
_SAMPLED = 1 << 24
"""Elements, at most, of which the reference's own error is taken."""


def scale_of(exact: torch.Tensor) -> tuple[float, bool, int]:
    """Return the mean magnitude of the finite elements that are not 0, if all are finite, and how many are not 0.

    Mostly zeros have the scale of the others. Nothing is taken out of a block: on a GPU that takes longer than all the
    rest.
    """
    parts = exact.split(block_of(exact))
    total = torch.stack([torch.linalg.vector_norm(part, 1, dtype=torch.float64) for part in parts]).sum().item()
    is_finite = math.isfinite(total)
    if is_finite:
        count = torch.stack([part.count_nonzero() for part in parts]).sum().item()
    else:
        total, count = torch.stack([_finite_sum_and_count(part) for part in parts]).sum(dim=0).tolist()
    return max(total / max(count, 1), SMALLEST_SCALE), is_finite, int(count)


def _finite_sum_and_count(part: torch.Tensor) -> torch.Tensor:
    """Return the sum of the magnitudes of the finite elements, and the number of those that are not 0: [2], float64."""
    finite = part.isfinite()
    total = torch.where(finite, part, 0.0).abs().sum(dtype=torch.float64)
    return torch.stack([total, (finite & (part != 0)).sum(dtype=torch.float64)])


def own_error(exact: torch.Tensor, near: torch.Tensor) -> float:
    """Return the 75 % quantile of the distance between the reference in its own precision and the oracle.

    Of the elements that are not 0, and of 16 million evenly spread ones at most.
    """
    step = -(-exact.numel() // _SAMPLED)
    exact, near = exact[::step].double(), near[::step].double()
    error = (near - exact).abs()[exact.isfinite() & near.isfinite() & (exact != 0)]
    return error.kthvalue(math.ceil(NOISE_QUANTILE * error.numel())).values.item() if error.numel() else 0.0


def block_of(exact: torch.Tensor) -> int:
    """Return the number of elements of an oracle's output that are read at once."""
    return BLOCK if exact.dtype is torch.float64 else NARROW_BLOCK
