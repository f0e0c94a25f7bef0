"""A composition: the sequence of operators that a generated problem computes. It decides family, level and split."""

import random
from collections.abc import Sequence

from kernels_eval.errors import InputError
from kernels_eval.frozen import FrozenModel
from tasks.problems.synthetic.operators import ALL, BY_NAME, CANONICAL, MATMUL, Family, Operator, Place

_BODY = tuple(operator for operator in ALL if operator.place is Place.BODY)
_TAIL = tuple(operator for operator in ALL if operator.place is Place.TAIL)
MATMUL_SHARE = 0.6
"""Share of blocks that start with a matrix product."""
TAIL_SHARE = 0.25
"""Share of chains that end in a reduction or a change of layout."""


class Composition(FrozenModel):
    """Operator names in the order in which they are applied."""

    names: tuple[str, ...]

    @property
    def operators(self) -> tuple[Operator, ...]:
        """The operators themselves."""
        return tuple(BY_NAME[name] for name in self.names)

    @property
    def key(self) -> str:
        """The composition as text, e.g. `linear>relu>softmax`."""
        return ">".join(self.names)

    @property
    def canonical(self) -> tuple[str, ...]:
        """The names, with one name for operators that the split treats as one (CANONICAL)."""
        return tuple(CANONICAL.get(name, name) for name in self.names)

    @property
    def parts(self) -> set[tuple[str, ...]]:
        """Every contiguous part of the canonical names, the whole among them."""
        names = self.canonical
        return {names[start:end] for start in range(len(names)) for end in range(start + 1, len(names) + 1)}

    @property
    def family(self) -> Family:
        """The most demanding operator's family."""
        present = {operator.family for operator in self.operators}
        return next(family for family in Family if family in present)

    @property
    def head(self) -> Operator | None:
        """The matrix product that it starts with, if any."""
        first = self.operators[0]
        return first if first.place is Place.HEAD else None

    @property
    def operands(self) -> tuple[str, ...]:
        """Extra tensors, in the order in which kernels take them."""
        used = {operator.operand for operator in self.operators}
        return tuple(name for name in ("weight", "y", "c", "scale", "bias") if name in used)

    @property
    def level(self) -> int:
        """1: one operator; 3: a block (a matrix product with an epilogue, or five operators and more); 2: a chain."""
        if len(self.names) == 1:
            return 1
        return 3 if self.head is not None or len(self.names) >= 5 else 2


def parse_composition(key: str) -> Composition:
    """Return the composition that `key` names; InputError for an unknown operator."""
    names = tuple(key.split(">"))
    unknown = [name for name in names if name not in BY_NAME]
    if unknown:
        raise InputError(f"composition {key!r}: unknown operator {unknown[0]!r}; known: {', '.join(sorted(BY_NAME))}")
    return Composition(names=names)


def draw_composition(level: int, generator: random.Random, further: int = 0) -> Composition:
    """Draw a composition of the given level: no operator twice, no operand twice.

    `further`: operators more than those of the longest composition that is drawn without it (level 3 alone).
    """
    if level == 1:
        return Composition(names=(generator.choice(ALL).name,))
    head: Sequence[Operator] = ()
    if level == 2:
        length = generator.randint(2, 4)
    elif generator.random() < MATMUL_SHARE:
        head = (generator.choice(MATMUL),)
        length = generator.randint(2, 5) if not further else 5 + further
    else:
        length = generator.randint(5, 6) if not further else 6 + further
    tail: Sequence[Operator] = (generator.choice(_TAIL),) if generator.random() < TAIL_SHARE else ()
    body = _draw_body(length - len(head) - len(tail), generator)
    return Composition(names=tuple(operator.name for operator in (*head, *body, *tail)))


def _draw_body(length: int, generator: random.Random) -> list[Operator]:
    body: list[Operator] = []
    operands: set[str] = set()
    while len(body) < length:
        # Families with few members would drown among the element-wise ones: draw the family first, half of the time.
        pool = _BODY
        if generator.random() < 0.5:
            family = generator.choice(
                [Family.BROADCAST, Family.ROW_STATISTIC, Family.SOFTMAX, Family.NORMALISATION, Family.SCALAR]
            )
            pool = tuple(operator for operator in _BODY if operator.family is family)
        operator = generator.choice(pool)
        if operator in body or (operator.operand is not None and operator.operand in operands):
            continue
        # One kind of second input at a time: forward(x, y) or forward(x, c).
        if operator.operand in {"y", "c"} and operands & {"y", "c"}:
            continue
        body.append(operator)
        if operator.operand is not None:
            operands.add(operator.operand)
    return body
