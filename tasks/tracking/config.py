"""Settings of experiment tracking."""

from typing import Literal

from pydantic import Field

from kernels_eval.frozen import FrozenModel


class CollapseConfig(FrozenModel):
    """Limits after each update, beyond which a policy collapses: said in the log, and with `stop` the run ends."""

    kl: float | None = Field(default=0.5, gt=0)
    """Mean KL to the reference policy, nats a response token (`update.kl_coefficient` above 0)."""
    entropy: float | None = Field(default=0.6, gt=0, lt=1)
    """Entropy, as a share of that in the first update."""
    constant_groups: float | None = Field(default=0.5, gt=0, lt=1)
    """Share of an update's groups whose samples all earn the same, so that none of them teaches anything."""
    reward: float | None = Field(default=0.5, gt=0, lt=1)
    """Mean reward of a training batch, as a share of the highest so far."""
    stop: bool = False
    """End the run; it goes on once a limit is raised or set to none."""


class TrackingConfig(FrozenModel):
    """Signs of collapse, and Weights & Biases."""

    collapse: CollapseConfig = CollapseConfig()

    mode: Literal["offline", "online", "disabled"] = "offline"
    project: str = Field(default="kernelmill", min_length=1)
    entity: str | None = None
