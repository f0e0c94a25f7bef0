"""REINFORCE++: discounted returns per token, whitened over the batch; no groups are needed. Hu 2025."""

from typing import TYPE_CHECKING

from tasks.update.doors import estimator

if TYPE_CHECKING:
    from torch import Tensor

    from tasks.update.config import UpdateConfig


@estimator(compares="nothing")
def advantages(rewards: "Tensor", mask: "Tensor", settings: "UpdateConfig") -> "Tensor":
    """Return [B, T] from rewards [B, T]; `update.gamma` discounts from token to token."""
    from tasks.update.advantages import reinforce_plus_plus

    return reinforce_plus_plus(rewards, mask, settings.gamma)[0]
