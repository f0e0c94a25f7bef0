"""Every estimator, loss, divergence and correction against its definition in plain Python, one number at a time.

Sources of the definitions are named in the functions' docstrings. Attacked with sequences of one token, rows without
a token, ragged lengths, holes in the mask, groups of one, groups without variance, ratios of e^±30, negative
advantages, float32 and float64.
"""

import math
import random
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from kernels_eval.errors import InputError
from tasks.trajectories.returns import turn_returns
from tasks.update import advantages, corrections, kl, losses

Rows = list[list[float]]


class Batch:
    """Rows of numbers that fit together, drawn from a seed; `wild` makes ratios as far from 1 as e^±30."""

    def __init__(self, seed: int, rows: int, width: int, wild: bool) -> None:
        draw = random.Random(seed)
        self.width = width
        self.mask = [[float(draw.random() < 0.7) for _ in range(width)] for _ in range(rows)]
        self.mask[0] = [1.0] + [0.0] * (width - 1)  # a sequence of one token
        if rows > 2:
            self.mask[1] = [0.0] * width  # nothing counts
        spread = 10.0 if wild else 0.4
        self.old = [[-3 * draw.random() - 0.01 for _ in range(width)] for _ in range(rows)]
        self.new = [[min(value + draw.gauss(0, spread), -1e-3) for value in row] for row in self.old]
        if wild:
            self.new[-1][-1], self.old[-1][-1], self.mask[-1][-1] = -0.01, -30.0, 1.0
            self.new[-1][0], self.old[-1][0], self.mask[-1][0] = -30.0, -0.01, 1.0
        self.advantages = [[draw.gauss(0, 1)] * width for _ in range(rows)]
        self.advantages[-1] = [-1.5] * width
        self.values = [[draw.gauss(0, 1) for _ in range(width)] for _ in range(rows)]
        self.rewards = [draw.choice([0.0, 0.1, 0.3, 1.3]) for _ in range(rows)]
        self.groups = [draw.choice("aabc") for _ in range(rows)]


batches = st.builds(
    Batch, seed=st.integers(0, 10_000), rows=st.integers(2, 7), width=st.integers(1, 6), wild=st.booleans()
)
precisions = st.sampled_from([torch.float32, torch.float64])


def tensors(batch: Batch, precision: torch.dtype, *names: str) -> list[Tensor]:
    return [torch.tensor(getattr(batch, name), dtype=precision) for name in names]


def assert_rows(found: Tensor, expected: Any, precision: torch.dtype, mask: Rows | None = None) -> None:
    """Equal where the mask is set, to the type's precision."""
    assert found.dtype == precision
    assert torch.isfinite(found).all()
    wanted = torch.tensor(expected, dtype=torch.float64)
    kept = torch.ones_like(wanted, dtype=torch.bool) if mask is None else torch.tensor(mask).bool()
    tolerance = 1e-5 if precision == torch.float32 else 1e-9
    torch.testing.assert_close(found.double()[kept], wanted[kept], atol=tolerance, rtol=tolerance)


# ------------------------------------------------------------------------------------------------------------- advantages


def members(groups: Sequence[Hashable], row: int) -> list[int]:
    return [other for other, label in enumerate(groups) if label == groups[row]]


def grpo_of(scores: Sequence[float], groups: Sequence[Hashable], row: int, scaled: bool) -> float:
    peers = [scores[other] for other in members(groups, row)]
    if len(peers) == 1:
        return 0.0
    mean = math.fsum(peers) / len(peers)
    if not scaled:
        return scores[row] - mean
    deviation = math.sqrt(math.fsum((score - mean) ** 2 for score in peers) / (len(peers) - 1))
    return (scores[row] - mean) / (deviation + 1e-6)


def rloo_of(scores: Sequence[float], groups: Sequence[Hashable], row: int) -> float:
    others = [scores[other] for other in members(groups, row) if other != row]
    return scores[row] - math.fsum(others) / len(others) if others else 0.0


