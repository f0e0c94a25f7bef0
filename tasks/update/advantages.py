"""Advantages: how much better than its peers a sampled response was. Pure functions of rewards, values and groups.

Shapes: B responses, T token positions, K turns. Groups are any hashable labels, one a response (a list, an array or a
tensor of B): responses of one group answered the same question (the same problem and, over several turns, the same
turn). A group of one has no baseline: its advantage is 0, and whoever builds a training batch drops and counts it
(`tasks.update.dataset`). Results have the rewards' type; whole-number rewards count as float32.
"""

from collections.abc import Callable, Hashable, Sequence

import torch
from torch import Tensor

from kernels_eval.errors import InputError
from tasks.update.losses import masked_mean, masked_sum

EPSILON = 1e-6
"""Added to a group's standard deviation (GRPO)."""


def group_advantages(
    scores: Tensor, groups: Sequence[Hashable], *, scale_by_std: bool = True, epsilon: float = EPSILON
) -> Tensor:
    """GRPO: scores [B] less their group's mean, over the group's unbiased standard deviation + epsilon. Returns [B].

    Source: Shao et al. 2024 (DeepSeekMath), eq. 4. `scale_by_std=False` is Dr. GRPO (Liu et al. 2025). Groups of one
    get 0.
    """
    scores = _floating(scores)
    result = torch.zeros_like(scores)
    for rows in _rows_of_groups(scores, groups):
        if len(rows) < 2:
            continue
        centred = _centred(scores[rows])
        scale = centred.square().sum().div(len(rows) - 1).sqrt() + epsilon if scale_by_std else 1.0
        result[rows] = (centred / scale).to(scores.dtype)
    return result


def leave_one_out_advantages(scores: Tensor, groups: Sequence[Hashable]) -> Tensor:
    """RLOO: scores [B] less the mean of the *other* scores of their group. Returns [B]; groups of one get 0.

    Source: Ahmadian et al. 2024, "Back to Basics", eq. 8; equal to n / (n - 1) times the centred score.
    """
    scores = _floating(scores)
    result = torch.zeros_like(scores)
    for rows in _rows_of_groups(scores, groups):
        if len(rows) > 1:
            result[rows] = (_centred(scores[rows]) * (len(rows) / (len(rows) - 1))).to(scores.dtype)
    return result


def grpo(rewards: Tensor, groups: Sequence[Hashable], mask: Tensor, epsilon: float = EPSILON) -> Tensor:
    """GRPO advantages on every masked-in token: rewards [B], mask [B, T] -> [B, T]."""
    return group_advantages(rewards, groups, epsilon=epsilon)[:, None] * mask


def dr_grpo(rewards: Tensor, groups: Sequence[Hashable], mask: Tensor) -> Tensor:
    """Dr. GRPO advantages (no division by the standard deviation): rewards [B], mask [B, T] -> [B, T]."""
    return group_advantages(rewards, groups, scale_by_std=False)[:, None] * mask


def rloo(rewards: Tensor, groups: Sequence[Hashable], mask: Tensor) -> Tensor:
    """RLOO advantages on every masked-in token: rewards [B], mask [B, T] -> [B, T]."""
    return leave_one_out_advantages(rewards, groups)[:, None] * mask


def reinforce_plus_plus(rewards: Tensor, mask: Tensor, gamma: float = 1.0) -> tuple[Tensor, Tensor]:
    """REINFORCE++: discounted returns per token, whitened over the batch: (advantages [B, T], returns [B, T]).

    rewards [B] are given at each response's last masked-in token; rewards [B, T] at every token. Tokens outside the
    mask are skipped: the return does not decay across them. Source: Hu 2025, "REINFORCE++"; as verl 0.9 computes it.
    """
    rewards = _floating(rewards)
    token_rewards = rewards if rewards.dim() == 2 else outcome_rewards(rewards, mask)
    returns = torch.zeros_like(token_rewards)
    running = torch.zeros_like(token_rewards[:, 0])
    for t in reversed(range(mask.shape[1])):
        present = mask[:, t].bool()
        running = torch.where(present, token_rewards[:, t] + gamma * running, running)
        returns[:, t] = torch.where(present, running, torch.zeros_like(running))
    return masked_whiten(returns, mask) * mask, returns


