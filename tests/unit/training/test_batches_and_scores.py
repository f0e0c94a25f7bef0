"""Micro-batches hold every trained token once, within the budget; scores equal those of each sequence alone."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels_eval.errors import InputError
from tasks.models.config import ModelConfig
from tasks.models.policy import new_policy
from tasks.models.tokenizer import train_tokenizer
from tasks.training.batches import TrainedSequence, deal_to_ranks, make_micro_batch, plan_micro_batches
from tasks.training.program import learning_rate
from tasks.training.scoring import TokenScorer, score, token_scores

lengths_of = st.lists(st.integers(1, 90), min_size=1, max_size=60)


@given(lengths=lengths_of, budget=st.integers(64, 500), ranks=st.integers(1, 4))
def test_every_row_is_in_one_micro_batch_within_the_budget(lengths: list[int], budget: int, ranks: int) -> None:
    shares = deal_to_ranks(lengths, ranks)
    planned = [rows for share in shares for rows in plan_micro_batches(lengths, share, budget)]
    assert sorted(row for rows in planned for row in rows) == list(range(len(lengths)))
    for rows in planned:
        assert len(rows) == 1 or len(rows) * max(lengths[row] for row in rows) <= budget
    loads = [sum(lengths[row] for row in share) for share in shares]
    assert max(loads) - min(loads) <= max(lengths)


@given(lengths=lengths_of)
def test_the_plan_costs_no_more_than_one_batch_or_one_each(lengths: list[int]) -> None:
    overhead = 64
    planned = plan_micro_batches(lengths, range(len(lengths)), 10**6, overhead)
    cost = sum(len(rows) * max(lengths[row] for row in rows) + overhead for rows in planned)
    assert cost <= len(lengths) * max(lengths) + overhead
    by_length = {length: lengths.count(length) for length in lengths}
    assert cost <= sum(length * count + overhead for length, count in by_length.items())


def test_a_mask_longer_than_the_tokens_is_refused() -> None:
    with pytest.raises(InputError, match=r"loss mask: found 4 entries, expected one a token \(3\)"):
        TrainedSequence(np.zeros(3, dtype=np.int32), np.ones(4, dtype=np.bool_))


def sequences(seed: int, count: int, vocabulary: int) -> list[TrainedSequence]:
    generator = np.random.default_rng(seed)
    result: list[TrainedSequence] = []
    for _ in range(count):
        length = int(generator.integers(2, 20))
        trained = generator.random(length) < 0.5
        trained[-1] = True
        result.append(TrainedSequence(generator.integers(0, vocabulary, length).astype(np.int32), trained))
    return result


@pytest.fixture(scope="module")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> TokenScorer:
    tokenizer = train_tokenizer(["x\n"], 300, tmp_path_factory.mktemp("tokenizer"))
    config = ModelConfig(vocabulary=300, hidden=16, intermediate=32, heads=2, key_value_heads=1, head_dim=8)
    return TokenScorer(new_policy(config, tokenizer).eval())


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), count=st.integers(1, 7))
def test_scores_equal_those_of_each_sequence_alone(scorer: TokenScorer, seed: int, count: int) -> None:
    given_ = sequences(seed, count, scorer.model.config.vocab_size)
    batch = make_micro_batch(given_, list(range(count))[::-1])
    with torch.no_grad():
        log_probs, entropies = score(scorer, batch)
        laid_out = batch.unflatten(log_probs)
        for row, index in enumerate(batch.rows):
            token_ids = torch.from_numpy(given_[index].token_ids.astype(np.int64))[None]
            whole = scorer.model(input_ids=token_ids).logits[0, :-1].log_softmax(-1)
            expected = whole.gather(-1, token_ids[0, 1:, None]).squeeze(-1)[torch.from_numpy(given_[index].trained[1:])]
            torch.testing.assert_close(laid_out[row, : len(expected)], expected, atol=1e-5, rtol=0)
            assert int(batch.mask[row].sum()) == len(expected)
    assert bool((entropies >= 0).all())


def test_the_gradient_of_scores_is_exact() -> None:
    torch.manual_seed(0)
    logits = torch.randn(5, 7, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(0, 7, (5,))

    def plain(values: torch.Tensor) -> torch.Tensor:
        log_probabilities = values.log_softmax(-1)
        entropies = -(log_probabilities.exp() * log_probabilities).sum(-1)
        return (log_probabilities.gather(-1, targets[:, None]).squeeze(-1) * 0.7 + entropies * 0.3).sum()

    (expected,) = torch.autograd.grad(plain(logits), logits)
    log_probs, entropies = token_scores(logits, targets)
    (found,) = torch.autograd.grad((log_probs * 0.7 + entropies * 0.3).sum(), logits)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)


def test_a_weightless_micro_batch_adds_no_gradient(scorer: TokenScorer) -> None:
    batch = make_micro_batch(sequences(0, 2, 100), [0, 1]).weightless()
    log_probs, _ = score(scorer, batch)
    (batch.unflatten(log_probs) * batch.mask).sum().backward()
    assert all(parameter.grad is None or not parameter.grad.any() for parameter in scorer.parameters())


@given(steps=st.integers(1, 200), warmup=st.integers(0, 50), final=st.floats(0, 1))
def test_the_learning_rate_rises_then_falls_to_its_end(steps: int, warmup: int, final: float) -> None:
    rates = [learning_rate(step, steps, 1.0, warmup_steps=warmup, final_fraction=final) for step in range(steps)]
    assert all(0 <= rate <= 1 for rate in rates)
    assert all(later >= earlier for earlier, later in pairwise(rates[:warmup]))
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(rates[warmup:]))
    if steps > warmup + 1:
        assert rates[-1] == pytest.approx(final)


def test_a_path_is_not_needed_to_import_the_settings() -> None:
    """The configuration stays light: it is imported by the command line before anything is decided."""
    import subprocess
    import sys

    code = "import sys, tasks.update.config, tasks.sft.config, tasks.models.config; assert not {'torch', 'ray'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[3])
