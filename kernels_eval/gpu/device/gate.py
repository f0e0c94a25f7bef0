"""Gate: holds a queue of calls back on the device until the judge opens it, and tells the judge when they are done.

A kernel of one thread waits on the default stream until a word in host memory is set; all that is launched after it
waits with it. The host needs 20 to 100 µs to launch a call that the device makes in 5: behind a closed gate the
launches are all in the device's queue before the first one runs. Behind them another kernel of one thread sets a second
word. The judge opens the gate, reads the clock, waits for that word and reads the clock again: the time between is the
device's alone, without message latency and process wake-up.

The words lie in a page of a file that both processes map, a candidate's and the worker. A candidate can write them too.
To open early gains nothing, since no input has arrived; to end early gains nothing, since the judge samples the outputs
right then (kernels_eval.gpu.candidate.shared_calls). The end is told on the device too, and first there
(kernels_eval.gpu.device.watch).

The calls of a round can stand in groups of one, each behind a gate of its own: the inputs of one arrive when the one
before it has ended. Calls that overlap in a queue do not then.

A gate that is not opened opens by itself: a call that waits for the device (`.item()`, `synchronize`) would otherwise
wait for ever. Such calls can stand in groups of one as well: the host waits for the first word, then launches the call.

The kernel that waits keeps the device from others for its share of the time. A queue can therefore be held back before
it, by a wait of the stream itself, which costs the device nothing: the calls are launched while others use the device,
and the judge admits the kernel when the device is its own. Such a wait has no limit; the judge ends it.
"""

import ctypes
import fcntl
import mmap
import os
import time
from collections.abc import Callable

from kernels_eval.gpu.device.cuda_driver import CudaDriver, CudaError

PAGE_BYTES = 4096
"""Bytes at the start of the file that belong to the gate."""
GATE_KERNEL, END_KERNEL = "kernels_eval_gate", "kernels_eval_end"
_OPEN, _GAVE_UP, _TURNS, _WAITING, _ENDED, _ADMITTED, _ENDED_HERE = 0, 1, 2, 3, 32, 64, 96
_PROGRAM = f"""
.version VERSION
.target TARGET
.address_size 64
.visible .entry {GATE_KERNEL}(.param .u64 page, .param .u64 nanoseconds, .param .u64 group)
{{
    .reg .u64 %page, %wanted, %begun, %now, %wide;
    .reg .u32 %open, %turns, %group;
    .reg .pred %waits;
    ld.param.u64 %page, [page];
    ld.param.u64 %wanted, [nanoseconds];
    ld.param.u64 %wide, [group];
    cvt.u32.u64 %group, %wide;
    mov.u32 %turns, 0;
    st.volatile.global.u32 [%page+{4 * _TURNS}], %turns;
    membar.sys;
    st.volatile.global.u32 [%page+{4 * _WAITING}], %group;
    STARTS_DEPENDENTS
    mov.u64 %begun, %globaltimer;
again:
    add.u32 %turns, %turns, 1;
    st.volatile.global.u32 [%page+{4 * _TURNS}], %turns;
    ld.volatile.global.u32 %open, [%page];
    setp.ge.u32 %waits, %open, %group;
    @%waits bra leave;
    ld.volatile.global.u32 %open, [%page+{4 * _GAVE_UP}];
    setp.ne.u32 %waits, %open, 0;
    @%waits bra leave;
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %begun;
    setp.lt.u64 %waits, %now, %wanted;
    setp.lt.and.u32 %waits, %turns, 100000000, %waits;
    @%waits bra again;
    mov.u32 %open, 1;
    st.volatile.global.u32 [%page+{4 * _GAVE_UP}], %open;
leave:
    ret;
}}
.visible .entry {END_KERNEL}(.param .u64 page, .param .u64 group, .param .u64 here)
{{
    .reg .u64 %page, %wide, %here;
    .reg .u32 %group;
    ld.param.u64 %page, [page];
    ld.param.u64 %wide, [group];
    ld.param.u64 %here, [here];
    cvt.u32.u64 %group, %wide;
    st.volatile.global.u32 [%here], %group;
    membar.sys;
    st.volatile.global.u32 [%page+{4 * _ENDED}], %group;
    ret;
}}
"""
"""PTX with three fields of `program_for`. Words of the page: 0 has the number of the last group of calls whose gate is
open, 1 is set by a gate that waited for too long, and opens all, 2 counts the turns of a gate that waits, 3 has its
group, 32 the last group that has ended, 64 admits a gate that is held back, 96 has that group where no device memory
takes it. Turns are limited too: a timer that stands still hangs no device."""
_FIRST_DEPENDENT = 9
"""Major compute capability of the first GPUs whose kernels can start before the one in front has ended."""


