"""Device memory through which tensors pass between the judge's worker and a candidate's process.

One allocation of the worker, which the candidate's process maps by a CUDA IPC handle (nothing else lies in it: the
handle of a pooled allocation would map its neighbours too). It holds one set for each call: the inputs, and slots for
the outputs. Between any two slots lies a guard zone. Guards and output slots are filled with a pattern that is NaN as a
floating-point number: reading outside an input poisons the result, and writing outside a slot shows.

The worker never computes in this memory: it prepares the inputs in private memory, copies them in (`publish`) just
before the candidate's process starts the round, and copies the outputs out (`collect`) as soon as the device is done.
Later writes do not count.

Without CUDA IPC, the candidate's process has device memory apart from the worker's, and contents pass through a shared
file.
"""

import mmap
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernels_eval.gpu.device import cuda_driver
from kernels_eval.gpu.device.cuda_driver import CudaDriver, CudaError, DeviceRegion
from kernels_eval.gpu.device.gate import PAGE_BYTES
from kernels_eval.gpu.device.samples import Pieces, Samples
from kernels_eval.gpu.device.watch import MAX_DISTANCE, PIECE_BYTES, Watch
from kernels_eval.sandbox.tensor_bytes import DTYPES, TensorForm

ALIGNMENT = 512
GUARD_BYTES = 1024
POISON = 0xFF
"""Every byte: a NaN in each floating-point type, −1 in each integer type."""
HEAD_BYTES = ALIGNMENT
"""Before the slots, where all processes map the same memory: the word that tells the end of a group of calls."""
MIN_BYTES = 2 << 20
"""Also the size of a page of device memory. An allocation has whole ones: else the process that maps it has small pages
instead, and reads and writes it at 1.6 instead of 2.35 TB/s (measured on an H100)."""
_KEPT_BYTES = 256 << 20
"""Shared memory that is kept for the next problem although this one needs less."""


