"""Contribution of each agent, counted by hand on a few conversations."""

from typing import Any

import polars as pl
import pytest

from tasks.evaluation.agent_figures import agent_figures
from tasks.evaluation.report.tables import agent_tables


def turn(trajectory: str, index: int, reward: float, *, stop: bool = False, **changes: Any) -> dict[str, Any]:
    return {
        "trajectory_id": trajectory,
        "group_id": "g",
        "turn_index": index,
        "role": "optimizer" if index else "generator",
        "reward": reward,
        "compiled": reward > 0,
        "correct": reward >= 0.3,
        "speedup": None,
        "termination": "agent_stopped" if stop else "turn_limit",
        **changes,
    }


TALKS = pl.DataFrame(
    [
        turn("a", 0, 0.1), turn("a", 1, 0.9), turn("a", 2, 0.0),  # mended, then lost
        turn("b", 0, 0.5, stop=True), turn("b", 1, 0.5, stop=True),  # stopped too early: 0.9 was to be had
        turn("c", 0, 0.9, stop=True), turn("c", 1, 0.9, stop=True),  # stopped rightly
        turn("d", 0, 0.0), turn("d", 1, 0.1), turn("d", 2, 0.1),  # better, but never right
    ]
)  # fmt: skip


def test_by_hand() -> None:
    figures = agent_figures(TALKS)
    assert list(figures) == ["generator", "optimizer"]
    generator, optimizer = figures["generator"], figures["optimizer"]
    assert generator["turns"] == 4
    assert generator["first"] == 1
    assert generator["correct"] == 0.5
    assert generator["added_reward"] == pytest.approx(1.5 / 4)
    assert generator["improved"] is generator["stopped"] is generator["stops_right"] is None
    assert optimizer["turns"] == 6
    assert optimizer["improved"] == 2 / 4
    assert optimizer["worsened"] == 1 / 4
    assert optimizer["mended"] == 1 / 3  # of a's first, d's first and second
    assert optimizer["stopped"] == 2 / 6
    assert optimizer["stops_right"] == 1 / 2
    assert optimizer["added_reward"] == pytest.approx((0.8 - 0.9 + 0 + 0 + 0.1 + 0) / 6)


def test_what_changes_less_than_rewards_vary_is_neither_better_nor_worse() -> None:
    """A length's term or noise moves a reward by some hundredths."""
    rows = [turn("a", 0, 0.8), turn("a", 1, 0.84), turn("b", 0, 0.8), turn("b", 1, 0.76), turn("c", 0, 0.8)]
    optimizer = agent_figures(pl.DataFrame([*rows, turn("c", 1, 0.9)]))["optimizer"]
    assert (optimizer["improved"], optimizer["worsened"]) == (1 / 3, 0)


def test_only_a_right_kernel_can_be_sped_up() -> None:
    def timed(trajectory: str, *turns: tuple[float, float | None]) -> list[dict[str, Any]]:
        return [turn(trajectory, place, reward, speedup=speedup) for place, (reward, speedup) in enumerate(turns)]

    rows = [
        *timed("a", (0.5, 1.0), (0.6, 1.05), (0.9, 1.2)),  # 1.05 times: no; 1.2 over 1.05: yes
        *timed("b", (0.1, None), (0.9, 3.0)),  # mended
        *timed("c", (0.5, 1.0), (0.0, None)),  # lost
        *timed("d", (0.5, None), (0.9, 2.0)),  # nobody timed the given kernel
        *timed("e", (0.9, 2.0), (0.5, 1.0), (0.9, 2.1)),  # of its own slower kernel the best before counts
    ]
    optimizer = agent_figures(pl.DataFrame(rows, infer_schema_length=None))["optimizer"]
    assert optimizer["sped_up"] == 1 / 5
    assert optimizer["mended"] == 1
    without_times = agent_figures(TALKS.with_columns(pl.lit(None, pl.Float64).alias("speedup")))
    assert without_times["optimizer"]["sped_up"] is None


def test_one_policy_has_no_agents() -> None:
    assert agent_figures(TALKS.with_columns(pl.lit("solver").alias("role"))) == {}
    assert agent_figures(TALKS.clear()) == {}


def test_the_report_names_who_opens_first_and_leaves_out_what_nobody_has() -> None:
    tables = agent_tables([{"agents": agent_figures(TALKS)}, {}])
    assert [role for role, _ in tables] == ["generator", "optimizer"]
    rows = {title: values for title, _, values in tables[0][1]}
    assert rows["Correct"] == ["50.0 %", "–"]
    assert "Improved" not in rows
    assert {title: values for title, _, values in tables[1][1]}["Rightly"] == ["50.0 %", "–"]
    assert agent_tables([{}, {}]) == []
