"""The budget is kept to the answer, faults cost nothing, and only what the last judgement confirms is returned."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from extras.adapters.scoring import Scorer
from extras.generation.config import SearchConfig
from extras.generation.generate import generate
from extras.generation.result import GeneratedKernel, Outcome
from extras.generation.search import Attempt, Choice, Stop
from extras.generation.writers import RefusedConversationError
from kernels_eval.errors import InfrastructureError, InputError
from kernels_eval.problem import Problem

REMARKS = ["speedup 1.5", "speedup 3.0", "speedup 2.0 # lucky", "speedup 0.5", "incorrect", "nothing", "fault"]
Make = Callable[..., Any]


def found_for(
    problem: Problem, writer: Any, scorer: Scorer, judge: Any, earlier: list[Attempt] | None = None, **config: Any
) -> tuple[GeneratedKernel, list[Attempt]]:
    seen: list[Attempt] = []
    result = asyncio.run(generate(problem, writer, scorer, judge, SearchConfig(**config), seen.append, earlier or []))
    return result, seen


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    remarks=st.lists(st.sampled_from(REMARKS), min_size=1, max_size=8).filter(lambda found: set(found) != {"fault"}),
    budget=st.integers(1, 20),
    conversations=st.integers(1, 5),
)
def test_the_budget_is_kept_and_the_best_confirmed_kernel_returned(
    problem: Problem, writer: Make, scorer: Scorer, judge: Any, remarks: list[str], budget: int, conversations: int
):
    asked = writer(remarks)
    result, seen = found_for(problem, asked, scorer, judge, budget=budget, conversations=conversations)
    assert len(seen) == result.judged == sum(result.statuses.values()) == budget
    assert result.stopped is Stop.BUDGET
    assert "infrastructure_error" not in result.statuses
    turns = Counter(attempt.conversation for attempt in seen)
    assert max(turns.values()) <= 3
    assert len({(attempt.conversation, attempt.turn) for attempt in seen}) == budget
    assert len({seed for _, seed in asked.asked}) == len(asked.asked)  # every answer is a draw of its own
    speeds = {3.0: "speedup 3.0", 1.5: "speedup 1.5"}
    drawn = {speed for speed, remark in speeds.items() if any(remark in (a.kernel_source or "") for a in seen)}
    assert result.speedup == max(drawn, default=None)
    assert (result.outcome is Outcome.IMPROVED) is bool(drawn)
    assert ("ModelNew = Model" in result.source) is not bool(drawn)
    assert (result.tokens.prompt, result.tokens.completion) == (100 * budget, 10 * budget)
    compile(result.source, "kernel.py", "exec")


def test_the_most_promising_of_several_drafts_is_judged(problem: Problem, writer: Make, scorer: Scorer, judge: Any):
    """All drafts cost tokens, one of them costs the judge's time; one without a kernel is never the choice."""
    asked = writer(["incorrect", "speedup 3.0", "nothing", "speedup 1.5"])
    sources: list[str] = []

    def promise(source: str, kernels: Sequence[str]) -> list[float]:
        sources.append(source)
        return [3.0 if "3.0" in kernel else 1.0 if "1.5" in kernel else 0.0 for kernel in kernels]

    search = SearchConfig(budget=4, conversations=1)
    seen: list[Attempt] = []
    choice = Choice(4, promise)
    result = asyncio.run(generate(problem, asked, scorer, judge, search, seen.append, choice=choice))
    # The most promising that was not judged yet; when all were, the most promising again.
    assert [attempt.verdict.speedup for attempt in seen] == [3.0, 1.5, None, 3.0]
    assert set(sources) == {problem.source}
    assert result.judged == 4
    assert (result.tokens.prompt, result.tokens.completion) == (4 * 4 * 100, 4 * 4 * 10)
    assert len({seed for _, seed in asked.asked}) == 16


def test_of_equally_promising_drafts_the_most_frequent_is_judged(
    problem: Problem, writer: Make, scorer: Scorer, judge: Any
):
    asked = writer(["speedup 3.0", "speedup 1.5", "speedup 1.5", "nothing"])
    seen: list[Attempt] = []
    search, choice = SearchConfig(budget=2, conversations=1), Choice(4, lambda _, kernels: [0.5] * len(kernels))
    asyncio.run(generate(problem, asked, scorer, judge, search, seen.append, choice=choice))
    assert [attempt.verdict.speedup for attempt in seen] == [1.5, 3.0]


def test_drafts_without_a_kernel_are_judged_as_one_answer(problem: Problem, writer: Make, scorer: Scorer, judge: Any):
    search = SearchConfig(budget=2)
    choice = Choice(3, lambda _, kernels: [0.0] * len(kernels))
    result = asyncio.run(generate(problem, writer(["nothing"]), scorer, judge, search, choice=choice))
    assert (result.judged, result.outcome) == (2, Outcome.ORIGINAL)


