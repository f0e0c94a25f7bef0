"""Interpreter and worker: signature of a launch for the compiler, with arguments specialised as Triton does.

It holds the types and constants of the arguments, as Triton's own launcher would specialise them.
"""

from collections.abc import Collection
from typing import Any

from kernels_eval.cost.launch import Constant
from kernels_eval.trace.schema import Descriptor, KernelReference, LaunchKernel, Plain, TypeName, Value, View

TRITON_NAMES = {
    "float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64", "int8": "i8", "uint8": "u8",
    "int16": "i16", "int32": "i32", "int64": "i64", "bool": "u1", "float8_e4m3fn": "fp8e4nv", "float8_e5m2": "fp8e5",
}  # fmt: skip
"""PyTorch's names of types -> Triton's."""
_ITEM_SIZES = {
    "float16": 2, "bfloat16": 2, "float64": 8, "int8": 1, "uint8": 1, "int16": 2, "int64": 8, "bool": 1,
    "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip
_DIVISOR = 16


def describe_launch(launch: LaunchKernel, name: str, constexprs: Collection[str]) -> dict[str, Any]:
    """Return the fields of a `Launch` that follow from its arguments. `constexprs`: its compile-time parameters."""
    signature: dict[str, str] = {}
    constants: dict[str, Constant] = {}
    divisible: list[str] = []
    uncompilable: str | None = None
    for argument, value in launch.arguments.items():
        if argument in constexprs or _is_specialised(value):
            signature[argument] = "constexpr"
            constant = _constant(value)
            if constant is None:
                uncompilable = f"compile-time argument {argument} is a {value.kind}"
            else:
                constants[argument] = constant
        elif isinstance(value, View) and value.dtype in TRITON_NAMES:
            signature[argument] = f"*{TRITON_NAMES[value.dtype]}"
            if value.offset * _ITEM_SIZES.get(value.dtype, 4) % _DIVISOR == 0:
                divisible.append(argument)
        elif isinstance(value, Plain) and isinstance(value.value, bool | int | float):
            signature[argument] = scalar_type(value.value)
            if type(value.value) is int and value.value % _DIVISOR == 0:
                divisible.append(argument)
        else:
            what = "tensor descriptor" if isinstance(value, Descriptor) else value.kind
            uncompilable = f"argument {argument} is a {what}"
    x, y, z = launch.grid
    return {
        "kernel": name[:200],
        "kernel_number": launch.kernel,
        "line": launch.line,
        "grid": launch.grid,
        "programs": x * y * z,
        "signature": signature,
        "constants": constants,
        "divisible": tuple(divisible),
        "options": {option: value for option, value in launch.options.items() if option in ("num_warps", "num_stages")},
        "uncompilable": uncompilable,
    }


def scalar_type(value: bool | int | float) -> str:
    """Return the type that Triton gives a number."""
    if isinstance(value, bool):
        return "u1"
    if isinstance(value, float):
        return "fp32"
    if -(2**31) <= value < 2**31:
        return "i32"
    return "i64" if value < 2**63 else "u64"


def _is_specialised(value: Value) -> bool:
    """Return whether an argument is compiled in: None and the integer 1 are."""
    return isinstance(value, Plain) and (value.value is None or (type(value.value) is int and value.value == 1))


def _constant(value: Value) -> Constant | None:
    if isinstance(value, Plain):
        return Constant(value=value.value)
    if isinstance(value, TypeName):
        return Constant(kind="dtype", value=value.name)
    if isinstance(value, KernelReference):
        return Constant(kind="kernel", value=value.kernel)
    return None
