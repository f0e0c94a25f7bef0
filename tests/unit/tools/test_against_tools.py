"""A policy against existing tools: problem by problem, at the same number of judged kernels, and what it loses."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, ClassVar, Self

import pytest
from judged_runs import FAULT, WRONG, a_run, conversation, right

from flows.run.state import read_state, write_state
from flows.settings.configuration import load_configuration
from kernels_eval import Problem, Verdict
from kernels_eval.config import JudgeConfig
from tasks.pipeline.references import EvaluationRef, ProblemSetRef
from tasks.problems.config import ProblemsConfig
from tasks.problems.problem_set import build_problem_set, read_problems
from tasks.problems.row import ProblemRow
from tasks.problems.synthetic.composition import parse_composition
from tasks.problems.synthetic.sources import Style, kernel_source

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))
import against_tools
from against_tools import Found, Line, found_in, printed, summary


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> ProblemSetRef:
    return build_problem_set(ProblemsConfig(train=2, heldout=4), tmp_path_factory.mktemp("against") / "problems")


@pytest.fixture(scope="module")
def rows(problems: ProblemSetRef) -> list[ProblemRow]:
    return read_problems(problems, "heldout")


def test_the_fastest_right_kernel_of_all_turns_counts_and_each_kernel_once() -> None:
    talks = [
        conversation("p", 0, ("a", right(2.0)), ("b", WRONG)),
        conversation("p", 1, ("a", right(2.1)), ("c", right(1.0)), ("d", FAULT)),
        conversation("q", 0, ("w", WRONG)),
    ]
    assert found_in(talks) == {"p": Found(3, "c"), "q": Found(1, None)}


class OnAGpu:
    """A judge on a GPU, whose times are known: a kernel's own in its name, torch.compile's by mode."""

    second: ClassVar = {"compile": 2.0, "max-autotune": 0.5}
    judged: ClassVar[list[tuple[str, str | None]]] = []

    def __init__(self, config: JudgeConfig) -> None:
        self.asked, self.config = config, SimpleNamespace(device="cuda")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Nothing is open."""

    def evaluate_many(self, items: Sequence[tuple[Problem, str]]) -> list[Verdict]:
        second = self.asked.second_baseline
        self.judged.extend((kernel, second) for _, kernel in items)
        times = {"ours": 1.0, "slow": 3.0}
        measured = {"reference_ms": 4.0, "second_reference_ms": None if second is None else self.second[second]}
        unmeasured = {"lucky": WRONG, "broken": FAULT}
        return [
            unmeasured.get(kernel, right(times.get(kernel, 1.5)).model_copy(update=measured)) for _, kernel in items
        ]


