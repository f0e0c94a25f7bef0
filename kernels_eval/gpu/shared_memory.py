"""Device memory through which tensors pass between the judge and a candidate's process.

One allocation of the judge's own, which the candidate's process maps by a CUDA IPC handle (it holds nothing else: the handle
of a pooled allocation would map its neighbours too). Its content is a sequence of sets, each the inputs and the room for the
outputs of one call. Between any two slots lies a guard zone; guards and output slots are filled with a pattern that is NaN as
a floating-point number, so that reading outside an input poisons the result and writing outside it shows.

The judge never works in this memory: it prepares a private twin, copies that in (`publish`) just before the candidate is told to
go, and copies everything out (`collect`) just after its answer, so that nothing written later counts.

Where IPC is not to be had, the candidate's process has memory of its own and the content passes through a shared file.
"""

import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from kernels_eval.gpu import cuda_driver
from kernels_eval.gpu.cuda_driver import CudaDriver, DeviceRegion
from kernels_eval.sandbox.tensor_bytes import DTYPES, TensorForm

ALIGNMENT = 512
GUARD_BYTES = 1024
POISON = 0xFF
"""Every byte: a NaN in each floating-point type, −1 in each integer type."""
MIN_BYTES = 2 << 20


@dataclass(frozen=True)
class CallSlots:
    """Where one call's tensors lie: offsets in bytes; None for an input that is no tensor."""

    inputs: tuple[int | None, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """Offsets of all slots, and the size that they need."""

    calls: tuple[CallSlots, ...]
    nbytes: int


def lay_out(inputs: Sequence[Any], output_bytes: Sequence[int], calls: int) -> Layout:
    """Place `calls` sets. Inputs: forms of tensors, or plain values; output_bytes: room for each output."""
    offset = GUARD_BYTES
    placed: list[CallSlots] = []

    def take(nbytes: int) -> int:
        nonlocal offset
        start = offset
        offset = _aligned(start + nbytes) + GUARD_BYTES
        return start

    for _ in range(calls):
        taken = tuple(take(value.nbytes) if isinstance(value, TensorForm) else None for value in inputs)
        placed.append(CallSlots(taken, tuple(take(nbytes) for nbytes in output_bytes)))
    return Layout(tuple(placed), max(offset, MIN_BYTES))


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def view(memory: torch.Tensor, form: TensorForm, offset: int) -> torch.Tensor:
    """Return the tensor of a form at an offset of a flat byte tensor (no copy)."""
    return memory[offset : offset + form.nbytes].view(DTYPES[form.dtype]).reshape(form.shape)


class Transport(Protocol):
    """One way for the content to pass; the judge's side."""

    name: str

    def memory(self, nbytes: int) -> torch.Tensor:
        """Return the shared memory as bytes on the device, at least this large; it may move."""
        ...

    def ticket(self) -> dict[str, Any]:
        """Return what the candidate's process needs to map it."""
        ...

    def pushed(self, nbytes: int) -> None:
        """The memory was filled: let the other side see it."""
        ...

    def pulled(self, nbytes: int) -> None:
        """The other side has answered: make what it wrote visible here."""
        ...


class IpcTransport:
    """One allocation, mapped by both processes."""

    name = "cuda-ipc"

    def __init__(self, driver: CudaDriver) -> None:
        self._driver = driver
        self._address = 0
        self._nbytes = 0
        self._tensor = torch.empty(0)

    def memory(self, nbytes: int) -> torch.Tensor:
        """Return the memory, allocated anew where it is too small."""
        if nbytes > self._nbytes:
            if self._address:
                self._driver.synchronize()
                self._driver.free(self._address)
            self._address = self._driver.allocate(nbytes)
            self._nbytes = nbytes
            self._tensor = torch.as_tensor(DeviceRegion(self._address, nbytes), device=cuda_driver.DEVICE)
        return self._tensor

    def ticket(self) -> dict[str, Any]:
        """Return the handle."""
        return {"way": self.name, "handle": self._driver.export(self._address).hex(), "nbytes": self._nbytes}

    def pushed(self, nbytes: int) -> None:
        """Wait until the copy has arrived."""
        self._driver.synchronize()

    def pulled(self, nbytes: int) -> None:
        """Nothing to do: the memory is the same."""


class HostTransport:
    """Memory of each side's own, and a shared file between them."""

    name = "host-copies"

    def __init__(self, driver: CudaDriver, descriptor: int) -> None:
        self._driver = driver
        self._descriptor = descriptor
        self._tensor = torch.empty(0, dtype=torch.uint8)
        self._staging: torch.Tensor | None = None

    def memory(self, nbytes: int) -> torch.Tensor:
        """Return the judge's own copy."""
        if nbytes > self._tensor.numel():
            self._tensor = torch.empty(nbytes, dtype=torch.uint8, device=cuda_driver.DEVICE)
            os.ftruncate(self._descriptor, nbytes)
            self._staging = torch.frombuffer(mmap.mmap(self._descriptor, nbytes), dtype=torch.uint8)
        return self._tensor

    def ticket(self) -> dict[str, Any]:
        """Return the size; the descriptor passes with the job."""
        return {"way": self.name, "nbytes": self._tensor.numel()}

    def pushed(self, nbytes: int) -> None:
        """Copy to the file."""
        assert self._staging is not None
        self._staging[:nbytes].copy_(self._tensor[:nbytes])
        self._driver.synchronize()

    def pulled(self, nbytes: int) -> None:
        """Copy from the file."""
        assert self._staging is not None
        self._tensor[:nbytes].copy_(self._staging[:nbytes])
        self._driver.synchronize()


class MappedMemory:
    """The candidate's side of either way."""

    def __init__(self, driver: CudaDriver, ticket: dict[str, Any], descriptor: int) -> None:
        nbytes: int = ticket["nbytes"]
        self._staging: torch.Tensor | None = None
        if ticket["way"] == IpcTransport.name:
            address = driver.open(bytes.fromhex(ticket["handle"]))
            self.tensor = torch.as_tensor(DeviceRegion(address, nbytes), device=cuda_driver.DEVICE)
        else:
            self.tensor = torch.empty(nbytes, dtype=torch.uint8, device=cuda_driver.DEVICE)
            self._staging = torch.frombuffer(mmap.mmap(descriptor, nbytes), dtype=torch.uint8)

    def fetch(self, nbytes: int) -> None:
        """Make what the judge wrote visible."""
        if self._staging is not None:
            _copy(self.tensor[:nbytes], self._staging[:nbytes])

    def deliver(self, nbytes: int) -> None:
        """Let the judge see what was written (the device must be idle)."""
        if self._staging is not None:
            _copy(self._staging[:nbytes], self.tensor[:nbytes])


_copy: Any = torch.Tensor.copy_  # bound before a candidate can replace the method
