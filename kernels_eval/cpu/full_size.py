"""CPU worker: derives the launches of a candidate at the full size from its traced program, without running it."""

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from kernels_eval.correctness.allowed_operators import UNINITIALISED
from kernels_eval.cost.launch import Launch
from kernels_eval.cost.operators import count_operator
from kernels_eval.cpu.session import Session
from kernels_eval.cpu.size_schedule import is_past, size_needed, stalled, zeros_that_grow
from kernels_eval.reference.inputs import SecretSeed
from kernels_eval.reference.reference import Reference
from kernels_eval.sandbox.child import CandidateFailedError
from kernels_eval.sandbox.tensor_bytes import DTYPES, TensorForm
from kernels_eval.trace.equivalence import Step, is_same_at, steps
from kernels_eval.trace.kernel_syntax import constexpr_parameters
from kernels_eval.trace.launch_signature import describe_launch
from kernels_eval.trace.schema import (
    FIRST_WEIGHT,
    KernelSource,
    LaunchKernel,
    Operate,
    Plain,
    Sequence,
    TraceAnswer,
    TypeName,
    Value,
    View,
)


@dataclass(frozen=True)
class SeenProgram:
    """Program of a trial that passed, and its leading size."""

    trace: TraceAnswer
    size: int


class FullSize:
    """Programs of the host code at sizes that are not run. The trace at the full size must already be requested."""

    def __init__(self, session: Session, reference: Reference, smaller: SeenProgram, seen: SeenProgram) -> None:
        self._smaller = smaller
        self._session = session
        self._reference = reference
        self._seen = seen
        self.trace = self._traced()
        """None if host code failed at the full size."""
        self.launches = launches_at_full_size(self.trace, session) if self.trace else []
        self.given_bytes = _given_bytes(self.trace, session, reference) if self.trace else []
        """For each of `launches`: size in bytes of its arguments that are inputs, weights or uploaded constants."""

    def other_sizes(self, seed: SecretSeed) -> tuple[int, int] | tuple[()] | None:
        """Return the sizes to judge at if those that were run are not representative of the full size.

        Returns None if they are representative, and () if only the full size is. The program may depend on the size
        otherwise than in proportion (a flag, a choice of kernels). Such host code is judged at the smallest sizes whose
        programs equal the program at the full size.
        """
        full_size = self._reference.full_size or 0
        if self.trace is None:
            return ()
        true = self._steps(self.trace)
        if not is_same_at(self._steps(self._seen.trace), true, full_size / self._seen.size):
            return self._smallest_alike(true, full_size)
        zeros = zeros_that_grow(self._seen.trace, self.trace)
        if zeros:
            return self._first_past(true, full_size, lambda trace, _: is_past(trace, zeros))
        if self._is_stalled(self.trace, full_size):
            return self._first_past(true, full_size, self._is_stalled)
        needed = size_needed(self._seen.trace, self.trace, self._session.kernels, self._seen.size)
        if needed is not None:
            return (needed, 2 * needed) if 2 * needed < full_size else ()
        between = full_size * (40 + seed.number("between") % 25) // 100
        if between <= 2 * self._seen.size:
            return None
        trace = self._at(between)
        if trace is None or not self._grows_steadily(trace, full_size / between):
            return ()
        return None

    def _smallest_alike(self, true: list[Step], full_size: int) -> tuple[int, int] | tuple[()]:
        size = 2 * self._seen.size
        while 2 * size < full_size:
            both = self._at(size), self._at(2 * size)
            if None in both:
                return ()
            pairs = [
                (self._steps(trace), full_size / at) for trace, at in zip(both, (size, 2 * size), strict=True) if trace
            ]
            if all(is_same_at(steps, true, factor) for steps, factor in pairs):
                return size, 2 * size
            size *= 2
        return ()

    def _is_stalled(self, trace: TraceAnswer, size: int) -> bool:
        return stalled(self._smaller.trace, self._seen.trace, trace, (self._smaller.size, self._seen.size, size))

    def _first_past(
        self, true: list[Step], full_size: int, has_come: Callable[[TraceAnswer, int], bool]
    ) -> tuple[int, int] | tuple[()]:
        """Return the smallest sizes at which arguments behave as at the full size: no longer 0, or no longer growing.

        `has_come` tests this for one size. Returns () if no such size is smaller than the full size.
        """
        size = 2 * self._seen.size
        while 2 * size < full_size:
            trace = self._at(size)
            if trace is None or not is_same_at(self._steps(trace), true, full_size / size):
                break
            if has_come(trace, size):
                return size, 2 * size
            size *= 2
        return ()

    def _grows_steadily(self, trace: TraceAnswer, factor: float) -> bool:
        """True if grids grow in proportion to the size up to the full size, within one tile in each direction."""
        for small, true in zip(_grids(trace), _grids(self.trace), strict=False):
            for fewer, more in zip(small, true, strict=True):
                if more < fewer or (more != fewer and abs(more - factor * fewer) > 1 + factor):
                    return False
        return True

    def _steps(self, trace: TraceAnswer) -> list[Step]:
        return steps(trace, constexpr_names(self._session.kernels))

    def _at(self, size: int) -> TraceAnswer | None:
        self._session.ask(self._reference.forms(size), has_values=False)
        return self._traced()

    def _traced(self) -> TraceAnswer | None:
        try:
            return self._session.traced()[0]
        except CandidateFailedError:
            return None


