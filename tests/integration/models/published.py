"""Chat templates as their models publish them, read from packages that carry copies; none is kept in this repository."""

import ast
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tasks.models.generic_template import GenericTemplate

PACKAGES = {
    "trl": "1.16.0",
    "xinference": "4.1.0",
    "unsloth": "2026.10.9",
    "llama-cpp-python": "0.3.36",  # its source distribution carries llama.cpp's models/templates
}
"""Package and version: the tables in the documentation name them too.

llama.cpp's copies of DeepSeek and QwQ are its own: with them a prompt can close the reasoning that it opens.
"""
SOURCES = ("llama-cpp-python",)
"""Packages whose source distribution is needed."""

GPT_OSS_SYSTEM = r"(?s)^<\|start\|>system<\|message\|>.*?<\|end\|>"
"""Introduction of gpt-oss by itself, with the day."""
EFFORT = r"Reasoning effort is set to [^\n<]*"
"""Qwen3.8's sentence on how much to think."""
QWEN_SYSTEM = r"You are (Qwen, created by Alibaba Cloud\. You are )?a helpful assistant\."
DATE = r"Today Date: [^\n]*"


@dataclass(frozen=True)
class Published:
    """A published template, and what our code has to make of it."""

    model: str
    package: str
    file: str
    fixture: str | None
    """File of tests/fixtures/chat_templates that has to write the same text; None: there is none."""
    found: GenericTemplate | str
    """Fact that probes prove, or the reason to refuse it."""
    tokens: str = ""
    """Fixture whose special tokens its tokenizer has, where it is not `fixture`."""
    family: str = "generic"
    """Family that it is recognised as by its output."""
    system: str = ""
    """Reason to refuse conversations with a system prompt."""
    reasoning: str = ""
    """Reason to refuse answers with reasoning."""
    own_words: str = field(default="", repr=False)
    """Pattern of sentences that the fixture does not repeat, or that change with the day: not compared."""

    def __str__(self) -> str:
        return f"{self.model} ({self.package}: {self.file})"

    def text(self, folder: Path) -> str:
        """Return the template from the unpacked package."""
        return READERS[self.package](folder, self.file)


def _trl(folder: Path, file: str) -> str:
    return (folder / "trl" / "chat_templates" / f"{file}.jinja").read_text(encoding="utf-8")


def _xinference(folder: Path, file: str) -> str:
    path = folder / "xinference" / "model" / "llm" / "models" / f"{file}.json"
    found = json.loads(path.read_text(encoding="utf-8"))
    text = (found[0] if isinstance(found, list) else found)["chat_template"]
    if "\n" in text.partition("messages")[0] or not file.lower().startswith("deepseek-v3."):
        return text
    # Its line breaks are gone, and the next line's indentation is left where the template's writer cuts it away.
    return re.sub(r"(?<=[%}]\})\s+(?=\{[%{])", "", text)


def _unsloth(folder: Path, file: str) -> str:
    source = (folder / "unsloth" / "chat_templates.py").read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == file:
            return ast.literal_eval(node.value)
    raise KeyError(file)


def _llama_cpp(folder: Path, file: str) -> str:
    (path,) = folder.glob(f"llama_cpp_python-*/vendor/llama.cpp/models/templates/{file}.jinja")
    return path.read_text(encoding="utf-8")


READERS: dict[str, Callable[[Path, str], str]] = {
    "trl": _trl,
    "xinference": _xinference,
    "unsloth": _unsloth,
    "llama-cpp-python": _llama_cpp,
}


def _form(end: str, rewrites: bool = False, channels: bool = False) -> GenericTemplate:
    return GenericTemplate(end, rewrites=rewrites, channels=channels)


IM_END, EOT, GLM = _form("<|im_end|>"), _form("<|eot_id|>"), _form("<|user|>")
THINKS = _form("<|im_end|>", rewrites=True)
DEEPSEEK, R1 = _form("<｜end▁of▁sentence｜>"), _form("<｜end▁of▁sentence｜>", rewrites=True)
OSS = _form("<|return|>", rewrites=True, channels=True)
COHERE = _form("<|END_RESPONSE|><|END_OF_TURN_TOKEN|>")
MOVES = "does not continue its own generation prompt"
INTO_ANSWER = "writes an answer's reasoning into the answer itself"
DROPS = "drops an answer's reasoning, and its prompt opens none"

