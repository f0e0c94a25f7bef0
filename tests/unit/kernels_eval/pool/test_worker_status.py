"""The books on workers."""

import pytest

from kernels_eval.pool.worker_status import BUCKETS_S, Roster, WorkerState
from kernels_eval.verdict import Status, Verdict

RIGHT = Verdict(status=Status.CORRECT, correct=True)


def test_a_worker_from_kernel_to_quarantine_and_back() -> None:
    roster = Roster(["cpu", "cuda:0"])
    roster.begins(1)
    assert [report.state for report in roster.workers()] == [WorkerState.IDLE, WorkerState.BUSY]
    roster.judged(1, RIGHT)
    roster.begins(1)
    roster.failed(1, "judge_fault", "a judge worker died or hung")
    assert roster.in_service == 1
    roster.failed(1, "probe_failed", "x" * 5000)
    roster.returned(1)
    assert roster.in_service == 2
    _, report = roster.workers()
    assert (report.device, report.judged, report.faults, report.quarantines) == ("cuda:0", 1, 2, 1)
    assert report.last_fault is not None
    assert len(report.last_fault.message) == 500
    found = roster.fault_statistics()
    assert (found.total, found.by_worker, found.quarantined, found.returned) == (2, {1: 2}, (), 1)
    assert found.by_category == {"judge_fault": 1, "probe_failed": 1}
    assert [fault.on for fault in found.recent] == ["kernel", "probe"]


def test_durations_fall_into_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("kernels_eval.pool.worker_status.time.monotonic", lambda: now)
    roster = Roster(["cpu"])
    for seconds in (0.005, 0.02, 0.3, 1000.0):
        roster.begins(0)
        now += seconds
        roster.judged(0, RIGHT)
    counts = roster.durations.counts
    assert len(counts) == len(BUCKETS_S) + 1
    assert (counts[0], counts[1], counts[5], counts[-1]) == (1, 1, 1, 1)
    assert sum(counts) == roster.verdicts["correct"] == 4
    assert roster.durations.total_s == pytest.approx(1000.325)


def test_old_faults_make_room() -> None:
    roster = Roster(["cpu"])
    for index in range(200):
        roster.failed(0, "judge_fault", str(index))
    found = roster.fault_statistics()
    assert found.total == 200
    assert len(found.recent) == 50
    assert found.recent[-1].message == "199"
