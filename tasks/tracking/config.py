"""Settings of experiment tracking."""

from typing import Literal

from pydantic import Field

from kernels_eval.frozen import FrozenModel


class TrackingConfig(FrozenModel):
    """Weights & Biases."""

    mode: Literal["offline", "online", "disabled"] = "offline"
    project: str = Field(default="kernelmill", min_length=1)
    entity: str | None = None
