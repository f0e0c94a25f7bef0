"""What a summary and a report are made of: references to what a run published, and what only the flow knows."""

from typing import Any

from pydantic import Field

from kernels_eval.frozen import FrozenModel
from tasks.evaluation.config import EvaluationConfig
from tasks.pipeline.references import CheckpointRef, EvaluationRef, ProblemSetRef, SftDataRef, TrajectoryBatchRef


class IterationEntry(FrozenModel):
    """One RL iteration."""

    iteration: int
    trajectories: TrajectoryBatchRef
    """The validated batch."""
    checkpoint: CheckpointRef
    """The policy that was updated on it."""
    quarantined: int = 0
    """Trajectories that validation took out."""


class ReportInputs(FrozenModel):
    """Everything that the summary and the report read."""

    run_id: str
    configuration: dict[str, Any]
    """The resolved configuration, as JSON."""
    problems: ProblemSetRef
    sft_data: SftDataRef
    sft: CheckpointRef
    iterations: tuple[IterationEntry, ...]
    before: EvaluationRef
    """The policy that RL started from."""
    after: EvaluationRef
    """The last policy."""
    control: EvaluationRef | None = None
    """The same extra time spent on more SFT, where that was run."""
    evaluation_config: EvaluationConfig = EvaluationConfig()
    stage_seconds: dict[str, float]
    """Wall seconds of the computation of each stage, in order; of the earlier run where it was cached."""
    overhead_seconds: float | None = None
    """Wall seconds beside the stages' computation: Prefect, Ray, cache, start. None: wall − stages."""
    wall_seconds: float | None = None
    """Wall seconds of the flow."""
    data_docs: dict[str, str] = Field(default_factory=dict[str, str])
    """Title and path of each Data Docs page; paths relative to the run's folder, or absolute."""
    links: dict[str, str] = Field(default_factory=dict[str, str])
    """Further titles and addresses, e.g. the W&B run."""
