"""Messages to the policy."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.backends import backend_named, backend_names
from kernels_eval.config import JudgeConfig
from kernels_eval.errors import InputError
from kernels_eval.verdict import Cell, Issue, IssueKind, Resources, Status, TimingSource, Verdict
from tasks.models.chat_templates import Role
from tasks.rollout.config import EpisodeConfig
from tasks.rollout.feedback import feedback_text
from tasks.rollout.prompt_examples import LANGUAGES
from tasks.rollout.prompts import HistoryTurn, answer_text, judge_for, prompt_messages

SOURCE = "class Model: ...\n"
SLOW = Verdict(
    status=Status.CORRECT,
    compiled=True,
    correct=True,
    speedup=1.25,
    candidate_ms=3.125,
    reference_ms=3.90625,
    timing_source=TimingSource.ROOFLINE,
    resources=(Resources(kernel="add", architecture="cuda:90", registers=32, shared_bytes=1024, spills=0),),
)
WRONG = Verdict(
    status=Status.INCORRECT,
    compiled=True,
    error_category="wrong_values",
    error_message="output[3]: expected 1.5, found 2.5",
    max_abs_error=1.0,
    max_rel_error=0.5,
)
REJECTED = Verdict(status=Status.REJECTED, rejection_reason="library_call", error_message="torch.softmax")


def turn(verdict: Verdict, reward: float = 0.3) -> HistoryTurn:
    kernel = "class ModelNew: ...\n"
    return HistoryTurn(response_text=answer_text(kernel), kernel_source=kernel, verdict=verdict, reward=reward)


def test_measured_errors_are_in_no_prompt() -> None:
    """They depend on secret draws: the next prompt would, too."""
    drawn = WRONG.model_copy(
        update={"max_abs_error": 7.0, "max_rel_error": 8.0, "seed_commitment": "c", "sandbox": "s"}
    )
    for style in ("full", "brief", "none"):
        assert feedback_text(drawn, 0.1, style) == feedback_text(WRONG, 0.1, style)


@pytest.mark.parametrize(("style", "public"), [("full", True), ("brief", False), ("none", False)])
def test_the_judge_draws_messages_publicly_where_the_policy_reads_them(style: str, public: bool) -> None:
    judge = JudgeConfig(trials=3)
    asked = judge_for(EpisodeConfig(feedback=style), judge)
    assert asked == judge.model_copy(update={"public_messages": public})


def test_full_feedback_says_everything_the_judge_said() -> None:
    text = feedback_text(SLOW, 0.55, "full")
    for part in (
        "Compiled: yes",
        "Correct: yes",
        "3.125 ms",
        "3.906 ms",
        "1.25x (roofline estimate)",
        "0.550",
        "32 registers",
        "1024 bytes of shared memory",
        "0 spills",
        "cuda:90",
    ):
        assert part in text
    text = feedback_text(WRONG, 0.1, "full")
    for part in ("Correct: no", "wrong_values", WRONG.error_message or ""):
        assert part in text
    assert "library_call" in feedback_text(REJECTED, 0.0, "full")


def test_full_feedback_names_issues_with_their_remedies_and_the_others_none() -> None:
    issues = [
        Issue(kind=IssueKind.SPILLS, kernel="add", value=8, limit=0, message=f"{n} bytes", remedy=f"remedy {n}")
        for n in range(9)
    ]
    told = SLOW.model_copy(update={"issues": tuple(issues)})
    lines = feedback_text(told, 0.55, "full").splitlines()
    assert [line for line in lines if "Issue" in line] == [f"Issue in add: {n} bytes; remedy {n}." for n in range(5)]
    for style in ("brief", "none"):
        assert feedback_text(told, 0.55, style) == feedback_text(SLOW, 0.55, style)


def test_full_feedback_lists_the_workloads_of_a_problem_that_has_several() -> None:
    cells = (
        Cell(workload="n=8", status=Status.CORRECT, speedup=0.5),
        Cell(workload="n=9", status=Status.INCORRECT, error_category="wrong_values"),
    )
    text = feedback_text(SLOW.model_copy(update={"cells": cells}), 0.5, "full")
    assert "At n=8: correct, 0.50x (roofline estimate)\nAt n=9: wrong_values" in text


def test_a_measurement_bears_no_mark_of_an_estimate() -> None:
    measured = SLOW.model_copy(update={"timing_source": TimingSource.GPU})
    assert "roofline" not in feedback_text(measured, 0.55, "full")


def test_long_errors_keep_their_beginning_and_end() -> None:
    message = "first words " + "x" * 100_000 + " last words"
    text = feedback_text(WRONG.model_copy(update={"error_message": message}), 0.0, "full")
    assert "first words" in text
    assert "last words" in text
    assert len(text) < 3000


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (SLOW, "correct\nspeedup 1.2"),
        (WRONG, "incorrect\nwrong_values"),
        (REJECTED, "rejected\nlibrary_call"),
        (Verdict(status=Status.TIMEOUT), "timeout"),
        (Verdict(status=Status.CORRECT, correct=True, speedup=9.96), "correct\nspeedup 10"),
        (Verdict(status=Status.CORRECT, correct=True, speedup=1e9), "correct\nspeedup 99"),
        (Verdict(status=Status.CORRECT, correct=True), "correct"),
    ],
)
def test_brief_feedback(verdict: Verdict, expected: str) -> None:
    assert feedback_text(verdict, 0.0, "brief") == expected


@given(st.floats(min_value=0, max_value=1e12))
def test_brief_feedback_has_a_small_vocabulary(speedup: float) -> None:
    line = feedback_text(SLOW.model_copy(update={"speedup": speedup}), 0.0, "brief").split("\n")[1]
    assert line in {f"speedup {n / 10:.1f}" for n in range(100)} | {f"speedup {n}" for n in range(10, 100)}


@pytest.mark.parametrize("prompt", ["source", "instruct"])
@pytest.mark.parametrize("feedback", ["full", "brief", "none"])
@pytest.mark.parametrize("turns", [0, 1, 3])
def test_conversation(prompt: str, feedback: str, turns: int) -> None:
    episode = EpisodeConfig.model_validate({"prompt": prompt, "feedback": feedback})
    history = [turn(WRONG), turn(SLOW), turn(REJECTED)][:turns]
    messages = prompt_messages(SOURCE, history, episode)
    assert [message.role for message in messages] == [Role.USER] + [Role.ASSISTANT, Role.USER] * turns
    assert SOURCE in messages[0].content
    assert all(message.content and not message.trained for message in messages)
    # Nothing said earlier is rewritten: what lets tokens be carried on.
    if turns:
        assert messages[:-2] == prompt_messages(SOURCE, history[:-1], episode)


def test_source_style_is_the_source_alone() -> None:
    episode = EpisodeConfig(prompt="source", feedback="brief")
    assert prompt_messages("\n\n" + SOURCE.strip(), [], episode)[0].content == SOURCE


def test_without_feedback_nothing_of_the_verdict_is_told() -> None:
    for prompt in ("source", "instruct"):
        episode = EpisodeConfig.model_validate({"prompt": prompt, "feedback": "none"})
        told = {prompt_messages(SOURCE, [turn(verdict)], episode)[-1].content for verdict in (WRONG, SLOW, REJECTED)}
        assert len(told) == 1


def test_the_back_end_decides_the_language() -> None:
    episode = EpisodeConfig()
    assert "Triton" in prompt_messages(SOURCE, [], episode)[0].content
    assert "CUDA C++" in prompt_messages(SOURCE, [], episode, backend="cuda")[0].content
    for backend in backend_names():
        asked = prompt_messages(SOURCE, [], episode, backend=backend)[0].content
        assert asked.startswith(f"You write fast {LANGUAGES[backend]} kernels")
        (example,) = re.findall(r"\(it adds two tensors\):\n```python\n(.*?)```", asked, re.DOTALL)
        compile(example, backend, "exec")
        assert backend_named(backend).own_kernels(example), "an example has a kernel of its own"


def test_a_back_end_without_instructions_is_told_so():
    with pytest.raises(
        InputError, match=r"instruct: there are instructions for triton, cuda, .*, none for judge.backend = helion"
    ):
        prompt_messages(SOURCE, [], EpisodeConfig(prompt="instruct"), backend="helion")
    assert prompt_messages(SOURCE, [], EpisodeConfig(prompt="source"), backend="helion")[0].content == SOURCE
