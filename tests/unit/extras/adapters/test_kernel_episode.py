"""The conversation: prompts and endings are those of our rollouts, and a fault masks it."""

import asyncio
from typing import Any

import pytest

from extras.adapters.kernel_episode import KernelEpisode
from extras.adapters.scoring import Scorer
from kernels_eval.errors import InfrastructureError, InputError
from kernels_eval.problem import Problem
from tasks.rollout.config import EpisodeConfig
from tasks.rollout.prompts import HistoryTurn, prompt_messages
from tasks.trajectories.schema import Termination

EPISODE = EpisodeConfig(max_turns=3, gamma=0.5, prompt="source", feedback="brief")


def test_each_prompt_continues_the_one_before_and_is_the_rollouts(judge: Any, answer: Any, problem_source: str):
    with Scorer(judge, EPISODE) as scorer:
        episode = KernelEpisode(problem_source, scorer)
        first = episode.messages
        step = episode.answer(answer("incorrect"))
        assert episode.messages[:-2] == first
        assert episode.messages[-2:] == [{"role": "assistant", "content": answer("incorrect")}, step.reply]
        scored = step.scored
        assert scored.score is not None
        history = [HistoryTurn(response_text=answer("incorrect"), kernel_source=scored.kernel_source,
                               verdict=scored.verdict, reward=scored.score)]  # fmt: skip
    rollout = prompt_messages(problem_source, history, EPISODE, "triton")
    assert [message.content for message in rollout] == [message["content"] for message in episode.messages]


def test_success_ends_it_and_turns_have_returns(judge: Any, answer: Any, problem_source: str):
    with Scorer(judge, EPISODE) as scorer:
        episode = KernelEpisode(problem_source, scorer)
        asyncio.run(episode.answer_async(answer("incorrect")))
        step = asyncio.run(episode.answer_async(answer("speedup 2.5")))
        assert (step.termination, step.reply) == (Termination.SUCCESS, None)
        with pytest.raises(InputError, match="has ended"):
            episode.answer("again")
    assert episode.rewards == pytest.approx([0.1, 1.8])
    assert episode.returns == pytest.approx([0.1 + 0.5 * 1.8, 1.8])
    assert episode.reward == pytest.approx(1.8)


def test_the_turn_limit_and_the_best_turn(judge: Any, answer: Any, problem_source: str):
    with Scorer(judge, EPISODE) as scorer:
        episode = KernelEpisode(Problem(problem_id="p", source=problem_source, level=2), scorer)
        for remark in ("speedup 1.2", "incorrect", "incorrect"):
            episode.answer(answer(remark))
    assert episode.termination is Termination.TURN_LIMIT
    assert episode.reward == pytest.approx(0.5)


def test_a_fault_ends_it_and_masks_it_as_a_whole(judge: Any, answer: Any, problem_source: str):
    with Scorer(judge, EPISODE) as scorer:
        episode = KernelEpisode(problem_source, scorer)
        episode.answer(answer("speedup 1.2"))
        step = episode.answer(answer("fault"))
    assert (step.termination, step.reply) == (Termination.INFRASTRUCTURE_ERROR, None)
    assert episode.rewards == [pytest.approx(0.5), None]
    assert episode.returns == [pytest.approx(0.5), None]
    assert episode.reward is None


def test_what_answers_add_is_the_best_turns_reward(judge: Any, answer: Any, problem_source: str):
    with Scorer(judge, EPISODE) as scorer:
        episode, gains = KernelEpisode(problem_source, scorer), list[float]()
        for remark in ("incorrect", "speedup 0.8", "speedup 0.5"):
            episode.answer(answer(remark))
            gains.append(episode.gain)
        assert sum(gains) == pytest.approx(episode.reward)
        assert gains[2] == 0.0
        broken = KernelEpisode(problem_source, scorer)
        broken.answer(answer("speedup 0.8"))
        broken.answer(answer("fault"))
        with pytest.raises(InfrastructureError, match="not judged: "):
            _ = broken.gain
