"""Detection of the GPU, its facts and its lock."""

import fcntl
import threading
import time
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from kernels_eval.errors import InfrastructureError, InputError
from kernels_eval.gpu.device import detection
from kernels_eval.gpu.device.detection import GIB, share_of_memory


@pytest.mark.parametrize(
    ("wanted", "name", "resolved"),
    [("cpu", "NVIDIA H100", "cpu"), ("auto", "NVIDIA H100", "cuda"), ("auto", None, "cpu"), ("cuda", "A100", "cuda")],
)
def test_the_device_that_is_wanted(
    monkeypatch: pytest.MonkeyPatch, wanted: str, name: str | None, resolved: str
) -> None:
    monkeypatch.setattr(detection, "gpu_name", lambda: name)
    assert detection.resolve_device(wanted) == resolved


def test_a_gpu_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detection, "gpu_name", lambda: None)
    with pytest.raises(InputError, match="expected an NVIDIA GPU"):
        detection.resolve_device("cuda")


def test_without_device_files_torch_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detection, "_DEVICE_FILES", ("/nonexistent/nvidia",))
    monkeypatch.setattr(detection.subprocess, "run", lambda *_, **__: pytest.fail("asked torch"))
    assert detection._gpu.__wrapped__() is None


def gpu_with(monkeypatch: pytest.MonkeyPatch, *free_gb: float) -> None:
    """Let a GPU be found, with so much memory free at each look; the last figure stays."""
    looks = list(free_gb)
    monkeypatch.setattr(detection, "ENDING_S", 0.1)

    @cache
    def look() -> detection._Gpu:
        free = looks.pop(0) if len(looks) > 1 else looks[0]
        return detection._Gpu("NVIDIA H100", int(free * GIB), "GPU-1", 90)

    monkeypatch.setattr(detection, "_gpu", look)


def test_memory_that_is_not_there_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu_with(monkeypatch, 70)
    detection.check_device_memory(None)
    detection.check_device_memory(70)
    with pytest.raises(InputError, match=r"judge.device_memory_gb: expected at most the 70.0 GiB free, found 71"):
        detection.check_device_memory(71)


def test_memory_of_a_process_that_ends_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu_with(monkeypatch, 42.3, 42.3, 71)
    detection.check_device_memory(44)


def test_workers_share_what_the_first_one_found_free(tmp_path: Path) -> None:
    shares = [share_of_memory(tmp_path, 3, None, free * GIB) for free in (70, 50, 30)]
    assert len(set(shares)) == 1, "the second and third see less free, since the first has taken its part"
    assert 18 * GIB < shares[0] < 21 * GIB
    assert 3 * share_of_memory(tmp_path, 3, 60, 0) < 60 * GIB


def test_too_little_memory_is_said_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match=r"expected at least 20.0 for judge.workers = 8, found 10.0$"):
        share_of_memory(tmp_path, 8, 10, 0)


def facts(monkeypatch: pytest.MonkeyPatch, **properties: object) -> detection.DeviceFacts:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(**properties))
    return detection.device_facts()


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


