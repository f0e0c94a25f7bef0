"""Sizes of a model, and the memory that it takes on one GPU in the update and in generation.

Sizes are read from a model's config.json, from a table of well-known models, or from the run's own settings.
Sources: Rajbhandari et al. 2020 (ZeRO), section 3: weights, gradients and optimizer state, and the part that each stage
divides by the number of ranks; Korthikanti et al. 2022 (Reducing Activation Recomputation), section 4: activations,
without the attention matrix (fused attention never stores it), counted for gated feed-forwards and grouped heads.
Specific to this trainer: gradients accumulate in float32; the reference policy is whole on every rank.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kernels_eval.errors import InputError
from tasks.models.config import COMPANIONS, ModelConfig, expert_count
from tasks.pipeline.json_file import read_json_object

GIB = 2**30
CONTEXT_BYTES = 1.5 * GIB
"""CUDA context, NCCL's buffers, library workspaces."""
FRAGMENTATION = 0.08
"""Share of the tensors' memory that the allocator cannot use."""
ADAM_MOMENTS_BYTES = 8
"""Per weight: two moments in float32."""
BUCKET_VALUES = 100_000_000
"""Largest reduce bucket (tasks.training.deepspeed_config); two of them if communication overlaps."""
LIVE_VALUES = 1_000_000_000
"""Most weights that ZeRO-3 gathers at a time (`stage3_max_live_parameters`)."""
HEAD_SLICE_BYTES = 256 * 2**20
"""Logits larger than this are computed in slices of the vocabulary (`update.head`)."""
Stage = Literal[0, 1, 2, 3]
STAGES: tuple[Stage, ...] = (0, 1, 2, 3)


@dataclass(frozen=True)
class Shape:
    """Sizes of a decoder of the Llama or Qwen family: grouped-query attention, gated feed-forward, RMS norms.

    Of Qwen3's mixture of experts: `expert_layers` of the layers have a router and experts for a feed-forward.
    """

    layers: int
    hidden: int
    intermediate: int
    heads: int
    key_value_heads: int
    head_dim: int
    vocabulary: int
    tied: bool = False
    """Output head and embedding share their weights."""
    query_key_norm: bool = False
    attention_bias: bool = False
    """Queries, keys and values have biases, and so has the attention's output in Qwen3."""
    experts: int = 0
    """Experts of a layer. 0: all layers are dense."""
    experts_per_token: int = 0
    expert_intermediate: int = 0
    expert_layers: int = 0

    @property
    def parameters(self) -> int:
        """Number of weights."""
        return round(self._with_experts(self.experts))

    @property
    def active_parameters(self) -> int:
        """Number of weights that one token passes through; the embedding counts whole."""
        return round(self._with_experts(self.experts_per_token))

    def read_parameters(self, tokens: float) -> float:
        """Return the number of weights that a batch of this many tokens reads, if routers choose evenly.

        Of a layer's E experts a batch of n tokens with k experts each needs E · (1 − (1 − k/E)^n).
        """
        if not self.experts:
            return float(self.parameters)
        return self._with_experts(self.experts * (1 - (1 - self.experts_per_token / self.experts) ** tokens))

    def _with_experts(self, experts: float) -> float:
        """Return the number of weights with so many experts a layer, beside a router of all."""
        width, shared = self.heads * self.head_dim, self.key_value_heads * self.head_dim
        attention = 2 * self.hidden * width + 2 * self.hidden * shared
        norms = 2 * self.hidden + (2 * self.head_dim if self.query_key_norm else 0)
        biases = width + 2 * shared + (self.hidden if self.query_key_norm else 0) if self.attention_bias else 0
        of_experts = self.hidden * (self.experts + 3.0 * self.expert_intermediate * experts)
        dense = (self.layers - self.expert_layers) * 3 * self.hidden * self.intermediate
        layers = self.layers * (attention + norms + biases) + dense + self.expert_layers * of_experts
        return layers + self.hidden + self.embedding * (1 if self.tied else 2)

    @property
    def embedding(self) -> int:
        """Weights of the embedding."""
        return self.vocabulary * self.hidden

    def cache_bytes(self) -> int:
        """Return the bytes of one token's keys and values in the cache, in 16 bits."""
        return 2 * 2 * self.layers * self.key_value_heads * self.head_dim


