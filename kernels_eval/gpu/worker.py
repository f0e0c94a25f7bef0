"""GPU worker: grades one candidate after another for the judge's process, over a socket.

Forked from a zygote that has imported torch and triton and never touched CUDA. First it forks its fork server, whose
children each make their own CUDA context; only then does it make one itself. Requests and replies are those of
kernels_eval.cpu.worker.
"""

import socket
from typing import Any

import torch

from kernels_eval.config import JudgeConfig
from kernels_eval.cpu.worker import load_if_new, serve_requests, start_fork_server
from kernels_eval.gpu.candidate.process import SETUP, candidate_main
from kernels_eval.gpu.device.cuda_driver import CudaError
from kernels_eval.gpu.grader import Grader
from kernels_eval.sandbox.fork_server import ForkServer
from kernels_eval.sandbox.limits import die_with_parent


def serve_worker(judge: socket.socket) -> None:
    """Serve until the judge goes away."""
    fork_server = start_fork_server(candidate_main, [judge], may_fork=True, setup=SETUP)
    die_with_parent()
    grader = Grader(ForkServer(fork_server))
    grader.probe()

    def grade(request: dict[str, Any]) -> dict[str, Any]:
        config = JudgeConfig(**request["config"])
        grader.limit_memory(config)
        load_if_new(judge, grader, request["problem"], config)
        verdict = grader.grade(request["problem"], request["kernel"], config, request.get("build") or {})
        seconds = {"phases": grader.phases, "device": grader.device_s}
        return {"verdict": verdict.model_dump(mode="json"), "launches": [], "seconds": seconds}

    facts = {"sandbox": grader.sandbox, "hardware": grader.facts.name}
    serve_requests(judge, facts, grade, (CudaError, torch.AcceleratorError, torch.OutOfMemoryError))
