"""Figures of the agents of a conversation: their kernels, the reward that each adds, and how often a stop was right.

Computed from turns; for each role `turns`, and as shares or means

    compiled, correct     of the kernels that it wrote
    first                 share of its turns that open a conversation
    improved, worsened    of the kernels that it was given (the best so far), those whose reward it raised or lowered
                          by more than `SLACK`
    mended                of the wrong kernels that it was given, those that it made right
    sped_up               of the right kernels that it was given, those that it made more than `FASTER` times as fast;
                          kernels without a stored time are left out
    added_reward          mean reward less that of the best kernel before; of a first turn its reward
    stopped               share of its later turns on which it stopped
    stops_right           share of its stops where no other sample of the problem came further, by more than `SLACK`

None where nothing was counted.
"""

from typing import Any

import polars as pl

from tasks.agents.config import SLACK, SOLVER
from tasks.trajectories.stops import is_stop

FASTER = 1.1
"""Ratio of times from which a right kernel counts as sped up."""


def agent_figures(outcomes: pl.DataFrame) -> dict[str, dict[str, float | None]]:
    """Return the figures by role from turns without faults (`per_problem.with_outcomes`); none if one policy wrote all.

    A stop is the last turn of an episode that ended by one.
    """
    if outcomes.is_empty() or set(outcomes.get_column("role")) == {SOLVER}:
        return {}
    reward = pl.col("reward")
    # Of equal kernels the newest is given (tasks.rollout.agent_prompts.best_turn).
    best_place = pl.when(reward >= reward.cum_max()).then(pl.int_range(pl.len())).forward_fill().shift(1)
    ordered = outcomes.sort("trajectory_id", "turn_index").with_columns(
        reward.cum_max().shift(1).over("trajectory_id").alias("given"),
        pl.col("speedup").gather(best_place).over("trajectory_id").alias("given_speedup"),
        pl.col("correct").cast(pl.Int8).cum_max().shift(1).over("trajectory_id").alias("given_correct"),
        is_stop().alias("is_stop"),
        reward.max().over("group_id").alias("reached"),
    )
    roles = ordered.partition_by("role", as_dict=True)
    return {str(role): _figures(rows) for (role,), rows in sorted(roles.items(), key=lambda item: str(item[0]))}


def _figures(turns: pl.DataFrame) -> dict[str, Any]:
    later = turns.filter(pl.col("given").is_not_null())
    stops, written = turns.filter("is_stop"), turns.filter(~pl.col("is_stop"))
    changed = written.filter(pl.col("given").is_not_null())
    wrong, right = changed.filter(pl.col("given_correct") == 0), changed.filter(pl.col("given_correct") == 1)
    timed = right.filter(pl.col("given_speedup").is_not_null() & (pl.col("speedup").is_not_null() | ~pl.col("correct")))
    is_faster = pl.col("correct") & (pl.col("speedup") > FASTER * pl.col("given_speedup")).fill_null(False)
    return {
        "turns": turns.height,
        "first": _share(turns, pl.col("given").is_null()),
        "compiled": _share(written, pl.col("compiled")),
        "correct": _share(written, pl.col("correct")),
        "improved": _share(changed, pl.col("reward") - pl.col("given") > SLACK),
        "worsened": _share(changed, pl.col("given") - pl.col("reward") > SLACK),
        "mended": _share(wrong, pl.col("correct")),
        "sped_up": _share(timed, is_faster),
        "added_reward": _share(turns, pl.col("reward") - pl.col("given").fill_null(0.0)),
        "stopped": _share(later, pl.col("is_stop")),
        "stops_right": _share(stops, pl.col("reached") - pl.col("reward") <= SLACK),
    }


def _share(rows: pl.DataFrame, value: pl.Expr) -> float | None:
    return None if rows.is_empty() else float(rows.select(value.cast(pl.Float64).mean()).item())
