"""Drawing the next token. Pure functions of logits and uniform numbers.

Each sequence brings its own uniform numbers, drawn from its own seed, and a token is found by inverting the cumulative
distribution. So the draws of a sequence do not depend on which others share its batch, or on which have finished.
"""

import torch

from tasks.rollout.config import SamplingConfig


def uniform_numbers(seeds: list[int], steps: int) -> torch.Tensor:
    """Return float64 uniforms in [0, 1) of shape (sequences, steps), row i from seeds[i] alone."""
    rows: list[torch.Tensor] = []
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        rows.append(torch.rand(steps, generator=generator, dtype=torch.float64))
    return torch.stack(rows)


def draw(logprobs: torch.Tensor, uniforms: torch.Tensor, sampling: SamplingConfig) -> torch.Tensor:
    """Return one token per sequence, int64 of shape (B,).

    `logprobs` (B, V) float32 is the T = 1 log-softmax; `uniforms` (B,) float64. Temperature, then top-k, then top-p, as
    Hugging Face orders them. A token of probability 0 is never drawn.
    """
    if sampling.temperature == 0:
        return logprobs.argmax(dim=-1)
    probabilities = _filtered(logprobs, sampling)
    cumulative = probabilities.cumsum(dim=-1, dtype=torch.float64)
    total = cumulative[:, -1:]
    # The first token whose cumulative probability exceeds u · total. u · total may round up to total: stay below it.
    below_total = torch.nextafter(total, torch.zeros_like(total))
    target = torch.minimum(uniforms.to(total.device).unsqueeze(1) * total, below_total)
    return torch.searchsorted(cumulative, target, right=True).squeeze(1)


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
        # A token stays while what is likelier does not yet hold top_p of the mass: the likeliest always stays.
        dropped = before >= sampling.top_p * ordered.sum(dim=-1, keepdim=True)
        probabilities = probabilities.masked_fill(dropped.scatter(1, order, dropped), 0.0)
    return probabilities
