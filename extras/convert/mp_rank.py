"""Megatron's older checkpoints, one file a rank: `mp_rank_<tp>[_<pp>][_<ep>]/model_optim_rng.pt`.

Each file holds `args` and `model`, with interleaved pipeline stages `model0`, `model1`, …; layers are numbered from 0
in each stage. Files are mapped: only the numbers that are used are read.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from extras.convert.architecture import Architecture
from extras.convert.layout import join
from extras.convert.names import StoredName, is_beside, parse_name
from extras.convert.unpickling import load_file
from extras.convert.weights import Weight, shape_of
from kernels_eval.errors import InputError

SHARD_FILES = ("model_optim_rng.pt", "model_rng.pt")
_FOLDER = re.compile(r"^mp_rank_(\d{2,})(?:_(\d{3,}))?(?:_(\d{3,}))?$")
Rank = tuple[int, int, int]
"""Tensor-, pipeline- and expert-parallel rank."""
Model = dict[StoredName, Tensor]


def shard_files(folder: Path) -> list[tuple[re.Match[str], Path]]:
    """Return the files of the ranks with what their folders' names matched."""
    named = [(_FOLDER.match(path.name), path) for path in sorted(folder.glob("mp_rank_*"))]
    return [
        (match, next((path / name for name in SHARD_FILES if (path / name).is_file()), path / SHARD_FILES[0]))
        for match, path in named
        if match is not None
    ]


def read_arguments(folder: Path) -> Any:
    """Return `args` of the first rank's file; None if it has none."""
    files = shard_files(folder)
    if not files:
        raise InputError(f"{folder}: expected folders mp_rank_<tp>[_<pp>][_<ep>], found none")
    return _content(files[0][1]).get("args")


