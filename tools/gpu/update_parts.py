"""The parts of update_on_gpu.py. Each says a result as soon as it has one; a later one replaces it."""

import gc
import importlib
import json
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import update_peers
from update_models import (
    a_batch,
    allocated_gib,
    an_engine,
    an_equal_batch,
    device,
    device_gib,
    device_name,
    host_gib,
    join_alone,
    new_model,
    now,
    peak_gib,
    relative_error,
    report_steps,
    reset_peak,
    say,
    short,
)

from benchmarks.recorded_batch import recorded_batch
from tasks.models.policy import save_policy
from tasks.models.tokenizer import train_tokenizer
from tasks.pipeline.references import CheckpointRef, TrajectoryBatchRef
from tasks.training.attention import packed_attention
from tasks.training.batches import rounded_up
from tasks.training.config import LoraConfig
from tasks.training.deepspeed_config import import_deepspeed
from tasks.training.program import RankContext
from tasks.training.scoring import chunked_token_scores, token_scores
from tasks.update.config import UpdateConfig
from tasks.update.credit_assignment import SampleSet
from tasks.update.program import UpdateJob, update_program
from tasks.update.request import UpdateRequest

REPOSITORY = Path(__file__).resolve().parents[2]


def preload(name: str) -> None:
    """Import what a part needs beside the modules above."""
    if name.startswith(("trl", "agreement", "full_logits")):
        importlib.import_module("benchmarks.trl_peer")
    if name.startswith(("trl", "agreement")):
        importlib.import_module("trl").GRPOTrainer  # noqa: B018  # loaded on demand
    if name.startswith("lora"):
        importlib.import_module("tasks.training.lora")


def run_part(name: str, smoke: bool) -> None:
    """Run one part here."""
    try:
        PARTS[name](smoke)
    except BaseException:
        traceback.print_exc()
        raise


def exact(smoke: bool) -> None:
    """Packed attention and the chunked head against plain PyTorch, values and gradients; the head's time and memory."""
    torch.manual_seed(0)
    result: dict[str, Any] = {"device": device_name(), "torch": torch.__version__}
    _exact_attention(smoke, result)
    _exact_head(smoke, result)


def _exact_attention(smoke: bool, result: dict[str, Any]) -> None:
    """Add the errors of packed attention, with and without a shared beginning, to the result, and say it."""
    place, half = device(), torch.bfloat16
    # Fewer together than the power of two above the longest, which is the bound that the kernels get.
    lengths = [5, 300, 1, 77, 100] if smoke else [700, 3000, 1, 128, 100]
    boundaries = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32, device=place)
    total, heads, key_heads, width = sum(lengths), 16, 8, 128
    q, k, v = (torch.randn(1, h, total, width, device=place, dtype=half) for h in (heads, key_heads, key_heads))
    weights = torch.randn(1, total, heads, width, device=place)

    # The first segment is a beginning that the second and the fourth share.
    places = [[*(range(lengths[0]) if number in (1, 3) else ()), *range(*boundaries[number : number + 2].tolist())]
              for number in range(len(lengths))]  # fmt: skip
    shared = (
        torch.tensor([0, *torch.tensor([len(one) for one in places]).cumsum(0).tolist()], dtype=torch.int32).to(place),
        rounded_up(max(map(len, places))),
        torch.tensor([at for one in places for at in one]).to(place),
    )

    def attend(keys: tuple[Any, ...], query: Any, key: Any, value: Any) -> tuple[Any, list[Any]]:
        inputs = [tensor.detach().clone().requires_grad_() for tensor in (query, key, value)]
        out, _ = packed_attention(torch.nn.Module(), *inputs, None, None, boundaries, rounded_up(max(lengths)), *keys)
        (out.float() * weights).sum().backward()
        return out, [tensor.grad for tensor in inputs]

    for layout, keys in (("attention", ()), ("shared_attention", shared)):
        expected, expected_gradients = attend(keys, q.double(), k.double(), v.double())  # one after the other
        for name, dtype in (("bfloat16", half), ("float32", torch.float32)):
            found, gradients = attend(keys, *(tensor.to(dtype) for tensor in (q, k, v)))
            result[f"{layout}_error_{name}"] = relative_error(found, expected)
            result[f"{layout}_gradient_errors_{name}"] = [
                relative_error(a, b) for a, b in zip(gradients, expected_gradients, strict=True)
            ]
    say(result)


