"""Held-out problems are recognised in training data through layout, and near-duplicates are counted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.problems.contamination import Overlap, contaminated, drop_contaminated

PIECES = ("# a comment\n", "\n", "\n\n\n")


@given(data=st.data())
def test_comments_and_empty_lines_hide_nothing(data, problem_source):
    lines = problem_source("relu").splitlines(keepends=True)
    positions = [index for index, line in enumerate(lines) if line.startswith(("import", "class", "def"))]
    for index in sorted(data.draw(st.lists(st.sampled_from(positions))), reverse=True):
        lines.insert(index, data.draw(st.sampled_from(PIECES)))
    assert contaminated(["".join(lines)], [problem_source("relu")]) == [Overlap.SAME]


def test_degrees(problem_source):
    heldout = [problem_source("relu"), problem_source("tanh")]
    training = [
        problem_source("tanh").replace('"""tanh"""', '"""Another docstring."""'),
        problem_source("relu", rows=128),
        problem_source("relu").replace("(x)", "(inputs)").replace("x:", "inputs:"),
        problem_source("exp"),
        "not python (",
    ]
    assert contaminated(training, heldout) == [
        Overlap.SAME,
        Overlap.SIMILAR,
        Overlap.SIMILAR,
        Overlap.NONE,
        Overlap.NONE,
    ]


def test_rows_are_dropped_and_counted(problem_source, caplog: pytest.LogCaptureFixture):
    rows = [(1, problem_source("relu")), (2, problem_source("relu", rows=2)), (3, problem_source("exp"))]
    cleaned = drop_contaminated(rows, [problem_source("relu")], source_of=lambda row: row[1])
    assert [number for number, _ in cleaned.clean] == [2, 3]
    assert (cleaned.dropped, cleaned.similar) == (1, 1)
    assert "dropped 1 of 3" in caplog.text


def test_nothing_held_out_contaminates_nothing(problem_source):
    assert drop_contaminated([problem_source()], [], source_of=str).dropped == 0
    assert contaminated([], [problem_source()]) == []
