"""Loss and gradients of an optimizer step are those of its sequences, whatever way these become micro-batches.

Compared with an independent computation in float64, one sequence at a time, from whole logits. What real processes
and ZeRO's stages add is in tests/integration/update/test_ranks_and_stages.py.
"""

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from tasks.training.attention import use_packed_attention
from tasks.training.batches import TrainedSequence
from tasks.training.config import LoraConfig
from tasks.training.layout import Layout, Packing, part_of
from tasks.training.scoring import TokenScorer, score
from tasks.update.config import UpdateConfig
from tasks.update.objective import Targets, objective

CONFIG = UpdateConfig(kl_coefficient=0.05, entropy_coefficient=0.01, kl_estimator="k3_k2")
VOCABULARY = 61
LENGTHS = ((3, 9), (3, 2), (5, 17), (5, 1), (2, 30), (4, 6), (7, 7))
"""Prompt and response tokens."""


def new_model() -> PreTrainedModel:
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=VOCABULARY,
            hidden_size=24,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            tie_word_embeddings=True,
            attn_implementation="sdpa",
        )
    )
    with (
        torch.no_grad()
    ):  # as drawn, all tokens are about equally likely: gradients would be small and nothing would be clipped
        for parameter in model.parameters():
            parameter.mul_(4 if parameter.dim() > 1 else 1)
    return model


class Batch:
    """Sequences with what the loss compares with; prompts begin alike, but for one, and two are equal.

    Old log-probabilities are the policy's with noise, so that some are clipped.
    """

    def __init__(self) -> None:
        random = np.random.default_rng(0)
        self.sequences = [
            TrainedSequence(
                random.integers(0, VOCABULARY, prompt + response).astype(np.int32),
                np.arange(prompt + response) >= prompt,
            )
            for prompt, response in LENGTHS
        ]
        stem = random.integers(0, VOCABULARY, max(prompt for prompt, _ in LENGTHS))
        for number, (sequence, (prompt, _)) in enumerate(zip(self.sequences, LENGTHS, strict=True)):
            sequence.token_ids[:prompt] = stem[:prompt]
            sequence.token_ids[2 if number == 2 else 0] = 1
        model = new_model().double()
        with torch.no_grad():
            own = [log_probs(model, sequence)[0].float() for sequence in self.sequences]
        generator = torch.Generator().manual_seed(0)
        self.old = [row + 0.3 * torch.randn(len(row), generator=generator) for row in own]
        self.reference = [row + 0.3 * torch.randn(len(row), generator=generator) for row in own]
        self.advantages = [torch.randn(1, generator=generator).expand(len(row)) for row in own]
        self.tokens = float(sum(map(len, own)))


def log_probs(model: PreTrainedModel, sequence: TrainedSequence) -> tuple[Tensor, Tensor]:
    """Return log-probabilities [R] and entropies [R] of one sequence, from whole logits."""
    token_ids = torch.from_numpy(sequence.token_ids.astype(np.int64))[None]
    scores = model(input_ids=token_ids).logits[0, :-1].log_softmax(-1)[torch.from_numpy(sequence.trained[1:])]
    targets = token_ids[0, 1:][torch.from_numpy(sequence.trained[1:])]
    return scores.gather(-1, targets[:, None]).squeeze(-1), -(scores.exp() * scores).sum(-1)


def expected(batch: Batch) -> tuple[float, dict[str, Tensor]]:
    """Loss and gradients in float64: dual-clipped PPO, KL with the gradient of k2, entropy bonus; means over all tokens."""
    model = new_model().double()
    loss = torch.zeros((), dtype=torch.float64)
    for sequence, old, reference, advantage in zip(
        batch.sequences, batch.old, batch.reference, batch.advantages, strict=True
    ):
        new, entropy = log_probs(model, sequence)
        ratio = (new - old.double()).exp()
        surrogate = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.28) * advantage)
        surrogate = torch.where(advantage < 0, torch.maximum(surrogate, 3.0 * advantage), surrogate)
        apart = new - reference.double()
        kl = 0.5 * apart**2 + ((-apart).exp() - 1 + apart - 0.5 * apart**2).detach()
        loss = loss + (-surrogate + 0.05 * kl - 0.01 * entropy).sum() / batch.tokens
    loss.backward()
    return loss.item(), {name: parameter.grad for name, parameter in model.named_parameters()}  # pyright: ignore[reportReturnType]


@pytest.fixture(scope="module")
def batch() -> Batch:
    return Batch()


@pytest.fixture(scope="module")
def exact(batch: Batch) -> tuple[float, dict[str, Tensor]]:
    return expected(batch)


@pytest.fixture(scope="module")
def models() -> dict[bool, PreTrainedModel]:
    packed = new_model()
    use_packed_attention(packed)
    return {False: new_model(), True: packed}


@settings(max_examples=10, deadline=None)
@given(
    budget=st.sampled_from([1, 20, 60, 200]),
    ranks=st.sampled_from([1, 2, 3, 4]),
    packing=st.sampled_from(["packed", "padded", "shared"]),
    multiple=st.sampled_from([1, 8]),
    chunked=st.booleans(),
    order=st.permutations(range(len(LENGTHS))),
)
def test_neither_split_nor_ranks_nor_order_nor_packing_matter(
    batch: Batch,
    exact: tuple[float, dict[str, Tensor]],
    models: dict[bool, PreTrainedModel],
    budget: int,
    ranks: int,
    packing: Packing,
    multiple: int,
    chunked: bool,
    order: list[int],
) -> None:
    scorer = TokenScorer(models[packing != "padded"], "chunked" if chunked else "plain")
    scorer.zero_grad()
    layout = Layout(budget, packing, multiple)
    sequences = [batch.sequences[place] for place in order]
    found: Counter[str] = Counter()
    for plan in layout.plans(sequences, ranks):
        for part in plan:
            micro = layout.make(sequences, part)

            def laid_out(tensors: list[Tensor], micro: Any = micro) -> Tensor:
                return micro.unflatten(torch.cat([tensors[order[row]] for row in micro.rows]))

            targets = Targets(laid_out(batch.old), None, laid_out(batch.advantages), laid_out(batch.reference))
            loss, sums = objective(micro, *score(scorer, micro), targets, CONFIG, batch.tokens)
            loss.backward()
            found.update({name: value.item() for name, value in sums.items()})
    loss, gradients = exact
    assert found["loss"] == pytest.approx(loss, abs=1e-6)
    assert found["tokens"] == batch.tokens
    assert found["clipped"] > 0
    for name, parameter in scorer.model.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad.double(), gradients[name], atol=1e-6, rtol=1e-6, msg=name)


def test_adapters_off_are_the_base_to_the_bit_and_adapters_on_are_not(batch: Batch) -> None:
    from tasks.training.lora import adapters_off, add_adapters

    base, adapted = new_model(), new_model()
    add_adapters(adapted, LoraConfig(rank=3))
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter)
    micro = Layout(1000).make(batch.sequences, part_of(range(len(LENGTHS))))
    plain, with_adapters = TokenScorer(base), TokenScorer(adapted)
    loss_of = [score(plain, micro)[0]]
    with adapters_off(adapted):
        loss_of.append(score(with_adapters, micro)[0])
    assert torch.equal(*loss_of)
    assert float((score(with_adapters, micro)[0] - loss_of[0]).detach().abs().max()) > 0.1
