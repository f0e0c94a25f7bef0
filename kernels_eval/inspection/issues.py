"""Issues that keep a correct kernel from the device's best, each with the figure that shows it and a remedy.

Rules over figures (kernels_eval.inspection.figures); no rule looks at the source. A launch that takes less than a tenth
of the call has no issues of its own.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kernels_eval.cost.hardware import Hardware
from kernels_eval.inspection.figures import LEAST_SHARE, CallFigures, LaunchFigures
from kernels_eval.verdict import MOST_KERNELS, Issue, IssueKind, Profile, Resources

_LEAST_SECTOR_SHARE = 0.5
_LEAST_LANE_SHARE = 0.55
"""Rows are padded to a power of two: nearly all paddings leave more than this."""
_MOST_MOVED = 1.5
"""Times that each byte needed may be moved: partial results of a reduction in two launches are within it."""
_MOST_GAPS = 0.25
_LEAST_LANE_BYTES = 4.0
_MOST_LANE_BYTES = 512.0
"""Sixty-four 32-bit registers of a thread for a block that is loaded, and as many for one that is stored."""
_LEAST_OCCUPANCY = 0.25
_MOST_TAIL = 1.25
"""Rounded-up waves over waves."""
_SHORT_US = 10.0
"""Launches that take no longer are ruled by their gaps, not by how their programs are dealt out."""
_MANY_WAVES = 2.0
_LEAST_TENSOR_SHARE = 0.5
_LEAST_PRODUCT_SHARE = 0.2
"""Share of the call that the products would take as additions and multiplications, from which on they matter."""


class _Found(NamedTuple):
    """An issue, before it is said of which launch."""

    kind: IssueKind
    value: float
    limit: float
    message: str
    remedy: str

    def of(self, kernel: str | None = None, line: int = 0) -> Issue:
        """Return the issue of a launch, or of the whole call."""
        return Issue(
            kind=self.kind,
            kernel=kernel,
            line=line,
            value=self.value,
            limit=self.limit,
            message=self.message,
            remedy=self.remedy,
        )


def find_issues(figures: CallFigures, hardware: Hardware) -> tuple[Issue, ...]:
    """Return the issues of a call, those of the whole call first, then launch by launch."""
    issues = [found.of() for found in _of_call(figures, hardware)]
    for launch in figures.launches:
        if launch.share >= LEAST_SHARE:
            of_launch = (*_of_memory(launch), *_of_programs(launch, hardware))
            issues.extend(found.of(launch.kernel, launch.line) for found in of_launch)
    first: dict[tuple[IssueKind, str | None, int], Issue] = {}
    for issue in issues:  # of several launches in one line the first stands for all
        first.setdefault((issue.kind, issue.kernel, issue.line), issue)
    return tuple(first.values())


def issues_of_profile(profile: Profile, resources: Sequence[Resources], call_us: float) -> tuple[Issue, ...]:
    """Return the issues that a call's profile on a GPU and the compiler show; `call_us`: the judge's time of a call.

    What lanes and programs do is counted in the interpreter alone: `kernelmill judge inspect` runs it besides.
    """
    issues = []
    computing_us = math.fsum(kernel.microseconds for kernel in profile.kernels)
    gaps_share = 1 - computing_us / call_us
    is_whole = len(profile.kernels) < MOST_KERNELS
    if profile.launches > 1 and gaps_share > _MOST_GAPS and is_whole:
        issues.append(_many_launches(profile.launches, gaps_share).of())
    for use in resources:
        if use.spills:
            issues.append(_spills(use.spills).of(use.kernel))
    return tuple(issues)


def _many_launches(count: float, gaps_share: float) -> _Found:
    return _Found(
        kind=IssueKind.MANY_LAUNCHES,
        value=gaps_share,
        limit=_MOST_GAPS,
        message=f"{count:g} launches a call: {gaps_share:.0%} of its time passes between them",
        remedy="fuse kernels that follow one another, so that results stay in registers",
    )


def _spills(spilled: float) -> _Found:
    return _Found(
        IssueKind.SPILLS,
        spilled,
        0.0,
        f"{spilled:g} bytes a thread are spilled to memory",
        "smaller blocks, or more warps to share a block, or a loop over parts of it",
    )


def _of_call(figures: CallFigures, hardware: Hardware) -> Iterator[_Found]:
    count = len(figures.launches)
    if count > 1 and figures.gaps_share > _MOST_GAPS:
        yield _many_launches(count, figures.gaps_share)
    if figures.moved_share > _MOST_MOVED:
        moved, needed = (f"{count / 1e6:.3g} MB" for count in (figures.moved_bytes, figures.needed.bytes))
        yield _Found(
            kind=IssueKind.REDUNDANT_TRAFFIC,
            value=figures.moved_share,
            limit=_MOST_MOVED,
            message=f"the launches read and write {moved}, where {needed} are needed",
            remedy="read each input once and write each output once: keep intermediate results in registers",
        )
    slow_s = figures.needed.matrix_flops / (hardware.lanes["dot_fp32"] * hardware.processors * hardware.clock_hz)
    product_share = 1e6 * slow_s / figures.microseconds
    on_tensor_cores = figures.tensor_share if figures.computed_flops else 0.0
    if product_share > _LEAST_PRODUCT_SHARE > figures.library_share and on_tensor_cores < _LEAST_TENSOR_SHARE:
        how = "float32 units (input_precision='ieee')" if figures.computed_flops else "multiplications and sums"
        yield _Found(
            kind=IssueKind.NO_TENSOR_CORES,
            value=on_tensor_cores,
            limit=_LEAST_TENSOR_SHARE,
            message=f"{figures.needed.matrix_flops / 1e9:.3g} GFLOP of matrix products run on {how}",
            remedy="use tl.dot on tiles of at least 16 by 16; for float32 operands with input_precision='tf32x3', "
            "which is nearly as exact",
        )


def _of_memory(launch: LaunchFigures) -> Iterator[_Found]:
    if launch.sector_share < _LEAST_SECTOR_SHARE:
        yield _Found(
            IssueKind.STRIDED_ACCESS,
            launch.sector_share,
            _LEAST_SECTOR_SHARE,
            f"only {launch.sector_share:.0%} of the bytes that loads and stores touch are used: neighbouring lanes "
            "access addresses far apart",
            "let the last dimension of a block follow the tensor's contiguous one; transpose in registers (tl.trans)",
        )
    if launch.lane_share < _LEAST_LANE_SHARE:
        yield _Found(
            IssueKind.MASKED_LANES,
            launch.lane_share,
            _LEAST_LANE_SHARE,
            f"{1 - launch.lane_share:.0%} of the lanes are masked off",
            "choose blocks that divide the row, or several smaller ones in a loop, or several rows a program",
        )
    if launch.spill_bytes:
        yield _spills(launch.spill_bytes)


def _of_programs(launch: LaunchFigures, hardware: Hardware) -> Iterator[_Found]:
    is_short = launch.lane_bytes < _LEAST_LANE_BYTES or launch.bound_by == "waiting"
    if launch.waves >= _MANY_WAVES and is_short:
        yield _Found(
            IssueKind.TINY_BLOCKS,
            launch.waves,
            _MANY_WAVES,
            f"{launch.programs:.0f} programs whose {launch.warps} warps move {launch.lane_bytes:.3g} bytes a thread: "
            "most of their life is waiting",
            "larger blocks, several rows a program, or fewer warps",
        )
    if launch.lane_bytes > _MOST_LANE_BYTES:
        yield _Found(
            IssueKind.OVERSIZED_BLOCKS,
            launch.lane_bytes,
            _MOST_LANE_BYTES,
            f"each thread moves {launch.lane_bytes:.0f} bytes at a time, all of which it holds in registers",
            "smaller blocks in a loop, or more warps",
        )
    is_own_limit = launch.limited_by in ("registers", "shared memory")
    if launch.registers and launch.occupancy < _LEAST_OCCUPANCY and is_own_limit and not launch.gigaflops_per_s:
        yield _Found(
            IssueKind.LOW_OCCUPANCY,
            launch.occupancy,
            _LEAST_OCCUPANCY,
            f"a processor holds {launch.occupancy:.0%} of its warps, limited by {launch.limited_by} "
            f"({launch.registers} registers a thread, {launch.shared_bytes or 0} bytes of shared memory a program)",
            "smaller blocks, fewer stages (num_stages), or more warps to share a block",
        )
    if launch.microseconds <= _SHORT_US:
        return
    programs = f"{launch.programs:.0f} programs on {hardware.processors} processors: {launch.waves:.2f} waves"
    enough = hardware.memory_share * hardware.processors
    tail = math.ceil(launch.waves) / launch.waves if launch.waves else 1.0
    if launch.waves < 1 and launch.programs < enough:
        remedy = "more and smaller programs, or split the longest dimension (split-K)"
        yield _Found(IssueKind.TAIL_EFFECT, launch.programs, enough, programs, remedy)
    elif launch.waves > 1 and tail > _MOST_TAIL:
        remedy = "a number of programs that fills the last wave, or a persistent kernel with one program a processor"
        yield _Found(IssueKind.TAIL_EFFECT, tail, _MOST_TAIL, programs, remedy)
