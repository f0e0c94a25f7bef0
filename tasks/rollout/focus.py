"""Focus: problems are drawn more often from families whose groups had right and wrong answers in earlier iterations.

A group whose samples all did equally well teaches nothing. Some families are solved by every answer, some by none. The
counts of an iteration are a function of the batch before it, whose manifest holds those of earlier ones
(`metadata.focus`). A run that continues from a checkpoint without its trajectories counts anew.
"""

from collections.abc import Sequence

import polars as pl
from pydantic import Field

from kernels_eval.frozen import FrozenModel
from tasks.pipeline.references import ProblemSetRef, TrajectoryBatchRef
from tasks.pipeline.store import recorded
from tasks.problems.row import ProblemRow, Split
from tasks.rollout.config import RolloutConfig

MANIFEST_KEY = "focus"


class Played(FrozenModel):
    """Groups of one family so far."""

    groups: int
    useful: int
    """Groups whose samples did not all get the same return."""

    @property
    def rate(self) -> float:
        """Share of useful groups, drawn towards one half while there are few (Laplace's rule of succession)."""
        return (self.useful + 1) / (self.groups + 2)


class FocusState(FrozenModel):
    """Groups by family before an iteration."""

    families: dict[str, Played] = Field(default={})

    def weights(self, rows: Sequence[ProblemRow], focus: float) -> list[float]:
        """Return how often each problem is drawn, relative to the others; `focus` 0: all equally."""
        unknown = Played(groups=0, useful=0).rate
        rates = [self.families[name].rate if (name := row.problem.family) in self.families else unknown for row in rows]
        return [1 - focus + focus * rate for rate in rates]


def focus_for(config: RolloutConfig, problems: ProblemSetRef, previous: TrajectoryBatchRef | None) -> FocusState | None:
    """Return the counts for the iteration after `previous`; None without `rollout.focus`."""
    if not config.focus:
        return None
    if previous is None:
        return FocusState()
    before = recorded(previous, MANIFEST_KEY, FocusState, "the groups of earlier iterations") or FocusState()
    return FocusState(families=_added(before.families, _played(previous, problems)))


def _added(before: dict[str, Played], batch: dict[str, Played]) -> dict[str, Played]:
    none = Played(groups=0, useful=0)
    both = {name: (before.get(name, none), batch.get(name, none)) for name in sorted({*before, *batch})}
    return {
        name: Played(groups=one.groups + two.groups, useful=one.useful + two.useful)
        for name, (one, two) in both.items()
    }


def _played(batch: TrajectoryBatchRef, problems: ProblemSetRef) -> dict[str, Played]:
    """Return the groups of one batch by family."""
    from tasks.problems.problem_set import read_problems
    from tasks.trajectories.reader import read_trajectories

    families = {row.problem.problem_id: row.problem.family for row in read_problems(problems, Split.TRAIN)}
    groups = (
        read_trajectories(batch)
        .group_by("group_id")
        .agg(pl.col("problem_id").first(), (pl.col("return").max() > pl.col("return").min()).alias("useful"))
    )
    counts: dict[str, Played] = {}
    for problem_id, useful in groups.select("problem_id", "useful").sort("problem_id").iter_rows():
        if (family := families.get(problem_id)) is not None:
            counts = _added(counts, {family: Played(groups=1, useful=int(useful))})
    return counts