@given(batch=batches)
def test_group_estimators(batch: Batch) -> None:
    (rewards, mask) = tensors(batch, torch.float64, "rewards", "mask")
    rows = range(len(batch.rewards))
    for found, expected in (
        (advantages.grpo(rewards, batch.groups, mask), [grpo_of(batch.rewards, batch.groups, r, True) for r in rows]),
        (
            advantages.dr_grpo(rewards, batch.groups, mask),
            [grpo_of(batch.rewards, batch.groups, r, False) for r in rows],
        ),
        (advantages.rloo(rewards, batch.groups, mask), [rloo_of(batch.rewards, batch.groups, r) for r in rows]),
    ):
        assert_rows(
            found, [[value * m for m in row] for value, row in zip(expected, batch.mask, strict=True)], torch.float64
        )


@given(batch=batches, turns=st.integers(1, 4), gamma=st.sampled_from([0.0, 0.4, 1.0]), seed=st.integers(0, 99))
def test_turn_estimators_compare_played_turns_only(batch: Batch, turns: int, gamma: float, seed: int) -> None:
    draw = random.Random(seed)
    count = len(batch.groups)
    played = [draw.randint(1, turns) for _ in range(count)]
    turn_rewards = [
        [draw.choice([0.0, 0.3, 1.3]) if t < played[r] else 0.0 for t in range(turns)] for r in range(count)
    ]
    returns = [
        [math.fsum(gamma ** (i - t) * row[i] for i in range(t, turns)) for t in range(turns)] for row in turn_rewards
    ]
    found = torch.tensor([turn_returns(rewards, gamma) for rewards in turn_rewards], dtype=torch.float64)
    assert_rows(found, returns, torch.float64)
    mask = torch.tensor([[float(t < played[r]) for t in range(turns)] for r in range(count)])
    expected_rloo, expected_grpo = [[[0.0] * turns for _ in range(count)] for _ in range(2)]
    for t in range(turns):
        rows = [row for row in range(count) if t < played[row]]
        scores, labels = [returns[row][t] for row in rows], [batch.groups[row] for row in rows]
        for place, row in enumerate(rows):
            expected_rloo[row][t] = rloo_of(scores, labels, place)
            expected_grpo[row][t] = grpo_of(scores, labels, place, True)
    given_returns = torch.tensor(returns, dtype=torch.float64)
    assert_rows(advantages.turn_rloo(given_returns, batch.groups, mask), expected_rloo, torch.float64)
    assert_rows(advantages.turn_grpo(given_returns, batch.groups, mask=mask), expected_grpo, torch.float64)


def whitened(values: Rows, mask: Rows) -> Rows:
    kept = [value for row, keep in zip(values, mask, strict=True) for value, m in zip(row, keep, strict=True) if m]
    mean = math.fsum(kept) / max(len(kept), 1)
    variance = math.fsum((value - mean) ** 2 for value in kept) / max(len(kept) - 1, 1)
    return [[(value - mean) / math.sqrt(variance + 1e-8) for value in row] for row in values]


@given(batch=batches, gamma=st.sampled_from([0.9, 1.0]), at_each_token=st.booleans())
def test_reinforce_plus_plus(batch: Batch, gamma: float, at_each_token: bool) -> None:
    count, width = len(batch.rewards), batch.width
    given_rewards = batch.values if at_each_token else batch.rewards
    returns = [[0.0] * width for _ in range(count)]
    for row in range(count):
        places = [t for t in range(width) if batch.mask[row][t]]
        running = 0.0
        for t in reversed(places):
            reward = batch.values[row][t] if at_each_token else batch.rewards[row] * (t == places[-1])
            running = reward + gamma * running
            returns[row][t] = running
    found, found_returns = advantages.reinforce_plus_plus(
        torch.tensor(given_rewards, dtype=torch.float64), torch.tensor(batch.mask, dtype=torch.float64), gamma
    )
    assert_rows(found_returns, returns, torch.float64, batch.mask)
    assert_rows(found, whitened(returns, batch.mask), torch.float64, batch.mask)


