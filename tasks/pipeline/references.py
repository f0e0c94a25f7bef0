"""References to published artifacts, which are what passes between stages, and the progress callback of a stage."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, Self

from kernels_eval.frozen import FrozenModel


class ArtifactRef(FrozenModel):
    """A published folder: its absolute path, and the digest of its content."""

    uri: str
    digest: str

    @property
    def path(self) -> Path:
        """The folder."""
        return Path(self.uri)

    def stored_in(self, folder: Path) -> Self:
        """Return the reference as it is stored in a folder of runs, which can be moved: its path is relative to it."""
        return self.model_copy(update={"uri": stored_path(self.uri, folder)})

    def found_in(self, folder: Path) -> Self:
        """Return a stored reference with the absolute path that it has in this folder of runs."""
        return self.model_copy(update={"uri": found_path(self.uri, folder)})


def stored_path(path: str, folder: Path) -> str:
    """Return a path relative to `folder` if it lies in it, else as it is."""
    return os.path.relpath(path, folder) if Path(path).is_relative_to(folder) else path


def found_path(path: str, folder: Path) -> str:
    """Return the absolute path of a stored one; an absolute one, as earlier versions stored them, stays."""
    return str(folder / path)


def with_paths(value: Any, change: Callable[[str], str]) -> Any:
    """Return JSON values in which `change` was applied to the path of every reference, at any depth."""
    if isinstance(value, dict):
        inner = {key: with_paths(item, change) for key, item in value.items()}
        return inner | {"uri": change(inner["uri"])} if inner.keys() >= {"uri", "digest"} else inner
    return [with_paths(item, change) for item in value] if isinstance(value, list) else value


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
