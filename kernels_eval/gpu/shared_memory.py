"""Device memory through which tensors pass between the judge's worker and a candidate's process.

One allocation of the worker, which the candidate's process maps by a CUDA IPC handle (nothing else lies in it: the
handle of a pooled allocation would map its neighbours too). It holds one set for each call: the inputs, and slots for
the outputs. Between any two slots lies a guard zone. Guards and output slots are filled with a pattern that is NaN as a
floating-point number: reading outside an input poisons the result, and writing outside a slot shows.

The worker never computes in this memory: it prepares a private copy, copies that in (`publish`) just before the
candidate's process starts the round, and copies everything out (`collect`) just after the answer. Later writes do not
count.

Without CUDA IPC, the candidate's process has device memory apart from the worker's, and contents pass through a shared
file.
"""

import mmap
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernels_eval.gpu import cuda_driver
from kernels_eval.gpu.cuda_driver import CudaDriver, DeviceRegion
from kernels_eval.sandbox.tensor_bytes import DTYPES, TensorForm, form_of

ALIGNMENT = 512
GUARD_BYTES = 1024
POISON = 0xFF
"""Every byte: a NaN in each floating-point type, −1 in each integer type."""
MIN_BYTES = 2 << 20


@dataclass(frozen=True)
class CallSlots:
    """Offsets in bytes of one call's tensors; None for an input that is no tensor."""

    inputs: tuple[int | None, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """Offsets of all slots, and the size that they need."""

    calls: tuple[CallSlots, ...]
    nbytes: int


def lay_out(inputs: Sequence[Any], output_bytes: Sequence[int], calls: int) -> Layout:
    """Place `calls` sets. `inputs`: forms of tensors, or plain values; `output_bytes`: size of each output."""
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


class IpcTransport:
    """Worker's side of the shared memory: one allocation, mapped by both processes."""

    name = "cuda-ipc"

    def __init__(self, driver: CudaDriver) -> None:
        self._driver = driver
        self._address = 0
        self._nbytes = 0
        self._tensor = torch.empty(0)

    def memory(self, nbytes: int) -> torch.Tensor:
        """Return the shared memory as bytes on the device, at least this large; growing moves it."""
        if nbytes > self._nbytes:
            if self._address:
                self._driver.synchronize()
                self._driver.free(self._address)
            self._address = self._driver.allocate(nbytes)
            self._nbytes = nbytes
            self._tensor = torch.as_tensor(DeviceRegion(self._address, nbytes), device=cuda_driver.DEVICE)
        return self._tensor

    def mapping(self) -> dict[str, Any]:
        """Return the arguments by which the candidate's process maps the memory."""
        return {"transport": self.name, "handle": self._driver.export(self._address).hex(), "nbytes": self._nbytes}

    def push(self, nbytes: int) -> None:
        """Make what was written here visible to the candidate's process."""
        self._driver.synchronize()

    def pull(self, nbytes: int) -> None:
        """Make what the candidate's process wrote visible here: nothing to do, the memory is the same."""


class HostTransport:
    """The same interface without CUDA IPC: separate device memory on each side, and a shared file between them."""

    name = "host-copies"

    def __init__(self, driver: CudaDriver, descriptor: int) -> None:
        self._driver = driver
        self._descriptor = descriptor
        self._tensor = torch.empty(0, dtype=torch.uint8)
        self._staging: torch.Tensor | None = None

    def memory(self, nbytes: int) -> torch.Tensor:
        """Return the worker's memory."""
        if nbytes > self._tensor.numel():
            self._tensor = torch.empty(nbytes, dtype=torch.uint8, device=cuda_driver.DEVICE)
            os.ftruncate(self._descriptor, nbytes)
            self._staging = torch.frombuffer(mmap.mmap(self._descriptor, nbytes), dtype=torch.uint8)
        return self._tensor

    def mapping(self) -> dict[str, Any]:
        """Return the size; the descriptor passes with the job."""
        return {"transport": self.name, "nbytes": self._tensor.numel()}

    def push(self, nbytes: int) -> None:
        """Copy to the file."""
        assert self._staging is not None
        self._staging[:nbytes].copy_(self._tensor[:nbytes])
        self._driver.synchronize()

    def pull(self, nbytes: int) -> None:
        """Copy from the file."""
        assert self._staging is not None
        self._tensor[:nbytes].copy_(self._staging[:nbytes])
        self._driver.synchronize()


Transport = IpcTransport | HostTransport


class MappedMemory:
    """Candidate's side of either transport."""

    def __init__(self, driver: CudaDriver, mapping: dict[str, Any], descriptor: int) -> None:
        nbytes: int = mapping["nbytes"]
        self._staging: torch.Tensor | None = None
        if mapping["transport"] == IpcTransport.name:
            address = driver.open(bytes.fromhex(mapping["handle"]))
            self.tensor = torch.as_tensor(DeviceRegion(address, nbytes), device=cuda_driver.DEVICE)
        else:
            self.tensor = torch.empty(nbytes, dtype=torch.uint8, device=cuda_driver.DEVICE)
            self._staging = torch.frombuffer(mmap.mmap(descriptor, nbytes), dtype=torch.uint8)

    def pull(self, nbytes: int) -> None:
        """Make what the worker wrote visible here."""
        if self._staging is not None:
            copy_tensor(self.tensor[:nbytes], self._staging[:nbytes])

    def push(self, nbytes: int) -> None:
        """Make what was written here visible to the worker (the device must be idle)."""
        if self._staging is not None:
            copy_tensor(self._staging[:nbytes], self.tensor[:nbytes])


copy_tensor: Any = torch.Tensor.copy_  # bound before a candidate can replace the method


class SharedCalls:
    """Inputs and outputs of one round's calls: prepared in a private copy, published, and collected after the round."""

    def __init__(
        self, transport: Transport, layout: Layout, sets: list[list[Any]], output_forms: list[TensorForm]
    ) -> None:
        self._transport = transport
        self._layout = layout
        self.sets = sets
        """Inputs of each call."""
        self.output_forms = output_forms
        """Forms of the outputs of each call."""
        self.nbytes = layout.nbytes
        self._prepared = torch.full((self.nbytes,), POISON, dtype=torch.uint8, device=cuda_driver.DEVICE)
        self._collected = torch.empty_like(self._prepared)
        for _, value, offset in self._tensors():
            view(self._prepared, form_of(value), offset).copy_(value)

    @property
    def count(self) -> int:
        """Number of calls."""
        return len(self.sets)

    def requests(self) -> list[dict[str, Any]]:
        """Return the description of each call for the candidate's process."""
        return [
            {
                "inputs": [
                    {"value": value} if offset is None else {"form": form_of(value).model_dump(), "offset": offset}
                    for value, offset in zip(values, slots.inputs, strict=True)
                ],
                "outputs": [
                    {"offset": offset, "nbytes": form.nbytes}
                    for form, offset in zip(self.output_forms, slots.outputs, strict=True)
                ],
            }
            for values, slots in zip(self.sets, self._layout.calls, strict=True)
        ]

    def publish(self) -> None:
        """Copy inputs, guards and poison into the shared memory; returns when they have arrived."""
        self._transport.memory(self.nbytes)[: self.nbytes].copy_(self._prepared)
        self._transport.push(self.nbytes)

    def collect(self) -> None:
        """Copy the shared memory's contents out."""
        self._transport.pull(self.nbytes)
        self._collected.copy_(self._transport.memory(self.nbytes)[: self.nbytes])

    def output(self, call: int, index: int, form: TensorForm) -> torch.Tensor:
        """Return one output's slot: of the contents collected or, after `local_inputs`, of the worker's own run."""
        return view(self._collected, form, self._layout.calls[call].outputs[index])

    def changed_inputs(self) -> set[int]:
        """Return the indices of inputs that some call changed."""
        changed: set[int] = set()
        for index, value, offset in self._tensors():
            here = slice(offset, offset + form_of(value).nbytes)
            if not torch.equal(self._collected[here], self._prepared[here]):
                changed.add(index)
        return changed

    def has_broken_guards(self) -> bool:
        """True if something was written between the slots."""
        starts = [
            offset for slots in self._layout.calls for offset in (*slots.inputs, *slots.outputs) if offset is not None
        ]
        return any(bool((self._collected[start - GUARD_BYTES : start] != POISON).any()) for start in starts)

    def local_inputs(self) -> list[list[Any]]:
        """Return every call's inputs in private memory, which the worker's run of the call may change."""
        self._collected.copy_(self._prepared)
        return [
            [
                value if offset is None else view(self._collected, form_of(value), offset)
                for value, offset in zip(values, slots.inputs, strict=True)
            ]
            for values, slots in zip(self.sets, self._layout.calls, strict=True)
        ]

    def _tensors(self) -> Iterator[tuple[int, torch.Tensor, int]]:
        """Yield index, value and offset of every input that is a tensor with elements, call by call."""
        for values, slots in zip(self.sets, self._layout.calls, strict=True):
            for index, (value, offset) in enumerate(zip(values, slots.inputs, strict=True)):
                if offset is not None and value.numel():
                    yield index, value, offset
