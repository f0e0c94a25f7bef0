"""Nothing that one candidate leaves can be found by the next one of the same worker."""

import gc
import re
from pathlib import Path

import left_behind
import pytest

from kernels_eval import Judge, JudgeConfig, Verdict


def judged(judge: Judge, count: int) -> list[Verdict]:
    return judge.evaluate_many([(left_behind.PROBLEM, left_behind.candidate(number)) for number in range(count)])


def said(verdict: Verdict) -> str:
    assert verdict.error_category == "load_error", verdict
    found = re.search(r"found \[.*?\], left \[.*?\]", verdict.error_message or "")
    assert found is not None, verdict.error_message
    return found[0]


def memory_in_use_mb() -> float:
    """Return the machine's memory that is shared between processes (System V, tmpfs, memory files), in MiB."""
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["Shmem"].split()[0]) / 1024


def test_the_next_candidate_finds_nothing() -> None:
    with Judge(JudgeConfig(workers=1, compile="never", device="cpu")) as judge:
        verdicts = judged(judge, 3)
    if "seccomp" not in verdicts[0].sandbox or "landlock" not in verdicts[0].sandbox:
        pytest.skip("this machine lacks a part of the sandbox")
    assert {said(verdict) for verdict in verdicts} == {"found [], left []"}


@pytest.mark.slow
def test_a_thousand_candidates_leave_nothing_and_no_memory() -> None:
    with Judge(JudgeConfig(workers=1, compile="never", device="cpu")) as judge:
        judged(judge, 1)
        before = memory_in_use_mb()
        assert {said(verdict) for verdict in judged(judge, 1000)} == {"found [], left []"}
        gc.collect()
        assert memory_in_use_mb() < before + 64
