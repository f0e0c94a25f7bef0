"""Driver calls that not every driver has."""

from typing import Any

import pytest

from kernels_eval.gpu.cuda_driver import CudaDriver, CudaError


class Function:
    """A call that succeeds."""

    argtypes: Any = None

    def __call__(self, *_: object) -> int:
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
    monkeypatch.setattr("kernels_eval.gpu.cuda_driver.ctypes.CDLL", lambda _: OldLibrary())
    driver = CudaDriver()
    with pytest.raises(CudaError, match="cuStreamWaitValue32"):
        driver.hold_until_one(0)