def _grids(trace: TraceAnswer | None) -> list[tuple[int, int, int]]:
    return [command.grid for command in trace.commands if isinstance(command, LaunchKernel)] if trace else []


def _given_bytes(trace: TraceAnswer, session: Session, reference: Reference) -> list[int]:
    sizes: dict[int, int] = dict(session.uploads)
    for number, form in enumerate(reference.full_forms):
        if isinstance(form, TensorForm):
            sizes[number] = form.nbytes
    for number, nbytes in enumerate(session.weight_bytes, start=FIRST_WEIGHT):
        sizes[number] = nbytes
    found: list[int] = []
    for command in trace.commands:
        if isinstance(command, LaunchKernel):
            found.append(sum(sizes.get(storage, 0) for storage in command.storages))
        elif isinstance(command, Operate) and operator_launch(command) is not None:
            found.append(0)
    return found


def constexpr_names(kernels: Iterable[KernelSource]) -> dict[int, frozenset[str]]:
    """Return the names of compile-time parameters for each kernel number."""
    return {kernel.number: _constexprs(kernel.source) for kernel in kernels}


@lru_cache(maxsize=1024)
def _constexprs(source: str) -> frozenset[str]:
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef)
    return frozenset(constexpr_parameters(function))


def launches_at_full_size(trace: TraceAnswer, session: Session) -> list[Launch]:
    """Return the launches of a program without running it."""
    kernels = {kernel.number: kernel for kernel in session.kernels}
    constexprs = constexpr_names(session.kernels)
    launches: list[Launch] = []
    for command in trace.commands:
        if isinstance(command, LaunchKernel):
            launches.append(describe(command, kernels, constexprs))
        elif isinstance(command, Operate):
            launch = operator_launch(command)
            if launch is not None:
                launches.append(launch)
    return launches


def describe(
    command: LaunchKernel, kernels: Mapping[int, KernelSource], constexprs: Mapping[int, frozenset[str]]
) -> Launch:
    """Describe a launch without running it."""
    kernel = kernels[command.kernel]
    return Launch(
        dram_bytes=0, l2_bytes=0, flops=0, **describe_launch(command, kernel.name, constexprs[command.kernel])
    )


def operator_launch(command: Operate) -> Launch | None:
    """Count the cost of an operator from its traced shapes. Returns None for allocations."""
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
