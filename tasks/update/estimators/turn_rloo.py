"""RLOO for each turn: its return less the mean of its peers' returns."""

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from tasks.update.doors import estimator

if TYPE_CHECKING:
    from torch import Tensor


@estimator(compares="turns")
def advantages(scores: "Tensor", groups: Sequence[Hashable], mask: "Tensor") -> "Tensor":
    """Return [B, K] from scores [B, K]."""
    from tasks.update import advantages as formulas

    return formulas.turn_rloo(scores, groups, mask=mask)
