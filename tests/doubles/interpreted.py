"""Runs kernels in the judge's interpreter and prints what they wrote: the interpreter process without its sandbox.

Reads a JSON list of launches on standard input, and prints a JSON list of outcomes. A launch is an object:
    source        functions, the kernel last; they may use `tl`, `triton` and `libdevice`
    arguments     by name: {"dtype": ..., "shape": [...], "data": [...]} for a tensor, else a number, boolean or null
    grid          three numbers
    fresh         optional: names of tensors that are memory of the kernel's own; the others were given to it
    one_by_one    optional: run one program after the other, as if they could not be interpreted together
An outcome is {"tensors": {name: [values as float64 or None for NaN]}, "launch": counts, "in_batches": programs were
interpreted together} or {"error": type, "message": text}.
"""

import ast
import json
import os
import sys
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import torch

from kernels_eval.interpreter import kernel_runs
from kernels_eval.interpreter.kernel_runs import KernelRuns
from kernels_eval.interpreter.memory_accesses import Origin
from kernels_eval.interpreter.tensor_store import LEAST_GAP, TensorStore
from kernels_eval.interpreter.triton_patches import interpreter, libdevice
from kernels_eval.interpreter.triton_patches.undefined_lanes import UNDEFINED_LANES
from kernels_eval.sandbox.tensor_bytes import DTYPES
from kernels_eval.trace.kernel_syntax import free_names
from kernels_eval.trace.schema import KernelReference, KernelSource, LaunchKernel, ModuleName, Plain, View

_in_batches = kernel_runs.interpret_in_batches
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
            if name in case.get("fresh", ()):
                store[number].default_origin = Origin.NOBODY
            arguments[name] = View(
                storage=number, dtype=value["dtype"], shape=tuple(tensor.shape), strides=tuple(tensor.stride())
            )
        else:
            arguments[name] = Plain(value=value)
    together: list[bool] = []

    def watched(*launch: Any) -> bool:
        together.append(not case.get("one_by_one") and _in_batches(*launch))
        return together[-1]

    kernel_runs.interpret_in_batches = watched
    runs = KernelRuns(store)
    UNDEFINED_LANES.begin(case.get("poisoned", True))
    kernels = sources(case["source"])
    try:
        runs.load(kernels)
        launch = runs.run(LaunchKernel(kernel=kernels[-1].number, arguments=arguments, grid=tuple(case["grid"])))
    except Exception as error:  # noqa: BLE001
        cause = error.__cause__ or error
        return {"error": type(cause).__name__, "message": str(cause)}
    written = {name: values(tensor) for name, tensor in tensors.items()}
    return {"tensors": written, "launch": launch.model_dump(mode="json"), "in_batches": any(together)}


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
    """Return the tensor that a case describes, with a gap behind it: an access past its end meets no other tensor."""
    data = [float("nan") if item is None else item for item in value["data"]]
    content = torch.tensor(data, dtype=torch.float64 if _is_float(value) else torch.int64).to(DTYPES[value["dtype"]])
    apart = torch.empty(content.numel() + LEAST_GAP, dtype=content.dtype)[: content.numel()]
    return apart.copy_(content).reshape(value["shape"])


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
