"""Megatron's arguments (`args` of a checkpoint) and what they say about the architecture.

Names and meanings are those of megatron.training's command line. They do not tell everything that config.json does;
fields without a counterpart get transformers' defaults.
"""

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from extras.convert.architecture import Architecture, Family
from kernels_eval.errors import InputError

_REFUSED: dict[str, tuple[Any, ...]] = {
    "normalization": ("RMSNorm",),
    "swiglu": (True,),
    "add_bias_linear": (False,),
    "apply_layernorm_1p": (False,),
    "multi_latent_attention": (False,),
    "position_embedding_type": ("rope",),
    "rotary_percent": (1.0,),
    "moe_shared_expert_intermediate_size": (0,),
    "moe_layer_freq": (1,),
    "moe_router_score_function": ("softmax",),
    "mtp_num_layers": (0,),
}
"""Arguments that must have one of these values, if they are given."""


def check_arguments(arguments: Any, where: str) -> None:
    """Raise InputError if a Megatron model differs from Llama, Qwen2.5 and Qwen3 in what its arguments tell."""
    for name, allowed in _REFUSED.items():
        found = getattr(arguments, name, None)
        if found is not None and found not in allowed:
            raise InputError(f"{where}: args.{name}: found {found}, expected {allowed[0]}")


def check_agreement(arguments: Any, architecture: Architecture, where: str) -> None:
    """Raise InputError if arguments and architecture differ in a size; arguments that are missing are not compared."""
    grouped = getattr(arguments, "group_query_attention", None) is not False
    unused = {"group_query_attention"} if grouped else {"group_query_attention", "num_query_groups"}
    if architecture.experts:
        unused.add("ffn_hidden_size")  # of dense layers, which the model does not have
    for name, expected in _sizes(architecture).items():
        found = getattr(arguments, name, None)
        if found is not None and found != expected and name not in unused:
            raise InputError(f"{where}: args.{name}: found {found}, but config.json says {expected}")


def config_from(arguments: Any, vocabulary: int, where: str) -> dict[str, Any]:
    """Return the fields of a config.json; `vocabulary`: rows of the embedding that are tokens.

    Raises InputError if an argument is missing.
    """
    get = _Reader(arguments, where)
    experts = int(get("num_experts", 0) or 0)
    family = _family(arguments, experts, where)
    heads = int(get("num_attention_heads"))
    dtype = "bfloat16" if get("bf16", False) else "float16" if get("fp16", False) else "float32"
    fields: dict[str, Any] = {
        "architectures": [family.class_name],
        "model_type": family.value,
        "hidden_act": "silu",
        "hidden_size": int(get("hidden_size")),
        "intermediate_size": int(get("ffn_hidden_size")),
        "num_hidden_layers": int(get("num_layers")),
        "num_attention_heads": heads,
        "num_key_value_heads": int(get("num_query_groups")) if get("group_query_attention", True) else heads,
        "head_dim": int(get("kv_channels", None) or int(get("hidden_size")) // heads),
        "max_position_embeddings": int(get("max_position_embeddings")),
        "rms_norm_eps": float(get("norm_epsilon")),
        "rope_parameters": _rope(get),
        "tie_word_embeddings": not get("untie_embeddings_and_output_weights"),
        "vocab_size": vocabulary,
        "dtype": dtype,
    }
    if experts:
        fields |= {
            "num_experts": experts,
            "num_experts_per_tok": int(get("moe_router_topk")),
            "moe_intermediate_size": int(get("moe_ffn_hidden_size")),
            "norm_topk_prob": not get("moe_router_pre_softmax", False),
        }
    return fields


def arguments_for(
    config: Mapping[str, Any], architecture: Architecture, vocabulary: int, divisor: int, grid: Mapping[str, int]
) -> Namespace:
    """Return the arguments that Megatron writes for this model. `vocabulary`: rows of the padded embedding."""
    rope = config.get("rope_parameters") or {"rope_theta": config.get("rope_theta", 10000.0)} | (
        config.get("rope_scaling") or {}
    )
    dtype = str(config.get("dtype") or config.get("torch_dtype") or "float32")
    values: dict[str, Any] = {
        **_sizes(architecture),
        "padded_vocab_size": vocabulary,
        "make_vocab_size_divisible_by": divisor,
        "vocab_size": architecture.vocabulary,
        "max_position_embeddings": config.get("max_position_embeddings"),
        "norm_epsilon": config.get("rms_norm_eps"),
        "rotary_base": rope.get("rope_theta"),
        "use_rope_scaling": rope.get("rope_type") == "llama3",
        "rope_scaling_factor": rope.get("factor", 8.0),
        "normalization": "RMSNorm",
        "swiglu": True,
        "add_bias_linear": False,
        "position_embedding_type": "rope",
        "rotary_percent": 1.0,
        "tokenizer_type": "HuggingFaceTokenizer",
        "bf16": dtype == "bfloat16",
        "fp16": dtype == "float16",
        **grid,
    }
    if architecture.experts:
        values |= {
            "moe_router_topk": config.get("num_experts_per_tok"),
            "moe_router_pre_softmax": not config.get("norm_topk_prob", False),
        }
    return Namespace(**values)


def _sizes(architecture: Architecture) -> dict[str, Any]:
    sizes = {
        "num_layers": architecture.layers,
        "hidden_size": architecture.hidden,
        "num_attention_heads": architecture.heads,
        "num_query_groups": architecture.key_value_heads,
        "group_query_attention": architecture.key_value_heads != architecture.heads,
        "kv_channels": architecture.head_dim,
        "ffn_hidden_size": architecture.intermediate,
        "untie_embeddings_and_output_weights": not architecture.tied,
        "qk_layernorm": architecture.query_key_norm,
        "add_qkv_bias": architecture.qkv_bias,
    }
    if architecture.experts:
        return sizes | {"num_experts": architecture.experts, "moe_ffn_hidden_size": architecture.expert_intermediate}
    return sizes


def _family(arguments: Any, experts: int, where: str) -> Family:
    norm, bias = bool(getattr(arguments, "qk_layernorm", False)), bool(getattr(arguments, "add_qkv_bias", False))
    families = {
        (False, False, False): Family.LLAMA,
        (False, True, False): Family.QWEN2,
        (True, False, False): Family.QWEN3,
        (True, False, True): Family.QWEN3_MOE,
    }
    found = families.get((norm, bias, experts > 0))
    if found is None:
        raise InputError(
            f"{where}: args: qk_layernorm {norm}, add_qkv_bias {bias} and {experts} experts: "
            "expected the architecture of Llama, Qwen2.5 or Qwen3"
        )
    return found


def _rope(get: "_Reader") -> dict[str, Any]:
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": float(get("rotary_base"))}
    if get("use_rope_scaling", False):  # megatron-core's fixed values, those of Llama 3.1
        rope |= {
            "rope_type": "llama3",
            "factor": float(get("rope_scaling_factor", 8.0)),
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        }
    return rope


class _Reader:
    def __init__(self, arguments: Any, where: str) -> None:
        self._arguments, self._where = arguments, where

    def __call__(self, name: str, *default: Any) -> Any:
        found = getattr(self._arguments, name, default[0] if default else None)
        if found is None and not default:
            raise InputError(
                f"{self._where}: args.{name}: found none, expected a value: name a Hugging Face folder of the model "
                "with --like (model.like)"
            )
        return found