@given(batch=batches, gamma=st.sampled_from([0.9, 1.0]), lam=st.sampled_from([0.0, 0.95, 1.0]), whiten=st.booleans())
def test_generalised_advantages(batch: Batch, gamma: float, lam: float, whiten: bool) -> None:
    """A_t = Σ_k (γλ)^k δ_{t+k} over the counted tokens of a sequence, as the paper writes it."""
    expected = [[0.0] * batch.width for _ in batch.mask]
    returns = [[0.0] * batch.width for _ in batch.mask]
    for row, (mask, values) in enumerate(zip(batch.mask, batch.values, strict=True)):
        places = [t for t in range(batch.width) if mask[t]]
        deltas = [
            batch.rewards[row] * (t == places[-1])
            + gamma * (values[places[n + 1]] if n + 1 < len(places) else 0.0)
            - values[t]
            for n, t in enumerate(places)
        ]
        for n, t in enumerate(places):
            expected[row][t] = math.fsum((gamma * lam) ** k * delta for k, delta in enumerate(deltas[n:]))
            returns[row][t] = expected[row][t] + values[t]
    rewards, values, mask = tensors(batch, torch.float64, "rewards", "values", "mask")
    found, found_returns = advantages.gae(rewards, values, mask, gamma, lam, whiten=whiten)
    assert_rows(found_returns, returns, torch.float64, batch.mask)
    assert_rows(found, whitened(expected, batch.mask) if whiten else expected, torch.float64, batch.mask)


def test_labels_may_be_anything_that_says_who_belongs_together() -> None:
    scores = torch.tensor([1.0, 2.0, 5.0, 5.0])
    expected = [-1.0, 1.0, 0.0, 0.0]
    for groups in (["a", "a", "b", "b"], [7, 7, 9, 9], np.array([7, 7, 9, 9]), torch.tensor([7, 7, 9, 9])):
        assert advantages.leave_one_out_advantages(scores, groups).tolist() == expected  # pyright: ignore[reportArgumentType]
    whole = torch.tensor([1, 2, 5, 5])
    assert advantages.leave_one_out_advantages(whole, ["a", "a", "b", "b"]).tolist() == expected
    assert turn_returns([1, 1], 0.5) == [1.5, 1.0]


# ----------------------------------------------------------------------------------------------------------------- losses

PerToken = Callable[[Batch, int, int], tuple[float, float]]
"""Loss of a token, and its gradient by that token's log-probability."""


def ratio_of(batch: Batch, row: int, t: int) -> float:
    return math.exp(max(min(batch.new[row][t] - batch.old[row][t], 20.0), -20.0))


def clipped_surrogate(ratio: float, advantage: float, low: float, high: float) -> tuple[float, float]:
    clipped = min(max(ratio, 1 - low), 1 + high)
    if -advantage * clipped > -advantage * ratio:
        return -advantage * clipped, 0.0
    return -advantage * ratio, -advantage * ratio


def ppo_of(batch: Batch, row: int, t: int) -> tuple[float, float]:
    advantage = batch.advantages[row][t]
    loss, gradient = clipped_surrogate(ratio_of(batch, row, t), advantage, 0.2, 0.28)
    if advantage < 0 and loss > -3.0 * advantage:
        return -3.0 * advantage, 0.0
    if abs(batch.new[row][t] - batch.old[row][t]) > 20:
        gradient = 0.0
    return loss, gradient


def gspo_of(batch: Batch, row: int, t: int) -> tuple[float, float]:
    places = [place for place in range(batch.width) if batch.mask[row][place]]
    mean = math.fsum(batch.new[row][place] - batch.old[row][place] for place in places) / len(places)
    loss, gradient = clipped_surrogate(math.exp(min(mean, 10.0)), batch.advantages[row][t], 3e-4, 4e-4)
    return loss, gradient if mean < 10 else 0.0


def cispo_of(batch: Batch, row: int, t: int) -> tuple[float, float]:
    weight = min(max(ratio_of(batch, row, t), 0.0), 5.0)
    advantage = batch.advantages[row][t]
    return -weight * advantage * batch.new[row][t], -weight * advantage


def dppo_of(batch: Batch, row: int, t: int) -> tuple[float, float]:
    advantage = batch.advantages[row][t]
    moved = math.exp(batch.new[row][t]) - math.exp(batch.old[row][t])
    if moved > 0.28 if advantage > 0 else moved < -0.2:
        return 0.0, 0.0
    weight = min(ratio_of(batch, row, t), 20.0)
    return -weight * advantage * batch.new[row][t], -weight * advantage


def dppo_kl_of(batch: Batch, row: int, t: int) -> tuple[float, float]:
    advantage, new, old = batch.advantages[row][t], batch.new[row][t], batch.old[row][t]
    p, q = math.exp(new), math.exp(old)
    divergence = q * (old - new) + (1 - q) * math.log((1 - q + 1e-8) / (1 - p + 1e-8))
    if (p > q and divergence > 0.28) if advantage > 0 else (p < q and divergence > 0.2):
        return 0.0, 0.0
    weight = min(ratio_of(batch, row, t), 20.0)
    return -weight * advantage * new, -weight * advantage


