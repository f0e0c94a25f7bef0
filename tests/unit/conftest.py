"""Tokenizers with the chat templates of the model families that people train, built as those families' are; and a run."""

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# Cores are shared with whatever else runs: how long one example takes says nothing.
settings.register_profile("shared-machine", deadline=None)
settings.load_profile("shared-machine")

TEMPLATES = Path(__file__).parents[1] / "fixtures" / "chat_templates"
_CORPUS = [
    "import torch\nimport triton\n\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n",
    "```python\nclass Model:\n    x = 1\n```\n\nNow make it faster, please. What went wrong? It's  twice   as slow!\n\n",
] * 8
_QWEN_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA_PIECES = _QWEN_PIECES.replace(r"\p{N}|", r"\p{N}{1,3}|")

_QWEN = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
_LLAMA = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
_SPECIAL = {
    "gemma3": ["<bos>", "<pad>", "<start_of_turn>", "<end_of_turn>"],
    "phi3.5": ["<s>", "<pad>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>", "<|endoftext|>"],
    "phi4": ["<|startoftext|>", "<|dummy|>", "<|im_start|>", "<|im_sep|>", "<|im_end|>"],
    "gpt-oss": ["<|startoftext|>", "<|endoftext|>", "<|start|>", "<|message|>", "<|channel|>", "<|end|>", "<|return|>"],
    "glm4.5": ["[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|endoftext|>"],
    "deepseek-r1-distill": [
        "<｜begin▁of▁sentence｜>",
        "<｜pad｜>",
        "<｜User｜>",
        "<｜Assistant｜>",
        "<｜end▁of▁sentence｜>",
    ],
}
"""Special tokens by template: the first begins a text, the last one ends it; others than Qwen's and Llama's."""


@functools.cache
def _tokenizer(template: str) -> Any:
    """Return a tokenizer as Qwen's (NFC, thoughts' tags as ordinary tokens) or Llama 3's (trimmed offsets, bos)."""
    from tokenizers import (
        AddedToken,
        Regex,
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        processors,
        trainers,
    )
    from transformers import PreTrainedTokenizerFast

    llama = template.startswith(("llama", "mistral"))
    names = _SPECIAL.get(template, _LLAMA if llama else _QWEN)
    tokenizer = Tokenizer(models.BPE())
    if not llama:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_LLAMA_PIECES if llama else _QWEN_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        _CORPUS,
        trainers.BpeTrainer(
            vocab_size=420,
            special_tokens=[AddedToken(name, special=True, normalized=False) for name in names],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    if llama:
        bos = processors.TemplateProcessing("<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", 0)])
        tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), bos])
    else:
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
        tokenizer.add_tokens([AddedToken(name, special=False, normalized=False) for name in ("<think>", "</think>")])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=names[0] if llama or template in _SPECIAL else None,
        eos_token="<|eot_id|>" if llama else names[-1],
        pad_token=names[1] if llama else names[0],
        clean_up_tokenization_spaces=False,
        chat_template=(TEMPLATES / f"{template}.jinja").read_text(encoding="utf-8").strip("\n"),
    )


@pytest.fixture(scope="session")
def family_tokenizer() -> Callable[[str], Any]:
    """Return the tokenizer of a file in tests/fixtures/chat_templates, by its name without the suffix."""
    return _tokenizer


@pytest.fixture(scope="session")
def invented_run() -> Callable[..., Path]:
    """`invented_run(runs_dir, weights=None, **changes)`: the folder of a run with made-up verdicts."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from imported import import_file

    return import_file(Path(__file__).parents[1] / "doubles" / "invented_run.py").make_run


@pytest.fixture
def run_folder(invented_run: Callable[..., Path], tmp_path: Path) -> Path:
    """The folder of a run of two iterations, whose policy 1 was not evaluated."""
    return invented_run(tmp_path / "runs")
