"""Timing of the reference: in parts, each behind a gate where there is one."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernels_eval.gpu.device.gate import QUEUE
from kernels_eval.gpu.timing.reference_timer import ReferenceTimer

REFERENCE_S = 4e-4


class Clock:
    """A device whose calls take time when they are waited for."""

    def __init__(self) -> None:
        self.now = 0.0
        self.queued = 0.0
        self.longest_queue = 0
        self.launched = 0

    def is_idle(self) -> bool:
        return True

    def synchronize(self) -> None:
        self.now += 1e-6 + self.queued
        self.queued = 0.0
        self.launched = 0

    def wait_for_end(self, is_over: Any) -> None:
        self.synchronize()

    def call(self, *_: Any) -> torch.Tensor:
        self.queued += REFERENCE_S
        self.launched += 2
        self.longest_queue = max(self.longest_queue, self.launched)
        return torch.zeros(1)


@pytest.mark.parametrize("is_gated", [True, False])
def test_the_reference_is_timed_in_parts_that_fit_into_a_queue(monkeypatch: pytest.MonkeyPatch, is_gated: bool) -> None:
    clock = Clock()
    monkeypatch.setattr("kernels_eval.gpu.timing.reference_timer.time.perf_counter", lambda: clock.now)
    page = SimpleNamespace(
        wait_until_seen=lambda: None, open=lambda: None, wait_for_end=clock.wait_for_end, gave_up=False
    )
    gate: Any = SimpleNamespace(page=page, close=lambda: None, end=lambda: None) if is_gated else None
    driver: Any = clock
    timer = ReferenceTimer(driver, gate)
    results: list[Any] = []
    found = timer.call_s(clock.call, [[]] * 700, launches=2, changes_inputs=False, keep=results.extend)
    assert len(results) == 700
    assert found == pytest.approx(REFERENCE_S, rel=1e-6)
    assert clock.longest_queue <= QUEUE


@pytest.mark.parametrize(("launches", "gates"), [(QUEUE, 4), (QUEUE + 1, 4), (2 * QUEUE, 4), (2 * QUEUE + 1, 0)])
def test_a_call_that_may_fill_the_queue_has_a_gate_of_its_own(
    monkeypatch: pytest.MonkeyPatch, launches: int, gates: int
) -> None:
    """`launches` is a bound: of 160 operators with few kernels each the host's time would count else."""
    clock = Clock()
    monkeypatch.setattr("kernels_eval.gpu.timing.reference_timer.time.perf_counter", lambda: clock.now)
    page = SimpleNamespace(
        wait_until_seen=lambda: None, open=lambda: None, wait_for_end=clock.wait_for_end, gave_up=False
    )
    opened: list[int] = []
    gate: Any = SimpleNamespace(page=page, close=lambda: None, end=lambda: opened.append(clock.launched))
    driver: Any = clock
    found = ReferenceTimer(driver, gate).call_s(clock.call, [[]] * 4, launches=launches, changes_inputs=False)
    assert found == pytest.approx(REFERENCE_S, rel=1e-6)
    assert len([launched for launched in opened if launched]) == gates


class WaitingModel(torch.nn.Module):
    """A reference that waits for the device in each call, which opens a gate after two seconds."""

    def __init__(self, clock: Clock, page: SimpleNamespace) -> None:
        super().__init__()
        self.clock, self.page = clock, page

    def forward(self, *_: Any) -> torch.Tensor:
        if self.page.closed:
            self.clock.now += 2.0
            self.page.closed, self.page.gave_up = False, True
            self.page.given_up += 1
        return self.clock.call()


def test_a_reference_that_waits_for_the_device_is_soon_timed_without_a_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("kernels_eval.gpu.timing.reference_timer.time.perf_counter", lambda: clock.now)
    page = SimpleNamespace(
        wait_until_seen=lambda: None, open=lambda: None, wait_for_end=clock.wait_for_end, gave_up=False, closed=False
    )
    page.given_up = 0

    def close() -> None:
        page.gave_up, page.closed = False, True

    def end() -> None:
        page.closed = False

    gate: Any = SimpleNamespace(page=page, close=close, end=end)
    driver: Any = clock
    timer = ReferenceTimer(driver, gate)
    model = WaitingModel(clock, page)
    for _ in range(5):  # rounds of one verdict
        found = timer.call_s(model, [[]] * 4, launches=2, changes_inputs=False)
        assert found == pytest.approx(REFERENCE_S, rel=1e-2)
    assert page.given_up == 2
    timer.call_s(WaitingModel(clock, page), [[]] * 4, launches=2, changes_inputs=False)
    assert page.given_up == 3, "another reference has its own attempts"
