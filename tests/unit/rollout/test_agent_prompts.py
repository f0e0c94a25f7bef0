"""Each agent is shown what its settings say; a stop is the whole answer or none."""

import pytest

from kernels_eval.verdict import Issue, IssueKind, Status, Verdict
from tasks.agents.config import AgentConfig
from tasks.rollout.agent_prompts import agent_messages, best_turn, stops
from tasks.rollout.config import EpisodeConfig
from tasks.rollout.prompts import HistoryTurn, answer_text, prompt_messages

SOURCE = "class Model:\n    pass\n"
ISSUE = Issue(kind=IssueKind.MANY_LAUNCHES, value=0.5, limit=0.25, message="3 launches a call", remedy="fuse kernels")
SLOW = Verdict(status=Status.CORRECT, compiled=True, correct=True, speedup=0.5, issues=(ISSUE, ISSUE))
WRONG = Verdict(status=Status.INCORRECT, compiled=True, error_category="wrong_values")
BRIEF = EpisodeConfig(prompt="source", feedback="brief")
OPTIMIZER = AgentConfig(turns="later", shown="kernel", may_stop=True)


def turn(kernel: str | None, verdict: Verdict, reward: float) -> HistoryTurn:
    return HistoryTurn(response_text=f"said {kernel}", kernel_source=kernel, verdict=verdict, reward=reward)


HISTORY = [turn("slow = 1\n", SLOW, 0.3), turn("wrong = 1\n", WRONG, 0.1)]


def text_for(agent: AgentConfig, episode: EpisodeConfig = BRIEF) -> str:
    (message,) = agent_messages(SOURCE, HISTORY, episode, "triton", agent)
    return message.content


def test_the_solver_sees_the_conversation() -> None:
    assert agent_messages(SOURCE, HISTORY, BRIEF, "triton", AgentConfig()) == prompt_messages(
        SOURCE, HISTORY, BRIEF, "triton"
    )


def test_the_problem_alone() -> None:
    assert text_for(AgentConfig(shown="problem")) == SOURCE


def test_the_best_kernel_with_its_findings() -> None:
    expected = f"{SOURCE}{answer_text('slow = 1')}\ncorrect\nspeedup 0.5\nmany_launches\n"
    assert text_for(OPTIMIZER) == expected


def test_on_the_first_turn_there_is_no_kernel_to_show() -> None:
    (message,) = agent_messages(SOURCE, [], BRIEF, "triton", OPTIMIZER)
    assert message.content == SOURCE


def test_an_answer_without_a_kernel_is_told_by_its_finding() -> None:
    none = turn(None, Verdict(status=Status.COMPILE_ERROR, error_category="no_code_block"), 0.0)
    (message,) = agent_messages(SOURCE, [none], BRIEF, "triton", OPTIMIZER)
    assert message.content == f"{SOURCE}compile_error\nno_code_block\n"


def test_instructions_and_full_findings() -> None:
    episode = EpisodeConfig(prompt="instruct", feedback="full")
    text = text_for(OPTIMIZER.model_copy(update={"instructions": "You are the optimizer."}), episode)
    assert text.startswith("You are the optimizer.\n\nYou write fast Triton kernels")
    assert answer_text("slow = 1") in text
    assert "Issue: 3 launches a call; fuse kernels." in text
    assert text.endswith("Make it faster: answer with the whole new code block. If it cannot be made better, answer "
                         "with the single word stop.")  # fmt: skip


def test_the_best_of_equals_is_the_newest() -> None:
    first, second = turn("a", WRONG, 0.1), turn("b", WRONG, 0.1)
    assert best_turn([first, second]) is second
    assert best_turn([first, second, turn("c", WRONG, 0.0)]) is second


@pytest.mark.parametrize(
    ("answer", "says_stop"),
    [
        ("stop", True),
        ("Stop.\n", True),
        ("`stop`", True),
        ("<think>\nfast enough\n</think>\n\nstop", True),
        ("stop\n```python\nx\n```", False),
        ("<think>stop", False),
        ("I would stop here", False),
        ("", False),
    ],
)
def test_a_stop_is_the_whole_answer(answer: str, says_stop: bool) -> None:
    assert stops(answer, OPTIMIZER) is says_stop
    assert not stops(answer, AgentConfig())
