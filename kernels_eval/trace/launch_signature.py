"""Interpreter and worker: signature of a launch for the compiler, with arguments specialised as Triton does.

It holds the types and constants of the arguments, as Triton's own launcher would specialise them.
"""

import json
from collections.abc import Collection
from typing import Any

from kernels_eval.cost.launch import LAUNCH_OPTIONS, Constant
from kernels_eval.trace.kernel_syntax import own_field
from kernels_eval.trace.named_tuples import named_tuple
from kernels_eval.trace.schema import Descriptor, KernelReference, LaunchKernel, Plain, Sequence, TypeName, Value, View

TRITON_NAMES = {
    "float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64", "int8": "i8", "uint8": "u8",
    "int16": "i16", "uint16": "u16", "int32": "i32", "uint32": "u32", "int64": "i64", "uint64": "u64", "bool": "u1",
    "float8_e4m3fn": "fp8e4nv", "float8_e5m2": "fp8e5",
}  # fmt: skip
"""PyTorch's names of types -> Triton's."""
_ITEM_SIZES = {
    "float16": 2, "bfloat16": 2, "float64": 8, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int64": 8, "uint64": 8,
    "bool": 1, "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip
_DIVISOR = 16


def describe_launch(launch: LaunchKernel, name: str, constexprs: Collection[str]) -> dict[str, Any]:
    """Return the fields of a `Launch` that follow from its arguments. `constexprs`: its compile-time parameters.

    Raises TypeError for an argument that Triton's own launcher takes none of: a kernel that is launched with one runs
    nowhere, and one that were left out here would never be compiled.
    """
    described = _Described()
    signature = {
        argument: described.constant(argument, value) if argument in constexprs else described.argument(argument, value)
        for argument, value in launch.arguments.items()
    }
    texts = {argument: kind if isinstance(kind, str) else json.dumps(kind) for argument, kind in signature.items()}
    x, y, z = launch.grid
    return {
        "kernel": name[:200],
        "kernel_number": launch.kernel,
        "line": launch.line,
        "grid": launch.grid,
        "programs": x * y * z,
        "signature": texts,
        "constants": described.constants,
        "divisible": tuple(described.divisible),
        "options": {option: value for option, value in launch.options.items() if option in LAUNCH_OPTIONS},
    }


class _Described:
    """Constants and multiples of 16 among the arguments of a launch, by path: `name`, or `name.2` within a tuple."""

    def __init__(self) -> None:
        self.constants: dict[str, Constant] = {}
        self.divisible: list[str] = []

    def constant(self, path: str, value: Value) -> str:
        """Note a compile-time argument; returns its type."""
        self.constants[path] = _constant(value, path)
        return "constexpr"

    def argument(self, path: str, value: Value) -> Any:
        """Note an argument; returns its type, a list of them for a tuple, and that beside its fields if it is named."""
        if isinstance(value, Sequence):
            types = [self.argument(f"{path}.{place}", item) for place, item in enumerate(value.items)]
            return {"fields": value.fields, "types": types} if value.fields else types
        if _is_specialised(value):
            return self.constant(path, value)
        if isinstance(value, View) and value.dtype in TRITON_NAMES:
            self._note_divisible(path, value.offset * _ITEM_SIZES.get(value.dtype, 4))
            return f"*{TRITON_NAMES[value.dtype]}"
        if isinstance(value, Descriptor) and value.base.dtype in TRITON_NAMES:
            return f"tensordesc<{TRITON_NAMES[value.base.dtype]}{list(value.block_shape)}>"
        if isinstance(value, Plain) and isinstance(value.value, bool | int | float):
            if type(value.value) is int:
                self._note_divisible(path, value.value)
            return scalar_type(value.value)
        kind = type(value.value).__name__ if isinstance(value, Plain) else value.kind
        raise TypeError(f"failed to specialize argument {path} of type: {kind}")

    def _note_divisible(self, path: str, number: int) -> None:
        if number % _DIVISOR == 0:
            self.divisible.append(path)


def signature_type(text: str) -> Any:
    """Return the type of an argument as Triton's compiler takes it: a text, or a tuple of types, named or not."""
    return _as_tuple(json.loads(text)) if text.startswith(("[", "{")) else text


def _as_tuple(kind: Any) -> Any:
    if isinstance(kind, dict):
        named: dict[str, Any] = kind
        return named_tuple(map(own_field, named["fields"]))(*map(_as_tuple, named["types"]))
    return tuple(map(_as_tuple, kind)) if isinstance(kind, list) else kind


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
    """Return whether an argument is compiled in: None, the integer 1 and functions are."""
    if isinstance(value, KernelReference):
        return True
    return isinstance(value, Plain) and (value.value is None or (type(value.value) is int and value.value == 1))


def _constant(value: Value, path: str) -> Constant:
    if isinstance(value, Plain):
        return Constant(value=value.value)
    if isinstance(value, TypeName):
        return Constant(kind="dtype", value=value.name)
    if isinstance(value, KernelReference):
        return Constant(kind="kernel", value=value.kernel)
    if isinstance(value, Sequence):
        items = tuple(_constant(item, path) for item in value.items)
        return Constant(kind="tuple", items=items, fields=value.fields)
    raise TypeError(f"compile-time argument {path} is a {value.kind}")
