"""A fork server: a released child is waited for when that is asked, and a job starts while the one before still ends."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Generator
from dataclasses import replace

import pytest

from kernels_eval.cpu.worker import start_fork_server
from kernels_eval.errors import InfrastructureError
from kernels_eval.sandbox.fork_server import ChildSetup, Ending, ForkServer
from kernels_eval.sandbox.limits import Limits
from kernels_eval.sandbox.messages import ChannelClosedError, receive_frame, send_frame

STOPPED = Ending("stopped", -signal.SIGKILL)
LIMITS = Limits(wall_s=30.0, memory_mb=512)
SETUP = ChildSetup(confine_fork_server=lambda may_fork: ["process"], confine_child=lambda limits, may_fork: None)


def serve(channel: socket.socket, memory: int) -> None:
    """Tell the process's number; end with code 3 if that is asked for, else wait."""
    channel.settimeout(None)
    send_frame(channel, {"process": os.getpid()})
    receive_frame(channel)
    os._exit(3)


@pytest.fixture
def server() -> Generator[ForkServer]:
    made = ForkServer(start_fork_server(serve, [], may_fork=True, setup=SETUP))
    yield made
    made.close()


def started(server: ForkServer) -> tuple[socket.socket, int]:
    channel = server.start(None, LIMITS)
    return channel, receive_frame(channel)[0]["process"]


@pytest.mark.parametrize(("computes", "cause"), [(False, "timeout"), (True, "starved")])
def test_a_child_that_never_sleeps_has_been_kept_from_a_core(server: ForkServer, computes: bool, cause: str) -> None:
    channel = server.start(None, Limits(wall_s=0.3, memory_mb=512, computes=computes))
    os.kill(receive_frame(channel)[0]["process"], signal.SIGSTOP)  # as a machine does that is busy with other work
    with pytest.raises(ChannelClosedError):
        receive_frame(channel)
    assert server.stop().cause == cause
    channel.close()


def compile_slowly(channel: socket.socket, memory: int) -> None:
    """Start a program that does not end, as a compiler is; or sleep without one."""
    channel.settimeout(None)
    if receive_frame(channel)[0]["starts"]:
        subprocess.run(["sleep", "60"], check=False)
    time.sleep(60)


def seconds_until_ended(starts: bool) -> float:
    server = ForkServer(start_fork_server(compile_slowly, [], may_fork=True, setup=SETUP))
    began = time.monotonic()
    channel = server.start(None, Limits(wall_s=1.0, memory_mb=512))
    send_frame(channel, {"starts": starts})
    with pytest.raises(ChannelClosedError):
        receive_frame(channel)
    assert server.stop().cause == "timeout"
    channel.close()
    server.close()
    return time.monotonic() - began


def test_the_time_that_a_compiler_waits_for_a_core_does_not_count() -> None:
    alone, with_compiler = seconds_until_ended(False), seconds_until_ended(True)
    assert 1.0 <= alone < with_compiler
    assert with_compiler >= 4.0


def refuse(limits: Limits, may_fork: bool) -> None:
    raise ValueError("not allowed to raise maximum limit")


def end(*_: object) -> None:
    os._exit(0)


@pytest.mark.parametrize(
    ("setup", "reason"),
    [
        (replace(SETUP, confine_child=refuse), "not allowed to raise maximum limit"),
        (replace(SETUP, confine_child=end), "it ended with 0"),
        (replace(SETUP, warm_up=end), "it ended with 0"),
    ],
    ids=["cannot be confined", "ends meanwhile", "ended before it had a job"],
)
def test_a_child_that_ends_before_it_is_confined_is_no_candidates_fault(setup: ChildSetup, reason: str) -> None:
    server = ForkServer(start_fork_server(serve, [], may_fork=True, setup=setup))
    channel = server.start(None, LIMITS)
    with pytest.raises(ChannelClosedError):
        receive_frame(channel)
    with pytest.raises(InfrastructureError, match=f"could not be confined: {reason} "):
        server.stop().refuse_unprepared()
    channel.close()
    server.close()


def say_so_and_end(channel: socket.socket, memory: int) -> None:
    """Do what a candidate could try that wants to count as never begun."""
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, b"not confined")
        except OSError:
            continue
    os._exit(70)


def test_a_candidate_cannot_choose_to_be_unprepared() -> None:
    server = ForkServer(start_fork_server(say_so_and_end, [], may_fork=True, setup=SETUP))
    channel = server.start(None, LIMITS)
    channel.recv(100)
    ending = server.stop()
    ending.refuse_unprepared()
    assert ending == Ending("exit", 70)
    channel.close()
    server.close()


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_job_starts_before_the_one_before_is_asked_for(server: ForkServer) -> None:
    first, process = started(server)
    job = server.release()
    second, other = started(server)
    assert server.ending(job) == STOPPED
    assert not is_alive(process)
    assert is_alive(other)
    assert server.stop() == STOPPED
    assert not is_alive(other)
    for channel in (first, second):
        with pytest.raises(ChannelClosedError):
            receive_frame(channel)
        channel.close()


def test_a_child_that_ended_by_itself_keeps_its_ending(server: ForkServer) -> None:
    channel, process = started(server)
    send_frame(channel, {"kind": "end"})
    until = time.monotonic() + 10
    while is_alive(process) and time.monotonic() < until:
        time.sleep(0.01)
    job = server.release()
    started(server)[0].close()
    assert server.ending(job) == Ending("exit", 3)


def test_many_jobs_whose_end_nobody_asks_for(server: ForkServer) -> None:
    for _ in range(20):
        started(server)[0].close()
        server.release()
    channel, process = started(server)
    assert server.stop().cause in ("stopped", "exit")
    assert not is_alive(process)
    channel.close()
