"""Figures and plots of trajectories: number of turns, rewards, and the change from turn to turn.

Works on one row per turn with the columns below, from a data set or from JSON logs. Trajectories that ended in a fault
of the machine are counted and left out of every figure. Speedups are those of correct kernels, given by timing source:
estimates and measurements are never averaged together.
"""

from pathlib import Path
from typing import Any

import polars as pl

from kernels_eval.errors import InputError
from tasks.trajectories.intact import check_batch, expected_batches
from tasks.trajectories.json_logs import has_logs, read_logs, turn_rows
from tasks.trajectories.reader import read_turns_file
from tasks.trajectories.repair_gain import repair_counts
from tasks.trajectories.schema import TURNS_FILE

COLUMNS = pl.Schema(
    {
        "run_id": pl.String,
        "policy_digest": pl.String,
        "trajectory_id": pl.String,
        "problem_id": pl.String,
        "split": pl.String,
        "iteration": pl.Int64,
        "turn_index": pl.Int64,
        "reward": pl.Float64,
        "return": pl.Float64,
        "compiled": pl.Boolean,
        "correct": pl.Boolean,
        "speedup": pl.Float64,
        "timing_source": pl.String,
        "termination": pl.String,
    }
)
"""`run_id`, `policy_digest` and `split` are null in logs that do not say; `reward` is null for a fault; `return` on the
first turn is the trajectory's aggregated return."""
EPISODE = ("run_id", "policy_digest", "iteration", "trajectory_id")
"""Key of a trajectory: an id is unique within one rollout only; a run answers held-out problems with several
policies."""
_TOP_COLUMNS = (
    "trajectory_id", "problem_id", "iteration", "return", "turns", "rewards", "correct", "speedup", "timing_source"
)  # fmt: skip
_UNMARKED = "unmarked"
"""Speedups of logs that do not say where their times come from."""


def load_turns(path: Path) -> tuple[pl.DataFrame, list[str]]:
    """Return a row per turn of data sets or JSON logs, and the faults of unreadable files; InputError if all are."""
    if has_logs(path):
        records, faults = read_logs(path)
        rows = [list(turn_rows(record, place)) for place, record in enumerate(records)]
        # A killed rollout is run again, with the same tokens: the last file of a trajectory counts.
        latest = {tuple(turns[0][name] for name in EPISODE): turns for turns in rows}
        return pl.DataFrame([row for turns in latest.values() for row in turns], schema=COLUMNS), faults
    verdict = pl.col("verdict").struct
    columns = [
        verdict.field(name) if name in ("compiled", "correct", "speedup", "timing_source") else pl.col(name)
        for name in COLUMNS
    ]
    frames, faults = list[pl.DataFrame](), list[str]()
    for folder in expected_batches(path):
        try:
            check_batch(folder)
            frames.append(read_turns_file(folder / TURNS_FILE).select(columns).cast(dict(COLUMNS)))  # pyright: ignore[reportArgumentType]
        except InputError as error:
            faults.append(str(error))
    if not frames:
        raise InputError(faults[0])
    return pl.concat(frames), faults


def analyse(turns: pl.DataFrame, top: int = 5) -> dict[str, Any]:
    """Return every figure as plain data, ready for JSON; `top` best trajectories by return."""
    kept = without_faults(turns).with_columns(
        (pl.col("reward") - pl.col("reward").shift(1).over(EPISODE)).alias("change")
    )
    episodes = kept.group_by(EPISODE, maintain_order=True).agg(
        pl.first("problem_id"),
        pl.first("split"),
        pl.len().alias("turns"),
        pl.col("reward").alias("rewards"),
        pl.first("return"),
        pl.last("correct"),
        pl.last("compiled"),
        pl.last("speedup"),
        pl.last("timing_source"),
        pl.last("termination"),
        (pl.last("reward") > pl.first("reward")).alias("improved"),
    )
    several = episodes.filter(pl.col("turns") > 1)
    # Conversations of one rollout (run, policy, iteration) on one problem.
    repairs = repair_counts(kept, ["run_id", "policy_digest", "iteration", "problem_id"], EPISODE)
    best = episodes.sort(["return", "turns", "trajectory_id"], descending=[True, False, False])
    return {
        "trajectories": episodes.height,
        "turns": kept.height,
        "left_out_for_faults": turns.select(EPISODE).n_unique() - episodes.height,
        "problems": episodes["problem_id"].n_unique(),
        "splits": _counts(episodes["split"]),
        "mean_turns": _mean(episodes["turns"]),
        "mean_aggregated_return": _mean(episodes["return"]),
        "mean_final_reward": _mean(episodes["rewards"].list.last()),
        "final_compiled_rate": _mean(episodes["compiled"]),
        "final_correctness_rate": _mean(episodes["correct"]),
        "improvement_rate": _mean(several["improved"]),
        "speedups": _speedups(episodes.filter(pl.col("correct"))),
        "terminations": _counts(episodes["termination"]),
        "per_turn": [_turn_figures(part, repairs) for part in _parts(kept, "turn_index")],
        "per_iteration": [_iteration_figures(part) for part in _parts(episodes, "iteration")],
        "top": best.head(top).select(_TOP_COLUMNS).rows(named=True),
    }


def without_faults(turns: pl.DataFrame) -> pl.DataFrame:
    """Return the turns of trajectories that the machine did not fail, sorted by iteration, trajectory and turn."""
    faulty = pl.col("reward").is_null().any().over(EPISODE)
    return turns.filter(~faulty).sort(*EPISODE, "turn_index")


