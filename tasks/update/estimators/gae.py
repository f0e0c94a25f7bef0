"""PPO's generalised advantage estimation, with a critic that the update trains. Schulman et al. 2016, eq. 16."""

from typing import TYPE_CHECKING

from tasks.update.doors import estimator

if TYPE_CHECKING:
    from torch import Tensor

    from tasks.update.config import UpdateConfig


@estimator(compares="nothing", critic=True)
def advantages(
    rewards: "Tensor", mask: "Tensor", settings: "UpdateConfig", values: "Tensor"
) -> tuple["Tensor", "Tensor"]:
    """Return (whitened advantages, targets of the values), each [B, T]; `update.gamma`, `update.gae_lambda`."""
    from tasks.update.advantages import gae

    return gae(rewards, values, mask, settings.gamma, settings.gae_lambda, whiten=True)
