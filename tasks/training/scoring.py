"""Log-probabilities of trained tokens, and the entropy of the distribution at each, from a causal language model.

The module that the DeepSpeed engine wraps. The head runs on the N positions that predict a trained token only.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from kernels_eval.errors import InputError
from tasks.training.batches import MicroBatch
from tasks.training.head import HeadMode, ScoringHead, token_scores
from tasks.training.sequence_parallel import ALONE, SequenceGroup

__all__ = ["TokenScorer", "hidden_states", "score", "token_scores"]

_LOGIT_CHANGES = ("final_logit_softcapping", "logit_scale", "logits_scaling")
"""Settings of architectures that change logits behind the head, which is not called here."""


class TokenScorer(nn.Module):
    """A language model that, given a micro-batch, returns (log_probs [N], entropies [N]) in float32."""

    def __init__(self, model: PreTrainedModel, head: HeadMode = "auto") -> None:
        super().__init__()
        changed = [name for name in _LOGIT_CHANGES if getattr(model.config, name, None) not in (None, 1, 1.0)]
        if changed:
            raise InputError(f"policy: {changed[0]}: found {getattr(model.config, changed[0])}, expected plain logits")
        self.model = model
        self.head = ScoringHead(model.get_output_embeddings(), head)  # pyright: ignore[reportArgumentType]

    def forward(
        self,
        token_ids: Tensor,
        positions: Tensor,
        targets: Tensor,
        position_ids: Tensor | None = None,
        boundaries: Tensor | None = None,
        longest: int = 0,
    ) -> tuple[Tensor, Tensor]:
        """The tensors of a MicroBatch by their names there. Both results carry gradients."""
        hidden = hidden_states(self.model, token_ids, position_ids, boundaries, longest)
        return self.head(hidden.reshape(-1, hidden.shape[-1]).index_select(0, positions), targets)


def hidden_states(
    model: PreTrainedModel, token_ids: Tensor, position_ids: Tensor | None, boundaries: Tensor | None, longest: int
) -> Tensor:
    """Return the last hidden states [n, L, H] of padded, or [1, T, H] of packed sequences."""
    body: Any = model.base_model
    packing: dict[str, Any] = {}
    if boundaries is not None:
        packing = {
            "position_ids": position_ids,
            "cu_seq_lens_q": boundaries,
            "cu_seq_lens_k": boundaries,
            "max_length_q": longest,
            "max_length_k": longest,
        }
    return body(input_ids=token_ids, use_cache=False, **packing).last_hidden_state


def score(scorer: nn.Module, batch: MicroBatch, group: SequenceGroup = ALONE) -> tuple[Tensor, Tensor]:
    """Return (log_probs [N], entropies [N]) of a micro-batch, which the ranks of a group score together."""
    part, own = group.own_part(batch)
    scores = scorer(part.token_ids, part.positions, part.targets, part.position_ids, part.boundaries, part.longest)
    log_probs, entropies = group.gather(torch.stack(scores), own, batch.targets.numel())
    return log_probs, entropies
