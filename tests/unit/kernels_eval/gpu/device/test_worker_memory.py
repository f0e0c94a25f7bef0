"""Device memory of the judge's worker: what it may still take, and when it gives back what it keeps."""

import math
from types import SimpleNamespace

import pytest
import torch

from kernels_eval.gpu.device import cuda_driver
from kernels_eval.gpu.device.worker_memory import (
    KEPT_BYTES,
    available_bytes,
    keep_within,
    release_unused_memory,
    share_left,
)

TOTAL = 80 << 30


class Device:
    """torch.cuda of a device of 80 GiB: bytes that tensors of this process take, that it keeps, that others take."""

    def __init__(self, used: int = 0, kept: int = 0, others: int = 0) -> None:
        self.used, self.kept, self.others, self.share = used, kept, others, 1.0

    def install(self, monkeypatch: pytest.MonkeyPatch) -> "Device":
        monkeypatch.setattr(cuda_driver, "DEVICE", "cuda")
        for name, function in {
            "memory_reserved": lambda: self.used + self.kept,
            "memory_allocated": lambda: self.used,
            "mem_get_info": lambda: (TOTAL - self.used - self.kept - self.others, TOTAL),
            "get_device_properties": lambda _: SimpleNamespace(total_memory=TOTAL),
            "get_per_process_memory_fraction": lambda: self.share,
            "set_per_process_memory_fraction": lambda share: setattr(self, "share", share),
            "empty_cache": lambda: setattr(self, "kept", 0),
        }.items():
            monkeypatch.setattr(torch.cuda, name, function)
        return self


def test_much_that_is_kept_without_need_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    for kept, left in ((KEPT_BYTES, KEPT_BYTES), (KEPT_BYTES + 1, 0)):
        device = Device(used=5 << 30, kept=kept).install(monkeypatch)
        release_unused_memory()
        assert device.kept == left


@pytest.mark.parametrize(("limit", "share"), [(TOTAL // 4, 0.25), (2 * TOTAL, 1.0), (-1, 0.0)])
def test_a_limit_is_a_share_of_the_device(limit: int, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device().install(monkeypatch)
    keep_within(limit)
    assert device.share == share


def test_a_limit_gives_back_what_lies_beyond_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, left in ((10 << 30, 0), (12 << 30, 4 << 30)):
        device = Device(used=8 << 30, kept=4 << 30).install(monkeypatch)
        keep_within(limit)
        assert device.kept == left


def test_available_is_what_is_free_and_what_is_kept_within_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    Device(used=10 << 30, kept=5 << 30, others=30 << 30).install(monkeypatch)
    assert available_bytes() == 40 << 30  # what others took is not there to be had
    keep_within(TOTAL // 2)
    assert available_bytes() == 30 << 30  # half of the device, less what tensors take


def test_what_others_hold_is_no_matter_for_the_share(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(used=10 << 30, kept=5 << 30, others=TOTAL - (15 << 30)).install(monkeypatch)
    keep_within(TOTAL // 2)
    device.kept = 5 << 30
    assert available_bytes() < share_left() == 30 << 30


def test_without_a_device_nothing_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_driver, "DEVICE", "cpu")
    keep_within(1)
    release_unused_memory()
    assert available_bytes() == math.inf
