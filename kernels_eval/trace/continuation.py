"""Judge's worker: decides if a program at a large size continues the programs of the same host code at smaller sizes.

A forward call is traced without values: its program holds everything that the host code does. Kernels run at small
sizes only; their results say something about the full size if the program there is the same one, grown with the size:
the same operators, kernels and storages in the same order, the same output, and each number (an argument, a shape, a
stride, a grid) constant or the value that the smaller sizes lead to expect. Anything else (another tensor passed, an
argument with an upper bound, an output that no kernel writes) has to be run to be judged.
"""

import math
from collections.abc import Iterator, Sequence, Set
from fractions import Fraction
from itertools import pairwise
from typing import Any

from kernels_eval.trace.schema import (
    FIRST_OWN,
    Command,
    Constexpr,
    Descriptor,
    Free,
    KernelReference,
    LaunchKernel,
    Operate,
    Plain,
    Synchronise,
    TraceAnswer,
    TypeName,
    Upload,
    Value,
    View,
)

Leaf = tuple[str, Any]
"""Place in a program, and what is there."""
GRID = "grid"
_TOLERANCE = 1e-5
"""Relative; float arguments are computed in double precision."""


def first_break(programs: Sequence[TraceAnswer], sizes: Sequence[int]) -> str | None:
    """Return the first place where the last program does not continue the two before it, or None if it does.

    `programs`: three of the same host code. `sizes`: their leading sizes, ascending.
    """
    kept = frozenset[int]().union(*(_kept(program) for program in programs))
    flat = [list(leaves(program, kept)) for program in programs]
    for places in zip(*flat, strict=False):
        name = places[0][0]
        if len({place for place, _ in places}) > 1:
            return name
        values = [value for _, value in places]
        if not (_grid_continues(values, sizes) if name.endswith(GRID) else continues(values, sizes)):
            return name
    return None if len({len(each) for each in flat}) == 1 else "end"


def leaves(trace: TraceAnswer, kept: Set[int] = frozenset()) -> Iterator[Leaf]:
    """Yield every part of a program in order. The host code's own storages are numbered by their first use.

    `kept`: storages that several programs share: e.g. host code uploads a constant, or transposes a weight,
    in its first call only. They keep their numbers, and what makes them is no part of the program.
    """
    return _Flattened(kept).program(trace)


def _kept(trace: TraceAnswer) -> Set[int]:
    """Return the storages of the host code that an earlier program of the same process made."""
    made: set[int] = set()
    used: set[int] = set()
    for command in trace.commands:
        if isinstance(command, LaunchKernel | Operate):
            used |= command.storages
        made |= _made_by(command) - used
    used |= {output.view.storage for output in trace.outputs if output.view is not None}
    return {storage for storage in used - made if storage >= FIRST_OWN}


def _made_by(command: Command) -> Set[int]:
    """Return the storages that a command defines. An operator that works in place defines none."""
    if isinstance(command, Upload):
        return {command.storage}
    if isinstance(command, Operate):
        return {view.storage for view in command.results if view is not None} - command.storages
    return set()


class _Flattened:
    def __init__(self, kept: Set[int]) -> None:
        self._numbers: dict[int, int] = {}
        self._kept = kept

    def program(self, trace: TraceAnswer) -> Iterator[Leaf]:
        parts = (command for command in trace.commands if not self._is_left_out(command))
        for index, command in enumerate(parts):
            if isinstance(command, LaunchKernel):
                yield from self._launch(command, f"launch {index}")
            elif isinstance(command, Operate):
                yield from self._operate(command, f"operator {index}")
            elif isinstance(command, Synchronise):
                yield f"synchronise {index}", command.reads
            else:
                assert isinstance(command, Upload)
                yield f"upload {index} storage", self._storage(command.storage)
                yield f"upload {index} size", command.size
        for index, output in enumerate(trace.outputs):
            yield f"output {index} type", output.type
            if output.view is not None:
                yield from self._value(output.view, f"output {index}")

    def _is_left_out(self, command: Command) -> bool:
        made = _made_by(command)
        return isinstance(command, Free) or bool(made and made <= self._kept)

    def _launch(self, command: LaunchKernel, place: str) -> Iterator[Leaf]:
        yield f"{place} kernel", str(command.kernel)
        for name, value in command.arguments.items():
            yield from self._value(value, f"{place} {name}")
        for reached in command.reached:
            yield f"{place} reached", reached.place
            yield from self._value(reached.view, f"{place} reached")
        for size in command.grid:
            yield f"{place} {GRID}", size

    def _operate(self, command: Operate, place: str) -> Iterator[Leaf]:
        yield f"{place} name", f"{command.name}.{command.overload}"
        for index, value in enumerate(command.arguments):
            yield from self._value(value, f"{place} {index}")
        for name, value in command.named.items():
            yield from self._value(value, f"{place} {name}")
        for index, view in enumerate(command.results):
            if view is not None:
                yield from self._value(view, f"{place} result {index}")

    def _value(self, value: Value | Constexpr, place: str) -> Iterator[Leaf]:
        if isinstance(value, View):
            yield f"{place} storage", self._storage(value.storage)
            yield f"{place} dtype", value.dtype
            yield f"{place} offset", value.offset
            for size, stride in zip(value.shape, value.strides, strict=True):
                yield f"{place} shape", size
                if size > 1:  # the stride of a single element says nothing
                    yield f"{place} stride", stride
        elif isinstance(value, Descriptor):
            yield from self._value(value.base, f"{place} base")
            for size in (*value.shape, *value.strides, *value.block_shape):
                yield f"{place} descriptor", size
            yield f"{place} padding", value.padding
        elif isinstance(value, Plain):
            yield place, value.value
        elif isinstance(value, TypeName):
            yield f"{place} dtype", value.name
        elif isinstance(value, KernelReference):
            yield f"{place} kernel", str(value.kernel)
        elif isinstance(value, Constexpr):
            yield from self._value(value.value, place)
        else:
            for item in value.items:
                yield from self._value(item, f"{place} item")
            yield f"{place} end", None

    def _storage(self, number: int) -> str:
        own = number >= FIRST_OWN and number not in self._kept
        return f"own {self._numbers.setdefault(number, len(self._numbers))}" if own else str(number)


