"""Interpreter process: `tl.inline_asm_elementwise`, which Triton's interpreter lacks."""

import math
from typing import Any

import numpy as np

from kernels_eval.cost.instructions import operations_of
from kernels_eval.interpreter.operation_log import OPERATION_LOG
from kernels_eval.interpreter.ptx import Assembly
from kernels_eval.interpreter.triton_patches.names import upstream

_REGISTER = 4
"""Bytes of a register; smaller elements share one."""
_FUNCTIONS = {
    **dict.fromkeys(("ex2", "lg2", "rcp", "sqrt", "rsqrt", "sin", "cos"), "exp2"),
    **dict.fromkeys(("add", "sub", "mul", "fma", "mad", "neg", "abs"), "fma"),
    "tanh": "fast_tanhf", "div": "div", "popc": "popc", "clz": "clz",
}  # fmt: skip
"""Functions of kernels_eval.cost.instructions that cost what an instruction costs; `bits` for the others."""


class _Results:
    """Results of one operation, as the builder's are."""

    def __init__(self, handles: list[Any]) -> None:
        self._handles = handles

    def get_result(self, number: int) -> Any:
        return self._handles[number]


def install() -> None:
    """Patch Triton's interpreter in this process, once."""
    upstream.InterpreterBuilder.create_inline_asm = _inline_asm


def _inline_asm(
    self: Any, text: str, constraints: str, handles: list[Any], types: list[Any], is_pure: bool, pack: int
) -> _Results:
    arrays = [np.asarray(handle.data) for handle in handles]
    shape = np.broadcast_shapes(*(array.shape for array in arrays)) if arrays else (1,)
    wanted = [upstream._get_np_dtype(dtype) for dtype in types]
    computed = run(text, constraints, [np.broadcast_to(array, shape) for array in arrays], wanted, pack)
    made = [array.reshape(shape) for array in computed]
    return _Results([upstream.TensorHandle(array, dtype.scalar) for array, dtype in zip(made, types, strict=True)])


def run(text: str, constraints: str, arrays: list[Any], wanted: list[Any], pack: int) -> list[Any]:
    """Run assembly on arrays of one shape, `pack` elements at a time; returns one flat array for each type wanted.

    Registers are numbered as Triton numbers them: those of the results, then those of the arguments. Raises ValueError
    for another number of constraints, and UnknownInstructionError for what is not interpreted.
    """
    size = arrays[0].size if arrays else 1
    groups = math.ceil(size / pack)
    padded = [
        np.resize(np.ascontiguousarray(array).reshape(-1), groups * pack).reshape(groups, pack) for array in arrays
    ]
    outputs = [_registers(dtype, pack) for dtype in wanted]
    inputs = [register for array in padded for register in _split(array)]
    kinds = [each for each in constraints.replace(" ", "").split(",") if each and not each.startswith("~")]
    if len(kinds) != sum(outputs) + len(inputs):
        raise ValueError(
            f"inline assembly: {len(kinds)} constraints for {sum(outputs)} registers of results and {len(inputs)} of"
            f" arguments (pack={pack})"
        )
    registers = {f"${sum(outputs) + number}": register for number, register in enumerate(inputs)}
    for kind, register in zip(kinds[sum(outputs) :], inputs, strict=True):
        if kind.isdigit():  # an argument in the register of a result
            registers[f"${kind}"] = register
    lanes = max(groups, OPERATION_LOG.threads)

    def count(name: str, is_double: bool) -> None:
        for unit, each in operations_of(_FUNCTIONS.get(name, "bits"), is_double=is_double):
            OPERATION_LOG.counts[unit] += each * lanes

    held = Assembly(text.replace("$$", "%"), registers, count).registers
    results: list[Any] = []
    for dtype, of_this in zip(wanted, outputs, strict=True):
        first = sum(outputs[: len(results)])
        missing = next((number for number in range(first, first + of_this) if f"${number}" not in held), None)
        if missing is not None:
            raise ValueError(f"inline assembly: nothing is written to ${missing}")
        results.append(_joined([held[f"${first + number}"] for number in range(of_this)], dtype, groups, pack)[:size])
    return results


def _registers(dtype: Any, pack: int) -> int:
    """Return how many registers `pack` elements take."""
    return math.ceil(pack / _together(dtype, pack))


def _together(dtype: Any, pack: int) -> int:
    return min(pack, max(1, _REGISTER // np.dtype(dtype).itemsize))


def _split(array: Any) -> list[Any]:
    """Return the registers of an argument, of `[groups, pack]` elements each."""
    pack = array.shape[1]
    together = _together(array.dtype, pack)
    if together == 1:
        return [np.ascontiguousarray(array[:, place]) for place in range(pack)]
    bits = np.ascontiguousarray(array).view(f"u{array.dtype.itemsize * together}")
    return [np.ascontiguousarray(bits[:, place]) for place in range(pack // together)]


def _joined(registers: list[Any], dtype: Any, groups: int, pack: int) -> Any:
    """Return the elements of a result from its registers; a register's low bits hold the first one."""
    width = np.dtype(dtype).itemsize * _together(dtype, pack)
    columns = []
    for register in registers:
        bits = register.view(f"u{register.dtype.itemsize}") if register.dtype != np.bool_ else register
        columns.append(bits.astype(f"u{width}").reshape(groups, 1).view(dtype))
    return np.ascontiguousarray(np.concatenate(columns, axis=1)).reshape(-1)
