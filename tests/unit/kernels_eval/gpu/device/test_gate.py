"""The gate: its PTX, compiled as the driver does it, and its page; that it holds a queue back is tested on a GPU."""

import ctypes
import fcntl
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import triton

from kernels_eval.gpu.device.cuda_driver import CudaError
from kernels_eval.gpu.device.gate import END_KERNEL, GATE_KERNEL, PAGE_BYTES, Gate, GatePage, new_page, program_for

PTXAS = Path(triton.__file__).parent / "backends/nvidia/bin/ptxas"


@pytest.mark.parametrize(
    ("major", "architecture"), [(7, "sm_75"), (8, "sm_80"), (9, "sm_90"), (9, "sm_90a"), (10, "sm_100"), (12, "sm_120")]
)
def test_it_compiles_and_lets_kernels_start_early_where_a_gpu_has_that(
    tmp_path: Path, major: int, architecture: str
) -> None:
    source, cubin = tmp_path / "gate.ptx", tmp_path / "gate.cubin"
    source.write_text(program_for(major))
    subprocess.run([str(PTXAS), f"-arch={architecture}", str(source), "-o", str(cubin)], check=True)
    assert all(name.encode() in cubin.read_bytes() for name in (GATE_KERNEL, END_KERNEL))
    assert ("griddepcontrol.launch_dependents;" in program_for(major)) is (major >= 9)


@pytest.fixture
def pages() -> Iterator[tuple[GatePage, GatePage]]:
    """The page as the worker and a candidate's process map it."""
    descriptor = new_page()
    yield GatePage(descriptor), GatePage(descriptor)
    os.close(descriptor)


def word(page: GatePage, index: int) -> ctypes.c_uint32:
    return ctypes.c_uint32.from_address(page.address + 4 * index)


def test_a_candidate_cannot_shrink_the_file_of_a_page() -> None:
    descriptor = new_page()
    os.ftruncate(descriptor, 2 * PAGE_BYTES)
    for nbytes in (PAGE_BYTES, 0):
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, nbytes)
    with pytest.raises(PermissionError):
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW)
    os.close(descriptor)


def test_one_side_closes_and_the_other_opens(pages: tuple[GatePage, GatePage]) -> None:
    ours, theirs = pages
    theirs.open()
    theirs.close()
    assert word(ours, 0).value == 0
    ours.open()
    assert word(theirs, 0).value == 1
    assert not ours.gave_up
    word(theirs, 1).value = 1  # as the kernel writes it
    assert ours.gave_up
    theirs.close()
    assert not ours.gave_up


def test_waiting_for_the_kernel_ends_as_soon_as_it_turns(
    pages: tuple[GatePage, GatePage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernels_eval.gpu.device.gate._SEEN_S", 60.0)
    ours, theirs = pages
    turning = threading.Event()

    def turn() -> None:
        word(theirs, 3).value = 1
        while not turning.is_set():
            word(theirs, 2).value += 1
            time.sleep(1e-4)

    thread = threading.Thread(target=turn)
    started = time.perf_counter()
    thread.start()
    ours.wait_until_seen()
    turning.set()
    thread.join()
    assert word(ours, 2).value >= 4
    assert time.perf_counter() - started < 30


def test_a_kernel_that_never_turns_is_not_waited_for_for_ever(pages: tuple[GatePage, GatePage]) -> None:
    started = time.perf_counter()
    pages[0].wait_until_seen()
    assert 0.15 < time.perf_counter() - started < 30


def test_the_end_is_seen_at_once(pages: tuple[GatePage, GatePage]) -> None:
    ours, theirs = pages
    ended = threading.Timer(0.01, lambda: setattr(word(theirs, 32), "value", 1))
    ended.start()
    ours.wait_for_end(lambda: False)
    assert ours.ended == 1
    theirs.close()
    assert ours.ended == 0


def test_an_end_that_does_not_come_is_not_waited_for(pages: tuple[GatePage, GatePage]) -> None:
    asked: list[float] = []

    def is_over() -> bool:
        asked.append(time.perf_counter())
        return len(asked) == 3

    started = time.perf_counter()
    pages[0].wait_for_end(is_over)
    assert len(asked) == 3
    assert pages[0].ended == 0
    assert time.perf_counter() - started < 30


class RecordingDriver:
    def __init__(self) -> None:
        self.registered: tuple[int, int] | None = None
        self.launched: list[tuple[int, tuple[int, ...]]] = []

    def major(self) -> int:
        return 9

    def load(self, program: str, names: tuple[str, ...]) -> list[int]:
        assert program == program_for(9)
        return [7 + number for number in range(len(names))]

    def register_host(self, address: int, nbytes: int) -> int:
        self.registered = address, nbytes
        return 0x1000

    def launch(self, function: int, numbers: tuple[int, ...]) -> None:
        self.launched.append((function, numbers))

    def hold_until(self, word: int) -> None:
        self.launched.append((0, (word,)))

    def synchronize(self) -> None:
        self.launched.append((0, ()))


def test_calls_are_launched_between_the_gate_which_has_a_limit_and_the_end(pages: tuple[GatePage, GatePage]) -> None:
    driver: Any = RecordingDriver()
    gate = Gate(driver, pages[1])
    pages[0].open()
    gate.close()
    gate.end()
    assert driver.registered == (pages[1].address, PAGE_BYTES)
    assert driver.launched == [(7, (0x1000, 2_000_000_000, 1)), (8, (0x1000, 1, 0x1000 + 4 * 96))]
    assert word(pages[0], 0).value == 0


def test_a_gate_is_held_back_until_it_is_admitted(pages: tuple[GatePage, GatePage]) -> None:
    driver: Any = RecordingDriver()
    gate = Gate(driver, pages[1])
    pages[0].admit()
    assert word(pages[1], 64).value == 1
    gate.close(held=True)
    assert driver.launched == [(0, (0x1000 + 4 * 64,)), (7, (0x1000, 2_000_000_000, 1))]
    assert word(pages[0], 64).value == 0


def test_a_gate_that_is_given_up_lets_everything_run(pages: tuple[GatePage, GatePage]) -> None:
    pages[0].give_up()
    assert [word(pages[1], index).value for index in (0, 1, 64)] == [1, 1, 1]


class HoldingDriver(RecordingDriver):
    """Does at `synchronize` what a device does whose stream was held back."""

    def __init__(self, page: GatePage, failure: CudaError | None = None) -> None:
        super().__init__()
        self._page, self._failure = page, failure

    def hold_until(self, word: int) -> None:
        if self._failure:
            raise self._failure

    def synchronize(self) -> None:
        word(self._page, 32).value = int(word(self._page, 64).value and word(self._page, 0).value)


def test_it_is_tried_if_a_queue_can_be_held_back(pages: tuple[GatePage, GatePage]) -> None:
    ours, theirs = pages
    drivers: list[Any] = [HoldingDriver(theirs), HoldingDriver(theirs, CudaError("not supported")), RecordingDriver()]
    assert [Gate(driver, ours).can_hold() for driver in drivers] == [True, False, False]
