"""The inspector on kernels with one planted defect each, on honest fast ones, and on failures."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from inspected_kernels import HONEST, PLANTED

from flows.cli.main import run
from kernels_eval import Judge, JudgeConfig, Problem
from kernels_eval.inspector import Inspection, inspect_kernel
from kernels_eval.problem import EXAMPLE_KERNEL, EXAMPLE_PROBLEM
from kernels_eval.verdict import IssueKind

FOLLOWING = {
    "many_launches": {"redundant_traffic"},  # what two launches pass on is written and read again
    "oversized_blocks": {"spills", "low_occupancy"},
    "spills": {"oversized_blocks", "low_occupancy"},
    "low_occupancy": {"oversized_blocks"},
}
"""Issues that come with a planted one."""


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(JudgeConfig(workers=1, device="cpu", full_size_share=0)) as made:
        yield made


def inspected(judge: Judge, problem: str, kernel: str) -> Inspection:
    return inspect_kernel(judge, Problem(problem_id="problem", source=problem), kernel)


def test_every_class_is_planted() -> None:
    assert set(PLANTED) == {kind.value for kind in IssueKind}


@pytest.mark.parametrize("kind", PLANTED)
def test_a_planted_defect_is_named_with_its_figure_and_a_remedy(judge: Judge, kind: str) -> None:
    found = inspected(judge, *PLANTED[kind])
    assert found.verdict.correct, found.verdict
    kinds = {issue.kind.value for issue in found.issues}
    assert kind in kinds
    assert kinds <= {kind} | FOLLOWING.get(kind, set())
    assert found.verdict.issues == found.issues
    (issue,) = [issue for issue in found.issues if issue.kind.value == kind]
    assert issue.remedy
    assert any(character.isdigit() for character in issue.message)
    assert issue.value != issue.limit
    if issue.kernel is not None:
        assert f"{issue.kernel}[" in PLANTED[kind][1].splitlines()[issue.line - 1]


@pytest.mark.parametrize("name", HONEST)
def test_honest_fast_kernels_have_none(judge: Judge, name: str) -> None:
    found = inspected(judge, *HONEST[name])
    assert found.verdict.correct, found.verdict
    assert found.issues == ()
    assert found.failure is None


def test_the_figures_are_those_of_the_verdict(judge: Judge) -> None:
    found = inspected(judge, *HONEST["row softmax"])
    figures = found.figures
    assert figures is not None
    (launch,) = figures.launches
    assert found.verdict.candidate_ms is not None
    assert figures.microseconds == pytest.approx(1e3 * found.verdict.candidate_ms)
    moved = 2 * 16384 * 2048 * 4
    assert figures.moved_bytes == figures.needed.bytes == moved
    assert launch.programs == 16384
    assert launch.registers == found.verdict.resources[0].registers
    assert launch.microseconds == pytest.approx(launch.share * figures.microseconds)


@pytest.mark.parametrize(
    ("change", "line", "symbol", "cause"),
    [
        (("tl.exp(x)", "tl.exp(x) + missing"), 13, "missing", "`missing` is used before it is given a value"),
        (("tl.exp(x)", "tl.expo(x)"), 13, "tl.expo", "a Triton kernel cannot use `tl.expo`"),
        (("tl.arange(0, BLOCK)", "tl.arange(0, 3)"), 10, "arange", "tl.arange covers a power of two"),
        (("tl.exp(x)", "tl.arange(0, 8)[None, :]"), 13, None, "two blocks of different sizes meet"),
        (("mask=mask)\n\n", "mask=mask)\n    return\n\n"), None, None, None),
        (("tl.exp(x)", "tl.exp(2 * x)"), None, None, "the kernel runs and its values are wrong: "),
        (("ModelNew", "Model2"), None, None, "the source defines no class ModelNew"),
        (("return out", "return outt"), 21, "outt", "`outt` is used before"),
        (
            ("rows * N + cols, mask=mask, other=0.0", "(rows + M) * N + cols"),
            12,
            "x_ptr",
            "the kernel accesses memory outside of `x_ptr`",
        ),
    ],
)
def test_a_failure_is_explained(
    judge: Judge, change: tuple[str, str], line: int | None, symbol: str | None, cause: str | None
) -> None:
    kernel = EXAMPLE_KERNEL.replace(*change)
    assert kernel != EXAMPLE_KERNEL
    found = inspected(judge, EXAMPLE_PROBLEM, kernel)
    if cause is None:
        assert found.failure is None
        return
    assert found.failure is not None, found.verdict
    assert (found.failure.line, found.failure.symbol) == (line, symbol)
    assert found.failure.cause.startswith(cause)
    assert found.figures is None
    assert found.issues == ()


@pytest.mark.long
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problem, kernel = PLANTED["masked_lanes"]
    for name, text in (("problem.py", problem), ("kernel.py", kernel)):
        (tmp_path / name).write_text(text)
    sources = [str(tmp_path / "problem.py"), str(tmp_path / "kernel.py")]
    assert run(["judge", "inspect", *sources, "--set", "judge.device=cpu"]) == 0
    said = capsys.readouterr().out
    assert "✗ masked_lanes: kernel, line 15: 49% of the lanes are masked off" in said
    assert "  → choose blocks" in said
    assert "a call, estimated for h100" in said
    (tmp_path / "kernel.py").write_text(kernel.replace("tl.sum(x, axis=0)", "tl.sum(x, axis=0) + 1"))
    assert run(["judge", "inspect", *sources, "--json", "--set", "judge.device=cpu"]) == 0
    found = Inspection.model_validate(json.loads(capsys.readouterr().out))
    assert found.failure is not None
    assert found.failure.category == "wrong_values"
    assert run(["judge", "inspect", str(tmp_path / "missing.py"), sources[1]]) == 2
    assert "missing.py" in capsys.readouterr().err
