"""Memory of one GPU in the update and in generation.

Sources: Rajbhandari et al. 2020 (ZeRO), section 3: weights, gradients and optimizer state, and what each stage divides by
the number of ranks; Korthikanti et al. 2022 (Reducing Activation Recomputation), section 4: activations, with the attention
matrix left out (fused attention never stores it) and counted for gated feed-forwards and grouped heads. What is specific
to this trainer: gradients accumulate in float32; the reference policy is whole on every rank.
"""

from dataclasses import dataclass
from typing import Literal

from flows.capacity.shapes import Shape

GIB = 2**30
CONTEXT_BYTES = 1.5 * GIB
"""CUDA context, NCCL's buffers, library workspaces."""
FRAGMENTATION = 0.08
"""Share of the tensors' memory that the allocator cannot use."""
ADAM_MOMENTS_BYTES = 8
"""Two moments in float32, per weight."""
BUCKET_VALUES = 100_000_000
"""Largest reduce bucket (tasks.training.deepspeed_config); two of them where communication overlaps."""
LIVE_VALUES = 1_000_000_000
"""ZeRO-3 gathers at most so many weights at a time (`stage3_max_live_parameters`)."""
HEAD_SLICE_BYTES = 256 * 2**20
"""Logits above this are computed by slices of the vocabulary (`update.head`)."""
Stage = Literal[0, 1, 2, 3]
STAGES: tuple[Stage, ...] = (0, 1, 2, 3)


@dataclass(frozen=True)
class TrainingJob:
    """What decides the memory of a rank."""

    shape: Shape
    dtype: Literal["float32", "bfloat16"]
    stage: Stage
    ranks: int
    tokens: int
    """Of one micro-batch, or of a rank's share of the longest sequence where that is more."""
    checkpointing: bool
    reference: bool = False
    """A reference policy stands beside the policy."""
    critic: bool = False
    trained: int | None = None
    """Weights that are trained, where adapters are; none: all."""


def training_memory(job: TrainingJob) -> dict[str, float]:
    """Return the bytes of one rank by what they hold, in the order of a reader's interest."""
    weight = 2 if job.dtype == "bfloat16" else 4
    held = job.shape.parameters
    trained = held if job.trained is None else job.trained
    models = 2 if job.critic else 1
    master = 4 if job.dtype == "bfloat16" else 0
    weights = models * held * weight / (job.ranks if job.stage >= 3 else 1)
    gradients = models * trained * 4 / (job.ranks if job.stage >= 2 else 1)
    optimizer = models * trained * (master + ADAM_MOMENTS_BYTES) / (job.ranks if job.stage >= 1 else 1)
    buckets = 2 * min(trained, BUCKET_VALUES) * weight if job.ranks > 1 else 0
    gathered = min(held, LIVE_VALUES) * weight if job.stage >= 3 and job.ranks > 1 else 0
    parts = {
        "weights": float(weights),
        "gradients": float(gradients),
        "optimizer": float(optimizer),
        "reference": float(held * weight if job.reference and job.trained is None else 0),
        "activations": activation_bytes(job.shape, job.tokens, weight, job.checkpointing),
        "logits": logit_bytes(job.shape, job.tokens),
        "communication": float(buckets + gathered),
    }
    parts["allocator"] = FRAGMENTATION * sum(parts.values())
    parts["context"] = CONTEXT_BYTES
    return parts


def checkpoint_bytes(job: TrainingJob) -> tuple[float, float]:
    """Return the bytes of a published checkpoint (tasks.training.checkpoint): its weights; and in float32 the moments of those that are trained,
    with their master copy where they are of less precision."""
    weight, master = (2, 4) if job.dtype == "bfloat16" else (4, 0)
    held = job.shape.parameters
    trained = held if job.trained is None else job.trained
    models = 2.0 if job.critic else 1.0
    return models * held * weight, models * trained * (master + ADAM_MOMENTS_BYTES)


def activation_bytes(shape: Shape, tokens: int, weight: int, checkpointing: bool) -> float:
    """Return the bytes of what the backward pass needs of so many tokens.

    A layer keeps, per token: the inputs of two norms and their outputs (4 hidden), queries, keys and values, the attention's
    output, and of the gated feed-forward the two products, the activation and their product (4 intermediate).
    With checkpointing every layer keeps its input alone, and one layer at a time keeps all.
    """
    attention = (2 * shape.heads + 2 * shape.key_value_heads) * shape.head_dim
    layer = weight * (4 * shape.hidden + attention + 4 * shape.intermediate) * tokens
    if checkpointing:
        return float(layer + shape.layers * weight * shape.hidden * tokens)
    return float(shape.layers * layer)


def logit_bytes(shape: Shape, tokens: int) -> float:
    """Return the bytes of logits in float32, their softmax and their gradient; of a slice of them where they are many."""
    whole = 4.0 * shape.vocabulary * tokens
    return 3.0 * min(whole, float(HEAD_SLICE_BYTES))


def generation_room(shape: Shape, gpu_bytes: float, fraction: float, tensor_parallel: int) -> int:
    """Return the tokens whose keys and values a server holds beside its weights; 0 or less where the weights do not fit.

    `fraction`: share of each GPU that the server takes (`--mem-fraction-static`).
    """
    room = gpu_bytes * fraction * tensor_parallel - 2.0 * shape.parameters
    return int(room / shape.cache_bytes())
