"""How much each response token is to be credited: from scores, KL penalties and values to advantages, one tensor a sample.

The estimators themselves are the pure functions of `tasks.update.advantages`; here they meet samples of different lengths.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels_eval.errors import InputError
from tasks.trajectories.groups import OF_TRAJECTORY, WITHOUT_BASELINE, Advantage, GroupKey
from tasks.update.advantages import (
    gae,
    group_advantages,
    leave_one_out_advantages,
    outcome_rewards,
    reinforce_plus_plus,
)
from tasks.update.config import UpdateConfig
from tasks.update.sample import Sample


@dataclass(frozen=True)
class Credit:
    """One tensor [R_i] in float32 for each sample, R_i being its response tokens."""

    advantages: list[Tensor]
    returns: list[Tensor] | None
    """What the critic's values should have been."""


def peer_advantages(
    scores: Tensor, peers: Sequence[GroupKey], trajectories: Sequence[str], advantage: Advantage
) -> Tensor:
    """Advantages of scores [B] among peers: [B]. Estimators without peers give 0 here.

    Where a trajectory's turns share its score, it counts once in the baseline, however many turns it has.
    """
    if advantage in WITHOUT_BASELINE:
        return torch.zeros_like(scores)
    shared = advantage in OF_TRAJECTORY
    first: dict[Hashable, int] = {}
    units = [
        (key, trajectory if shared else row)
        for row, (key, trajectory) in enumerate(zip(peers, trajectories, strict=True))
    ]
    for row, unit in enumerate(units):
        first.setdefault(unit, row)
    counted = list(first.values())
    labels = [peers[row] for row in counted]
    match advantage:
        case "grpo" | "turn_grpo":
            found = group_advantages(scores[counted], labels)
        case "dr_grpo":
            found = group_advantages(scores[counted], labels, scale_by_std=False)
        case _:
            found = leave_one_out_advantages(scores[counted], labels)
    place = {unit: number for number, unit in enumerate(first)}
    return found[[place[unit] for unit in units]]


def credit(
    samples: Sequence[Sample],
    config: UpdateConfig,
    penalties: Sequence[Tensor] | None = None,
    values: Sequence[Tensor] | None = None,
) -> Credit:
    """Return the advantages of every response token.

    penalties: what is taken off each token's reward (KL in the reward), [R_i] a sample. values: the critic's, before the
    update, [R_i] a sample; needed by `gae` alone. Each sample's score is given at its last token. Where samples were left out of
    the loss (overlong), penalties are compared among those that are left.
    """
    lengths = [sample.responded for sample in samples]
    if config.advantage not in WITHOUT_BASELINE:
        if penalties is None:
            return Credit(
                [torch.full((length,), s.advantage) for s, length in zip(samples, lengths, strict=True)], None
            )
        scores = _penalised_scores(samples, config, penalties)
        shared = peer_advantages(
            scores, [sample.peers for sample in samples], [sample.trajectory for sample in samples], config.advantage
        ).float()
        return Credit([shared[row].expand(length) for row, length in enumerate(lengths)], None)
    mask = _mask(lengths)
    rewards = outcome_rewards(torch.tensor([sample.score for sample in samples], dtype=torch.float64), mask)
    if penalties is not None:
        rewards = rewards - _grid(penalties, mask)
    if config.advantage == "reinforce_pp":
        advantages, _ = reinforce_plus_plus(rewards, mask, config.gamma)
        return Credit(_rows(advantages, lengths), None)
    if values is None:
        raise InputError("update.advantage: gae needs the values of a critic, found none")
    advantages, returns = gae(rewards, _grid(values, mask), mask, config.gamma, config.gae_lambda, whiten=True)
    return Credit(_rows(advantages, lengths), _rows(returns, lengths))


def _penalised_scores(samples: Sequence[Sample], config: UpdateConfig, penalties: Sequence[Tensor]) -> Tensor:
    """Scores [B] less the penalties of the sample, or of all of its trajectory's samples where they share a score."""
    own = [float(penalty.double().sum()) for penalty in penalties]
    if config.advantage in OF_TRAJECTORY:
        of_trajectory: dict[tuple[str, str], float] = {}
        keys = [(sample.trajectory, sample.group[2]) for sample in samples]
        for key, penalty in zip(keys, own, strict=True):
            of_trajectory[key] = of_trajectory.get(key, 0.0) + penalty
        own = [of_trajectory[key] for key in keys]
    scores = [sample.score - penalty for sample, penalty in zip(samples, own, strict=True)]
    return torch.tensor(scores, dtype=torch.float64)


def _mask(lengths: Sequence[int]) -> Tensor:
    return (torch.arange(max(lengths))[None, :] < torch.tensor(lengths)[:, None]).double()


def _grid(rows: Sequence[Tensor], mask: Tensor) -> Tensor:
    """Lay tensors [R_i] out as [B, T], left-aligned, zeros elsewhere."""
    return torch.zeros_like(mask).masked_scatter(mask.bool(), torch.cat([row.double() for row in rows]))


def _rows(grid: Tensor, lengths: Sequence[int]) -> list[Tensor]:
    return [grid[row, :length].float().contiguous() for row, length in enumerate(lengths)]
