"""Megatron's older checkpoints, written weight by weight into files that are laid out beforehand.

`torch.save` writes each rank's file without the numbers (`torch.serialization.skip_data`); then the files are mapped,
and each weight is copied to its places.
"""

import mmap
from argparse import Namespace
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.serialization import set_default_mmap_options, skip_data

from extras.convert.architecture import Architecture
from extras.convert.layout import divide
from extras.convert.mp_rank import SHARD_FILES, Rank
from extras.convert.names import shard_name
from extras.convert.unpickling import load_file
from extras.convert.weights import Part, Weight, shape_of
from kernels_eval.errors import InputError


@dataclass(frozen=True, slots=True)
class Grid:
    """Numbers of ranks."""

    tensor: int = 1
    pipeline: int = 1
    expert: int = 1

    def check(self, architecture: Architecture) -> None:
        """Raise InputError if a model cannot be divided by this grid."""
        sizes = (
            ("--tensor-parallel", self.tensor, "key-value heads", architecture.key_value_heads),
            ("--tensor-parallel", self.tensor, "the feed-forward width", architecture.intermediate),
            ("--tensor-parallel", self.tensor, "the experts' width", architecture.expert_intermediate),
            ("--pipeline-parallel", self.pipeline, "layers", architecture.layers),
            ("--expert-parallel", self.expert, "experts", architecture.experts),
        )
        for option, ranks, name, size in sizes:
            if size % ranks:
                raise InputError(f"{option}: found {ranks}, expected a divisor of {size}, {name}")
        if self.expert > 1 and not architecture.experts:
            raise InputError(f"--expert-parallel: found {self.expert}, expected 1: the model has no experts")

    def folder(self, rank: Rank) -> str:
        """Return the name of a rank's folder."""
        name = f"mp_rank_{rank[0]:02d}"
        if self.pipeline > 1:
            name += f"_{rank[1]:03d}"
        return name + (f"_{rank[2]:03d}" if self.expert > 1 else "")


class MpRankSink:
    """Writer of `mp_rank_*` folders; layers are divided evenly over the pipeline."""

    def __init__(
        self,
        folder: Path,
        architecture: Architecture,
        weights: Sequence[tuple[Weight, torch.dtype]],
        grid: Grid,
        arguments: Namespace,
        vocabulary: int,
        *,
        transformer_engine: bool,
    ) -> None:
        self._architecture, self._grid, self._vocabulary = architecture, grid, vocabulary
        self._transformer_engine = transformer_engine
        self._files = {
            (tensor, pipeline, expert): folder / grid.folder((tensor, pipeline, expert)) / SHARD_FILES[0]
            for tensor in range(grid.tensor)
            for pipeline in range(grid.pipeline)
            for expert in range(grid.expert)
        }
        self._open: dict[Path, Any] = {}
        self._lay_out(weights, arguments)

    def write(self, weight: Weight, tensor: Tensor) -> None:
        """Copy one weight's shares into the files of the ranks that hold them."""
        shares = divide(weight.part, tensor, self._grid.tensor)
        for rank, name in self._places(weight):
            self._mapped(self._files[rank])[name].copy_(shares[rank[0]])

    def release(self) -> None:
        """Unmap the open files."""
        self._open.clear()

    def close(self) -> None:
        """Unmap the open files."""
        self.release()

    def _places(self, weight: Weight) -> list[tuple[Rank, str]]:
        """Return the ranks that hold a weight, and its name on each."""
        places = [(rank, self._name(weight, rank)) for rank in self._files if self._holds(rank, weight)]
        if weight.part is Part.EMBEDDING and self._architecture.tied and self._grid.pipeline > 1:
            # The last stage has a copy for the output layer.
            last = self._grid.pipeline - 1
            places += [(rank, Part.OUTPUT.value) for rank in self._files if rank[1] == last]
        return places

    def _holds(self, rank: Rank, weight: Weight) -> bool:
        if weight.layer is None:
            return rank[1] == (0 if weight.part is Part.EMBEDDING else self._grid.pipeline - 1)
        if weight.expert is not None and weight.expert // self._experts_each != rank[2]:
            return False
        return weight.layer // self._layers_each == rank[1]

    def _name(self, weight: Weight, rank: Rank) -> str:
        return shard_name(
            weight.part,
            None if weight.layer is None else weight.layer - rank[1] * self._layers_each,
            None if weight.expert is None else weight.expert - rank[2] * self._experts_each,
            transformer_engine=self._transformer_engine,
            moe=bool(self._architecture.experts),
        )

    @property
    def _layers_each(self) -> int:
        return self._architecture.layers // self._grid.pipeline

    @property
    def _experts_each(self) -> int:
        return self._architecture.experts // self._grid.expert

    def _lay_out(self, weights: Sequence[tuple[Weight, torch.dtype]], arguments: Namespace) -> None:
        """Write every file with the space of its numbers left empty."""
        states: dict[Rank, OrderedDict[str, Tensor]] = {rank: OrderedDict() for rank in self._files}
        for weight, dtype in weights:
            whole = torch.empty(shape_of(weight, self._architecture, self._vocabulary), dtype=dtype, device="meta")
            shares = divide(weight.part, whole, self._grid.tensor)
            for rank, name in self._places(weight):
                # Memory that nobody writes to is not allocated.
                states[rank][name] = torch.empty(shares[rank[0]].shape, dtype=dtype)
        for rank, file in self._files.items():
            file.parent.mkdir(parents=True)
            content = {"args": arguments, "checkpoint_version": 3.0, "iteration": 0, "model": states.pop(rank)}
            with skip_data():
                torch.save(content, file)

    def _mapped(self, file: Path) -> dict[str, Tensor]:
        if file not in self._open:
            # This process has just written the file.
            with set_default_mmap_options(mmap.MAP_SHARED):
                self._open[file] = load_file(file)["model"]
        return self._open[file]
