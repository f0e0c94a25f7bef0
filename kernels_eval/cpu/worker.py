"""One judge worker: grades candidates one after the other for the judge's process, over a socket.

Forked from the warm zygote. Before it reads its first problem it forks its two fork servers, from which candidates' processes
come: one for host code, one for executors. A worker that lost one cannot make a clean one any more, and ends: the judge
starts another.

Request: `evaluate` (problem, kernel, config). Reply: `graded` (verdict, launches, units), `reference_failed` (message) or `fault`
(message).
"""

import os
import socket

from kernels_eval.config import JudgeConfig
from kernels_eval.cpu.grader import Grader
from kernels_eval.errors import InfrastructureError
from kernels_eval.interpreter.process import executor_main
from kernels_eval.reference.expected import ReferenceFailedError
from kernels_eval.sandbox.fork_server import ChildMain, ForkServer, serve_fork_server
from kernels_eval.sandbox.ipc import ChannelClosedError, note_pair, receive_frame, send_frame
from kernels_eval.sandbox.limits import die_with_parent
from kernels_eval.tracing.process import host_main


def serve_worker(judge: socket.socket) -> None:
    """Serve until the judge goes away."""
    hosts = _start_fork_server(host_main, [judge])
    executors = _start_fork_server(executor_main, [judge, hosts])
    die_with_parent()
    grader = Grader(ForkServer(hosts), ForkServer(executors))
    send_frame(judge, {"kind": "hello", "process": os.getpid(), "sandbox": grader.sandbox})
    while True:
        try:
            request, _ = receive_frame(judge)
        except ChannelClosedError:
            return
        try:
            graded = grader.grade(request["problem"], request["kernel"], JudgeConfig(**request["config"]))
            reply = {
                "kind": "graded",
                "verdict": graded.verdict.model_dump(mode="json"),
                "launches": [launch.model_dump(mode="json") for launch in graded.launches],
                "units": [unit.model_dump(mode="json") for unit in graded.units],
            }
        except ReferenceFailedError as failed:
            reply = {"kind": "reference_failed", "message": str(failed)}
        except InfrastructureError as fault:
            send_frame(judge, {"kind": "fault", "message": str(fault)})
            return
        send_frame(judge, reply)


def _start_fork_server(child_main: ChildMain, not_theirs: list[socket.socket]) -> socket.socket:
    """Fork a fork server; returns the socket to it. `not_theirs`: sockets that it must not hold."""
    ours, theirs = note_pair()
    if os.fork() == 0:
        try:
            for other in (ours, *not_theirs):
                other.close()
            serve_fork_server(theirs, child_main, may_fork=False)
        finally:
            os._exit(0)
    theirs.close()
    return ours
