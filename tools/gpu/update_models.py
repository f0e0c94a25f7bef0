"""Shared by the parts of update_on_gpu.py: models of the named shapes, an engine on one, a process group of one, clocks and memory."""

import gc
import json
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import distributed
from transformers import Qwen3Config, Qwen3ForCausalLM

from benchmarks.recorded_batch import recorded_batch
from tasks.training.deepspeed_config import import_deepspeed
from tasks.training.engine import PolicyEngine, engine_settings
from tasks.update.config import UpdateConfig
from tasks.update.precompute import Prepared
from tasks.update.step import optimizer_step, throughput

import_deepspeed()
MARK = "RESULT "
SHAPES: dict[str, dict[str, Any]] = {
    "0.6B": {
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "tie": True,
    },
    "4B": {
        "hidden_size": 2560,
        "intermediate_size": 9728,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "tie": True,
    },
    "8B": {
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "tie": False,
    },
    "135M": {
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "head_dim": 64,
        "vocab_size": 49152,
        "tie": True,
    },
    "smoke": {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "tie": True,
    },
}
"""Of the Qwen3 family: 8 key-value heads of 128, vocabulary 151,936 (smoke: 2 of 32, 1,024). 135M: SmolLM2's sizes."""


def say(result: dict[str, Any]) -> None:
    """Hand a part's result over; a later one replaces it."""
    print(MARK + json.dumps(result), flush=True)


def a_batch(smoke: bool, size: int = 32) -> Any:
    if smoke:
        return recorded_batch(size // 4, 4, 1000, 16, 256)
    return recorded_batch(size // 4, 4, 151000, 512, 8192)


def an_equal_batch(smoke: bool) -> Any:
    """Return sequences of equal length, half of each a prompt that eight of them share."""
    lengths = (128, 128) if smoke else (2048, 2048)
    return recorded_batch(4, 8, 1000 if smoke else 151000, *lengths, prompt_share=0.5)


def a_step(engine: PolicyEngine, config: UpdateConfig, samples: Sequence[Any], rate: float) -> dict[str, float]:
    """Take one optimizer step on samples whose scores are their advantages."""
    advantages = [torch.full((sample.responded,), sample.score) for sample in samples]
    prepared = Prepared(None, advantages, None, None, None, corrected=False, mismatch=None)
    longest = max(sample.responded for sample in samples)
    return optimizer_step(engine, None, config, samples, list(range(len(samples))), prepared, rate, longest)


def an_engine(shape: str, **settings: Any) -> tuple[Any, Callable[[Sequence[Any]], dict[str, float]]]:
    """Return an engine on a new model, and what runs one optimizer step on samples."""
    join_alone()
    dtype = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    model = new_model(shape, dtype)
    config = UpdateConfig(kl_coefficient=0.0, entropy_coefficient=0.0, **settings)
    if config.lora is not None:
        from tasks.training.lora import add_adapters

        add_adapters(model, config.lora)
    engine = PolicyEngine(model, engine_settings(config, str(dtype).removeprefix("torch.")))

    def step(samples: Sequence[Any]) -> dict[str, float]:
        began = now()
        figures = a_step(engine, config, samples, 1e-6)
        seconds = now() - began
        return figures | throughput(engine, samples, seconds, 1, figures["shared_fraction"]) | {"seconds": seconds}

    return engine, step


def report_steps(
    engine: Any,
    step: Callable[[], dict[str, float]],
    samples: Sequence[Any],
    more: dict[str, Any],
    steps: int,
    under: tuple[str, dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Say what the fastest of some steps was; the one before them compiles and fills caches. `under`: a name in an earlier result."""
    weights = sum(getattr(parameter, "ds_numel", parameter.numel()) for parameter in engine.model.parameters())
    result: dict[str, Any] = more | {
        "parameters": weights,
        "sequences": len(samples),
        "tokens": sum(sample.sequence.length for sample in samples),
        "held_gib": round(allocated_gib(), 2),
    }
    for number in range(1 + steps):
        if number == 1:
            reset_peak()
        figures = step()
        kept = (
            "tokens_per_s",
            "tflops_per_s",
            "mfu",
            "seconds",
            "loss",
            "gradient_norm",
            "micro_batches",
            "padding_fraction",
            "shared_fraction",
        )
        found = {name: short(figures[name]) for name in kept if name in figures}
        if number == 0:
            result["first_step_s"] = found["seconds"]
        elif found["tokens_per_s"] > result.get("tokens_per_s", 0):
            result |= found
        result["peak_gib"] = round(peak_gib(), 2)
        result["reserved_gib"] = round(reserved_gib(), 2)
        say(result if under is None else under[1] | {under[0]: result})
    return result


def new_model(shape: str, dtype: Any) -> Any:
    """Return a model of the shape with random weights, made on the device."""
    given = dict(SHAPES[shape])
    small = shape == "smoke"
    usual = {
        "vocab_size": 1024 if small else 151936,
        "num_key_value_heads": 2 if small else 8,
        "head_dim": 32 if small else 128,
    }
    config = Qwen3Config(
        max_position_embeddings=32768,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        tie_word_embeddings=given.pop("tie"),
        attn_implementation="sdpa",
        **(usual | given),
    )
    if not torch.cuda.is_available():
        dtype = torch.float32
    torch.manual_seed(0)
    torch.set_default_dtype(dtype)
    try:
        with device():
            model = Qwen3ForCausalLM(config)
    finally:
        torch.set_default_dtype(torch.float32)
    for name, buffer in model.named_buffers():
        assert buffer.dtype == torch.float32, f"{name} is {buffer.dtype}"
    model.config.dtype = dtype
    return model


def join_alone() -> None:
    """A process group of one, as Ray's rank makes it; once in a process."""
    if distributed.is_initialized():
        return
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    if torch.cuda.is_available():
        torch.cuda.set_device(0)
    store = distributed.HashStore()
    distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo", store=store, rank=0, world_size=1)
    import_deepspeed().init_distributed(auto_mpi_discovery=False, verbose=False)


def device() -> Any:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def device_name() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"


def device_gib() -> float:
    return torch.cuda.get_device_properties(0).total_memory / 2**30 if torch.cuda.is_available() else 0.0


def now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def allocated_gib() -> float:
    return torch.cuda.memory_allocated() / 2**30 if torch.cuda.is_available() else 0.0


def peak_gib() -> float:
    return torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else 1.0


def reserved_gib() -> float:
    return torch.cuda.max_memory_reserved() / 2**30 if torch.cuda.is_available() else 0.0


def reset_peak() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def host_gib() -> float:
    import resource

    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 1)


def relative_error(found: Any, expected: Any) -> float:
    return float(f"{float((found.float() - expected.float()).norm() / expected.float().norm()):.2e}")


def short(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value
