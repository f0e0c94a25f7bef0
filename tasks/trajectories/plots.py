"""Plots of an analysis: one picture of four panels, as SVG, PNG or PDF."""

from pathlib import Path
from typing import Any

import polars as pl

from kernels_eval.errors import InputError
from tasks.trajectories.analysis import EPISODE, without_faults

SUFFIXES = (".svg", ".png", ".pdf")
_BLUE, _ORANGE, _GREY = "#2f6fb5", "#d9822b", "#8a8f98"


def draw(turns: pl.DataFrame, figures: dict[str, Any], path: Path) -> None:
    """Write the picture of `figures = analyse(turns)`; the suffix of `path` names the format.

    Raises InputError for another suffix, or where there is nothing to draw.
    """
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
        last.plot(
            [row["iteration"] for row in iterations],
            [row["mean_aggregated_return"] for row in iterations],
            "o-",
            color=_ORANGE,
        )
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
