"""What one thread of the judge works with: a worker process, and what compiles and builds for it; all started when first needed."""

import socket
from typing import Any

from kernels_eval.backends import backend_named
from kernels_eval.compile.compiler import CompileCache, Compiler
from kernels_eval.config import JudgeConfig
from kernels_eval.cost.launch import Launch
from kernels_eval.errors import InfrastructureError
from kernels_eval.pool.builder import BuildCache, Builder, Built, verdict_of
from kernels_eval.pool.job_queue import Job
from kernels_eval.pool.zygotes import Zygotes
from kernels_eval.sandbox.fork_server import MAX_EXTENSION, ForkServer
from kernels_eval.sandbox.ipc import ChannelClosedError, MalformedFrameError, has_news, receive_frame, send_frame
from kernels_eval.sandbox.limits import Limits
from kernels_eval.trace.schema import KernelSource
from kernels_eval.verdict import Status, Verdict

_SPARE_S = 120.0
"""What a worker may take beyond the candidate's own time (building the reference, running the oracle)."""
_BUILD_FACTOR = 4
"""Building a PyTorch extension takes this much longer than compiling a kernel."""
_LIBRARY_PREFIX = "aten."
WORKER_VERDICTS = 1000
"""After so many verdicts a worker is replaced: it grows by 6 KB with each (docs/judge.md). A new one is forked from a warm process and builds its
references again; on a GPU it also makes a CUDA context."""


class WorkerClient:
    """What one thread judges with: a worker process and a compiler."""

    def __init__(
        self, zygotes: Zygotes, compile_cache: CompileCache, build_cache: BuildCache, config: JudgeConfig
    ) -> None:
        self._zygotes = zygotes
        self._config = config
        self._compiler = Compiler(self._new_compile_fork_server, compile_cache)
        self._builder = Builder(self._new_build_fork_server, build_cache)
        self._worker: socket.socket | None = None
        self._process = 0
        self._judged = 0
        """Verdicts that the worker has given."""

    def judge(self, job: Job) -> Verdict:
        """Return the verdict on one kernel. InfrastructureError: a process died, hung, or could not be had."""
        config = job.config
        on_gpu = config.device == "cuda"
        outcome: dict[str, Any] = {}
        if backend_named(config.backend).builds:
            built = self._build(job, on_gpu)
            decided = verdict_of(built, on_gpu)
            if decided is not None:
                return decided
            outcome = built.outcome
        reply = self._ask(job, outcome)
        if reply["kind"] == "reference_failed":
            return fault("reference_failed", reply["message"])
        if reply["kind"] != "graded":
            raise InfrastructureError(str(reply.get("message", "the worker gave no verdict")))
        verdict = Verdict(**reply["verdict"])
        if config.compile == "never" or not config.targets or (config.compile == "correct" and not verdict.correct):
            return verdict
        if on_gpu:  # compiled where it ran
            return verdict
        launches = [Launch(**values) for values in reply["launches"]]
        launches = [launch for launch in launches if not launch.kernel.startswith(_LIBRARY_PREFIX)]
        kernels = [KernelSource(**values) for values in reply["kernels"]]
        limits = Limits(wall_s=config.compile_timeout_s, memory_mb=config.memory_mb)
        compiled = self._compiler.compile(kernels, launches, config.targets, limits)
        if compiled.category is None:
            return verdict.model_copy(update={"resources": compiled.resources})
        return Verdict(
            status=Status.COMPILE_ERROR,
            error_category=compiled.category,
            error_message=compiled.message,
            hardware=verdict.hardware,
            sandbox=verdict.sandbox,
            seed_commitment=verdict.seed_commitment,
        )

    def _build(self, job: Job, on_gpu: bool) -> Built:
        config = job.config
        limits = Limits(wall_s=_BUILD_FACTOR * config.compile_timeout_s, memory_mb=4 * config.memory_mb)
        source, problem = job.kernel_source, job.problem.source
        return self._builder.build(config.backend, source, problem, config.targets, on_gpu, limits)

    def _ask(self, job: Job, outcome: dict[str, Any]) -> dict[str, Any]:
        config = job.config
        wall_s = (1 + MAX_EXTENSION) * config.timeout_s + _SPARE_S
        if config.device == "cuda":
            wall_s += config.compile_timeout_s + config.timing_s + _SPARE_S
        if self._judged >= WORKER_VERDICTS:
            self.reset()
        if self._worker is None:
            self.start_worker()
        assert self._worker is not None
        self._judged += 1
        try:
            self._worker.settimeout(wall_s)
            send_frame(
                self._worker,
                {
                    "kind": "evaluate",
                    "problem": job.problem.source,
                    "kernel": job.kernel_source,
                    "config": job.config.model_dump(mode="json"),
                    "build": outcome,
                },
            )
            return receive_frame(self._worker)[0]
        except (ChannelClosedError, MalformedFrameError, TimeoutError) as error:
            raise InfrastructureError("a judge worker died or hung") from error

    def start_worker(self) -> list[str]:
        """Have a worker forked; returns what keeps candidates in there. InfrastructureError: it cannot be had."""
        self._process, self._worker = self._zygotes.judging(self._config.device).fork()
        self._worker.settimeout(_SPARE_S)
        try:
            hello, _ = receive_frame(self._worker)
        except (ChannelClosedError, MalformedFrameError, TimeoutError) as error:
            raise InfrastructureError("a judge worker did not start") from error
        return hello["sandbox"]

    def _new_build_fork_server(self) -> ForkServer:
        return ForkServer(self._zygotes.building().fork()[1])

    def _new_compile_fork_server(self) -> ForkServer:
        return ForkServer(self._zygotes.compiling().fork()[1])

    def drop_dead_worker(self) -> bool:
        """Give a worker up that died while it had nothing to do; True where it had."""
        if self._worker is None or not has_news(self._worker):
            return False  # none yet; or it lives: it says nothing unasked
        self.reset()
        return True

    def reset(self) -> None:
        """Give the worker up; the next job gets a new one."""
        if self._worker is not None:
            self._worker.close()
            self._zygotes.kill(self._process)
        self._worker = None
        self._judged = 0

    def close(self) -> None:
        """Let both processes go."""
        if self._worker is not None:
            self._worker.close()
        self._compiler.close()
        self._builder.close()


def fault(category: str, message: str) -> Verdict:
    """Return the verdict that says nothing of the kernel."""
    return Verdict(status=Status.INFRASTRUCTURE_ERROR, error_category=category, error_message=message)
