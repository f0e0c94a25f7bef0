"""Profiles of calls: recorded by CUPTI in the candidate's process, attributed to the source's kernels by the judge.

The records are made by code that was loaded before the candidate's, and read from the profiler's raw results. A
candidate that works against its own process can still forge them: they are checked against the kernel names of its
source, the operator guard (which sees every operator of PyTorch) and the judge's clock, all independent of one another.
"""

import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Annotated, Any

import torch
from pydantic import Field
from torch.profiler import ProfilerActivity, profile

from kernels_eval.frozen import FrozenModel
from kernels_eval.gpu.device.gate import END_KERNEL, GATE_KERNEL
from kernels_eval.gpu.device.memory_rates import MemoryRates, peak_s
from kernels_eval.verdict import MOST_KERNELS, KernelTime, Profile

_MAX_RECORDS = 50_000
_WARM_UPS = 3
"""Profiles, at most, until one has a record: on a busy machine some have none."""
_MAX_NAME = 2000
_SHOWN_NAME = 200

_NOT_WORK = ("ProfilerStep", "[memory]")
_COPIES = re.compile(
    r"^Memcpy \w+ \(|^Memset \("
    r"|at::native::.*(FillFunctor|\w*copy_kernel|CatArrayBatchedCopy|arange_cuda_out)"
    rf"|^({GATE_KERNEL}|{END_KERNEL})$"
)
"""Activities that only move, fill, number or wait: the library's, and the gate's. Not counted. The driver's copies
and fills have a space in their names, which no kernel has."""
_LIBRARY_NAME = re.compile(
    r"^(ampere|volta|turing|maxwell|hopper|blackwell|sm\d+)_|^nvjet|cutlass|xmma|cudnn|cublas|splitKreduce"
)
"""Names of library kernels, which nobody gives to another kernel by accident."""
_CUTE_DSL = "kernel_cutlass_"
_EARLY_NS = 2000
"""Work that waits for the gate begins after it has ended; clocks of records on two streams may differ by a tick."""
_LIBRARY_SPACES = frozenset({"at", "c10", "thrust", "cub", "cutlass", "cudnn", "cublasLt", "native"})


class KernelRecord(FrozenModel):
    """One activity on the device during a profiled call."""

    name: Annotated[str, Field(max_length=_MAX_NAME)]
    duration_ns: Annotated[int, Field(ge=0, le=10**13)]
    stream: Annotated[int, Field(ge=0, le=1 << 40)] = 0
    """0: the default stream."""
    start_ns: Annotated[int, Field(ge=0, le=1 << 62)] = 0
    """Since the first activity of the profile began."""


