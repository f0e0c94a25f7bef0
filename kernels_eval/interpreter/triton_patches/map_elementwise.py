"""Interpreter process: `tl.map_elementwise`, which Triton's interpreter lacks.

A function that branches on nothing is called once, on all elements; one that does is called for each `pack` of them.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl

from kernels_eval.interpreter.triton_patches.control_flow import UnsupportedError
from kernels_eval.interpreter.triton_patches.names import upstream


def install() -> None:
    """Patch Triton's language in this process, once."""
    for language in (tl, tl.core):
        language.map_elementwise = mapped  # pyright: ignore[reportAttributeAccessIssue]


def mapped(scalar_fn: Callable[..., Any], *args: Any, pack: Any = 1, **_: Any) -> Any:
    """Return one tensor, or a tuple of them, of what a function gives for each element.

    With `pack`, the function takes as many elements of each argument, one argument after the other, and returns as many
    of each result. Raises ValueError if the elements cannot be shared out so.
    """
    each = int(getattr(pack, "value", pack))
    operands = [upstream.interpreter_semantic.to_tensor(argument) for argument in args]
    arrays = np.broadcast_arrays(*(operand.handle.data for operand in operands))
    shape, size = arrays[0].shape, arrays[0].size
    if size % each:
        raise ValueError(f"tl.map_elementwise: {size} elements cannot be taken {each} at a time")
    columns = [
        (array.reshape(-1, each)[:, place], operand.dtype)
        for array, operand in zip(arrays, operands, strict=True)
        for place in range(each)
    ]
    try:
        results, is_single = _called(scalar_fn, columns, [size // each])
    except UnsupportedError:  # a branch on a block
        lanes = [_called(scalar_fn, [(column[at : at + 1], dtype) for column, dtype in columns], [])
                 for at in range(size // each)]  # fmt: skip
        is_single = lanes[0][1]
        results = [
            (np.concatenate([lane[number][0] for lane, _ in lanes]), dtype)
            for number, (_, dtype) in enumerate(lanes[0][0])
        ]
    is_block = any(operand.type.is_block() for operand in operands)
    made = [
        _tensor(np.stack([array for array, _ in results[first : first + each]], axis=-1).reshape(shape),
                results[first][1], list(shape) if is_block else [])
        for first in range(0, len(results), each)
    ]  # fmt: skip
    return made[0] if is_single else tuple(made)


def _called(function: Callable[..., Any], columns: list[Any], shape: list[int]) -> tuple[list[Any], bool]:
    """Return arrays and types of what a function gives for values of a shape, and if it gives one alone."""
    result = function(*(_tensor(np.ascontiguousarray(column), dtype, shape) for column, dtype in columns))
    values = list(result) if isinstance(result, tuple | list | tl.tuple) else [result]
    handles = [upstream.interpreter_semantic.to_tensor(value) for value in values]
    return [(np.broadcast_to(value.handle.data, math.prod(shape)), value.dtype) for value in handles], not isinstance(
        result, tuple | list | tl.tuple
    )


def _tensor(values: Any, dtype: Any, shape: list[int]) -> Any:
    handle = upstream.TensorHandle(values, dtype)
    return tl.tensor(handle, tl.block_type(dtype, shape) if shape else dtype)  # pyright: ignore[reportArgumentType]
