"""Scoring: the verdict, the reward and the mask, from any thread and any event loop."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from extras.adapters.scoring import Scorer, open_scorer, shared_scorer
from kernels_eval.errors import InputError
from kernels_eval.verdict import Status
from tasks.rollout.config import EpisodeConfig


def test_the_reward_is_that_of_our_own_rollouts(judge: Any, answer: Any, problem_source: str):
    with Scorer(judge) as scorer:
        scored = scorer.score(problem_source, answer("speedup 1.5"))
        assert (scored.verdict.status, scored.reward, scored.score) == (
            Status.CORRECT,
            pytest.approx(0.8),
            scored.reward,
        )
        assert scored.kernel_source == "# speedup 1.5\nclass ModelNew: ...\n"
        assert scorer.score(problem_source, answer("incorrect")).reward == pytest.approx(0.1)
    assert judge.closed


@pytest.mark.parametrize(
    ("text", "category"), [("no kernel", "no_code_block"), ("<think> for ever", "unfinished_reasoning")]
)
def test_an_answer_without_a_kernel_is_the_policys_error(judge: Any, problem_source: str, text: str, category: str):
    with Scorer(judge) as scorer:
        scored = scorer.score(problem_source, text)
        assert (scored.reward, scored.verdict.error_category) == (0.0, category)
        assert scorer.score(problem_source, "```python\nx", truncated=True).verdict.error_category == "truncated_answer"
    assert judge.judged == []


@pytest.mark.parametrize("remark", ["fault", "raises", "slow"])
def test_a_fault_of_the_machine_is_no_reward(judge: Any, answer: Any, problem_source: str, remark: str):
    with Scorer(judge, patience_s=0.1) as scorer:
        scored = scorer.score(problem_source, answer(remark))
    assert scored.verdict.is_fault
    assert scored.reward is None
    assert len(judge.judged) == 2, "a kernel is judged once more"


def test_terms_on_the_answer_need_its_length(judge: Any, answer: Any, problem_source: str):
    with Scorer(judge, EpisodeConfig(reward="kernelbench - 0.2*length")) as scorer:
        scored = scorer.score(problem_source, answer("speedup 1.5"), tokens=2048)
        assert (scored.score, scored.reward) == (pytest.approx(0.8), pytest.approx(0.7))
        with pytest.raises(InputError, match="number of tokens"):
            scorer.score(problem_source, answer("speedup 1.5"))


def test_what_is_not_a_problem_or_a_reward_is_refused(judge: Any, problem_source: str):
    with pytest.raises(ValueError, match="unheard_of"):  # where the settings are made, before a scorer has them
        EpisodeConfig(reward="unheard_of")
    with Scorer(judge) as scorer, pytest.raises(InputError, match="get_inputs"):
        scorer.score("class Model: ...", "x")


def test_many_loops_and_threads_at_once(judge: Any, answer: Any, problem_source: str):
    speeds = [1 + index / 10 for index in range(20)]
    with Scorer(judge) as scorer:

        def in_a_loop_of_its_own(speed: float) -> float | None:
            return asyncio.run(scorer.score_async(problem_source, answer(f"speedup {speed}"))).reward

        with ThreadPoolExecutor(10) as pool:
            assert list(pool.map(in_a_loop_of_its_own, speeds)) == pytest.approx([speed - 0.7 for speed in speeds])
        several = asyncio.run(scorer.score_all([problem_source] * 20, [answer(f"speedup {speed}") for speed in speeds]))
    assert [scored.reward for scored in several] == pytest.approx([speed - 0.7 for speed in speeds])
    assert judge.most_at_once > 5


def test_a_judge_elsewhere_by_its_address(problem_source: str, answer: Any):
    with open_scorer("http://127.0.0.1:9", episode=EpisodeConfig(reward="kevin")) as scorer:
        scorer._judge._attempts = 1  # type: ignore[attr-defined]
        assert scorer.score(problem_source, answer("speedup 2")).verdict.is_fault


def test_the_scorer_of_a_process_is_made_from_its_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KERNELMILL_JUDGE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("KERNELMILL_REWARD", "kevin")
    scorer = shared_scorer()
    assert scorer is shared_scorer()
    assert scorer.episode.reward == "kevin"
