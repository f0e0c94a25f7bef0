"""Worker process: bounds the typical error of an output in 16 bits, beside the tolerance of each element.

The tolerance of an element is far wider than rounding, since honest kernels have outliers. A kernel that takes a norm
or statistics from a sample has none: all elements are off by less than the tolerance, and by more than rounding. So the
sum of all errors is held to what rounding explains, relative to the sum of all magnitudes: zeros count in neither. An
element's error is the distance to the oracle or to the reference in its own precision, whichever is nearer.

Where the reference itself loses more, a correct kernel may, too. A sample whose error is below the rounding of the
output's type is not seen: there is nothing to see in one output.
"""

import math

import torch

from kernels_eval.correctness.magnitudes import BLOCK

_ROUNDING = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
"""Largest error of one rounding, relative to the value. The typical one is a third of it."""
_TYPICAL = {torch.float16: 8.0, torch.bfloat16: 2.0}
"""Typical error that is allowed, in these. A product over 4096 elements that is added up in float16 has half of it, and
so has one over 64 in bfloat16."""
_OF_ONE = {torch.float16: 2.0, torch.bfloat16: 6.0}
"""Allowance of a single element beside it; for several it is divided by the square root of their number."""
_OF_REFERENCE = 3.0
"""Factor on the reference's own typical error, which is allowed, too."""
_MOST_LOST = 1e-2
"""Most of an element's size that counts as the reference's own error: ties that rounding decides are no more."""
_ANYTHING = 1e300


def is_bounded(dtype: torch.dtype) -> bool:
    """Return True for types of 16 bits: the typical error of others has no bound."""
    return dtype in _ROUNDING


def allowed(dtype: torch.dtype, count: int) -> float:
    """Return the typical error that rounding explains, relative to the mean magnitude. `count`: of elements."""
    if not is_bounded(dtype):
        return _ANYTHING
    return _ROUNDING[dtype] * (_TYPICAL[dtype] + _OF_ONE[dtype] / math.sqrt(max(count, 1)))


def complaint(flat: tuple[torch.Tensor, ...], total: float, label: str) -> str:
    """Return an error message if the typical error is too large, else an empty string.

    `flat`: flat answers, oracle's results and native ones. `total`: the sum of the oracle's magnitudes, or more where
    they cancel.
    """
    if not is_bounded(flat[0].dtype):
        return ""
    scale = total / flat[0].numel()
    parts = zip(*(tensor.split(BLOCK) for tensor in flat), strict=True)
    errors, lost = torch.stack([_sums(part, scale) for part in parts]).sum(dim=0).tolist()
    most = max(allowed(flat[0].dtype, flat[0].numel()), _OF_REFERENCE * lost / total)
    if errors <= most * total:
        return ""
    return (
        f"{label}: the typical error is {errors / total:.2%} of the mean magnitude, expected at most {most:.2%}: each "
        "element is within its tolerance, all together are off by more than rounding explains"
    )


def _sums(parts: tuple[torch.Tensor, ...], scale: float) -> torch.Tensor:
    """Return the sum of a block's errors and that of the reference's own: [2], float64. What is not finite counts 0."""
    actual, exact, near = (part.double() for part in parts)
    errors = torch.minimum((actual - exact).abs(), (actual - near).abs())
    lost = torch.minimum((near - exact).abs(), _MOST_LOST * (scale + exact.abs()))
    return torch.stack([values.nan_to_num(0.0, 0.0, 0.0).sum() for values in (errors, lost)])