@dataclass(frozen=True)
class CallSlots:
    """Offsets in bytes of one call's tensors; None for an input that is no tensor."""

    inputs: tuple[int | None, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """Offsets of all slots: first the inputs of all calls, then the outputs; calls are at equal distances."""

    calls: tuple[CallSlots, ...]
    outputs_from: int
    """Start of the outputs, with a guard zone."""
    nbytes: int


def lay_out(inputs: Sequence[Any], output_bytes: Sequence[int], calls: int) -> Layout:
    """Place `calls` sets. `inputs`: forms of tensors, or plain values; `output_bytes`: size of each output."""
    sizes = [value.nbytes if isinstance(value, TensorForm) else None for value in inputs]
    given, end_of_inputs = _places([sizes] * calls, GUARD_BYTES)
    outputs_from = end_of_inputs - GUARD_BYTES  # the guard after the last input is the one before the first output
    taken, end = _places([output_bytes] * calls, end_of_inputs)
    placed = tuple(
        CallSlots(before, tuple(offset for offset in after if offset is not None))
        for before, after in zip(given, taken, strict=True)
    )
    return Layout(placed, outputs_from, max(end, MIN_BYTES))


def _places(sizes: Sequence[Sequence[int | None]], start: int) -> tuple[list[tuple[int | None, ...]], int]:
    """Return offsets from `start` on for sizes in bytes, with guards between them, and where the next one would be."""
    placed: list[tuple[int | None, ...]] = []
    for call in sizes:
        offsets: list[int | None] = []
        for nbytes in call:
            offsets.append(None if nbytes is None else start)
            start += 0 if nbytes is None else rounded_up(nbytes) + GUARD_BYTES
        placed.append(tuple(offsets))
    return placed, start


def rounded_up(nbytes: int, unit: int = ALIGNMENT) -> int:
    """Return the next multiple of `unit`."""
    return -(-nbytes // unit) * unit


def region_of_slots(address: int, nbytes: int) -> DeviceRegion:
    """Return shared device memory without its head."""
    return DeviceRegion(address + HEAD_BYTES, nbytes - HEAD_BYTES)


def view(memory: torch.Tensor, form: TensorForm, offset: int) -> torch.Tensor:
    """Return the tensor of a form at an offset of a flat byte tensor (no copy)."""
    return memory[offset : offset + form.nbytes].view(DTYPES[form.dtype]).reshape(form.shape)


def apart(memory: torch.Tensor, form: TensorForm, offset: int) -> torch.Tensor:
    """Return a `view` whose storage has nothing else.

    Some operators copy all of a tensor's storage (`select_scatter`): of an input that would be all calls' inputs.
    """
    storage = memory.untyped_storage()[offset : offset + form.nbytes]
    return memory.new_empty(0).set_(storage).view(DTYPES[form.dtype]).reshape(form.shape)


class IpcTransport:
    """Worker's side of the shared memory: one allocation, mapped by both processes."""

    name = "cuda-ipc"

    def __init__(self, driver: CudaDriver) -> None:
        self._driver = driver
        self._head = 0
        self._end = torch.empty(0)
        self._nbytes = 0
        self._tensor = torch.empty(0)
        self._stream = 0
        self._staged = torch.empty(0, dtype=torch.uint8)
        self._watch: Watch | None = None
        self._samples: Samples | None = None
        self._can_hold = True

    @property
    def _address(self) -> int:
        """Address of the slots."""
        return self._head + HEAD_BYTES

    def suits(self, nbytes: int) -> bool:
        """True if `reserve` would change nothing."""
        least = rounded_up(HEAD_BYTES + nbytes, MIN_BYTES)
        return least <= self._nbytes <= 2 * least + _KEPT_BYTES

    def reserve(self, nbytes: int) -> None:
        """Have at least this much shared memory, and not much more; changing its size moves it."""
        if not self.suits(nbytes):
            nbytes = rounded_up(HEAD_BYTES + nbytes, MIN_BYTES)
            self.release()
            self._head = self._driver.allocate(nbytes)
            self._nbytes = nbytes
            self._end = torch.as_tensor(DeviceRegion(self._head, HEAD_BYTES), device=cuda_driver.DEVICE)
            self._tensor = torch.as_tensor(region_of_slots(self._head, nbytes), device=cuda_driver.DEVICE)

    def release(self) -> None:
        """Give the shared memory back; `reserve` takes what is needed then, and no more."""
        if self._head:
            self._driver.synchronize()
            self._driver.free(self._head)
            self._head = self._nbytes = 0
            self._tensor = self._end = torch.empty(0)

    @property
    def nbytes(self) -> int:
        """Bytes of device memory that are taken beside torch's in this process."""
        return self._tensor.numel()

    def memory(self) -> torch.Tensor:
        """Return the shared memory as bytes on the device."""
        return self._tensor

    def mapping(self) -> dict[str, Any]:
        """Return the arguments by which the candidate's process maps the memory."""
        return {"transport": self.name, "handle": self._driver.export(self._head).hex(), "nbytes": self._nbytes}

    def push(self, nbytes: int) -> None:
        """Make what was written here visible to the candidate's process."""
        self._driver.synchronize()

    def pull(self, nbytes: int) -> None:
        """Make what the candidate's process wrote visible here: nothing to do, the memory is the same."""

    def pieces(self, offset: int, distance: int, count: int) -> Pieces:
        """Return what stands in pieces at equal distances: now, or when the device told the end (`queue_pieces`).

        Without a kernel, for which the device would first have to change to this process.
        """
        samples = self._own_samples()
        if not samples.are_queued:
            can_reach = distance <= MAX_DISTANCE
            samples.queue(self._address + offset, min(distance, MAX_DISTANCE), count if can_reach else 1)
        return samples.wait(self._tell_end)

    def queue_pieces(self, offset: int, distance: int, count: int) -> None:
        """Have the next `pieces` taken when the device tells the end. Does nothing if that cannot be had."""
        if self._can_hold and distance <= MAX_DISTANCE:
            try:
                self._own_samples().queue(self._address + offset, distance, count, self._head)
            except CudaError:
                self._can_hold = False

    def forget_pieces(self) -> None:
        """Take back what `queue_pieces` has queued: of a round that has failed no end may be told."""
        if self._samples is not None and self._samples.are_queued:
            self._tell_end()
            self._samples.wait(self._tell_end)

    def _own_samples(self) -> Samples:
        self._samples = self._samples or Samples(self._driver)
        return self._samples

    def _tell_end(self) -> None:
        self._end.fill_(1)

    def clear_end(self) -> None:
        """Take back the end that was told last."""
        self._end.zero_()

    def watch(self, offset: int, group: int, start: int, end: int) -> Watch | None:
        """Queue what `deliver` copies and, behind it, looks at a piece and at the word that tells a group's end.

        None where that cannot be had.
        """
        distance = HEAD_BYTES + offset
        if self._watch is None and self._can_hold:
            try:
                self._watch = Watch(self._driver)
            except CudaError:
                self._can_hold = False
        if self._watch is None or distance > MAX_DISTANCE:
            return None
        inputs = self._address + start, self._staged.data_ptr() + start, end - start
        self._watch.queue(inputs, self._head, self._address + offset, group)
        return self._watch

    def stage(self, content: torch.Tensor) -> None:
        """Have a copy of bytes in pinned host memory, from which `deliver` takes them."""
        if self._staged.numel() < content.numel():
            self._staged = torch.empty(content.numel(), dtype=torch.uint8, pin_memory=True)
        self._staged[: content.numel()].copy_(content)

    def deliver(self, start: int, end: int, private: torch.Tensor | None = None) -> None:
        """Copy staged bytes to their place in the shared memory, or in private memory of the same layout.

        Without a kernel, for which the device would have to change to this process.
        """
        device = self._address if private is None else private.data_ptr()
        host = self._staged.data_ptr()
        self._driver.copy_to_device(device + start, host + start, end - start, self._own_stream())

    def _own_stream(self) -> int:
        self._stream = self._stream or self._driver.new_stream()
        return self._stream


class HostTransport:
    """The same interface without CUDA IPC: separate device memory on each side, and a shared file between them."""

    name = "host-copies"

    def __init__(self, driver: CudaDriver, descriptor: int) -> None:
        self._driver = driver
        self._descriptor = descriptor
        self._tensor = torch.empty(0, dtype=torch.uint8)
        self._staging: torch.Tensor | None = None

    def suits(self, nbytes: int) -> bool:
        """True if `reserve` would change nothing."""
        return nbytes <= self._tensor.numel()

    def reserve(self, nbytes: int) -> None:
        """Have at least this much memory on both sides."""
        if not self.suits(nbytes):
            self._tensor = torch.empty(nbytes, dtype=torch.uint8, device=cuda_driver.DEVICE)
            os.ftruncate(self._descriptor, PAGE_BYTES + nbytes)
            self._staging = _staging(self._descriptor, nbytes)

    def release(self) -> None:
        """Give the memory back; `reserve` takes what is needed then, and no more."""
        self._tensor = torch.empty(0, dtype=torch.uint8)
        self._staging = None

    @property
    def nbytes(self) -> int:
        """Bytes of device memory that are taken beside torch's in this process: the candidate's copy."""
        return self._tensor.numel()

    def memory(self) -> torch.Tensor:
        """Return the worker's memory."""
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

    def pieces(self, offset: int, distance: int, count: int) -> Pieces:
        """Return what stands now in pieces of the file at equal distances."""
        assert self._staging is not None
        rows = self._staging.as_strided((count, PIECE_BYTES), (distance, 1), offset).clone()
        return Pieces(rows, time.perf_counter())

    def queue_pieces(self, offset: int, distance: int, count: int) -> None:
        """Do nothing: `pieces` takes what stands in the file then."""

    def forget_pieces(self) -> None:
        """Do nothing."""

    def clear_end(self) -> None:
        """Do nothing: the end is not told in this memory."""


def _staging(descriptor: int, nbytes: int) -> torch.Tensor:
    """Map the shared file behind the gate's page."""
    return torch.frombuffer(mmap.mmap(descriptor, nbytes, offset=PAGE_BYTES), dtype=torch.uint8)


Transport = IpcTransport | HostTransport


class MappedMemory:
    """Candidate's side of either transport."""

    def __init__(self, driver: CudaDriver, mapping: dict[str, Any], descriptor: int) -> None:
        nbytes: int = mapping["nbytes"]
        self._staging: torch.Tensor | None = None
        self.end_word: int | None = None
        """Address of the word that tells the end, where it lies in shared memory."""
        if mapping["transport"] == IpcTransport.name:
            address = driver.open(bytes.fromhex(mapping["handle"]))
            self.end_word = address
            self.tensor = torch.as_tensor(region_of_slots(address, nbytes), device=cuda_driver.DEVICE)
        else:
            self.tensor = torch.empty(nbytes, dtype=torch.uint8, device=cuda_driver.DEVICE)
            self._staging = _staging(descriptor, nbytes)

    @property
    def is_shared(self) -> bool:
        """True if this is the worker's own device memory."""
        return self._staging is None

    def pull(self, nbytes: int) -> None:
        """Make what the worker wrote visible here."""
        if self._staging is not None:
            copy_tensor(self.tensor[:nbytes], self._staging[:nbytes])

    def push(self, nbytes: int) -> None:
        """Make what was written here visible to the worker (the device must be idle)."""
        if self._staging is not None:
            copy_tensor(self._staging[:nbytes], self.tensor[:nbytes])


copy_tensor: Any = torch.Tensor.copy_  # bound before a candidate can replace the method
