"""The live record: torn lines, replaced artifacts, and what descended from them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.tracking.figures import FIGURES_FILE, FigureLine, append_line, current_lines, new_line, read_lines


def lines_of(*named: tuple[int, str, str]) -> list[FigureLine]:
    return [new_line(iteration, stage, artifact, {}) for iteration, stage, artifact in named]  # pyright: ignore[reportArgumentType]


def named(lines: list[FigureLine]) -> list[tuple[int, str, str]]:
    return [(line.iteration, line.stage, line.artifact) for line in lines]


def test_a_run_without_figures_has_no_lines(tmp_path: Path):
    assert read_lines(tmp_path) == []


@given(kept=st.integers(0, 400))
def test_a_torn_line_is_skipped_and_the_next_one_is_whole(kept: int, tmp_path_factory: pytest.TempPathFactory):
    """The machine dies at any byte of the second line."""
    folder = tmp_path_factory.mktemp("run")
    first, second, third = (new_line(number, "rollout", f"d{number}", {"correct": 0.5}) for number in range(3))
    append_line(folder, first)
    file = folder / FIGURES_FILE
    before = file.stat().st_size
    append_line(folder, second)
    whole = file.stat().st_size
    size = min(before + kept, whole)
    with file.open("r+b") as opened:
        opened.truncate(size)
    survived = [first, second] if size >= whole - 1 else [first]
    assert read_lines(folder) == survived
    append_line(folder, third)
    assert read_lines(folder) == [*survived, third]


def test_lines_of_another_kind_are_skipped(tmp_path: Path):
    line = new_line(0, "update", "d", {"kl": None})
    (tmp_path / FIGURES_FILE).write_bytes(b'[]\n{"time": 1}\n\xff\xfe\n\n' + line.model_dump_json().encode())
    assert read_lines(tmp_path) == [line]


def test_a_replaced_rollout_takes_its_descendants_with_it():
    first = [
        (0, "evaluation", "e"),
        (0, "rollout", "a"),
        (0, "update", "b"),
        (1, "rollout", "c"),
        (1, "evaluation", "f"),
    ]
    assert named(current_lines(lines_of(*first))) == first
    assert named(current_lines(lines_of(*first, (0, "rollout", "A")))) == [(0, "evaluation", "e"), (0, "rollout", "A")]


def test_a_replaced_update_keeps_the_rollout_that_an_older_policy_wrote():
    stale = new_line(1, "rollout", "c", {"lag": 1})
    lines = lines_of((0, "rollout", "a"), (0, "update", "b"))
    replaced = lines_of((0, "update", "B"))
    later = new_line(2, "rollout", "d", {"lag": 1})
    assert current_lines([*lines, stale, later, *replaced]) == [lines[0], stale, *replaced]


def test_a_replaced_update_keeps_its_own_rollout():
    first = [(0, "rollout", "a"), (0, "update", "b"), (1, "evaluation", "f"), (1, "rollout", "c")]
    assert named(current_lines(lines_of(*first, (0, "update", "B")))) == [(0, "rollout", "a"), (0, "update", "B")]


def test_a_replaced_evaluation_replaces_nothing_else():
    first = [(0, "evaluation", "e"), (0, "rollout", "a"), (1, "rollout", "c")]
    assert named(current_lines(lines_of(*first, (0, "evaluation", "E")))) == [*first[1:], (0, "evaluation", "E")]
