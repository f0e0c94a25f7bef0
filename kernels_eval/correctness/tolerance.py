"""Worker process: compares a candidate's outputs with the oracle's.

Tolerances follow KernelBench v0.2 (fp32 1e-4; fp16 and bf16 1e-2). That of float64 is below what float32 rounds. The
absolute part is scaled to the mean magnitude of the output's elements that are not 0: zeros or a constant are not
close to small outputs, and where a ReLU leaves mostly zeros, the rest is held to its own size. So is a sixteenth of an
output, or an index of a small dimension, that is far below the rest. The oracle runs in float64. An element is also
right if it agrees with the reference in the reference's own precision, where rounding decides ties, thresholds and
overflow. In 16 bits all elements together are held to more (`typical_error`).

Some tasks lose digits in float32 (1 - exp(-x²) of a small x). A correct kernel is then as inaccurate as the
reference, but at other elements. The same holds for a kernel that rounds intermediate results to bfloat16, as the
reference does. Therefore the tolerance of these types grows with the reference's own distance from the oracle, up to
1e-2 (bfloat16: 3e-2; one element in 4096 may be off by a step of the largest one). That of float64 is 1e-6 where the
reference computes in less. An answer that computes nothing does not come that close. A few distant elements (ties,
thresholds) do not count as distance. Other tasks lose digits in a few rows alone (softmax of large squares), and a
correct kernel in a few others, or more: few rows are held to what the reference loses in its worst one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kernels_eval.correctness.exact_values import readable, right_elements
from kernels_eval.correctness.magnitudes import (
    BLOCK,
    NARROW_BLOCK,
    NOISE_QUANTILE,
    SMALLEST_SCALE,
    block_of,
    own_error,
    scale_of,
)
from kernels_eval.correctness.small_pieces import SMALL, has_small_piece, small_pieces
from kernels_eval.correctness.typical_error import allowed, complaint, is_bounded

TOLERANCES = {torch.float16: 1e-2, torch.bfloat16: 1e-2, torch.float32: 1e-4, torch.float64: 1e-9}
"""By type; elements of others have to be equal, but for few steps of those of eight bits."""
_WIDEST = {torch.float32: 1e-2, torch.bfloat16: 3e-2}
"""Upper bound of the tolerance if the reference itself is far from the oracle."""
_OF_LESS = 1e-6
"""Tolerance of float64 where the reference itself computes in less."""
_NOISE = 4.0
"""Factor on the reference's own error, relative to the output's scale, that is added to the tolerance."""
_FEW_ROWS = 0.05
"""Share of an output's rows, rounded up, that count as few."""
_CANCELLED = 1 / 4096
"""Share of an output's elements, rounded down, in which larger numbers of its type may have cancelled."""
_STRICTER = 0.98
"""Room for the rounding of a difference in the output's own type: half a unit in the last place, 0.4 % of bfloat16."""
UNWRITTEN = "never written, or computed so"
"""End of the message on outputs that are NaN where they should not be."""
_SURELY = 1.0 - 1e-6
"""Room for the rounding of a quotient, in float32 where the oracle is no wider."""


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


def compare(
    actual: torch.Tensor, oracle: torch.Tensor, native: torch.Tensor, label: str, least: float = 0.0
) -> Comparison:
    """Compare one output of equal shape.

    `native`: the reference in its own precision. `oracle`: the reference in float64, if it can run in float64. `least`:
    of the scale.
    """
    if actual.numel() == 0:
        return Comparison(True, max_abs_error=0.0, max_rel_error=0.0)
    if actual.dtype.is_complex:  # real and imaginary parts in a last dimension
        first, second, third = (torch.view_as_real(value.resolve_conj()) for value in (actual, oracle, native))
        return compare(first, second, third, label, least)
    if actual.dtype not in TOLERANCES:
        return _compare_exactly(actual, oracle.to(actual.dtype), native, label)
    tolerance = TOLERANCES[actual.dtype]
    flat = actual.reshape(-1), oracle.reshape(-1), native.reshape(-1)
    scale, is_finite, counted = scale_of(flat[1])
    total = max(scale * counted, max(least, SMALLEST_SCALE) * actual.numel())
    scale = max(scale, least)
    largest, relative, errors = _errors(flat[0], flat[1], scale, is_finite)
    small = small_pieces(flat, actual.shape, scale)
    is_typical = errors <= _SURELY * allowed(actual.dtype, actual.numel()) * total
    if is_finite and relative is not None and relative <= _SURELY * tolerance and is_typical and not small:
        return Comparison(True, max_abs_error=largest, max_rel_error=relative)
    right = _right(flat, scale)
    if not bool(right.all()) and actual.dtype in _WIDEST and actual.dim() > 1 and actual.shape[-1] <= BLOCK:
        right = _with_few_inaccurate_rows(right, actual, oracle, native, scale)
    if actual.dtype is torch.bfloat16:
        right = _with_few_that_cancelled(right, *flat[:2])
    for piece, own in small:
        held = piece(right)
        held &= _right(tuple(piece(values).reshape(-1) for values in flat), own).reshape(held.shape)
    if bool(right.all()):
        message = complaint(flat, total, label)
    else:
        message = _first(actual, oracle, right.reshape(actual.shape), label)
    return Comparison(not message, message, largest, relative, _wrong_share(right))


