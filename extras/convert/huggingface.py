"""Hugging Face folders of safetensors, read and written tensor by tensor."""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from extras.convert.architecture import Architecture
from extras.convert.layout import fuse, split
from extras.convert.weights import Weight, huggingface_names, shape_of
from kernels_eval.errors import InputError, first_line
from tasks.models.safetensors_stream import INDEX_FILE, Planned, SafetensorsStream
from tasks.pipeline.json_file import read_json_object

TOKENIZER_FILES = (
    "tokenizer*",
    "vocab.*",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.*",
    "generation_config.json",
)
"""Files beside config.json that belong to the tokenizer, or say how to generate."""


class TensorStore(Protocol):
    """Tensors by the names of a Hugging Face model."""

    def tensors(self) -> Mapping[str, Planned]:
        """Return name, type and shape of every tensor."""
        ...

    def get(self, name: str) -> Tensor:
        """Return one tensor. Raises InputError if it cannot be read."""
        ...

    def release(self) -> None:
        """Unmap the files that were read since the last call."""
        ...

    @property
    def shard_sets(self) -> Sequence[int]:
        """Bytes of each set of files that are needed together."""
        ...


class SafetensorsFolder:
    """The tensors in a folder's `*.safetensors`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = _weight_map(folder)
        self._open: dict[Path, Any] = {}
        self._tensors = {name: self._planned(name) for name in self._files}
        self.release()

    def tensors(self) -> Mapping[str, Planned]:
        """Return name, type and shape of every tensor."""
        return self._tensors

    def get(self, name: str) -> Tensor:
        """Return one tensor, whose numbers are read when they are used."""
        try:
            return self._stored(self._files[name]).get_tensor(name)
        except SafetensorError as error:
            raise InputError(f"{self._files[name]}: {name}: cannot be read: {first_line(error)}") from error

    def release(self) -> None:
        """Unmap the open files."""
        self._open.clear()

    @property
    def shard_sets(self) -> Sequence[int]:
        """Bytes of each file."""
        return [file.stat().st_size for file in set(self._files.values())]

    def _planned(self, name: str) -> Planned:
        try:
            part = self._stored(self._files[name]).get_slice(name)
            return Planned(name, _DTYPES[part.get_dtype()], tuple(part.get_shape()))
        except (SafetensorError, KeyError) as error:
            raise InputError(f"{self._files[name]}: {name}: cannot be converted: {first_line(error)}") from error

    def _stored(self, file: Path) -> Any:
        if file not in self._open:
            self._open[file] = _opened(file)
        return self._open[file]


_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def _opened(file: Path) -> Any:
    try:
        return safe_open(file, framework="pt")
    except (SafetensorError, OSError) as error:
        raise InputError(f"{file}: cannot be read as safetensors: {first_line(error)}") from error


def _weight_map(folder: Path) -> dict[str, Path]:
    index = folder / INDEX_FILE
    if index.is_file():
        named = read_json_object(index).get("weight_map")
        if not isinstance(named, dict):
            raise InputError(f"{index}: weight_map: expected the file of each tensor, found {type(named).__name__}")
        return {str(name): folder / Path(str(file)).name for name, file in named.items()}
    return {name: file for file in sorted(folder.glob("*.safetensors")) for name in _opened(file).keys()}  # noqa: SIM118


class HuggingFaceSource:
    """Megatron weights fused from the tensors of a store. A missing output layer means that it is tied."""

    def __init__(self, store: TensorStore, architecture: Architecture, where: str) -> None:
        self._store, self._architecture, self._where = store, architecture, where

    def dtype(self, weight: Weight) -> torch.dtype:
        """Return the type of the first of a weight's tensors."""
        return self._planned(weight)[0].dtype

    def read(self, weight: Weight) -> Tensor:
        """Return the fused weight."""
        return fuse(weight, self._architecture, [self._store.get(tensor.name) for tensor in self._planned(weight)])

    def read_bytes(self, weight: Weight) -> int:
        """Return the bytes of the tensors and of the fused weight."""
        planned = self._planned(weight)
        return sum(tensor.bytes for tensor in planned) * (2 if len(planned) > 1 else 1)

    def release(self) -> None:
        """Unmap the open files."""
        self._store.release()

    @property
    def shard_sets(self) -> Sequence[int]:
        """Bytes of each file."""
        return self._store.shard_sets

    def _planned(self, weight: Weight) -> list[Planned]:
        """Return the stored tensors of a weight, after a look at their names and shapes."""
        stored = self._store.tensors()
        expected = list(planned_tensors(self._architecture, [(weight, torch.float32)]))
        for tensor in expected:
            found = stored.get(tensor.name)
            if found is None:
                raise InputError(f"{self._where}: expected a tensor {tensor.name}, found none")
            if found.shape != tensor.shape:
                raise InputError(
                    f"{self._where}: {tensor.name}: found the shape {found.shape}, expected {tensor.shape}"
                )
        return [stored[tensor.name] for tensor in expected]


class HuggingFaceSink:
    """Writer of a folder that `AutoModelForCausalLM` loads."""

    def __init__(self, folder: Path, architecture: Architecture, weights: Sequence[tuple[Weight, torch.dtype]]) -> None:
        self._architecture = architecture
        self._stream = SafetensorsStream(folder, list(planned_tensors(architecture, weights)))

    def write(self, weight: Weight, tensor: Tensor) -> None:
        """Write the tensors of one weight."""
        parts = split(weight, self._architecture, tensor)
        for name, part in zip(huggingface_names(weight), parts, strict=True):
            self._stream.write(name, part)

    def release(self) -> None:
        """Do nothing: files are written, not mapped."""

    def close(self) -> None:
        """Write the index."""
        self._stream.close()


def planned_tensors(architecture: Architecture, weights: Sequence[tuple[Weight, torch.dtype]]) -> Iterator[Planned]:
    """Yield name, type and shape of every Hugging Face tensor of these weights."""
    for weight, dtype in weights:
        meta = torch.empty(shape_of(weight, architecture), dtype=dtype, device="meta")
        for name, part in zip(huggingface_names(weight), split(weight, architecture, meta), strict=True):
            yield Planned(name, dtype, tuple(part.shape))


def write_companions(folder: Path, companions: Path | None, config: Mapping[str, Any], dtype: torch.dtype) -> None:
    """Write config.json with the type of the written weights, and copy the tokenizer's files from `companions`."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in _tokenizer_files(companions):
        shutil.copyfile(file, folder / file.name)
    fields = {name: value for name, value in config.items() if name != "torch_dtype"}
    fields["dtype"] = str(dtype).removeprefix("torch.")
    (folder / "config.json").write_text(json.dumps(fields, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _tokenizer_files(folder: Path | None) -> list[Path]:
    found = [] if folder is None else [file for pattern in TOKENIZER_FILES for file in folder.glob(pattern)]
    return [file for file in found if file.is_file()]
