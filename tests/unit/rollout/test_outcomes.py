"""Outcome of each shape of answer, from sampled tokens to the stored turn: verdict, reason, reward, and what is said of it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from kernels_eval.verdict import Status
from tasks.problems.row import Split
from tasks.rollout.config import EpisodeConfig, SamplingConfig
from tasks.rollout.engines import FinishReason, Generation, GenerationRequest
from tasks.rollout.episode import RolloutContext, plan_episodes
from tasks.rollout.episode_loop import EpisodeLoop
from tasks.rollout.judge_client import JudgeClient
from tasks.rollout.prompts import answer_text
from tasks.trajectories.schema import Trajectory

KERNEL = "class ModelNew:\n    x = 9\n"
OTHER = "class ModelNew:\n    x = 4\n"
BLOCK, OTHER_BLOCK = answer_text(KERNEL), answer_text(OTHER)
Tokenizers = Callable[[str], Any]


class Saying:
    """Gives every request the same text."""

    cohort_size = 8
    context_tokens = 4096

    def __init__(self, tokenizer: Any, text: str, reason: FinishReason) -> None:
        ids = tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
        self.ids = (*ids, tokenizer.eos_token_id) if reason is FinishReason.STOP else ids
        self.reason = reason

    async def generate(
        self, requests: Sequence[GenerationRequest], sampling: SamplingConfig
    ) -> AsyncIterator[tuple[int, Generation]]:
        for index in range(len(requests)):
            yield index, Generation(self.ids, (-0.1,) * len(self.ids), self.reason, 0.1)

    async def close(self) -> None:
        pass


def played(
    simulation: Any, tokenizer: Any, text: str, reason: FinishReason = FinishReason.STOP, *, thinking: bool = False
) -> Trajectory:
    episode = EpisodeConfig(prompt="source", feedback="brief", max_turns=2, success_reward=9, thinking=thinking)
    context = RolloutContext("run", "d", tokenizer, episode, SamplingConfig(), "triton")
    judge_client = JudgeClient(simulation.FaultyJudge(), simulation.reward_on, 5)
    episode_loop = EpisodeLoop(context, Saying(tokenizer, text, reason), judge_client)
    (trajectory,) = asyncio.run(episode_loop.run(plan_episodes(simulation.problem_rows(1), Split.TRAIN, 1, 1, 1, 0)))
    return trajectory


@pytest.mark.parametrize(
    ("text", "reason", "kernel", "category"),
    [
        (BLOCK, "stop", KERNEL, None),
        (f"Here:\n{BLOCK}\nIt is fast.", "stop", KERNEL, None),
        (f"{OTHER_BLOCK}\nbetter:\n{BLOCK}", "stop", KERNEL, None),
        ("I cannot do that.", "stop", None, "no_code_block"),
        # Without an end: the whole block if the policy stopped there, none of it if it was cut off.
        (BLOCK[:-4], "stop", KERNEL, None),
        (BLOCK[:-4], "length", None, "truncated_answer"),
        # A whole block before the cut counts: the limit took only what came after it.
        (f"{BLOCK}\nand now", "length", KERNEL, None),
        (f"<think>\nlet me see\n</think>\n\n{BLOCK}", "stop", KERNEL, None),
        (f"<think>\nperhaps {OTHER_BLOCK}", "length", None, "unfinished_reasoning"),
        (f"<think>\nperhaps {OTHER_BLOCK}", "stop", None, "unfinished_reasoning"),
    ],
)
def test_each_shape_of_answer_has_one_outcome(
    simulation: Any, family_tokenizer: Tokenizers, text: str, reason: str, kernel: str | None, category: str | None
) -> None:
    tokenizer = family_tokenizer("qwen3")
    trajectory = played(simulation, tokenizer, text, FinishReason(reason), thinking=True)
    turn = trajectory.turns[0]
    assert turn.kernel_source == kernel
    assert turn.response_text == text
    if kernel is None:
        assert (turn.verdict.status, turn.verdict.error_category) == (Status.COMPILE_ERROR, category)
        assert turn.reward == 0, "the policy's own doing: no fault"
    else:
        assert turn.verdict.status is Status.CORRECT
        assert turn.reward is not None


@pytest.mark.parametrize(("template", "thinking"), [("qwen3-thinking", False), ("qwen3-thinking", True)])
def test_a_thought_that_the_prompt_opened_and_nobody_ended_is_no_answer(
    simulation: Any, family_tokenizer: Tokenizers, template: str, thinking: bool
) -> None:
    """The opening tag is the prompt's, so that the response alone looks like an answer with code in it."""
    tokenizer = family_tokenizer(template)
    trajectory = played(
        simulation, tokenizer, f"perhaps\n{OTHER_BLOCK}\nor not", FinishReason.LENGTH, thinking=thinking
    )
    assert [turn.kernel_source for turn in trajectory.turns] == [None, None]
    assert {turn.verdict.error_category for turn in trajectory.turns} == {"unfinished_reasoning"}
    ended = played(simulation, tokenizer, f"perhaps\n{OTHER_BLOCK}\n</think>\n\n{BLOCK}", thinking=thinking)
    assert [turn.kernel_source for turn in ended.turns] == [KERNEL, KERNEL]
    second = tokenizer.decode(ended.turns[1].prompt_token_ids)
    assert "perhaps" not in second, "earlier reasoning is dropped"
    assert not ended.turns[1].prompt_extends_previous


def test_where_no_thought_is_opened_none_is_missed(simulation: Any, small_tokenizer: Any) -> None:
    for text in (BLOCK, f"so </think>\n{BLOCK}"):
        assert played(simulation, small_tokenizer, text).turns[0].kernel_source == KERNEL
