"""CPU worker: grades one candidate after another for the judge's process, over a socket.

Forked from the warm zygote. Before it reads its first problem it forks its two fork servers, from which candidates' processes
come: one for host code, one for executors. A worker that lost one cannot make a clean one any more, and ends: the judge
starts another.

Request: `evaluate` (problem, kernel, config; on a GPU also build). Reply: `graded` (verdict, launches; here also units),
`reference_failed` (message) or `fault` (message).
"""

import os
import socket
from collections.abc import Callable
from typing import Any

from kernels_eval.config import JudgeConfig
from kernels_eval.cpu.grader import Grader
from kernels_eval.errors import InfrastructureError
from kernels_eval.interpreter.process import executor_main
from kernels_eval.reference.expected import ReferenceFailedError
from kernels_eval.sandbox.fork_server import ChildMain, ChildSetup, ForkServer, serve_fork_server
from kernels_eval.sandbox.ipc import ChannelClosedError, note_pair, receive_frame, send_frame
from kernels_eval.sandbox.limits import die_with_parent
from kernels_eval.tracing.process import host_main


def serve_worker(judge: socket.socket) -> None:
    """Serve until the judge goes away."""
    hosts = start_fork_server(host_main, [judge])
    executors = start_fork_server(executor_main, [judge, hosts])
    die_with_parent()
    grader = Grader(ForkServer(hosts), ForkServer(executors))

    def grade(request: dict[str, Any]) -> dict[str, Any]:
        graded = grader.grade(request["problem"], request["kernel"], JudgeConfig(**request["config"]))
        return {
            "verdict": graded.verdict.model_dump(mode="json"),
            "launches": [launch.model_dump(mode="json") for launch in graded.launches],
            "units": [unit.model_dump(mode="json") for unit in graded.units],
        }

    serve_requests(judge, {"sandbox": grader.sandbox}, grade)


def serve_requests(
    judge: socket.socket, facts: dict[str, Any], grade: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    """Introduce this worker with its facts, then answer each request with the fields that `grade` returns for it.

    Returns when the judge has gone, or after a fault of the machine.
    """
    send_frame(judge, {"kind": "hello", "process": os.getpid(), **facts})
    while True:
        try:
            request, _ = receive_frame(judge)
        except ChannelClosedError:
            return
        try:
            reply = {"kind": "graded", **grade(request)}
        except ReferenceFailedError as failed:
            reply = {"kind": "reference_failed", "message": str(failed)}
        except InfrastructureError as fault:
            send_frame(judge, {"kind": "fault", "message": str(fault)})
            return
        send_frame(judge, reply)


def start_fork_server(
    child_main: ChildMain, not_theirs: list[socket.socket], may_fork: bool = False, setup: ChildSetup | None = None
) -> socket.socket:
    """Fork a fork server; returns the socket to it. `not_theirs`: sockets that it must not hold."""
    ours, theirs = note_pair()
    if os.fork() == 0:
        try:
            for other in (ours, *not_theirs):
                other.close()
            serve_fork_server(theirs, child_main, may_fork, setup)
        finally:
            os._exit(0)
    theirs.close()
    return ours
