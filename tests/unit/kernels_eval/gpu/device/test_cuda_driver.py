"""Driver calls that not every driver has."""

import ctypes
from typing import Any

import pytest

from kernels_eval.gpu.device.cuda_driver import CudaDriver, CudaError


class Function:
    """A call that succeeds, and keeps what it was given."""

    argtypes: Any = None

    def __call__(self, *given: object) -> int:
        self.given = given
        return 0


class OldLibrary:
    """A driver from before stream waits of the second version."""

    def __getattr__(self, name: str) -> Function:
        if name == "cuStreamWaitValue32_v2":
            raise AttributeError(name)
        found = Function()
        setattr(self, name, found)
        return found


def test_an_old_driver_judges_without_stream_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernels_eval.gpu.device.cuda_driver.ctypes.CDLL", lambda _: OldLibrary())
    driver = CudaDriver()
    with pytest.raises(CudaError, match="cuStreamWaitValue32"):
        driver.hold_until(0)


class Struct(ctypes.Structure):
    """CUDA_MEMCPY2D as cuda.h has it."""

    _fields_ = (
        *((name, ctypes.c_size_t) for name in ("srcXInBytes", "srcY")),
        ("srcMemoryType", ctypes.c_int),
        *((name, ctypes.c_size_t) for name in ("srcHost", "srcDevice", "srcArray", "srcPitch", "dstXInBytes", "dstY")),
        ("dstMemoryType", ctypes.c_int),
        *((name, ctypes.c_size_t) for name in ("dstHost", "dstDevice", "dstArray", "dstPitch")),
        *((name, ctypes.c_size_t) for name in ("WidthInBytes", "Height")),
    )


def test_rows_are_copied_by_one_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    library: Any = OldLibrary()
    monkeypatch.setattr("kernels_eval.gpu.device.cuda_driver.ctypes.CDLL", lambda _: library)
    CudaDriver().queue_rows(host=1000, device=2000, distance=512, width=64, rows=7, stream=5)
    reference, stream = library.cuMemcpy2DAsync_v2.given
    copy = ctypes.cast(reference, ctypes.POINTER(Struct)).contents
    assert stream == 5
    assert (copy.srcMemoryType, copy.srcDevice, copy.srcPitch) == (2, 2000, 512)
    assert (copy.dstMemoryType, copy.dstHost, copy.dstPitch) == (1, 1000, 64)
    assert (copy.WidthInBytes, copy.Height) == (64, 7)
    assert (copy.srcXInBytes, copy.srcY, copy.dstXInBytes, copy.dstY) == (0, 0, 0, 0)
