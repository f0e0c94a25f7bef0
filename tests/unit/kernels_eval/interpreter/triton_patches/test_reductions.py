"""Reductions and scans by a function: right for those that Triton promises, and not for others."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import triton.language as tl

from kernels_eval.interpreter.triton_patches import arithmetic
from kernels_eval.interpreter.triton_patches.names import upstream

VALUES = np.random.default_rng(0).standard_normal(64).astype(np.float32)
FACTORS = np.linspace(0.5, 1.0, 64, dtype=np.float32)
AS_BLOCKS = pytest.mark.parametrize("takes_blocks", [True, False])


def _function(compute: Any, takes_blocks: bool) -> Any:
    """Return a function of a kernel; one that takes no blocks branches on its operands, as `if a > b` does."""

    def combine(*operands: Any) -> Any:
        arrays = [operand.handle.data for operand in operands]
        if not takes_blocks and any(bool(array > 1e9) for array in arrays):
            raise AssertionError
        found = compute(*arrays)
        results = tuple(_tensor(each) for each in (found if isinstance(found, tuple) else (found,)))
        return results if len(results) > 1 else results[0]

    return SimpleNamespace(fn=combine)


def _tensor(values: Any) -> Any:
    array = np.asarray(values, np.float32)
    kind = tl.block_type(tl.float32, list(array.shape)) if array.ndim else tl.float32
    return tl.tensor(upstream.TensorHandle(array, tl.float32), kind)


def _reduced(compute: Any, *arrays: Any, takes_blocks: bool) -> list[float]:
    operations = upstream.ReduceOps(0, _function(compute, takes_blocks), False)
    return [float(found.handle.data.item()) for found in arithmetic._reduced(operations, [*map(_tensor, arrays)])]


def _scanned(compute: Any, *arrays: Any, takes_blocks: bool) -> list[Any]:
    operations = upstream.ScanOps(0, _function(compute, takes_blocks), False)
    return [found.handle.data for found in arithmetic._scanned(operations, [*map(_tensor, arrays)])]


def _affine(a: Any, x: Any, b: Any, y: Any) -> Any:
    """Compose two steps of `h = a * h + x`: associative, and not commutative."""
    return a * b, x * b + y


def _states() -> Any:
    """Return every state of the recurrence, one step after the other."""
    states, state = list[float](), 0.0
    for factor, value in zip(FACTORS.tolist(), VALUES.tolist(), strict=True):
        state = factor * state + value
        states.append(state)
    return np.array(states)


@AS_BLOCKS
def test_a_reduction_by_a_commutative_function_is_exact(takes_blocks: bool) -> None:
    assert _reduced(np.maximum, VALUES, takes_blocks=takes_blocks) == [VALUES.max()]
    assert _reduced(np.add, VALUES, takes_blocks=takes_blocks) == pytest.approx([VALUES.sum()], abs=1e-4)


@AS_BLOCKS
def test_a_reduction_by_a_function_that_is_not_commutative_is_wrong(takes_blocks: bool) -> None:
    _, last = _reduced(_affine, FACTORS, VALUES, takes_blocks=takes_blocks)
    assert abs(last - _states()[-1]) > 0.1


@AS_BLOCKS
def test_a_scan_by_an_associative_function_is_exact(takes_blocks: bool) -> None:
    _, states = _scanned(_affine, FACTORS, VALUES, takes_blocks=takes_blocks)
    np.testing.assert_allclose(states, _states(), rtol=1e-4, atol=1e-4)


@AS_BLOCKS
def test_a_scan_by_a_function_that_is_not_associative_is_wrong(takes_blocks: bool) -> None:
    found = _scanned(lambda state, value: 0.9 * state + value, VALUES, takes_blocks=takes_blocks)[0]
    states, state = list[float](), 0.0
    for value in VALUES.tolist():
        state = 0.9 * state + value if states else value
        states.append(state)
    assert np.abs(found - np.array(states)).max() > 0.1


@AS_BLOCKS
def test_rows_are_scanned_apart(takes_blocks: bool) -> None:
    rows = VALUES.reshape(4, 16)
    operations = upstream.ScanOps(1, _function(np.add, takes_blocks), False)
    (found,) = arithmetic._scanned(operations, [_tensor(rows)])
    np.testing.assert_allclose(found.handle.data, rows.cumsum(axis=1), rtol=1e-4, atol=1e-4)
