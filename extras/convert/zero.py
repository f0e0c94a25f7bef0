"""DeepSpeed checkpoints of ZeRO stages 0 to 3, read tensor by tensor in float32 under the model's own names.

Folder `<tag>/` (the file `latest` names the tag): `mp_rank_00_model_states.pt` or, of ZeRO-3,
`zero_pp_rank_<r>_mp_rank_00_model_states.pt` hold shapes, buffers and frozen weights; `*_optim_states.pt`, one a rank,
hold the float32 weights as flat partitions. ZeRO-1 and 2 cut the sequence of a group's weights into one piece a rank;
ZeRO-3 cuts each weight into one piece a rank. Rajbhandari et al. 2020; the layout is that of DeepSpeed 0.10 and later.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from extras.convert.unpickling import load_file
from kernels_eval.errors import InputError
from tasks.models.safetensors_stream import Planned

_RANK = re.compile(r"(?:zero_pp_rank_(\d+)_)?mp_rank_(\d+)_(model|optim)_states\.pt$")

_FLAT_WEIGHTS = ("single_partition_of_fp32_groups", "fp32_flat_groups")
"""Names of the flat float32 weights: of ZeRO-1 and 2, and of ZeRO-3."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """Stretches (file, path in the file, begin, end) whose numbers, one after the other, are a tensor."""

    planned: Planned
    stretches: tuple[tuple[Path, tuple[Any, ...], int, int], ...]


def find_states(folder: Path) -> Path | None:
    """Return the folder of a checkpoint's files: this one, or the one that `latest` names; None if there is none."""
    latest = folder / "latest"
    if latest.is_file():
        folder = folder / Path(latest.read_text(encoding="utf-8").strip()).name
    return folder if any(folder.glob("*_model_states.pt")) else None


