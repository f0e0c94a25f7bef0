"""GRPO for each turn: its return less its peers' mean, over their standard deviation."""

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from tasks.update.doors import estimator

if TYPE_CHECKING:
    from torch import Tensor


@estimator(compares="turns")
def advantages(scores: "Tensor", groups: Sequence[Hashable], mask: "Tensor") -> "Tensor":
    """Return [B, K] from scores [B, K]."""
    from tasks.update import advantages as formulas

    return formulas.turn_grpo(scores, groups, mask=mask)
