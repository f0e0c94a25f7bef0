"""One judge worker on a GPU: grades candidates one after the other for the judge's process, over a socket.

Forked from a zygote that has imported torch and triton and never touched CUDA. Before anything else it forks its fork server, whose
children each make a CUDA context of their own; only then does it make one itself. Requests and replies are those of
kernels_eval.cpu.worker; `evaluate` also carries what building the candidate gave.
"""

import os
import socket

from kernels_eval.config import JudgeConfig
from kernels_eval.errors import InfrastructureError
from kernels_eval.gpu.candidate import device_candidate_main, warm_up
from kernels_eval.gpu.confinement import confine_device_child, confine_device_fork_server
from kernels_eval.gpu.grader import DeviceGrader
from kernels_eval.reference.reference import ReferenceFailedError
from kernels_eval.sandbox.fork_server import ChildSetup, ForkServer, serve_fork_server
from kernels_eval.sandbox.ipc import ChannelClosedError, note_pair, receive_frame, send_frame
from kernels_eval.sandbox.limits import die_with_parent


def serve_device_worker(judge: socket.socket) -> None:
    """Serve until the judge goes away."""
    ours, theirs = note_pair()
    if os.fork() == 0:
        try:
            ours.close()
            judge.close()
            setup = ChildSetup(warm_up, confine_device_fork_server, confine_device_child)
            serve_fork_server(theirs, device_candidate_main, may_fork=True, setup=setup)
        finally:
            os._exit(0)
    theirs.close()
    die_with_parent()
    grader = DeviceGrader(ForkServer(ours))
    grader.probe()
    send_frame(
        judge, {"kind": "hello", "process": os.getpid(), "sandbox": grader.sandbox, "hardware": grader.facts.name}
    )
    while True:
        try:
            request, _ = receive_frame(judge)
        except ChannelClosedError:
            return
        try:
            config = JudgeConfig(**request["config"])
            verdict = grader.grade(request["problem"], request["kernel"], config, request.get("build") or {})
            reply = {"kind": "graded", "verdict": verdict.model_dump(mode="json"), "launches": []}
        except ReferenceFailedError as failed:
            reply = {"kind": "reference_failed", "message": str(failed)}
        except InfrastructureError as fault:
            send_frame(judge, {"kind": "fault", "message": str(fault)})
            return
        send_frame(judge, reply)