def _turn_figures(turns: pl.DataFrame, repairs: pl.DataFrame) -> dict[str, Any]:
    place = int(turns["turn_index"][0])
    of_turn = repairs.filter(pl.col("turn_index") == place).select(pl.col("repairs", "repaired", "fresh").sum())
    tried, repaired, fresh = of_turn.row(0)
    return {
        "turn": place + 1,
        "turns": turns.height,
        "mean_reward": _mean(turns["reward"]),
        "success_rate": _mean(turns["correct"]),
        "compiled_rate": _mean(turns["compiled"]),
        "progression": _mean(turns["change"]),
        "repairs": int(tried),
        "repaired_rate": repaired / tried if tried else None,
        "fresh_rate": fresh / tried if tried else None,
        "repair_gain": (repaired - fresh) / tried if tried else None,
        "speedups": _speedups(turns.filter(pl.col("correct"))),
    }


def _iteration_figures(episodes: pl.DataFrame) -> dict[str, Any]:
    return {
        "iteration": int(episodes["iteration"][0]),
        "trajectories": episodes.height,
        "mean_turns": _mean(episodes["turns"]),
        "mean_aggregated_return": _mean(episodes["return"]),
        "final_correctness_rate": _mean(episodes["correct"]),
    }


def _speedups(correct: pl.DataFrame) -> dict[str, dict[str, float | int | None]]:
    """Return number, mean and geometric mean of the speedups, by timing source."""
    timed = correct.filter(pl.col("speedup").is_finite()).with_columns(pl.col("timing_source").fill_null(_UNMARKED))
    return {
        str(source): {
            "kernels": group.height,
            "mean": _mean(group["speedup"]),
            "geometric_mean": _geometric_mean(group["speedup"].filter(group["speedup"] > 0)),
        }
        for (source,), group in sorted(timed.group_by("timing_source"))
    }


def _geometric_mean(values: pl.Series) -> float | None:
    logarithm = _mean(values.log())
    return None if logarithm is None else float(pl.Series([logarithm]).exp()[0])


def _mean(values: pl.Series) -> float | None:
    mean = values.cast(pl.Float64).mean()
    return float(mean) if isinstance(mean, float) else None


def _counts(values: pl.Series) -> dict[str, int]:
    counted = values.drop_nulls().value_counts()
    return dict(sorted(counted.iter_rows(), key=lambda pair: (-pair[1], pair[0])))


def _parts(frame: pl.DataFrame, column: str) -> list[pl.DataFrame]:
    return frame.sort(column, maintain_order=True).partition_by(column, maintain_order=True)


SUFFIXES = (".svg", ".png", ".pdf")
_BLUE, _ORANGE, _GREY = "#2f6fb5", "#d9822b", "#8a8f98"


def draw(turns: pl.DataFrame, figures: dict[str, Any], path: Path) -> None:
    """Write the picture of `figures = analyse(turns)`. Raises InputError for a suffix not in SUFFIXES, or no data."""
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"{path}: expected a name that ends in {', '.join(SUFFIXES)}")
    if not figures["trajectories"]:
        raise InputError("nothing to draw: every trajectory ended in a fault of the machine")
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    per_turn = figures["per_turn"]
    numbers = [row["turn"] for row in per_turn]
    figure = Figure(figsize=(10, 7), layout="constrained")
    reward, success, length, last = figure.subplots(2, 2).flatten()
    figure.suptitle(
        f"{figures['trajectories']:,} trajectories, {figures['turns']:,} turns; "
        f"{100 * figures['final_correctness_rate']:.0f} % end correct"
    )

    reward.plot(numbers, [row["mean_reward"] for row in per_turn], "o-", color=_BLUE)
    _label(reward, "Mean reward of a turn", "turn", None)
    success.bar(numbers, [100 * row["success_rate"] for row in per_turn], color=_BLUE, width=0.6)
    _label(success, "Turns with a correct kernel", "turn", "%")
    success.set_ylim(0, 100)
    kept = without_faults(turns)
    lengths = kept.group_by(EPISODE).len()["len"].value_counts().sort("len")
    length.bar(lengths["len"].to_list(), lengths["count"].to_list(), color=_GREY, width=0.6)
    _label(length, "Turns of a trajectory", "turns", "trajectories")
    for axes in (reward, success, length):
        axes.set_xticks(numbers)
        axes.set_xlim(0.25, max(numbers) + 0.75)
    reward.set_ylim(bottom=min(0.0, *(row["mean_reward"] for row in per_turn)))

    iterations = figures["per_iteration"]
    if len(iterations) > 1:
        returns = [row["mean_aggregated_return"] for row in iterations]
        last.plot([row["iteration"] for row in iterations], returns, "o-", color=_ORANGE)
        _label(last, "Mean aggregated return", "iteration", None)
        last.xaxis.set_major_locator(MaxNLocator(integer=True))
    else:
        returns = kept.filter(pl.col("turn_index") == 0)["return"].to_list()
        last.hist(returns, bins=min(30, max(5, len(returns) // 4)), color=_ORANGE)
        _label(last, "Aggregated return", "return", "trajectories")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def _label(axes: Any, title: str, below: str, beside: str | None) -> None:
    axes.set_title(title, fontsize=11, loc="left")
    axes.set_xlabel(below)
    if beside:
        axes.set_ylabel(beside)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
