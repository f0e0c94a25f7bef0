"""Megatron-core's distributed checkpoint (`torch_dist`), written tensor by tensor.

The layers are stacked along a first axis of their tensors, and experts along the next, which every version of
megatron-core reads at any tensor, pipeline and expert parallelism. `torch.distributed.checkpoint` writes the files: its
planner is asked for one tensor at a time. Megatron also expects the states of its linear and attention modules
(scales of 8-bit types); empty ones are written.
"""

import io
import json
import warnings
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    SavePlan,
    SavePlanner,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.state_dict_saver import save

from extras.convert.architecture import Architecture
from extras.convert.names import module_name
from extras.convert.torch_dist import BACKEND_FILE, COMMON_FILE
from extras.convert.weights import Part, Weight, shape_of


def write_torch_dist(
    folder: Path,
    architecture: Architecture,
    weights: Sequence[tuple[Weight, torch.dtype]],
    tensors: Iterator[Tensor],
    arguments: Namespace,
    vocabulary: int,
    *,
    transformer_engine: bool,
) -> None:
    """Write a checkpoint; `tensors` yields the whole weights in the order of `weights`.

    `vocabulary`: rows of the embedding, padding included. `transformer_engine`: names of its layers, which differ from
    those of the local layers in models with experts.
    """
    planner = _Planner(architecture, weights, tensors, vocabulary, transformer_engine=transformer_engine)
    writer = FileSystemWriter(folder, single_file_per_rank=True, thread_count=1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        save({}, storage_writer=writer, planner=planner, no_dist=True)
    common: dict[str, Any] = {"args": arguments, "checkpoint_version": 3.0, "iteration": 0}
    common["content_metadata"] = {"non_homogeneous_layers": False, "singleton_local_shards": False}
    torch.save(common, folder / COMMON_FILE)
    backend = {"sharded_backend": "torch_dist", "sharded_backend_version": 1}
    backend |= {"common_backend": "torch", "common_backend_version": 1}
    (folder / BACKEND_FILE).write_text(json.dumps(backend), encoding="utf-8")


class _Planner(SavePlanner):
    """Says what is written where, and hands out one tensor after the other."""

    def __init__(
        self,
        architecture: Architecture,
        weights: Sequence[tuple[Weight, torch.dtype]],
        tensors: Iterator[Tensor],
        vocabulary: int,
        *,
        transformer_engine: bool,
    ) -> None:
        self._architecture, self._tensors, self._vocabulary = architecture, tensors, vocabulary
        self._transformer_engine = transformer_engine
        self._items = [self._item(weight, dtype) for weight, dtype in weights]
        self._states = [WriteItem(MetadataIndex(name), WriteItemType.BYTE_IO) for name in _state_names(architecture)]
        self._next = 0

    def set_up_planner(self, state_dict: Any, storage_meta: Any = None, is_coordinator: bool = False) -> None:
        """Do nothing: the tensors do not come from `state_dict`."""

    def create_local_plan(self) -> SavePlan:
        """Return the chunks, one a weight, and the modules' states."""
        return SavePlan([*self._states, *self._items])

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        """Return the same, with the index of the tensors that the chunks belong to."""
        index: dict[str, Any] = {state.index.fqn: BytesStorageMetadata() for state in self._states}
        for item in self._items:
            data = item.tensor_data
            assert data is not None
            entry = index.setdefault(item.index.fqn, TensorStorageMetadata(data.properties, data.size, []))
            entry.chunks.append(data.chunk)
        return all_plans, Metadata(index)

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        """Return the plan as it is."""
        return new_plan

    def resolve_data(self, write_item: WriteItem) -> Tensor | io.BytesIO:
        """Return an empty state, or the tensor of the next chunk; the writer asks for chunks in the plan's order."""
        if write_item.type is WriteItemType.BYTE_IO:
            return _empty_state()
        expected = self._items[self._next]
        assert write_item.index == expected.index, (write_item.index, expected.index)
        self._next += 1
        data = expected.tensor_data
        assert data is not None
        return next(self._tensors).reshape(data.chunk.sizes)

    def _item(self, weight: Weight, dtype: torch.dtype) -> WriteItem:
        name, place, stack = self._stored(weight)
        shape = shape_of(weight, self._architecture, self._vocabulary)
        offset = torch.Size((*place, *(0 for _ in shape)))
        chunk = ChunkStorageMetadata(offset, torch.Size((*(1 for _ in place), *shape)))
        data = TensorWriteData(chunk, TensorProperties(dtype=dtype), torch.Size((*stack, *shape)))
        return WriteItem(MetadataIndex(name, offset), WriteItemType.SHARD, tensor_data=data)

    def _stored(self, weight: Weight) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
        """Return the name of the stored tensor, the weight's place along its first axes, and their sizes."""
        if weight.layer is None:
            return weight.part.value, (), ()
        moe = bool(self._architecture.experts)
        name = weight.part.value
        if weight.part is Part.MLP_NORM and moe and self._transformer_engine:
            name = module_name(weight.part, None, transformer_engine=True, moe=True)
        name = f"decoder.layers.{name}"
        if weight.expert is None:
            return name, (weight.layer,), (self._architecture.layers,)
        return name, (weight.layer, weight.expert), (self._architecture.layers, self._architecture.experts)


_STATEFUL = (
    "self_attention.linear_qkv",
    "self_attention.linear_proj",
    "self_attention.core_attention",
    "mlp.linear_fc1",
    "mlp.linear_fc2",
)
"""Modules of a layer with a state; of a model with experts, the last two are the experts'."""


def _state_names(architecture: Architecture) -> Iterator[str]:
    """Yield the stored names of the modules' states: the module's name, its place, and the number of places."""
    layers, experts = architecture.layers, architecture.experts
    for layer in range(layers):
        for module in _STATEFUL:
            if not (experts and module.startswith("mlp")):
                yield f"decoder.layers.{module}._extra_state/shard_{layer}_{layers}"
        for expert in range(experts):
            for linear in ("linear_fc1", "linear_fc2"):
                name = f"decoder.layers.mlp.experts.experts.{linear}._extra_state"
                yield f"{name}/shard_{layer}.{expert}_{layers}.{experts}"


def _empty_state() -> io.BytesIO:
    content = io.BytesIO()
    torch.save([None], content)
    return content
