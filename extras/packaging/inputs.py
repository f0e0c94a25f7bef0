"""Input of a package: the policy, the settings and references of its run, and what only the user knows."""

from typing import Any

from pydantic import Field

from kernels_eval.config import JudgeConfig
from kernels_eval.frozen import FrozenModel
from tasks.evaluation.config import EvaluationConfig
from tasks.pipeline.references import CheckpointRef, EvaluationRef, ProblemSetRef, SftDataRef, TrajectoryBatchRef
from tasks.rollout.config import RolloutConfig


class PackageInputs(FrozenModel):
    """A policy of a run, and what a reader of its model card should know."""

    run_id: str
    policy: CheckpointRef
    settings: dict[str, Any]
    """The run's configuration as it is packaged: without paths and settings of the machine."""
    rollout: RolloutConfig
    judge: JudgeConfig
    evaluation: EvaluationConfig
    problem_source: str
    """`problems.source`."""
    problems: ProblemSetRef
    sft_data: SftDataRef | None
    """None: no SFT, RL started from a given policy."""
    batches: tuple[TrajectoryBatchRef, ...]
    """Training trajectories behind the policy, one batch an iteration."""
    sampled: dict[int, EvaluationRef] = Field(default_factory=dict[int, EvaluationRef])
    """Held-out evaluations of the run with sampled answers, by weight version."""
    greedy: dict[int, EvaluationRef] = Field(default_factory=dict[int, EvaluationRef])
    """The same with greedy answers."""
    base_model: str | None = None
    """Name of the model that the run started from; None: random weights."""
    license: str | None = None
    """Identifier of the licence of the weights; None: that of the base model, Apache-2.0 without one."""

    @property
    def version(self) -> int:
        """Weight version of the policy."""
        return self.policy.weight_version

    @property
    def is_evaluated(self) -> bool:
        """True if the policy itself was evaluated on held-out problems."""
        return self.version in self.sampled or self.version in self.greedy

    @property
    def evaluations(self) -> dict[str, EvaluationRef]:
        """The evaluations that the card shows, by what they are of."""
        shown = sorted({0, self.version}) if self.is_evaluated else []
        kinds = (("sampled", self.sampled), ("greedy", self.greedy))
        return {f"{kind} {version}": found[version] for kind, found in kinds for version in shown if version in found}
