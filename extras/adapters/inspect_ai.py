"""Inspect AI: a solver that shows the policy the judge's feedback, a scorer, and the data set of our problems.

    Task(dataset=kernel_dataset(ProblemsConfig(...)), solver=kernel_turns(settings), scorer=kernel_score(settings))

A sample's score has `correct`, `reward` and `speedup` of its best turn. A fault of the machine is an unscored sample
(NaN), which Inspect leaves out of every metric.
"""

# The peer need not be installed where types are checked.
# pyright: reportMissingImports=false, reportUntypedFunctionDecorator=false, reportUnknownParameterType=false
import functools
import math
from typing import Any

from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessageUser
from inspect_ai.scorer import Score, Target, mean, scorer, stderr
from inspect_ai.solver import Generate, TaskState, solver

from extras.adapters.kernel_episode import KernelEpisode
from extras.adapters.problem_rows import problem_of_row, problem_rows
from extras.adapters.scoring import KernelSettings, Scorer, open_scorer
from tasks.problems.config import ProblemsConfig
from tasks.problems.row import Split

_EPISODE = "kernelmill_episode"
"""Key of a sample's store with the outcome of its turns."""


def kernel_dataset(problems: ProblemsConfig, settings: KernelSettings, split: Split = Split.HELDOUT) -> MemoryDataset:
    """Return the problems of one split as samples; the target is the problem's source."""
    return MemoryDataset(
        [
            Sample(
                id=row["problem_id"],
                input=[ChatMessageUser(content=message["content"]) for message in row["prompt"]],
                target=row["problem_source"],
                metadata={name: row[name] for name in ("problem_id", "problem_source", "level")},
            )
            for row in problem_rows(problems, settings.episode, split, settings.judge.backend)
        ],
        name="kernelmill",
    )


@solver
def kernel_turns(settings: KernelSettings) -> Any:
    """Ask for a kernel, judge it, and ask again with the feedback until the episode ends."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        episode = KernelEpisode(problem_of_row(state.metadata), scorer_of(settings))
        while episode.termination is None:
            state = await generate(state)
            truncated = state.output.stop_reason == "max_tokens"
            usage = state.output.usage
            step = await episode.answer_async(
                state.output.completion, usage.output_tokens if usage is not None else None, truncated
            )
            if step.reply is not None:
                state.messages.append(ChatMessageUser(content=step.reply["content"]))
        state.store.set(_EPISODE, outcome(episode))
        return state

    return solve


@scorer(metrics={"correct": [mean(), stderr()], "reward": [mean(), stderr()], "speedup": [mean()]})
def kernel_score(settings: KernelSettings) -> Any:
    """Score the episode of `kernel_turns`, or with another solver the sample's last answer."""

    async def score(state: TaskState, target: Target) -> Score:
        found = state.store.get(_EPISODE)
        if found is None:
            once = settings.episode.model_copy(update={"task": "kernelbench"})
            single = settings.model_copy(update={"episode": once})
            row = {"problem_source": target.text, **state.metadata}
            episode = KernelEpisode(problem_of_row(row), scorer_of(single))
            usage = state.output.usage
            await episode.answer_async(state.output.completion, usage.output_tokens if usage is not None else None)
            found = outcome(episode)
        if found["reward"] is None:
            nothing = {"correct": math.nan, "reward": math.nan, "speedup": math.nan}
            return Score(value=nothing, reason="judge_fault", explanation=found["explanation"], metadata=found)
        value = {name: found[name] for name in ("correct", "reward", "speedup")}
        return Score(value=value, answer=found["kernel_source"], explanation=found["explanation"], metadata=found)

    return score


def outcome(episode: KernelEpisode) -> dict[str, Any]:
    """Return an episode's outcome as JSON values; its reward is None if the machine failed on a turn."""
    verdicts = [step.scored.verdict for step in episode.steps]
    best = max(range(len(verdicts)), key=lambda turn: episode.rewards[turn] or 0.0)
    return {
        "reward": episode.reward,
        "correct": float(any(verdict.correct for verdict in verdicts)),
        "speedup": max((verdict.speedup or 0.0) for verdict in verdicts),
        "timing_source": verdicts[best].timing_source,
        "turn_rewards": episode.rewards,
        "turn_statuses": [verdict.status.value for verdict in verdicts],
        "kernel_source": episode.steps[best].scored.kernel_source,
        "explanation": verdicts[-1].error_message or verdicts[best].status.value,
    }


def scorer_of(settings: KernelSettings) -> Scorer:
    """Return the process's scorer for these settings; its judge lives as long as the process."""
    return _scorer_of(settings.model_dump_json())


@functools.lru_cache(maxsize=4)
def _scorer_of(settings: str) -> Scorer:
    found = KernelSettings.model_validate_json(settings)
    return open_scorer(found.judge_url, found.judge, found.episode)
