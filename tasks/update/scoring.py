"""Log-probabilities of trained tokens, and the entropy of the distribution at each, from a causal language model.

The module that the DeepSpeed engine wraps. The head runs on the N positions that predict a trained token only.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from tasks.update.batches import MicroBatch


class TokenScorer(nn.Module):
    """A language model that, given a micro-batch, returns (log_probs [N], entropies [N]) in float32."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, token_ids: Tensor, positions: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """token_ids [n, L], positions [N] into [n × L], targets [N]. Both results carry gradients."""
        body: Any = self.model.base_model
        head: Any = self.model.get_output_embeddings()
        hidden = body(input_ids=token_ids, use_cache=False).last_hidden_state
        chosen = hidden.reshape(-1, hidden.shape[-1]).index_select(0, positions)
        return token_scores(head(chosen), targets)


def score(scorer: nn.Module, batch: MicroBatch) -> tuple[Tensor, Tensor]:
    """Return (log_probs [N], entropies [N]) of a micro-batch."""
    return scorer(batch.token_ids, batch.positions, batch.targets)


def token_scores(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """logits [N, V], targets [N] -> (log-probability of each target [N], entropy of each distribution [N])."""
    return _TokenScores.apply(logits, targets)  # pyright: ignore[reportReturnType]


class _TokenScores(torch.autograd.Function):
    """One softmax for both results, and one [N, V] tensor kept for the backward pass."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        log_probabilities = torch.log_softmax(logits.float(), dim=-1)
        entropies = -(log_probabilities.exp() * log_probabilities).sum(-1)
        ctx.save_for_backward(log_probabilities, targets, entropies)
        ctx.logits_dtype = logits.dtype
        ctx.set_materialize_grads(False)
        return log_probabilities.gather(-1, targets[:, None]).squeeze(-1), entropies

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, None]:
        log_probabilities, targets, entropies = ctx.saved_tensors
        of_log_probs, of_entropies = gradients
        probabilities = log_probabilities.exp()
        result = torch.zeros_like(probabilities) if of_log_probs is None else probabilities * -of_log_probs[:, None]
        if of_entropies is not None:
            result -= of_entropies[:, None] * probabilities * (log_probabilities + entropies[:, None])
        if of_log_probs is not None:
            result.scatter_add_(-1, targets[:, None], of_log_probs[:, None])
        return result.to(ctx.logits_dtype), None
