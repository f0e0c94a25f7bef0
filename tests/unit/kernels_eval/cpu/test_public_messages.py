"""Messages and causes of failed kernels in a public run: replaced only where secret draws may have had a part in them."""

from typing import Any

import pytest

from kernels_eval import JudgeConfig, Status, Verdict
from kernels_eval.correctness.outputs import ReferenceFailedError
from kernels_eval.cpu import public_messages
from kernels_eval.cpu.graded import Graded
from kernels_eval.cpu.public_messages import OTHER_INPUTS, PublicMessages

ASKED, SECRET = JudgeConfig(public_messages=True), JudgeConfig()


def verdict_of(message: str, status: Status = Status.INCORRECT, category: str = "wrong_values") -> Verdict:
    return Verdict(
        status=status,
        compiled=status is not Status.COMPILE_ERROR,
        rejection_reason=category if status is Status.REJECTED else None,
        error_category=category,
        error_message=message,
        seed_commitment="secret",
    )


WRONG = verdict_of("output[0] is 1")
RACE = verdict_of("program 7", Status.INCORRECT, "data_race")
OUTSIDE = verdict_of("program 7", Status.RUNTIME_ERROR, "out_of_bounds")
UNDEFINED = verdict_of("no name", Status.COMPILE_ERROR, "triton_compile")
CHEAT = verdict_of("at 0x7f", Status.REJECTED, "copied_input")
RIGHT = Verdict(status=Status.CORRECT, compiled=True, correct=True)


class Second:
    """Messages with a second run that finds what `found` says, and counts its calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: Verdict | None = WRONG
        self.calls = 0
        second = self

        class Grader:
            def __init__(self, *_: Any, secret: Any) -> None:
                assert secret == "the first run's"

            def grade(self, *_: Any) -> Graded:
                second.calls += 1
                if second.found is None:
                    raise ReferenceFailedError("the reference's result is not finite")
                return Graded(second.found)

        monkeypatch.setattr(public_messages, "Grader", Grader)
        self._messages = PublicMessages(None, None, "the first run's")  # type: ignore[arg-type]

    def shown(self, first: Verdict, config: JudgeConfig = SECRET, **facts: bool) -> Verdict:
        return self._messages.without_draws(Graded(first, **facts), "problem", "kernel", config)


@pytest.fixture
def second(monkeypatch: pytest.MonkeyPatch) -> Second:
    return Second(monkeypatch)


def test_the_message_is_of_the_second_run_the_verdict_of_the_first(second: Second):
    assert second.shown(verdict_of("output[7] is 3"), ASKED, is_certain=True) == WRONG


@pytest.mark.parametrize("config", [ASKED, SECRET])
@pytest.mark.parametrize("first", [RACE, OUTSIDE, UNDEFINED, verdict_of("output[7] is 3")])
@pytest.mark.parametrize("found", [WRONG, RACE, OUTSIDE, UNDEFINED, CHEAT])
def test_which_of_several_faults_is_named_is_found_by_the_second_run(
    second: Second, first: Verdict, found: Verdict, config: JudgeConfig
):
    second.found = found
    assert second.shown(first, config) == found


@pytest.mark.parametrize("found", [WRONG, UNDEFINED, RIGHT, None])
def test_what_was_refused_stays_refused(second: Second, found: Verdict | None):
    second.found = found
    assert second.shown(CHEAT) == CHEAT
    assert second.shown(CHEAT, ASKED) == CHEAT.model_copy(update={"error_message": OTHER_INPUTS})


@pytest.mark.parametrize("found", [RIGHT, None, verdict_of("too long", Status.TIMEOUT, "timeout")])
def test_a_kernel_that_fails_on_secret_inputs_alone_is_wrong(second: Second, found: Verdict | None):
    second.found = found
    assert second.shown(RACE) == RACE
    assert second.shown(RACE, ASKED) == RACE.model_copy(update={"error_message": OTHER_INPUTS})


@pytest.mark.parametrize("first", [RIGHT, verdict_of("too long", Status.TIMEOUT, "timeout")])
def test_what_is_right_or_too_slow_is_not_run_again(second: Second, first: Verdict):
    assert second.shown(first, ASKED) is first
    assert second.calls == 0


@pytest.mark.parametrize("config", [ASKED, SECRET])
def test_what_failed_before_a_kernel_ran_is_not_run_again(second: Second, config: JudgeConfig):
    assert second.shown(UNDEFINED, config, is_drawn=False) is UNDEFINED
    assert second.calls == 0


def test_what_is_clearly_wrong_is_run_again_for_its_message_alone(second: Second):
    first = verdict_of("output[7] is 3")
    assert second.shown(first, is_certain=True) is first
    assert second.calls == 0
