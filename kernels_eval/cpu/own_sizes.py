"""CPU worker: the launches at a problem's own sizes of a candidate that was judged at smaller ones (reference.cutting).

Host code is traced at the problem's own sizes without being run. Its program has to be the one that was run: the same
operators, kernels, storages and compile-time values that are no numbers, in the same order. What each launch moved and
computed is extended by what it is given there.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kernels_eval.config import JudgeConfig
from kernels_eval.cost.extrapolation import with_full_grids
from kernels_eval.cost.launch import Launch, Operation
from kernels_eval.cpu.block_growth import own_shape, own_sizes_of_blocks
from kernels_eval.cpu.device_limits import limit_failure
from kernels_eval.cpu.full_size import launches_at_full_size, uploads
from kernels_eval.cpu.graded import Graded, timed
from kernels_eval.cpu.loop_turns import SharedLoop, longer_loops, shared_loop
from kernels_eval.cpu.row_loops import loop_growth
from kernels_eval.cpu.session import Session
from kernels_eval.cpu.trials import Errors
from kernels_eval.error_categories import ErrorCategory
from kernels_eval.reference.reference import Reference
from kernels_eval.sandbox.child import CandidateFailedError
from kernels_eval.sandbox.tensor_bytes import DTYPES, TensorForm
from kernels_eval.trace.schema import (
    Command,
    Constexpr,
    Descriptor,
    Free,
    KernelReference,
    KernelSource,
    LaunchKernel,
    Operate,
    Plain,
    Synchronise,
    TraceAnswer,
    TypeName,
    Upload,
    Value,
    View,
    views_in,
)
from kernels_eval.verdict import Status, Verdict

MAY_GO_BY_SIZE = frozenset(
    {
        "wrong_values",
        "wrong_shape",
        "exception",
        "constructor_error",
        "out_of_bounds",
        "missing_parameter",
        "empty_grid",
    }
)
"""Failures at smaller sizes of candidates that rely on the problem's own."""
_WARP_LANES = 32
_MOST: Mapping[str, Operation] = {
    "most_accesses": "access", "most_turns": "access", "most_reductions": "reduction",
}  # fmt: skip
"""Counts of the program with the most, and what they grow with: loads and reductions, each of a whole block."""
_GROWING = (
    "dram_bytes", "written_bytes", "again_bytes", "reread_bytes", "given_bytes", "contention", "same_address",
    "largest_index", "asked_bytes",
)  # fmt: skip


def own_launches(session: Session, source: str, reference: Reference, graded: Graded) -> list[Launch] | None:
    """Return the launches at the problem's own sizes; None if host code makes another program there.

    `reference`: the problem at its own sizes. `graded`: the correct verdict on the cut one. Raises CandidateFailedError
    if host code fails at these sizes.
    """
    session.load(source, reference.arguments, reference.weight_seed, reference.nesting)
    session.set_weights(reference.drawn_for(session.ready()))
    for _ in range(2):  # what only a first call does was done when the smaller problem was traced
        session.ask(reference.full_forms, has_values=False)
    session.traced()
    true, _, _ = session.traced()
    seen = graded.full_trace
    if seen is None or list(_parts(seen)) != list(_parts(true)):
        return None
    grids = launches_at_full_size(true, session)
    counted = [launch for launch in graded.launches if launch.host_wait != "upload"]
    if [launch.kernel for launch in counted] != [launch.kernel for launch in grids]:
        return None
    shares = [launch.busy_share for launch in counted if launch.kernel_number >= 0]
    growths = _growths(seen, true, session.kernels, shares)
    deeper = _deeper(reference)
    extended = [
        _extended(launch, grid, next(growths) if launch.kernel_number >= 0 else _Growth(), deeper)
        for launch, grid in zip(counted, grids, strict=True)
    ]
    is_uploading = len(counted) < len(graded.launches)
    return with_full_grids(extended, grids) + (uploads(true) if is_uploading else [])


