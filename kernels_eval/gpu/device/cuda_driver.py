"""CUDA driver calls that the judge makes itself, bound before a candidate's code is loaded.

Through libcuda by ctypes, not through torch: `torch.cuda.Event`, `torch.cuda.synchronize` and the like are Python
attributes that a candidate can replace. All calls need a current context, which torch makes on its first CUDA
operation.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

_IPC_LAZY_PEER_ACCESS = 1
_HOST_REGISTER_MAPPED = 2
_NOT_INITIALISED = 3
_NOT_READY = 600
_WAIT_UNTIL_AT_LEAST = 0
_WAITS_FOR_NO_STREAM = 1
_HOST_MEMORY, _DEVICE_MEMORY = 1, 2
HANDLE_BYTES = 64
DEVICE = "cuda"
"""Torch's name of the device that candidates run on."""


class CudaError(Exception):
    """A driver call failed; the message names the call and the driver's error."""


class _IpcHandle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * HANDLE_BYTES),)


_COPY_END = (
    ("x", ctypes.c_size_t),
    ("y", ctypes.c_size_t),
    ("type", ctypes.c_uint),
    ("host", ctypes.c_void_p),
    ("device", ctypes.c_uint64),
    ("array", ctypes.c_void_p),
    ("pitch", ctypes.c_size_t),
)


class _Copy2D(ctypes.Structure):
    """CUDA_MEMCPY2D of cuda.h."""

    _fields_ = (
        *((f"{end}_{name}", kind) for end in ("from", "to") for name, kind in _COPY_END),
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
    )