def _compare_exactly(actual: torch.Tensor, oracle: torch.Tensor, native: torch.Tensor, label: str) -> Comparison:
    right = right_elements(actual, oracle, native)
    found, near = readable(actual), readable(native)
    worst = (found.double() - near.double()).abs().max().item()
    message = "" if right.all() else _first(found, near, right, label)
    return Comparison(bool(right.all()), message, worst if math.isfinite(worst) else None, None, _wrong_share(right))


def surely_agrees(actual: torch.Tensor, native: torch.Tensor) -> bool:
    """Return True if `compare` would find one output right by its distance from `native`, without knowing the oracle.

    It is held to the mean magnitude of all elements of `native`. `compare` takes that of the oracle's elements that are
    not 0: no smaller, unless the reference loses 2 % of the mean in its own precision. False says nothing.
    """
    if actual.dtype.is_complex or not actual.numel():
        return not actual.numel()
    if actual.dtype not in TOLERANCES:
        return torch.equal(readable(actual), readable(native))
    flat = actual.reshape(-1), native.reshape(-1)
    if bool(has_small_piece(flat[1][None], native.shape)):
        return False
    parts = flat[1].split(block_of(native))
    total = torch.stack([torch.linalg.vector_norm(part, 1, dtype=torch.float64) for part in parts]).sum().item()
    if not math.isfinite(total):
        return False
    _, relative, errors = _errors(*flat, max(total / native.numel(), SMALLEST_SCALE), is_finite=True)
    is_typical = errors <= _STRICTER * allowed(actual.dtype, actual.numel()) * total
    return relative is not None and relative <= _STRICTER * TOLERANCES[actual.dtype] and is_typical


def size_of(values: torch.Tensor) -> float:
    """Return the mean magnitude of an output's elements that are finite and not 0; 0.0 of other types than floats."""
    return scale_of(values.reshape(-1))[0] if values.dtype in TOLERANCES else 0.0


def least_size(size: float) -> float:
    """Return the least scale of an output beside others of its kind, whose mean magnitude is `size`."""
    return SMALL * size


