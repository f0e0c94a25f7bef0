"""Inputs and figures of run_qwen3_shape.sh: a random model of Qwen3's shape with a full vocabulary, problems, pairs, samples of memory.

    python tools/gpu/qwen3_shape.py inputs FOLDER 0.6B     # FOLDER/model, FOLDER/KernelBench, FOLDER/kernelbook.jsonl
    python tools/gpu/qwen3_shape.py watch FILE             # a line of host memory each second, until it is ended
    python tools/gpu/qwen3_shape.py report OUT             # seconds a stage beside the plan's, and the most memory

The tokenizer is of Qwen3's format, with its control tokens at their ids; every other id is a merge, so that whatever a
random model samples can be decoded.
"""

import csv
import json
import math
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(REPOSITORY))
GIB = 2**30
BASE = 151_643
"""Merges and bytes of Qwen3; the control tokens follow, then ids that are reserved there and merges here."""
VOCABULARY = 151_936
SMALL = 4_096
"""Vocabulary of `tiny-small`."""
CONTROL = [
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>",
    "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
    "<|image_pad|>", "<|video_pad|>", "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>",
    "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>", "<think>",
    "</think>",
]  # fmt: skip
NOT_SPECIAL = frozenset(CONTROL[CONTROL.index("<tool_call>") :])
"""Written by the model itself, not skipped in decoding."""
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LEARNED_MERGES = 8_000
STOP_DEVIATION = 4.0
"""Standard deviation of the logit of <|im_end|>: random answers then end after some 1,000 tokens, a few much earlier."""
PROBLEMS = 24
PAIRS = 120


def write_inputs(folder: Path, shape: str) -> None:
    """Write model, problems and pairs; what is there already is kept."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = generated_rows()
    if not (folder / "kernelbook.jsonl").exists():
        write_problems(folder / "KernelBench", rows[:PROBLEMS])
        write_pairs(folder / "kernelbook.jsonl", rows[PROBLEMS:])
    if not (folder / "model" / "config.json").exists():
        size = SMALL if shape == "tiny-small" else VOCABULARY
        tokenizer = write_tokenizer(folder / "model", size, [text for row in rows for text in row])
        write_model(folder / "model", "smoke" if shape.startswith("tiny") else shape, size, tokenizer)


def generated_rows() -> list[tuple[str, str, str]]:
    """Return (level, problem source, kernel source) of distinct compositions of the project's own suite."""
    from tasks.problems.config import ProblemsConfig
    from tasks.problems.row import Split
    from tasks.problems.synthetic.suite import generate_problems

    config = ProblemsConfig(train=PROBLEMS + PAIRS, heldout=1, levels=(1, 2), sizes="gpu")
    rows = [row for row in generate_problems(config) if row.split is Split.TRAIN]
    return [(str(row.problem.level), row.problem.source, row.reference_kernel or "") for row in rows]


def write_problems(folder: Path, rows: list[tuple[str, str, str]]) -> None:
    """Write problems as a KernelBench checkout has them: level1/1_name.py."""
    for number, (level, source, _) in enumerate(rows, start=1):
        file = folder / f"level{level}" / f"{number}_Generated{number}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source, encoding="utf-8")


