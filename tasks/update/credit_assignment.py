"""Credit assignment: the advantage of every response token. Runs on each rank, before the first optimizer step.

The estimator (tasks.update.estimators) is called once, on all samples: groups compare trajectories × turns [B, K],
estimators without peers see tokens [B, T]. This module also defines the sample (one turn)
and imports no table library, which keeps a rank's start short.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kernels_eval.errors import InputError
from tasks.training.batches import TrainedSequence
from tasks.trajectories.groups import GroupKey
from tasks.update.advantages import outcome_rewards
from tasks.update.config import UpdateConfig
from tasks.update.doors import Estimator


@dataclass(frozen=True)
class Score:
    """A turn's score and the peers that it is compared with."""

    score: float
    """The turn's own return, or its trajectory's (tasks.trajectories.groups)."""
    group: GroupKey
    trajectory: str


@dataclass(frozen=True)
class Sample(Score):
    """One turn that is trained on: prompt, response, and the sampler's and the judge's numbers."""

    sequence: TrainedSequence
    """Prompt and response; the response's tokens are trained."""
    sampler_log_probs: NDArray[np.float32]
    """Of the response's tokens under the policy that sampled them."""
    return_: float
    """The turn's own return, less the penalty on its length if one is configured."""

    @property
    def responded(self) -> int:
        """Number of response tokens."""
        return len(self.sampler_log_probs)


@dataclass(frozen=True)
class SampleSet:
    """The samples that have a gradient, and the numbers of those left out, by reason."""

    samples: tuple[Sample, ...]
    groups_used: int
    groups_single: int
    groups_constant: int
    turns_excluded: int
    """Turns on which the machine failed, not the policy."""
    turns_overlong: int = 0
    """Turns cut off at the sampler's limit, trained on or not."""
    groups_missing: int = 0
    """Groups with variance that are missing to `wanted_groups`."""
    masked: tuple[Score, ...] = ()
    """Turns left out of the loss because they were cut off (`overlong: mask`); peers of their groups all the same."""
    imitated: tuple[TrainedSequence, ...] = ()
    """Prompts of the batch, each with the best answer that any conversation found (`update.imitation`)."""


@dataclass(frozen=True)
class Credit:
    """One tensor [R_i] in float32 for each sample, R_i being its response tokens."""

    advantages: list[Tensor]
    returns: list[Tensor] | None
    """Targets of the critic's values; None without a critic."""


def credit(
    samples: Sequence[Sample],
    config: UpdateConfig,
    penalties: Sequence[Tensor] | None = None,
    values: Sequence[Tensor] | None = None,
    masked: Sequence[Score] = (),
) -> Credit:
    """Return the advantages of every response token.

    penalties: [R_i] a sample, taken off each token's reward (KL in the reward). values: [R_i] a sample, the critic's
    before the update, if the estimator needs one. A sample's score is the reward of its last token. masked: turns that
    are compared but not trained on; with penalties, which they do not have, samples are compared among themselves.
    """
    lengths = [sample.responded for sample in samples]
    estimator = config.estimator
    if estimator.compares != "nothing":
        compared = [*samples, *masked] if penalties is None else _penalised(samples, estimator, penalties)
        found = turn_advantages(compared, estimator).float()
        return Credit([found[row].repeat(length) for row, length in enumerate(lengths)], None)
    mask = _mask(lengths)
    scores = torch.tensor([sample.score for sample in samples], dtype=torch.float64)
    rewards = outcome_rewards(scores, mask)
    if penalties is not None:
        rewards = rewards - _grid(penalties, mask)
    if not estimator.critic:
        return Credit(_rows(estimator(rewards, mask, config), lengths), None)
    if values is None:
        raise InputError(f"update.advantage: {config.advantage} needs the values of a critic, found none")
    advantages, returns = estimator(rewards, mask, config, _grid(values, mask))
    return Credit(_rows(advantages, lengths), _rows(returns, lengths))


def turn_advantages(turns: Sequence[Score], estimator: Estimator) -> Tensor:
    """Return the advantage of each turn among its peers, in float64.

    Turns are laid out as [B, K], a row for each trajectory and role: a trajectory counts once in a baseline.
    """
    rows: dict[tuple[str, str], int] = {}
    places: list[tuple[int, int]] = []
    groups: list[tuple[str, str]] = []
    for turn in turns:
        group, column, role = turn.group
        row = rows.setdefault((turn.trajectory, role), len(rows))
        if row == len(groups):
            groups.append((group, role))
        places.append((row, column))
    row_of, column_of = torch.tensor(places).T
    shape = (len(rows), int(column_of.max()) + 1)
    scores, played = torch.zeros(shape, dtype=torch.float64), torch.zeros(shape, dtype=torch.float64)
    scores[row_of, column_of] = torch.tensor([turn.score for turn in turns], dtype=torch.float64)
    played[row_of, column_of] = 1
    if estimator.compares == "trajectories":
        scores = scores.masked_fill(played == 0, -torch.inf).amax(dim=1)
    return estimator(scores, groups, played)[row_of, column_of]


def _penalised(samples: Sequence[Sample], estimator: Estimator, penalties: Sequence[Tensor]) -> list[Score]:
    """Return the samples' scores less their own penalties, or the trajectory's if its turns share a score."""
    own = [float(penalty.double().sum()) for penalty in penalties]
    if estimator.compares == "trajectories":
        of_trajectory: dict[tuple[str, str], float] = {}
        keys = [(sample.trajectory, sample.group[2]) for sample in samples]
        for key, penalty in zip(keys, own, strict=True):
            of_trajectory[key] = of_trajectory.get(key, 0.0) + penalty
        own = [of_trajectory[key] for key in keys]
    return [Score(s.score - penalty, s.group, s.trajectory) for s, penalty in zip(samples, own, strict=True)]


def _mask(lengths: Sequence[int]) -> Tensor:
    return (torch.arange(max(lengths))[None, :] < torch.tensor(lengths)[:, None]).double()


def _grid(rows: Sequence[Tensor], mask: Tensor) -> Tensor:
    """Lay tensors [R_i] out as [B, T], left-aligned, zeros elsewhere."""
    return torch.zeros_like(mask).masked_scatter(mask.bool(), torch.cat([row.double() for row in rows]))


def _rows(grid: Tensor, lengths: Sequence[int]) -> list[Tensor]:
    return [grid[row, :length].float().contiguous() for row, length in enumerate(lengths)]