def rows_that_agree(actual: torch.Tensor, native: torch.Tensor, shape: Sequence[int] = ()) -> torch.Tensor:
    """Return for each row, (rows, elements), if `compare` would find it right by its distance from `native` alone.

    `shape`: of the output that each row is. False says nothing where a piece of a row is far below the rest.
    """
    if actual.dtype not in TOLERANCES:
        return (readable(actual) == readable(native)).all(dim=1)
    if not actual.shape[1]:
        return torch.ones(len(actual), dtype=torch.bool, device=actual.device)
    if actual.shape[1] > NARROW_BLOCK:
        agrees = [_row_agrees(*pair) for pair in zip(actual, native, strict=True)]
        small = [has_small_piece(row[None], shape) for row in native]
        return torch.stack(agrees) & ~torch.cat(small)
    rows = NARROW_BLOCK // actual.shape[1]
    pairs = list(zip(actual.split(rows), native.split(rows), strict=True))
    agrees = torch.cat([_surely_agree(*pair) for pair in pairs])
    small = torch.cat([has_small_piece(part, shape) for _, part in pairs])
    rest = (~agrees).nonzero().flatten()
    # Of no rows `split` gives one block, and to compare nothing takes a dozen operations.
    for some in rest.split(max(1, BLOCK // actual.shape[1])) if len(rest) else ():
        if actual.shape[1] > BLOCK:
            agrees[some] = compare(actual[some], native[some], native[some], "").agrees
        else:
            agrees[some] = _rows_agree_exactly(actual[some], native[some])
    return agrees & ~small


def _surely_agree(actual: torch.Tensor, native: torch.Tensor) -> torch.Tensor:
    """Return for each row whether its largest difference is within the tolerance of the smallest scale it can have.

    That is stricter than `_close`, in a tenth of its memory traffic: no element's own magnitude counts, and zeros count
    in the mean. In a row with a NaN or an infinity the difference or the scale is not finite.
    """
    total = torch.linalg.vector_norm(native, 1, dim=1, dtype=torch.float64)
    largest, errors = _norms(actual - native, 1)
    return _is_surely_close(largest, errors, total, native.shape[1], actual.dtype)


def _norms(difference: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the largest magnitude and, in 16 bits, the sum of all, where `difference` still lies in the cache."""
    largest = torch.linalg.vector_norm(difference, math.inf, dim=dim).double()
    if not is_bounded(difference.dtype):
        return largest, torch.zeros_like(largest)
    return largest, torch.linalg.vector_norm(difference, 1, dim=dim, dtype=torch.float64)


def _is_surely_close(
    largest: torch.Tensor, errors: torch.Tensor, total: torch.Tensor, count: int, dtype: torch.dtype
) -> torch.Tensor:
    is_typical = errors <= _STRICTER * allowed(dtype, count) * total
    return total.isfinite() & (largest <= _STRICTER * TOLERANCES[dtype] * total / count) & is_typical


def _rows_agree_exactly(actual: torch.Tensor, native: torch.Tensor) -> torch.Tensor:
    near = native.double()
    counted = near.isfinite() & (near != 0)
    total = torch.where(counted, near.abs(), 0.0).sum(dim=1)
    scale = (total / counted.sum(dim=1).clamp(min=1)).clamp(min=SMALLEST_SCALE)[:, None]
    close = _close(actual.double(), near, TOLERANCES[actual.dtype], scale).all(dim=1)
    errors = (actual.double() - near).abs().nan_to_num(0.0, 0.0, 0.0).sum(dim=1)
    width = actual.shape[1]
    return close & (errors <= allowed(actual.dtype, width) * total.clamp(min=SMALLEST_SCALE * width))


def _row_agrees(actual: torch.Tensor, native: torch.Tensor) -> torch.Tensor:
    """Return if one row agrees, a block of it at a time."""
    pairs = _split((actual, native), NARROW_BLOCK)
    total = torch.stack([torch.linalg.vector_norm(near, 1, dtype=torch.float64) for _, near in pairs]).sum()
    largest, errors = (torch.stack(norms) for norms in zip(*(_norms(a - b, 0) for a, b in pairs), strict=True))
    agrees = _is_surely_close(largest.amax(), errors.sum(), total, native.numel(), actual.dtype)
    return agrees if bool(agrees) else torch.tensor(compare(actual, native, native, "").agrees, device=actual.device)


def _right(flat: tuple[torch.Tensor, ...], scale: float) -> torch.Tensor:
    """Return the mask of right elements of flat answers, oracle's results and native ones, at a scale."""
    tolerance = TOLERANCES[flat[0].dtype]
    right = _mask(flat, tolerance, tolerance, scale)
    if not bool(right.all()) and flat[0].dtype in _WIDEST:
        wider = min(tolerance + _NOISE * own_error(flat[1], flat[2]) / scale, _WIDEST[flat[0].dtype])
        right = _mask(flat, tolerance, wider, scale)
    elif not bool(right.all()) and flat[0].dtype is torch.float64 and own_error(*flat[1:]) > tolerance * scale:
        right = _mask(flat, _OF_LESS, _OF_LESS, scale)
    return right


def _mask(flat: tuple[torch.Tensor, ...], tolerance: float, wider: float, scale: float) -> torch.Tensor:
    """Return the mask of right elements: near the reference, or within `wider` of the oracle."""
    return torch.cat([_block_mask(parts, tolerance, wider, scale) for parts in _split(flat, BLOCK)])


def _block_mask(parts: tuple[torch.Tensor, ...], tolerance: float, wider: float, scale: float) -> torch.Tensor:
    wide, exact, near = (part.double() for part in parts)
    right = _close(wide, exact, wider, scale)
    return right if bool(right.all()) else right | _close(wide, near, tolerance, scale)


def _with_few_inaccurate_rows(
    right: torch.Tensor, actual: torch.Tensor, oracle: torch.Tensor, native: torch.Tensor, scale: float
) -> torch.Tensor:
    """Return the mask of right elements, in one row, with those of a few rows that the reference may lose digits in.

    A row is one of the last dimension. In it the reference loses the 75 % quantile of the relative errors of elements
    that are not small. Others may be off by `_NOISE` times what it loses in its worst row, and within the widest
    tolerance.
    """
    width = actual.shape[-1]
    wrong = (~right).reshape(-1, width).any(dim=1).nonzero().flatten()
    if len(wrong) > math.ceil(_FEW_ROWS * right.numel() / width):
        return right
    rows = [tensor.reshape(-1, width) for tensor in (actual, oracle, native)]
    lost = 0.0
    for near, exact in zip(*(tensor.split(max(1, BLOCK // width)) for tensor in (rows[2], rows[1])), strict=True):
        own = (near.double() / exact.double() - 1).abs().masked_fill(exact.abs() < scale, math.nan)
        lost = max(lost, own.nanquantile(NOISE_QUANTILE, dim=1).nan_to_num(0.0, 0.0, 0.0).max().item())
    found, exact = (tensor[wrong].double() for tensor in rows[:2])
    right = right.reshape(-1, width).clone()
    right[wrong] |= (found - exact).abs() <= min(_NOISE * lost, _WIDEST[actual.dtype]) * (scale + exact.abs())
    return right.flatten()


def _with_few_that_cancelled(right: torch.Tensor, actual: torch.Tensor, oracle: torch.Tensor) -> torch.Tensor:
    """Return the mask of right elements with a few others that are off by a step of the largest element, at most.

    A difference of numbers that were rounded to the output's type is off by their steps, however small it is.
    """
    wrong = (~right).nonzero().flatten()
    if not 0 < len(wrong) <= _CANCELLED * right.numel():
        return right
    largest = max(part.nan_to_num(0.0, 0.0, 0.0).abs().max().item() for part in oracle.split(BLOCK))
    right = right.clone()
    right[wrong] = (actual[wrong].double() - oracle[wrong]).abs() <= torch.finfo(actual.dtype).eps * largest
    return right


def _errors(
    actual: torch.Tensor, oracle: torch.Tensor, scale: float, is_finite: bool
) -> tuple[float | None, float | None, float]:
    """Return the largest absolute and relative error where the oracle is finite; None if the answer is not there.

    And the sum of the absolute ones, in 16 bits.
    """
    pairs = _split((actual, oracle), block_of(oracle))
    found = torch.stack([_block_errors(part, exact, scale, is_finite) for part, exact in pairs])
    largest, relative = found[:, :2].amax(dim=0).tolist()
    return (largest, relative, found[:, 2].sum().item()) if math.isfinite(largest) else (None, None, math.inf)


def _block_errors(actual: torch.Tensor, exact: torch.Tensor, scale: float, is_finite: bool) -> torch.Tensor:
    """Return a block's largest absolute and relative error where the oracle is finite, or 0, and the sum: [3], float64.

    An answer that is not finite there has an error that is not either. The mean of magnitude and scale is finite also
    where their sum is not.
    """
    has_sum = is_bounded(actual.dtype)
    if exact.dtype is not torch.float64:
        actual, exact = actual.float(), exact.float()
    error, size = (exact - actual).abs_(), exact.abs().lerp_(exact.new_full((), scale), 0.5)
    if not is_finite:
        finite = exact.isfinite()
        error, size = torch.where(finite, error, 0.0), torch.where(finite, size, 1.0)
    largest = error.amax().double()
    total = error.sum(dtype=torch.float64) if has_sum else torch.zeros_like(largest)
    return torch.stack([largest, 0.5 * error.div_(size).amax().double(), total])


def _split(tensors: tuple[torch.Tensor, ...], block: int) -> list[tuple[torch.Tensor, ...]]:
    """Return the blocks of some tensors of equal length, those of one place together."""
    return list(zip(*(tensor.split(block) for tensor in tensors), strict=True))


def _wrong_share(right: torch.Tensor) -> float:
    return 1.0 - int(right.sum()) / right.numel()


def _close(actual: torch.Tensor, expected: torch.Tensor, tolerance: float, scale: float | torch.Tensor) -> torch.Tensor:
    """Return the mask of elements within tolerance. Infinities must have the same sign, NaN must be NaN."""
    near = ((actual - expected).abs() <= tolerance * (scale + expected.abs())) & expected.isfinite()
    if bool(near.all()):
        return near
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
        note = f"; {unwritten} elements are NaN: {UNWRITTEN}" if unwritten > 0 else ""
        got, wanted = f"{got:.6g}", f"{wanted:.6g}"
    return f"{label}{list(place)} is {got}, expected {wanted}; {share:.1%} of {actual.numel()} elements are wrong{note}"