def continues(values: Sequence[Any], sizes: Sequence[int]) -> bool:
    """Return True if the third value is the one that the first two lead to expect at their sizes."""
    kinds = {type(value) for value in values}
    if len(kinds) > 1:
        return False
    if values[0] == values[1] == values[2] or all(value != value for value in values):
        return True
    if kinds == {int}:
        return _integer_continues(values, sizes)
    return kinds == {float} and all(math.isfinite(value) for value in values) and _float_continues(values, sizes)


def _grid_continues(values: Sequence[int], sizes: Sequence[int]) -> bool:
    """Compare grids as `continues` does; one program may also be enough for both small sizes, not for the large one."""
    if values[0] == values[1]:
        return values[1] <= values[2] <= math.ceil(Fraction(values[1] * sizes[2], sizes[1]))
    return continues(values, sizes)


def _integer_continues(values: Sequence[int], sizes: Sequence[int]) -> bool:
    first, second, third = values
    if first == second:
        return False
    expected = second + Fraction(second - first, sizes[1] - sizes[0]) * (sizes[2] - sizes[1])
    if third == expected or any(_is_power(values, sizes, exponent) for exponent in (2, 3)):
        return True
    if third > 1 and any(_is_quotient(values, sizes, sizes[2] // count) for count in (third - 1, third, third + 1)):
        return True
    if all(_is_power_of_two(value) for value in values):  # a size rounded up to a power of two
        return expected / 2 < third < 2 * expected
    step = 1  # a quotient or a size that is rounded down or up, e.g. to whole tiles
    while step <= second and first % step == second % step == 0:
        if third in (math.floor(expected / step) * step, math.ceil(expected / step) * step):
            return True
        step *= 2
    return False


def _is_power(values: Sequence[int], sizes: Sequence[int], exponent: int) -> bool:
    return all(a[0] * b[1] ** exponent == b[0] * a[1] ** exponent for a, b in pairwise(zip(values, sizes, strict=True)))


def _is_quotient(values: Sequence[int], sizes: Sequence[int], divisor: int) -> bool:
    """True if all values are the size over one of a few divisors near `divisor`, rounded the same way."""
    return any(
        all(value == rounded(size, by) for value, size in zip(values, sizes, strict=True))
        for by in (divisor, divisor + 1)
        if by > 1
        for rounded in (int.__floordiv__, lambda size, by: -(-size // by))
    )


def _is_power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


def _float_continues(values: Sequence[float], sizes: Sequence[int]) -> bool:
    """Affine in the size or its logarithm, its inverse affine (1 / n, 1 / (n - 1)), or a power of it (a root)."""
    logarithms = [math.log(size) for size in sizes]
    if _is_line(values, sizes) or _is_line(values, logarithms):
        return True
    if 0 in values:
        return False
    if _is_line([1 / value for value in values], sizes):
        return True
    return min(values) > 0 and _is_line([math.log(value) for value in values], logarithms, _TOLERANCE)


def _is_line(values: Sequence[float], places: Sequence[float], absolute: float = 0.0) -> bool:
    slope = (values[1] - values[0]) / (places[1] - places[0])
    expected = values[1] + slope * (places[2] - places[1])
    return values[0] != values[1] and math.isclose(values[2], expected, rel_tol=_TOLERANCE, abs_tol=absolute)
