"""What an update trains on: one sample a turn. Needs no table library, so that a rank loads it alone."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.training.batches import TrainedSequence
from tasks.trajectories.groups import GroupKey


@dataclass(frozen=True)
class Sample:
    """One turn: prompt, response, and what the sampler and the judge said of it."""

    sequence: TrainedSequence
    """Prompt and response; the response's tokens are trained."""
    sampler_log_probs: NDArray[np.float32]
    """Of the response's tokens under the policy that sampled them."""
    return_: float
    """The turn's own return, less the penalty on its length where one is configured."""
    score: float
    """What its peers' scores are compared with: the turn's return, or the trajectory's."""
    advantage: float
    """Of `score` among its peers; 0 where that is decided later (KL in the reward, a critic)."""
    group: GroupKey
    peers: GroupKey
    """Whose scores the baseline is made of: the group, or the group over all turns (turn −1)."""
    trajectory: str

    @property
    def responded(self) -> int:
        """Number of response tokens."""
        return len(self.sampler_log_probs)


@dataclass(frozen=True)
class SampleSet:
    """The samples that have a gradient, and how many were left out and why."""

    samples: tuple[Sample, ...]
    groups_used: int
    groups_single: int
    groups_constant: int
    turns_excluded: int
    """Turns that the machine, not the policy, failed."""
    turns_overlong: int = 0
    """Turns cut off at the sampler's limit, whatever was done about them."""
    groups_missing: int = 0
    """Groups with variance that are missing to `wanted_groups`."""


def deal_groups(samples: Sequence[Sample], steps: int, seed: Sequence[int]) -> list[list[int]]:
    """Deal whole groups out to at most `steps` optimizer steps, with numbers of samples as even as can be.

    Deterministic in `seed`, whatever order the samples come in. Fewer groups than steps give fewer steps.
    """
    rows_of: dict[GroupKey, list[int]] = {}
    for row, sample in enumerate(samples):
        rows_of.setdefault(sample.group, []).append(row)
    keys = sorted(rows_of)
    shuffled = [keys[place] for place in np.random.default_rng(list(seed)).permutation(len(keys))]
    hands: list[list[int]] = [[] for _ in range(min(steps, len(keys)))]
    for key in sorted(shuffled, key=lambda key: -len(rows_of[key])):  # stable: equal sizes stay shuffled
        min(hands, key=len).extend(rows_of[key])
    return hands