class MpRankSource:
    """A checkpoint of `mp_rank_*` folders."""

    def __init__(self, folder: Path, architecture: Architecture) -> None:
        self._folder, self._architecture = folder, architecture
        self._files = _files_by_rank(folder, read_arguments(folder))
        self._open: dict[Rank, list[Model]] = {}
        self._layers: dict[int, tuple[int, int, int]] = {}
        """By layer of the model: pipeline rank, chunk of the interleaved stages, layer of the chunk."""
        stages = sorted({pipeline for _, pipeline, _ in self._files})
        models = {stage: self._models((0, stage, 0)) for stage in stages}
        for chunk in range(max(len(found) for found in models.values())):
            for stage in stages:
                for local in range(_layer_count(models[stage][chunk])):
                    self._layers[len(self._layers)] = (stage, chunk, local)
        self._last = (stages[-1], len(models[stages[-1]]) - 1)
        self.release()
        if len(self._layers) != architecture.layers:
            raise InputError(f"{folder}: found {len(self._layers)} layers, expected {architecture.layers}")

    def dtype(self, weight: Weight) -> torch.dtype:
        """Return the type of a weight."""
        return self._shares(weight)[0].dtype

    def read(self, weight: Weight) -> Tensor:
        """Return a whole weight, joined from the tensor-parallel ranks."""
        return join(weight.part, self._shares(weight))

    def read_bytes(self, weight: Weight) -> int:
        """Return the bytes of the ranks' shares, and of the whole weight if there are several."""
        shares = self._shares(weight)
        return sum(share.nbytes for share in shares) * (2 if len(shares) > 1 else 1)

    def release(self) -> None:
        """Unmap the open files."""
        self._open.clear()

    @property
    def shard_sets(self) -> Sequence[int]:
        """Bytes of the files of each pipeline stage."""
        sets: dict[int, int] = {}
        for (_, pipeline, _), file in self._files.items():
            sets[pipeline] = sets.get(pipeline, 0) + file.stat().st_size
        return list(sets.values())

    def _shares(self, weight: Weight) -> list[Tensor]:
        stage, chunk, local = self._place(weight)
        expert_rank, expert = self._expert_place(weight)
        ranks = [rank for rank in sorted(self._files) if rank[1] == stage and expert_rank in (None, rank[2])]
        ranks = list({tensor: (tensor, stage, last) for tensor, _, last in reversed(ranks)}.values())[::-1]
        first = self._share(ranks[0], chunk, weight, local, expert)
        if first.shape == shape_of(weight, self._architecture) or weight.part.parallel_axis is None:
            return [first]
        return [first, *(self._share(rank, chunk, weight, local, expert) for rank in ranks[1:])]

    def _place(self, weight: Weight) -> tuple[int, int, int | None]:
        """Return pipeline rank, chunk, and the layer's number in the chunk."""
        if weight.layer is not None:
            return self._layers[weight.layer]
        return (0, 0, None) if weight.part.value.startswith("embedding") else (*self._last, None)

    def _expert_place(self, weight: Weight) -> tuple[int | None, int | None]:
        """Return the expert-parallel rank and the expert's number on it; None: any rank."""
        if weight.expert is None:
            return None, None
        ranks = 1 + max(last for _, _, last in self._files)
        each = self._architecture.experts // ranks
        return weight.expert // each, weight.expert % each

    def _share(self, rank: Rank, chunk: int, weight: Weight, layer: int | None, expert: int | None) -> Tensor:
        model = self._models(rank)[chunk]
        found = model.get(StoredName(weight.part, layer, expert))
        if found is None and expert is not None:
            found = self._unpacked(model.get(StoredName(weight.part, layer)), rank, weight, expert)
        if found is None:
            raise InputError(f"{self._files[rank]}: expected a weight {weight}, found none")
        return found

    def _unpacked(self, packed: Tensor | None, rank: Rank, weight: Weight, expert: int) -> Tensor | None:
        """Return an expert of the older grouped matrices: [hidden, experts × rows] and [experts × columns, hidden]."""
        if packed is None:
            return None
        here = self._architecture.experts // (1 + max(last for _, _, last in self._files))
        if weight.part.is_gate_up:
            return packed.view(here, self._architecture.hidden, -1)[expert].T
        return packed.view(here, -1, self._architecture.hidden)[expert].T

    def _models(self, rank: Rank) -> list[Model]:
        """Return the weights of a rank's file by their meaning, one mapping for each chunk of the pipeline."""
        if rank not in self._open:
            if rank not in self._files:
                raise InputError(f"{self._folder}: no file of the rank (tensor, pipeline, expert) = {rank}")
            self._open[rank] = _models_of(self._files[rank])
        return self._open[rank]


def _content(file: Path) -> dict[str, Any]:
    content = load_file(file)
    if not isinstance(content, dict):
        raise InputError(f"{file}: expected `args` and `model`, found {type(content).__name__}")
    return content


def _models_of(file: Path) -> list[Model]:
    content = _content(file)
    names = sorted((name for name in content if re.match(r"model\d*$", str(name))), key=lambda name: (len(name), name))
    if not names:
        raise InputError(f"{file}: expected `model`, found {', '.join(map(str, content)) or 'nothing'}")
    return [_parsed(file, content[name]) for name in names]


def _parsed(file: Path, state: Mapping[str, Any]) -> Model:
    model: Model = {}
    for name, value in state.items():
        if is_beside(name) or not isinstance(value, Tensor):
            continue
        parsed = parse_name(name)
        if parsed is None or (parsed.layer is None and name.startswith("decoder.layers.")):
            raise InputError(f"{file}: {name}: a weight of no architecture that can be converted")
        model[parsed] = value.detach()
    return model


def _layer_count(model: Model) -> int:
    return 1 + max((name.layer for name in model if name.layer is not None), default=-1)


def _files_by_rank(folder: Path, arguments: Any) -> dict[Rank, Path]:
    """Return the files by rank. A second number is the pipeline rank, unless `args` says that there is no pipeline."""
    pipeline = getattr(arguments, "pipeline_model_parallel_size", None)
    found: dict[Rank, Path] = {}
    for match, file in shard_files(folder):
        tensor, second, third = int(match[1]), int(match[2] or 0), int(match[3] or 0)
        rank = (tensor, 0, second) if pipeline == 1 and match[3] is None else (tensor, second, third)
        found[rank] = file
    return found
