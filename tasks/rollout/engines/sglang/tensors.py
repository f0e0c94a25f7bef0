"""Serialises a checkpoint's tensors for a server (`/update_weights_from_tensor`), in the rollout worker.

From GPU memory: the server maps the same memory. The message holds CUDA IPC handles, and names the GPU by its UUID
because each process numbers its visible GPUs itself. From CPU memory: the message holds the values.

A message is a pickled list of (name, tensor) in base64, with the names of the checkpoint's files; the server unpickles
only types that torch and the standard containers need (`SafeUnpickler` in `sglang/srt/utils/common.py`).
"""

import base64
import io
import os
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kernels_eval.errors import InputError
from tasks.cluster.devices import has_gpu

IN_GPU_BYTES = 1 << 30
"""Bytes of tensors per message with handles: GPU memory in use for a moment."""
BY_VALUE_BYTES = 128 << 20
"""Bytes per message with values."""
_WEIGHT_FILES = "model*.safetensors"
_DEVICE_ARGUMENT = 6
"""Place of the device's number among the arguments of `torch.multiprocessing.reductions.rebuild_cuda_tensor`."""


def messages(folder: Path, device: str) -> Iterator[tuple[str, list[Tensor]]]:
    """Yield the checkpoint's weights in messages, each with the tensors that must be kept until it is answered.

    `device`: `cuda` or `cpu`. Raises InputError if the folder holds no weights.
    """
    limit = IN_GPU_BYTES if device == "cuda" else BY_VALUE_BYTES
    for bucket in buckets(folder, limit):
        moved = [(name, tensor.to(device)) for name, tensor in bucket]
        yield packed(moved), [tensor for _, tensor in moved]


def buckets(folder: Path, limit: int) -> Iterator[list[tuple[str, Tensor]]]:
    """Yield the weights, as many together as have at most `limit` bytes (a larger one alone)."""
    from safetensors import SafetensorError, safe_open

    files = sorted(folder.glob(_WEIGHT_FILES))
    if not files:
        raise InputError(f"{folder}: expected weights in {_WEIGHT_FILES}, found none")
    bucket: list[tuple[str, Tensor]] = []
    size = 0
    for file in files:
        try:
            stored: Any = safe_open(file, framework="pt")
        except SafetensorError as error:
            raise InputError(f"{file}: expected weights in safetensors' format: {error}") from error
        with stored:
            for name in sorted(stored.keys()):
                tensor: Tensor = stored.get_tensor(name)
                if bucket and size + tensor.nbytes > limit:
                    yield bucket
                    bucket, size = [], 0
                bucket.append((name, tensor))
                size += tensor.nbytes
    yield bucket


def packed(named: Sequence[tuple[str, Tensor]]) -> str:
    """Return the message of these tensors."""
    buffer = io.BytesIO()
    _Pickler(buffer).dump(list(named))
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def shares_gpu(servers_gpus: str | None) -> bool:
    """True if this process has a GPU that a server with these CUDA_VISIBLE_DEVICES on this host (None: unset) sees too.

    A server dies if it receives memory of a GPU that it does not see: an unclear case returns False.
    """
    if not has_gpu():
        return False
    if servers_gpus is None:
        return True
    number, visible = torch.cuda.current_device(), os.environ.get("CUDA_VISIBLE_DEVICES")
    ours = str(number) if visible is None else visible.split(",")[number].strip()
    return ours in [name.strip() for name in servers_gpus.split(",")]


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if not (isinstance(obj, Tensor) and obj.is_cuda):
            return NotImplemented
        from torch.multiprocessing import reductions

        reduce_tensor: Any = reductions.reduce_tensor
        rebuild, arguments = reduce_tensor(obj)
        uuid = str(torch.cuda.get_device_properties(arguments[_DEVICE_ARGUMENT]).uuid)
        return rebuild, (*arguments[:_DEVICE_ARGUMENT], uuid, *arguments[_DEVICE_ARGUMENT + 1 :])
