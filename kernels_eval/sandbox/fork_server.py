"""Fork server: a single-threaded, pre-imported process that forks one sandboxed child per request. Both sides are here.

`ForkServer` is the owner's side (a worker, or the caller for compilers), `serve_fork_server` the process's. It is
forked before its owner reads any problem: a child's memory holds no reference, seed or expected output. It keeps one
spare child forked ahead (forking a process with torch in it takes about 10 ms), hands it the descriptors of a job,
enforces the limit on wall time, and ends the child's whole process group and any process that escaped from the group.

Protocol (SOCK_SEQPACKET). Owner: `start` (job, limits; descriptors: channel and, for some, input memory), `stop` (job).
Fork server: `hello` (sandbox), `ended` (job, cause, code, reason). A child says on its own connection that it is
confined, before it runs a candidate. A job starts also while the one before still ends: an owner that wants no two
candidates to live at once waits for the report.
"""

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kernels_eval.errors import InfrastructureError
from kernels_eval.sandbox.limits import (
    Limits,
    confine_child,
    confine_fork_server,
    cpu_left_s,
    cpu_of_family_s,
    cpu_used_s,
    cpu_wait_since,
    cpu_waits,
    die_with_parent,
    end_children,
    has_children,
)
from kernels_eval.sandbox.messages import ChannelClosedError, has_news, note_pair, receive_note, send_note

ChildMain = Callable[[socket.socket, int], None]
"""Main function of a child. Arguments: channel to the owner, descriptor of the shared input memory (-1: none)."""
_GRACE_S = 5.0
MAX_EXTENSION = 3.0
"""A wall-time limit is extended by the time that a child or its owner waited for a core, and by the CPU time of its
owner, by at most so many limits. A child that the machine kept waiting longer is `starved`: that is no fault of its."""
_ANSWER_S = 60.0
_CONFINED = "confined"
_SHORTEST_WAIT_S = 0.001


@dataclass(frozen=True)
class Ending:
    """End of a child."""

    cause: str
    """`exit`, `signal`, `timeout`, `starved`, `stopped`, or `unprepared`: it ended, or had no more time, before it was
    confined. No code of a candidate had run by then."""
    code: int = 0
    """Exit code or signal number."""
    reason: str = ""
    """Error of a child that is `unprepared`, if it could still tell it."""

    def refuse_unprepared(self) -> None:
        """Raise InfrastructureError for a child that is `unprepared`."""
        if self.cause == "unprepared":
            reason = self.reason or f"it ended with {self.code}"
            raise InfrastructureError(
                f"a process for a candidate could not be confined: {reason} (ulimit -a shows this machine's limits)"
            )


@dataclass
class _Child:
    process: int
    descriptor: int
    connection: socket.socket
    job: int = -1
    started: float = 0.0
    wall_s: float = 0.0
    cpu_s: float | None = None
    computes: bool = False
    deadline: float = 0.0
    """When it may have used up its wall time or its CPU time."""
    code: int = 0
    """Reported code of a `timeout`: SIGXCPU if it was the CPU time."""
    is_starved: bool = False
    """The machine kept it waiting for longer than a limit is extended."""
    preparation: str = ""
    """Its last word before it runs a candidate: `_CONFINED`, or the error that kept it from that."""
    owners_cpu_before: float = 0.0
    cpu_waits_before: dict[int, float] = field(default_factory=dict[int, float])


@dataclass(frozen=True)
class ChildSetup:
    """Steps before a child runs a candidate."""

    warm_up: Callable[[], None] | None = None
    """Called in each spare child while it waits for its job."""
    confine_fork_server: Callable[[bool], list[str]] = confine_fork_server
    confine_child: Callable[[Limits, bool], None] = confine_child
    prepare: Callable[[], None] | None = None
    """Called once in the fork server, before it forks: what is the same for every candidate."""


def serve_fork_server(
    owner: socket.socket, child_main: ChildMain, may_fork: bool, setup: ChildSetup | None = None
) -> None:
    """Serve one owner until it goes away. `may_fork`: children may start programs (a compiler's assembler)."""
    die_with_parent()
    setup = setup or ChildSetup()
    sandbox = setup.confine_fork_server(may_fork)
    with contextlib.suppress(ChannelClosedError):
        if setup.prepare is not None:
            setup.prepare()
        send_note(owner, {"event": "hello", "sandbox": sandbox})
        _ForkServerProcess(owner, child_main, may_fork, setup).serve()


