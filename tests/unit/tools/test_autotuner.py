"""The autotuner as a rival: as many distinct kernels as may be measured, the best guess first, none that is slow."""

import sys
from pathlib import Path

import pytest

from kernels_eval import Problem
from tasks.problems.config import ProblemsConfig
from tasks.problems.row import ProblemRow, Split
from tasks.problems.synthetic.composition import parse_composition
from tasks.problems.synthetic.languages import language_of
from tasks.problems.synthetic.sources import Style, kernel_source
from tasks.problems.synthetic.suite import generate_problems
from tasks.problems.synthetic.tuning import tunings

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))
from autotuner import drawn_kernels


@pytest.fixture(scope="module")
def row() -> ProblemRow:
    return next(row for row in generate_problems(ProblemsConfig(train=4, heldout=1)) if row.split is Split.HELDOUT)


def test_the_first_kernel_is_the_expected_best_and_the_others_are_tunings_of_it(row: ProblemRow) -> None:
    composition, columns = parse_composition(row.composition), int(row.problem.problem_id.split("x")[-1])
    kernels = drawn_kernels(row, language_of("triton"), 16)
    assert len(set(kernels)) == len(kernels) == 16
    assert kernels[0] == kernel_source(composition, Style.FUSED)
    every = {kernel_source(composition, Style.FUSED, tuning=tuning) for tuning in tunings(composition, columns)}
    assert set(kernels[1:]) <= every


def test_more_measurements_go_on_with_the_same_search_until_there_is_nothing_new(row: ProblemRow) -> None:
    language = language_of("triton")
    few, many = (drawn_kernels(row, language, count) for count in (5, 12))
    assert many[:5] == few
    composition, columns = parse_composition(row.composition), int(row.problem.problem_id.split("x")[-1])
    assert len(drawn_kernels(row, language, 100_000)) <= len(tunings(composition, columns)) + 1
    assert drawn_kernels(row, language, 12, seed=1) != many


@pytest.mark.parametrize("backend", ["cuda", "auto"])
def test_other_languages_of_the_corpus_are_searched_too(row: ProblemRow, backend: str) -> None:
    kernels = drawn_kernels(row, language_of(backend), 8)
    assert len(set(kernels)) == len(kernels) > 1


def test_a_problem_that_is_not_generated_has_none(row: ProblemRow) -> None:
    other = row.model_copy(update={"problem": Problem(problem_id="own", source=row.problem.source)})
    assert drawn_kernels(other, language_of("triton"), 4) == []