def write_pairs(file: Path, rows: list[tuple[str, str, str]]) -> None:
    """Write pairs with KernelBook's columns and its form of `get_init_inputs`."""
    lines = []
    for number, (_, source, kernel) in enumerate(rows, start=1):
        name = f"Generated{number}"
        problem = re.sub(r"\bModel\b", name, source)
        problem = re.sub(r"(def get_init_inputs\(\):\n    return )(.*)", r"\1[\2, {}]", problem)
        code = re.sub(r"\bModelNew\b", f"{name}New", kernel)
        lines.append(json.dumps({"entry_point": name, "python_code": problem, "triton_code": code}))
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_tokenizer(folder: Path, size: int, texts: list[str]) -> Any:
    """Write a byte-level BPE of so many ids in Qwen3's files and return it, loaded as the project loads it."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    from tasks.models.tokenizer import load_tokenizer

    cut = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    vocabulary, merges = _vocabulary(cut, size, texts)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = cut
    tokenizer.decoder = decoders.ByteLevel()
    added = [AddedToken(token, special=token not in NOT_SPECIAL, normalized=False) for token in CONTROL]
    for token in added:
        (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    base = {token: number for token, number in vocabulary.items() if token not in CONTROL}
    (folder / "vocab.json").write_text(json.dumps(base, ensure_ascii=False), encoding="utf-8")
    (folder / "merges.txt").write_text("".join(f"{one} {other}\n" for one, other in merges), encoding="utf-8")
    shared = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": False}
    settings = {
        "tokenizer_class": "Qwen2Tokenizer",
        "added_tokens_decoder": {
            str(vocabulary[token]): {"content": token, "special": token not in NOT_SPECIAL, **shared}
            for token in CONTROL
        },
        "chat_template": (REPOSITORY / "tests/fixtures/chat_templates/qwen3.jinja").read_text(encoding="utf-8"),
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "bos_token": None,
        "unk_token": None,
        "add_prefix_space": False,
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 131072,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2), encoding="utf-8")
    loaded = load_tokenizer(folder)
    assert len(loaded) == size, f"{len(loaded)} tokens, expected {size}"
    assert loaded.convert_tokens_to_ids("<|im_end|>") == vocabulary["<|im_end|>"]
    return loaded


def _vocabulary(cut: Any, size: int, texts: list[str]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Return so many tokens with their ids, and the merges that make them: learned ones, then any that are new.

    `cut`: the pre-tokenizer whose pieces are merged.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    sources = [path.read_text(encoding="utf-8") for path in sorted((REPOSITORY / "tasks").rglob("*.py"))]
    reserved = max(VOCABULARY - BASE - len(CONTROL), 0) if size == VOCABULARY else 0
    first_control = size - reserved - len(CONTROL)
    learned = Tokenizer(models.BPE())
    learned.pre_tokenizer = cut
    wanted = min(256 + LEARNED_MERGES, first_control)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=wanted, initial_alphabet=alphabet, show_progress=False)
    learned.train_from_iterator(texts + sources, trainer=trainer)
    merges = [(str(one), str(other)) for one, other in json.loads(learned.to_str())["model"]["merges"]]
    tokens = [*sorted(alphabet), *("".join(pair) for pair in merges)]
    for pair in _further_merges(tokens, size - len(CONTROL) - len(tokens)):
        merges.append(pair)
        tokens.append("".join(pair))
    tokens[first_control:first_control] = CONTROL
    assert len(set(tokens)) == size, f"{len(set(tokens))} distinct tokens, expected {size}"
    return {token: number for number, token in enumerate(tokens)}, merges


def _further_merges(tokens: list[str], count: int) -> Iterator[tuple[str, str]]:
    """Yield pairs of known tokens that make so many new ones, frequent tokens first."""
    ordered, taken = tokens[256:] + tokens[:256], set(tokens)
    for total in range(2 * len(tokens)):
        for place in range(max(0, total - len(tokens) + 1), min(total, len(tokens) - 1) + 1):
            if count <= 0:
                return
            pair = ordered[place], ordered[total - place]
            if "".join(pair) not in taken:
                taken.add("".join(pair))
                count -= 1
                yield pair


def write_model(folder: Path, shape: str, size: int, tokenizer: Any) -> None:
    """Write a model of the shape with random weights, in shards below 5 GB; made on the GPU if there is one."""
    import torch
    from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM
    from update_models import SHAPES, device

    given = dict(SHAPES[shape])
    small = shape == "smoke"
    stops = [tokenizer.convert_tokens_to_ids(token) for token in ("<|im_end|>", "<|endoftext|>")]
    config = Qwen3Config(
        vocab_size=size,
        num_key_value_heads=2 if small else 8,
        head_dim=32 if small else 128,
        max_position_embeddings=40960,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        tie_word_embeddings=given.pop("tie"),
        eos_token_id=stops[0],
        pad_token_id=stops[1],
        bos_token_id=None,
        **given,
    )
    dtype = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    torch.manual_seed(0)
    torch.set_default_dtype(dtype)
    try:
        with device():
            model: Any = Qwen3ForCausalLM(config)
    finally:
        torch.set_default_dtype(torch.float32)
    model.config.dtype = dtype
    with torch.no_grad():  # the head gives each logit a deviation of initializer_range · √hidden
        model.lm_head.weight[stops[0]] *= STOP_DEVIATION / (config.initializer_range * math.sqrt(config.hidden_size))
    model.generation_config = GenerationConfig(
        eos_token_id=stops, pad_token_id=stops[1], do_sample=True, temperature=0.6, top_k=20, top_p=0.95
    )
    model.save_pretrained(str(folder), max_shard_size="4GB")
    weights = sum(parameter.numel() for parameter in model.parameters())
    files = [file.stat().st_size / GIB for file in folder.glob("*.safetensors")]
    print(f"{weights:,} weights in {len(files)} files, {sum(files):.1f} GiB, the largest {max(files):.1f}")


def watch(file: Path) -> None:
    """Append used host memory each second (machine, control group, processes' own; GiB), and copy SGLang's logs."""
    with file.open("w", encoding="utf-8") as stream:
        print("time,machine_gib,cgroup_gib,processes_gib", file=stream, flush=True)
        while True:
            meminfo = dict(re.findall(r"^(\w+):\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE))
            machine = (int(meminfo["MemTotal"]) - int(meminfo["MemAvailable"])) / 2**20
            group = Path("/sys/fs/cgroup/memory.current")
            held = int(group.read_text()) / GIB if group.is_file() else math.nan
            for log in Path(tempfile.gettempdir()).glob("kernelmill-sglang-*.log"):
                with suppress(OSError):  # a server removes its log when it is stopped
                    shutil.copyfile(log, file.with_name(log.name))
            print(f"{time.time():.0f},{machine:.2f},{held:.2f},{_processes_gib():.2f}", file=stream, flush=True)
            time.sleep(1)


def _processes_gib() -> float:
    total = 0
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            total += sum(int(size) for size in re.findall(r"^Rss(?:Anon|Shmem):\s+(\d+)", status.read_text(), re.M))
        except OSError:  # the process has ended
            continue
    return total / 2**20


def report(out: Path) -> None:
    """Print each stage's seconds beside the plan's, and the most memory of each GPU and of the host."""
    said = (out / "plan.log").read_text(encoding="utf-8")
    planned = re.search(r"rollout (\d+) s, update (\d+) s and (\d+) s to save it.*?engine starts in (\d+) s", said)
    expected = {"rollout": planned[1], "update": str(sum(map(int, planned.groups()[1:])))} if planned else {}
    if (out / "summary.json").is_file():
        summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
        for stage, seconds in summary["stage_seconds"].items():
            print(f"{stage}: {seconds:.1f} s" + (f", planned {expected[stage]}" if stage in expected else ""))
        print(f"all: {summary['wall_seconds']:.1f} s, {summary['orchestration_seconds']:.1f} of them between stages")
        for iteration in summary["iterations"]:
            print({name: value for name, value in iteration.items() if value is not None})
    most: dict[str, float] = {}
    if (out / "gpu.csv").is_file():
        for row in csv.reader((out / "gpu.csv").open(encoding="utf-8"), skipinitialspace=True):
            if len(row) != 4 or not row[3].endswith("MiB"):
                continue  # a line that is being written
            index, used = row[1], row[3]
            most[index] = max(most.get(index, 0.0), float(used.split()[0]) / 1024)
    for index, used in sorted(most.items()):
        print(f"GPU {index}: at most {used:.1f} GiB")
    rows = list(csv.DictReader((out / "host.csv").open(encoding="utf-8")))
    for name in ("machine_gib", "cgroup_gib", "processes_gib"):
        found = [float(row[name]) for row in rows if row[name] not in (None, "nan")]
        if found:
            print(f"host {name}: {found[0]:.1f} at first, at most {max(found):.1f}")


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command == "inputs":
        write_inputs(Path(arguments[0]), arguments[1])
    elif command == "watch":
        watch(Path(arguments[0]))
    else:
        report(Path(arguments[0]))
    sys.stdout.flush()
    os._exit(0)  # nothing is left to do; a CUDA context takes seconds to end
