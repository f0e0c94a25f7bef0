"""Log-probabilities of trained tokens, and the entropies of their distributions, from a causal language model.

`TokenScorer` is the module that the DeepSpeed engine wraps. `token_scores` takes logits. `chunked_token_scores` takes
hidden states and the head's weight and never holds more than a slice of the logits: it walks the vocabulary once for
the softmax's statistics, and once more for gradients. The weight's gradient of a slice is one matrix product over all
tokens, summed in float32 and rounded once. Softmax, entropies and their gradients are float32 whatever the weights are.
"""

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers import PreTrainedModel

from kernels_eval.errors import InputError
from tasks.training.attention import ALONE, SequenceGroup
from tasks.training.batches import MicroBatch
from tasks.training.softmaxes import Softmaxes, Statistics

HeadMode = Literal["auto", "plain", "chunked"]

LOGITS_BYTES = 256 * 2**20
"""Logits (float32) that may exist at once; the width of a slice follows from it."""
_SLICE_MULTIPLE = 128
_LOGIT_CHANGES = ("final_logit_softcapping", "logit_scale", "logits_scaling")
"""Settings of architectures that change logits behind the head, which is not called here."""


class TokenScorer(nn.Module):
    """A language model that returns log-probabilities and entropies of trained tokens, [N] each, in float32."""

    def __init__(self, model: PreTrainedModel, head: HeadMode = "auto") -> None:
        super().__init__()
        changed = [name for name in _LOGIT_CHANGES if getattr(model.config, name, None) not in (None, 1, 1.0)]
        if changed:
            raise InputError(f"policy: {changed[0]}: found {getattr(model.config, changed[0])}, expected plain logits")
        self.model = model
        self.head = ScoringHead(model.get_output_embeddings(), head)  # pyright: ignore[reportArgumentType]

    def forward(self, token_ids: Tensor, positions: Tensor, targets: Tensor, **packing: Any) -> tuple[Tensor, Tensor]:
        """Take the tensors of a MicroBatch by their names there.

        Two tensors, not one: a loss that uses no entropies then has no gradient of them either.
        """
        return self.head(hidden_states(self.model, token_ids, positions, packing), targets)


def hidden_states(model: PreTrainedModel, token_ids: Tensor, positions: Tensor, packing: dict[str, Any]) -> Tensor:
    """Return the last hidden states [N, H] at the positions that predict the trained tokens."""
    body: Any = model.base_model
    hidden: Tensor = body(input_ids=token_ids, use_cache=False, **packing).last_hidden_state
    return hidden.reshape(-1, hidden.shape[-1]).index_select(0, positions)


def score(scorer: nn.Module, batch: MicroBatch, group: SequenceGroup = ALONE) -> Any:
    """Return a scorer's result for a micro-batch, one tensor [N] or several; the ranks of a group share the work."""
    part, own = group.own_part(batch)
    scores = scorer(part.token_ids, part.positions, part.targets, **part.packing)
    total = batch.targets.numel()
    if isinstance(scores, Tensor):
        return group.gather(scores, own, total)
    return tuple(group.gather(values, own, total) for values in scores)


