"""Evaluation of a model with Inspect AI: inspect eval docs/examples/inspect_kernels.py --model PROVIDER/MODEL

Needs the extra `inspect`. Parameters with -T, e.g. `-T turns=3 -T problems=32 -T judge_url=http://127.0.0.1:18188`.
"""

from inspect_ai import Task, task

from extras.adapters.inspect_ai import KernelSettings, kernel_dataset, kernel_score, kernel_turns
from tasks.problems.config import ProblemsConfig
from tasks.rollout.config import EpisodeConfig


@task
def kernels(
    source: str = "generated",
    path: str | None = None,
    problems: int = 96,
    turns: int = 1,
    prompt: str = "instruct",
    judge_url: str | None = None,
) -> Task:
    """Held-out problems; `source` and `path` as in docs/problems.md."""
    episode = EpisodeConfig.model_validate({"max_turns": turns, "prompt": prompt})
    settings = KernelSettings(judge_url=judge_url, episode=episode)
    config = ProblemsConfig.model_validate({"source": source, "path": path, "heldout": problems})
    return Task(dataset=kernel_dataset(config, settings), solver=kernel_turns(settings), scorer=kernel_score(settings))