_QWEN3_30B = Shape(
    48, 2048, 6144, 32, 4, 128, 151936, query_key_norm=True,
    experts=128, experts_per_token=8, expert_intermediate=768, expert_layers=48,
)  # fmt: skip
KNOWN = {
    "Qwen/Qwen3-8B": Shape(36, 4096, 12288, 32, 8, 128, 151936, query_key_norm=True),
    "Qwen/Qwen2.5-Coder-7B-Instruct": Shape(28, 3584, 18944, 28, 4, 128, 152064, attention_bias=True),
    "HuggingFaceTB/SmolLM2-135M-Instruct": Shape(30, 576, 1536, 9, 3, 64, 49152, tied=True),
    "facebook/KernelLLM": Shape(32, 4096, 14336, 32, 8, 128, 128256),
    "Qwen/Qwen3-30B-A3B": _QWEN3_30B,
    "Qwen/Qwen3-Coder-30B-A3B-Instruct": _QWEN3_30B,  # another `intermediate_size`, which no layer has
}
"""By hub name; from each model's published config.json. A folder that is not here yet is known by its name alone."""
_KNOWN_FOLDERS = {name.rpartition("/")[2]: name for name in KNOWN}


def shape_of(model: ModelConfig) -> Shape:
    """Return the sizes of the configured model. Raises InputError if they are not known."""
    if model.pretrained is None:
        return Shape(
            model.layers,
            model.hidden,
            model.intermediate,
            model.heads,
            model.key_value_heads,
            model.head_dim,
            model.vocabulary,
            tied=True,
            query_key_norm=True,
        )
    file = _folder_of(model, model.pretrained) / "config.json"
    if file.is_file():
        return _from_file(file)
    if file.parent.name in _KNOWN_FOLDERS:
        return KNOWN[_KNOWN_FOLDERS[file.parent.name]]
    raise InputError(
        f"model.pretrained: the sizes of {model.pretrained} are not known: expected a folder with config.json, "
        f"or one of {', '.join(sorted(KNOWN))}, by their names alone too"
    )


def taken_for(model: ModelConfig) -> str | None:
    """Return the hub name of the model whose sizes stand for a folder that is not here; None where none do."""
    if model.pretrained is None or model.pretrained in KNOWN:
        return None
    folder = _folder_of(model, model.pretrained)
    return None if (folder / "config.json").is_file() else _KNOWN_FOLDERS.get(folder.name)


def _folder_of(model: ModelConfig, pretrained: str) -> Path:
    return Path(pretrained) if model.megatron is None else Path(model.like or model.megatron / COMPANIONS)