def _exact_head(smoke: bool, result: dict[str, Any]) -> None:
    """Add the errors of the chunked head, and then the time and memory of both heads, to the result, and say it."""
    place, half = device(), torch.bfloat16
    rows, hidden_size, vocabulary = (64, 32, 1000) if smoke else (4096, 1024, 151936)
    hidden = torch.randn(rows, hidden_size, device=place)
    weight = torch.randn(vocabulary, hidden_size, device=place) * 0.02
    targets = torch.randint(0, vocabulary, (rows,), device=place)
    of_scores, of_entropies = torch.randn(rows, device=place), torch.randn(rows, device=place)

    def head(function: Callable[..., Any], dtype: Any) -> tuple[Any, ...]:
        inputs = [tensor.detach().to(dtype).requires_grad_() for tensor in (hidden, weight)]
        scores, entropies = function(*inputs, targets)
        ((scores * of_scores).sum() + (entropies * of_entropies).sum()).backward()
        return scores, entropies, inputs[0].grad, inputs[1].grad

    def plain(h: Any, w: Any, t: Any) -> tuple[Any, Any]:
        return token_scores(h @ w.T, t)

    names = ("log_probs", "entropies", "hidden_gradient", "weight_gradient")
    torch.backends.cuda.matmul.allow_tf32 = False
    reference = head(plain, torch.float32)
    for label, function, dtype in (
        ("chunked_fp32", chunked_token_scores, torch.float32),
        ("chunked_bf16", chunked_token_scores, half),
        ("plain_bf16", plain, half),
    ):
        got = head(function, dtype)
        result[f"{label}_errors"] = dict(
            zip(names, [relative_error(a, b) for a, b in zip(got, reference, strict=True)], strict=True)
        )
        del got
    say(result)
    del reference
    gc.collect()
    for label, function in (("chunked", chunked_token_scores), ("plain", plain)):
        head(function, half)
        reset_peak()
        before = allocated_gib()
        began = now()
        for _ in range(3):
            head(function, half)
        result[f"{label}_head"] = {
            "ms": round((now() - began) / 3 * 1e3, 1),
            "extra_gib": round(peak_gib() - before, 2),
        }
    say(result)


def ours(smoke: bool, **settings: Any) -> None:
    """Our engine on the recorded batch: tokens/s of a warm optimizer step, share of the peak, peak memory.

    Compiled and checkpointed it then trains on sequences of 16,384 tokens, nearly all learnt: the shape for which
    prime-rl publishes 11.9k tokens/s, 11 % MFU and 12.5 GiB on one H100.
    """
    samples = a_batch(smoke).samples()
    engine, step = an_engine("smoke" if smoke else "0.6B", tokens_per_rank=16384, **settings)
    result = report_steps(engine, lambda: step(samples), samples, {"settings": settings}, steps=3)
    if settings.get("compile") and settings.get("activation_checkpointing"):
        longest = 256 if smoke else 16384
        long = recorded_batch(1, 3, 1000 if smoke else 151000, longest - 1, longest, prompt_share=0.01).samples()
        report_steps(engine, lambda: step(long), long, {}, steps=2, under=("anchor_16k", result))


def equal(smoke: bool, **settings: Any) -> None:
    """Our engine on sequences of equal length, half of each a prompt that eight of them share."""
    samples = an_equal_batch(smoke).samples()
    engine, step = an_engine("smoke" if smoke else "0.6B", tokens_per_rank=16384, **settings)
    report_steps(engine, lambda: step(samples), samples, {"settings": settings}, steps=3)


def small(smoke: bool, **settings: Any) -> None:
    """Our engine at SmolLM2's sizes on 16 conversations of about 1,300 tokens, as its SFT has them in a step."""
    samples = recorded_batch(4, 4, 1000 if smoke else 49000, 64 if smoke else 700, 256 if smoke else 2500).samples()
    engine, step = an_engine("smoke" if smoke else "135M", tokens_per_rank=24576, **settings)
    report_steps(engine, lambda: step(samples), samples, {"settings": settings}, steps=5)


def program(smoke: bool) -> None:
    """The whole rank program, from a policy on disk to the next checkpoint: two steps, the policy scoring the batch first."""
    join_alone()
    batch = a_batch(smoke, size=16)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = train_tokenizer(["x = 1\n"] * 9, 300, Path(folder, "tokenizer"))
        model = new_model("smoke" if smoke else "0.6B", torch.bfloat16)
        save_policy(model, tokenizer, Path(folder, "policy"))
        del model
        request = UpdateRequest(
            policy=CheckpointRef(uri=str(Path(folder, "policy")), digest="policy"),
            reference=None,
            batch=TrajectoryBatchRef(uri="", digest="", run_id="", iteration=0, trajectories=0, turns=0),
            config=UpdateConfig(
                optimizer_steps=2, epochs=2, tokens_per_rank=16384, kl_coefficient=0.0, activation_checkpointing=True
            ),
            iteration=0,
            total_iterations=1,
            seed=0,
        )
        job = UpdateJob(
            request=request,
            dtype="bfloat16" if torch.cuda.is_available() else "float32",
            samples=SampleSet(batch.samples(-11.0), len(set(batch.groups)), 0, 0, 0),
            folder=Path(folder, "next"),
        )
        job.folder.mkdir()
        began = now()
        rows = next(said["rows"] for said in update_program(RankContext(0, 1), job) if "rows" in said)
        written = sum(file.stat().st_size for file in job.folder.rglob("*") if file.is_file())
        say(
            {
                "seconds": round(now() - began, 1),
                "checkpoint_gib": round(written / 2**30, 2),
                "rows": [{name: short(value) for name, value in row.items()} for row in (rows[0], rows[-1])],
            }
        )


