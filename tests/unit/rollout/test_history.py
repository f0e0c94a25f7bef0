"""Judged turns make the next prompt and decide the end; a fault of the machine leaves no trace in the prompt."""

from kernels_eval.problem import Problem
from kernels_eval.verdict import Status, Verdict
from tasks.rollout.config import EpisodeConfig
from tasks.rollout.history import History
from tasks.rollout.prompts import prompt_messages
from tasks.trajectories.schema import Termination

PROBLEM = Problem(problem_id="p", source="class Model: ...\n")
WRONG = Verdict(status=Status.INCORRECT, compiled=True, error_category="wrong_values", error_message="differs")
RIGHT = Verdict(status=Status.CORRECT, compiled=True, correct=True, speedup=2.0)


def test_turns_are_asked_about_until_one_succeeds() -> None:
    episode = EpisodeConfig(max_turns=4, max_zero_turns=4)
    history = History(PROBLEM, episode, "triton")
    first = history.messages()
    assert history.add("wrong", "x", WRONG, 0.0) is None
    assert history.messages()[:1] == first
    assert history.messages() == prompt_messages(PROBLEM.source, history.turns, episode, "triton")
    assert history.messages([]) == first
    assert history.add("right", "y", RIGHT, episode.success_reward) is Termination.SUCCESS
    assert [turn.kernel_source for turn in history.turns] == ["x", "y"]


def test_a_fault_ends_it_and_is_not_asked_about() -> None:
    history = History(PROBLEM, EpisodeConfig(), "triton")
    asked = history.messages()
    fault = Verdict(status=Status.INFRASTRUCTURE_ERROR, error_category="judge_fault")
    assert history.add("any", None, fault, None) is Termination.INFRASTRUCTURE_ERROR
    assert history.messages() == asked
    assert history.turns == []