def program_for(major: int) -> str:
    """Return the PTX for a GPU of a major compute capability, since Volta.

    A kernel may be launched to start early, when the one in front allows it (programmatic dependent launch). The gate
    allows it at once: a kernel that does not wait before it reads then reads before the inputs arrive.
    """
    can_start = major >= _FIRST_DEPENDENT
    fields = {
        "VERSION": "7.8" if can_start else "7.0",
        "TARGET": "sm_90" if can_start else "sm_70",
        "STARTS_DEPENDENTS": "griddepcontrol.launch_dependents;" if can_start else "",
    }
    program = _PROGRAM
    for name, value in fields.items():
        program = program.replace(name, value)
    return program


QUEUE = 500
"""Launches behind a closed gate: a stream's queue holds about 1,000, and a full one would block the host."""
LONGEST_WAIT_S = 2.0
_SEEN_S = 0.2
_SEEN_TURNS = 4
_PATIENCE_S = 1e-3
"""Time after which someone who waits for the end looks at what else may have happened, and then again and again."""


def new_page() -> int:
    """Return a file that begins with a page, and that nobody can shrink: to read what is gone would end the worker."""
    descriptor = os.memfd_create("device", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, PAGE_BYTES)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
    return descriptor


class GatePage:
    """The gate's words, as either process maps them."""

    def __init__(self, descriptor: int) -> None:
        """`descriptor`: a file of `new_page`."""
        self._memory = mmap.mmap(descriptor, PAGE_BYTES)
        self._words = (ctypes.c_uint32 * (PAGE_BYTES // 4)).from_buffer(self._memory)

    @property
    def address(self) -> int:
        """Address in this process."""
        return ctypes.addressof(self._words)

    @property
    def gave_up(self) -> bool:
        """True if the gate has opened by itself since it was closed."""
        return self._words[_GAVE_UP] != 0

    @property
    def ended(self) -> int:
        """Number of the last group of which everything between gate and end is done; 0: none."""
        return self._words[_ENDED]

    def close(self) -> None:
        """Make the next gate kernel wait."""
        for word in (_OPEN, _GAVE_UP, _TURNS, _WAITING, _ENDED, _ADMITTED):
            self._words[word] = 0

    def admit(self) -> None:
        """Let the gate's kernel run, if the queue is held back before it."""
        self._words[_ADMITTED] = 1

    def give_up(self) -> None:
        """Let the device go on, as a gate does that has waited for too long."""
        self._words[_GAVE_UP] = 1
        self.open()
        self.admit()

    def wait_until_seen(self, group: int = 1) -> None:
        """Wait until the gate's kernel runs: the device takes 0.1 ms to go from one process to another."""
        deadline = time.perf_counter() + _SEEN_S
        while self._words[_WAITING] != group and time.perf_counter() < deadline:
            pass
        first = self._words[_TURNS]
        while self._words[_TURNS] - first < _SEEN_TURNS and time.perf_counter() < deadline:
            pass

    def open(self, group: int = 1) -> None:
        """Let the device go on, through the gate of a group."""
        self._words[_OPEN] = group

    def wait_until_open(self, group: int) -> None:
        """Wait on the host for a group's turn, where no kernel can. Has no limit; the judge ends the process."""
        while self._words[_OPEN] < group:
            pass

    def wait_for_end(
        self, is_over: Callable[[], bool], group: int = 1, meanwhile: Callable[[], object] | None = None
    ) -> None:
        """Wait until everything between a group's gate and end is done, or `is_over` says that this is not told.

        `meanwhile`: called again and again.
        """
        looked = time.perf_counter()
        while self.ended < group:
            if meanwhile is not None:
                meanwhile()
            if time.perf_counter() - looked > _PATIENCE_S:
                if is_over():
                    return
                looked = time.perf_counter()


class Gate:
    """A process's side that launches the kernels. Needs a CUDA context."""

    def __init__(self, driver: CudaDriver, page: GatePage, end_word: int | None = None) -> None:
        """`end_word`: address in device memory of a word that has the last group that has ended, before the page."""
        self.page = page
        self._launch, self._hold, self._synchronize = driver.launch, driver.hold_until, driver.synchronize
        self._gate, self._end = driver.load(program_for(driver.major()), (GATE_KERNEL, END_KERNEL))
        self._there = driver.register_host(page.address, PAGE_BYTES)
        self._end_word = self._there + 4 * _ENDED_HERE if end_word is None else end_word

    def close(self, held: bool = False, group: int = 1) -> None:
        """Hold back everything that is launched from now on: a round's groups of calls are numbered from 1.

        `held`: the first gate's kernel too, until it is admitted.
        """
        if group == 1:
            self.page.close()
        if held:
            self._hold(self._there + 4 * _ADMITTED)
        self._launch(self._gate, (self._there, int(1e9 * LONGEST_WAIT_S), group))

    def end(self, group: int = 1) -> None:
        """Have the device tell the end of everything that was launched until now."""
        self._launch(self._end, (self._there, group, self._end_word))

    def can_hold(self) -> bool:
        """True if this device and its driver can hold a queue back before the gate: tries it."""
        try:
            self.close(held=True)
        except CudaError:
            return False
        self.end()
        turned_early = self.page.ended
        self.page.open()
        self.page.admit()
        self._synchronize()
        return not turned_early and self.page.ended == 1
