"""Tokenizers with the chat templates of the model families that people train, built as those families' are."""

import functools
from pathlib import Path
from typing import Any

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
    "mistral": ["<s>", "<unk>", "[INST]", "[/INST]", "</s>"],
    "gemma4": ["<bos>", "<pad>", "<|turn>", "<|channel>", "<channel|>", "<|think|>", "<turn|>"],
    "glm4.5": ["[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|endoftext|>"],
    "deepseek-r1-distill": [
        "<｜begin▁of▁sentence｜>",
        "<｜pad｜>",
        "<｜User｜>",
        "<｜Assistant｜>",
        "<｜end▁of▁sentence｜>",
    ],
}
_SPECIAL |= {
    "cohere": [
        "<BOS_TOKEN>",
        "<PAD_TOKEN>",
        "<|START_OF_TURN_TOKEN|>",
        "<|SYSTEM_TOKEN|>",
        "<|USER_TOKEN|>",
        "<|CHATBOT_TOKEN|>",
        "<|START_RESPONSE|>",
        "<|END_RESPONSE|>",
        "<|END_OF_TURN_TOKEN|>",
    ],
    "minimax": ["]~!b[", "]!d~[", "]~b]", "[e~["],
    "kimi": ["[BOS]", "[PAD]", "<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>", "<|im_end|>"],
    "glm4.7": _SPECIAL["glm4.5"],
    "deepseek-v3.1": _SPECIAL["deepseek-r1-distill"],
}
"""Special tokens by template: the first begins a text, the last one ends it; others than Qwen's and Llama's."""


@functools.cache
def fixture_tokenizer(template: str) -> Any:
    """Return the tokenizer of a file in tests/fixtures/chat_templates, by its name without the suffix."""
    return templated_tokenizer(template, (TEMPLATES / f"{template}.jinja").read_text(encoding="utf-8").strip("\n"))


def templated_tokenizer(template: str, text: str) -> Any:
    """Return a tokenizer as Qwen's (NFC, thoughts' tags as ordinary tokens) or Llama 3's (trimmed offsets, bos).

    `template`: name of the fixture whose special tokens it has; `text`: the chat template itself.
    """
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
        bos = processors.TemplateProcessing(f"{names[0]} $A", special_tokens=[(names[0], 0)])
        tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), bos])
    else:
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
        tokenizer.add_tokens([AddedToken(name, special=False, normalized=False) for name in ("<think>", "</think>")])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=names[0] if llama or template in _SPECIAL else None,
        eos_token=names[-1],
        pad_token=names[1] if llama else names[0],
        clean_up_tokenization_spaces=False,
        chat_template=text,
    )