def lora(smoke: bool) -> None:
    """The 8B shape with adapters of rank 16 on all linear layers."""
    batch = a_batch(smoke, size=24)
    settings: dict[str, Any] = {"activation_checkpointing": True, "lora": LoraConfig()}
    samples = batch.samples()
    engine, step = an_engine("smoke" if smoke else "8B", tokens_per_rank=16384, **settings)
    trained = sum(parameter.numel() for parameter in engine.trained)
    report_steps(engine, lambda: step(samples), samples, {"trained": trained}, steps=2)


def offload(smoke: bool, shape: str) -> None:
    """All weights of a shape whose optimizer state does not fit the GPU: master weights and moments in the host's memory."""
    batch = a_batch(smoke, size=24)
    file = (
        REPOSITORY
        / "deployments"
        / "deepspeed"
        / ("zero3-offload-partly.json" if shape == "8B" else "zero2-offload.json")
    )
    settings = {"activation_checkpointing": True, "deepspeed": str(file)}
    if shape == "8B" and device_gib() > 120:  # room for more of the state
        given = json.loads(file.read_text())
        given["zero_optimization"]["offload_optimizer"]["ratio"] = 0.4
        file = Path(tempfile.mkdtemp(), "zero3-offload-less.json")
        file.write_text(json.dumps(given))
        settings["deepspeed"] = str(file)
    if smoke and shape == "8B":
        say({"skipped": "needs a GPU"})
        return
    samples = batch.samples()
    say({"file": file.name, "host_gib": host_gib()})
    engine, step = an_engine("smoke" if smoke else shape, tokens_per_rank=16384, **settings)
    say({"file": file.name, "host_gib": host_gib(), "held_gib": allocated_gib()})
    report_steps(engine, lambda: step(samples), samples, {"file": file.name, "host_gib": host_gib()}, steps=2)


def offload_exact(smoke: bool) -> None:
    """Optimizer state on the GPU, partly and wholly in the host's memory: the same master weights after two steps of a small model, all of them moved."""
    samples = recorded_batch(2, 4, 1000, 16, 256).samples()
    utilities = import_deepspeed().utils
    pinned = torch.cuda.is_available()
    found: dict[str, dict[str, torch.Tensor]] = {}
    begun: dict[str, torch.Tensor] = {}
    for name, ratio in (("device", None), ("partly", 0.5), ("host", 1.0)):
        torch.manual_seed(0)
        with tempfile.TemporaryDirectory() as folder:
            offload = (
                {} if ratio is None else {"offload_optimizer": {"device": "cpu", "pin_memory": pinned, "ratio": ratio}}
            )
            file = Path(folder, "deepspeed.json")
            file.write_text(json.dumps({"zero_optimization": {"stage": 3, "sub_group_size": 20_000, **offload}}))
            engine, step = an_engine("smoke", tokens_per_rank=4096, deepspeed=str(file))

        def masters(engine: Any = engine) -> dict[str, torch.Tensor]:
            named = engine.model.named_parameters()
            return {key: utilities.safe_get_full_fp32_param(weight).float().cpu() for key, weight in named}

        begun = begun or masters()
        for _ in range(2):
            step(samples)
        found[name] = masters()
    still = [key for key, value in found["partly"].items() if torch.equal(value, begun[key])]
    moved = max(float((value - begun[key]).abs().max()) for key, value in found["device"].items())
    apart = {
        name: max(float((values[key] - value).abs().max()) for key, value in found["device"].items())
        for name, values in found.items()
    }
    say({"moved": moved, "apart": apart, "did not move": still})
    if still or max(apart.values()) > 0.05 * moved:
        raise AssertionError("offloaded state does not train as that on the device")


PARTS: dict[str, Callable[[bool], None]] = {
    "exact": exact,
    "program": program,
    "ours": lambda smoke: ours(smoke),
    "ours_checkpointed": lambda smoke: ours(smoke, activation_checkpointing=True),
    "ours_compiled": lambda smoke: ours(smoke, compile=True),
    "ours_compiled_checkpointed": lambda smoke: ours(smoke, compile=True, activation_checkpointing=True),
    "small": lambda smoke: small(smoke),
    "small_compiled": lambda smoke: small(smoke, compile=True),
    "trl": lambda smoke: update_peers.trl(smoke, rows=8),
    "trl_small_rows": lambda smoke: update_peers.trl(smoke, rows=2),
    "trl_bf16": lambda smoke: update_peers.trl(smoke, rows=4, half=True),
    "equal": lambda smoke: equal(smoke),
    "equal_shared": lambda smoke: equal(smoke, packing="shared"),
    "trl_equal": update_peers.trl_equal,
    "agreement": update_peers.agreement,
    "full_logits": update_peers.full_logits,
    "lora_8b": lora,
    "offload_exact": offload_exact,
    "offload_4b": lambda smoke: offload(smoke, "4B"),
    "offload_8b": lambda smoke: offload(smoke, "8B"),
}
