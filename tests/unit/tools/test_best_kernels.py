"""Exhaustive search: it covers the corpus's styles and every tuning, and finds a kernel as good as the fused one."""

import sys
from pathlib import Path

import pytest

from flows.settings.configuration import load_configuration
from tasks.problems.config import ProblemsConfig
from tasks.problems.row import ProblemRow, Split
from tasks.problems.synthetic.composition import parse_composition
from tasks.problems.synthetic.sources import Style, kernel_source
from tasks.problems.synthetic.suite import generate_problems
from tasks.problems.synthetic.tuning import tunings

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))
import best_kernels


@pytest.fixture(scope="module")
def row() -> ProblemRow:
    rows = generate_problems(ProblemsConfig(train=4, heldout=1, levels=(1,)))
    return next(row for row in rows if row.split is Split.TRAIN)


def test_every_style_and_every_tuning_of_the_problems_shape_is_tried_once(row: ProblemRow) -> None:
    kernels = best_kernels.kernels_of(row)
    composition = parse_composition(row.composition)
    columns = int(row.problem.problem_id.split("x")[-1])
    assert len(set(kernels)) == len(kernels) > len(Style)
    assert {kernel_source(composition, style) for style in Style} <= set(kernels)
    assert {kernel_source(composition, Style.FUSED, tuning=tuning) for tuning in tunings(composition, columns)} <= set(
        kernels
    )


@pytest.mark.long
def test_the_best_kernel_is_right_and_no_slower_than_the_fused_one(row: ProblemRow) -> None:
    config = load_configuration("deployments/configs/local.yaml", ["judge.workers=1"])
    (best,) = best_kernels.search([row], config).values()
    assert best is not None
    assert best >= 0.3
