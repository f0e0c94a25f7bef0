"""Our update against TRL's GRPOTrainer: loss, gradient norm, tokens/s, memory on one model and recorded batch.

    taskset -c 0,1 python benchmarks/update.py [--rounds 3] [--steps 3] [--groups 8] [--samples 8]
                                               [--shortest 32] [--longest 640] [--prompt-share 0.25]
                                               [--packing shared]

Each side takes whole optimizer steps (forward, backward, clip, AdamW) in separate processes, alternately; the median
step counts, in wall and in processor time. TRL runs twice: with its defaults (activation checkpointing), and without,
which is faster on a CPU. Old log-probabilities are the policy's with noise, so that some tokens are clipped. Memory is
the process's peak resident set, and its growth. tools/gpu/update_on_gpu.py does the same on a GPU.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from peers import require_peers

ROOT = Path(__file__).parents[1]
SIDES = ("ours", "trl", "trl_without_checkpointing")
MARK = "RESULT "
CLIP_HIGH, CLIP_LOW, RATE, NOISE = 0.28, 0.2, 1e-4, 0.3


def main() -> None:
    """Run all sides alternately, and compare."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3, help="timed optimizer steps a process, after one that is not")
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--samples", type=int, default=8, help="responses a prompt")
    parser.add_argument("--shortest", type=int, default=32, help="tokens of the shortest sequence, prompt included")
    parser.add_argument("--longest", type=int, default=640)
    parser.add_argument("--prompt-share", type=float, default=0.25, help="prompt's part of a group's shortest sequence")
    parser.add_argument("--packing", choices=("auto", "packed", "padded", "shared"), default="auto")
    parser.add_argument("--vocabulary", type=int, default=2048)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--budget", type=int, default=8192, help="update.tokens_per_rank")
    parser.add_argument("--rows", type=int, default=8, help="TRL's per_device_train_batch_size (8 is its default)")
    parser.add_argument("--json", type=Path, help="write all figures to this file as well")
    parser.add_argument("--one", choices=(*SIDES, "prepare"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        one(given)
        return
    require_peers("trl", "datasets")
    with tempfile.TemporaryDirectory() as folder:
        given.folder = Path(folder)
        shape = run_side("prepare", given)
        print(
            f"{shape['parameters'] / 1e6:.2f} M parameters, {given.groups * given.samples} sequences of "
            f"{given.shortest} to {given.longest} tokens, {shape['tokens']} tokens, "
            f"{shape['response_tokens']} of them learnt; {given.threads} threads"
        )
        found: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
        for number in range(given.rounds):
            for side in SIDES:
                found[side].append(run_side(side, given))
                times = "{seconds} s, processor {cpu_seconds} s".format(**found[side][-1])
                print(f"round {number + 1}: {side}: {times}", flush=True)
    figures = compare(found, shape["tokens"])
    print(json.dumps(figures, indent=1))
    if given.json is not None:
        given.json.write_text(json.dumps(figures | {"rounds": found, "batch": shape}, indent=1), encoding="utf-8")


def compare(found: dict[str, list[dict[str, Any]]], tokens: int) -> dict[str, Any]:
    """Return the medians of each side, and ours compared with each of TRL's."""
    figures: dict[str, Any] = {}
    for side, runs in found.items():
        seconds = [value for run in runs for value in run["seconds"]]
        figures[side] = {
            "tokens_per_s": round(tokens / statistics.median(seconds)),
            "step_s": round(statistics.median(seconds), 3),
            "cpu_s": round(statistics.median(value for run in runs for value in run["cpu_seconds"]), 3),
            "step_s_range": [round(min(seconds), 3), round(max(seconds), 3)],
            "peak_mib": round(statistics.median(run["peak_mib"] for run in runs)),
            "added_mib": round(statistics.median(run["added_mib"] for run in runs)),
            "loss": runs[0]["loss"],
            "gradient_norm": runs[0]["gradient_norm"],
        }
    ours = figures["ours"]
    for side in SIDES[1:]:
        their = figures[side]
        figures[f"ours / {side}"] = {
            "tokens_per_s": round(ours["tokens_per_s"] / their["tokens_per_s"], 2),
            "tokens_per_cpu_s": round(their["cpu_s"] / ours["cpu_s"], 2),
            "peak_memory": round(ours["peak_mib"] / their["peak_mib"], 2),
            "added_memory": round(ours["added_mib"] / max(their["added_mib"], 1), 2),
            "loss_difference": float(f"{abs(ours['loss'] - their['loss']):.1e}"),
            "gradient_norm_difference": float(f"{abs(ours['gradient_norm'] - their['gradient_norm']):.1e}"),
        }
    return figures


def run_side(side: str, given: argparse.Namespace) -> dict[str, Any]:
    """Run one side in a separate process."""
    settings = {name: value for name, value in vars(given).items() if name not in ("one", "json") and value is not None}
    arguments = [part for name, value in settings.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "OMP_NUM_THREADS": str(given.threads),
        "DS_ACCELERATOR": "cpu",
        "GOMP_SPINCOUNT": "10000",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    command = [sys.executable, __file__, "--one", side, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if done.returncode or not lines:
        raise SystemExit(f"{side} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return json.loads(lines[-1][len(MARK) :])


# -------------------------------------------------------------------------------------------- in a separate process


def one(given: argparse.Namespace) -> None:
    """Run one side in this process and print its results."""
    import torch

    torch.set_num_threads(given.threads)
    result = {"prepare": prepare, "ours": ours, "trl": trl, "trl_without_checkpointing": trl}[given.one](given)
    print(MARK + json.dumps(result))


def recorded(given: argparse.Namespace) -> Any:
    from benchmarks.recorded_batch import recorded_batch

    lengths = given.shortest, given.longest
    return recorded_batch(given.groups, given.samples, given.vocabulary, *lengths, given.prompt_share)


def prepare(given: argparse.Namespace) -> dict[str, Any]:
    """Write the policy, and old log-probabilities: the policy's own from plain Transformers, with noise."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=given.vocabulary,
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    model = Qwen3ForCausalLM(config).eval()
    model.save_pretrained(given.folder / "policy")
    batch = recorded(given)
    random = np.random.default_rng(1)
    rows: list[list[float]] = []
    with torch.no_grad():
        for prompt, response in zip(batch.prompts, batch.responses, strict=True):
            token_ids = torch.tensor([prompt + response])
            scores = model(input_ids=token_ids).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
            own = scores.gather(-1, token_ids[0, len(prompt) :, None]).squeeze(-1).numpy()
            rows.append((own + random.normal(0, NOISE, len(own))).astype(np.float32).tolist())
    (given.folder / "old_log_probs.json").write_text(json.dumps(rows))
    return {"parameters": model.num_parameters(), "tokens": batch.tokens, "response_tokens": batch.response_tokens}


def ours(given: argparse.Namespace) -> dict[str, Any]:
    """Take optimizer steps of our engine, in a process group of one, as a Ray rank takes them."""
    import torch
    from torch import distributed

    from tasks.models.policy import load_policy
    from tasks.training.deepspeed_config import import_deepspeed
    from tasks.training.engine import PolicyEngine, engine_settings
    from tasks.update.config import UpdateConfig
    from tasks.update.precompute import Prepared
    from tasks.update.step import optimizer_step

    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    import_deepspeed().init_distributed(auto_mpi_discovery=False, verbose=False)
    batch = recorded(given)
    samples = batch.samples()
    plain: dict[str, Any] = {"kl_coefficient": 0.0, "entropy_coefficient": 0.0, "dual_clip": None}
    plain |= {"clip_low": CLIP_LOW, "clip_high": CLIP_HIGH, "tokens_per_rank": given.budget, "packing": given.packing}
    config = UpdateConfig(**plain)
    engine = PolicyEngine(load_policy(given.folder / "policy"), engine_settings(config, "float32"))
    old = [torch.tensor(row) for row in json.loads((given.folder / "old_log_probs.json").read_text())]
    advantages = [torch.full((sample.responded,), sample.score) for sample in samples]
    prepared = Prepared(old, advantages, None, None, None, corrected=False, mismatch=None)
    places, longest = list(range(len(samples))), max(sample.responded for sample in samples)
    before = resident_mib()
    seconds: list[float] = []
    cpu_seconds: list[float] = []
    figures: list[dict[str, float]] = []
    for _ in range(given.steps + 1):
        began, began_cpu = time.perf_counter(), time.process_time()
        figures.append(optimizer_step(engine, None, config, samples, places, prepared, RATE, longest))
        seconds.append(time.perf_counter() - began)
        cpu_seconds.append(time.process_time() - began_cpu)
    return measurements(seconds, cpu_seconds, before, figures[0]["loss"], figures[0]["gradient_norm"]) | {
        "clip_fraction": figures[0]["clip_fraction"],
        "padding_fraction": figures[0]["padding_fraction"],
        "shared_fraction": figures[0]["shared_fraction"],
    }


def trl(given: argparse.Namespace) -> dict[str, Any]:
    """Take optimizer steps of TRL's GRPOTrainer."""
    from benchmarks.trl_peer import run_trl
    from tasks.models.policy import load_policy
    from tasks.models.tokenizer import train_tokenizer

    tokenizer = train_tokenizer(["x = 1\n"] * 9, 300, given.folder / "tokenizer")
    before = resident_mib()
    steps = run_trl(
        load_policy(given.folder / "policy"),
        tokenizer,
        recorded(given),
        given.rows,
        given.steps + 1,
        learning_rate=RATE,
        old_log_probs=json.loads((given.folder / "old_log_probs.json").read_text()),
        bf16=False,
        gradient_checkpointing=given.one == "trl",
    )
    first, seconds, cpu_seconds = steps[0], [step.seconds for step in steps], [step.cpu_seconds for step in steps]
    return measurements(seconds, cpu_seconds, before, first.loss, first.exact_gradient_norm) | {
        "logged_norm": first.gradient_norm
    }


def measurements(
    seconds: list[float], cpu_seconds: list[float], before: float, loss: float, norm: float
) -> dict[str, Any]:
    """Return one side's results: loss and norm of the first step, times of the others, as the first fills caches."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    return {
        "seconds": [round(value, 3) for value in seconds[1:]],
        "cpu_seconds": [round(value, 3) for value in cpu_seconds[1:]],
        "peak_mib": round(peak),
        "added_mib": round(peak - before),
        "loss": loss,
        "gradient_norm": norm,
    }


def resident_mib() -> float:
    """Return this process's memory in use."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


if __name__ == "__main__":
    main()
