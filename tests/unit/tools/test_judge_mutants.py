"""The mutation score: a mutant that ends its process is wrong, the ones after it are decided, a run can be resumed."""

import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kernels_eval.redteam.mutation import Mutant
from kernels_eval.redteam.suite import load_cases

FOLDER = Path(__file__).parents[3] / "tools"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [*sys.path])
    return load("judge_mutants", monkeypatch)


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, found)
    spec.loader.exec_module(found)
    return found


def entries(module: ModuleType, truths: list[str], statuses: list[str] | None = None) -> list[Any]:
    case = next(case for case in load_cases() if case.is_honest)
    made = [module.Entry.of(case, Mutant(operator="drop mask", line=3, source=f"x = {n}")) for n in range(len(truths))]
    return [
        replace(entry, truth=truth, status=status)
        for entry, truth, status in zip(made, truths, statuses or [""] * len(truths), strict=True)
    ]


def test_a_process_that_ends_in_a_mutant_is_started_again_after_it(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[int]] = []

    def conversation(_: object, numbers: list[int], __: str) -> Iterator[tuple[int, str]]:
        asked.append(list(numbers))
        yield -1, "fit"
        yield -1, "ready 0.10"
        for number in numbers:
            yield number, "started"
            if number == 1:
                return  # a crash
            yield number, "equal" if number == 0 else "wrong: data race: a read"

    monkeypatch.setattr(module, "conversation", conversation)
    some = entries(module, ["unknown"] * 4)
    module.decide_case(some, "cuda")
    assert [entry.truth for entry in some] == ["equal", "fails", "wrong", "wrong"]
    assert some[2].cause == "data race: a read"
    assert asked == [[0, 1, 2, 3], [2, 3]]


@pytest.mark.parametrize("said", [[(-1, "unfit: it fails")], [(-1, "slow")], []])
def test_nothing_is_known_of_mutants_of_a_kernel_that_cannot_run_here(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, said: list[tuple[int, str]]
) -> None:
    monkeypatch.setattr(module, "conversation", lambda *_: iter(said))
    some = entries(module, ["unknown"] * 2)
    module.decide_case(some, "cpu")
    assert [entry.truth for entry in some] == ["unknown", "unknown"]
    assert all(entry.cause for entry in some)


def test_the_score_counts_wrong_mutants_alone_and_lists_those_that_passed(
    module: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    truths = ["wrong", "wrong", "fails", "equal", "equal", "unknown"]
    statuses = ["incorrect", "correct", "runtime_error", "correct", "incorrect", ""]
    some = entries(module, truths, statuses)
    some[1].held_out = "incorrect"
    module.report(some)
    said = capsys.readouterr().out
    assert "mutation score: 2 of 3 killed (66.67%); as held-out evaluation judges: 3 (100.00%)" in said
    assert "of those that run to the end: 1 of 2 killed (50.00%)" in said
    assert "equal on this machine's runs, and refused: 1" in said
    assert said.count("SURVIVED") == 1
    assert some[1].name in said


def test_each_case_gets_its_share_and_the_seed_decides(module: ModuleType) -> None:
    drawn = module.draw(12, 0, "unusual_shapes")
    assert len(drawn) == 12
    assert len({entry.case.path for entry in drawn}) == 8
    assert drawn == module.draw(12, 0, "unusual_shapes")
    assert {entry.source for entry in drawn} != {entry.source for entry in module.draw(12, 1, "unusual_shapes")}


def test_a_run_that_was_cut_off_goes_on_with_the_mutants_that_its_file_lacks(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    decided: list[str] = []

    def decide_case(some: list[Any], _: str) -> None:
        for entry in some:
            entry.truth, entry.cause = "wrong", "values"
            decided.append(entry.digest)

    monkeypatch.setattr(module, "decide_case", decide_case)
    monkeypatch.setattr(module, "start_fork_server", lambda _: None)
    out = tmp_path / "mutants.jsonl"
    arguments = ["--mutants", "16", "--only", "unusual_shapes", "--truth-only", "--out", str(out)]
    module.main([*arguments, "--budget-s", "-1"])
    assert not out.exists()
    module.main(arguments)
    lines = out.read_text().splitlines()
    assert len(lines) == len(decided) == 16
    out.write_text("\n".join(lines[:6]) + "\n")
    module.main(arguments)
    assert len(decided) == 26
    assert len(module.read_entries(out)) == 16
    again = tmp_path / "again.jsonl"
    module.main([*arguments[:-1], str(again), "--truth", str(out)])
    assert len(decided) == 26
    assert {entry.truth for entry in module.read_entries(again).values()} == {"wrong"}
    assert "16" in capsys.readouterr().out
