"""The books on workers."""

import pytest

from kernels_eval.pool.worker_status import BUCKETS_S, WorkerState, WorkerStatuses
from kernels_eval.verdict import Status, Verdict

RIGHT = Verdict(status=Status.CORRECT, correct=True)


def test_a_worker_from_kernel_to_quarantine_and_back() -> None:
    statuses = WorkerStatuses(["cpu", "cuda:0"])
    statuses.begins(1)
    assert [report.state for report in statuses.workers()] == [WorkerState.IDLE, WorkerState.BUSY]
    statuses.judged(1, RIGHT)
    statuses.begins(1)
    statuses.failed(1, "judge_fault", "a judge worker died or hung")
    assert statuses.in_service == 1
    statuses.failed(1, "probe_failed", "x" * 5000)
    statuses.returned(1)
    assert statuses.in_service == 2
    _, report = statuses.workers()
    assert (report.device, report.judged, report.faults, report.quarantines) == ("cuda:0", 1, 2, 1)
    assert report.last_fault is not None
    assert len(report.last_fault.message) == 500
    found = statuses.fault_statistics()
    assert (found.total, found.by_worker, found.quarantined, found.returned) == (2, {1: 2}, (), 1)
    assert found.by_category == {"judge_fault": 1, "probe_failed": 1}
    assert [fault.on for fault in found.recent] == ["kernel", "probe"]


def test_durations_fall_into_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("kernels_eval.pool.worker_status.time.monotonic", lambda: now)
    statuses = WorkerStatuses(["cpu"])
    for seconds in (0.005, 0.02, 0.3, 1000.0):
        statuses.begins(0)
        now += seconds
        statuses.judged(0, RIGHT)
    counts = statuses.durations.counts
    assert len(counts) == len(BUCKETS_S) + 1
    assert (counts[0], counts[1], counts[5], counts[-1]) == (1, 1, 1, 1)
    assert sum(counts) == statuses.verdicts["correct"] == 4
    assert statuses.durations.total_s == pytest.approx(1000.325)


def test_seconds_of_a_gpus_verdicts_are_added_up() -> None:
    statuses = WorkerStatuses(["cuda", "cuda"])
    first = {"phases": {"load": 0.25, "rounds": 0.5}, "device": {"alone": 0.125}}
    for seconds in (first, {"phases": {"load": 0.5}}, None):
        statuses.begins(1)
        statuses.judged(1, RIGHT, seconds)
    assert [report.phases_s for report in statuses.workers()] == [{}, {"load": 0.75, "rounds": 0.5}]
    assert [report.device_s for report in statuses.workers()] == [{}, {"alone": 0.125}]


def test_old_faults_make_room() -> None:
    statuses = WorkerStatuses(["cpu"])
    for index in range(200):
        statuses.failed(0, "judge_fault", str(index))
    found = statuses.fault_statistics()
    assert found.total == 200
    assert len(found.recent) == 50
    assert found.recent[-1].message == "199"