class Profiler:
    """Profiler of the candidate's process. The first profile takes about a second: it is part of the warm-up."""

    def __init__(self, flush: Callable[[], object]) -> None:
        """`flush`: starts some kernel on the default stream."""
        self._flush = flush
        self._default_stream: int | None = None
        self._synchronize = torch.cuda.synchronize
        self._profile: Any = profile
        self._running: Any = None
        self._activities = [ProfilerActivity.CUDA]
        # Hide the profiler from a candidate that asks for it.
        autograd: Any = torch.autograd
        native = sys.modules["torch._C._autograd"].__dict__
        unused = native["_profiler_type"]()
        autograd._profiler_enabled = native["_profiler_enabled"] = _never
        native["_profiler_type"] = lambda: unused
        autograd.profiler._set_is_profiler_enabled = _never
        self._device: Any = torch.autograd.DeviceType.CUDA  # pyright: ignore[reportPrivateImportUsage]

    def warm_up(self) -> None:
        """Profile until something is seen, and note the profiler's number of the default stream.

        Raises RuntimeError if nothing is: no candidate's code has run yet, and none could be told from a library.
        """
        for _ in range(_WARM_UPS):
            with self._profile(activities=self._activities) as profiled:
                self._flush()
                self._synchronize()
            if found := self._activities_of(profiled):
                self._default_stream = found[0]["stream"]
                return
        raise RuntimeError(f"CUPTI recorded nothing of {_WARM_UPS} fills on the device")

    def records(self, work: Callable[[], object]) -> list[dict[str, Any]]:
        """Do the work, which must leave the device idle; returns fields of KernelRecord for each activity."""
        self.begin()
        work()
        self._synchronize()
        return self.end()

    def begin(self) -> None:
        """Begin to record what runs on the device: until `end`."""
        if self._default_stream is None:
            self.warm_up()
        self._running = self._profile(activities=self._activities)
        self._running.__enter__()

    def end(self) -> list[dict[str, Any]]:
        """Return what ran since `begin`, as `records` does; the device must be idle."""
        self._running.__exit__(None, None, None)
        found = self._activities_of(self._running)
        first_ns = min((record["start_ns"] for record in found), default=0)
        for record in found:
            record["start_ns"] -= first_ns
            record["stream"] = 0 if record["stream"] == self._default_stream else 1 + max(0, record["stream"])
        return found

    def _activities_of(self, profiled: Any) -> list[dict[str, Any]]:
        results: Any = profiled.profiler.kineto_results
        found: list[dict[str, Any]] = []
        for event in results.events():
            if event.device_type() != self._device or _is_annotation(event):
                continue
            name = str(event.name())[:_MAX_NAME]
            if name.startswith(_NOT_WORK):
                continue
            times = {"start_ns": int(event.start_ns()), "duration_ns": int(event.duration_ns())}
            found.append({"name": name, "stream": int(event.device_resource_id()), **times})
        return found[:_MAX_RECORDS]


def _never(*_: Any) -> bool:
    return False


def _is_annotation(event: Any) -> bool:
    """True for a span that the host marked, which is no work on the device."""
    check = getattr(event, "is_user_annotation", None)
    return bool(check()) if check is not None else False


@dataclass(frozen=True)
class Attribution:
    """Device time of profiled calls by the owner of the kernels."""

    own_ns: int
    library_ns: int
    library_names: tuple[str, ...]
    """Distinct library kernels that compute."""
    launches: int
    """Activities of any kind."""
    uses_side_streams: bool
    """Some kernel that computes ran on another stream than the default one."""
    longest_ns: int = 0
    """Time of the kernel that took longest."""
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    """Launches of each kernel that computes."""
    early_ns: float = 0.0
    """Time of all that began on other streams while the gate was closed, be it a fill: no clock was running then."""

    @property
    def computing_ns(self) -> int:
        """Time of all kernels that compute."""
        return self.own_ns + self.library_ns

    @property
    def own_share(self) -> float:
        """Time of the candidate's own kernels over that of all that compute; 0 if none ran."""
        return self.own_ns / self.computing_ns if self.computing_ns else 0.0


def attribution_of(records: Sequence[KernelRecord], own_names: Collection[str]) -> Attribution:
    """Sort records into own and library, without copies. `own_names`: kernels that the candidate's source defines."""
    own = library = 0
    names: list[str] = []
    uses_side_streams = False
    counts: Counter[str] = Counter()
    longest = 0
    for record in records:
        mine = is_own(record.name, own_names)
        if not mine and _COPIES.search(record.name):
            continue
        uses_side_streams |= record.stream != 0
        counts[record.name] += 1
        longest = max(longest, record.duration_ns)
        if mine:
            own += record.duration_ns
        else:
            library += record.duration_ns
            if record.name not in names:
                names.append(record.name)
    early_ns = _early_ns(records)
    return Attribution(own, library, tuple(names), len(records), uses_side_streams, longest, counts, early_ns)


def _early_ns(records: Sequence[KernelRecord]) -> float:
    """Return the time of what did not wait for the gate, each name's launches with their median.

    A worker's slice of the device counts as time of the kernel that it interrupts.
    """
    gates = [record for record in records if record.name == GATE_KERNEL]
    streams = {gate.stream for gate in gates}
    opened_ns = max((gate.start_ns + gate.duration_ns for gate in gates), default=0)
    durations: dict[str, list[int]] = {}
    for record in records:
        if record.stream not in streams and record.start_ns < opened_ns - _EARLY_NS:
            durations.setdefault(record.name, []).append(record.duration_ns)
    return sum(len(each) * median(each) for each in durations.values())


