"""State that a GPU worker keeps across candidates: its shared memory, clock, lock and what it measured."""

from collections.abc import Callable
from dataclasses import dataclass, field

from cachetools import LRUCache

from kernels_eval.gpu.device.detection import DeviceFacts, DeviceLock
from kernels_eval.gpu.device.gate import GatePage
from kernels_eval.gpu.device.shared_memory import IpcTransport, Transport
from kernels_eval.gpu.timing.phases import Phase, Phases
from kernels_eval.gpu.timing.reference_timer import ReferenceTimer
from kernels_eval.gpu.timing.statistics import Estimate
from kernels_eval.gpu.timing.timer import Overheads
from kernels_eval.sandbox.fork_server import ForkServer

MAX_REFERENCES = 32


@dataclass(frozen=True)
class Quiet:
    """Times on a device on which no candidate is at work: nobody can have slowed it."""

    call: Estimate
    """Of the reference's call in a round."""
    serial_s: float | None
    """Of a call alone, where calls can be timed so."""
    sampling: tuple[tuple[int, float], ...] = ()
    """Numbers of calls, ascending, and what the first samples of their outputs take."""

    def sampling_s(self, calls: int) -> float:
        """Return what the first samples of so many calls take, as measured of at least as many."""
        return next((seconds for count, seconds in self.sampling if count >= calls), 0.0)


@dataclass
class WorkerState:
    """State that a worker keeps across candidates."""

    fork_server: ForkServer
    descriptor: int
    """The host file that candidates may map."""
    facts: DeviceFacts
    transport: Transport
    lock: DeviceLock
    page: GatePage
    reference_timer: ReferenceTimer
    memory_bytes: int
    """Device memory that this worker may take."""
    free_bytes: Callable[[], int]
    """Returns the device memory that nobody uses."""
    free_at_fault: int | None = None
    """Its value while a candidate's process was there, when the worker's own memory did not suffice."""
    can_hold: bool = False
    """This device can hold a queue back before the gate (kernels_eval.gpu.device.gate)."""
    overheads: LRUCache[str, Overheads] = field(default_factory=lambda: LRUCache(MAX_REFERENCES))
    """By problem."""
    quiet: LRUCache[tuple[str, str], tuple[float, Quiet]] = field(default_factory=lambda: LRUCache(MAX_REFERENCES))
    """When the device was timed without a candidate on it, and its times, by problem and baseline."""

    phases: Phases = field(default_factory=Phases)
    """Of the present verdict."""
    leftovers: list[Callable[[], object]] = field(default_factory=list[Callable[[], object]])
    """Work that earlier candidates left: waiting until a process has ended, then removing its files."""

    def settle(self) -> None:
        """Wait until no process of an earlier candidate is left, and remove their files.

        A verdict does not wait for that; the next one does before any code of its candidate runs, and before that if
        memory is needed which is still taken.
        """
        while self.leftovers:
            self.leftovers.pop(0)()
        self.phases.ended(Phase.BEFORE)

    @property
    def is_gated(self) -> bool:
        """True if candidates can be timed behind a gate: their inputs must arrive without a launch of theirs."""
        return isinstance(self.transport, IpcTransport)
