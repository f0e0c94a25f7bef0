"""The peers of update_on_gpu.py: TRL's GRPOTrainer, and plain Transformers; what the two sides agree on."""

import math
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from update_models import a_batch, an_equal_batch, device, join_alone, new_model, now, peak_gib, reset_peak, say, short

from benchmarks.recorded_batch import recorded_batch
from tasks.models.tokenizer import train_tokenizer
from tasks.training.engine import PolicyEngine, engine_settings
from tasks.update.config import UpdateConfig
from tasks.update.precompute import Prepared
from tasks.update.step import optimizer_step


def trl(smoke: bool, rows: int, half: bool = False) -> None:
    """TRL's GRPOTrainer with its defaults: float32 weights under bfloat16 autocast, activation checkpointing, its
    chunked head.

    `half`: weights and moments in bfloat16, which is smaller and faster, and rounds every update away that is below a
    256th of its weight.
    """
    from benchmarks.trl_peer import run_trl

    batch = a_batch(smoke)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = train_tokenizer(["x = 1\n"] * 9, 300, Path(folder))
        model = new_model("smoke" if smoke else "0.6B", torch.bfloat16 if half else torch.float32)
        try:
            # As for ours, the memory of the first step, in which caches fill, does not count.
            steps = run_trl(
                model, tokenizer, batch, rows, steps=3, before_step=reset_peak, bf16=torch.cuda.is_available()
            )
        except torch.OutOfMemoryError:
            say({"rows": rows, "error": "out of memory"})
            if rows == 1:
                raise
            exhausted = True
        else:
            exhausted = False
    if exhausted:  # here, where the traceback no longer holds the tensors
        del model
        reset_peak()
        trl(smoke, max(rows // 4, 1), half)
        return
    best = min(steps[1:], key=lambda step: step.seconds)
    say(
        {
            "version": __import__("trl").__version__,
            "transformers": transformers.__version__,
            "rows": rows,
            "weights": "bfloat16" if half else "float32, autocast to bfloat16",
            "tokens_per_s": round(batch.tokens / best.seconds),
            "first_step_s": round(steps[0].seconds, 2),
            "step_s": round(best.seconds, 2),
            "loss": best.loss,
            "gradient_norm": best.gradient_norm,
            "peak_gib": round(peak_gib(), 2),
        }
    )


def trl_equal(smoke: bool) -> None:
    """TRL without activation checkpointing on sequences of equal length, eight at a time."""
    from benchmarks.trl_peer import run_trl

    batch = an_equal_batch(smoke)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = train_tokenizer(["x = 1\n"] * 9, 300, Path(folder))
        model = new_model("smoke" if smoke else "0.6B", torch.float32)
        on_gpu = torch.cuda.is_available()
        steps = run_trl(
            model, tokenizer, batch, 8, steps=3, before_step=reset_peak, bf16=on_gpu, gradient_checkpointing=False
        )
    best = min(steps[1:], key=lambda step: step.seconds)
    say(
        {
            "tokens": batch.tokens,
            "tokens_per_s": round(batch.tokens / best.seconds),
            "step_s": round(best.seconds, 3),
            "loss": best.loss,
            "gradient_norm": best.gradient_norm,
            "peak_gib": round(peak_gib(), 2),
        }
    )


def agreement(smoke: bool) -> None:
    """Loss and gradient norm of one optimizer step, TRL's and ours, in float32 on the same weights, ratios off 1 and some of them clipped."""
    from benchmarks.trl_peer import run_trl

    torch.backends.cuda.matmul.allow_tf32 = False
    batch = recorded_batch(2, 4, 1000 if smoke else 151000, 16 if smoke else 256, 128 if smoke else 1024)
    shape = "smoke" if smoke else "0.6B"
    random = np.random.default_rng(1)
    level = -math.log(1024 if smoke else 151936)  # of a model with random weights
    old = [random.normal(level, 0.3, len(row)).astype(np.float32).tolist() for row in batch.responses]
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = train_tokenizer(["x = 1\n"] * 9, 300, Path(folder))
        steps = run_trl(
            new_model(shape, torch.float32),
            tokenizer,
            batch,
            2,
            steps=1,
            learning_rate=0.0,
            old_log_probs=old,
            bf16=False,
        )
    theirs = steps[0]
    reset_peak()
    config = UpdateConfig(kl_coefficient=0.0, entropy_coefficient=0.0, dual_clip=None, packing="packed", head="chunked")
    join_alone()
    engine = PolicyEngine(new_model(shape, torch.float32), engine_settings(config, "float32"))
    samples = batch.samples()
    advantages = [torch.full((sample.responded,), sample.score) for sample in samples]
    prepared = Prepared(
        [torch.tensor(row) for row in old], advantages, None, None, None, corrected=False, mismatch=None
    )
    longest = max(sample.responded for sample in samples)
    figures = optimizer_step(engine, None, config, samples, range(len(samples)), prepared, 0.0, longest)
    say(
        {
            "tokens": batch.tokens,
            "loss": [figures["loss"], theirs.loss],
            "gradient_norm": [figures["gradient_norm"], theirs.exact_gradient_norm],
            "clip_fraction": short(figures["clip_fraction"]),
            "loss_difference": float(f"{abs(figures['loss'] - theirs.loss):.1e}"),
            "gradient_norm_difference": float(f"{abs(figures['gradient_norm'] / theirs.exact_gradient_norm - 1):.1e}"),
        }
    )


def full_logits(smoke: bool) -> None:
    """Plain Transformers: padded rows of 2, full logits in the model's own forward pass, bfloat16 weights, AdamW, checkpointing."""
    from benchmarks.trl_peer import padded_tensors

    batch = a_batch(smoke)
    place = device()
    model = new_model("smoke" if smoke else "0.6B", torch.bfloat16)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=place.type == "cuda")
    tensors = padded_tensors(batch, 0, place)
    seconds: list[float] = []
    for number in range(3):
        if number == 1:
            reset_peak()
        began = now()
        for start in range(0, len(batch.prompts), 2):
            part = {name: value[start : start + 2] for name, value in tensors.items() if value.dim()}
            token_ids = torch.cat([part["prompt_ids"], part["completion_ids"]], 1)
            mask = torch.cat([part["prompt_mask"], part["completion_mask"]], 1)
            width = part["completion_ids"].shape[1]
            logits = model(input_ids=token_ids, attention_mask=mask, logits_to_keep=width + 1).logits[:, :-1].float()
            scores = logits.log_softmax(-1).gather(-1, part["completion_ids"][..., None]).squeeze(-1)
            loss = -(part["advantages"][:, None] * scores * part["completion_mask"]).sum() / batch.response_tokens
            loss.backward()
            del logits, scores, loss
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(now() - began)
    best = min(seconds[1:])
    say({"tokens_per_s": round(batch.tokens / best), "step_s": round(best, 2), "peak_gib": round(peak_gib(), 2)})
