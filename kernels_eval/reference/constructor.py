"""Worker process: the constructor of a problem, which a candidate's may repeat: what it draws, moves, computes."""

from collections.abc import Callable, Sequence
from functools import cached_property

import torch

from kernels_eval.correctness.made_of_weights import MadeOfWeights
from kernels_eval.reference.inputs import same_bytes
from kernels_eval.sandbox.module_state import plain_state


class Constructor:
    """The constructor of one problem. It runs once more for what is asked of it."""

    def __init__(self, build: Callable[[int], torch.nn.Module], weight_seed: int) -> None:
        """`build`: returns a new model, given a seed."""
        self._build, self._seed = build, weight_seed

    def drawn(self, names: Sequence[str]) -> list[str]:
        """Return those of some tensors in plain attributes whose values it draws at random."""
        mine, other = (plain_state(self._build(self._seed + more)) for more in (0, 1)) if names else ({}, {})
        return [name for name in names if name in other and not same_bytes(mine[name], other[name])]

    @property
    def turned(self) -> frozenset[str]:
        """Names of parameters and buffers that it registers transposed, or otherwise than they were drawn."""
        return self._made[0]

    @property
    def computed(self) -> frozenset[str]:
        """Names of tensors that it computes of parameters and buffers."""
        return self._made[1]

    @cached_property
    def _made(self) -> tuple[frozenset[str], frozenset[str]]:
        with MadeOfWeights() as made:
            model = self._build(self._seed)
        return frozenset(made.drawn_for(model)), frozenset(made.computed(model))
