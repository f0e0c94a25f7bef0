"""Weight files of `save_pretrained`, hashed while they are written; to the byte those of the safetensors library.

The library writes a file and leaves its SHA-256 to whoever reads it again, and copies all weights of a GPU to the host
first. Here a tensor is copied, written and hashed while the next one is on its way.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import modeling_utils

from tasks.models.safetensors_stream import Planned, SafetensorsFile

_METADATA = {"format": "pt"}
_ORDER = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
"""Order of types in a file, as the library has it. Tensors of one type are in the order of their names."""


@contextmanager
def hashed_weight_files() -> Generator[None]:
    """Let `save_pretrained` write with `write_weights` in this process until the block ends."""
    module: Any = modeling_utils  # the library has no setting for it
    library = module.safe_save_file
    module.safe_save_file = write_weights
    try:
        yield
    finally:
        module.safe_save_file = library


def write_weights(tensors: Mapping[str, Tensor], file: str | Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write a file as `safetensors.torch.save_file` does. Raises OSError if the disk is full.

    Tensors of a type that models do not train in, or that share memory, are left to the library.
    """
    places = {tensor.data_ptr() for tensor in tensors.values()}
    is_plain = all(tensor.dtype in _ORDER and tensor.is_contiguous() for tensor in tensors.values())
    if metadata != _METADATA or len(places) < len(tensors) or not is_plain:
        save_file(dict(tensors), file, None if metadata is None else dict(metadata))
        return
    names = sorted(tensors, key=lambda name: (_ORDER.index(tensors[name].dtype), name))
    planned = [Planned(name, tensors[name].dtype, tuple(tensors[name].shape)) for name in names]
    with SafetensorsFile(Path(file), planned, {}) as stream:
        for name in names:
            stream.write(name, tensors[name].detach().cpu())
