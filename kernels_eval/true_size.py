"""What a candidate would launch at the true size, worked out from its program there without running it."""

import ast
from collections.abc import Mapping
from typing import Any

import torch

from kernels_eval.conversation import CandidateFailedError, Conversation
from kernels_eval.eager import count_operator
from kernels_eval.kernel_syntax import constexpr_parameters
from kernels_eval.launch_description import describe_launch
from kernels_eval.launches import Launch
from kernels_eval.policy import UNINITIALISED
from kernels_eval.program import KernelUnit, LaunchKernel, Operate, Plain, Sequence, TypeName, Value, View
from kernels_eval.tensors import DTYPES


def true_launches(conversation: Conversation) -> list[Launch]:
    """Return the launches of the last program that was asked for; none where it could not be traced."""
    try:
        trace, _, _ = conversation.traced()
    except CandidateFailedError:
        return []
    units = {unit.unit: unit for unit in conversation.units}
    constexprs: dict[int, set[str]] = {}
    launches: list[Launch] = []
    for command in trace.commands:
        if isinstance(command, LaunchKernel):
            launches.append(describe(command, units, constexprs))
        elif isinstance(command, Operate):
            launch = operator_launch(command)
            if launch is not None:
                launches.append(launch)
    return launches


def describe(command: LaunchKernel, units: Mapping[int, KernelUnit], constexprs: dict[int, set[str]]) -> Launch:
    """Describe a launch without running it."""
    unit = units[command.unit]
    if command.unit not in constexprs:
        function = ast.parse(unit.source).body[0]
        assert isinstance(function, ast.FunctionDef)
        constexprs[command.unit] = constexpr_parameters(function)
    return Launch(dram_bytes=0, l2_bytes=0, flops=0, **describe_launch(command, unit.name, constexprs[command.unit]))


def operator_launch(command: Operate) -> Launch | None:
    """Count an operator from the shapes that it was traced with."""
    if command.name in UNINITIALISED:
        return None
    function: Any = getattr(getattr(torch.ops.aten, command.name), command.overload)
    arguments = tuple(_on_meta(value) for value in command.arguments)
    named = {name: _on_meta(value) for name, value in command.named.items()}
    results = [None if view is None else _on_meta(view) for view in command.results]
    return count_operator(function, arguments, named, results[0] if len(results) == 1 else results)


def _on_meta(value: Value) -> Any:
    if isinstance(value, View):
        return torch.empty_strided(value.shape, value.strides, dtype=DTYPES[value.dtype], device="meta")
    if isinstance(value, Plain):
        return value.value
    if isinstance(value, TypeName):
        return DTYPES.get(value.name)
    return [_on_meta(item) for item in value.items] if isinstance(value, Sequence) else None