class ZeroCheckpoint:
    """The tensors of a DeepSpeed checkpoint by the names of the Hugging Face model."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        models, optimizers = _files(folder, "model"), _files(folder, "optim")
        if not models:
            raise InputError(f"{folder}: expected a DeepSpeed checkpoint with *_model_states.pt, found none")
        self._open: dict[Path, Any] = {}
        self._entries: dict[str, _Entry] = {}
        state = self._content(models[0])
        if not optimizers:
            self._add_module(models[0], state)
        else:
            self._add_partitions(models, optimizers, state)
        self._files = [*models, *optimizers]
        self.release()

    def tensors(self) -> Mapping[str, Planned]:
        """Return name, type and shape of every tensor, of weights with two names (tied ones) under the first."""
        return {name: entry.planned for name, entry in self._entries.items()}

    def get(self, name: str) -> Tensor:
        """Return one tensor, gathered from the ranks."""
        entry = self._entries[name]
        pieces = [self._flat(file, path)[begin:end] for file, path, begin, end in entry.stretches]
        whole = pieces[0] if len(pieces) == 1 else torch.cat(pieces)
        if whole.numel() < prod(entry.planned.shape):
            raise InputError(
                f"{self._folder}: {name}: found {whole.numel()} numbers, expected the shape {entry.planned.shape}"
            )
        return whole[: prod(entry.planned.shape)].view(entry.planned.shape)

    def release(self) -> None:
        """Unmap the open files."""
        self._open.clear()

    @property
    def shard_sets(self) -> Sequence[int]:
        """Bytes of all files: each can hold a part of any weight."""
        return [sum(file.stat().st_size for file in self._files)]

    def _content(self, file: Path) -> Any:
        if file not in self._open:
            content = load_file(file)
            if not isinstance(content, dict):
                raise InputError(f"{file}: expected the states of a DeepSpeed engine, found {type(content).__name__}")
            self._open[file] = content
        return self._open[file]

    def _flat(self, file: Path, path: Iterable[Any]) -> Tensor:
        found = self._content(file)
        for key in path:
            found = found[key]
        return found.detach().flatten()

    def _add_module(self, file: Path, state: Mapping[str, Any]) -> None:
        """Add whole weights, as checkpoints without ZeRO hold them."""
        stored: set[int] = set()
        for name, value in (state.get("module") or {}).items():
            if value.data_ptr() not in stored:  # else a tied weight's second name
                stored.add(value.data_ptr())
                self._add(name, value.dtype, value.shape, [(file, ("module", name), 0, value.numel())])
        if not self._entries:
            raise InputError(f"{file}: module: expected weights, found none")

    def _add_partitions(self, models: Sequence[Path], optimizers: Sequence[Path], state: Mapping[str, Any]) -> None:
        stored = self._content(optimizers[0]).get("optimizer_state_dict")
        key = next((name for name in _FLAT_WEIGHTS if isinstance(stored, dict) and name in stored), None)
        if stored is None or key is None:
            raise InputError(
                f"{optimizers[0]}: optimizer_state_dict: expected {' or '.join(_FLAT_WEIGHTS)}, found none"
            )
        ranks = stored.get("partition_count", len(optimizers))
        ranks = max(ranks) if isinstance(ranks, list) else int(ranks)
        if ranks != len(optimizers):
            raise InputError(f"{self._folder}: found {len(optimizers)} files *_optim_states.pt, expected {ranks}")
        groups = [_pairs(group) for group in state.get("param_shapes") or ()]
        if not groups:
            raise InputError(f"{models[0]}: param_shapes: expected the shapes of the weights, found none")
        path = ("optimizer_state_dict", key)
        if key == _FLAT_WEIGHTS[0]:
            for number, group in enumerate(groups):
                self._add_cut_sequence(optimizers, (*path, number), group)
        else:
            self._add_cut_weights(optimizers, path, [pair for group in groups for pair in group])
        self._add_frozen(models, state, whole=key == _FLAT_WEIGHTS[0])
        self._add_buffers(models[0], state)

    def _add_cut_sequence(self, files: Sequence[Path], path: tuple[Any, ...], shapes: Iterable[Any]) -> None:
        """Add a group's weights of ZeRO-1 and 2: one after the other, the sequence cut into a piece a rank."""
        sizes = [self._flat(file, path).numel() for file in files]
        begin = 0
        for name, shape in shapes:
            end = begin + prod(shape)
            self._add(name, torch.float32, shape, _stretches(files, path, sizes, begin, end))
            begin = end
        if begin > sum(sizes):
            raise InputError(f"{self._folder}: the partitions hold {sum(sizes)} numbers, expected {begin}")

    def _add_cut_weights(self, files: Sequence[Path], path: tuple[Any, ...], shapes: Iterable[Any]) -> None:
        """Add the weights of ZeRO-3: each cut into a piece a rank, the last one padded; a rank's follow one another."""
        pieces = [self._pieces(file, path) for file in files]
        begin = 0
        for name, shape in shapes:
            end = begin + -(-prod(shape) // len(files))
            stretches = [
                stretch
                for file, sizes in zip(files, pieces, strict=True)
                for stretch in _stretches_of_pieces(file, path, sizes, begin, end)
            ]
            self._add(name, torch.float32, shape, stretches)
            begin = end

    def _pieces(self, file: Path, path: tuple[Any, ...]) -> list[int]:
        found = self._content(file)
        for key in path:
            found = found[key]
        return [piece.numel() for piece in found]

    def _add_frozen(self, models: Sequence[Path], state: Mapping[str, Any], *, whole: bool) -> None:
        """Add weights that were not trained, which the model's files hold: whole, or one piece a rank."""
        for name, shape in _pairs(state.get("frozen_param_shapes")):
            files = [models[0]] if whole else models
            stretches = [(file, ("frozen_param_fragments", name), 0, prod(shape)) for file in files]
            fragment = self._flat(*stretches[0][:2])
            self._add(name, fragment.dtype, shape, stretches)

    def _add_buffers(self, file: Path, state: Mapping[str, Any]) -> None:
        for name in state.get("buffer_names") or ():
            value = (state.get("module") or {}).get(name)
            if isinstance(value, Tensor):
                self._add(name, value.dtype, value.shape, [(file, ("module", name), 0, value.numel())])

    def _add(self, name: str, dtype: torch.dtype, shape: Any, stretches: Any) -> None:
        planned = Planned(_plain(name), dtype, tuple(shape))
        self._entries[planned.name] = _Entry(planned, tuple(stretches))


def _files(folder: Path, kind: str) -> list[Path]:
    """Return the files of one kind by rank. Raises InputError for model-parallel checkpoints."""
    found: dict[int, Path] = {}
    for file in folder.glob(f"*_{kind}_states.pt"):
        match = _RANK.search(file.name)
        if match is None:
            continue
        if int(match[2]):
            raise InputError(f"{file}: a checkpoint of several model-parallel ranks is not converted")
        found[int(match[1] or 0)] = file
    return [found[rank] for rank in sorted(found)]


def _pairs(values: Any) -> list[tuple[Any, Any]]:
    return list(values.items()) if isinstance(values, Mapping) else [tuple(pair) for pair in values or ()]


def _plain(name: str) -> str:
    return name.removeprefix("module.")


def _stretches(
    files: Sequence[Path], path: tuple[Any, ...], sizes: Sequence[int], begin: int, end: int
) -> Iterator[tuple[Path, tuple[Any, ...], int, int]]:
    """Yield the stretches of the numbers `begin` to `end` of a sequence that the files continue."""
    first = 0
    for file, size in zip(files, sizes, strict=True):
        if first < end and begin < first + size:
            yield file, path, max(begin - first, 0), min(end - first, size)
        first += size


def _stretches_of_pieces(
    file: Path, path: tuple[Any, ...], sizes: Sequence[int], begin: int, end: int
) -> Iterator[tuple[Path, tuple[Any, ...], int, int]]:
    """Yield the same of a sequence that the pieces of one file's list continue."""
    first = 0
    for number, size in enumerate(sizes):
        if first < end and begin < first + size:
            yield file, (*path, number), max(begin - first, 0), min(end - first, size)
        first += size
