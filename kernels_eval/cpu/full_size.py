"""CPU worker: derives the launches of a candidate at the full size from its traced program, without running it."""

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from kernels_eval.correctness.allowed_operators import UNINITIALISED
from kernels_eval.cost.host_waits import waiting
from kernels_eval.cost.launch import Launch
from kernels_eval.cost.operators import count_operator
from kernels_eval.cpu.session import Session
from kernels_eval.cpu.size_schedule import size_needed
from kernels_eval.reference.inputs import SecretSeed
from kernels_eval.reference.reference import Reference
from kernels_eval.sandbox.child import CandidateFailedError
from kernels_eval.sandbox.tensor_bytes import DTYPES, TensorForm
from kernels_eval.trace.continuation import first_break
from kernels_eval.trace.kernel_syntax import constexpr_parameters
from kernels_eval.trace.launch_signature import describe_launch
from kernels_eval.trace.schema import (
    FIRST_WEIGHT,
    Command,
    KernelSource,
    LaunchKernel,
    Operate,
    Plain,
    Sequence,
    Synchronise,
    TraceAnswer,
    TypeName,
    Upload,
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
        if session.has_read and self.trace:  # programs of trials end where values were read: compare those without
            self._smaller, self._seen = (self._without_values(program) for program in (smaller, seen))
        self.launches = launches_at_full_size(self.trace, session) if self.trace else []
        self.given_bytes = given_bytes(self.trace, session, reference) if self.trace else []
        """For each of `launches`: size in bytes of its arguments that are inputs, weights or uploaded constants."""

    def other_sizes(self, seed: SecretSeed) -> tuple[int, int] | tuple[()] | None:
        """Return the sizes to judge at if those that were run are not representative of the full size.

        Returns None if they are representative, and () if only the full size is. The program may depend on the size
        otherwise than in proportion (a flag, a bound, a choice of kernels or buffers). Such host code is judged at the
        smallest sizes that the program at the full size continues.
        """
        full_size = self._reference.full_size or 0
        if self.trace is None:
            return ()
        if first_break((self._smaller.trace, self._seen.trace, self.trace), self._sizes) is not None:
            return self._smallest_continued(self.trace, full_size)
        needed = size_needed(self._seen.trace, self.trace, self._session.kernels, self._seen.size)
        if needed is not None:
            return (needed, 2 * needed) if 2 * needed < full_size else ()
        between = full_size * (40 + seed.number("between") % 25) // 100
        between -= between % self._step
        if between <= 2 * self._seen.size:
            return None
        trace = self._at(between)
        if trace is None or not self._grows_steadily(trace, full_size / between):
            return ()
        return None

    @property
    def seen_size(self) -> int:
        """Largest leading size that was run."""
        return self._seen.size

    def size_with_neighbours(self) -> int | None:
        """Return a size with programs beside the only one that a direction of a grid had so far; None: they all had."""
        full_size = self._reference.full_size or 0
        tiles = [
            full_size // more
            for small, true in zip(_grids(self._seen.trace), _grids(self.trace), strict=False)
            for fewer, more in zip(small, true, strict=True)
            if fewer == 1 < more
        ]
        size = 2 * max(tiles, default=0) + self._seen.size
        return min(size + -size % self._step, full_size) if tiles else None

    @property
    def _step(self) -> int:
        """Largest power of two that divides the sizes that were run: host code may ask for whole tiles."""
        return self._smaller.size & -self._smaller.size

    @property
    def _sizes(self) -> tuple[int, int, int]:
        return self._smaller.size, self._seen.size, self._reference.full_size or 0

    def _smallest_continued(self, true: TraceAnswer, full_size: int) -> tuple[int, int] | tuple[()]:
        size = 2 * self._seen.size
        trace = self._at(size)
        while trace is not None and 2 * size < full_size:
            twice = self._at(2 * size)
            if twice is not None and first_break((trace, twice, true), (size, 2 * size, full_size)) is None:
                return size, 2 * size
            size, trace = 2 * size, twice
        return ()

    def _grows_steadily(self, trace: TraceAnswer, factor: float) -> bool:
        """True if grids grow in proportion to the size up to the full size, within one tile in each direction."""
        for small, true in zip(_grids(trace), _grids(self.trace), strict=False):
            for fewer, more in zip(small, true, strict=True):
                if more < fewer or (more != fewer and abs(more - factor * fewer) > 1 + factor):
                    return False
        return True

    def _without_values(self, program: SeenProgram) -> SeenProgram:
        return SeenProgram(self._at(program.size) or program.trace, program.size)

    def _at(self, size: int) -> TraceAnswer | None:
        self._session.ask(self._reference.forms(size), has_values=False)
        return self._traced()

    def _traced(self) -> TraceAnswer | None:
        try:
            return self._session.traced()[0]
        except CandidateFailedError:
            return None


def _grids(trace: TraceAnswer | None) -> list[tuple[int, int, int]]:
    return [launch.grid for launch in trace.launches] if trace else []


def given_bytes(trace: TraceAnswer, session: Session, reference: Reference) -> list[int]:
    """Return, for each launch of a program, the size in bytes of its inputs, weights and uploaded constants."""
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
        else:
            found += [0] * len(other_launches(command))
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
        else:
            launches += other_launches(command)
    return launches


def describe(
    command: LaunchKernel, kernels: Mapping[int, KernelSource], constexprs: Mapping[int, frozenset[str]]
) -> Launch:
    """Describe a launch without running it."""
    kernel = kernels[command.kernel]
    return Launch(**describe_launch(command, kernel.name, constexprs[command.kernel]))


def other_launches(command: Command) -> list[Launch]:
    """Return what a command other than a kernel's launch costs: an operator's launches, a wait for the host."""
    if isinstance(command, Operate):
        return operator_launches(command)
    if isinstance(command, Synchronise):
        return [waiting("read" if command.reads else "synchronise")]
    return []


def uploads(trace: TraceAnswer) -> list[Launch]:
    """Return the uploads of a program as waits. Only those that every call makes are charged."""
    return [waiting("upload", command.size) for command in trace.commands if isinstance(command, Upload)]


def operator_launches(command: Operate) -> list[Launch]:
    """Count the cost of an operator from its traced shapes; nothing for allocations."""
    if command.name in UNINITIALISED:
        return []
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
