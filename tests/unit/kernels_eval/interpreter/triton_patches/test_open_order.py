"""Order that Triton leaves open: no kernel can rely on it, and blocks that are treated alike stay together."""

from typing import Any

import numpy as np
import pytest
import triton.language as tl

from kernels_eval.interpreter.triton_patches import open_order
from kernels_eval.interpreter.triton_patches.names import upstream


def _handle(values: Any, dtype: Any = tl.float32) -> Any:
    wide = np.asarray(values)
    return upstream.TensorHandle(wide.astype(np.float32) if dtype is tl.float32 else wide, dtype)


def test_a_concatenation_keeps_elements_but_no_order() -> None:
    found = open_order._cat(None, _handle(np.arange(4)), _handle(np.arange(10, 14))).data
    assert found.tolist() == [0, 10, 1, 11, 2, 12, 3, 13]
    assert sorted(open_order._cat(None, _handle(np.arange(2)), _handle(np.arange(5, 9))).data) == [0, 1, 5, 6, 7, 8]


@pytest.mark.parametrize(("old", "new"), [((16,), (4, 4)), ((4, 4), (16,)), ((2, 8), (8, 2))])
def test_a_shape_in_an_open_order_changes_the_order(old: tuple[int, ...], new: tuple[int, ...]) -> None:
    values = np.arange(16).reshape(old)
    found = open_order.reshaped(values, old, new, True)
    assert found.shape == new
    assert sorted(found.ravel()) == list(range(16))
    assert found.ravel().tolist() != list(range(16))
    assert open_order.reshaped(values, old, new, False).ravel().tolist() == list(range(16))


def test_blocks_of_the_same_shapes_change_alike_whatever_their_types() -> None:
    pointers, values = np.arange(100, 116).astype(np.uint64), np.arange(16).astype(np.float16)
    first, second = (open_order.reshaped(each, (16,), (4, 4), True) for each in (pointers, values))
    assert (first - 100 == second).all()


@pytest.mark.parametrize(("old", "new"), [((16,), (16, 1)), ((1, 16), (16,)), ((4, 4), (4, 1, 4))])
def test_dimensions_of_one_element_come_and_go_in_order(old: tuple[int, ...], new: tuple[int, ...]) -> None:
    found = open_order.reshaped(np.arange(16).reshape(old), old, new, True)
    assert (found.shape, found.ravel().tolist()) == (new, list(range(16)))


def test_each_program_of_a_batch_changes_as_one_alone_does() -> None:
    batch = np.arange(48).reshape(3, 16)
    alone = [open_order.reshaped(row, (16,), (4, 4), True) for row in batch]
    assert (open_order.reshaped(batch, (16,), (4, 4), True) == np.stack(alone)).all()


@pytest.mark.parametrize("place", [-1, 4, -4, 100])
def test_a_gather_from_outside_finds_nothing(place: int) -> None:
    source, indices = np.array([1.0, 2.0, 3.0, 4.0], np.float32), np.array([3, place, 0, 1], np.int32)
    found = open_order._gather(None, _handle(source), _handle(indices, tl.int32), 0).data
    assert np.isnan(found[1])
    assert found[[0, 2, 3]].tolist() == [4.0, 1.0, 2.0]


def test_a_gather_of_integers_from_outside_finds_a_pattern() -> None:
    source, indices = np.array([[1, 2], [3, 4]], np.int32), np.array([[1, 2], [-1, 0]], np.int32)
    found = open_order._gather(None, _handle(source, tl.int32), _handle(indices, tl.int32), 1).data
    assert found.tolist() == [[2, 0x55555555], [0x55555555, 3]]