_MAJOR = 75
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR."""


class CudaDriver:
    """libcuda.so.1. Raises CudaError if it is missing, and from every call that fails."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise CudaError(f"libcuda.so.1: {error}") from error
        library = self._library
        self._synchronize = library.cuCtxSynchronize
        self._event_create = library.cuEventCreate
        self._event_record = library.cuEventRecord
        self._event_record.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
        self._event_synchronize = library.cuEventSynchronize
        self._event_synchronize.argtypes = (ctypes.c_void_p,)
        self._launch = library.cuLaunchKernel
        self._launch.argtypes = (ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3)
        self._wait_value = getattr(library, "cuStreamWaitValue32_v2", None)  # drivers since CUDA 11.7 have it
        if self._wait_value is not None:
            self._wait_value.argtypes = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint)
        library.cuStreamCreate.argtypes = (ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint)
        library.cuStreamSynchronize.argtypes = (ctypes.c_void_p,)
        library.cuMemcpy2DAsync_v2.argtypes = (ctypes.POINTER(_Copy2D), ctypes.c_void_p)
        library.cuMemcpyHtoDAsync_v2.argtypes = (ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
        library.cuModuleLoadData.argtypes = (ctypes.POINTER(ctypes.c_void_p), ctypes.c_char_p)
        library.cuModuleGetFunction.argtypes = (ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p, ctypes.c_char_p)
        library.cuMemAlloc_v2.argtypes = (ctypes.POINTER(ctypes.c_uint64), ctypes.c_size_t)
        library.cuMemFree_v2.argtypes = (ctypes.c_uint64,)
        library.cuMemHostRegister_v2.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint)
        library.cuMemHostGetDevicePointer_v2.argtypes = (
            ctypes.POINTER(ctypes.c_uint64),
            ctypes.c_void_p,
            ctypes.c_uint,
        )
        library.cuMemGetInfo_v2.argtypes = (ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t))
        library.cuIpcGetMemHandle.argtypes = (ctypes.POINTER(_IpcHandle), ctypes.c_uint64)
        library.cuIpcOpenMemHandle_v2.argtypes = (ctypes.POINTER(ctypes.c_uint64), _IpcHandle, ctypes.c_uint)
        library.cuIpcCloseMemHandle.argtypes = (ctypes.c_uint64,)

    def synchronize(self) -> None:
        """Wait until every stream of this process's context is idle."""
        self._check("cuCtxSynchronize", self._synchronize())

    def is_idle(self) -> bool:
        """True if the default stream is idle, or failed."""
        return self._library.cuStreamQuery(None) != _NOT_READY

    def new_event(self) -> int:
        """Return an event."""
        event = ctypes.c_void_p()
        self._check("cuEventCreate", self._event_create(ctypes.byref(event), 0))
        return event.value or 0

    def record(self, event: int, stream: int) -> None:
        """Record an event on a stream (0: the default stream)."""
        self._check("cuEventRecord", self._event_record(event, stream))

    def wait_for(self, event: int) -> None:
        """Wait until everything recorded before an event on its stream is done."""
        self._check("cuEventSynchronize", self._event_synchronize(event))

    def major(self) -> int:
        """Return the major compute capability of this context's device."""
        device, found = ctypes.c_int(), ctypes.c_int()
        self._check("cuCtxGetDevice", self._library.cuCtxGetDevice(ctypes.byref(device)))
        result = self._library.cuDeviceGetAttribute(ctypes.byref(found), _MAJOR, device)
        self._check("cuDeviceGetAttribute", result)
        return found.value

    def load(self, program: str, names: Sequence[str]) -> list[int]:
        """Return kernels of a PTX program, compiled by the driver."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._check("cuModuleLoadData", self._library.cuModuleLoadData(ctypes.byref(module), program.encode()))
        found: list[int] = []
        for name in names:
            result = self._library.cuModuleGetFunction(ctypes.byref(function), module, name.encode())
            self._check("cuModuleGetFunction", result)
            found.append(function.value or 0)
        return found

    def launch(self, function: int, numbers: Sequence[int]) -> None:
        """Start one thread of a kernel that takes 64-bit numbers, on the default stream."""
        values = [ctypes.c_uint64(number) for number in numbers]
        parameters = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        self._check("cuLaunchKernel", self._launch(function, 1, 1, 1, 1, 1, 1, 0, 0, parameters, None))

    def hold_until(self, word: int, value: int = 1, stream: int | None = None) -> None:
        """Have a stream (None: the default one) wait until the 32-bit word at a device address has a value, or more.

        Nothing of the stream runs meanwhile.
        """
        if self._wait_value is None:
            raise CudaError("cuStreamWaitValue32: the driver is too old")
        self._check("cuStreamWaitValue32", self._wait_value(stream, word, value, _WAIT_UNTIL_AT_LEAST))

    def register_host(self, address: int, nbytes: int) -> int:
        """Let the device read and write a range of this process's memory; returns its address on the device."""
        self._check("cuMemHostRegister", self._library.cuMemHostRegister_v2(address, nbytes, _HOST_REGISTER_MAPPED))
        there = ctypes.c_uint64()
        found = self._library.cuMemHostGetDevicePointer_v2(ctypes.byref(there), address, 0)
        self._check("cuMemHostGetDevicePointer", found)
        return there.value

    def new_stream(self) -> int:
        """Return a stream that waits for no other one."""
        stream = ctypes.c_void_p()
        self._check("cuStreamCreate", self._library.cuStreamCreate(ctypes.byref(stream), _WAITS_FOR_NO_STREAM))
        return stream.value or 0

    def queue_rows(self, host: int, device: int, distance: int, width: int, rows: int, stream: int) -> None:
        """Queue the copy of pieces of device memory at equal distances to pinned host memory.

        `host`, `device`: addresses; `distance`, `width`: in bytes. The device's copy engine does it in one operation,
        also while another process computes.
        """
        copy = _Copy2D(from_type=_DEVICE_MEMORY, from_device=device, from_pitch=distance, width=width, height=rows)
        copy.to_type, copy.to_host, copy.to_pitch = _HOST_MEMORY, host, width
        self._check("cuMemcpy2DAsync", self._library.cuMemcpy2DAsync_v2(ctypes.byref(copy), stream))

    def finish(self, stream: int) -> None:
        """Wait until a stream is idle."""
        self._check("cuStreamSynchronize", self._library.cuStreamSynchronize(stream))

    def copy_to_device(self, device: int, host: int, nbytes: int, stream: int) -> None:
        """Copy pinned host memory to the device; returns when it is there."""
        self.queue_to_device(device, host, nbytes, stream)
        self.finish(stream)

    def queue_to_device(self, device: int, host: int, nbytes: int, stream: int) -> None:
        """Queue such a copy, by the copy engine as `queue_rows`."""
        self._check("cuMemcpyHtoDAsync", self._library.cuMemcpyHtoDAsync_v2(device, host, nbytes, stream))

    def free_bytes(self) -> int:
        """Return the bytes of device memory that nobody uses."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._check("cuMemGetInfo", self._library.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
        return free.value

    def allocate(self, nbytes: int) -> int:
        """Return the address of fresh device memory that shares its allocation with nothing else."""
        address = ctypes.c_uint64()
        self._check("cuMemAlloc", self._library.cuMemAlloc_v2(ctypes.byref(address), nbytes))
        return address.value

    def free(self, address: int) -> None:
        """Free memory of `allocate`."""
        self._check("cuMemFree", self._library.cuMemFree_v2(address))

    def export(self, address: int) -> bytes:
        """Return a handle by which another process can map an allocation: the whole of it."""
        handle = _IpcHandle()
        self._check("cuIpcGetMemHandle", self._library.cuIpcGetMemHandle(ctypes.byref(handle), address))
        return ctypes.string_at(ctypes.byref(handle), HANDLE_BYTES)

    def open(self, handle: bytes) -> int:
        """Map another process's allocation; returns its address here."""
        copied = _IpcHandle()
        ctypes.memmove(ctypes.byref(copied), handle, HANDLE_BYTES)
        address = ctypes.c_uint64()
        result = self._library.cuIpcOpenMemHandle_v2(ctypes.byref(address), copied, _IPC_LAZY_PEER_ACCESS)
        self._check("cuIpcOpenMemHandle", result)
        return address.value

    def close(self, address: int) -> None:
        """Unmap an address that `open` returned."""
        self._check("cuIpcCloseMemHandle", self._library.cuIpcCloseMemHandle(address))

    def is_untouched(self) -> bool:
        """True if nothing in this process has initialised CUDA: its forks then can."""
        count = ctypes.c_int()
        return self._library.cuDeviceGetCount(ctypes.byref(count)) == _NOT_INITIALISED

    def _check(self, call: str, result: int) -> None:
        if result:
            name = ctypes.c_char_p()
            self._library.cuGetErrorName(result, ctypes.byref(name))
            raise CudaError(f"{call}: {name.value.decode() if name.value else result}")


class DeviceRegion:
    """Device memory at an address, in the form that `torch.as_tensor` takes without a copy."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__: dict[str, Any] = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 2,
        }
