"""Changes of kernels for the search against the estimate, and its record. No kernel is judged here."""

import ast
import random
import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

from estimate_mutations import OPERATORS, mutated
from estimate_pairs import all_pairs
from estimate_pairs_of_memory import memory_pairs
from estimate_pairs_of_work import work_pairs
from estimate_search import MOST_A_PROBLEM, Kernel, record, summary
from sanitizer_cases import Case, all_cases

SOURCES = sorted({pair.good for pair in [*all_pairs(), *memory_pairs(), *work_pairs()]})


@pytest.mark.parametrize("name", OPERATORS)
def test_each_operator_changes_some_kernel_and_leaves_it_python(name: str) -> None:
    changed = 0
    for number, source in enumerate(SOURCES):
        tree = ast.parse(source)
        if OPERATORS[name](tree, random.Random(number)):
            ast.parse(ast.unparse(ast.fix_missing_locations(tree)))
            changed += ast.dump(tree) != ast.dump(ast.parse(source))
    assert changed


def test_a_seed_decides_the_changes_and_their_names_are_told() -> None:
    one, other = ([mutated(source, random.Random(7)) for source in SOURCES] for _ in range(2))
    assert one == other
    assert all(set(names) <= set(OPERATORS) for _, names in one)
    assert sum(text != ast.unparse(ast.parse(source)) for (text, _), source in zip(one, SOURCES, strict=True)) > 20


def test_the_record_has_the_largest_rises_over_the_roots_with_parents_and_few_of_a_problem() -> None:
    found: dict[str, list[Kernel]] = {}
    for name, rise in (("first", 1.1), ("second", 3.0)):
        line = [Kernel("problem", "root", 1.0, 2.0)]
        for step in range(MOST_A_PROBLEM + 2):
            parent = line[-1]
            line.append(Kernel("problem", f"{name} {step}", 1.0, parent.estimate * rise, parent, [f"change {step}"]))
        found[name] = line
    result = record(found, Counter({"kept": 14, "incorrect": 6}), 5)
    rows = result["kernels"]
    assert (result["seed"], result["tries"]) == (5, 20)
    assert [row["problem"] for row in rows] == ["second"] * MOST_A_PROBLEM + ["first"] * MOST_A_PROBLEM
    best = rows[0]
    assert best["rise"] == 3.0**7
    assert best["estimates"] == {"kernel": 2.0 * 3.0**7, "parent": 2.0 * 3.0**6, "root": 2.0}
    assert best["sources"] == {"kernel": "second 6", "parent": "second 5", "root": "root"}
    assert best["changes"] == [f"change {step}" for step in range(7)]


def test_small_rises_are_no_missed_ones_and_what_is_not_correct_on_the_gpu_is_not_comparable() -> None:
    rises = [(1.3, 1.0), (1.2, 1.2), (1.5, None), (1.05, 0.7), (1.02, 0.98), (1.01, 2.5), (1.01, None)]
    assert summary([{"rise": rise, "measured_rise": measured} for rise, measured in rises]) == (
        "1 of 2 rises are not there; 1 of 3 below 1.1 are slower by as much; 2 were not comparable"
    )


@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_a_case_for_sanitizers_and_its_twin_are_python_and_differ(case: Case) -> None:
    trees = [ast.dump(ast.parse(text)) for text in (case.wrong, case.right)]
    assert trees[0] != trees[1]
    assert not any(f"@{number}" in case.wrong + case.right for number in range(1, 4))
