"""Sampling of the next token. Pure functions of logits and uniform numbers.

Each sequence has its own uniform numbers, drawn from its own seed, and a token is found by inverting the cumulative
distribution. The draws of a sequence therefore do not depend on the other sequences of its batch.
"""

import torch

from tasks.rollout.config import SamplingConfig

_BLOCK = 64
"""Tokens per block of a large vocabulary: a draw finds its block first, then sums probabilities within it."""
_BELOW_ONE = 1.0 - 2.0**-53


def uniform_numbers(seeds: list[int], steps: int) -> torch.Tensor:
    """Return float64 uniforms in [0, 1) of shape (sequences, steps), row i from seeds[i] alone."""
    rows: list[torch.Tensor] = []
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        rows.append(torch.rand(steps, generator=generator, dtype=torch.float64))
    return torch.stack(rows)


def draw(logits: torch.Tensor, uniforms: torch.Tensor, sampling: SamplingConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """Return one token per sequence, int64 (B,), and its log-probability at T = 1, float32 (B,), however it was drawn.

    `logits` (B, V) are raw; `uniforms` (B,) float64. Temperature, then top-k, then top-p, as Hugging Face orders them.
    A token of probability 0 is never drawn.
    """
    logits = logits.float()
    if sampling.is_on_policy:
        probabilities = logits.softmax(dim=-1)
        tokens = _inverted(probabilities, uniforms)
        # From the likeliest token's probability: the drawn token's own may be too small for single precision.
        above = logits.gather(1, tokens.unsqueeze(1)).squeeze(1) - logits.amax(dim=-1)
        return tokens, above + probabilities.amax(dim=-1).log()
    logprobs = logits.log_softmax(dim=-1)
    if sampling.temperature == 0:
        tokens = logprobs.argmax(dim=-1)
    else:
        tokens = _inverted(_filtered(logprobs, sampling), uniforms)
    return tokens, logprobs.gather(1, tokens.unsqueeze(1)).squeeze(1)


def _inverted(probabilities: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Return per row the token at which the cumulative probability (B, V) exceeds `uniforms` (B,) times the total."""
    vocabulary = probabilities.shape[1]
    if vocabulary <= 2 * _BLOCK:
        return _located(probabilities, uniforms)[0].squeeze(1)
    whole = vocabulary // _BLOCK * _BLOCK
    sums = probabilities[:, :whole].unflatten(1, (-1, _BLOCK)).sum(dim=-1)
    if whole < vocabulary:
        sums = torch.cat((sums, probabilities[:, whole:].sum(dim=-1, keepdim=True)), dim=1)
    block, beyond = _located(sums, uniforms)
    tokens = block * _BLOCK + torch.arange(_BLOCK, device=block.device)
    inside = probabilities.gather(1, tokens.clamp(max=vocabulary - 1)).masked_fill(tokens >= vocabulary, 0.0)
    share = (1 - beyond / sums.gather(1, block)).clamp(0.0, _BELOW_ONE).squeeze(1)
    return (block * _BLOCK + _located(inside, share)[0]).squeeze(1)


def _located(weights: torch.Tensor, uniforms: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the column of weights (B, N) at each row's share of their sum, (B, 1), and the weight beyond the share."""
    cumulative = weights.cumsum(dim=-1, dtype=torch.float64)
    total = cumulative[:, -1:]
    # u · total may round up to total: stay below it.
    below_total = torch.nextafter(total, torch.zeros_like(total))
    target = torch.minimum(uniforms.to(total.device).unsqueeze(1) * total, below_total)
    column = torch.searchsorted(cumulative, target, right=True)
    return column, cumulative.gather(1, column) - target


def _filtered(logprobs: torch.Tensor, sampling: SamplingConfig) -> torch.Tensor:
    """Return unnormalised probabilities (B, V) after temperature, top-k and top-p."""
    if sampling.temperature != 1:
        logprobs = (logprobs / sampling.temperature).log_softmax(dim=-1)
    if 0 < sampling.top_k < logprobs.shape[-1]:
        smallest = logprobs.topk(sampling.top_k, dim=-1).values[:, -1:]
        logprobs = logprobs.masked_fill(logprobs < smallest, -torch.inf)
    probabilities = logprobs.exp()
    if sampling.top_p < 1:
        ordered, order = probabilities.sort(dim=-1, descending=True)
        before = ordered.cumsum(dim=-1) - ordered
        # A token stays while likelier tokens hold less than top_p of the mass: the likeliest always stays.
        dropped = before >= sampling.top_p * ordered.sum(dim=-1, keepdim=True)
        probabilities = probabilities.masked_fill(dropped.scatter(1, order, dropped), 0.0)
    return probabilities
