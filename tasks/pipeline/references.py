"""References to published artifacts, which are what passes between stages, and the progress callback of a stage."""

from pathlib import Path
from typing import Protocol

from kernels_eval.frozen import FrozenModel


class ArtifactRef(FrozenModel):
    """A published folder: its absolute path (to be rewritten if the store is moved) and the digest of its content."""

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
    """A policy: a Hugging Face folder (config, safetensors, tokenizer), with optimizer state if it can be resumed."""

    weight_version: int = 0
    """Number of RL iterations behind these weights."""


class TrajectoryBatchRef(ArtifactRef):
    """The trajectories of one iteration: `trajectories.parquet` and `turns.parquet` (tasks.trajectories)."""

    run_id: str
    iteration: int
    trajectories: int
    turns: int


class EvaluationRef(ArtifactRef):
    """One policy on the held-out problems: `evaluation.json`, and its trajectories as two Parquet tables."""

    policy_digest: str


class Progress(Protocol):
    """Callback of a long stage, called from time to time."""

    def __call__(self, done: int, total: int, **figures: float) -> None:
        """Report `done` of `total` units; `figures` are named numbers, e.g. `loss=1.25, tokens_per_s=9500`."""


def silent(done: int, total: int, **figures: float) -> None:
    """Ignore progress."""
