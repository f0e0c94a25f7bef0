"""A drawn problem with its kernel, and the family that draws such pairs."""

from collections.abc import Callable
from dataclasses import dataclass

from kernels_eval.frozen import FrozenModel
from tasks.problems.modules.draw import Draw

SEPARATOR = "+"
"""Between the operators of a chain in `ModulePair.operator`."""


class ModulePair(FrozenModel):
    """A problem in KernelBench's format, and a kernel that answers it."""

    family: str
    operator: str
    """Name of the operator; the names of a chain's operators are joined by `SEPARATOR`."""
    title: str
    """The problem in a few words."""
    problem_source: str
    kernel_source: str
    style: str
    """`plain`, or `fast` where the family knows a faster way."""
    earlier_source: str | None = None
    """A slow or wrong kernel that this one is an answer to."""
    slower: tuple[str, ...] = ()
    """Correct kernels for the same problem that take longer, beside those of `tasks.problems.modules.slow_forms`."""

    @property
    def operators(self) -> tuple[str, ...]:
        """Names of all operators of the problem."""
        return tuple(self.operator.split(SEPARATOR))


@dataclass(frozen=True)
class Family:
    """Operators whose pairs one function draws."""

    name: str
    operators: tuple[str, ...]
    """All that `draw` may use; one that the caller names as unseen is in no pair."""
    draw: Callable[[Draw, frozenset[str]], ModulePair]
    needed: tuple[str, ...] = ()
    """Operators of which `draw` needs one at least; none: of all of them."""

    def can_draw(self, unseen: frozenset[str]) -> bool:
        """Return True if an operator is left that `draw` can begin with."""
        return not set(self.needed or self.operators) <= unseen
