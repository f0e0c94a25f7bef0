"""Runs kernels in the judge's interpreter and prints what they wrote: the interpreter process without its sandbox.

Reads a JSON list of launches on standard input, and prints a JSON list of outcomes. A launch is an object:
    source        functions, the kernel last; they may use `tl`, `triton` and `libdevice`
    arguments     by name: {"dtype": ..., "shape": [...], "data": [...]} for a tensor, else a number, boolean or null
    grid          three numbers
    order         optional: seed of the order of programs
An outcome is {"tensors": {name: [values as float64 or None for NaN]}} or {"error": type, "message": text}.
"""

import ast
import json
import os
import sys
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import torch

from kernels_eval.interpreter.kernel_runs import KernelRuns
from kernels_eval.interpreter.tensor_store import TensorStore
from kernels_eval.interpreter.triton_patches import interpreter, libdevice
from kernels_eval.sandbox.tensor_bytes import DTYPES
from kernels_eval.trace.kernel_syntax import free_names
from kernels_eval.trace.schema import KernelReference, KernelSource, LaunchKernel, ModuleName, Plain, View

_MODULES = {"tl": "triton.language", "triton": "triton", "libdevice": "libdevice", "math": "math"}


def run(case: dict[str, Any]) -> dict[str, Any]:
    """Run one launch; returns its outcome."""
    store = TensorStore(strict=True)
    tensors: dict[str, torch.Tensor] = {}
    arguments: dict[str, Any] = {}
    for name, value in case["arguments"].items():
        if isinstance(value, dict):
            tensors[name] = tensor = tensor_of(value)
            number = len(tensors) - 1
            store.give(number, tensor, tensor.numel() * tensor.element_size())
            arguments[name] = View(
                storage=number, dtype=value["dtype"], shape=tuple(tensor.shape), strides=tuple(tensor.stride())
            )
        else:
            arguments[name] = Plain(value=value)
    runs = KernelRuns(store)
    kernels = sources(case["source"])
    try:
        runs.load(kernels)
        runs.run(LaunchKernel(kernel=kernels[-1].number, arguments=arguments, grid=tuple(case["grid"])))
    except Exception as error:  # noqa: BLE001
        cause = error.__cause__ or error
        return {"error": type(cause).__name__, "message": str(cause)}
    return {"tensors": {name: values(tensor) for name, tensor in tensors.items()}}


def sources(text: str) -> list[KernelSource]:
    """Return the functions of a source, as the tracing process would send them."""
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    numbers = {function.name: number for number, function in enumerate(functions)}
    found: list[KernelSource] = []
    for function in functions:
        names = free_names(function)
        known: dict[str, Any] = {name: ModuleName(name=module) for name, module in _MODULES.items() if name in names}  # pyright: ignore[reportArgumentType]
        known |= {name: KernelReference(kernel=number) for name, number in numbers.items() if name in names}
        source = ast.get_source_segment(text, function)
        assert source is not None
        found.append(
            KernelSource(
                number=numbers[function.name], name=function.name, source=source, line=function.lineno, globals=known
            )
        )
    return found


def tensor_of(value: dict[str, Any]) -> torch.Tensor:
    """Return the tensor that a case describes."""
    data = [float("nan") if item is None else item for item in value["data"]]
    return (
        torch.tensor(data, dtype=torch.float64 if _is_float(value) else torch.int64)
        .to(DTYPES[value["dtype"]])
        .reshape(value["shape"])
    )


def values(tensor: torch.Tensor) -> list[Any]:
    """Return a tensor's values, None for NaN."""
    wide = tensor.double() if tensor.dtype.is_floating_point else tensor.long()
    return [None if item != item else item for item in wide.reshape(-1).tolist()]


def _is_float(value: dict[str, Any]) -> bool:
    return DTYPES[value["dtype"]].is_floating_point


if __name__ == "__main__":
    interpreter.install()
    libdevice.install()
    torch.set_num_threads(1)
    print(json.dumps([run(case) for case in json.load(sys.stdin)]))