def test_a_kernel_that_was_only_lucky_is_passed_over(problem: Problem, writer: Make, scorer: Scorer, judge: Any):
    lucky = writer(["speedup 9.0 # lucky", "speedup 1.5"])
    result, _ = found_for(problem, lucky, scorer, judge, budget=2)
    assert (result.speedup, result.unverified, result.estimated) == (1.5, 1, True)
    stricter = [given for _, given in judge.judged if given]
    assert [given["full_size_share"] for given in stricter] == [1.0, 1.0]
    assert "1.50 (roofline estimate" in result.source


def test_a_measured_speedup_is_given_over_torch_compile_too(problem: Problem, writer: Make, scorer: Scorer, judge: Any):
    result, _ = found_for(problem, writer(["timed"]), scorer, judge, budget=1)
    assert (result.speedup, result.speedup_over_compile, result.estimated) == (2.0, 1.0, False)
    assert [given["baseline"] for _, given in judge.judged if given] == ["eager", "compile"]
    assert "2.00 (measured, NVIDIA H100)" in result.source
    assert "2.00x the speed of the original in eager mode (measured)" in result.line


def test_a_small_gain_is_none(problem: Problem, writer: Make, scorer: Scorer, judge: Any):
    slow = writer(["speedup 1.5"])
    result, _ = found_for(problem, slow, scorer, judge, budget=2, min_speedup=1.6)
    assert result.outcome is Outcome.ORIGINAL
    assert "no kernel is verified to be faster" in result.line


def test_later_turns_have_the_judges_feedback(problem: Problem, writer: Make, scorer: Scorer, judge: Any):
    refining = writer(["incorrect", "speedup 1.2", "speedup 2"])
    found_for(problem, refining, scorer, judge, budget=3, conversations=1)
    first, second, third = (messages for messages, _ in refining.asked)
    assert len(first) == 1
    assert second[0] == first[0]
    assert "wrong_values" in second[-1]["content"]
    assert "Speedup: 1.20x (roofline estimate)" in third[-1]["content"]


def test_the_time_limit_ends_the_search_with_what_was_found(problem: Problem, writer: Make, scorer: Scorer, judge: Any):
    began = time.monotonic()
    slow = writer(["speedup 2"], delay_s=0.15)
    result, seen = found_for(problem, slow, scorer, judge, budget=1000, conversations=2, seconds=1.5)
    assert time.monotonic() - began < 60
    assert result.stopped is Stop.SECONDS
    assert 0 < len(seen) < 100
    assert result.speedup == 2


def test_no_answer_in_time_is_an_error_not_an_original(problem: Problem, writer: Make, scorer: Scorer, judge: Any):
    with pytest.raises(InfrastructureError, match=r"no answer was judged in 0\.2 s"):
        found_for(problem, writer(["speedup 2"], delay_s=30), scorer, judge, budget=4, seconds=0.2)


def test_an_interrupted_search_goes_on_with_what_is_left(problem: Problem, writer: Make, scorer: Scorer, judge: Any):
    _, before = found_for(problem, writer(["speedup 4", "nothing"]), scorer, judge, budget=4)
    rest = writer(["speedup 2"])
    result, after = found_for(problem, rest, scorer, judge, earlier=before, budget=6)
    assert (len(after), result.judged, result.speedup) == (2, 6, 4)
    assert not {attempt.conversation for attempt in before} & {attempt.conversation for attempt in after}


def test_a_broken_machine_is_an_error_not_an_original(problem: Problem, writer: Make, scorer: Scorer, judge: Any):
    with pytest.raises(InfrastructureError, match="lost worker"):
        found_for(problem, writer(["fault"]), scorer, judge, budget=4)
    with pytest.raises(InputError, match="Model raised"):
        found_for(problem, writer(["reference"]), scorer, judge, budget=4)
    with pytest.raises(InfrastructureError, match="no answer"):
        found_for(problem, writer([InfrastructureError("no answer")]), scorer, judge, budget=4)


def test_a_conversation_that_has_become_too_long_is_followed_by_a_new_one(
    problem: Problem, writer: Make, scorer: Scorer, judge: Any
):
    full = RefusedConversationError("context")
    result, seen = found_for(problem, writer(["incorrect", full]), scorer, judge, budget=3, conversations=1)
    assert [(attempt.conversation, attempt.turn) for attempt in seen] == [(0, 1), (1, 1), (2, 1)]
    assert result.judged == 3
    with pytest.raises(RefusedConversationError):
        found_for(problem, writer([full]), scorer, judge, budget=3)
