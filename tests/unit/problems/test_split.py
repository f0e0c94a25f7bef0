"""The split depends on a problem and the seed alone, and nothing of one side is on the other."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels_eval.errors import InputError
from kernels_eval.problem import Problem
from tasks.problems.config import ProblemsConfig
from tasks.problems.row import Entry, ProblemRow, Split
from tasks.problems.split import check_split, hashed_split, split_entries

ROOMY = ProblemsConfig(source="jsonl", train=3000, heldout=1000)


def entry(number: int, **changes) -> Entry:
    source = f"class Model:\n    def forward(self, x):\n        return x.op{number}()\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"
    return Entry(problem=Problem(problem_id=f"p{number}", source=source), where=f"row {number}", **changes)


def sides(rows):
    return {row.problem.problem_id: row.split for row in rows}


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(0, 500), unique=True, max_size=40),
    st.lists(st.integers(0, 500), unique=True, max_size=40),
    st.integers(0, 3),
)
def test_what_else_is_loaded_changes_no_side(first, second, seed):
    config = ROOMY.model_copy(update={"seed": seed})
    alone = sides(split_entries([entry(number) for number in first], config))
    more = sides(split_entries([entry(number) for number in dict.fromkeys([*second, *first])], config))
    assert {name: more[name] for name in alone} == alone


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 500), unique=True, min_size=1, max_size=60), st.integers(1, 10), st.integers(1, 10))
def test_limits_leave_out_and_move_nothing(numbers, train, heldout):
    """The shares are the same, so every problem that is kept is where it is without limits."""
    entries = [entry(number) for number in numbers]
    limited = ProblemsConfig(source="jsonl", train=train, heldout=heldout)
    unlimited = ProblemsConfig(source="jsonl", train=train * 1000, heldout=heldout * 1000)
    kept = split_entries(entries, limited)
    everywhere = sides(split_entries(entries, unlimited))
    assert all(everywhere[row.problem.problem_id] is row.split for row in kept)
    for split, limit in ((Split.TRAIN, train), (Split.HELDOUT, heldout)):
        there = sum(side is split for side in everywhere.values())
        assert sum(row.split is split for row in kept) == min(there, limit)
    order = [row.problem.problem_id for row in kept]
    assert order == [name for name in everywhere if name in order]


def test_the_share_is_that_of_the_configuration():
    config = ProblemsConfig(source="jsonl", train=300, heldout=100)
    heldout = sum(hashed_split(f"composition {number}", config) is Split.HELDOUT for number in range(4000))
    assert 0.22 < heldout / 4000 < 0.28


def test_seeds_give_different_splits():
    one, other = ([hashed_split(str(n), ROOMY.model_copy(update={"seed": seed})) for n in range(64)] for seed in (0, 1))
    assert one != other


def test_near_duplicates_share_a_side(problem_source):
    """The same operator at many sizes: one composition."""
    entries = [
        Entry(problem=Problem(problem_id=f"{name}{rows}", source=problem_source(name, rows=rows)), where="")
        for name in ("relu", "tanh", "exp", "log", "sin", "cos", "abs", "erf")
        for rows in range(1, 9)
    ]
    rows = split_entries(entries, ROOMY)
    assert len({row.composition for row in rows}) == 8
    assert len({(row.composition, row.split) for row in rows}) == 8


def test_a_given_composition_decides():
    rows = split_entries([entry(number, composition="same") for number in range(30)], ROOMY)
    assert len({row.split for row in rows}) == 1


def test_a_given_split_is_taken_and_must_be_complete():
    given_splits = [Split.TRAIN, Split.HELDOUT, Split.TRAIN, Split.HELDOUT]
    rows = split_entries([entry(n, split=split) for n, split in enumerate(given_splits)], ROOMY)
    assert [row.split for row in rows] == given_splits
    check_split(rows)
    with pytest.raises(InputError, match=r"row 1: expected a split, since row 0 has one"):
        split_entries([entry(0, split=Split.TRAIN), entry(1)], ROOMY)


def row(number: int, split: Split, composition: str, problem_id: str | None = None) -> ProblemRow:
    problem = entry(number).problem
    return ProblemRow(
        problem=problem.model_copy(update={"problem_id": problem_id or problem.problem_id}),
        split=split,
        composition=composition,
    )


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row(0, Split.TRAIN, "a")], "no heldout problem among 1"),
        ([row(0, Split.HELDOUT, "a")], "no train problem among 1"),
        ([row(0, Split.TRAIN, "a"), row(1, Split.HELDOUT, "b", "p0")], "problem_id p0 occurs more than once"),
        ([row(0, Split.TRAIN, "a"), row(0, Split.HELDOUT, "b", "p1")], "p0 is the same program as .* p1"),
        ([row(0, Split.TRAIN, "a"), row(1, Split.HELDOUT, "a")], "p0 has the composition 'a' of .* p1"),
    ],
)
def test_an_overlap_is_refused(rows, message):
    with pytest.raises(InputError, match=message):
        check_split(rows)
