"""Worker process: elements of types that have no tolerance: whole numbers, truth values and floats of eight bits."""

import torch

_FEW_ELEMENTS = 0.01
"""Share of an output's elements of eight bits that may be one step away: quotients and sums that another order of
operations rounds to the other side of a tie. Truncated instead of rounded, half of them are."""


def right_elements(actual: torch.Tensor, oracle: torch.Tensor, native: torch.Tensor) -> torch.Tensor:
    """Return the mask of elements that are equal to the reference's, in either precision, or few and one step away."""
    found, exact, near = map(readable, (actual, oracle, native))
    right = _equal(found, near) | _equal(found, exact)
    if actual.dtype.itemsize == 1 and actual.dtype is not torch.bool and not bool(right.all()):
        right |= _few_steps(actual, native, ~right)
    return right


def _few_steps(actual: torch.Tensor, native: torch.Tensor, wrong: torch.Tensor) -> torch.Tensor:
    """Return the mask of wrong elements of eight bits that are one step away, if few elements are wrong.

    The most frequent value does not count: where nearly all results are 0, the others are no few.
    """
    counts = torch.bincount((_steps(native) + 128).reshape(-1).int(), minlength=1)
    if int(wrong.sum()) > _FEW_ELEMENTS * (native.numel() - int(counts.max())):
        return torch.zeros_like(wrong)
    both = readable(actual).isfinite() == readable(native).isfinite()
    return wrong & both & ((_steps(actual) - _steps(native)).abs() <= 1)


def readable(values: torch.Tensor) -> torch.Tensor:
    """Return values as a type that PyTorch compares: floats of eight bits, which it does not, in float32."""
    return values.float() if values.dtype.is_floating_point else values


def _equal(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return the mask of equal elements; NaN is NaN."""
    return (left == right) | ((left != left) & (right != right))


def _steps(values: torch.Tensor) -> torch.Tensor:
    """Return the place of each value of eight bits in the order of its type, int16. Signed zeros have one place."""
    if not values.dtype.is_floating_point:
        return values.to(torch.int16)
    bits = values.view(torch.uint8).to(torch.int16)
    has_sign = values.dtype is not torch.float8_e8m0fnu
    return torch.where(bits >= 128, 128 - bits, bits) if has_sign else bits