class ScoringHead(nn.Module):
    """A head's weight and bias, as a module: ZeRO-3 gathers weights by module."""

    def __init__(self, head: nn.Module, mode: HeadMode = "auto") -> None:
        super().__init__()
        self.weight: Any = head.weight
        self.bias: Any = getattr(head, "bias", None)
        self.mode = mode

    def forward(self, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """hidden [N, H], targets [N] -> (log_probs [N], entropies [N]) in float32."""
        too_large = hidden.shape[0] * self.weight.shape[0] * 4 > LOGITS_BYTES
        if self.mode == "chunked" or (self.mode == "auto" and too_large):
            return chunked_token_scores(hidden, self.weight, targets, self.bias)
        return token_scores(nn.functional.linear(hidden, self.weight, self.bias), targets)


def token_scores(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """logits [N, V], targets [N] -> (log-probability of each target [N], entropy of each distribution [N])."""
    return _TokenScores.apply(logits, targets)  # pyright: ignore[reportReturnType]


def chunked_token_scores(
    hidden: Tensor, weight: Tensor, targets: Tensor, bias: Tensor | None = None, columns: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return `token_scores(hidden @ weight.T + bias, targets)`, with the same gradients, without its [N, V] tensors.

    hidden [N, H], weight [V, H], targets [N] int64, bias [V]. `columns`: width of a slice of the vocabulary; None:
    from LOGITS_BYTES.
    """
    if columns is None:
        fitting = LOGITS_BYTES // (4 * max(hidden.shape[0], 1))
        columns = max(fitting // _SLICE_MULTIPLE, 8) * _SLICE_MULTIPLE
    return _ChunkedScores.apply(hidden, weight, bias, targets, columns)  # pyright: ignore[reportReturnType]


class _TokenScores(torch.autograd.Function):
    """Scores with one softmax for both results, and one [N, V] tensor kept for the backward pass."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        log_probabilities = torch.log_softmax(logits.float(), dim=-1)
        entropies = -log_probabilities.exp().mul_(log_probabilities).sum(-1)
        ctx.save_for_backward(log_probabilities, targets, entropies)
        ctx.logits_dtype = logits.dtype
        ctx.set_materialize_grads(False)
        return log_probabilities.gather(-1, targets[:, None]).squeeze(-1), entropies

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        log_probabilities, targets, entropies = ctx.saved_tensors
        of_log_probs, of_entropies = gradients
        probabilities = log_probabilities.exp()
        if of_entropies is None and of_log_probs is not None:
            result = probabilities.mul_(-of_log_probs[:, None])
        else:
            result = torch.zeros_like(probabilities) if of_log_probs is None else probabilities * -of_log_probs[:, None]
        if of_entropies is not None:
            result -= of_entropies[:, None] * probabilities * (log_probabilities + entropies[:, None])
        if of_log_probs is not None:
            result.scatter_add_(-1, targets[:, None], of_log_probs[:, None])
        return result.to(ctx.logits_dtype), None


class _ChunkedScores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, columns: int
    ) -> tuple[Tensor, Tensor]:
        rows = hidden.shape[0]
        highest = torch.full((rows,), -torch.inf, dtype=torch.float32, device=hidden.device)
        running = Statistics(highest, *(torch.zeros_like(highest) for _ in range(3)))
        for start in range(0, weight.shape[0], columns):
            logits = _slice_of_logits(hidden, weight, bias, start, columns)
            _accumulate(logits, targets, start, running)
        log_total = running.total.log()
        entropies = log_total - running.weighted / running.total
        ctx.save_for_backward(hidden, weight, bias, targets, highest, log_total, entropies)
        ctx.columns = columns
        return (running.target_logits - highest) - log_total, entropies

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, of_log_probs: Tensor, of_entropies: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
        hidden, weight, bias, targets, highest, log_total, entropies = ctx.saved_tensors
        wants_hidden, wants_weight, wants_bias, *_ = ctx.needs_input_grad
        of_hidden = torch.zeros(hidden.shape, dtype=torch.float32, device=hidden.device) if wants_hidden else None
        of_weight = torch.empty_like(weight) if wants_weight else None
        of_bias = torch.empty_like(bias) if wants_bias else None
        of_scores = (of_log_probs.float().contiguous(), of_entropies.float().contiguous())
        known = Softmaxes(highest, log_total, entropies, *of_scores)
        for start in range(0, weight.shape[0], ctx.columns):
            piece = slice(start, start + ctx.columns)
            logits = _slice_of_logits(hidden, weight, bias, start, ctx.columns)
            gradient = _gradients(logits, targets, start, known, hidden.dtype)
            del logits
            if of_hidden is not None:
                of_hidden += _product(gradient, weight[piece])
            if of_weight is not None:
                torch.mm(gradient.T, hidden, out=of_weight[piece])
            if of_bias is not None:
                of_bias[piece] = gradient.sum(0, dtype=torch.float32)
        return None if of_hidden is None else of_hidden.to(hidden.dtype), of_weight, of_bias, None, None


def _slice_of_logits(hidden: Tensor, weight: Tensor, bias: Tensor | None, start: int, columns: int) -> Tensor:
    logits = _product(hidden, weight[start : start + columns].T)
    return logits if bias is None else logits + bias[start : start + columns].float()


def _product(left: Tensor, right: Tensor) -> Tensor:
    """Matrix product in float32; a GPU multiplies half-precision tensors without rounding the result."""
    if left.is_cuda and left.dtype != torch.float32 and left.shape[0]:
        return torch.mm(left, right, out_dtype=torch.float32)
    return torch.mm(left, right).float()


def _accumulate(logits: Tensor, targets: Tensor, start: int, running: Statistics) -> None:
    """Fold a slice of logits into the running statistics, in place."""
    if logits.is_cuda:
        from tasks.training.head_kernels import accumulate_statistics

        accumulate_statistics(logits, targets, start, running)
        return
    highest, total, weighted, target_logits = running
    new = torch.maximum(highest, logits.amax(dim=-1))
    lowered = torch.where(total > 0, highest - new, 0.0)
    below = logits - new[:, None]
    exponentials = below.exp()
    weighted.add_(total * lowered).mul_(lowered.exp()).add_((exponentials * below).sum(-1))
    total.mul_(lowered.exp()).add_(exponentials.sum(-1))
    highest.copy_(new)
    place = targets - start
    inside = (place >= 0) & (place < logits.shape[1])
    found = logits.gather(-1, place.clamp(0, logits.shape[1] - 1)[:, None]).squeeze(-1)
    target_logits.copy_(torch.where(inside, found, target_logits))


def _gradients(logits: Tensor, targets: Tensor, start: int, known: Softmaxes, dtype: torch.dtype) -> Tensor:
    """Return the gradient of a slice of logits in the dtype that the matrix products take."""
    if logits.is_cuda:
        from tasks.training.head_kernels import logit_gradients

        return logit_gradients(logits, targets, start, known, dtype)
    log_probabilities = logits.sub_(known.highest[:, None]).sub_(known.log_total[:, None])
    probabilities = log_probabilities.exp()
    factor = known.of_log_probs[:, None] + known.of_entropies[:, None] * (log_probabilities + known.entropies[:, None])
    gradient = probabilities.mul_(factor).neg_()
    place = targets - start
    rows = torch.nonzero((place >= 0) & (place < logits.shape[1])).flatten()
    gradient[rows, place[rows]] += known.of_log_probs[rows]
    return gradient.to(dtype)
