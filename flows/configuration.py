"""The configuration of a run: one typed tree, from a YAML file and `--set a.b=c` overrides."""

import difflib
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, Field, ValidationError

from kernels_eval.config import JudgeConfig
from kernels_eval.errors import InputError
from kernels_eval.settings import FrozenModel
from tasks.evaluation.config import EvaluationConfig
from tasks.models.config import ModelConfig
from tasks.problems.config import ProblemsConfig
from tasks.rollout.config import RolloutConfig
from tasks.sft.config import SftConfig
from tasks.store import digest_of
from tasks.tracking.config import TrackingConfig
from tasks.update.config import UpdateConfig
from tasks.validation.config import ValidationConfig


class RayConfig(FrozenModel):
    """Where the work runs."""

    address: str | None = None
    """Address of a Ray cluster (`ray://host:10001` or `host:6379`); none: a local one is started."""
    cpus: int | None = Field(default=None, ge=1)
    """CPUs of the local cluster; none: as many as the machine has."""
    object_store_mb: int = Field(default=200, ge=80)
    """Object store of the local cluster; stages pass references, so that little is needed."""


class RunConfig(FrozenModel):
    """Everything that decides what a run does."""

    name: str = Field(default="local", pattern=r"^[a-z0-9][a-z0-9._-]*$")
    seed: int = Field(default=0, ge=0)
    """Seed of every stage that does not set its own."""
    iterations: int = Field(default=8, ge=0)
    """RL iterations."""
    runs_dir: str = "runs"
    """Folder of everything that runs write."""
    problems: ProblemsConfig = ProblemsConfig()
    model: ModelConfig = ModelConfig()
    sft: SftConfig = SftConfig()
    rollout: RolloutConfig = RolloutConfig()
    judge: JudgeConfig = JudgeConfig()
    validation: ValidationConfig = ValidationConfig()
    update: UpdateConfig = UpdateConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    tracking: TrackingConfig = TrackingConfig()
    ray: RayConfig = RayConfig()

    @property
    def run_id(self) -> str:
        """`<name>-<digest>` of what decides the result: the same configuration names the same run, which then resumes."""
        decisive = self.model_dump(mode="json", exclude={"runs_dir", "tracking", "ray"})
        return f"{self.name}-{digest_of(decisive)[:8]}"
