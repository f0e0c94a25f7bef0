"""Profiles calls in the candidate's process: the list of everything that ran on the device, as CUPTI recorded it.

The records are made by code that was loaded before the candidate's, and read from the profiler's raw results. A candidate that
works against its own process can still forge them: what they say is checked against the kernel names of its source, the
policy (which sees every operator of PyTorch) and the judge's clock, none of which knows of the others.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

_MAX_RECORDS = 50_000
_MAX_NAME = 2000
_NOT_WORK = ("ProfilerStep", "[memory]")


class Profiler:
    """Starting the first profile of a process takes about a second: done while the process is still spare."""

    def __init__(self, flush: Callable[[], None]) -> None:
        """`flush`: starts some kernel on the default stream."""
        self._flush = flush
        self._home: int | None = None
        self._synchronize = torch.cuda.synchronize
        self._profile: Any = profile
        self._activities = [ProfilerActivity.CUDA]
        # A candidate that asks whether it is watched is told that it is not.
        autograd: Any = torch.autograd
        autograd._profiler_enabled = _never
        sys.modules["torch._C._autograd"].__dict__["_profiler_enabled"] = _never
        self._device: Any = torch.autograd.DeviceType.CUDA  # pyright: ignore[reportPrivateImportUsage]

    def warm_up(self) -> None:
        """Start it once, and learn what it calls the default stream."""
        found = self._activities_of(self._flush)
        self._home = found[0]["stream"] if found else -1

    def records(self, work: Callable[[], None]) -> list[dict[str, Any]]:
        """Do the work, which must leave the device idle; returns one record for each activity on the device.

        Stream 0 is the default stream, any other number another one.
        """
        if self._home is None:
            self.warm_up()
        found = self._activities_of(work)
        for record in found:
            record["stream"] = 0 if record["stream"] == self._home else 1 + max(0, record["stream"])
        return found

    def _activities_of(self, work: Callable[[], None]) -> list[dict[str, Any]]:
        with self._profile(activities=self._activities) as profiled:
            work()
            self._synchronize()
        results: Any = profiled.profiler.kineto_results
        found: list[dict[str, Any]] = []
        for event in results.events():
            if event.device_type() != self._device or _is_annotation(event):
                continue
            name = str(event.name())[:_MAX_NAME]
            if name.startswith(_NOT_WORK):
                continue
            duration = int(event.duration_ns())
            found.append({"name": name, "duration_ns": duration, "stream": int(event.device_resource_id())})
        return found[:_MAX_RECORDS]


def _never() -> bool:
    return False


def _is_annotation(event: Any) -> bool:
    """True for a span that the host marked, which is no work of its own."""
    check = getattr(event, "is_user_annotation", None)
    return bool(check()) if check is not None else False
