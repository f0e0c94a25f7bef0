"""The update on one GPU: exact, fast, small in memory; against TRL in the same run. Run as a script; no Ray, no table library.

    python3 tests/gpu/update_on_gpu.py [--parts exact,program,ours,...] [--out FOLDER] [--smoke]

Every part is a process of its own with a time limit: it prints its result at once, and its failure leaves the others alone. All results are written
to update_gpu.json in FOLDER (default $OUT, or the working folder) after every part; what a part had said before its time was over counts. All
parts together end within `--budget` seconds (345); those that matter most come first. `--smoke` runs tiny shapes wherever it is, to try the script.

Needs: torch, transformers, peft, deepspeed (with hjson, pydantic); for the peer also trl, datasets, dill, multiprocess.
"""

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
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
    "smoke": {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "tie": True,
    },
}
"""Of the Qwen3 family: 8 key-value heads of 128, vocabulary 151,936 (smoke: 2 of 32, 1,024)."""

SHORTEST_PART_S = 25.0
"""A part that has less time than this is not worth starting."""

PARTS = (
    ("exact", 100),
    ("ours_checkpointed", 100),
    ("trl", 150),
    ("ours_compiled_checkpointed", 170),
    ("lora_8b", 150),
    ("offload_4b", 200),
    ("program", 100),
    ("ours", 90),
    ("full_logits", 100),
    ("trl_small_rows", 120),
    ("ours_compiled", 150),
    ("offload_8b", 240),
)
"""Name, time limit in seconds; in order of what matters. What is not begun within the budget can be asked for with --parts."""


def main() -> None:
    """Run all parts, or one of them in this process."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--parts", default=",".join(name for name, _ in PARTS))
    arguments.add_argument("--out", default=os.environ.get("OUT", "."))
    arguments.add_argument("--smoke", action="store_true")
    arguments.add_argument("--budget", type=float, default=345.0, help="seconds for all parts together")
    arguments.add_argument("--one")
    given = arguments.parse_args()
    if given.one:
        run_part(given.one, given.smoke)
        return
    limits = dict(PARTS)
    results: dict[str, Any] = {}
    began = time.time()
    for name in given.parts.split(","):
        left = given.budget - (time.time() - began)
        if left < SHORTEST_PART_S:
            results[name] = {"error": "not started: the time for all parts was over"}
            continue
        results[name] = one_part(name, min(limits[name] * (10 if given.smoke else 1), left), given.smoke)
        print(f"== {name}: {json.dumps(results[name])}", flush=True)
        Path(given.out, "update_gpu.json").write_text(json.dumps(results, indent=1), encoding="utf-8")
    print(json.dumps(summary(results), indent=1), flush=True)
    Path(given.out, "update_gpu.json").write_text(
        json.dumps(results | {"summary": summary(results)}, indent=1), encoding="utf-8"
    )


def one_part(name: str, limit_s: float, smoke: bool) -> dict[str, Any]:
    """Run a part in a process of its own and return what it found, or its error."""
    began = time.time()
    command = [sys.executable, __file__, "--one", name, *(["--smoke"] if smoke else [])]
    environment = os.environ | {
        "PYTHONPATH": f"{REPOSITORY}:{os.environ.get('PYTHONPATH', '')}",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
    }
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, env=environment, cwd=REPOSITORY)
    except subprocess.TimeoutExpired as error:
        tail = (error.stdout or b"")[-1500:]
        partial = _result_of(tail.decode(errors="replace") if isinstance(tail, bytes) else tail)
        return partial | {"error": f"took longer than {limit_s:g} s"}
    found = _result_of(done.stdout)
    if done.returncode or not found:
        found["error"] = (done.stderr or done.stdout)[-1800:]
    return found | {"part_s": round(time.time() - began, 1)}


def _result_of(output: str) -> dict[str, Any]:
    lines = [line[len(MARK) :] for line in output.splitlines() if line.startswith(MARK)]
    return json.loads(lines[-1]) if lines else {}


def say(result: dict[str, Any]) -> None:
    """Hand a part's result over; a later one replaces it."""
    print(MARK + json.dumps(result), flush=True)


def summary(results: dict[str, Any]) -> dict[str, Any]:
    """Ratios of ours to the peer."""
    peers = {
        name: results[name]
        for name in ("trl", "trl_small_rows", "full_logits")
        if results.get(name, {}).get("tokens_per_s")
    }
    ours = {name: results[name] for name in results if name.startswith("ours") and results[name].get("tokens_per_s")}
    found: dict[str, Any] = {}
    for name, our in ours.items():
        for peer, their in peers.items():
            found[f"{name} / {peer}"] = {
                "tokens_per_s": round(our["tokens_per_s"] / their["tokens_per_s"], 2),
                "peak_memory": round(our["peak_gib"] / their["peak_gib"], 2),
            }
    return found