def test_many_share_the_device_or_one_has_it_alone(tmp_path: Path) -> None:
    synchronized: list[int] = []
    lock = detection.DeviceLock(tmp_path, lambda: synchronized.append(1))
    with (tmp_path / "device.lock").open() as other:

        def is_open(operation: int) -> bool:
            try:
                fcntl.flock(other, operation | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            fcntl.flock(other, fcntl.LOCK_UN)
            return True

        with lock.alone():
            assert not is_open(fcntl.LOCK_SH)
        assert len(synchronized) == 1, "its work is done before others come"
        with lock.shared():
            assert is_open(fcntl.LOCK_SH)
            assert not is_open(fcntl.LOCK_EX)
        assert is_open(fcntl.LOCK_EX)


def test_who_shares_the_device_cannot_keep_one_out_who_needs_it_alone(tmp_path: Path) -> None:
    ended = threading.Event()

    def share() -> None:
        lock = detection.DeviceLock(tmp_path, lambda: None)
        while not ended.is_set():
            with lock.shared():
                time.sleep(0.005)

    sharing = [threading.Thread(target=share, daemon=True) for _ in range(4)]
    for thread in sharing:
        thread.start()
    lock = detection.DeviceLock(tmp_path, lambda: None)
    try:
        for _ in range(20):
            waited = time.monotonic()
            with lock.alone():
                assert time.monotonic() - waited < 60
    finally:
        ended.set()
        for thread in sharing:
            thread.join()


def waiting(path: Path) -> int:
    """Number of those who wait for a file's lock."""
    inode = f":{path.stat().st_ino} "
    return sum("->" in line and inode in line for line in Path("/proc/locks").read_text().splitlines())


def test_those_who_need_the_device_alone_have_it_before_those_who_share_it_and_these_at_once(tmp_path: Path) -> None:
    """In the order of asking, one who shares would let one of the others in, and have the next one wait for it."""
    order: list[str] = []
    together = threading.Barrier(2)

    def take(name: str) -> None:
        lock = detection.DeviceLock(tmp_path, lambda: None)
        if name == "alone":
            with lock.alone():
                order.append(name)
        else:
            with lock.shared():
                order.append(name)
                together.wait(60)

    threads = [threading.Thread(target=take, args=(name,), daemon=True) for name in ("shared", "alone", "shared")]
    until = time.monotonic() + 60
    with detection.DeviceLock(tmp_path, lambda: None).alone():
        for number, thread in enumerate(threads, 1):
            thread.start()
            while waiting(tmp_path / "device.door") + waiting(tmp_path / "device.lock") < number:
                assert time.monotonic() < until
                time.sleep(0.001)
    for thread in threads:
        thread.join(60)
    assert order == ["alone", "shared", "shared"]


def test_long_work_beside_others_gives_way_to_who_needs_the_device_alone(tmp_path: Path) -> None:
    synchronized: list[int] = []
    lock = detection.DeviceLock(tmp_path, lambda: synchronized.append(1))
    was_alone = threading.Event()

    def take() -> None:
        with detection.DeviceLock(tmp_path, lambda: None).alone():
            was_alone.set()

    other = threading.Thread(target=take, daemon=True)
    with lock.shared():
        lock.give_way()
        assert not synchronized, "not after so short a time"
        other.start()
        until = time.monotonic() + 20
        while not was_alone.is_set() and time.monotonic() < until:
            time.sleep(0.001)
            lock.give_way()
        assert was_alone.is_set()
        assert synchronized, "its work is done before others come"
        with (tmp_path / "device.lock").open() as third, pytest.raises(BlockingIOError):
            fcntl.flock(third, fcntl.LOCK_EX | fcntl.LOCK_NB)  # it shares the device again
    other.join()


def test_only_who_shares_the_device_can_give_way(tmp_path: Path) -> None:
    """A lock taken again by somebody who did not hold it would never be released."""
    lock = detection.DeviceLock(tmp_path, lambda: None)
    with pytest.raises(AssertionError, match="only who shares"):
        lock.give_way()
    with lock.alone(), pytest.raises(AssertionError, match="only who shares"):
        lock.give_way()
    with lock.shared():
        lock.give_way()


def test_a_holder_that_fails_leaves_the_device_to_others(tmp_path: Path) -> None:
    lock = detection.DeviceLock(tmp_path, lambda: None)
    with pytest.raises(ValueError, match="broken"), lock.alone():
        raise ValueError("broken")
    with lock.alone():
        pass


def test_a_lock_counts_for_how_long_it_was_held_and_waited_for(tmp_path: Path) -> None:
    first, second = (detection.DeviceLock(tmp_path, lambda: None) for _ in range(2))

    begins = threading.Event()

    def share() -> None:
        begins.set()
        with second.shared():
            pass

    with first.alone():
        waiting = threading.Thread(target=share)
        waiting.start()
        assert begins.wait(60)
        time.sleep(0.2)
    waiting.join()
    assert first.seconds["alone"] >= 0.2
    assert second.seconds["shared_waited"] > 0
    assert first.seconds["shared"] == first.seconds["shared_waited"] == second.seconds["alone"] == 0.0
    assert first.seconds["alone_waited"] < first.seconds["alone"]
