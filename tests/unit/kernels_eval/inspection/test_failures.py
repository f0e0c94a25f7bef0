"""Failures are explained from a verdict's message alone."""

import pytest

from kernels_eval.inspection.failures import explain
from kernels_eval.verdict import Status, Verdict


def failed(category: str, message: str | None, status: Status = Status.COMPILE_ERROR) -> Verdict:
    return Verdict(status=status, error_category=category, error_message=message)


@pytest.mark.parametrize(
    ("category", "message", "line", "symbol", "cause"),
    [
        (
            "nvcc_compile",
            'cuda.cu line 12: identifier "blockldx" is undefined; cuda.cu line 15: expected a ";"',
            12,
            "blockldx",
            "`blockldx` is not declared in the CUDA source",
        ),
        ("nvcc_compile", 'cuda.cu line 3: expected a ";"', 3, None, 'cuda.cu line 3: expected a ";"'),
        (
            "triton_compile",
            "kernel: AssertionError: Input shapes should have M >= 1, N >= 1 and K >= 16 (line 9: total = tl.dot(a, b))",
            9,
            None,
            "an operand of tl.dot is smaller than a tensor core takes",
        ),
        (
            "exception",
            "TypeError: missing a required argument: 'BLOCK' (line 20: kernel[(4,)](x, out))",
            20,
            "BLOCK",
            "the launch does not pass `BLOCK`",
        ),
        ("exception", "ValueError: boo (line 7: raise ValueError('boo'))", 7, None, "ValueError: boo"),
        ("compiler_crashed", None, None, None, "compiler crashed"),
        (
            "data_race",
            "programs 1 and 2 write y[3]",
            None,
            None,
            "programs or lanes access one address without an order",
        ),
    ],
)
def test_line_symbol_and_cause(
    category: str, message: str | None, line: int | None, symbol: str | None, cause: str
) -> None:
    found = explain(failed(category, message))
    assert (found.category, found.line, found.symbol) == (category, line, symbol)
    assert found.cause.startswith(cause)


def test_a_broken_rule_is_the_category() -> None:
    rejected = Verdict(status=Status.REJECTED, rejection_reason="library_compute", error_category="library_compute")
    found = explain(rejected)
    assert found.category == "library_compute"
    assert found.remedy == "allocate, reshape and launch on the host; compute in kernels"
