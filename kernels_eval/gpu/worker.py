"""GPU worker: grades one candidate after another for the judge's process, over a socket.

Forked from a zygote that has imported torch and triton and never touched CUDA. Before anything else it forks its fork server, whose
children each make a CUDA context of their own; only then does it make one itself. Requests and replies are those of
kernels_eval.cpu.worker.
"""

import socket
from typing import Any

from kernels_eval.config import JudgeConfig
from kernels_eval.cpu.worker import serve_requests, start_fork_server
from kernels_eval.gpu.candidate import device_candidate_main, warm_up
from kernels_eval.gpu.confinement import confine_device_child, confine_device_fork_server
from kernels_eval.gpu.grader import DeviceGrader
from kernels_eval.sandbox.fork_server import ChildSetup, ForkServer
from kernels_eval.sandbox.limits import die_with_parent


def serve_device_worker(judge: socket.socket) -> None:
    """Serve until the judge goes away."""
    setup = ChildSetup(warm_up, confine_device_fork_server, confine_device_child)
    fork_server = start_fork_server(device_candidate_main, [judge], may_fork=True, setup=setup)
    die_with_parent()
    grader = DeviceGrader(ForkServer(fork_server))
    grader.probe()

    def grade(request: dict[str, Any]) -> dict[str, Any]:
        config = JudgeConfig(**request["config"])
        verdict = grader.grade(request["problem"], request["kernel"], config, request.get("build") or {})
        return {"verdict": verdict.model_dump(mode="json"), "launches": []}

    serve_requests(judge, {"sandbox": grader.sandbox, "hardware": grader.facts.name}, grade)