def least_ns(records: Sequence[KernelRecord], calls: int, own_names: Collection[str]) -> float:
    """Return the time of the kernels that compute in one of the profiled calls, each name's in its quickest call.

    Another process's slice of the device counts as time of the kernel that it interrupts: it seldom hits every call.
    """
    total = 0.0
    for durations in _by_name(records, own_names).values():
        launches, uneven = divmod(len(durations), calls)
        if uneven:  # launched by some calls alone
            total += sum(durations) / calls
        else:
            total += min(sum(durations[first * launches :][:launches]) for first in range(calls))
    return total


def kernel_times(records: Sequence[KernelRecord], calls: int, own_names: Collection[str]) -> tuple[KernelTime, ...]:
    """Return the kernels that compute with launches and time of one of the profiled calls, the longest first."""
    times = [
        KernelTime(
            name=name[:_SHOWN_NAME],
            launches=len(given) / calls,
            microseconds=sum(given) / 1e3 / calls,
            is_own=is_own(name, own_names),
        )
        for name, given in _by_name(records, own_names).items()
    ]
    return tuple(sorted(times, key=lambda time: -time.microseconds))


def _by_name(records: Sequence[KernelRecord], own_names: Collection[str]) -> dict[str, list[int]]:
    """Return the durations of each kernel that computes, in the order of its launches."""
    durations: dict[str, list[int]] = {}
    for record in records:
        if is_own(record.name, own_names) or not _COPIES.search(record.name):
            durations.setdefault(record.name, []).append(record.duration_ns)
    return durations


def profile_of(
    kernels: Sequence[KernelTime], moved_bytes: float, flops: float, rates: MemoryRates, call_s: float
) -> Profile:
    """Return the profile of a call that takes `call_s` by the judge's clock. `moved_bytes`: inputs and outputs."""
    total_us = sum(kernel.microseconds for kernel in kernels)
    own_us = sum(kernel.microseconds for kernel in kernels if kernel.is_own)
    return Profile(
        kernels=tuple(kernels[:MOST_KERNELS]),
        launches=sum(kernel.launches for kernel in kernels),
        own_share=own_us / total_us if total_us else 0.0,
        gigabytes_per_s=moved_bytes / call_s / 1e9,
        teraflops_per_s=flops / call_s / 1e12,
        roofline_share=peak_s(moved_bytes, flops, rates) / call_s,
    )


def is_own(name: str, own_names: Collection[str]) -> bool:
    """True for a kernel that the source defines, named plainly or as a C++ signature (`void f<float>(float*)`).

    False if the name, or a namespace in it, looks like a library's. An own name that ends in `*` is the beginning of
    one.
    """
    bare = name.replace("(anonymous namespace)::", "")
    *spaces, plain = re.split(r"[<(]", re.sub(r"^(?:static )?void ", "", bare), maxsplit=1)[0].strip().split("::")
    if _LIBRARY_SPACES.intersection(spaces):
        return False
    if plain in own_names:
        return not _LIBRARY_NAME.search(plain)
    begins = (own for own in own_names if own.endswith("*") and plain.startswith(own[:-1]))
    return any(not _LIBRARY_NAME.search(_as_in_source(own)) for own in begins)


def suspicious_names(own_names: Collection[str]) -> list[str]:
    """Return names of own kernels that look like a library's, as the source spells them."""
    return sorted(name for name in map(_as_in_source, own_names) if _LIBRARY_NAME.search(name))


def _as_in_source(own: str) -> str:
    """Return the function's name: CuTe DSL calls every kernel `kernel_cutlass_NAME_…`, which is no library's mark."""
    return own.removeprefix(_CUTE_DSL).removesuffix("*")