COPIES = (
    Published("Qwen2.5", "trl", "qwen2_5", "qwen2.5", IM_END, family="qwen"),
    Published(
        "Qwen2.5-Coder", "xinference", "qwen2.5-coder-instruct", "qwen2.5", IM_END, family="qwen", own_words=QWEN_SYSTEM
    ),
    Published("Qwen3", "trl", "qwen3", "qwen3", THINKS, family="qwen3"),
    Published("Qwen3", "xinference", "qwen3", "qwen3", THINKS, family="qwen3"),
    Published("Qwen3", "llama-cpp-python", "Qwen-Qwen3-0.6B", "qwen3", THINKS, family="qwen3"),
    Published("Qwen3-Thinking-2507", "xinference", "Qwen3-Thinking", "qwen3-thinking", THINKS, family="qwen3"),
    Published("Qwen3-Thinking-2507", "unsloth", "qwen3_thinking_template", "qwen3-thinking", THINKS, family="qwen3"),
    Published("Qwen3-Instruct-2507", "trl", "qwen3_instruct_2507", None, IM_END, tokens="qwen3", family="qwen"),
    Published("Qwen3-Coder", "llama-cpp-python", "Qwen3-Coder", None, IM_END, tokens="qwen3", family="qwen"),
    Published("QwQ-32B", "xinference", "QwQ-32B", None, THINKS, tokens="qwen3"),
    Published("Qwen3.5", "trl", "qwen3_5_think", "qwen3.5", THINKS),
    Published("Qwen3.5 (2B and smaller)", "trl", "qwen3_5_nothink", "qwen3.5", THINKS),
    Published("Qwen3.5", "llama-cpp-python", "Qwen3.5-4B", "qwen3.5", THINKS),
    Published("Qwen3.6", "trl", "qwen3_6", "qwen3.5", THINKS),
    Published("Qwen3.6", "xinference", "qwen3.6", "qwen3.5", THINKS),
    Published("Qwen3.8", "trl", "qwen3_8", "qwen3.8", IM_END, own_words=EFFORT),
    Published("Qwen3.8-Max", "xinference", "qwen3.8-max", None, "Disabling thinking is not supported", tokens="qwen3"),
    Published("Llama 3", "trl", "llama3", "llama3", EOT, family="llama3"),
    Published("Llama 3.1", "trl", "llama3_1", "llama3.1", EOT, family="llama3"),
    Published("Llama 3.1", "llama-cpp-python", "meta-llama-Llama-3.1-8B-Instruct", "llama3.1", EOT, family="llama3"),
    Published("Llama 3.2", "trl", "llama3_2", "llama3.1", EOT, family="llama3", own_words=DATE),
    Published("Llama 3.3", "llama-cpp-python", "meta-llama-Llama-3.3-70B-Instruct", "llama3.1", EOT, family="llama3"),
    Published("Mistral 7B v0.3", "xinference", "mistral-instruct-v0.3", "mistral", _form("</s>"), system=MOVES),
    Published("Mixtral 8x7B", "xinference", "mixtral-instruct-v0.1", None, _form("</s>"), tokens="mistral"),
    Published(
        "Mistral Nemo",
        "llama-cpp-python",
        "mistralai-Mistral-Nemo-Instruct-2407",
        None,
        _form("</s>"),
        tokens="mistral",
        system=MOVES,
    ),
    Published("Gemma 3", "trl", "gemma3", "gemma3", _form("<end_of_turn>")),
    Published("Gemma 3", "xinference", "gemma-3-it", "gemma3", _form("<end_of_turn>")),
    Published("Gemma 4", "trl", "gemma4_v5", None, _form("<turn|>"), tokens="gemma4"),
    Published("Phi-3", "trl", "phi3", None, _form("<|end|>"), tokens="phi3.5"),
    Published("Phi-3.5", "trl", "phi3_5", "phi3.5", _form("<|end|>")),
    Published("Phi-3.5", "llama-cpp-python", "microsoft-Phi-3.5-mini-instruct", "phi3.5", _form("<|end|>")),
    Published("Phi-4", "unsloth", "phi4_template", "phi4", IM_END),
    Published("gpt-oss", "trl", "gptoss", "gpt-oss", OSS, own_words=GPT_OSS_SYSTEM),
    Published("gpt-oss", "llama-cpp-python", "openai-gpt-oss-120b", "gpt-oss", OSS, own_words=GPT_OSS_SYSTEM),
    Published("GLM-4.5", "trl", "glm4moe", "glm4.5", GLM),
    Published("GLM-4.6", "xinference", "GLM-4.6", "glm4.5", GLM),
    Published("GLM-4.6", "llama-cpp-python", "GLM-4.6", "glm4.5", GLM),
    Published("GLM-4.7", "xinference", "GLM-4.7", "glm4.7", GLM),
    Published("GLM-4.7-Flash", "llama-cpp-python", "GLM-4.7-Flash", "glm4.7", GLM),
    Published("GLM-5", "xinference", "glm-5", "glm4.7", GLM),
    Published("GLM-5.1", "xinference", "glm-5.1", None, GLM, tokens="glm4.7"),
    Published("GLM-5.2", "xinference", "glm-5.2", None, GLM, tokens="glm4.7"),
    Published("DeepSeek-V3", "trl", "deepseekv3", None, R1, tokens="deepseek-r1-distill"),
    Published(
        "DeepSeek-R1-0528",
        "xinference",
        "deepseek-r1-0528",
        None,
        DEEPSEEK,
        tokens="deepseek-r1-distill",
        reasoning=DROPS,
    ),
    Published("DeepSeek-V3.1", "xinference", "Deepseek-V3.1", "deepseek-v3.1", DEEPSEEK),
    Published("DeepSeek-V3.2", "xinference", "DeepSeek-V3.2", "deepseek-v3.1", DEEPSEEK),
    Published("DeepSeek-R1-Distill", "trl", "deepseek_r1_distill", "deepseek-r1-distill", R1),
    Published("DeepSeek-R1-Distill-Qwen", "xinference", "deepseek-r1-distill-qwen", "deepseek-r1-distill", R1),
    Published("DeepSeek-R1-Distill-Llama", "xinference", "deepseek-r1-distill-llama", "deepseek-r1-distill", R1),
    Published("MiniMax-M2", "xinference", "MiniMax-M2", None, _form("[e~[", rewrites=True), tokens="minimax"),
    Published("Kimi-K2.5", "xinference", "Kimi-K2.5", None, IM_END, tokens="kimi", reasoning=INTO_ANSWER),
    Published("Nemotron 3 Nano", "trl", "nemotron_3_nano", None, IM_END, tokens="qwen3"),
    Published("Command (Cohere 2)", "trl", "cohere2", None, COHERE, tokens="cohere"),
)
