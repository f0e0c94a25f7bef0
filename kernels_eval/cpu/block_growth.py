"""CPU worker: shapes that the blocks of a kernel have at a problem's own sizes, where it was run at cut ones.

`BLOCK=triton.next_power_of_2(N)` makes blocks of 64 elements of cut rows, and of 4096 of the problem's own. Threads
that repeat the few elements do not repeat the many, and a row is still loaded by one load.
"""

import ast
from collections.abc import Iterator, Mapping

from kernels_eval.cpu.kernel_numbers import KernelNumbers
from kernels_eval.cpu.row_loops import kernel_tree
from kernels_eval.trace.schema import Descriptor, KernelReference, KernelSource, LaunchKernel, Sequence, Value

_MAKERS = ("arange", "zeros", "full")
_OTHERS = frozenset(
    {
        "reshape", "view", "ravel", "broadcast_to", "cat", "join", "interleave", "split", "topk", "gather", "histogram",
        "make_block_ptr", "make_tensor_descriptor", "load_tensor_descriptor", "slice", "randint4x", "rand4x",
    }
)  # fmt: skip
"""Functions whose results have sizes that no `_MAKERS` names."""


def own_sizes_of_blocks(
    small: LaunchKernel, large: LaunchKernel, kernels: Mapping[int, KernelSource]
) -> Mapping[int, int]:
    """Return, for each size that a dimension of a block has in the `small` launch, the least that it may be in `large`.

    A size that is not there stays as it is. So does each, if the text does not tell where all of them come from.
    """
    if any(_has_descriptor(value) for value in large.arguments.values()):
        return {}
    found: dict[int, int] = {}
    for number in _reached(large, kernels):
        is_launched = number == large.kernel
        kernel = kernels[number]
        pair = [KernelNumbers(kernel, each if is_launched else None) for each in (small, large)]
        for node in ast.walk(kernel_tree(kernel.source)):
            if not isinstance(node, ast.Call):
                continue
            called = {pair[0].function(node), _last(node.func)}  # `lanes` may be a name for `arange`
            if not called.isdisjoint(_OTHERS) or (isinstance(node.func, ast.Name) and pair[1].is_own(node.func.id)):
                return {}
            if not called.isdisjoint(_MAKERS):
                sizes = [_sizes(node, numbers) for numbers in pair]
                if sizes[0] is None or sizes[1] is None or len(sizes[0]) != len(sizes[1]):
                    return {}
                for before, after in zip(*sizes, strict=True):
                    found[before] = min(after, found.get(before, after))
    return {before: after for before, after in found.items() if before > 1 and after >= before}


def own_shape(shape: str, own_sizes: Mapping[int, int]) -> tuple[int, int]:
    """Return the elements of a block of a shape, `16x64`, as it was run, and at the problem's own sizes."""
    before = after = 1
    for size in map(int, shape.split("x") if shape else ()):
        before, after = before * size, after * own_sizes.get(size, size)
    return before, after


def _sizes(node: ast.Call, numbers: KernelNumbers) -> list[int] | None:
    """Return the sizes that a call of one of `_MAKERS` gives its block; None: not known."""
    name = numbers.function(node)
    if name not in _MAKERS or not node.args:
        return None
    if name == "arange":
        ends = [numbers.of(argument) for argument in node.args]
        if len(ends) != 2 or not isinstance(ends[0], int) or not isinstance(ends[1], int):
            return None
        return [ends[1] - ends[0]]
    shape = node.args[0]
    parts = shape.elts if isinstance(shape, ast.Tuple | ast.List) else [shape]
    sizes = [numbers.of(part) for part in parts]
    known = [size for size in sizes if isinstance(size, int)]
    return known if len(known) == len(sizes) else None


def _reached(launch: LaunchKernel, kernels: Mapping[int, KernelSource]) -> set[int]:
    """Return the numbers of a launched kernel and of all functions that it may call."""
    found: set[int] = set()
    pending = [launch.kernel, *(number for value in launch.arguments.values() for number in _references(value))]
    while pending:
        number = pending.pop()
        if number not in found:
            found.add(number)
            pending += [other for value in kernels[number].globals.values() for other in _references(value)]
    return found


def _references(value: object) -> Iterator[int]:
    if isinstance(value, KernelReference):
        yield value.kernel
    elif isinstance(value, Sequence):
        for item in value.items:
            yield from _references(item)


def _has_descriptor(value: Value) -> bool:
    return isinstance(value, Descriptor) or (
        isinstance(value, Sequence) and any(_has_descriptor(item) for item in value.items)
    )


def _last(function: ast.expr) -> str:
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )
