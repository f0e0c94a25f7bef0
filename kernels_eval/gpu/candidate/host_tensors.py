"""Tensors of the host in the candidate's process: arithmetic on few numbers is allowed there, as it is on a CPU.

Sizes, scales and checks are computed so. No element of an input or a weight may reach them: what was copied from the
device counts as the device's, and so does what an operator makes of it, and pinned memory, into which kernels write.
"""

from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves

from kernels_eval.gpu.device import cuda_driver

_MOST_NUMBERS = 64
"""Elements of a tensor that host code computes with: sizes and scales, whatever they come from."""
_MOST_KNOWN = 4096
"""Storages, before those are forgotten that are gone."""


class HostTensors:
    """Tells tensors that hold nothing of the device from others."""

    def __init__(self) -> None:
        self._of_device: dict[int, StorageWeakRef] = {}
        """Storages on the host with elements of the device, by address of their implementation."""

    def are_alone(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """True if an operator takes tensors, and they and its result are the host's, with nothing of the device."""
        device = kwargs.get("device")
        if device is not None and torch.device(device).type == cuda_driver.DEVICE:
            return False
        tensors = _tensors((args, kwargs))
        are_few = all(tensor.numel() <= _MOST_NUMBERS for tensor in tensors)
        return bool(tensors) and are_few and not any(map(self._has_of_device, tensors))

    def note(self, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Note what an operator made, or wrote, on the host of elements of the device."""
        if not any(map(self._has_of_device, _tensors((args, kwargs)))):
            return
        for tensor in _tensors((args, kwargs, result)):
            if tensor.device.type != cuda_driver.DEVICE:
                storage = tensor.untyped_storage()
                self._of_device[_place(storage)] = StorageWeakRef(storage)
        if len(self._of_device) > _MOST_KNOWN:
            self._of_device = {place: known for place, known in self._of_device.items() if not known.expired()}

    def _has_of_device(self, tensor: torch.Tensor) -> bool:
        if tensor.device.type == cuda_driver.DEVICE or tensor.is_pinned():
            return True
        known = self._of_device.get(_place(tensor.untyped_storage()))
        return known is not None and not known.expired()


def _place(storage: torch.UntypedStorage) -> int:
    return storage._cdata  # pyright: ignore[reportPrivateUsage]


def _tensors(values: Any) -> list[torch.Tensor]:
    return [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]
