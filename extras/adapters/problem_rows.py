"""Problems as rows of a data set, in the columns that the adapters read.

These are `prompt` (the first prompt as chat messages), `problem_id`, `problem_source` and `level`. Any of our sources
serves (docs/problems.md). The split is ours: a problem that is held out here is held out in every trainer.
"""

from typing import Any

from extras.adapters.kernel_episode import ChatMessage, chat_messages
from kernels_eval.problem import Problem
from tasks.problems.config import ProblemsConfig
from tasks.problems.row import Split
from tasks.rollout.config import EpisodeConfig
from tasks.rollout.prompts import prompt_messages


def first_prompt(problem_source: str, episode: EpisodeConfig, backend: str = "triton") -> list[ChatMessage]:
    """Return the first prompt as chat messages."""
    return chat_messages(prompt_messages(problem_source, [], episode, backend))


def problem_rows(
    config: ProblemsConfig, episode: EpisodeConfig | None = None, split: Split = Split.TRAIN, backend: str = "triton"
) -> list[dict[str, Any]]:
    """Return one row for each problem of a split. Raises InputError if the source is bad."""
    from tasks.problems.problem_set import split_problems  # generated problems import torch

    episode = episode or EpisodeConfig()
    found = [row.problem for row in split_problems(config)[0] if row.split is split]
    return [_row(problem, episode, backend) for problem in found]


def problem_of_row(row: dict[str, Any]) -> Problem:
    """Return the problem of a row; `problem_id` and `level` may be missing."""
    return Problem(
        problem_id=str(row.get("problem_id") or "problem"),
        source=row["problem_source"],
        level=int(row.get("level") or 1),
    )


def _row(problem: Problem, episode: EpisodeConfig, backend: str) -> dict[str, Any]:
    return {
        "prompt": first_prompt(problem.source, episode, backend),
        "problem_id": problem.problem_id,
        "problem_source": problem.source,
        "level": problem.level,
    }
