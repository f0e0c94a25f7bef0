"""The history's token budget: held, with whole parts only, and no prompt claims to extend what it does not."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernels_eval.verdict import Status, Verdict
from tasks.models.chat import encode_prompt
from tasks.models.chat_templates import Role
from tasks.problems.row import Split
from tasks.rollout.config import EpisodeConfig, SamplingConfig
from tasks.rollout.engines import FinishReason, Generation
from tasks.rollout.episode import RolloutContext, plan_episodes
from tasks.rollout.episode_loop import EpisodeLoop
from tasks.rollout.judge_client import JudgeClient
from tasks.rollout.kernel_extraction import extract_kernel, without_reasoning
from tasks.rollout.prompts import (
    LEFT_OUT,
    NO_KERNEL,
    UNFINISHED,
    HistoryTurn,
    answer_text,
    compressed,
    ladder,
    prompt_messages,
)
from tasks.trajectories.schema import Turn

WRONG = Verdict(
    status=Status.INCORRECT, compiled=True, error_category="wrong_values", error_message="output[3]:\nexpected 1"
)
LINES = st.lists(st.sampled_from(["x = 1", "    y = x", "", "# ```", "'''```'''", "é = 'ü'"]), min_size=1, max_size=8)


@st.composite
def turns(draw: Any) -> HistoryTurn:
    kernel = draw(st.none() | LINES.map(lambda lines: "class ModelNew:\n    pass\n" + "\n".join(lines) + "\n"))
    answer = "I cannot." if kernel is None else f"Here it is.\n{answer_text(kernel)}\nIt is fast."
    thought = draw(st.sampled_from(["", "<think>\nlong thought\n</think>\n\n", "<think>no end "]))
    if thought.startswith("<think>no"):
        kernel, answer = None, ""
    return HistoryTurn(response_text=thought + answer, kernel_source=kernel, verdict=WRONG, reward=0.1)


def told(history: list[HistoryTurn], episode: EpisodeConfig) -> list[str]:
    return [message.content for message in prompt_messages("class Model: ...\n", history, episode)[1:]]


@given(history=st.lists(turns(), min_size=1, max_size=5), style=st.sampled_from(["full", "brief", "none"]))
def test_each_rung_is_made_of_whole_parts(history: list[HistoryTurn], style: str) -> None:
    episode = EpisodeConfig.model_validate({"feedback": style})
    rungs = list(ladder(history))
    assert len(rungs) == len(history) + 2
    whole = prompt_messages("class Model: ...\n", history, episode)
    for place, rung in enumerate(rungs):
        messages = prompt_messages("class Model: ...\n", rung, episode)[1:]
        assert [message.role for message in messages] == [Role.ASSISTANT, Role.USER] * len(rung)
        kept = history[len(history) - len(rung) :]
        for turn, answer, reply in zip(kept, messages[::2], messages[1::2], strict=True):
            # A code block is there as it was, or not at all.
            assert extract_kernel(answer.content) in (turn.kernel_source, None)
            if answer.content not in (LEFT_OUT, NO_KERNEL, UNFINISHED):
                assert extract_kernel(answer.content) == turn.kernel_source
            assert "thought" not in answer.content
            newest_whole = turn is kept[-1] and place < len(history)
            if newest_whole:
                assert reply.content == whole[-1].content, "the newest turn's feedback is whole"
            else:
                assert "\n" not in reply.content, "one line"
                assert (style == "none") == ("incorrect" not in reply.content)


def test_the_first_rung_that_fits_is_taken_and_nothing_if_none_does() -> None:
    history = [
        HistoryTurn(response_text=answer_text("x\n"), kernel_source="x\n", verdict=WRONG, reward=0.1) for _ in range(3)
    ]
    rungs = list(ladder(history))
    assert compressed(history, lambda _: True) == rungs[0]
    assert compressed(history, lambda rung: len(rung) <= 1) == rungs[2]
    assert compressed(history, lambda _: False) == []


class Recorder:
    def __init__(self) -> None:
        self.prompts: dict[tuple[str, int], Any] = {}

    def log_turn(self, problem_id: str, messages: Any, turn: Turn, details: dict[str, Any]) -> None:
        self.prompts[details["trajectory_id"], turn.turn_index] = list(messages)

    def log_trajectory(self, trajectory: Any, messages: Any, gamma: float) -> None:
        pass


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("family", ["own", "qwen2.5", "qwen3", "llama3.1"])
@given(budget=st.integers(0, 400), seed=st.integers(0, 99), full=st.booleans())
def test_prompts_keep_to_the_budget_and_say_what_they_are(
    simulation: Any,
    small_tokenizer: Any,
    family_tokenizer: Callable[[str], Any],
    family: str,
    budget: int,
    seed: int,
    full: bool,
) -> None:
    tokenizer = small_tokenizer if family == "own" else family_tokenizer(family)
    episode = EpisodeConfig(
        prompt="source",
        feedback="full" if full else "brief",
        max_turns=5,
        success_reward=9,
        max_zero_turns=9,
        history_tokens=budget,
    )
    context = RolloutContext("run", "digest", tokenizer, episode, SamplingConfig(), "triton")
    recorder = Recorder()
    engine = simulation.FaultyEngine(tokenizer, seed=seed)
    episode_loop = EpisodeLoop(
        context, engine, JudgeClient(simulation.FaultyJudge(), simulation.reward_on, 9), logs=[recorder]
    )
    trajectories = asyncio.run(episode_loop.run(plan_episodes(simulation.problem_rows(2), Split.TRAIN, 2, 2, 1, seed)))
    for trajectory in trajectories:
        assert len(trajectory.turns) == 5
        first = len(trajectory.turns[0].prompt_token_ids)
        for turn, following in itertools.pairwise(trajectory.turns):
            begin = (*turn.prompt_token_ids, *turn.response_token_ids)
            extends = following.prompt_token_ids[: len(begin)] == begin
            assert following.prompt_extends_previous <= extends, "never claimed wrongly"
            messages = recorder.prompts[trajectory.trajectory_id, following.turn_index]
            if not budget:
                assert len(messages) == 1 + 2 * following.turn_index
                assert following.prompt_extends_previous == (family != "qwen3")
                continue
            assert len(following.prompt_token_ids) - first <= budget
            if not following.prompt_extends_previous:
                assert list(following.prompt_token_ids) == encode_prompt(tokenizer, messages)


PARTS = st.sampled_from(
    ["Here:\n", "```python\nclass ModelNew:\n    x = 'ü\U0001f600'\n```", "```\nhalf", "````python\nx = '```'\n````", "<think>hm</think>\n",
     "<think>", "<|im_end|>", "<|im_start|>user\n", "e\u0301", "\n\n", "  ", "word " * 12]
)  # fmt: skip
ANSWERS = st.lists(st.lists(PARTS, max_size=4).map("".join), min_size=1, max_size=3)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("family", ["own", "qwen3", "llama3.1"])
@given(budget=st.integers(1, 200), answers=ANSWERS, complaint=st.lists(PARTS, max_size=3).map("".join))
def test_whatever_is_answered_a_budget_holds_and_nothing_is_cut(
    small_tokenizer: Any,
    family_tokenizer: Callable[[str], Any],
    family: str,
    budget: int,
    answers: list[str],
    complaint: str,
    simulation: Any,
) -> None:
    tokenizer = small_tokenizer if family == "own" else family_tokenizer(family)

    class Engine(simulation.FaultyEngine):
        def respond(self, request: Any) -> Any:
            text = answers[request.seed % len(answers)]
            ids = tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
            return Generation((*ids, tokenizer.eos_token_id), (-0.5,) * (len(ids) + 1), FinishReason.STOP, 0.1)

    class Judge:
        async def evaluate_async(self, problem: Any, kernel_source: str) -> Verdict:
            return WRONG.model_copy(update={"error_message": complaint})

    episode = EpisodeConfig(
        prompt="source", feedback="full", max_turns=4, success_reward=9, max_zero_turns=9, history_tokens=budget
    )
    context = RolloutContext("run", "digest", tokenizer, episode, SamplingConfig(), "triton")
    recorder = Recorder()
    episode_loop = EpisodeLoop(
        context, Engine(tokenizer), JudgeClient(Judge(), simulation.reward_on, 9), logs=[recorder]
    )
    (trajectory,) = asyncio.run(episode_loop.run(plan_episodes(simulation.problem_rows(1), Split.TRAIN, 1, 1, 1, 0)))
    assert len(trajectory.turns) == 4
    whole = {NO_KERNEL, LEFT_OUT, UNFINISHED}
    for turn in trajectory.turns:
        assert len(turn.prompt_token_ids) - len(trajectory.turns[0].prompt_token_ids) <= budget
        messages = recorder.prompts[trajectory.trajectory_id, turn.turn_index]
        assert {message.content for message in messages if message.role is Role.ASSISTANT} <= whole
        if not turn.prompt_extends_previous:
            assert list(turn.prompt_token_ids) == encode_prompt(tokenizer, messages)
        rest = without_reasoning(turn.response_text)
        whole |= {turn.response_text, rest or "", (rest or "").strip("\n")}
        whole |= set() if turn.kernel_source is None else {answer_text(turn.kernel_source)}


def test_a_compressed_prompt_is_carried_on(simulation: Any, small_tokenizer: Any) -> None:
    """Compression costs one break, not one a turn: the next prompt extends the compressed one while there is room."""
    episode = EpisodeConfig(
        prompt="source", feedback="brief", max_turns=12, success_reward=9, max_zero_turns=99, history_tokens=300
    )
    context = RolloutContext("r", "d", small_tokenizer, episode, SamplingConfig(), "triton")
    episode_loop = EpisodeLoop(
        context,
        simulation.FaultyEngine(small_tokenizer),
        JudgeClient(simulation.FaultyJudge(), simulation.reward_on, 9),
    )
    (trajectory,) = asyncio.run(episode_loop.run(plan_episodes(simulation.problem_rows(1), Split.TRAIN, 1, 1, 1, 3)))
    breaks = [turn.turn_index for turn in trajectory.turns if not turn.prompt_extends_previous]
    assert 1 <= len(breaks) <= 5


def test_with_a_budget_a_small_context_compresses_instead_of_ending(simulation: Any, small_tokenizer: Any) -> None:
    ends = {}
    for budget in (0, 10_000):
        episode = EpisodeConfig(
            prompt="source",
            feedback="brief",
            max_turns=6,
            success_reward=9,
            max_zero_turns=99,
            history_tokens=budget,
        )
        context = RolloutContext("r", "d", small_tokenizer, episode, SamplingConfig(max_new_tokens=64), "triton")
        engine = simulation.FaultyEngine(small_tokenizer, context_tokens=220)
        episode_loop = EpisodeLoop(context, engine, JudgeClient(simulation.FaultyJudge(), simulation.reward_on, 9))
        plans = plan_episodes(simulation.problem_rows(4), Split.TRAIN, 4, 2, 1, 3)
        ends[budget] = {trajectory.termination.value for trajectory in asyncio.run(episode_loop.run(plans))}
    assert "context_limit" in ends[0]
    assert ends[10_000] == {"turn_limit"}
