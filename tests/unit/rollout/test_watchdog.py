"""Samples that wait long are logged once per patience, longest first; those that ended are not."""

import logging
from types import SimpleNamespace

import pytest

from tasks.rollout import watchdog
from tasks.rollout.watchdog import Phase, Watchdog


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    now = SimpleNamespace(s=0.0)
    monkeypatch.setattr(watchdog, "time", SimpleNamespace(monotonic=lambda: now.s))
    return now


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return found


def test_overdue_samples_are_named_once_each_patience(clock: SimpleNamespace, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="kernelmill.rollout")
    watch = Watchdog(10.0)
    watch.begins("first", Phase.GENERATION)
    clock.s = 6.0
    watch.begins("second", Phase.JUDGEMENT)
    with watch.waiting("ended", Phase.JUDGEMENT):
        clock.s = 9.0
    watch.name_overdue()
    assert lines(caplog) == []
    clock.s = 16.0
    watch.name_overdue()
    watch.name_overdue()
    assert lines(caplog) == ["still waiting: first: generation for 16 s; second: judgement for 10 s"]
    watch.ends("first", Phase.GENERATION)
    clock.s = 26.0
    watch.name_overdue()
    assert lines(caplog) == ["still waiting: second: judgement for 20 s"]


def test_a_line_names_few_and_counts_the_others(clock: SimpleNamespace, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="kernelmill.rollout")
    watch = Watchdog(1.0)
    for number in range(7):
        watch.begins(f"s{number}", Phase.GENERATION)
    clock.s = 1.0
    watch.name_overdue()
    (line,) = lines(caplog)
    assert line.endswith("s4: generation for 1 s (and 2 more)")
