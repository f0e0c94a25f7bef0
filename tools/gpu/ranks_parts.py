"""Parts of one rank of ranks_on_gpus.py: exactness, state of other ranks, speed."""

import gc
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from ranks_on_gpus import LAYOUTS, PROBES
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import distributed
from update_models import (
    a_batch,
    a_step,
    allocated_gib,
    device,
    device_name,
    new_model,
    now,
    peak_gib,
    relative_error,
    reset_peak,
    say,
    short,
)

from benchmarks.recorded_batch import recorded_batch
from tasks.models.policy import load_policy
from tasks.models.tokenizer import train_tokenizer
from tasks.training.checkpoint import restore_optimizer, save_optimizer, save_weights
from tasks.training.deepspeed_config import import_deepspeed
from tasks.training.engine import PolicyEngine, engine_settings
from tasks.update.config import UpdateConfig
from tasks.update.step import throughput

ALONE, WRITER = map(list, LAYOUTS[:2])
RATE = 1e-3


def run(layouts: list[list[int]], shapes: list[str], parts: list[str], folder: str, tiny: bool) -> None:
    """Join the group, and run every part with every layout; rank 0 says what it found."""
    torch.set_num_threads(4)
    if torch.cuda.is_available():
        torch.cuda.set_device(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo", timeout=timedelta(minutes=3))
    import_deepspeed().init_distributed(auto_mpi_discovery=False, verbose=False)
    for layout in layouts:
        found: dict[str, Any] = dict(zip(("ranks", "context_parallel", "zero_stage"), layout, strict=True))
        found["device"] = device_name()
        if layout == layouts[0]:
            found["all_reduce_gb_per_s"] = link(tiny)
        if "exact" in parts:
            found["exact"] = exact(layout, Path(folder), tiny)
        if "resharded" in parts:
            found["resharded"] = resharded(layout, Path(folder))
        if "speed" in parts:
            found["speed"] = {shape: speed(layout, shape, tiny) for shape in shapes if fits(layout, shape)}
        if distributed.get_rank() == 0:
            say(found)
    distributed.barrier()
    distributed.destroy_process_group()


def fits(layout: list[int], shape: str) -> bool:
    """Return True if a shape fits: eight billion weights with their optimizer take 131 GB, so ZeRO-3 over four."""
    return shape != "8B" or layout == WRITER


def link(tiny: bool) -> float | None:
    """Return the bus bandwidth of an all-reduce of 1 GiB, as nccl-tests counts it."""
    world = distributed.get_world_size()
    if world == 1:
        return None
    data = torch.ones(2**16 if tiny else 2**28, device=device())
    distributed.all_reduce(data)
    began = now()
    for _ in range(5):
        distributed.all_reduce(data)
    return short(5 * data.nbytes * 2 * (world - 1) / world / (now() - began) / 1e9)


def settings_of(layout: list[int], **more: Any) -> UpdateConfig:
    """Return the update's settings for a layout."""
    ranks, context, stage = layout
    given = {"kl_coefficient": 0.0, "entropy_coefficient": 0.0, "betas": (0.5, 0.5), "gradient_clip": 1e9} | more
    return UpdateConfig(ranks=ranks, context_parallel=context, zero_stage=stage, packing="packed", **given)


def exact(layout: list[int], folder: Path, tiny: bool) -> dict[str, Any]:
    """Compare loss, norm and gradients of one step in float32 with those of one rank, which come first."""
    samples = (recorded_batch(2, 4, 1000, 16, 256) if tiny else recorded_batch(8, 4, 151000, 256, 2000)).samples()
    config = settings_of(layout, tokens_per_rank=8192, activation_checkpointing=True)
    model = new_model("smoke" if tiny else "0.6B", torch.float32)
    engine = PolicyEngine(model, engine_settings(config, "float32"))
    figures = a_step(engine, config, samples, 0.0)
    moments = moments_of(engine)
    said = {name: float(figures[name]) for name in ("loss", "gradient_norm", "micro_batches")}
    release(engine)
    file = folder / "one.safetensors"
    if layout == ALONE:
        save_file(moments, file, metadata={name: repr(value) for name, value in said.items()})
        return said
    one = load_file(file)
    with safe_open(file, framework="pt") as stored:
        alone = {name: float(value) for name, value in stored.metadata().items()}
    errors = {name: relative_error(value, one[name]) for name, value in moments.items()}
    return said | {
        "loss_error": short(abs(said["loss"] - alone["loss"])),
        "norm_error": short(abs(said["gradient_norm"] / alone["gradient_norm"] - 1)),
        "gradient_errors": errors,
    }


def moments_of(engine: PolicyEngine) -> dict[str, torch.Tensor]:
    """Return AdamW's first moments of three weights: with beta 0.5 half of the first step's gradient."""
    utilities = import_deepspeed().utils
    found = {}
    for name, weight in engine.model.named_parameters():
        if name.endswith(PROBES) and "layernorm" not in name:
            if hasattr(weight, "ds_id") or hasattr(weight, "_hp_mapping"):
                value = utilities.safe_get_full_optimizer_state(weight, "exp_avg")
            else:
                value = engine.deepspeed.optimizer.state[weight]["exp_avg"]
            found[name] = value.detach().float().cpu().clone()
    return found


def resharded(layout: list[int], folder: Path) -> dict[str, Any]:
    """Go on from weights and state that four ranks wrote; compare with the step that the four took themselves."""
    samples = recorded_batch(2, 4, 1000, 16, 256).samples()
    config = settings_of(layout, tokens_per_rank=1024)
    state, after = folder / "state", folder / "after.safetensors"
    if layout == WRITER:
        engine = PolicyEngine(new_model("smoke", torch.float32), engine_settings(config, "float32"))
        for _ in range(2):
            a_step(engine, config, samples, RATE)
        tokenizer = train_tokenizer(["x = 1\n"] * 9, 300, folder / f"tokenizer-{distributed.get_rank()}")
        save_weights(engine, tokenizer, state)
        save_optimizer(engine, state)
    elif not state.exists():
        return {"skipped": "fewer than four GPUs, or one rank, which comes first"}
    else:
        engine = PolicyEngine(load_policy(state, "float32"), engine_settings(config, "float32"))
        assert restore_optimizer(engine, state)
    figures = a_step(engine, config, samples, RATE)
    moments = moments_of(engine)
    if layout == WRITER and distributed.get_rank() == 0:
        save_file(moments, after, metadata={"gradient_norm": repr(float(figures["gradient_norm"]))})
    distributed.barrier()
    written = load_file(after)
    release(engine)
    return {"moment_errors": {name: relative_error(value, written[name]) for name, value in moments.items()}}


def speed(layout: list[int], shape: str, tiny: bool) -> dict[str, Any]:
    """Measure two warm steps in bfloat16 on the recorded batch, longer by the number of ranks."""
    began = time.perf_counter()
    batch = a_batch(tiny, size=16 * layout[0])
    samples = batch.samples()
    config = settings_of(layout, tokens_per_rank=4096 if tiny else 16384, activation_checkpointing=True)
    dtype = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    engine = PolicyEngine(new_model("smoke" if tiny else shape, dtype), engine_settings(config, str(dtype)[6:]))
    a_step(engine, config, samples, 1e-6)
    reset_peak()
    best: dict[str, Any] = {}
    for _ in range(2):
        start = now()
        figures = a_step(engine, config, samples, 1e-6)
        seconds = now() - start
        rate = throughput(engine, samples, seconds, layout[0], figures["shared_fraction"])
        if rate["tokens_per_s"] > best.get("tokens_per_s", 0):
            best = {name: short(value) for name, value in rate.items()} | {"seconds": short(seconds)}
    best |= {"tokens": batch.tokens, "peak_gib": round(peak_gib(), 2), "held_gib": round(allocated_gib(), 2)}
    release(engine)
    return best | {"all_s": round(time.perf_counter() - began, 1)}


def release(engine: PolicyEngine) -> None:
    """Free an engine's memory as far as DeepSpeed lets go of it."""
    for weight in engine.model.parameters():
        weight.data = torch.empty(0, device=weight.device)
        weight.grad = None
    engine.deepspeed.destroy()
    del engine
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