def _from_file(file: Path) -> Shape:
    stored = read_json_object(file)
    try:
        heads = int(stored["num_attention_heads"])
        hidden = int(stored["hidden_size"])
        kind = str(stored.get("model_type", ""))
        return Shape(
            layers=int(stored["num_hidden_layers"]),
            hidden=hidden,
            intermediate=int(stored["intermediate_size"]),
            heads=heads,
            key_value_heads=int(stored.get("num_key_value_heads") or heads),
            head_dim=int(stored.get("head_dim") or hidden // heads),
            vocabulary=int(stored["vocab_size"]),
            tied=bool(stored.get("tie_word_embeddings", False)),
            query_key_norm=kind.startswith("qwen3"),
            attention_bias=bool(stored.get("attention_bias", kind == "qwen2")),
            **_expert_sizes(file, stored),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file}: expected the sizes of a decoder: {type(error).__name__}: {error}") from error


def _expert_sizes(file: Path, stored: Mapping[str, Any]) -> dict[str, int]:
    """Return the fields of a Shape that a mixture of experts has; none of a dense model."""
    experts = expert_count(stored)
    if not experts:
        return {}
    if stored.get("model_type") != "qwen3_moe":
        raise InputError(
            f"{file}: model_type: found {stored.get('model_type')} with {experts} experts, expected qwen3_moe: "
            "the sizes of other models with experts are not known"
        )
    step, dense = int(stored.get("decoder_sparse_step") or 1), set(stored.get("mlp_only_layers") or [])
    layers = range(int(stored["num_hidden_layers"]))
    return {
        "experts": experts,
        "experts_per_token": int(stored["num_experts_per_tok"]),
        "expert_intermediate": int(stored["moe_intermediate_size"]),
        "expert_layers": sum(layer not in dense and (layer + 1) % step == 0 for layer in layers),
    }


@dataclass(frozen=True)
class TrainingJob:
    """Parameters that determine the memory of a rank."""

    shape: Shape
    dtype: Literal["float32", "bfloat16"]
    stage: Stage
    ranks: int
    tokens: int
    """Tokens of one micro-batch, or of a rank's share of the longest sequence if that is larger."""
    checkpointing: bool
    reference: bool = False
    """Each rank also holds a reference policy."""
    critic: bool = False
    trained: int | None = None
    """Trained weights, if adapters are trained. None: all."""
    offloaded: float = 0.0
    """Share of the optimizer's state that a DeepSpeed file keeps in host memory."""

    @property
    def trained_parameters(self) -> int:
        """Weights that the optimizer steps on, without a critic's."""
        return self.shape.parameters if self.trained is None else self.trained

    @property
    def stepped_parameters(self) -> int:
        """Weights that all optimizers step on: a critic trains the whole of its own, beside adapters too."""
        return self.trained_parameters + (self.shape.parameters if self.critic else 0)


def training_memory(job: TrainingJob) -> dict[str, float]:
    """Return the bytes of one rank by purpose, most important first."""
    weight = 2 if job.dtype == "bfloat16" else 4
    held = job.shape.parameters
    weights, optimizer = checkpoint_bytes(job)
    gradients = gradient_bytes(job) * (1 - job.offloaded)
    buckets = 2 * min(job.trained_parameters, BUCKET_VALUES) * weight if job.ranks > 1 else 0
    gathered = min(held, LIVE_VALUES) * weight if job.stage >= 3 and job.ranks > 1 else 0
    parts = {
        "weights": weights / (job.ranks if job.stage >= 3 else 1),
        "gradients": gradients / (job.ranks if job.stage >= 2 else 1),
        "optimizer": optimizer * (1 - job.offloaded) / (job.ranks if job.stage >= 1 else 1),
        "reference": float(held * weight if job.reference and job.trained is None else 0),
        "activations": activation_bytes(job.shape, job.tokens, weight, job.checkpointing),
        "logits": logit_bytes(job.shape, job.tokens),
        "communication": float(buckets + gathered),
    }
    parts["allocator"] = FRAGMENTATION * sum(parts.values())
    parts["context"] = CONTEXT_BYTES
    return parts


def gradient_bytes(job: TrainingJob) -> float:
    """Return the bytes of all gradients, in float32."""
    return 4.0 * job.stepped_parameters


def offloaded_bytes(job: TrainingJob) -> float:
    """Return the bytes of host memory that an offloaded optimizer takes on all ranks together.

    Its share of the state and of the gradients that it steps on; all gradients are accumulated there besides.
    """
    if not job.offloaded:
        return 0.0
    _, optimizer = checkpoint_bytes(job)
    return job.offloaded * (optimizer + gradient_bytes(job)) + gradient_bytes(job)


def checkpoint_bytes(job: TrainingJob) -> tuple[float, float]:
    """Return the bytes of a published checkpoint: weights; Adam's moments and bfloat16's master copy, in float32."""
    weight, master = (2, 4) if job.dtype == "bfloat16" else (4, 0)
    models = 2.0 if job.critic else 1.0
    return models * job.shape.parameters * weight, float(job.stepped_parameters * (master + ADAM_MOMENTS_BYTES))


def activation_bytes(shape: Shape, tokens: int, weight: int, checkpointing: bool) -> float:
    """Return the bytes of the activations that the backward pass needs for this many tokens.

    A layer keeps, per token: inputs and outputs of two norms (4 hidden); queries, keys, values and the attention's
    output; and of the gated feed-forward the two products, the activation and their product (4 intermediate). Each of a
    token's experts keeps those of its own width, and its copies of the input and of the output, weighted or not
    (3 hidden).
    With checkpointing each layer keeps only its input, and one layer at a time keeps everything.
    """
    attention = (2 * shape.heads + 2 * shape.key_value_heads) * shape.head_dim
    around = 4 * shape.hidden + attention
    dense = around + 4 * shape.intermediate
    of_experts = around + shape.experts_per_token * (4 * shape.expert_intermediate + 3 * shape.hidden)
    dense_layers = shape.layers - shape.expert_layers
    if checkpointing:
        largest = max(dense if dense_layers else 0, of_experts if shape.expert_layers else 0)
        return float((largest + shape.layers * shape.hidden) * weight * tokens)
    return float((dense_layers * dense + shape.expert_layers * of_experts) * weight * tokens)


def logit_bytes(shape: Shape, tokens: int) -> float:
    """Return the bytes of logits (float32), softmax and gradient; of one slice of the vocabulary if they are large."""
    whole = 4.0 * shape.vocabulary * tokens
    return 3.0 * min(whole, float(HEAD_SLICE_BYTES))


def served_share(shape: Shape, gpu_bytes: float, fraction: float, tensor_parallel: int, most_tokens: float) -> float:
    """Return the share of each GPU for a server's weights and cache: `fraction`, or less for a cache of `most_tokens`.

    `most_tokens`: SGLang's `--max-total-tokens`; infinite where it is not set.
    """
    limited = 2.0 * shape.parameters + most_tokens * shape.cache_bytes()
    return min(fraction, limited / (gpu_bytes * tensor_parallel))


def generation_room(shape: Shape, gpu_bytes: float, fraction: float, tensor_parallel: int) -> int:
    """Return the tokens that fit beside a server's weights in this fraction of each GPU; 0 or less: they do not fit."""
    room = gpu_bytes * fraction * tensor_parallel - 2.0 * shape.parameters
    return int(room / shape.cache_bytes())