def test_each_rival_is_measured_beside_the_kernel_that_is_judged_anew(
    rows: list[ProblemRow], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(against_tools, "Judge", OnAGpu)
    OnAGpu.judged.clear()
    names = [row.problem.problem_id for row in rows]
    kernels = ["ours", "slow", "lucky", None]
    found = {name: Found(3, kernel) for name, kernel in zip(names, kernels, strict=True)}
    config = load_configuration("deployments/configs/test.yaml")
    lines = against_tools.table(rows, found, config)
    drawn = [kernel for kernel, second in OnAGpu.judged if second is None]
    assert len(drawn) == 3 * len(rows), "the autotuner has as many kernels as were judged"
    assert {second for kernel, second in OnAGpu.judged if kernel == "ours"} == {"compile", "max-autotune"}
    assert {second for kernel, second in OnAGpu.judged if kernel in drawn} == {None, "compile"}, "best ones once more"
    ours, slow, lucky, none = lines
    assert ours.times == {"eager": 4.0, "compile": 2.0, "max-autotune": 0.5, "autotuner": 1.5}
    assert ours.lost_to(0.02) == ["max-autotune"]
    assert slow.times == pytest.approx({"eager": 4 / 3, "compile": 2 / 3, "max-autotune": 0.5 / 3, "autotuner": 0.5})
    for line in (lucky, none):
        assert (line.is_right, set(line.times.values())) == (False, {None})
        assert line.lost_to(0.02) == ["eager", "compile", "max-autotune", "autotuner"]
    assert summary(lines, 0.02)["compile"] == {
        "problems": 4, "won": 1, "even": 0, "lost": 3, "wrong": 2, "times": pytest.approx((2 * 2 / 3) ** 0.5),
    }  # fmt: skip
    text = list(printed(lines, 0.02))
    at = text.index("lost to a rival: 4 of 4 problems")
    assert {line.split()[0] for line in text[at + 1 : at + 3]} == {names[2], names[3]}, "no right kernel is the worst"
    assert text[at + 3].split(": ")[1] == "compile 0.67, max-autotune 0.17, autotuner 0.50"
    assert not any("estimates" in line for line in text)


class Unlucky(OnAGpu):
    """A judge for which the autotuner's kernels are right at first, and wrong when they are judged anew."""

    def evaluate_many(self, items: Sequence[tuple[Problem, str]]) -> list[Verdict]:
        verdicts = super().evaluate_many(items)
        if self.asked.second_baseline is None:
            return verdicts
        return [
            one if kernel in ("ours", "broken") else WRONG for (_, kernel), one in zip(items, verdicts, strict=True)
        ]


def test_a_fault_of_the_machine_is_no_loss_and_a_rival_that_is_wrong_anew_wins_nothing(
    rows: list[ProblemRow], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(against_tools, "Judge", Unlucky)
    names = [row.problem.problem_id for row in rows]
    kernels = ["ours", "broken", None]
    found = {name: Found(2, kernel) for name, kernel in zip(names, kernels, strict=False)}
    ours, broken, none = against_tools.table(rows[:3], found, load_configuration("deployments/configs/test.yaml"))
    assert (ours.rivals, ours.times["autotuner"]) == (("eager", "compile", "max-autotune"), None)
    assert (broken.is_right, broken.rivals, broken.lost_to(0.02)) == (False, (), [])
    assert none.lost_to(0.02) == ["eager", "compile", "max-autotune"]


def line_of(**times: float) -> Line:
    known: dict[str, Any] = dict.fromkeys(against_tools.RIVALS) | times
    return Line("p", 1, "standard", 4, True, 1.0, "gpu", known, tuple(times))


def test_a_difference_within_the_slack_is_neither_won_nor_lost() -> None:
    lines = [line_of(eager=1.01, autotuner=0.99), line_of(eager=1.03, autotuner=0.97)]
    assert [line.lost_to(0.02) for line in lines] == [[], ["autotuner"]]
    assert [(row["won"], row["even"], row["lost"]) for row in summary(lines, 0.02).values()] == [
        (1, 1, 0), (0, 0, 0), (0, 0, 0), (0, 1, 1),
    ]  # fmt: skip


def test_a_runs_evaluation_is_compared_without_a_gpu(
    problems: ProblemSetRef, rows: list[ProblemRow], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    row = next(row for row in rows if row.composition.count(">") > 0)
    composition = parse_composition(row.composition)
    slow = kernel_source(composition, Style.STEPWISE)
    talks = [conversation(row.problem.problem_id, 0, ("w", WRONG), (slow, right(2.0)))]
    run = a_run(problems, tmp_path, WRONG, talks)
    state = read_state(run)
    evaluation = EvaluationRef(uri=state.batches[0].uri, digest="d", policy_digest="p")
    write_state(run, state.model_copy(update={"evaluations": {1: evaluation}}))
    out = tmp_path / "table.json"
    monkeypatch.setattr(sys, "argv", ["against_tools.py", f"{run}@1", "--out", str(out)])
    against_tools.main()
    (found,) = json.loads(out.read_text())["problems"]
    assert (found["measured"], found["is_right"], found["timing_source"]) == (2, True, "roofline")
    assert found["rivals"] == ["eager", "autotuner"]
    assert found["lost_to"] == ["autotuner"], "its first kernel is the fused one"
    printed_lines = capsys.readouterr().out.splitlines()
    assert "times are estimates; torch.compile is measured on a GPU alone" in printed_lines
    assert any(line.startswith(f"  {row.problem.problem_id} (level") for line in printed_lines)
    monkeypatch.setattr(sys, "argv", ["against_tools.py", f"{run}@1", "--greedy"])
    with pytest.raises(SystemExit):
        against_tools.main()
