"""Answers that are trained on may have a judge of their own; held-out answers are judged as `judge` says."""

from pathlib import Path
from typing import Any

import pytest

from flows import evaluation, iteration
from flows.run.run import Run
from flows.run.state import RunState
from flows.settings.configuration import RunConfig, load_configuration
from kernels_eval import JudgeConfig
from kernels_eval.errors import InputError
from tasks.pipeline.references import CheckpointRef, ProblemSetRef
from tasks.pipeline.stage import Workspace
from tasks.rollout.task import answer_heldout

PROBLEMS = ProblemSetRef(uri="/p", digest="p", train=1, heldout=1)
POLICY = CheckpointRef(uri="/c", digest="c")
ON_CPU = ["rollout.judge.device=cpu", "rollout.judge.workers=14"]
AS_JUDGE = ["rollout.judge.device=as_judge", "rollout.judge.workers=null"]


class Called(Exception):
    """A stage would compute now."""


def on_a_gpu(*overrides: str) -> RunConfig:
    return load_configuration("deployments/configs/smollm2-kernelbench.yaml", [*AS_JUDGE, *overrides])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A function that returns the judge of training's answers, the judge of held-out ones and the key of the latter."""

    def judges(config: RunConfig) -> tuple[JudgeConfig, JudgeConfig, str]:
        found: list[Any] = []

        def called(*args: Any, **kwargs: Any) -> None:
            found.append((args, kwargs))
            raise Called

        run = Run(config=config, workspace=Workspace(tmp_path, "run", ()), state=RunState())
        monkeypatch.setattr(iteration, "roll_out", called)
        monkeypatch.setattr(evaluation, "answer_heldout", called)
        for compute in (
            lambda: iteration.collect_trajectories(run, PROBLEMS, POLICY, 0),
            lambda: evaluation.heldout_evaluations(run, PROBLEMS, POLICY),
        ):
            with pytest.raises(Called):
                compute()
        (training, _), (heldout, named) = found
        return training[4], heldout[4], answer_heldout.key(answer_heldout.arguments(*heldout[1:], **named))

    return judges


def test_training_is_judged_on_the_cpu_and_held_out_answers_on_the_gpu(asked: Any, tmp_path: Path):
    training, heldout, key = asked(on_a_gpu(*ON_CPU))
    assert (training.device, training.workers, heldout.device) == ("cpu", 14, "cuda")
    assert training.cache_dir is not None, "verdicts of a CPU are kept"
    same, heldout_before, key_before = asked(on_a_gpu())
    assert same.device == "cuda"
    assert (heldout, key) == (heldout_before, key_before), "the same held-out answers, taken from the cache"


def test_workers_alone_can_be_changed(asked: Any):
    training, heldout, _ = asked(on_a_gpu("rollout.judge.workers=3"))
    assert (training.device, training.workers, heldout.workers) == ("cuda", 3, 4)


@pytest.mark.parametrize("backend", ["cuda", "auto"])
def test_a_language_that_a_cpu_does_not_run_is_refused(backend: str):
    from flows.checks.settings import check_rollout_judge

    config = on_a_gpu("rollout.judge.device=cpu", f"judge.backend={backend}")
    with pytest.raises(InputError, match=rf"rollout\.judge\.device: found cpu, .*judge\.backend = {backend}"):
        check_rollout_judge(config)
    check_rollout_judge(on_a_gpu("rollout.judge.device=cpu"))


def test_the_run_is_another_one():
    assert on_a_gpu("rollout.judge.device=cpu").run_id != on_a_gpu().run_id
    assert on_a_gpu("rollout.judge.device=cpu").run_id == on_a_gpu(*ON_CPU).run_id