def gae(
    token_rewards: Tensor,
    values: Tensor,
    mask: Tensor | None = None,
    gamma: float = 1.0,
    lam: float = 1.0,
    *,
    whiten: bool = False,
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation: token_rewards, values, mask [B, T] -> (advantages [B, T], returns [B, T]).

    Rewards [B] are given at each response's last counted token.
    Without a mask every token counts. With one, tokens outside it (what the environment said, padding) are skipped, not
    discounted through: the last advantage and value are carried across them; their entries mean nothing.
    `whiten` shifts and scales the advantages by the masked batch statistics. Returns are never whitened.
    Source: Schulman et al. 2016, eq. 16; skipping as verl 0.9 does for turns of an agent.
    """
    counted = torch.ones_like(values) if mask is None else mask
    token_rewards = token_rewards if token_rewards.dim() == 2 else outcome_rewards(token_rewards, counted)
    next_value = torch.zeros_like(values[:, 0])
    advantage = torch.zeros_like(values[:, 0])
    columns: list[Tensor] = []
    for t in reversed(range(values.shape[1])):
        present = counted[:, t].bool()
        delta = token_rewards[:, t] + gamma * next_value - values[:, t]
        advantage = torch.where(present, delta + gamma * lam * advantage, advantage)
        next_value = torch.where(present, values[:, t], next_value)
        columns.append(advantage)
    advantages = torch.stack(columns[::-1], dim=1)
    returns = advantages + values
    return (masked_whiten(advantages, counted) if whiten else advantages), returns


def outcome_rewards(rewards: Tensor, mask: Tensor) -> Tensor:
    """Put each response's reward [B] on its last masked-in token: mask [B, T] -> [B, T]."""
    positions = torch.arange(mask.shape[1], device=mask.device)
    last = torch.where(mask.bool(), positions, torch.full_like(positions, -1)).amax(dim=1)
    token_rewards = torch.zeros(mask.shape, dtype=rewards.dtype, device=rewards.device)
    rows = torch.nonzero(last >= 0).flatten()
    token_rewards[rows, last[rows]] = rewards[rows]
    return token_rewards


def soft_overlong_penalty(lengths: Tensor, limit: int, buffer: int) -> Tensor:
    """Return a penalty of 0 to 1 per response: rises linearly from `limit - buffer` tokens to `limit`. [B] -> [B].

    Without a buffer it is 0 up to `limit` and 1 above. Raises InputError for a negative buffer.
    Source: Yu et al. 2025 (DAPO), eq. 13 (soft overlong punishment).
    """
    if buffer < 0:
        raise InputError(f"buffer: found {buffer}, expected a number of tokens, 0 or more")
    if buffer == 0:
        return (lengths > limit).to(_floating(lengths).dtype)
    return ((lengths - (limit - buffer)) / buffer).clamp(0.0, 1.0)


def turn_grpo(
    returns: Tensor, groups: Sequence[Hashable], epsilon: float = EPSILON, mask: Tensor | None = None
) -> Tensor:
    """GRPO with a baseline and a scale per (group, turn): returns [B, K], groups of B labels -> [B, K].

    mask [B, K]: 1 for each turn that was played. Others are not compared and get 0; without a mask all turns count.
    """
    return _by_turn(returns, groups, mask, lambda scores, labels: group_advantages(scores, labels, epsilon=epsilon))


def turn_rloo(returns: Tensor, groups: Sequence[Hashable], mask: Tensor | None = None) -> Tensor:
    """RLOO with a baseline per (group, turn): returns, mask [B, K], groups of B labels -> [B, K], as `turn_grpo`."""
    return _by_turn(returns, groups, mask, leave_one_out_advantages)


def masked_whiten(values: Tensor, mask: Tensor, epsilon: float = 1e-8) -> Tensor:
    """Shift and scale all of values [B, T] by the mean and the unbiased variance of those where mask is set."""
    centred = values.double() - masked_mean(values.double(), mask)
    variance = masked_sum(centred**2, mask) / (mask.sum() - 1).clamp(min=1)
    return (centred * torch.rsqrt(variance + epsilon)).to(values.dtype)


def _centred(scores: Tensor) -> Tensor:
    """Return scores less their mean, in float64; exactly 0 if they are equal.

    In float32 the mean of equal scores is off by a rounding error, which the division by a tiny deviation enlarges.
    """
    if bool((scores == scores[0]).all()):
        return torch.zeros_like(scores, dtype=torch.float64)
    return scores.double() - scores.double().mean()


def _by_turn(
    returns: Tensor,
    groups: Sequence[Hashable],
    mask: Tensor | None,
    compute: Callable[[Tensor, Sequence[Hashable]], Tensor],
) -> Tensor:
    """Compare the turns that were played, each with those of its group on the same turn."""
    returns, labels = _floating(returns), _labels(groups, len(returns))
    played = torch.ones_like(returns, dtype=torch.bool) if mask is None else mask.bool()
    result = torch.zeros_like(returns)
    for turn in range(returns.shape[1]):
        rows = torch.nonzero(played[:, turn]).flatten()
        result[rows, turn] = compute(returns[rows, turn], [labels[row] for row in rows.tolist()])
    return result


def _rows_of_groups(scores: Tensor, groups: Sequence[Hashable]) -> list[list[int]]:
    rows: dict[Hashable, list[int]] = {}
    for row, label in enumerate(_labels(groups, len(scores))):
        rows.setdefault(label, []).append(row)
    return list(rows.values())


def _labels(groups: Sequence[Hashable] | Tensor, number: int) -> list[Hashable]:
    """Return one label a response. The entries of a tensor are equal by what they hold, not by which they are."""
    if len(groups) != number:
        raise InputError(f"groups: expected one label a response ({number}), found {len(groups)}")
    return groups.tolist() if isinstance(groups, Tensor) else list(groups)


def _floating(rewards: Tensor) -> Tensor:
    return rewards if rewards.is_floating_point() else rewards.float()
