"""Focus: problems are drawn more often from families whose groups had right and wrong answers in earlier iterations.

A group whose samples all did equally well teaches nothing. Some families are solved by every answer, some by none. The
counts of an iteration are a function of the batch before it, whose manifest holds those of earlier ones
(`metadata.focus`). A run that continues from a checkpoint without its trajectories counts anew.
"""

from collections import Counter
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


_NONE = Played(groups=0, useful=0)


class FocusState(FrozenModel):
    """Groups by family before an iteration."""

    families: dict[str, Played] = Field(default={})

    def weights(self, rows: Sequence[ProblemRow], focus: float) -> list[float]:
        """Return how often each problem is drawn, relative to the others; `focus` 0: all equally."""
        return [1 - focus + focus * self.families.get(row.problem.family, _NONE).rate for row in rows]


def focus_for(config: RolloutConfig, problems: ProblemSetRef, previous: TrajectoryBatchRef | None) -> FocusState | None:
    """Return the counts for the iteration after `previous`; None without `rollout.focus`."""
    if not config.focus:
        return None
    if previous is None:
        return FocusState()
    before = recorded(previous, MANIFEST_KEY, FocusState, "the groups of earlier iterations") or FocusState()
    groups, useful = _played(previous, problems)
    for family, earlier in before.families.items():
        groups[family] += earlier.groups
        useful[family] += earlier.useful
    return FocusState(families={name: Played(groups=groups[name], useful=useful[name]) for name in sorted(groups)})


def _played(batch: TrajectoryBatchRef, problems: ProblemSetRef) -> tuple[Counter[str], Counter[str]]:
    """Return the groups of one batch by family, and the useful ones."""
    from tasks.problems.problem_set import read_problems
    from tasks.trajectories.reader import read_trajectories

    families = {row.problem.problem_id: row.problem.family for row in read_problems(problems, Split.TRAIN)}
    returns = (
        read_trajectories(batch)
        .group_by("group_id")
        .agg(pl.col("problem_id").first(), pl.col("return").drop_nulls().n_unique())
    )
    played = returns.select("problem_id", "return").iter_rows()
    known = [(families[problem], values > 1) for problem, values in played if problem in families]
    return Counter(family for family, _ in known), Counter(family for family, differs in known if differs)
