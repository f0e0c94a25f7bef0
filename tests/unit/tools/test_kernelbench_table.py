"""The table of policies on KernelBench: seeds pooled by problem, intervals over problems, faults counted."""

import sys
from pathlib import Path

import polars as pl
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))
from kernelbench_table import called, changes, figures, nearest, ngrams

MODEL = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return self.own(torch.relu(x) + x)\n"


def table(correct: list[float], faults: int = 0) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "problem_id": [f"p{place}" for place in range(len(correct))],
            "correct": correct,
            "infrastructure_errors": [faults] * len(correct),
        }
    )


def test_seeds_are_pooled_and_the_interval_is_over_problems() -> None:
    found = figures([table([1.0, 0.0, 0.5, 1.0]), table([1.0, 0.0, 0.5, 0.0], faults=1)], {"p0", "p1", "p2", "p3"})
    mean, low, high = found["correct"]
    assert (found["problems"], found["seeds"], found["infrastructure_errors"]) == (4, 2, 4)
    assert mean == pytest.approx((1.0 + 0.0 + 0.5 + 0.5) / 4)
    assert 0.0 <= low < mean < high <= 1.0
    assert figures([table([1.0, 0.0])], {"p0"})["correct"] == [1.0, 1.0, 1.0]
    assert figures([table([0.25, 0.75])], {"p0", "p1"}) == figures([table([0.25, 0.75])], {"p0", "p1"})


def test_what_a_problem_calls_and_what_it_resembles() -> None:
    assert called(MODEL) == {"relu", "Add"}
    grams = ngrams(MODEL)
    assert nearest(grams, [grams, set()]) == 1.0
    assert nearest(grams, []) == 0.0


def test_changes_are_taken_problem_by_problem_and_seed_by_seed() -> None:
    before = [table([0.0, 0.5, 1.0]), table([0.0, 0.0, 1.0])]
    after = [table([0.5, 0.5, 1.0]), table([0.5, 0.5, 0.0])]
    mean, low, high = changes(before, after, {"p0", "p1", "p2"})["correct"]
    assert mean == pytest.approx((0.5 + 0.25 - 0.5) / 3, abs=1e-4)
    assert low <= mean <= high
