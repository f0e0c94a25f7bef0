"""Example trajectories for the report: one repaired, one that became fast, one failure."""

from typing import Any, NamedTuple

import polars as pl

from kernels_eval.verdict import Status
from tasks.agents.config import SOLVER
from tasks.evaluation.report.source import highlighted
from tasks.pipeline.references import EvaluationRef, ProblemSetRef
from tasks.rollout.feedback import feedback_text
from tasks.trajectories.reader import read_turns_file
from tasks.trajectories.schema import Termination, verdict_from_row


class Example(NamedTuple):
    """One trajectory to be shown."""

    kind: str
    """`repaired`, `faster`, `failure`."""
    title: str
    problem_id: str
    level: int
    problem_code: str
    turns: list[dict[str, Any]]


def pick_examples(evaluation: EvaluationRef, problems: ProblemSetRef, style: str) -> list[Example]:
    """Return up to three examples of an evaluation, always the same ones; `style`: feedback that the policy sees."""
    turns = read_turns_file(evaluation.path / "turns.parquet")
    verdict = pl.col("verdict").struct
    ends = [verdict.field(name) for name in ("status", "correct", "speedup")]
    episodes = (
        turns.sort("trajectory_id", "turn_index")
        .group_by("trajectory_id", maintain_order=True)
        .agg(
            pl.len().alias("turns"),
            *[end.first().name.prefix("first_") for end in ends],
            *[end.last().name.prefix("last_") for end in ends],
            verdict.field("correct").any().alias("ever_correct"),
            verdict.field("error_message").last().is_not_null().alias("explained"),
            (verdict.field("status") == Status.INFRASTRUCTURE_ERROR.value).any().alias("faulty"),
            pl.col("kernel_source").is_not_null().all().alias("complete"),
            pl.col("kernel_source").n_unique().alias("versions"),
        )
        .filter(~pl.col("faulty"))
    )
    gain = pl.col("last_speedup") / pl.col("first_speedup")
    several = (pl.col("turns") > 1) & (pl.col("versions") > 1)
    choices = [
        (
            "repaired",
            episodes.filter(several & pl.col("complete") & ~pl.col("first_correct") & pl.col("last_correct")).sort(
                "last_speedup", "trajectory_id", descending=[True, False], nulls_last=True
            ),
        ),
        (
            "faster",
            episodes.filter(several & pl.col("first_correct") & pl.col("last_correct") & (gain > 1.05)).sort(
                gain, "trajectory_id", descending=[True, False]
            ),
        ),
        (
            "failure",
            episodes.filter(~pl.col("last_correct")).sort(
                "ever_correct", "explained", "turns", "trajectory_id", descending=[False, True, True, False]
            ),
        ),
    ]
    taken = set[str]()
    examples: list[Example] = []
    for kind, candidates in choices:
        names = [name for name in candidates.get_column("trajectory_id").to_list() if name not in taken]
        if not names and kind == "faster":  # nothing became faster: show the fastest kernel instead
            fastest = episodes.filter(pl.col("last_correct") & pl.col("last_speedup").is_not_null())
            ranked = fastest.sort("last_speedup", "trajectory_id", descending=[True, False]).get_column("trajectory_id")
            kind, names = "fastest", [name for name in ranked.to_list() if name not in taken]
        if names:
            taken.add(names[0])
            examples.append(_example(kind, turns.filter(pl.col("trajectory_id") == names[0]), problems, style))
    return examples


def _example(kind: str, turns: pl.DataFrame, problems: ProblemSetRef, style: str) -> Example:
    rows = turns.sort("turn_index").to_dicts()
    problem_id = rows[0]["problem_id"]
    table = pl.read_parquet(problems.path / "problems.parquet", columns=["problem_id", "source", "level"])
    problem = table.row(by_predicate=pl.col("problem_id") == problem_id, named=True)
    shown: list[dict[str, Any]] = []
    previous: str | None = None
    for row in rows:
        verdict = verdict_from_row(row["verdict"])
        source = row["kernel_source"]
        shown.append(
            {
                "number": row["turn_index"] + 1,
                "role": None if row["role"] == SOLVER else row["role"].replace("_", " "),
                "stopped": row is rows[-1] and row["termination"] == Termination.AGENT_STOPPED.value,
                "status": verdict.status.value,
                "speedup": verdict.speedup,
                "timing_source": verdict.timing_source,
                "reward": row["reward"],
                "return": row["return"],
                "tokens": len(row["response_token_ids"]),
                "code": highlighted(source if source is not None else row["response_text"], previous),
                "is_kernel": source is not None,
                "unchanged": source is not None and source == previous,
                "judged": feedback_text(verdict, row["reward"] or 0.0, "full"),
                "told": feedback_text(verdict, row["reward"] or 0.0, style) if style != "full" else None,
            }
        )
        previous = source if source is not None else previous
    return Example(kind, _title(kind, shown), problem_id, problem["level"], highlighted(problem["source"]), shown)


def _title(kind: str, turns: list[dict[str, Any]]) -> str:
    first, last = turns[0], turns[-1]
    match kind:
        case "repaired":
            return f"Repaired: {first['status'].replace('_', ' ')} at first, correct on turn {last['number']}"
        case "faster":
            return f"Became fast: {first['speedup']:.2f}× on turn 1, {last['speedup']:.2f}× on turn {last['number']}"
        case "fastest":
            return f"The fastest: {last['speedup']:.2f}×"
        case _:
            plural = "s" if last["number"] > 1 else ""
            return f"Not solved: {last['status'].replace('_', ' ')} after {last['number']} turn{plural}"
