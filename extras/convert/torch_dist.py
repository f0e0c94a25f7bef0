"""Megatron-core's distributed checkpoint (`torch_dist`), read chunk by chunk.

Folder: `.metadata` (index of torch.distributed.checkpoint: shapes, and the chunks of each tensor with file, offset and
length), `*.distcp` (chunks, each as `torch.save` writes it), `common.pt` (arguments), `metadata.json`. Layers are
stored under names of their own or stacked along a first axis, experts likewise, gate and up together or apart.
"""

import io
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from extras.convert.names import StoredName, is_beside, parse_name
from extras.convert.unpickling import load_file, load_index, load_tensor
from extras.convert.weights import Weight
from kernels_eval.errors import InputError
from tasks.pipeline.json_file import read_json_object

INDEX_FILE = ".metadata"
COMMON_FILE = "common.pt"
BACKEND_FILE = "metadata.json"


def read_common(folder: Path) -> Any:
    """Return what the checkpoint holds beside tensors, e.g. `args`; empty if there is no such file."""
    return load_file(folder / COMMON_FILE) if (folder / COMMON_FILE).is_file() else {}


class TorchDistSource:
    """A `torch_dist` checkpoint of any tensor, pipeline and expert parallelism."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        _check_backend(folder)
        index = load_index(folder / INDEX_FILE)
        try:
            self._storage: dict[tuple[str, tuple[int, ...]], Any] = {
                (entry.fqn, tuple(entry.offset or ())): stored for entry, stored in index.storage_data.items()
            }
            tensors = {name: found for name, found in index.state_dict_metadata.items() if hasattr(found, "chunks")}
        except AttributeError as error:
            raise InputError(f"{folder / INDEX_FILE}: expected the index of a checkpoint: {error}") from error
        self._tensors = {name: found for name, found in tensors.items() if not is_beside(name)}
        self._names: dict[StoredName, str] = {}
        for name in self._tensors:
            parsed = parse_name(name)
            if parsed is None:
                raise InputError(f"{folder}: {name}: a weight of no architecture that can be converted")
            self._names[parsed] = name

    def dtype(self, weight: Weight) -> torch.dtype:
        """Return the type of a weight."""
        return self._tensors[self._stored(weight)[0][0]].properties.dtype

    def read(self, weight: Weight) -> Tensor:
        """Return a whole weight."""
        parts = [self._region(name, place) for name, place in self._stored(weight)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def read_bytes(self, weight: Weight) -> int:
        """Return the bytes of the largest chunk, of the weight that several chunks make, and of halves stored apart."""
        stored = self._stored(weight)
        whole = sum(prod(self._tensors[name].size[len(place) :]) for name, place in stored)
        chunks = [prod(chunk.sizes) for name, place in stored for chunk in self._chunks(name, place)]
        assembled = whole if len(chunks) > 1 else 0
        return (assembled + max(chunks) + (whole if len(stored) > 1 else 0)) * self.dtype(weight).itemsize

    def release(self) -> None:
        """Do nothing: chunks are read, not mapped."""

    @property
    def shard_sets(self) -> Sequence[int]:
        """Bytes of all files: any of them can hold chunks of any layer."""
        return [sum(file.stat().st_size for file in self._folder.glob("*.distcp"))]

    def _stored(self, weight: Weight) -> list[tuple[str, tuple[int, ...]]]:
        """Return the stored tensors that make up a weight, with the weight's place along their first axes."""
        for layer in {weight.layer, None}:
            for expert in {weight.expert, None}:
                place = tuple(
                    number
                    for number, own in ((weight.layer, layer), (weight.expert, expert))
                    if number is not None and own is None
                )
                for halves in ((None,), ("w", "v")):
                    names = [self._names.get(StoredName(weight.part, layer, expert, half)) for half in halves]  # pyright: ignore[reportArgumentType]
                    if all(names):
                        return [(str(name), place) for name in names]
        raise InputError(f"{self._folder}: expected a weight {weight}, found none")

    def _region(self, name: str, place: tuple[int, ...]) -> Tensor:
        """Return a stored tensor, or its slice at `place` of the first axes."""
        found = self._tensors[name]
        if any(number >= size for number, size in zip(place, found.size, strict=False)):
            raise InputError(f"{self._folder}: {name}: found {tuple(found.size)}, expected more than {place}")
        chunks = list(self._chunks(name, place))
        shape, dtype = tuple(found.size[len(place) :]), found.properties.dtype
        if len(chunks) == 1 and prod(chunks[0].sizes) == prod(shape):
            return self._read_chunk(name, tuple(chunks[0].offsets), tuple(chunks[0].sizes), dtype).reshape(shape)
        region, filled = torch.empty(shape, dtype=dtype), 0
        for chunk in chunks:
            values = self._read_chunk(name, tuple(chunk.offsets), tuple(chunk.sizes), dtype)
            for axis, number in enumerate(place):
                values = values.narrow(axis, number - chunk.offsets[axis], 1)
            values = values.reshape(tuple(chunk.sizes[len(place) :]))
            begins, sizes = chunk.offsets[len(place) :], chunk.sizes[len(place) :]
            region[tuple(slice(begin, begin + size) for begin, size in zip(begins, sizes, strict=True))] = values
            filled += values.numel()
        if filled != region.numel():
            raise InputError(f"{self._folder}: {name}: the index has {filled} of {region.numel()} numbers")
        return region

    def _chunks(self, name: str, place: tuple[int, ...]) -> Iterator[Any]:
        for chunk in self._tensors[name].chunks:
            if all(
                begin <= at < begin + size for at, begin, size in zip(place, chunk.offsets, chunk.sizes, strict=False)
            ):
                yield chunk

    def _read_chunk(self, name: str, offsets: tuple[int, ...], sizes: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        stored = self._storage.get((name, offsets))
        if stored is None:
            raise InputError(f"{self._folder / INDEX_FILE}: {name}: the index does not say where {offsets} is stored")
        if getattr(stored, "transform_descriptors", None):
            raise InputError(f"{self._folder}: {name}: compressed chunks are not read")
        file = self._folder / Path(str(stored.relative_path)).name
        try:
            with file.open("rb") as stream:
                values = load_tensor(_Stretch(stream, int(stored.offset), int(stored.length)), file).detach()
        except OSError as error:
            raise InputError(f"{file}: cannot be read: {error.strerror or error}") from error
        if (tuple(values.shape), values.dtype) != (sizes, dtype):
            raise InputError(f"{file}: {name}: found {values.dtype} {tuple(values.shape)}, expected {dtype} {sizes}")
        return values


class _Stretch(io.RawIOBase):
    """A stretch of a file as a file: its tensor is read in place, without a copy of its bytes."""

    def __init__(self, stream: BinaryIO, begin: int, length: int) -> None:
        self._stream, self._begin, self._length, self._at = stream, begin, length, 0

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """Return the place from the beginning of the stretch."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Go to a place; return it."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._length}[whence]
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        """Fill a buffer up to the stretch's end; return the number of bytes."""
        self._stream.seek(self._begin + self._at)
        view = memoryview(buffer).cast("B")
        count = self._stream.readinto(view[: max(self._length - self._at, 0)])  # pyright: ignore[reportAttributeAccessIssue]
        self._at += count
        return count


def _check_backend(folder: Path) -> None:
    file = folder / BACKEND_FILE
    backend = read_json_object(file).get("sharded_backend") if file.is_file() else "torch_dist"
    if backend != "torch_dist":
        raise InputError(f"{file}: sharded_backend: found {backend}, expected torch_dist")
