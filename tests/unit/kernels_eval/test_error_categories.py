"""Error categories: every one has its sentence, and the code names them by the enum alone."""

import ast
import json
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli.main import app
from kernels_eval.error_categories import EXPLANATIONS, ErrorCategory, category_of
from kernels_eval.verdict import Status, Verdict

ROOT = Path(__file__).resolve().parents[3]
_TAKES_ONE = {
    "CandidateFailedError", "CandidateError", "UnreliableTimingError", "Exceeded", "ProgramError", "_MachineFault",
    "fault", "fault_verdict",
}  # fmt: skip


def bare_names(path: Path) -> Iterator[str]:
    """Yield strings that a source gives as a category: to an error that takes one, or as a keyword."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        given = [*(node.args if name in _TAKES_ONE else ())]
        given += [keyword.value for keyword in node.keywords if keyword.arg in ("category", "error_category")]
        for value in given:
            if isinstance(value, ast.Constant) and isinstance(value.value, str) and value.value not in list(Status):
                yield f"{path.relative_to(ROOT)}:{value.lineno}: {value.value}"


def test_no_source_gives_a_category_as_a_bare_string():
    found = [
        name
        for package in ("kernels_eval", "tasks/rollout", "extras/generation")
        for path in (ROOT / package).rglob("*.py")
        for name in bare_names(path)
        if name.rpartition(": ")[2].replace("_", "").isalpha() and " " not in name.rpartition(": ")[2]
    ]
    assert found == []


@pytest.mark.parametrize("category", ErrorCategory)
def test_a_category_is_one_sentence_and_stays_a_plain_string(category: ErrorCategory):
    status, meaning, *others = EXPLANATIONS[category]
    for text in (meaning, *others):
        assert not text or (text.endswith(".") and all(len(part.split()) <= 25 for part in text.split(";")))
    assert meaning
    assert status is not Status.CORRECT
    assert json.dumps(category) == f'"{category.value}"'
    assert pickle.loads(pickle.dumps(category)) is category
    verdict = Verdict(status=status, error_category=category)
    assert type(verdict.error_category) is str, "as it is read back from JSON and Parquet"
    assert category_of(verdict.error_category) is category


def test_every_category_is_explained():
    assert list(EXPLANATIONS) == list(ErrorCategory)


def test_a_name_of_somebody_elses_is_none_of_ours():
    assert category_of("helion_compile") is None
    assert Verdict(status=Status.COMPILE_ERROR, error_category="helion_compile").error_category == "helion_compile"


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["judge", "explain", *arguments])
    return result.exit_code, result.output if result.exception is None else str(result.exception)


def test_explain_prints_meaning_cause_and_remedy():
    code, said = run("data_race")
    assert code == 0
    explained = EXPLANATIONS[ErrorCategory.DATA_RACE]
    assert said.splitlines()[0] == f"data_race (incorrect): {explained.meaning}"
    assert explained.cause in said
    assert explained.remedy in said


def test_explain_without_a_category_lists_all():
    code, said = run()
    assert code == 0
    assert all(f"  {category} " in said for category in ErrorCategory)
    assert len(said.splitlines()) == len(ErrorCategory) + len({each.status for each in EXPLANATIONS.values()})


def test_explain_of_a_status_lists_its_categories():
    code, said = run("runtime_error")
    assert code == 0
    of_status = [name for name, each in EXPLANATIONS.items() if each.status == "runtime_error"]
    assert [line.split()[0] for line in said.splitlines()] == ["runtime_error", *of_status]


def test_explain_names_the_nearest_categories_of_a_wrong_one():
    code, said = run("wrong_value")
    assert code != 0
    assert "wrong_values" in said
    assert "\n" not in said
    assert "lists all" in run("zzz")[1]
