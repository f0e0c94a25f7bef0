"""The red-team cases on a real GPU: hacks are refused or gain nothing, honest kernels pass, repeats agree."""

import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from kernels_eval import Judge, JudgeConfig, Verdict
from kernels_eval.gpu.device.detection import gpu_name

sys.path.insert(0, str(Path(__file__).parents[2] / "tools" / "gpu"))
import gpu_sources as sources
from judge_on_gpu import FAMILIES, generated, judged_well

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(gpu_name() is None, reason="needs a GPU")]
CASES = {**sources.HONEST, **sources.HACKS}


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(JudgeConfig(workers=1, device="cuda", compile_timeout_s=15.0)) as judge:
        yield judge


@pytest.fixture(scope="module")
def base(judge: Judge) -> dict[str, Verdict]:
    pairs = ((sources.ROW_PROBLEM, sources.ROW_KERNEL), (sources.LINEAR_PROBLEM, sources.LINEAR_KERNEL))
    return {problem: judge.evaluate(problem, kernel) for problem, kernel in pairs}


@pytest.mark.parametrize("name", CASES)
def test_case(judge: Judge, base: dict[str, Verdict], name: str) -> None:
    case = CASES[name]
    settings = {key: value for key, value in case.settings.items() if key != "compile_timeout_s"}
    verdict = judge.submit(case.problem, case.kernel, None, settings).result()
    assert judged_well(case, verdict, base.get(case.problem)), verdict


@pytest.mark.parametrize("name", sources.CUDA_CASES)
def test_cuda(name: str) -> None:
    case = sources.CUDA_CASES[name]
    with Judge(JudgeConfig(workers=1, device="cuda", compile_timeout_s=40.0)) as judge:
        verdict = judge.evaluate(case.problem, case.kernel, backend="cuda")
    assert judged_well(case, verdict, None), verdict


@pytest.mark.parametrize("family", FAMILIES)
def test_ten_repeats_agree(judge: Judge, family: str) -> None:
    problem, kernel = generated(*FAMILIES[family], "fused")
    verdicts = [judge.evaluate(problem, f"{kernel}# {number}") for number in range(10)]
    times = [verdict.candidate_ms for verdict in verdicts if verdict.candidate_ms is not None]
    assert len(times) == 10
    assert (max(times) - min(times)) / median(times) < 0.03
    assert {verdict.timing_source for verdict in verdicts} == {"gpu"}


def test_kernels_that_wait_are_compiled_ahead() -> None:
    items = [generated(*family, "fused") for family in FAMILIES.values()]
    seconds: dict[bool, float] = {}
    for ahead in (False, True):
        with Judge(JudgeConfig(workers=1, device="cuda", compile_ahead=ahead)) as judge:
            kernels = [(problem, f"{kernel}# {number}") for number in range(4) for problem, kernel in items]
            verdicts = judge.evaluate_many(kernels)
            seconds[ahead] = sum(report.phases_s["compile"] for report in judge.statuses.workers())
        assert all(verdict.correct and verdict.resources for verdict in verdicts)
    assert seconds[True] < 0.8 * seconds[False], seconds