# ---------------------------------------------------------------------------------------------------------------- parts


def run_part(name: str, smoke: bool) -> None:
    """Run one part here."""
    sys.path.insert(0, str(REPOSITORY))
    parts: dict[str, Callable[[bool], None]] = {
        "exact": exact,
        "program": program,
        "ours": lambda smoke: ours(smoke),
        "ours_checkpointed": lambda smoke: ours(smoke, activation_checkpointing=True),
        "ours_compiled": lambda smoke: ours(smoke, compile=True),
        "ours_compiled_checkpointed": lambda smoke: ours(smoke, compile=True, activation_checkpointing=True),
        "trl": lambda smoke: trl(smoke, rows=8),
        "trl_small_rows": lambda smoke: trl(smoke, rows=2),
        "full_logits": full_logits,
        "lora_8b": lora,
        "offload_4b": lambda smoke: offload(smoke, "4B"),
        "offload_8b": lambda smoke: offload(smoke, "8B"),
    }
    try:
        parts[name](smoke)
    except BaseException:
        traceback.print_exc()
        raise


def exact(smoke: bool) -> None:
    """Packed attention and the chunked head against plain PyTorch, values and gradients; the head's time and memory."""
    import torch

    from tasks.update.attention import packed_attention
    from tasks.update.head import chunked_token_scores, token_scores

    device = _device()
    torch.manual_seed(0)
    result: dict[str, Any] = {"device": _device_name(), "torch": torch.__version__}
    half = torch.bfloat16
    lengths = [5, 300, 1, 77, 129] if smoke else [700, 3000, 1, 128, 2049]
    boundaries = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32, device=device)
    total, heads, key_heads, width = sum(lengths), 16, 8, 128
    q, k, v = (torch.randn(1, h, total, width, device=device, dtype=half) for h in (heads, key_heads, key_heads))
    weights = torch.randn(1, total, heads, width, device=device)

    def attend(query: Any, key: Any, value: Any) -> tuple[Any, list[Any]]:
        inputs = [tensor.detach().clone().requires_grad_() for tensor in (query, key, value)]
        longest = 1 << (max(lengths) - 1).bit_length()
        out, _ = packed_attention(torch.nn.Module(), *inputs, None, None, boundaries, longest)
        (out.float() * weights).sum().backward()
        return out, [tensor.grad for tensor in inputs]

    found, gradients = attend(q, k, v)
    expected, expected_gradients = attend(q.float(), k.float(), v.float())
    result["attention_error"] = _relative(found, expected)
    result["attention_gradient_errors"] = [_relative(a, b) for a, b in zip(gradients, expected_gradients, strict=True)]
    say(result)
    rows, hidden_size, vocabulary = (64, 32, 1000) if smoke else (4096, 1024, 151936)
    hidden = torch.randn(rows, hidden_size, device=device)
    weight = torch.randn(vocabulary, hidden_size, device=device) * 0.02
    targets = torch.randint(0, vocabulary, (rows,), device=device)
    of_scores, of_entropies = torch.randn(rows, device=device), torch.randn(rows, device=device)

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
            zip(names, [_relative(a, b) for a, b in zip(got, reference, strict=True)], strict=True)
        )
        del got
    say(result)
    del reference
    gc.collect()
    for label, function in (("chunked", chunked_token_scores), ("plain", plain)):
        head(function, half)
        _reset_peak()
        before = _allocated()
        began = _now()
        for _ in range(3):
            head(function, half)
        result[f"{label}_head"] = {"ms": round((_now() - began) / 3 * 1e3, 1), "extra_gib": round(_peak() - before, 2)}
    say(result)


def ours(smoke: bool, **settings: Any) -> None:
    """Our engine on the recorded batch: tokens/s of a warm optimizer step, share of the peak, peak memory.

    Compiled and checkpointed it then trains on sequences of 16,384 tokens, nearly all learnt: the shape for which prime-rl
    publishes 11.9k tokens/s, 11 % MFU and 12.5 GiB on one H100.
    """
    from benchmarks.recorded_batch import recorded_batch

    samples = _batch(smoke).samples()
    engine, step = _engine("smoke" if smoke else "0.6B", tokens_per_rank=16384, **settings)
    result = _report_steps(engine, lambda: step(samples), samples, {"settings": settings}, steps=3)
    if settings.get("compile") and settings.get("activation_checkpointing"):
        longest = 256 if smoke else 16384
        long = recorded_batch(1, 3, 1000 if smoke else 151000, longest - 1, longest, prompt_share=0.01).samples()
        _report_steps(engine, lambda: step(long), long, {}, steps=2, under=("anchor_16k", result))


