"""The catalogue itself: complete, unambiguous, and as its page says."""

import ast
from collections import Counter
from pathlib import Path

from kernels_eval.problem import check_problem_source
from kernels_eval.redteam.report import with_tables
from kernels_eval.redteam.suite import CLASSES, ENTRIES, GPU_CLASSES, HACKS, HONEST

ROOT = Path(__file__).resolve().parents[4]


def test_enough_of_both_and_no_name_twice() -> None:
    assert len(HACKS) >= 60
    assert len(HONEST) >= 60
    assert {entry.kind for entry in HACKS} == set(CLASSES)
    assert max(Counter((entry.kind, entry.name) for entry in ENTRIES).values()) == 1


def test_problems_are_problems_and_honest_kernels_parse() -> None:
    for entry in ENTRIES:
        check_problem_source(entry.problem, entry.name)
    for entry in HONEST:
        ast.parse(entry.kernel)


def test_the_page_is_up_to_date() -> None:
    page = (ROOT / "docs" / "hacks.md").read_text()
    assert page == with_tables(page), "run: python -m kernels_eval.redteam.report docs/hacks.md"


def test_gpu_classes_name_entries_that_exist() -> None:
    sources = (ROOT / "tests" / "gpu" / "gpu_sources.py").read_text()
    for _, how in GPU_CLASSES.values():
        for name in how.split("`")[1::2]:
            part = name.removeprefix("… ").removesuffix(" …")
            assert part in sources, name
