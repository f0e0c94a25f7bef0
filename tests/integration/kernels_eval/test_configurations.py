"""Autotuned kernels: every configuration has to be right, the fastest one is estimated, what a device lacks is skipped."""

from typing import Any

import pytest
from kernel_sources import HEADER, LINEAR_KERNEL, LINEAR_PROBLEM, ROW_KERNEL, ROW_PROBLEM

from kernels_eval import Judge, Status, Verdict


def configs(*written: str, more: str = "") -> str:
    return (
        f"@triton.autotune([{', '.join(f'triton.Config({each})' for each in written)}], key=['N']{more})\n@triton.jit"
    )


def rows_in(*written: str) -> str:
    """The row kernel, autotuned over the rows of a program."""
    source = ROW_KERNEL.replace("@triton.jit", configs(*written)).replace(" ROWS=4,", "")
    return source.replace("(triton.cdiv(M, 4),)", "lambda meta: (triton.cdiv(M, meta['ROWS']),)")


def linear_in(*written: str) -> str:
    """The linear layer, autotuned over its tiles."""
    source = LINEAR_KERNEL.replace("@triton.jit", configs(*written)).replace(", BM=32, BN=32, BK=32", "")
    grid = "lambda meta: (triton.cdiv(M, meta['BM']), triton.cdiv(N, meta['BN']))"
    return source.replace("(triton.cdiv(M, 32), triton.cdiv(N, 32))", grid)


def judged(judge: Judge, problem: str, kernel: str, **settings: Any) -> Verdict:
    return judge.submit(problem, kernel, settings={"full_size_share": 0.0, **settings}).result()


ONE, FOUR, SIXTEEN = ("{'ROWS': 1}", "{'ROWS': 4}", "{'ROWS': 16}")


def test_the_time_is_that_of_the_fastest_configuration_wherever_it_is_listed(judge: Judge) -> None:
    alone = [judged(judge, ROW_PROBLEM, rows_in(each)).candidate_ms or 0.0 for each in (ONE, FOUR, SIXTEEN)]
    assert min(alone) < 0.95 * max(alone), "the configurations differ"
    for order in ((ONE, FOUR, SIXTEEN), (SIXTEEN, FOUR, ONE)):
        verdict = judged(judge, ROW_PROBLEM, rows_in(*order))
        assert verdict.correct, verdict
        assert verdict.candidate_ms == pytest.approx(min(alone), rel=0.02)


def test_a_configuration_that_is_wrong_is_found_and_named(judge: Judge) -> None:
    for order in ((FOUR, "{'ROWS': 4, 'BLOCK': 256}"), ("{'ROWS': 4, 'BLOCK': 256}", FOUR)):
        written = [each.replace("}", ", 'BLOCK': 512}") if "BLOCK" not in each else each for each in order]
        verdict = judged(judge, ROW_PROBLEM, rows_in(*written).replace(", BLOCK=512", ""))
        assert (verdict.status, verdict.error_category) == (Status.INCORRECT, "wrong_values"), verdict
    assert "BLOCK: 256" in (
        judged(judge, ROW_PROBLEM, rows_in(*written[::-1]).replace(", BLOCK=512", "")).error_message or ""
    )


ADDS = (
    HEADER
    + """
@triton.autotune([triton.Config({'BLOCK': 64}), triton.Config({'BLOCK': 128})], key=['N']SETTINGS)
@triton.jit
def kernel(x_ptr, out_ptr, M, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + cols, mask=cols < N, other=0.0)
    tl.atomic_add(out_ptr + row, tl.sum(x, axis=0))

class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        out = torch.EMPTY(M, dtype=x.dtype, device=x.device)
        kernel[lambda meta: (M, triton.cdiv(N, meta['BLOCK']))](x, out, M, N)
        return out
"""
)
SUM_PROBLEM = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        return x.sum(dim=1)
def get_inputs():
    return [torch.randn(512, 300)]
def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("memory", "setting", "is_right"),
    [
        ("zeros", ", reset_to_zero=['out_ptr']", True),
        ("zeros", ", restore_value=['out_ptr']", True),
        ("zeros", ", pre_hook=lambda given, reset_only=False: given['out_ptr'].zero_()", True),
        ("zeros", "", False),
        ("empty", ", reset_to_zero=['out_ptr']", False),
    ],
)
def test_sums_in_memory_are_right_in_the_first_call_and_in_later_ones(
    judge: Judge, memory: str, setting: str, is_right: bool
) -> None:
    verdict = judged(judge, SUM_PROBLEM, ADDS.replace("EMPTY", memory).replace("SETTINGS", setting))
    assert verdict.correct is is_right, verdict
    if not is_right:
        assert verdict.error_category == "wrong_values"


def test_two_autotuners_are_chosen_apart(judge: Judge) -> None:
    two = """
class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        out = torch.empty_like(x)
        FIRST[lambda meta: (triton.cdiv(M, meta['ROWS']),)](x, out, M, N, BLOCK=512)
        again = torch.empty_like(x)
        SECOND[lambda meta: (triton.cdiv(M, meta['ROWS']),)](out, again, M, N, BLOCK=512)
        return again
"""
    body = ROW_KERNEL.split("class ModelNew")[0].replace("@triton.jit", "DECORATORS").replace("def kernel", "def NAME")
    kernel = "".join(
        body.replace("DECORATORS", configs(*written)).replace("NAME", name)
        for name, written in (("first", (ONE, SIXTEEN)), ("second", (SIXTEEN, ONE)))
    )
    problem = ROW_PROBLEM.replace("return torch.softmax(x, dim=1)", "x = torch.softmax(x, dim=1)").replace(
        "def get_inputs", "        return torch.softmax(torch.relu(x) * 2.0 + 1.0, dim=1)\ndef get_inputs", 1
    )
    source = kernel + two.replace("FIRST", "first").replace("SECOND", "second")
    best = judged(judge, ROW_PROBLEM, rows_in(ONE)), judged(judge, ROW_PROBLEM, rows_in(SIXTEEN))
    verdict = judged(
        judge,
        problem.replace("M, N = 4096, 300\n", "").replace("import torch\n", "import torch\nM, N = 4096, 300\n", 1),
        source,
    )
    assert verdict.correct, verdict
    assert (verdict.candidate_ms or 0) < 2.02 * min(each.candidate_ms or 0 for each in best)


HUGE = "{'BM': 64, 'BN': 64, 'BK': 64}, num_warps=4, num_stages=16"
SMALL = "{'BM': 32, 'BN': 32, 'BK': 32}, num_warps=4"


def test_a_configuration_that_takes_more_than_the_device_has_is_skipped(judge: Judge) -> None:
    alone = judged(judge, LINEAR_PROBLEM, linear_in(HUGE), compile="correct")
    assert alone.error_category == "shared_memory_limit", alone
    for order in ((HUGE, SMALL), (SMALL, HUGE)):
        verdict = judged(judge, LINEAR_PROBLEM, linear_in(*order), compile="correct")
        assert verdict.correct, verdict
        assert [used.shared_bytes for used in verdict.resources if (used.shared_bytes or 0) > 232448] == []


def test_a_configuration_that_does_not_compile_is_a_compile_error(judge: Judge) -> None:
    assert judged(judge, LINEAR_PROBLEM, linear_in(SMALL), compile="correct").correct
    verdict = judged(judge, LINEAR_PROBLEM, linear_in(SMALL, SMALL.replace("=4", "=3")), compile="correct")
    assert verdict.error_category == "triton_compile", verdict
