"""Which episodes an iteration plays: problems drawn by seed and iteration, samples of each, a seed for each turn."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tasks.problems.row import ProblemRow, Split


@dataclass(frozen=True, slots=True)
class EpisodePlan:
    """One episode to be played. The same arguments give the same plan, so that a repeated rollout has the same names."""

    row: ProblemRow
    iteration: int
    sample_index: int
    seed: int

    @property
    def group_id(self) -> str:
        """Names the samples that share a first prompt; unique within a run."""
        return f"{self.row.split.value}-{self.iteration:04d}-{self.row.problem.problem_id}"

    @property
    def trajectory_id(self) -> str:
        """Unique within a run."""
        return f"{self.group_id}-{self.sample_index:03d}"

    def turn_seed(self, turn_index: int) -> int:
        """Return the seed of one turn's draws: 62 bits that no other turn of the run shares."""
        key = f"{self.seed}/{self.trajectory_id}/{turn_index}"
        return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8]) >> 2


def plan_episodes(
    rows: Sequence[ProblemRow], split: Split, problems: int, samples: int, iteration: int, seed: int, skip: int = 0
) -> list[EpisodePlan]:
    """Return the episodes of an iteration: `samples` of each of `problems` training problems, or of every held-out one.

    Training problems are drawn without replacement, by (seed, iteration) alone; all where fewer are there. `skip` leaves out so many
    that were drawn before.
    """
    drawn = list(rows)
    if split is Split.TRAIN and problems < len(drawn):
        order = np.random.default_rng([seed, iteration]).permutation(len(drawn))
        drawn = [drawn[index] for index in order[skip : skip + problems]]
    return [EpisodePlan(row, iteration, sample, seed) for row in drawn for sample in range(samples)]