def program(smoke: bool) -> None:
    """The whole rank program, from a policy on disk to the next checkpoint: two steps, the policy scoring the batch first."""
    import torch

    from tasks.models.policy import save_policy
    from tasks.models.tokenizer import train_tokenizer
    from tasks.update.config import UpdateConfig
    from tasks.update.context import RankContext
    from tasks.update.program import UpdateJob, update_program
    from tasks.update.sample import SampleSet

    _process_group()
    batch = _batch(smoke, size=16)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = train_tokenizer(["x = 1\n"] * 9, 300, Path(folder, "tokenizer"))
        model = _model("smoke" if smoke else "0.6B", torch.bfloat16)
        save_policy(model, tokenizer, Path(folder, "policy"))
        del model
        job = UpdateJob(
            policy=Path(folder, "policy"),
            policy_digest="policy",
            reference=None,
            reference_digest=None,
            dtype="bfloat16" if torch.cuda.is_available() else "float32",
            samples=SampleSet(batch.samples(-11.0), len(set(batch.groups)), 0, 0, 0),
            config=UpdateConfig(
                optimizer_steps=2, epochs=2, tokens_per_rank=16384, kl_coefficient=0.0, activation_checkpointing=True
            ),
            iteration=0,
            total_iterations=1,
            seed=0,
            folder=Path(folder, "next"),
        )
        job.folder.mkdir()
        began = _now()
        rows = next(said["rows"] for said in update_program(RankContext(0, 1), job) if "rows" in said)
        written = sum(file.stat().st_size for file in job.folder.rglob("*") if file.is_file())
        say(
            {
                "seconds": round(_now() - began, 1),
                "checkpoint_gib": round(written / 2**30, 2),
                "rows": [{name: _short(value) for name, value in row.items()} for row in (rows[0], rows[-1])],
            }
        )


def lora(smoke: bool) -> None:
    """The 8B shape with adapters of rank 16 on all linear layers."""
    batch = _batch(smoke, size=24)
    from tasks.update.config import LoraConfig

    settings: dict[str, Any] = {"activation_checkpointing": True, "lora": LoraConfig()}
    samples = batch.samples()
    engine, step = _engine("smoke" if smoke else "8B", tokens_per_rank=16384, **settings)
    trained = sum(parameter.numel() for parameter in engine.trained)
    _report_steps(engine, lambda: step(samples), samples, {"trained": trained}, steps=2)


def offload(smoke: bool, shape: str) -> None:
    """All weights of a shape whose optimizer state does not fit the GPU: master weights and moments in the host's memory."""
    batch = _batch(smoke, size=24)
    file = (
        REPOSITORY
        / "deployments"
        / "deepspeed"
        / ("zero3-offload-partly.json" if shape == "8B" else "zero2-offload.json")
    )
    settings = {"activation_checkpointing": True, "deepspeed": str(file)}
    if smoke and shape == "8B":
        say({"skipped": "needs a GPU"})
        return
    samples = batch.samples()
    engine, step = _engine("smoke" if smoke else shape, tokens_per_rank=16384, **settings)
    _report_steps(engine, lambda: step(samples), samples, {"file": file.name, "host_gib": _host_gib()}, steps=2)


