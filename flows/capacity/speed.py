"""Tokens a second, from stated assumptions: an estimate to plan with, never shown as a measurement.

Training: 6 operations a weight and token (Kaplan et al. 2020, section 2.1), 2 more where activations are computed again and
2 for each model that only scores, at a share of the peak that training reaches (model FLOP utilisation, Chowdhery et al. 2022,
appendix B). Generation: a decoding step reads the weights once for the whole batch, and each sequence's keys and values
(Pope et al. 2022, section 2.1), at a share of the memory bandwidth.
"""

from dataclasses import dataclass

from flows.capacity.shapes import Shape


@dataclass(frozen=True)
class Gpu:
    """A kind of GPU, from its data sheet."""

    name: str
    memory_gib: float
    """Memory that a program finds free on an empty one."""
    bandwidth: float
    """Bytes a second."""
    flops: float
    """Dense bfloat16 operations a second."""


GPUS = {
    "a100": Gpu("A100 80GB", 79.0, 2.04e12, 312e12),
    "h100": Gpu("H100 80GB", 79.0, 3.35e12, 989e12),
    "h200": Gpu("H200 141GB", 139.0, 4.8e12, 989e12),
    "mi300x": Gpu("MI300X 192GB", 190.0, 5.3e12, 1307e12),
}


@dataclass(frozen=True)
class Assumptions:
    """What the estimates rest on."""

    utilisation: float = 0.35
    """Share of the peak that training reaches (short, uneven sequences; 0.4 to 0.5 is usual for long, even ones)."""
    bandwidth_share: float = 0.6
    """Share of the memory bandwidth that decoding reaches."""
    prompt_tokens: int = 1500
    """Tokens of a problem with its instructions."""
    answer_share: float = 0.5
    """Length of a mean answer as a share of `rollout.sampling.max_new_tokens`."""
    judging_s: float = 1.5
    """Seconds that one worker takes to judge one kernel on a GPU."""


def training_tokens_a_second(
    shape: Shape, gpu: Gpu, ranks: int, assumed: Assumptions, recomputed: bool, scored_by: int, models: int = 1
) -> float:
    """Return tokens that all ranks together train on in a second. `scored_by`: models that score without being trained."""
    body = shape.parameters - shape.embedding
    operations = body * (models * (8.0 if recomputed else 6.0) + 2.0 * scored_by)
    return ranks * gpu.flops * assumed.utilisation / operations


def generated_tokens_a_second(
    shape: Shape, gpu: Gpu, servers: int, tensor_parallel: int, sequences: int, context: float, assumed: Assumptions
) -> float:
    """Return tokens that all servers together generate in a second, `sequences` at a time on each, of mean length `context`."""
    read = 2.0 * shape.parameters + sequences * context * shape.cache_bytes()
    steps = gpu.bandwidth * tensor_parallel * assumed.bandwidth_share / read
    return servers * sequences * steps
