"""Kernels of SFT pairs are judged in the rollout's process, which stays warm for the rollouts, not in the driver."""

import os
from collections.abc import Iterator

import pytest
import ray

from kernels_eval import JudgeConfig, Problem, Status, Verdict
from kernels_eval.errors import InputError
from kernels_eval.sandbox.limits import children_of
from tasks.cluster.workers import _workers, stop_worker  # pyright: ignore[reportPrivateUsage]
from tasks.problems.synthetic.composition import parse_composition
from tasks.problems.synthetic.sources import Shape, Style, kernel_source
from tasks.problems.synthetic.suite import problem_of
from tasks.rollout.config import JudgingPlace
from tasks.rollout.judging import judge_kernels
from tasks.rollout.process import WORKER

JUDGE = JudgeConfig(workers=1, compile="never", trials=1, device="cpu", full_size_share=0.0)
COMPOSITION = parse_composition("relu>double")
PROBLEM = problem_of(COMPOSITION, Shape(rows=4096, columns=64))
RIGHT, WRONG = (kernel_source(COMPOSITION, Style.FUSED, wrong) for wrong in ((), {"relu"}))


@pytest.fixture(scope="module", autouse=True)
def cluster(ray_local: None) -> Iterator[None]:
    yield
    stop_worker(WORKER)


@pytest.mark.parametrize("place", [JudgingPlace(), JudgingPlace(all_cpus=True)], ids=["as configured", "all CPUs"])
def test_verdicts_come_in_order_from_the_rollouts_process(place: JudgingPlace) -> None:
    seen: list[tuple[int, int]] = []
    verdicts = judge_kernels(
        [(PROBLEM, RIGHT), (PROBLEM, WRONG), (PROBLEM, RIGHT + "\n")], JUDGE, place,
        lambda done, total, **_: seen.append((done, total)),
    )  # fmt: skip
    assert [verdict.status for verdict in verdicts] == [Status.CORRECT, Status.INCORRECT, Status.CORRECT]
    assert seen[-1] == (3, 3)
    assert ray.get(_workers[WORKER].ping.remote()) != os.getpid()


@pytest.mark.long
def test_stages_that_compile_differently_share_one_judge() -> None:
    """The second stage compiles what the first did not, and finds the workers of the first."""

    def judged(config: JudgeConfig) -> tuple[Verdict, set[int]]:
        [verdict] = judge_kernels([(PROBLEM, RIGHT + "# shared\n")], config, JudgingPlace(), lambda *_, **__: None)
        return verdict, set(children_of(ray.get(_workers[WORKER].ping.remote())))

    first, processes = judged(JUDGE)
    whole, after = judged(JUDGE.model_copy(update={"compile": "correct", "full_size_share": 1.0}))
    other, _ = judged(JUDGE.model_copy(update={"memory_mb": 4096}))
    assert (first.status, whole.status, other.status) == (Status.CORRECT,) * 3
    assert not first.resources
    assert whole.resources
    assert (whole.executed_size or 0) > (first.executed_size or 0)
    assert processes < after  # its own, and one for the compiler


def test_what_the_judge_refuses_keeps_its_kind_and_the_process_lives_on() -> None:
    with pytest.raises(InputError):
        judge_kernels([(Problem(problem_id="none", source="x ="), RIGHT)], JUDGE, JudgingPlace(), lambda *_, **__: None)
    assert ray.get(_workers[WORKER].ping.remote())
