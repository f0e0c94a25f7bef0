"""What passes between stages: small frozen references to published artifacts, never the artifacts themselves."""

from pathlib import Path

from kernels_eval.frozen import FrozenModel


class ArtifactRef(FrozenModel):
    """A published folder (or dataset partition) and the digest of its content.

    `uri` is an absolute path; whoever moves the store moves the references with it.
    """

    uri: str
    digest: str

    @property
    def path(self) -> Path:
        """The folder."""
        return Path(self.uri)


class ProblemSetRef(ArtifactRef):
    """A problem set: `problems.parquet` with train and held-out problems (tasks.problems)."""

    train: int
    heldout: int


class SftDataRef(ArtifactRef):
    """Judged SFT conversations: `pairs.parquet` (tasks.sft)."""

    pairs: int
    verified: bool


class CheckpointRef(ArtifactRef):
    """A policy: a Hugging Face folder (config, safetensors, tokenizer), plus optimizer state where it can be resumed."""

    weight_version: int = 0
    """How many RL iterations these weights have seen."""


class TrajectoryBatchRef(ArtifactRef):
    """The trajectories of one iteration: `trajectories.parquet` and `turns.parquet` (tasks.trajectories)."""

    run_id: str
    iteration: int
    trajectories: int
    turns: int


class EvaluationRef(ArtifactRef):
    """One policy on the held-out problems: `evaluation.json`, and its trajectories as two Parquet tables."""

    policy_digest: str
