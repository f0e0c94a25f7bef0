"""A policy on disk and in memory: a Hugging Face causal language model with its tokenizer in one folder."""

import json
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from kernels_eval.errors import InputError, first_line
from tasks.models.config import ModelConfig, expert_count
from tasks.models.disk_errors import disk_errors
from tasks.models.weight_files import hashed_weight_files
from tasks.pipeline.json_file import read_json_object

_SHAPE_FIELDS = (
    "model_type",
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "tie_word_embeddings",
)
"""Fields that must be equal for one model's weights and optimizer state to fit another's."""
_EXPERT_FIELDS: dict[str, Any] = {
    "num_experts": None,
    "num_experts_per_tok": None,
    "moe_intermediate_size": None,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
"""Further such fields of a mixture of experts, and what a missing one or null stands for."""


def new_policy(config: ModelConfig, tokenizer: Any, seed: int = 0) -> PreTrainedModel:
    """Return a Qwen3-architecture model of the configured shape with weights drawn from `seed`, on the CPU."""
    shape = Qwen3Config(
        **_shape_of(config),
        vocab_size=len(tokenizer),
        max_position_embeddings=config.max_positions,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    check_dtype(config.dtype)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(shape)
    return _cast(model, config.dtype)


def _shape_of(config: ModelConfig) -> dict[str, Any]:
    """Return the configured shape by the names of Qwen3's configuration."""
    return {
        "hidden_size": config.hidden,
        "intermediate_size": config.intermediate,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.key_value_heads,
        "head_dim": config.head_dim,
    }


def load_policy(path: Path | str, dtype: str = "float32") -> PreTrainedModel:
    """Load a policy's weights; raises InputError if there are none or they do not fit their configuration."""
    check_dtype(dtype)
    model, missing = load_weights(AutoModelForCausalLM, path, dtype, "a Hugging Face causal language model")
    if missing:
        raise InputError(f"{path}: weights are missing or of another shape: {', '.join(missing[:3])}")
    return model


def load_weights(
    loader: Any, path: Path | str, dtype: str, expected: str, **changes: Any
) -> tuple[PreTrainedModel, list[str]]:
    """Return a model and the names of its weights that are missing in the folder, or stored in another shape.

    `loader`: one of the `AutoModel…` classes; `changes`: fields of the model's configuration. Raises InputError.
    """
    try:
        config: Any = AutoConfig.from_pretrained(str(path))
        if getattr(config, "output_router_logits", False):
            # No loss here has the router's auxiliary term; transformers would compute it in every forward pass, and
            # fails at the embedded engine's masks.
            config.output_router_logits = False
        for name, value in changes.items():
            setattr(config, name, value)
        model, report = loader.from_pretrained(
            str(path),
            config=config,
            dtype=getattr(torch, dtype),
            attn_implementation="sdpa",
            use_safetensors=True,  # other formats can hold code
            output_loading_info=True,
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(f"{path}: expected {expected}: {first_line(error)}") from error
    return model, sorted(report["missing_keys"]) + sorted(str(key) for key in report["mismatched_keys"])


def save_policy(
    model: PreTrainedModel, tokenizer: Any, path: Path, state: dict[str, torch.Tensor] | None = None
) -> None:
    """Write the model (safetensors) and its tokenizer, if any, into one folder that `AutoModelForCausalLM` loads.

    `state`: weights to write instead of the model's own. They are hashed meanwhile (tasks.pipeline.digests). Raises
    OSError if the disk is full.
    """
    path.mkdir(parents=True, exist_ok=True)
    with disk_errors(path), hashed_weight_files():
        model.save_pretrained(str(path), state_dict=state)
        if tokenizer is not None:
            tokenizer.save_pretrained(str(path))


def architecture_of(path: Path) -> dict[str, Any]:
    """Return the fields of `config.json` that decide the weights' shapes; raises InputError if it is missing."""
    file = path / "config.json"
    if not file.exists():
        raise InputError(f"{file}: expected the configuration of a Hugging Face model, found no file")
    stored = read_json_object(file)
    found = {field: stored.get(field) for field in _SHAPE_FIELDS}
    if not (experts := expert_count(stored)):
        return found
    of_experts = {field: stored.get(field) or default for field, default in _EXPERT_FIELDS.items()}
    return found | of_experts | {"num_experts": experts}


def attention_kinds(config: Any) -> set[str]:
    """Return the kinds of attention of a model's layers, by transformers' names, from its configuration."""
    kinds = getattr(config, "layer_types", None)
    if kinds is None and getattr(config, "sliding_window", None):
        return {"sliding_attention"}  # Mistral and Qwen3-MoE have a window for all layers, and no list of kinds
    return set(kinds or ["full_attention"])


def dtype_of(path: Path) -> str:
    """Return the type of a policy's weights as given by its configuration, e.g. `float32`."""
    architecture_of(path)
    stored = json.loads((path / "config.json").read_text(encoding="utf-8"))
    return str(stored.get("dtype") or stored.get("torch_dtype") or "float32")


def check_architecture(checkpoint: Path, config: ModelConfig) -> None:
    """Raise InputError if a checkpoint is not of the configured shape, or that of the pretrained folder.

    A hub name is let through. The configured vocabulary is an upper limit: a small corpus gives fewer tokens.
    """
    found = architecture_of(checkpoint)
    if config.pretrained is not None:
        if Path(config.pretrained).is_dir():
            check_same_architecture(checkpoint, Path(config.pretrained))
        return
    expected = {"model_type": "qwen3", **_shape_of(config)}
    _compare(checkpoint, {name: found[name] for name in expected}, expected, "model settings")
    if found["vocab_size"] > config.vocabulary:
        raise InputError(
            f"{checkpoint}: vocab_size: found {found['vocab_size']}, "
            f"expected at most {config.vocabulary} (model.vocabulary)"
        )


def check_same_architecture(checkpoint: Path, other: Path) -> None:
    """Raise InputError if the weights of two checkpoints have different shapes."""
    _compare(checkpoint, architecture_of(checkpoint), architecture_of(other), str(other))


def check_dtype(dtype: str) -> None:
    """Raise InputError for bfloat16 if this machine has neither a GPU nor a CPU with its instructions."""
    if dtype != "bfloat16" or torch.cuda.is_available():
        return
    if not _cpu_has_bfloat16():
        raise InputError(
            "model.dtype: bfloat16 on this CPU, which lacks its instructions, runs at about 1/200 of float32's speed; "
            "set float32"
        )


def _cpu_has_bfloat16() -> bool:
    # The public `get_cpu_capability` says AVX512 of CPUs with and without bf16 arithmetic; the kernel's list does not.
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    except OSError:
        return False
    return any(flag in flags for flag in ("avx512_bf16", "amx_bf16", "bf16"))


def _cast(model: PreTrainedModel, dtype: str) -> PreTrainedModel:
    """Cast the weights, not the buffers: RoPE's inverse frequencies stay in float32."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(getattr(torch, dtype))
    model.config.dtype = getattr(torch, dtype)
    return model


def _compare(checkpoint: Path, found: dict[str, Any], expected: dict[str, Any], source: str) -> None:
    wrong = [name for name in expected if found.get(name) != expected[name]]
    if wrong:
        listed = "; ".join(f"{name}: found {found.get(name)}, expected {expected[name]}" for name in wrong)
        raise InputError(f"{checkpoint}: a checkpoint of another architecture than {source}: {listed}")
