"""Conversion of a checkpoint into another format: prepared, planned, then written weight by weight.

Published folder (`tasks.pipeline.store`): of Hugging Face, the model with its tokenizer; of Megatron, `release/` with
the checkpoint, `latest_checkpointed_iteration.txt`, and `hf/` with config.json and tokenizer for the way back.
"""

from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from extras.convert.architecture import Architecture
from extras.convert.arguments import arguments_for
from extras.convert.formats import Format, Sink, Source
from extras.convert.gguf import GgufConversion, is_gguf, prepare_gguf
from extras.convert.huggingface import (
    HuggingFaceSink,
    HuggingFaceSource,
    SafetensorsFolder,
    write_companions,
)
from extras.convert.layout import pad_vocabulary, padded_vocabulary
from extras.convert.memory_plan import COPIES, MemoryPlan, Progress, plan_memory, steps_of
from extras.convert.mp_rank import MpRankSource
from extras.convert.mp_rank_sink import Grid, MpRankSink
from extras.convert.named_copy import NamedCopy
from extras.convert.origin import TRACKER_FILE, Origin, architecture_of, config_of, find_origin
from extras.convert.torch_dist import TorchDistSource
from extras.convert.torch_dist_sink import write_torch_dist
from extras.convert.weights import Weight, shape_of, weights_of
from extras.convert.zero import ZeroCheckpoint
from kernels_eval.errors import InputError
from kernels_eval.frozen import FrozenModel
from tasks.models.config import COMPANIONS
from tasks.pipeline.store import publish


class ConvertOptions(FrozenModel):
    """Settings of a conversion."""

    to: Literal[Format.HUGGINGFACE, Format.TORCH_DIST, Format.MP_RANK] = Format.HUGGINGFACE
    """Format of the result."""
    like: Path | None = None
    """Hugging Face folder with config.json and tokenizer; None: those of the checkpoint, or Megatron's arguments."""
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    """Type of the written weights; None: as they are stored."""
    vocabulary: int | None = Field(default=None, ge=1)
    """Tokens, if config.json has to be made of Megatron's arguments and these do not tell."""
    tensor_parallel: int = Field(default=1, ge=1)
    """Tensor-parallel ranks of `mp_rank` folders; also decides the padding of the vocabulary."""
    pipeline_parallel: int = Field(default=1, ge=1)
    """Pipeline stages of `mp_rank` folders."""
    expert_parallel: int = Field(default=1, ge=1)
    """Expert-parallel ranks of `mp_rank` folders."""
    vocabulary_divisor: int = Field(default=128, ge=1)
    """Megatron's `--make-vocab-size-divisible-by`."""
    transformer_impl: Literal["transformer_engine", "local"] = "transformer_engine"
    """Megatron's `--transformer-impl`: the names of its layers."""