def trl(smoke: bool, rows: int) -> None:
    """TRL's GRPOTrainer with its defaults: float32 weights under bfloat16 autocast, activation checkpointing, its chunked head."""
    import torch
    import transformers

    from benchmarks.trl_peer import run_trl
    from tasks.models.tokenizer import train_tokenizer

    batch = _batch(smoke)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = train_tokenizer(["x = 1\n"] * 9, 300, Path(folder))
        model = _model("smoke" if smoke else "0.6B", torch.float32)
        _reset_peak()
        try:
            run = run_trl(model, tokenizer, batch, rows, steps=2, bf16=torch.cuda.is_available())
        except torch.OutOfMemoryError:
            say({"rows": rows, "error": "out of memory"})
            if rows == 1:
                raise
            exhausted = True
        else:
            exhausted = False
    if exhausted:  # here, where the traceback no longer holds the tensors
        del model
        trl(smoke, max(rows // 4, 1))
        return
    seconds = run.steps[-1].seconds
    say(
        {
            "version": __import__("trl").__version__,
            "transformers": transformers.__version__,
            "rows": rows,
            "tokens_per_s": round(batch.tokens / seconds),
            "first_step_s": round(run.steps[0].seconds, 2),
            "step_s": round(seconds, 2),
            "loss": run.steps[-1].loss,
            "gradient_norm": run.steps[-1].gradient_norm,
            "peak_gib": round(_peak(), 2),
        }
    )


def full_logits(smoke: bool) -> None:
    """Plain Transformers: padded rows of 2, full logits in the model's own forward pass, bfloat16 weights, AdamW, checkpointing."""
    import torch

    from benchmarks.trl_peer import padded_tensors

    batch = _batch(smoke)
    device = _device()
    model = _model("smoke" if smoke else "0.6B", torch.bfloat16)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=device.type == "cuda")
    tensors = padded_tensors(batch, 0, device)
    _reset_peak()
    seconds = 0.0
    for _ in range(2):
        began = _now()
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
        seconds = _now() - began
    say({"tokens_per_s": round(batch.tokens / seconds), "step_s": round(seconds, 2), "peak_gib": round(_peak(), 2)})


# -------------------------------------------------------------------------------------------------------------- support


def _batch(smoke: bool, size: int = 32) -> Any:
    from benchmarks.recorded_batch import recorded_batch

    if smoke:
        return recorded_batch(size // 4, 4, 1000, 16, 256)
    return recorded_batch(size // 4, 4, 151000, 512, 8192)


def _engine(shape: str, **settings: Any) -> tuple[Any, Callable[[Sequence[Any]], dict[str, float]]]:
    """Return an engine on a new model, and what runs one optimizer step on samples."""
    import torch

    from tasks.update.config import UpdateConfig
    from tasks.update.context import RankContext
    from tasks.update.engine import PolicyEngine, engine_settings
    from tasks.update.lora import add_adapters
    from tasks.update.preparation import Prepared
    from tasks.update.step import optimizer_step, throughput

    _process_group()
    dtype = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    model = _model(shape, dtype)
    config = UpdateConfig(kl_coefficient=0.0, entropy_coefficient=0.0, **settings)
    if config.lora is not None:
        add_adapters(model, config.lora)
    engine = PolicyEngine(model, engine_settings(config, str(dtype).removeprefix("torch.")))

    def step(samples: Sequence[Any]) -> dict[str, float]:
        advantages = [torch.full((sample.responded,), sample.advantage) for sample in samples]
        prepared = Prepared(None, advantages, None, None, None, corrected=False, mismatch=None)
        rows = list(range(len(samples)))
        longest = max(sample.responded for sample in samples)
        began = _now()
        figures = optimizer_step(RankContext(0, 1), engine, None, config, samples, rows, prepared, 1e-6, longest)
        seconds = _now() - began
        return figures | throughput(engine, samples, seconds, 1) | {"seconds": seconds}

    return engine, step


def _report_steps(
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
        "held_gib": round(_allocated(), 2),
    }
    for number in range(1 + steps):
        if number == 1:
            _reset_peak()
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
        )
        found = {name: _short(figures[name]) for name in kept if name in figures}
        if number == 0:
            result["first_step_s"] = found["seconds"]
        elif found["tokens_per_s"] > result.get("tokens_per_s", 0):
            result |= found
        result["peak_gib"] = round(_peak(), 2)
        result["reserved_gib"] = round(_reserved(), 2)
        say(result if under is None else under[1] | {under[0]: result})
    return result


def _model(shape: str, dtype: Any) -> Any:
    """Return a model of the shape with random weights, made on the device."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    given = dict(SHAPES[shape])
    small = shape == "smoke"
    config = Qwen3Config(
        vocab_size=1024 if small else 151936,
        num_key_value_heads=2 if small else 8,
        head_dim=32 if small else 128,
        max_position_embeddings=32768,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        tie_word_embeddings=given.pop("tie"),
        attn_implementation="sdpa",
        **given,
    )
    if not torch.cuda.is_available():
        dtype = torch.float32
    torch.manual_seed(0)
    torch.set_default_dtype(dtype)
    try:
        with _device():
            model = Qwen3ForCausalLM(config)
    finally:
        torch.set_default_dtype(torch.float32)
    for name, buffer in model.named_buffers():
        assert buffer.dtype == torch.float32, f"{name} is {buffer.dtype}"
    model.config.dtype = dtype
    return model


def _process_group() -> None:
    """A process group of one, as Ray's rank makes it."""
    import torch
    from torch import distributed

    from tasks.update.deepspeed_config import import_deepspeed

    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    if torch.cuda.is_available():
        torch.cuda.set_device(0)
    store = distributed.HashStore()
    distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo", store=store, rank=0, world_size=1)
    import_deepspeed().init_distributed(auto_mpi_discovery=False, verbose=False)


def _device() -> Any:
    import torch

    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _device_name() -> str:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"


def _now() -> float:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def _allocated() -> float:
    import torch

    return torch.cuda.memory_allocated() / 2**30 if torch.cuda.is_available() else 0.0


def _peak() -> float:
    import torch

    return torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else 1.0


def _reserved() -> float:
    import torch

    return torch.cuda.max_memory_reserved() / 2**30 if torch.cuda.is_available() else 0.0


def _reset_peak() -> None:
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def _host_gib() -> float:
    import resource

    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 1)


def _relative(found: Any, expected: Any) -> float:
    return float(f"{float((found.float() - expected.float()).norm() / expected.float().norm()):.2e}")


def _short(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value


if __name__ == "__main__":
    main()
