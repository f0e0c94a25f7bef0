"""One judge worker: grades candidates one after the other for the judge's process, over a socket.

Forked from the warm template. Before it reads its first problem it forks its nursery, from which candidates come; a worker
whose nursery died cannot make a clean one any more, and ends: the judge starts another.

Request: `evaluate` (problem, kernel, config). Reply: `graded` (verdict, launches), `reference_failed` (message) or `fault` (message).
"""

import os
import socket

from kernels_eval.candidate import candidate_main
from kernels_eval.config import JudgeConfig
from kernels_eval.confinement import die_with_parent
from kernels_eval.errors import InfrastructureError
from kernels_eval.grading import Grader
from kernels_eval.nursery import Nursery, serve_nursery
from kernels_eval.reference import ReferenceFailedError
from kernels_eval.wire import ChannelClosedError, note_pair, receive_frame, send_frame


def serve_worker(judge: socket.socket) -> None:
    """Serve until the judge goes away."""
    ours, theirs = note_pair()
    if os.fork() == 0:
        try:
            ours.close()
            judge.close()
            serve_nursery(theirs, candidate_main, may_fork=False)
        finally:
            os._exit(0)
    theirs.close()
    die_with_parent()
    grader = Grader(Nursery(ours))
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
            }
        except ReferenceFailedError as failed:
            reply = {"kind": "reference_failed", "message": str(failed)}
        except InfrastructureError as fault:
            send_frame(judge, {"kind": "fault", "message": str(fault)})
            return
        send_frame(judge, reply)
