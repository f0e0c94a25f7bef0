"""Dr. GRPO: a trajectory's return less its group's mean. Liu et al. 2025."""

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from tasks.update.doors import estimator

if TYPE_CHECKING:
    from torch import Tensor


@estimator(compares="trajectories")
def advantages(scores: "Tensor", groups: Sequence[Hashable], mask: "Tensor") -> "Tensor":
    """Return [B, K] from scores [B]: the same for all turns of a trajectory."""
    from tasks.update import advantages as formulas

    return formulas.dr_grpo(scores, groups, mask)
