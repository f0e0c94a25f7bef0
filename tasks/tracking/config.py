"""Settings of experiment tracking."""

from typing import Annotated, Literal

from pydantic import Field

from kernels_eval.doors import Door
from kernels_eval.frozen import FrozenModel


class CollapseConfig(FrozenModel):
    """Limits after each update, beyond which a policy collapses: said in the log, and with `stop` the run ends."""

    kl: float | None = Field(default=0.5, gt=0)
    """Mean KL to the reference policy, nats a response token (`update.kl_coefficient` above 0)."""
    entropy: float | None = Field(default=0.6, gt=0, lt=1)
    """Entropy, as a share of that in the first update."""
    constant_groups: float | None = Field(default=0.5, gt=0, lt=1)
    """Share of an update's groups whose samples all earn the same, so that none of them teaches anything. A run that
    begins above it, as easy problems let it, shows a sign halfway between its first share and 1."""
    reward: float | None = Field(default=0.5, gt=0, lt=1)
    """Mean reward of a training batch, as a share of the highest so far."""
    stop: bool = False
    """End the run; it goes on once a limit is raised or set to none."""


TRACKER = Door(
    "tracker",
    {"wandb": "tasks.tracking.wandb_run:started"},
    "a function (config, run) -> tracker with log, finish, address and next_row",
)


class TrackingConfig(FrozenModel):
    """Signs of collapse, and the tracker of a run's figures: Weights & Biases."""

    collapse: CollapseConfig = CollapseConfig()

    backend: Annotated[str, TRACKER] = "wandb"
    """Tracker of the figures beside the run's own record: Weights & Biases, or one of your own: `my_trackers:lines`
    (docs/doors.md)."""
    mode: Literal["offline", "online", "disabled"] = "offline"
    project: str = Field(default="kernelmill", min_length=1)
    entity: str | None = None