def with_own_launches(graded: Graded, own: list[Launch], whole: Reference, config: JudgeConfig) -> Graded:
    """Return a correct verdict with its times at the problem's own sizes, or the refusal of what no device runs."""
    counted = [launch for launch in graded.launches if launch.host_wait != "upload"]
    failed = limit_failure(own, config.targets, list(zip(counted, counted, own, strict=False)))
    if failed is not None:
        return Graded(failed, executed_size=graded.executed_size)
    verdict = graded.verdict
    errors = Errors(verdict.max_abs_error or 0.0, verdict.max_rel_error or 0.0)
    there = timed(whole, own, graded.kernels, config, errors)
    there.executed_size, there.seen, there.warnings = graded.executed_size, graded.seen, graded.warnings
    there.full_trace, there.counted, there.has_read = graded.full_trace, graded.counted, graded.has_read
    return there


def names_a_size(source: str, whole: Reference) -> bool:
    """True if a number in a candidate's source is one of the sizes that were cut."""
    own = {str(size) for _, size in whole.cut_sizes.values()}
    return not own.isdisjoint(re.findall(r"(?<![\w.])\d+(?![\w.])", source))


def other_program() -> Verdict:
    """Return the verdict on a candidate that is right on the cut problem and does something else at its own sizes."""
    return CandidateFailedError(
        Status.RUNTIME_ERROR,
        ErrorCategory.BEYOND_LIMITS,
        "at the problem's own sizes, which are too large to be interpreted, forward makes another program than at the "
        "smaller ones that it was judged at: the same operators and launches, in the same order, are expected",
    ).verdict(compiled=True)


def sizes_in_words(reference: Reference, cut: Reference, executed: int | None) -> str:
    """Return the sizes of the first input as judged, of those of the problem, and constants that it does not show."""
    pair = [
        next((form.shape for form in each.full_forms if isinstance(form, TensorForm)), ()) for each in (cut, reference)
    ]
    judged = (executed, *pair[0][1:]) if executed is not None and pair[0] else pair[0]
    shown = {*pair[0], *pair[1]}
    others = [
        f"{name} {now} of {own}"
        for name, (now, own) in (cut.cut_sizes or reference.cut_sizes).items()
        if own not in shown
    ]
    shapes = " of ".join(" × ".join(str(size) for size in shape) for shape in (judged, pair[1]))
    return ", ".join([shapes, *others])


def _deeper(reference: Reference) -> float:
    """Return how many times longer the sums of matrix products are at the problem's own sizes."""
    cut = reference.cut
    if cut is None or not cut.matrix_flops:
        return 1.0
    elements = [max(1, each.output_elements) for each in (cut, reference)]
    return max(1.0, reference.matrix_flops / cut.matrix_flops * elements[0] / elements[1])


@dataclass(frozen=True)
class _Growth:
    """Difference of a launch at the problem's own sizes from the same at the cut ones."""

    tensors: float = 1.0
    """Factor by which the tensors grow that it is given."""
    loops: float = 1.0
    """Factor by which the loop of its kernel gets longer that grows most."""
    turns: float = 1.0
    """Factor by which a program's loops take more turns, as far as the text tells."""
    blocks: Mapping[int, int] = field(default_factory=dict)
    """Sizes of blocks there, by those here."""
    shared: SharedLoop | None = None
    """The loop that its programs share there; None: not known, they are as busy as here."""


def _extended(counted: Launch, true: Launch, growth: _Growth, deeper: float) -> Launch:
    """Extend one launch: traffic by its tensors, work by its programs and by what loops in them get longer."""
    programs = true.programs / counted.programs if counted.programs else growth.tensors
    changes: dict[str, object] = {name: getattr(counted, name) * growth.tensors for name in _GROWING}
    shares, busy_share = programs, counted.busy_share
    if growth.shared is not None:
        shares, busy_share = max(programs, growth.shared.turns), growth.shared.busy_share
    work = shares * deeper if counted.matrix_flops else max(programs * growth.loops, growth.tensors, shares)
    uneven = counted.busy_share / busy_share
    operations = _own_operations(counted, true.warps, growth.blocks, shares * growth.turns, work)
    if counted.programs:  # of the program with the most
        changes |= {
            most: getattr(counted, most) * max(1.0, _ratio(counted, operations, unit) / programs * uneven)
            for most, unit in _MOST.items()
        }
        changes["reread_reach"] = counted.reread_reach * max(1.0, growth.tensors / programs)
    return counted.model_copy(
        update={
            **changes,
            "busy_share": busy_share,
            "l2_bytes": counted.l2_bytes * work,
            "operations": operations,
            "blocks": {},
            "grid": None,
        }
    )


