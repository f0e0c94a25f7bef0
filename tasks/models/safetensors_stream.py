"""Hugging Face weight files written tensor by tensor, in an order that is planned before the first one.

The `safetensors` library writes a file from tensors that are all in memory. The format (8 bytes little-endian length of
the header, a JSON header with type, shape and byte range of each tensor, then the bytes) allows the header first.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kernels_eval.errors import InputError
from tasks.pipeline.digests import HashedFile

SHARD_BYTES = 5 * 10**9
"""Largest file, unless a single tensor is larger."""
INDEX_FILE = "model.safetensors.index.json"
_TYPES: dict[torch.dtype, str] = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
}


@dataclass(frozen=True, slots=True)
class Planned:
    """A tensor that will be written."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Size of its data."""
        return prod(self.shape) * self.dtype.itemsize


class SafetensorsFile:
    """Writer of planned tensors, in their order, into one file with metadata. A context: leaving it ends the file.

    The file is hashed meanwhile (tasks.pipeline.digests): a tensor may not change before the next one is written.
    """

    def __init__(self, file: Path, planned: Sequence[Planned], metadata: Mapping[str, str]) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file = file
        self._remaining = list(planned)[::-1]
        self._stream = HashedFile(file)
        self._stream.write(_header(planned, metadata))

    def __enter__(self) -> "SafetensorsFile":
        return self

    def write(self, name: str, tensor: Tensor) -> None:
        """Write the next planned tensor."""
        _write(self._stream, self._remaining, name, tensor)

    def __exit__(self, kind: type[BaseException] | None, *details: Any) -> None:
        """Close the file. Raises InputError if a planned tensor is missing, unless another error ends the block."""
        self._stream.__exit__(kind, *details)
        if kind is None and self._remaining:
            raise InputError(f"{self._file}: {self._remaining[-1].name}: planned, but never written")


class SafetensorsStream:
    """Writer of planned tensors, in their order, into one file or several with an index. They are hashed meanwhile."""

    def __init__(self, folder: Path, planned: Sequence[Planned], shard_bytes: int = SHARD_BYTES) -> None:
        wrong = next((tensor for tensor in planned if tensor.dtype not in _TYPES), None)
        if wrong is not None:
            raise InputError(f"{wrong.name}: found {wrong.dtype}, expected float64, float32, float16 or bfloat16")
        self._files = _divided(planned, shard_bytes)
        self._names = [_file_name(number, len(self._files)) for number in range(len(self._files))]
        self._folder = folder
        self._remaining = [(number, tensor) for number, file in enumerate(self._files) for tensor in file][::-1]
        self._open: tuple[int, HashedFile] | None = None

    def write(self, name: str, tensor: Tensor) -> None:
        """Write the next planned tensor. Nothing of it is kept: a conversion may need its memory."""
        number, planned = self._remaining.pop()
        stream = self._stream(number)
        _write(stream, [planned], name, tensor)
        stream.wait()

    def close(self) -> None:
        """End the last file and write the index of several files."""
        if self._remaining:
            raise InputError(f"{self._remaining[-1][1].name}: planned, but never written")
        self._end()
        if len(self._files) < 2:
            return
        index = {
            "metadata": {"total_size": sum(tensor.bytes for file in self._files for tensor in file)},
            "weight_map": {
                tensor.name: name for name, file in zip(self._names, self._files, strict=True) for tensor in file
            },
        }
        (self._folder / INDEX_FILE).write_text(json.dumps(index, indent=1, sort_keys=True), encoding="utf-8")

    def _stream(self, number: int) -> HashedFile:
        """Return the stream of this file, which is the open one or the next."""
        if self._open is not None and self._open[0] == number:
            return self._open[1]
        self._end()
        stream = HashedFile(self._folder / self._names[number])
        stream.write(_header(self._files[number]))
        self._open = (number, stream)
        return stream

    def _end(self) -> None:
        """End the open file, if there is one."""
        if self._open is not None:
            self._open[1].__exit__(None)
            self._open = None


def _write(stream: HashedFile, remaining: list[Planned], name: str, tensor: Tensor) -> None:
    """Write the tensor that is the last one of `remaining`, and take it off."""
    planned = remaining.pop()
    if (name, tensor.dtype, tuple(tensor.shape)) != (planned.name, planned.dtype, planned.shape):
        raise InputError(f"{name}: found {tensor.dtype} {tuple(tensor.shape)}, expected {planned}")
    stream.write(tensor.contiguous().flatten().view(torch.uint8).numpy().data)


def _divided(planned: Sequence[Planned], shard_bytes: int) -> list[list[Planned]]:
    files: list[list[Planned]] = [[]]
    used = 0
    for tensor in planned:
        if files[-1] and used + tensor.bytes > shard_bytes:
            files.append([])
            used = 0
        files[-1].append(tensor)
        used += tensor.bytes
    return files


def _file_name(number: int, files: int) -> str:
    return "model.safetensors" if files == 1 else f"model-{number + 1:05d}-of-{files:05d}.safetensors"


def _header(tensors: Sequence[Planned], metadata: Mapping[str, str] | None = None) -> bytes:
    entries: dict[str, object] = {"__metadata__": {"format": "pt", **(metadata or {})}}
    begin = 0
    for tensor in tensors:
        end = begin + tensor.bytes
        entries[tensor.name] = {
            "dtype": _TYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
        begin = end
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()  # as the library has it
    text += b" " * (-len(text) % 8)  # the data begins at a multiple of 8 bytes
    return len(text).to_bytes(8, "little") + text
