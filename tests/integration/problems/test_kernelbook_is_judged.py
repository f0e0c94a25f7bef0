"""Rows in KernelBook's true format, whose imports PyTorch has removed since, are judged for what they compute."""

import json
from pathlib import Path

import pytest

from kernels_eval import Judge, JudgeConfig, Problem, Status, Verdict
from tasks.problems.pair_formats.pair import Pair
from tasks.problems.pairs import load_pairs

pytestmark = pytest.mark.long

ROWS = Path("tests/fixtures/kernelbook/rows.jsonl")
HEURISTICS = "torch._inductor.runtime.triton_heuristics"
HELPERS = "torch._inductor.runtime.triton_helpers"
STREAM = "torch._C._cuda_getCurrentRawStream"


@pytest.fixture(scope="module")
def judged() -> dict[str, tuple[Verdict, Verdict]]:
    """The verdict on each row by its name, and that on the row with a mistake in its kernel."""
    names = [json.loads(line)["entry_point"] for line in ROWS.read_text().splitlines()]
    pairs = list(load_pairs(ROWS))
    wrong = [pair.kernel_source.replace("0.5", "0.25").replace("tanh(tmp1)", "tanh(tmp0)") for pair in pairs]

    def item(pair: Pair, kernel: str) -> tuple[Problem, str]:
        return Problem(problem_id=pair.pair_id, source=pair.problem_source), kernel

    items = [item(pair, pair.kernel_source) for pair in pairs] + [
        item(pair, kernel) for pair, kernel in zip(pairs, wrong, strict=True)
    ]
    with Judge(JudgeConfig(workers=1, device="cpu")) as judge:
        verdicts = judge.evaluate_many(items)
    return dict(zip(names, zip(verdicts[: len(pairs)], verdicts[len(pairs) :], strict=True), strict=True))


@pytest.mark.parametrize(
    ("name", "provided"),
    [
        ("SquaredShift", (HEURISTICS, STREAM)),
        ("ClampedMean", (HEURISTICS, HELPERS, STREAM)),
        ("TanhExp", (HEURISTICS, HELPERS, STREAM)),
    ],
)
def test_generated_kernels_are_right_and_their_mistakes_wrong(
    judged: dict[str, tuple[Verdict, Verdict]], name: str, provided: tuple[str, ...]
):
    right, wrong = judged[name]
    assert right.status is Status.CORRECT, right
    assert right.resources, "compiled to machine code"
    assert right.provided == provided
    assert wrong.status is Status.INCORRECT, wrong


def test_calls_of_the_library_are_ruled_by_the_policy_and_not_by_their_import(
    judged: dict[str, tuple[Verdict, Verdict]],
):
    verdict, _ = judged["Projection"]
    assert verdict.rejection_reason == "library_compute"
    assert "torch._inductor.select_algorithm" in verdict.provided


def test_a_kernel_that_imports_none_of_it_is_provided_nothing():
    assert Verdict(status=Status.CORRECT).provided == ()
