"""Two policies side by side: of the same run or of two, on the problems that both answered."""

from typing import NamedTuple

import polars as pl

from extras.viewer.answer import ShownAnswer, cleaned, difference_of, read_answer
from extras.viewer.episodes import episodes_of
from extras.viewer.runs import Batch, RunFolder
from kernels_eval.errors import InputError
from tasks.trajectories.reader import read_turn_rows


class Side(NamedTuple):
    """One of the two."""

    run: RunFolder
    batch: Batch

    @property
    def key(self) -> str:
        """Its name in addresses."""
        return f"{self.run.name}/{self.batch.key}"

    @property
    def title(self) -> str:
        """Its name on pages."""
        return f"{self.run.name}, {self.batch.title}"


class SharedProblem(NamedTuple):
    """A problem that both answered; each figure of the first and of the second."""

    problem: str
    passed: tuple[float, float]
    speedups: tuple[float | None, float | None]
    timing_source: str | None


class BestAnswers(NamedTuple):
    """Each side's best answer to one problem, and the difference between their last kernels."""

    answers: tuple[ShownAnswer, ShownAnswer]
    difference: list[tuple[str, str]]
    is_same: bool
    """Their last kernels are equal."""


def side_of(runs: dict[str, RunFolder], key: str) -> Side:
    """Return the side that `RUN/BATCH` names. Raises InputError if there is none."""
    name, _, batch = key.rpartition("/")
    if name not in runs or batch not in runs[name].batches:
        raise InputError(f"compare: found {key[:100]!r}, expected the name of a run, a slash and that of a batch")
    return Side(runs[name], runs[name].batches[batch])


def sides_by_default(runs: dict[str, RunFolder]) -> list[Side]:
    """Return what to compare first: the newest policies of two runs; of a single one its first and its last policy."""
    newest = [Side(run, run.newest) for run in runs.values() if run.newest is not None]
    if len(newest) >= 2:
        return [newest[1], newest[0]]
    for side in newest:
        first = next(batch for batch in side.run.batches.values() if batch.kind == side.batch.kind)
        return [Side(side.run, first), side]
    return []


def shared_problems(first: Side, second: Side) -> list[SharedProblem]:
    """Return the problems that both answered, those first where they differ most."""
    one, two = (_by_problem(side.batch) for side in (first, second))
    both = one.join(two, on="problem_id", suffix="_second").with_columns(
        (pl.col("passed_second") - pl.col("passed")).abs().alias("apart")
    )
    return [
        SharedProblem(
            row["problem_id"],
            (row["passed"], row["passed_second"]),
            (row["speedup"], row["speedup_second"]),
            row["source"] or row["source_second"],
        )
        for row in both.sort(["apart", "problem_id"], descending=[True, False]).iter_rows(named=True)
    ]


def best_answers(first: Side, second: Side, problem: str) -> BestAnswers:
    """Return both best answers by reward. Raises InputError if one of them has no answer to the problem."""
    found = [_best(side, problem) for side in (first, second)]
    kernels = [_last_kernel(answer) for answer in found]
    return BestAnswers((found[0], found[1]), difference_of(*kernels), kernels[0] == kernels[1])


def _by_problem(batch: Batch) -> pl.DataFrame:
    known = episodes_of([batch]).filter(pl.col("reward").is_not_null())
    return known.group_by("problem_id").agg(
        pl.col("correct").mean().alias("passed"),
        pl.col("best_speedup").max().alias("speedup"),
        pl.col("timing_source").drop_nulls().first().alias("source"),
    )


def _best(side: Side, problem: str) -> ShownAnswer:
    answers = episodes_of([side.batch]).filter(pl.col("problem_id") == problem)
    if answers.is_empty():
        raise InputError(f"compare: {side.title} has no answer to {problem[:100]!r}")
    order = {"reward": True, "best_speedup": True, "trajectory_id": False}
    ordered = answers.sort(*order, descending=list(order.values()), nulls_last=True)
    return read_answer(side.run, side.batch, str(ordered["trajectory_id"][0]))


def _last_kernel(answer: ShownAnswer) -> str:
    row = read_turn_rows(answer.file, answer.turns[-1].row, 1)[0]
    return cleaned(row["kernel_source"] or row["response_text"] or "")