LOSSES: dict[str, tuple[PerToken, Callable[..., tuple[Tensor, Any]]]] = {
    "ppo_clip": (ppo_of, lambda new, old, adv, mask: losses.ppo_clip(new, old, adv, 0.2, 0.28, 3.0)),
    "gspo": (gspo_of, lambda new, old, adv, mask: losses.gspo(new, old, adv, mask)),
    "cispo": (cispo_of, lambda new, old, adv, mask: losses.cispo(new, old, adv)),
    "dppo": (dppo_of, lambda new, old, adv, mask: losses.dppo(new, old, adv)),
    "dppo_kl": (dppo_kl_of, lambda new, old, adv, mask: losses.dppo(new, old, adv, divergence="kl")),
}


def weight_of(mask: Rows, row: int, how: str) -> float:
    """Factor of a token's loss."""
    counts = [sum(keep) for keep in mask]
    sequences = max(sum(count > 0 for count in counts), 1)
    return {
        "token_mean": 1 / max(sum(counts), 1),
        "seq_mean_token_mean": 1 / (sequences * max(counts[row], 1)),
        "seq_mean_token_sum": 1 / sequences,
        "seq_mean_token_sum_norm": 1 / (sequences * len(mask[0])),
    }[how]


@given(
    batch=batches,
    name=st.sampled_from(sorted(LOSSES)),
    how=st.sampled_from(["token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "seq_mean_token_sum_norm"]),
    precision=precisions,
)
def test_losses_and_gradients(batch: Batch, name: str, how: Any, precision: torch.dtype) -> None:
    per_token, function = LOSSES[name]
    new, old, advantage, mask = tensors(batch, precision, "new", "old", "advantages", "mask")
    new.requires_grad_()
    loss = losses.aggregate(function(new, old, advantage, mask)[0], mask, how)
    loss.backward()
    expected = 0.0
    gradients = [[0.0] * batch.width for _ in batch.mask]
    for row, keep in enumerate(batch.mask):
        for t in (t for t in range(batch.width) if keep[t]):
            value, gradient = per_token(batch, row, t)
            weight = weight_of(batch.mask, row, how)
            expected += weight * value
            gradients[row][t] = weight * gradient
    assert_rows(loss.detach(), expected, precision)
    assert new.grad is not None
    assert_rows(new.grad, gradients, precision)


@given(batch=batches, name=st.sampled_from(sorted(LOSSES)))
def test_ragged_rows_alone_are_the_padded_batch(batch: Batch, name: str) -> None:
    function = LOSSES[name][1]
    new, old, advantage, mask = tensors(batch, torch.float64, "new", "old", "advantages", "mask")
    whole = losses.aggregate(function(new, old, advantage, mask)[0], mask)
    normaliser = losses.normaliser_of(mask, "token_mean")
    parts = torch.zeros((), dtype=torch.float64)
    for row, keep in enumerate(batch.mask):
        length = max((t + 1 for t in range(batch.width) if keep[t]), default=0)
        cut = [tensor[row : row + 1, :length] for tensor in (new, old, advantage, mask)]
        parts = parts + losses.aggregate(function(*cut)[0], cut[3], "token_mean", normaliser)
    torch.testing.assert_close(parts, whole)


@given(batch=batches, clip=st.sampled_from([None, 0.2, 0.5]))
def test_value_loss(batch: Batch, clip: float | None) -> None:
    values, old, returns, mask = tensors(batch, torch.float64, "values", "new", "old", "mask")
    expected = 0.0
    for row, keep in enumerate(batch.mask):
        for t in (t for t in range(batch.width) if keep[t]):
            value, before, target = batch.values[row][t], batch.new[row][t], batch.old[row][t]
            errors = [(value - target) ** 2]
            if clip is not None:
                errors.append((min(max(value, before - clip), before + clip) - target) ** 2)
            expected += 0.5 * max(errors) / max(sum(map(sum, batch.mask)), 1)
    found = losses.aggregate(losses.value_loss(values, old, returns, clip)[0], mask)
    assert_rows(found, expected, torch.float64)


# ----------------------------------------------------------------------------------------------- divergences, corrections


@given(batch=batches, precision=precisions)
def test_divergences(batch: Batch, precision: torch.dtype) -> None:
    new, reference = tensors(batch, precision, "new", "old")
    apart = [[a - b for a, b in zip(*rows, strict=True)] for rows in zip(batch.new, batch.old, strict=True)]

    def limited(d: float) -> float:
        return min(math.exp(-max(min(d, 20.0), -20.0)) - 1 + max(min(d, 20.0), -20.0), 10.0)

    definitions: dict[str, Callable[[float], float]] = {
        "k1": lambda d: d,
        "k2": lambda d: d * d / 2,
        "k3": lambda d: math.exp(-d) - 1 + d,
        "low_var_kl": limited,
        "k3_k2": limited,
    }
    for name, definition in definitions.items():
        assert_rows(kl.kl_penalty(new, reference, name), [[definition(d) for d in row] for row in apart], precision)
    new.requires_grad_()
    kl.k3_k2(new, reference).sum().backward()
    assert new.grad is not None
    assert_rows(new.grad, apart, precision)


def log_ratios(batch: Batch, row: int) -> list[float]:
    return [a - b for a, b in zip(batch.new[row], batch.old[row], strict=True)]


def limited(value: float) -> float:
    return max(min(value, 20.0), -20.0)


@given(batch=batches, precision=precisions, lower=st.sampled_from([0.0, 0.5]))
def test_importance_weights(batch: Batch, precision: torch.dtype, lower: float) -> None:
    new, old, mask = tensors(batch, precision, "new", "old", "mask")
    of_tokens, of_sequences, icepop = [[[0.0] * batch.width for _ in batch.mask] for _ in range(3)]
    for row, keep in enumerate(batch.mask):
        ratios = log_ratios(batch, row)
        together = math.exp(limited(math.fsum(r for r, m in zip(ratios, keep, strict=True) if m)))
        for t in (t for t in range(batch.width) if keep[t]):
            own = math.exp(limited(ratios[t]))
            of_tokens[row][t] = min(max(own, lower), 2.0)
            of_sequences[row][t] = min(max(together, lower), 2.0)
            icepop[row][t] = own if 0.5 <= own <= 5.0 else 0.0
    assert_rows(corrections.truncated_weights(new, old, mask, 2.0, lower), of_tokens, precision)
    assert_rows(corrections.truncated_weights(new, old, mask, 2.0, lower, "sequence"), of_sequences, precision)
    assert_rows(corrections.icepop_weights(new, old, mask), icepop, precision)


@given(
    batch=batches,
    level=st.sampled_from(["token", "seq_mean", "seq_sum"]),
    estimator=st.sampled_from(["k1", "k3"]),
    bounds=st.sampled_from([(None, 1.37), (0.31, 1.73)]),
)
def test_rejection_and_veto(batch: Batch, level: Any, estimator: Any, bounds: tuple[float | None, float]) -> None:
    lower, upper = bounds
    new, old, mask = tensors(batch, torch.float64, "new", "old", "mask")
    kept, not_vetoed = [[[0.0] * batch.width for _ in batch.mask] for _ in range(2)]
    for row, keep in enumerate(batch.mask):
        ratios = log_ratios(batch, row)
        statistics = [-limited(r) if estimator == "k1" else math.exp(limited(r)) - 1 - limited(r) for r in ratios]
        places = [t for t in range(batch.width) if keep[t]]
        total = math.fsum(statistics[t] for t in places)
        for t in places:
            found = {"token": statistics[t], "seq_mean": total / len(places), "seq_sum": total}[level]
            low = 1 / upper if lower is None else lower
            inside = math.log(low) <= found <= math.log(upper) if estimator == "k1" else found <= upper
            kept[row][t] = float(inside)
            not_vetoed[row][t] = float(all(ratios[place] >= math.log(1e-4) for place in places))
    assert_rows(corrections.rejection_mask(new, old, mask, upper, lower, level, estimator), kept, torch.float64)
    assert_rows(corrections.veto_mask(new, old, mask, 1e-4), not_vetoed, torch.float64)


@given(batch=batches, delta=st.sampled_from([1e-4, 0.3]))
def test_off_policy_sequences(batch: Batch, delta: float) -> None:
    new, old, advantage, mask = tensors(batch, torch.float64, "new", "old", "advantages", "mask")
    expected = []
    for row, keep in enumerate(batch.mask):
        places = [t for t in range(batch.width) if keep[t]]
        drift = -math.fsum(log_ratios(batch, row)[t] for t in places) / max(len(places), 1)
        expected.append([float(not (a < 0 and drift > delta)) for a in batch.advantages[row]])
    assert_rows(corrections.off_policy_sequence_mask(new, old, advantage, mask, delta), expected, torch.float64)


@given(batch=batches)
def test_the_default_correction_is_truncated_weights_with_a_veto(batch: Batch) -> None:
    new, old, mask = tensors(batch, torch.float64, "new", "old", "mask")
    found = corrections.correction(new, old, mask)
    kept = corrections.veto_mask(new, old, mask, 1e-4)
    torch.testing.assert_close(found.weights, corrections.truncated_weights(new, old, mask, 2.0) * kept)
    torch.testing.assert_close(found.kept, kept)


@pytest.mark.parametrize("mask_type", [torch.bool, torch.int64, torch.float32, torch.float64])
def test_masks_of_any_type_say_the_same(mask_type: torch.dtype) -> None:
    batch = Batch(3, 5, 4, wild=False)
    new, old, adv, values = tensors(batch, torch.float64, "new", "old", "advantages", "values")
    rewards = torch.tensor(batch.rewards, dtype=torch.float64)

    def all_of(mask: Tensor) -> list[Tensor]:
        return [
            advantages.grpo(rewards, batch.groups, mask),
            *advantages.reinforce_plus_plus(rewards, mask, 0.9),
            advantages.gae(rewards, values, mask)[0] * mask,
            losses.aggregate(losses.gspo(new, old, adv, mask)[0], mask, "seq_mean_token_mean"),
            corrections.truncated_weights(new, old, mask),
            corrections.icepop_weights(new, old, mask),
            corrections.rejection_mask(new, old, mask, 1.2).double(),
            corrections.veto_mask(new, old, mask).double(),
            corrections.correction(new, old, mask).weights,
        ]

    expected = all_of(torch.tensor(batch.mask, dtype=torch.float64))
    for found, wanted in zip(all_of(torch.tensor(batch.mask).to(mask_type)), expected, strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: losses.aggregate(x, x, "token-mean"), "how: found 'token-mean', expected one of token_mean, seq_mean"),
        (lambda x: losses.normaliser_of(x, "sum"), "how: found 'sum'"),
        (lambda x: losses.dppo(x, x, x, divergence="js"), "divergence: found 'js', expected one of tv, kl"),
        (lambda x: kl.kl_penalty(x, x, "k4"), "kl: expected one of k1, k2, k3, k3_k2, low_var_kl, or .* found 'k4'"),
        (lambda x: corrections.truncated_weights(x, x, x, level="seq"), "level: found 'seq', expected one of token, sequence"),
        (lambda x: corrections.rejection_mask(x, x, x, 2.0, level="sequence"), "expected one of token, seq_mean, seq_sum"),
        (lambda x: corrections.rejection_mask(x, x, x, 2.0, estimator="k2"), "expected one of k1, k3"),
    ],
)  # fmt: skip
def test_a_wrong_name_is_refused(call: Callable[[Tensor], Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        call(torch.zeros(2, 3))


@pytest.mark.parametrize("name", ["ppo_clip", "gspo", "cispo", "dppo"])
def test_tensors_that_do_not_belong_together_are_refused(name: str) -> None:
    tokens, function = torch.zeros(3, 3), LOSSES[name][1]
    with pytest.raises(InputError, match=r"advantages: found the shape \(3,\), expected that of log_probs, \(3, 3\)"):
        function(tokens, tokens, torch.zeros(3), tokens)
    with pytest.raises(InputError, match=r"old_log_probs: found the shape \(3, 4\)"):
        function(tokens, torch.zeros(3, 4), tokens, tokens)
    of_sequences = function(tokens, tokens, torch.ones(3, 1), torch.ones(3, 3))[0]
    assert of_sequences.shape == (3, 3)


def test_the_documentations_example_runs() -> None:
    page = (Path(__file__).parents[3] / "docs" / "update.md").read_text(encoding="utf-8")
    known: dict[str, Any] = {}
    exec(page.split("```python\n")[1].split("```")[0], known)
    assert torch.isfinite(known["loss"])
    assert torch.isfinite(known["new"].grad).all()
    assert bool((known["new"].grad != 0).equal(known["mask"].bool()))