@dataclass(frozen=True)
class Conversion:
    """A conversion that is ready to be written."""

    origin: Origin
    options: ConvertOptions
    architecture: Architecture
    config: Mapping[str, Any]
    """The model's config.json."""
    companions: Path | None
    source: Source

    @cached_property
    def weights(self) -> list[tuple[Weight, torch.dtype]]:
        """Every weight, and the type that it is written with."""
        chosen = None if self.options.dtype is None else getattr(torch, self.options.dtype)
        found = [(weight, chosen or self.source.dtype(weight)) for weight in weights_of(self.architecture)]
        self.source.release()
        return found

    @cached_property
    def rows(self) -> int:
        """Rows of the written embedding."""
        if self.options.to is Format.HUGGINGFACE:
            return self.architecture.vocabulary
        options = self.options
        return padded_vocabulary(self.architecture.vocabulary, options.vocabulary_divisor, options.tensor_parallel)

    @cached_property
    def memory(self) -> MemoryPlan:
        """Planned memory."""
        written = {
            weight: torch.empty(shape_of(weight, self.architecture, self.rows), dtype=dtype, device="meta").nbytes
            for weight, dtype in self.weights
        }
        return plan_memory(self.source, written, COPIES[self.options.to] + (self.options.dtype is not None))

    def write(self, destination: Path, progress: Progress = lambda _done, _all: None) -> None:
        """Write the checkpoint and publish it as `destination`."""
        metadata = {"source": str(self.origin.root), "format": self.origin.format.value}
        with publish(destination, metadata) as folder:
            if self.options.to is Format.HUGGINGFACE:
                self._write_companions(folder)
                self._pour(HuggingFaceSink(folder, self.architecture, self.weights), progress)
                return
            (folder / TRACKER_FILE).write_text("release", encoding="utf-8")
            (folder / "release").mkdir()
            self._write_companions(folder / COMPANIONS)
            self._write_megatron(folder / "release", progress)

    def _write_companions(self, folder: Path) -> None:
        write_companions(folder, self.companions, self.config, self.weights[0][1])

    def _write_megatron(self, folder: Path, progress: Progress) -> None:
        options, arguments = self.options, self._arguments()
        engine = options.transformer_impl == "transformer_engine"
        if options.to is Format.TORCH_DIST:
            tensors = self._tensors(progress)
            write_torch_dist(
                folder, self.architecture, self.weights, tensors, arguments, self.rows, transformer_engine=engine
            )
            return
        grid = Grid(options.tensor_parallel, options.pipeline_parallel, options.expert_parallel)
        grid.check(self.architecture)
        self._pour(
            MpRankSink(folder, self.architecture, self.weights, grid, arguments, self.rows, transformer_engine=engine),
            progress,
        )

    def _arguments(self) -> Namespace:
        options = self.options
        grid = {
            "tensor_model_parallel_size": options.tensor_parallel,
            "pipeline_model_parallel_size": options.pipeline_parallel,
            "expert_model_parallel_size": options.expert_parallel,
        }
        return arguments_for(self.config, self.architecture, self.rows, options.vocabulary_divisor, grid)

    def _pour(self, sink: Sink, progress: Progress) -> None:
        weights = iter(self.weights)
        tensors = self._tensors(progress, sink.release)
        for (weight, _), tensor in zip(weights, tensors, strict=True):
            sink.write(weight, tensor)
        sink.close()

    def _tensors(self, progress: Progress, release: Callable[[], None] = lambda: None) -> Iterator[Tensor]:
        """Yield every weight as it is written, and unmap files after each layer."""
        types, done = dict(self.weights), 0
        for step in steps_of(types):
            for weight in step:
                yield self._read(weight, types[weight])
                done += 1
                progress(done, len(types))
            self.source.release()
            release()

    def _read(self, weight: Weight, dtype: torch.dtype) -> Tensor:
        tensor = self.source.read(weight)
        found, expected = tuple(tensor.shape), shape_of(weight, self.architecture)
        padded = weight.part.is_vocabulary and found[0] > expected[0] and found[1:] == expected[1:]
        if found != expected and not padded:
            raise InputError(f"{self.origin.folder}: {weight}: found the shape {found}, expected {expected}")
        return (pad_vocabulary(tensor, self.rows) if weight.part.is_vocabulary else tensor).to(dtype)


def prepare(path: Path, options: ConvertOptions) -> Conversion | NamedCopy | GgufConversion:
    """Return the conversion of a checkpoint. Raises InputError if it cannot be read or is of no supported model."""
    if is_gguf(path):
        if options.to is not Format.HUGGINGFACE:
            raise InputError(f"--to: a GGUF file is converted to huggingface first, found {options.to}")
        return prepare_gguf(path, options.dtype)
    origin = find_origin(path)
    companions = origin.companions(options.like)
    config = config_of(origin, companions, options.vocabulary)
    if origin.format is Format.ZERO and options.to is Format.HUGGINGFACE:
        chosen = None if options.dtype is None else getattr(torch, options.dtype)
        return NamedCopy(origin, chosen, config, companions, ZeroCheckpoint(origin.folder))
    where = origin.folder if companions is None else companions / "config.json"
    architecture = architecture_of(origin, config, where)
    return Conversion(origin, options, architecture, config, companions, _source(origin, architecture))


def _source(origin: Origin, architecture: Architecture) -> Source:
    if origin.format is Format.TORCH_DIST:
        return TorchDistSource(origin.folder)
    if origin.format is Format.MP_RANK:
        return MpRankSource(origin.folder, architecture)
    store = SafetensorsFolder(origin.folder) if origin.format is Format.HUGGINGFACE else ZeroCheckpoint(origin.folder)
    return HuggingFaceSource(store, architecture, str(origin.folder))
