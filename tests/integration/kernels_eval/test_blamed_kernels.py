"""Kernels on which the machine fails: on a GPU, which they share with the judge, it is their own fault at last.

Without a GPU it is theirs if the judge's own code fails on them, again and again.
"""

from collections import Counter
from typing import Any

import pytest

from kernels_eval import Judge, JudgeConfig
from kernels_eval.judge import _MachineFault
from kernels_eval.problem import EXAMPLE_KERNEL, EXAMPLE_PROBLEM
from kernels_eval.verdict import Status, Verdict

CORRECT = Verdict(status=Status.CORRECT, compiled=True, correct=True)


def verdict_of(
    device: str, works: set[int], monkeypatch: pytest.MonkeyPatch, category: str = "judge_fault"
) -> tuple[Verdict, Counter[str]]:
    """Return the verdict on a kernel on which the machine fails but in the attempts `works`, and what was judged."""
    judged: Counter[str] = Counter()

    def judge(self: Judge, client: Any, job: Any) -> Verdict | _MachineFault:
        name = "probe" if job.key == "probe" else "kernel"
        judged[name] += 1
        return CORRECT if name == "probe" or judged[name] in works else _MachineFault(category, "no memory left")

    monkeypatch.setattr(Judge, "_try", judge)
    with Judge(JudgeConfig(device="cpu", workers=1, compile="never")) as judge_here:
        judge_here.config = judge_here.config.model_copy(update={"device": device})
        return judge_here.evaluate(EXAMPLE_PROBLEM, EXAMPLE_KERNEL, "triton"), judged


def test_on_a_gpu_a_kernel_cannot_choose_to_have_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    verdict, judged = verdict_of("cuda", set(), monkeypatch)
    assert (verdict.status, verdict.error_category) == ("runtime_error", "machine_fault")
    assert "failed on this kernel 2 times, and not on a probe: no memory left" in (verdict.error_message or "")
    assert judged == {"kernel": 2, "probe": 2}


def test_a_machine_that_fails_once_says_nothing_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    assert verdict_of("cuda", {2}, monkeypatch)[0].correct


def test_without_a_gpu_it_stays_the_machines_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    verdict, judged = verdict_of("cpu", set(), monkeypatch)
    assert verdict.is_fault
    assert judged["kernel"] == 4


def test_without_a_gpu_a_kernel_cannot_choose_a_bug_of_the_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    verdict, judged = verdict_of("cpu", set(), monkeypatch, "judge_bug")
    assert (verdict.status, verdict.error_category) == ("runtime_error", "machine_fault")
    assert judged == {"kernel": 2, "probe": 2}
