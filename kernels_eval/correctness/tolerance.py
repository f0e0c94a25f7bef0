"""Worker process: compares a candidate's outputs with the oracle's.

Tolerances follow KernelBench v0.2 (fp32 1e-4; fp16 and bf16 1e-2). The absolute part is scaled to the mean magnitude
of the output: zeros or a constant are not close to small outputs. The oracle runs in float64. An element is also
right if it agrees with the reference in the reference's own precision, where rounding decides ties, thresholds and
overflow.

Some tasks lose digits in float32 (1 - exp(-x²) of a small x). A correct kernel is then as inaccurate as the
reference, but at other elements. The same holds for a kernel that rounds intermediate results to bfloat16, as the
reference does. Therefore the tolerance of these types grows with the reference's own distance from the oracle, up to
1e-2 (bfloat16: 3e-2). An answer that computes nothing does not come that close. A few distant elements (ties,
thresholds) do not count as distance.
"""

import math
from dataclasses import dataclass

import torch

TOLERANCES = {torch.float16: 1e-2, torch.bfloat16: 1e-2, torch.float32: 1e-4, torch.float64: 1e-6}
_WIDEST = {torch.float32: 1e-2, torch.bfloat16: 3e-2}
"""Upper bound of the tolerance if the reference itself is far from the oracle."""
_SMALLEST_SCALE = 1e-12
_NOISE = 4.0
"""Factor on the reference's own error, relative to the output's scale, that is added to the tolerance."""
_NOISE_QUANTILE = 0.75


@dataclass(frozen=True)
class Comparison:
    """Result of comparing one output."""

    agrees: bool
    message: str = ""
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    """Largest error relative to the element's magnitude plus the output's mean magnitude. The tolerance bounds it."""
    wrong_share: float = 0.0
    """Share of the elements that are wrong, 0 to 1."""


def compare(actual: torch.Tensor, oracle: torch.Tensor, native: torch.Tensor, label: str) -> Comparison:
    """Compare one output of equal shape.

    `native`: the reference in its own precision. `oracle`: the reference in float64, if it can run in float64.
    """
    if actual.numel() == 0:
        return Comparison(True, max_abs_error=0.0, max_rel_error=0.0)
    if actual.dtype.is_complex:  # real and imaginary parts in a last dimension
        first, second, third = (torch.view_as_real(value.resolve_conj()) for value in (actual, oracle, native))
        return compare(first, second, third, label)
    if not actual.dtype.is_floating_point:
        right = (actual == native) | (actual == oracle.to(actual.dtype))
        worst = (actual.double() - native.double()).abs().max().item()
        message = "" if right.all() else _first(actual, native, right, label)
        return Comparison(bool(right.all()), message, worst, None, _wrong_share(right))
    tolerance = TOLERANCES[actual.dtype]
    wide, exact, near = actual.double(), oracle.double(), native.double()
    finite = exact.isfinite()
    scale = max(exact[finite].abs().mean().item() if bool(finite.any()) else 0.0, _SMALLEST_SCALE)
    right = _close(wide, exact, tolerance, scale)
    if not bool(right.all()):
        right |= _close(wide, near, tolerance, scale)
    if not bool(right.all()) and actual.dtype in _WIDEST:
        wider = min(tolerance + _NOISE * _own_error(exact, near) / scale, _WIDEST[actual.dtype])
        right |= _close(wide, exact, wider, scale)
    error = (wide - exact).abs()
    errors = torch.nan_to_num(error[finite], nan=float("inf"))
    largest = errors.max().item() if errors.numel() else 0.0
    finite_largest = largest if largest != float("inf") else None
    relative = (
        None if finite_largest is None or not errors.numel() else (error / (scale + exact.abs()))[finite].max().item()
    )
    agrees = bool(right.all())
    message = "" if agrees else _first(actual, oracle, right, label)
    return Comparison(agrees, message, finite_largest, relative, _wrong_share(right))


def _own_error(exact: torch.Tensor, near: torch.Tensor) -> float:
    """Return the 75 % quantile of the distance between the reference in its own precision and the oracle."""
    error = (near - exact).abs()[exact.isfinite() & near.isfinite()]
    return error.kthvalue(math.ceil(_NOISE_QUANTILE * error.numel())).values.item() if error.numel() else 0.0


def _wrong_share(right: torch.Tensor) -> float:
    return 1.0 - int(right.sum()) / right.numel()


def _close(actual: torch.Tensor, expected: torch.Tensor, tolerance: float, scale: float) -> torch.Tensor:
    """Return the mask of elements within tolerance. Infinities must have the same sign, NaN must be NaN."""
    near = ((actual - expected).abs() <= tolerance * (scale + expected.abs())) & expected.isfinite()
    return near | (actual == expected) | (actual.isnan() & expected.isnan())


def _first(actual: torch.Tensor, expected: torch.Tensor, right: torch.Tensor, label: str) -> str:
    """Describe the first wrong element: its index, both values, and the share of wrong elements."""
    wrong = ~right
    flat = int(wrong.reshape(-1).to(torch.uint8).argmax())
    index: list[int] = []
    for size in reversed(actual.shape):
        index.insert(0, flat % size)
        flat //= size
    place = tuple(index)
    share = wrong.double().mean().item()
    got, wanted = actual[place].item(), expected[place].item()
    note = ""
    if isinstance(got, float):
        unwritten = int(actual.isnan().sum() - expected.isnan().sum())
        note = f"; {unwritten} elements are NaN: never written, or computed so" if unwritten > 0 else ""
        got, wanted = f"{got:.6g}", f"{wanted:.6g}"
    return f"{label}{list(place)} is {got}, expected {wanted}; {share:.1%} of {actual.numel()} elements are wrong{note}"
