"""Messages on failed kernels in a public run: only what a run found is replaced, and only where that is asked for."""

from typing import Any

import pytest

from kernels_eval import JudgeConfig, Status, Verdict
from kernels_eval.cpu import public_messages
from kernels_eval.cpu.public_messages import OTHER_INPUTS, PublicMessages

ASKED = JudgeConfig(public_messages=True)


def wrong(message: str, status: Status = Status.INCORRECT, category: str = "wrong_values") -> Verdict:
    return Verdict(status=status, error_category=category, error_message=message, seed_commitment="secret")


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch) -> PublicMessages:
    """A second run that finds `output[0] is 1`, and says so."""

    class Graded:
        verdict = wrong("output[0] is 1")

    class Grader:
        def __init__(self, *_: Any, is_public: bool = False) -> None:
            assert is_public

        def grade(self, *_: Any) -> Graded:
            return Graded()

    monkeypatch.setattr(public_messages, "Grader", Grader)
    return PublicMessages(None, None)  # type: ignore[arg-type]


def test_the_message_is_of_the_second_run_the_verdict_of_the_first(messages: PublicMessages):
    shown = messages.without_draws(wrong("output[7] is 3"), "problem", "kernel", ASKED)
    assert shown == wrong("output[0] is 1")


def test_a_second_run_that_fails_otherwise_shows_nothing_of_either(messages: PublicMessages):
    cheat = wrong("at 0x7f", Status.REJECTED, "copied_input")
    assert messages.without_draws(cheat, "problem", "kernel", ASKED) == cheat.model_copy(
        update={"error_message": OTHER_INPUTS}
    )


@pytest.mark.parametrize("config", [ASKED, JudgeConfig()])
@pytest.mark.parametrize(
    ("status", "category"), [(Status.RUNTIME_ERROR, "out_of_bounds"), (Status.INCORRECT, "data_race")]
)
def test_which_of_several_faults_is_named_is_found_by_the_second_run(
    messages: PublicMessages, config: JudgeConfig, status: Status, category: str
):
    shown = messages.without_draws(wrong("program 7", status, category), "problem", "kernel", config)
    assert shown == wrong("output[0] is 1")


@pytest.mark.parametrize("status", [Status.COMPILE_ERROR, Status.TIMEOUT])
def test_what_failed_without_a_value_keeps_its_message(messages: PublicMessages, status: Status):
    verdict = wrong("line 3: invalid syntax", status)
    assert messages.without_draws(verdict, "problem", "kernel", ASKED) is verdict


def test_nothing_is_replaced_where_nobody_asked(messages: PublicMessages):
    verdict = wrong("output[7] is 3")
    assert messages.without_draws(verdict, "problem", "kernel", JudgeConfig()) is verdict
