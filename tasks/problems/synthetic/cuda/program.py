"""A composition as a program on one row: loops over its elements, each with at most one reduction at its end.

A matrix product and the operators on single elements after it are one program; what follows and needs a whole row is
another, which reads the first one's output.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tasks.problems.synthetic.composition import Composition
from tasks.problems.synthetic.cuda.operators import OPERATORS, Reduce


class Kind(StrEnum):
    """Needs of a program of its row."""

    FLAT = "flat"
    """Each element alone."""
    ROW = "row"
    """The whole row."""
    PRODUCT = "product"
    """A matrix product, then each element alone."""


@dataclass(frozen=True)
class Loop:
    """Statements on each element of a row, then a reduction of all of them, if any."""

    maps: tuple[str, ...]
    reduce: Reduce | None = None
    name: str = ""
    """Variable of the reduction's value."""


@dataclass(frozen=True)
class Program:
    """Work of one kernel."""

    kind: Kind
    operands: tuple[str, ...]
    loops: tuple[Loop, ...]
    store: str
    """Statement that writes an element."""
    result: str | None
    """Value of the row, if a reduction is what is written."""
    output_shape: str
    """Sizes of the output."""
    weight: str = ""
    """Of a product: the offset of the weight for `col` and `{k}`."""

    @property
    def maps(self) -> tuple[str, ...]:
        """Statements of a program that is one loop."""
        return self.loops[0].maps

    @property
    def transposes(self) -> bool:
        """True if elements are written where those of another row are read: lines of memory are written in columns."""
        return self.output_shape == "N, M"

    @property
    def needs_position(self) -> bool:
        """True if an element's row or column counts."""
        lines = [line for loop in self.loops for line in loop.maps]
        return self.store != plain_store() or any("row" in line or "col" in line for line in lines)

    @property
    def keeps_values(self) -> bool:
        """True if elements are kept from one loop to the next."""
        return len(self.loops) > 1


def plain_store() -> str:
    """Return the statement that writes an element where it was read."""
    return OPERATORS["relu"].store


def kind_of(composition: Composition) -> Kind:
    """Return what the composition needs, after the matrix product if it starts with one."""
    if any(OPERATORS[name].is_reducing for name in composition.names):
        return Kind.ROW
    return Kind.FLAT if composition.head is None else Kind.PRODUCT


def parts(composition: Composition) -> list[Composition]:
    """Return the parts that are a kernel each where all is fused: two if whole rows are needed after a product."""
    names = composition.names
    first = next((place for place, name in enumerate(names) if OPERATORS[name].is_reducing), len(names))
    if composition.head is None or first == len(names):
        return [composition]
    return [Composition(names=names[:first]), Composition(names=names[first:])]


def program(composition: Composition, wrong: Collection[str]) -> Program:
    """Return the program of a part; operators named in `wrong` are written with their mistake."""
    loops: list[Loop] = []
    maps: list[str] = []
    store, result, weight = plain_store(), None, ""
    for name in composition.names:
        operator, is_wrong = OPERATORS[name], name in wrong
        for step in operator.wrong if is_wrong else operator.steps:
            if isinstance(step, Reduce):
                value = f"s{len(loops)}"
                expression = step.expression.format(**_values(len(loops)))
                loops.append(Loop(tuple(maps), Reduce(step.kind, expression), value))
                maps = []
            else:
                maps.append(step.format(**_values(len(loops))))
        store = (operator.wrong_store if is_wrong else None) or operator.store
        chosen = operator.wrong_result if is_wrong else operator.result
        result = None if chosen is None else chosen.format(**_values(len(loops)))
        weight = (operator.wrong_weight if is_wrong else operator.weight) or weight
    if result is None:
        loops.append(Loop(tuple(maps)))
    shape = composition.operators[-1].output_shape.replace("//", "/")
    return Program(_kind(composition), composition.operands, tuple(loops), store, result, shape, weight)


def _kind(composition: Composition) -> Kind:
    return Kind.PRODUCT if composition.head is not None else kind_of(composition)


def _values(reductions: int) -> dict[str, str]:
    """Return the names of the last reduction's value and of the one before."""
    return {"s": f"s{reductions - 1}", "before": f"s{reductions - 2}"}


def keeps_elements(loops: Sequence[Loop], place: int) -> bool:
    """True if a loop writes its elements for the next one: the first does, later ones if they change them."""
    return place + 1 < len(loops) and (place == 0 or bool(loops[place].maps))
