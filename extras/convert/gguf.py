"""Conversion of a GGUF file (llama.cpp) to a Hugging Face folder with weights, tokenizer and chat template.

Transformers dequantises the weights and reads the tokenizer; the package `gguf` (extra `gguf`) reads the file. A GGUF
is usually quantised: the result is close to the published float model, not equal to it.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from extras.convert.formats import Format
from extras.convert.memory_plan import MemoryPlan, Progress
from extras.convert.origin import Origin
from kernels_eval.errors import InputError, first_line
from tasks.models.policy import save_policy
from tasks.pipeline.store import publish

MAGIC = b"GGUF"
"""First bytes of a GGUF file."""
_FLOAT32_COPIES = 2
"""Copies of the weights in float32 while transformers dequantises and loads them."""


@dataclass(frozen=True)
class GgufConversion:
    """A conversion that is ready to be written."""

    origin: Origin
    dtype: torch.dtype
    """Type of the written weights."""
    companions: None = None

    @property
    def memory(self) -> MemoryPlan:
        """Planned memory: all weights at a time, since transformers loads a GGUF whole."""
        elements = sum(math.prod(int(side) for side in tensor.shape) for tensor in _reader(self.origin.root).tensors)
        size = self.origin.root.stat().st_size
        return MemoryPlan(elements * self.dtype.itemsize, elements * 4 * _FLOAT32_COPIES + size, size)

    def write(self, destination: Path, progress: Progress = lambda _done, _all: None) -> None:
        """Write the folder and publish it as `destination`. Raises InputError if transformers cannot read the file."""
        from transformers import AutoModelForCausalLM, AutoTokenizer

        file = self.origin.root
        named: dict[str, Any] = {"gguf_file": file.name, "local_files_only": True}
        try:
            tokenizer = AutoTokenizer.from_pretrained(str(file.parent), **named)
            model = AutoModelForCausalLM.from_pretrained(str(file.parent), dtype=torch.float32, **named)
        except (OSError, ValueError, KeyError, NotImplementedError, RuntimeError) as error:
            raise InputError(f"{file}: cannot be read as a causal language model: {first_line(error)}") from error
        if not tokenizer.chat_template:
            raise InputError(f"{file}: tokenizer.chat_template: found none, expected the chat template of a model")
        with publish(destination, {"source": str(file), "format": self.origin.format.value}) as folder:
            save_policy(_plain(model, self.dtype), tokenizer, folder)
        progress(1, 1)


def is_gguf(path: Path) -> bool:
    """Return True if the path is a file that begins as a GGUF does."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def prepare_gguf(path: Path, dtype: str | None) -> GgufConversion:
    """Return the conversion of a GGUF file into weights of `dtype`, by default bfloat16.

    Raises InputError if the package `gguf` is missing or the file is damaged.
    """
    _reader(path)
    return GgufConversion(Origin(Format.GGUF, path, path.parent), getattr(torch, dtype or "bfloat16"))


def _plain(model: Any, dtype: torch.dtype) -> Any:
    """Return the same model without the mark of a quantised one, which transformers refuses to save."""
    config = model.config
    del config.quantization_config
    with torch.device("meta"):
        plain = type(model)(config)
    plain.load_state_dict(model.state_dict(), assign=True)
    plain.tie_weights()
    plain.generation_config = model.generation_config
    for parameter in plain.parameters():  # not `to`, which casts RoPE's inverse frequencies too
        parameter.data = parameter.data.to(dtype)
    plain.config.dtype = dtype
    return plain


def _reader(path: Path) -> Any:
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise InputError(f"{path}: a GGUF file needs the package gguf: pip install 'kernelmill[gguf]'") from error
    try:
        return GGUFReader(path)
    except (OSError, ValueError, IndexError, KeyError) as error:
        raise InputError(f"{path}: not a readable GGUF file: {first_line(error)}") from error