class _ForkServerProcess:
    def __init__(self, owner: socket.socket, child_main: ChildMain, may_fork: bool, setup: ChildSetup) -> None:
        self._owner = owner
        self._setup = setup
        self._child_main = child_main
        self._may_fork = may_fork
        self._spare = self._fork()
        self._current: _Child | None = None
        self._dying: dict[int, _Child] = {}
        """Killed children by descriptor, reaped later: a process with torch in it takes milliseconds to end."""

    def serve(self) -> None:
        while True:
            current = self._current
            watched = [self._owner.fileno(), *self._dying] + ([current.descriptor] if current else [])
            wait_s = None if current is None else max(0.0, current.deadline - time.monotonic())
            ready, _, _ = select.select(watched, [], [], wait_s)
            if current is not None and current.descriptor in ready:
                self._end(current, None)
            elif current is not None and time.monotonic() >= current.deadline and not self._extend(current):
                self._end(current, "starved" if current.is_starved else "timeout")
            if self._owner.fileno() in ready:
                if not self._handle_request():
                    return
                continue
            for descriptor in [descriptor for descriptor in ready if descriptor in self._dying]:
                child = self._dying.pop(descriptor)
                self._report(child, "stopped", self._reap(child))

    def _handle_request(self) -> bool:
        """Serve one request; returns False once the owner has gone."""
        try:
            note, descriptors = receive_note(self._owner)
        except ChannelClosedError:
            for child in filter(None, (self._current, self._spare, *self._dying.values())):
                self._kill(child)
            return False
        if note["action"] == "stop":
            child = self._current
            if child is not None and child.job == note["job"]:
                self._current = None
                self._send_kill(child)
                self._dying[child.descriptor] = child
            return True
        child = self._spare
        child.job = note["job"]
        child.started, child.wall_s = time.monotonic(), note["limits"]["wall_s"]
        child.cpu_s, child.computes = note["limits"]["cpu_s"], note["limits"]["computes"]
        child.deadline = child.started + min(child.wall_s, child.cpu_s or child.wall_s)
        child.cpu_waits_before = cpu_waits(os.getppid())
        child.owners_cpu_before = cpu_used_s(os.getppid())
        with contextlib.suppress(ChannelClosedError):  # a spare that died shows by its descriptor in the next round
            send_note(child.connection, note, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        self._current = child
        self._spare = self._fork()
        return True

    def _extend(self, child: _Child) -> bool:
        """Move the deadline: time spent waiting for a core does not count. Returns False if the child had its time."""
        # Of a candidate's two processes one waits while the other, or their owner, waits for a core.
        waited_s, longest_s = cpu_wait_since(child.cpu_waits_before, os.getppid()), MAX_EXTENSION * child.wall_s
        if child.computes:
            waited_s = max(waited_s, _off_the_cpu_s(child))
        left_s = cpu_left_s(child.process, child.cpu_s)
        child.code = 0 if left_s > 0 else signal.SIGXCPU
        child.is_starved = left_s > 0 and waited_s > longest_s
        if self._may_fork and has_children(child.process):  # a compiler, which never sleeps
            waited_s = max(waited_s, _off_the_cpu_s(child))
        owners_s = cpu_used_s(os.getppid()) - child.owners_cpu_before  # a candidate waits for the reference, too
        waited_s = min(waited_s + owners_s, longest_s)
        now, last = time.monotonic(), child.started + child.wall_s + waited_s
        child.deadline = min(last, now + max(left_s, _SHORTEST_WAIT_S))
        return left_s > 0 and now < last

    def _fork(self) -> _Child:
        """Fork a child that waits for its job behind a connection."""
        ours, theirs = note_pair()
        process = os.fork()
        if process == 0:
            code = 70
            try:
                _run_child(theirs, self._child_main, self._may_fork, self._setup)
                code = 0
            finally:
                os._exit(code)
        theirs.close()
        return _Child(process, os.pidfd_open(process), ours)

    def _end(self, child: _Child, cause: str | None) -> None:
        """Kill and reap the current child and report how it ended. `cause` None: it ended by itself."""
        self._current = None
        self._report(child, cause, self._kill(child))

    def _report(self, child: _Child, cause: str | None, code: int) -> None:
        if cause is None or (cause == "stopped" and code != -signal.SIGKILL):
            cause, code = ("signal", -code) if code < 0 else ("exit", code)
            if cause == "signal" and code == signal.SIGXCPU:
                cause = "timeout"
        elif cause == "timeout":
            code = child.code
        reason = "" if child.preparation == _CONFINED else child.preparation
        if child.preparation != _CONFINED and cause != "stopped":
            cause = "unprepared"
        send_note(self._owner, {"event": "ended", "job": child.job, "cause": cause, "code": code, "reason": reason})

    def _kill(self, child: _Child) -> int:
        """Kill and reap a child, its group and what escaped from it; returns its exit code, negative for a signal."""
        self._send_kill(child)
        return self._reap(child)

    def _send_kill(self, child: _Child) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.process, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(child.descriptor, signal.SIGKILL)

    def _reap(self, child: _Child) -> int:
        _, status = os.waitpid(child.process, 0)
        os.close(child.descriptor)
        with contextlib.suppress(BlockingIOError, ConnectionResetError):
            child.preparation = child.connection.recv(1 << 12, socket.MSG_DONTWAIT).decode(errors="replace")
        child.connection.close()
        if self._may_fork:
            others = filter(None, (self._current, self._spare, *self._dying.values()))
            end_children({child.process, *(other.process for other in others)})
        return os.waitstatus_to_exitcode(status)


def _off_the_cpu_s(child: _Child) -> float:
    """Return for how long a child and its programs have not run since it got its job, in seconds."""
    return time.monotonic() - child.started - cpu_of_family_s(child.process)


def _run_child(connection: socket.socket, child_main: ChildMain, may_fork: bool, setup: ChildSetup) -> None:
    die_with_parent()
    os.setsid()
    # No descriptor of the fork server may stay open: its sockets lead to its owner.
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    os.dup2(connection.fileno(), 3)
    os.closerange(4, 65536)
    connection.detach()
    connection = socket.socket(fileno=3)
    if setup.warm_up is not None:
        setup.warm_up()
    try:
        note, (channel_descriptor, *memory) = receive_note(connection)
    except ChannelClosedError:
        return
    try:
        setup.confine_child(Limits(**note["limits"]), may_fork)
    except (OSError, ValueError) as error:
        connection.send(str(error)[:500].encode())
        raise
    connection.send(_CONFINED.encode())
    connection.close()
    child_main(socket.socket(fileno=channel_descriptor), memory[0] if memory else -1)


class ForkServer:
    """Owner's side: starts jobs in a fork server, one at a time, and reads how they ended. Not for concurrent use."""

    def __init__(self, notes: socket.socket) -> None:
        notes.settimeout(_ANSWER_S)
        self._notes = notes
        self._job = 0
        self._endings: dict[int, Ending] = {}
        """Reports that have arrived, by job. When a job starts, they are dropped but for that of the job before."""
        self.sandbox: list[str] = self._receive()["sandbox"]

    def start(self, memory: int | None, limits: Limits) -> socket.socket:
        """Start a confined child; returns the channel to it. `memory`: a descriptor that it may map, or None."""
        self._job += 1
        while has_news(self._notes):
            self._note_ending()
        self._endings = {job: ending for job, ending in self._endings.items() if job == self._job - 1}
        ours, theirs = socket.socketpair()
        ours.settimeout((1 + MAX_EXTENSION) * limits.wall_s + _GRACE_S)
        try:
            descriptors = [theirs.fileno()] if memory is None else [theirs.fileno(), memory]
            self._send({"action": "start", "job": self._job, "limits": vars(limits)}, descriptors)
        except InfrastructureError:
            ours.close()
            raise
        finally:
            theirs.close()
        return ours

    def stop(self) -> Ending:
        """End the current job unless it has ended; returns how it ended."""
        return self.ending(self.release())

    def release(self) -> int:
        """End the current job as `stop` does, but leave the waiting to `ending`; returns the job's number."""
        self._send({"action": "stop", "job": self._job}, ())
        return self._job

    def _note_ending(self) -> None:
        note = self._receive()
        self._endings[note["job"]] = Ending(note["cause"], note["code"], note["reason"])

    def ending(self, job: int | None = None) -> Ending:
        """Wait until a job (the current one by default) has ended, at its time limit if not before: once for each."""
        wanted = self._job if job is None else job
        while wanted not in self._endings:
            self._note_ending()
        return self._endings.pop(wanted)

    def close(self) -> None:
        """Close the connection; the fork server kills its children and ends."""
        self._notes.close()

    def _send(self, note: dict[str, Any], descriptors: list[int] | tuple[()]) -> None:
        try:
            send_note(self._notes, note, descriptors)
        except (ChannelClosedError, TimeoutError) as error:
            raise InfrastructureError("the process that candidates are forked from died") from error

    def _receive(self) -> dict[str, Any]:
        try:
            return receive_note(self._notes)[0]
        except (ChannelClosedError, TimeoutError) as error:
            raise InfrastructureError("the process that candidates are forked from died") from error
