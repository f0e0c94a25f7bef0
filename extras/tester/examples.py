"""Examples for the tester: kernels that a run has judged, with the source of their problem."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from kernels_eval.verdict import IssueKind, Status
from tasks.pipeline.references import ProblemSetRef
from tasks.problems.problem_set import read_problems
from tasks.trajectories.reader import read_turns_file
from tasks.trajectories.schema import TURNS_FILE

LABELS = ("compiled", "correct", *(kind.value for kind in IssueKind))
"""Labels that are guessed. Issues are known of correct kernels alone."""


@dataclass(frozen=True)
class Example:
    """One judged kernel."""

    problem_id: str
    problem_source: str
    kernel_source: str
    compiled: bool
    correct: bool
    issues: frozenset[str]

    def label(self, name: str) -> bool | None:
        """Return whether a label holds; None if the verdict does not say."""
        if name in ("compiled", "correct"):
            return self.compiled if name == "compiled" else self.correct
        return name in self.issues if self.correct else None


def read_examples(problems: ProblemSetRef, folders: Iterable[Path]) -> list[Example]:
    """Return the judged kernels of published batches, each once for a problem, in the order of their ids.

    Faults of the machine, and answers without a kernel, are left out.
    """
    sources = {row.problem.problem_id: row.problem.source for row in read_problems(problems)}
    found: dict[tuple[str, str], Example] = {}
    for folder in folders:
        turns = read_turns_file(folder / TURNS_FILE).select("problem_id", "kernel_source", "verdict")
        for row in turns.filter(pl.col("kernel_source").is_not_null()).iter_rows(named=True):
            verdict, source = row["verdict"], sources.get(row["problem_id"])
            if source is None or verdict["status"] == Status.INFRASTRUCTURE_ERROR:
                continue
            found.setdefault(
                (row["problem_id"], row["kernel_source"]),
                Example(
                    problem_id=row["problem_id"],
                    problem_source=source,
                    kernel_source=row["kernel_source"],
                    compiled=bool(verdict["compiled"]),
                    correct=bool(verdict["correct"]),
                    issues=frozenset(issue["kind"] for issue in verdict["issues"] or ()),
                ),
            )
    return [found[key] for key in sorted(found)]
