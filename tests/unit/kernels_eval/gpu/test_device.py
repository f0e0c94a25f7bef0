"""Detection of the GPU, its facts and its lock."""

import fcntl
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from kernels_eval.errors import InputError
from kernels_eval.gpu import device


@pytest.mark.parametrize(
    ("wanted", "name", "resolved"),
    [("cpu", "NVIDIA H100", "cpu"), ("auto", "NVIDIA H100", "cuda"), ("auto", None, "cpu"), ("cuda", "A100", "cuda")],
)
def test_the_device_that_is_wanted(
    monkeypatch: pytest.MonkeyPatch, wanted: str, name: str | None, resolved: str
) -> None:
    monkeypatch.setattr(device, "gpu_name", lambda: name)
    assert device.resolve_device(wanted) == resolved


def test_a_gpu_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "gpu_name", lambda: None)
    with pytest.raises(InputError, match="expected an NVIDIA GPU"):
        device.resolve_device("cuda")


def test_without_device_files_torch_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_DEVICE_FILES", ("/nonexistent/nvidia",))
    monkeypatch.setattr(device.subprocess, "run", lambda *_, **__: pytest.fail("asked torch"))
    assert device.gpu_name.__wrapped__() is None


def facts(monkeypatch: pytest.MonkeyPatch, **properties: object) -> device.DeviceFacts:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(**properties))
    return device.device_facts()


def test_facts_of_an_h100(monkeypatch: pytest.MonkeyPatch) -> None:
    """SXM5: 2619 MHz over 5120 bits, both edges: 3.35 TB/s."""
    found = facts(
        monkeypatch,
        name="NVIDIA H100 80GB HBM3",
        memory_clock_rate=2_619_000,
        memory_bus_width=5120,
        L2_cache_size=50 << 20,
    )
    assert found.name == "NVIDIA H100 80GB HBM3"
    assert found.rates.dram_bytes_per_s == pytest.approx(3.35e12, rel=0.01)
    assert found.rates.cache_bytes == 50 << 20
    assert 9e14 < found.rates.peak_flops < 1.1e15


def test_rates_that_are_not_reported_exceed_all_that_are(monkeypatch: pytest.MonkeyPatch) -> None:
    known = facts(monkeypatch, name="NVIDIA H100", memory_clock_rate=2_619_000, memory_bus_width=5120)
    unknown = facts(monkeypatch, name="NVIDIA X1")
    assert unknown.rates.dram_bytes_per_s > known.rates.dram_bytes_per_s
    assert unknown.rates.peak_flops > known.rates.peak_flops


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    lock = device.DeviceLock(tmp_path / "device.lock")
    with (tmp_path / "device.lock").open() as other:
        with lock, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
