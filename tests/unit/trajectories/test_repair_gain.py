"""Gain of repairs against a count by hand, and against policies whose gain is known."""

import random
from typing import Any

import polars as pl
import pytest

from tasks.trajectories.repair_gain import repair_counts


def conversations(*outcomes: str, problem: str = "p") -> list[dict[str, Any]]:
    """Rows of conversations on one problem, each told by its turns: `-+` is a wrong turn and then a right one."""
    return [
        {"problem": problem, "conversation": f"{problem}{number}", "turn_index": index, "correct": turn == "+"}
        for number, turns in enumerate(outcomes)
        for index, turn in enumerate(turns)
    ]


def counts(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return repair_counts(pl.DataFrame(rows), ["problem"], ["conversation"]).rows()


def test_a_count_by_hand() -> None:
    # Two of four first answers are right: to the others an independent one would be right in two of three cases.
    assert counts(conversations("-+", "--+", "+", "+-")) == [
        ("p", 1, 2.0, 1.0, pytest.approx(4 / 3)),
        ("p", 2, 1.0, 1.0, pytest.approx(2 / 3)),
    ]


def test_what_was_asked_once_or_never_repaired_is_left_out() -> None:
    assert counts(conversations("-+")) == []
    assert counts(conversations("+", "+-")) == []
    assert counts([*conversations("-+"), *conversations("--", "-", problem="q")]) == [("q", 1, 1.0, 0.0, 0.0)]


def test_blind_second_answers_gain_nothing_on_average() -> None:
    chance = random.Random(0)
    rows: list[dict[str, Any]] = []
    for number in range(400):
        rate = chance.random()  # problems differ in difficulty
        answers = ["".join("-+"[chance.random() < rate] for _ in range(2)) for _ in range(8)]
        rows += conversations(*answers, problem=f"problem {number}")
    found = repair_counts(pl.DataFrame(rows), ["problem"], ["conversation"])
    repairs, repaired, fresh = found.select("repairs", "repaired", "fresh").sum().row(0)
    assert repairs > 1000
    assert (repaired - fresh) / repairs == pytest.approx(0.0, abs=0.03)
