"""A mixture of experts is scored and differentiated as transformers alone does, in every layout; what it cannot do is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from kernels_eval.errors import InputError
from tasks.models.policy import load_policy
from tasks.training.attention import use_packed_attention
from tasks.training.batches import TrainedSequence, make_micro_batch, make_packed_batch
from tasks.training.config import LoraConfig, check_adapters
from tasks.training.engine import step_flops
from tasks.training.lora import add_adapters, merged_state
from tasks.training.scoring import TokenScorer, score

LENGTHS = ((3, 9), (5, 17), (2, 30), (4, 6), (5, 1))
SEQUENCES = [
    TrainedSequence(
        np.random.default_rng(place).integers(0, 300, prompt + answer).astype(np.int32),
        np.arange(prompt + answer) >= prompt,
    )
    for place, (prompt, answer) in enumerate(LENGTHS)
]
ADVANTAGES = (0.7, -1.3, 0.2, -0.4, 1.1)
TRAINED = sum(answer for _, answer in LENGTHS)
Found = tuple[Tensor, dict[str, Tensor]]


def expected(folder: Path) -> Found:
    """Log-probabilities and gradients of the policy-gradient loss in float64, one sequence at a time."""
    model = AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation="eager", experts_implementation="eager", dtype=torch.float64
    )
    log_probs: list[Tensor] = []
    for sequence, advantage in zip(SEQUENCES, ADVANTAGES, strict=True):
        ids = torch.tensor(sequence.token_ids, dtype=torch.int64)
        scores = model(ids[None]).logits[0, :-1].log_softmax(-1).gather(-1, ids[1:, None])[:, 0]
        log_probs.append(scores[torch.tensor(sequence.trained[1:])])
        (-advantage * log_probs[-1].sum() / TRAINED).backward()
    return torch.cat(log_probs).detach(), gradients(model)


def gradients(model: Any) -> dict[str, Tensor]:
    return {name: weight.grad for name, weight in model.named_parameters()}


@pytest.mark.parametrize("layout", ["padded", "packed"])
@pytest.mark.parametrize("head", ["plain", "chunked"])
@pytest.mark.parametrize("checkpointing", [False, True], ids=["kept", "recomputed"])
def test_scores_and_gradients_are_those_of_transformers_alone(
    tmp_path: Path, save_experts: Callable[..., None], layout: str, head: Any, checkpointing: bool
) -> None:
    save_experts(tmp_path / "policy")
    model = load_policy(tmp_path / "policy").train()
    if layout == "packed":
        use_packed_attention(model)
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    make = make_packed_batch if layout == "packed" else make_micro_batch
    batch = make(SEQUENCES, range(len(SEQUENCES)))
    log_probs, _ = score(TokenScorer(model, head), batch)
    weights = torch.cat([torch.full((count,), value) for (_, count), value in zip(LENGTHS, ADVANTAGES, strict=True)])
    (-(weights * log_probs).sum() / TRAINED).backward()
    known, of_known = expected(tmp_path / "policy")
    assert float((log_probs.detach() - known).abs().max()) < 2e-6
    found = gradients(model)
    assert found.keys() == of_known.keys()
    for name, gradient in of_known.items():
        assert float((found[name] - gradient).norm() / gradient.norm()) < 3e-6, name
    assert any(name.endswith("mlp.gate.weight") for name in found)  # the router learns


def test_an_auxiliary_loss_of_the_router_is_off(tmp_path: Path, save_experts: Callable[..., None]) -> None:
    save_experts(tmp_path / "policy", output_router_logits=True, router_aux_loss_coef=10.0)
    model = load_policy(tmp_path / "policy")
    assert model(torch.tensor([[5, 6, 7]])).aux_loss is None


def test_operations_are_those_of_the_experts_that_a_token_passes_through(
    tmp_path: Path, save_experts: Callable[..., None]
) -> None:
    save_experts(tmp_path / "policy")
    model = load_policy(tmp_path / "policy")
    attention = 32 * 16 * (4 + 2 + 2 + 4) + 2 * 16 + 2 * 32
    body = 3 * attention + 3 * 32 * 64 + 2 * (8 * 32 + 2 * 3 * 32 * 24) + 32
    assert step_flops(model, [10], 0) == 6 * body * 10 + 6 * 3 * 64 * 100


def test_adapters_of_the_attention_merge_and_others_are_refused(
    tmp_path: Path, save_experts: Callable[..., None]
) -> None:
    save_experts(tmp_path / "policy")
    names = set(load_policy(tmp_path / "policy").state_dict())
    allowed = LoraConfig(rank=2, targets=("q_proj", "k_proj", "v_proj", "o_proj"))
    check_adapters(allowed, 8)
    check_adapters(LoraConfig(), 0)
    check_adapters(None, 8)
    model = load_policy(tmp_path / "policy")
    add_adapters(model, allowed)
    assert set(merged_state(model)) == names
    with pytest.raises(InputError, match=r"update.lora.targets: found all-linear for a model with 8 experts, expected"):
        check_adapters(LoraConfig(), 8)
    with pytest.raises(
        InputError, match=r"found down_proj, gate for a model with 8 experts, expected names among q_proj"
    ):
        check_adapters(LoraConfig(targets=("q_proj", "gate", "down_proj")), 8)


def test_a_window_over_all_layers_is_not_packed(tmp_path: Path, save_experts: Callable[..., None]) -> None:
    save_experts(tmp_path / "policy", use_sliding_window=True, sliding_window=8)
    with pytest.raises(InputError, match="attend as sliding_attention"):
        use_packed_attention(load_policy(tmp_path / "policy"))
