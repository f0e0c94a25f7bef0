"""Styles of CUDA C++ kernels. They differ in how threads share work and in where they keep a row's elements."""

from enum import StrEnum

from tasks.problems.synthetic.composition import Composition
from tasks.problems.synthetic.cuda.program import Kind, kind_of, parts, program


class CudaStyle(StrEnum):
    """Style of a kernel."""

    NAIVE = "naive"
    """A thread for each row, which goes through it alone; of a product, neighbours in a column: nothing coalesces."""
    COALESCED = "coalesced"
    """Neighbouring threads on neighbouring elements; a block for each row, its elements kept in global memory."""
    FLOAT4 = "float4"
    """Four elements at a time; a block for each row, its elements kept in shared memory."""
    SHARED = "shared"
    """Shared memory: a block for each row, tiles of a transpose and of a product."""
    WARP = "warp"
    """A warp for each row, or each element of a product, reduced with shuffles."""
    GRID_STRIDE = "grid_stride"
    """As many blocks as suit the GPU, each of which takes further elements or rows."""
    STEPWISE = "stepwise"
    """A kernel an operator, as eager PyTorch does."""


def styles_of(composition: Composition) -> list[CudaStyle]:
    """Return the styles that make a difference for the composition, in a fixed order."""
    needed = {kind_of(part) for part in parts(composition)} | (
        {Kind.PRODUCT} if composition.head is not None else set()
    )
    found = list(CudaStyle)
    if needed == {Kind.FLAT}:
        found.remove(CudaStyle.WARP)
        if not program(composition, ()).transposes:
            found.remove(CudaStyle.SHARED)
    elif needed == {Kind.ROW} and not program(composition, ()).keeps_values:
        found.remove(CudaStyle.COALESCED)  # no elements are kept: the same as SHARED
    if len(parts(composition)) == len(composition.names):  # each operator has a kernel of its own in any style
        found.remove(CudaStyle.STEPWISE)
    return found


def fastest_style(composition: Composition) -> CudaStyle:
    """Return the style that is expected to be the fastest."""
    if composition.head is not None or program(composition, ()).transposes:
        return CudaStyle.SHARED
    return CudaStyle.WARP if kind_of(composition) is Kind.ROW else CudaStyle.FLOAT4


def slow_styles(composition: Composition) -> list[CudaStyle]:
    """Return the styles that are expected to be slow: the earlier kernels of repairs."""
    slow = (CudaStyle.NAIVE, CudaStyle.STEPWISE)
    return [style for style in styles_of(composition) if style in slow]