def _own_operations(
    counted: Launch, warps: int, blocks: Mapping[int, int], least: float, work: float
) -> dict[Operation, float]:
    """Return the operations of a launch of `work` times as many elements, each block `least` times as often at least.

    Blocks that are larger there are computed and loaded as many times less, and threads repeat fewer of their elements.
    """
    operations: dict[Operation, float] = {name: count * work for name, count in counted.operations.items()}
    if counted.matrix_flops:
        return operations
    for shape, block in counted.blocks.items():
        before, after = own_shape(shape, blocks)
        times = max(work * before / after, least)
        lanes = max(after, _WARP_LANES * warps) / max(before, _WARP_LANES * counted.warps)
        for name, count in block.items():
            own = count * times * (1.0 if name in _MOST.values() else lanes)
            operations[name] += own - count * work
    return {name: max(count, 0.0) for name, count in operations.items()}


def _ratio(counted: Launch, own: Mapping[Operation, float], unit: Operation) -> float:
    before = counted.operations.get(unit, 0.0)
    return own.get(unit, 0.0) / before if before else 1.0


def _growths(
    seen: TraceAnswer, true: TraceAnswer, kernels: Iterable[KernelSource], shares: Iterable[float]
) -> Iterator[_Growth]:
    """Yield the growth of each launch of a kernel. `shares`: the busy share of each, as counted."""
    sources = {kernel.number: kernel for kernel in kernels}
    for small, large, share in zip(seen.launches, true.launches, shares, strict=True):
        kernel = sources[large.kernel]
        yield _Growth(
            max(1.0, _given(large) / max(1, _given(small))),
            loop_growth(small, large, kernel.source),
            longer_loops(small, large, kernel),
            own_sizes_of_blocks(small, large, sources),
            shared_loop(small, large, kernel, share),
        )


def _given(command: LaunchKernel) -> int:
    sizes: dict[int, int] = {}
    for value in (*command.arguments.values(), *(reached.view for reached in command.reached)):
        for view in views_in(value):
            nbytes = view.reach * DTYPES[view.dtype].itemsize
            sizes[view.storage] = max(nbytes, sizes.get(view.storage, 0))
    return sum(sizes.values())


def _parts(trace: TraceAnswer) -> Iterator[object]:
    """Yield what has to be the same at all sizes. Storages of the host code are numbered by their first use."""
    numbers: dict[int, int] = {}
    for command in trace.commands:
        yield from _of_command(command, numbers)
    for output in trace.outputs:
        yield output.type
        if output.view is not None:
            yield from _of_value(output.view, numbers)


def _of_command(command: Command, numbers: dict[int, int]) -> Iterator[object]:
    if isinstance(command, LaunchKernel):
        yield command.kernel
        for name, value in command.arguments.items():
            yield name
            yield from _of_value(value, numbers)
        for reached in command.reached:
            yield from _of_value(reached.view, numbers)
    elif isinstance(command, Operate):
        yield f"{command.name}.{command.overload}"
        for value in (*command.arguments, *command.named.values(), *(view for view in command.results if view)):
            yield from _of_value(value, numbers)
    elif isinstance(command, Synchronise):
        yield command.reads
    elif isinstance(command, Upload):
        yield numbers.setdefault(command.storage, len(numbers))
    else:
        assert isinstance(command, Free)


def _of_value(value: Value | Constexpr, numbers: dict[int, int]) -> Iterator[object]:
    """Yield a value without its numbers: sizes, strides and what follows from them differ."""
    if isinstance(value, Constexpr):
        value = value.value
    if isinstance(value, View | Descriptor):
        view = value if isinstance(value, View) else value.base
        yield numbers.setdefault(view.storage, len(numbers))
        yield view.dtype
    elif isinstance(value, Plain):
        is_number = type(value.value) in (int, float)
        yield type(value.value).__name__ if is_number else value.value
    elif isinstance(value, TypeName):
        yield value.name
    elif isinstance(value, KernelReference):
        yield value.kernel
    else:
        for item in value.items:
            yield from _of_value(item, numbers)
