"""Worker client, in the caller's process: one thread's worker, compiler and builder, each started when first needed.

Talks to a worker (`kernels_eval.cpu.worker`, `kernels_eval.gpu.worker`) in frames: `evaluate` (problem, kernel,
config, build); the reply is `graded` (verdict, launches, kernel sources, work; on a GPU seconds), `reference_failed`,
`fault` or `bug` (message). Between `loading` and `loaded`, which may come before it, the problem's own code is loaded:
who ends then was ended by it.
"""

import hashlib
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from kernels_eval.backends import NOT_RUN, backend_named
from kernels_eval.compile.one_shot import COMPILE_TIMEOUT, Builder, CompileCache, Compiled, Compiler, usages_of
from kernels_eval.config import JudgeConfig
from kernels_eval.cost.hardware import HARDWARE
from kernels_eval.cost.launch import Launch
from kernels_eval.cost.limits import Exceeded, limit_of_code
from kernels_eval.cost.occupancy import Usage
from kernels_eval.cost.roofline import total_s
from kernels_eval.error_categories import ErrorCategory
from kernels_eval.errors import InfrastructureError
from kernels_eval.inspection.efficiency import counted_efficiency
from kernels_eval.inspection.figures import Work, figures_of
from kernels_eval.inspection.issues import find_issues
from kernels_eval.pool.builds_ahead import BuildsAhead, build
from kernels_eval.pool.job_queue import Job
from kernels_eval.pool.zygote import Zygotes
from kernels_eval.sandbox.fork_server import MAX_EXTENSION, ForkServer
from kernels_eval.sandbox.limits import Limits
from kernels_eval.sandbox.messages import ChannelClosedError, MalformedFrameError, has_news, receive_frame, send_frame
from kernels_eval.trace.schema import KernelSource
from kernels_eval.verdict import Status, Verdict, fault

_SPARE_S = 120.0
"""Time of a worker beyond the candidate's: building the reference, computing the expected outputs."""
WORKER_VERDICTS = 1000
"""Verdicts after which a worker is replaced: it grows by 6 KB with each (docs/judge.md). The new worker is forked from
the zygote and builds its references again; on a GPU it also makes a CUDA context."""

_ENDED_WORKER = (
    "the problem ends its process: its module, get_init_inputs, Model or get_inputs exits, crashes, or never returns"
)


class Judged(NamedTuple):
    """A verdict, and what it was made of: without a GPU, and if it is correct, the counted launches of a call."""

    verdict: Verdict
    launches: Sequence[Launch] = ()
    """In the configuration of autotuned kernels that the verdict states."""
    usages: Sequence[Usage | None] = ()
    """Resources of each of them, as far as it was compiled."""
    work: Work = Work()


class WorkerBugError(InfrastructureError):
    """The judge's own code failed in a worker, on what it was given: the machine is sound."""


class ProblemEndedWorkerError(InfrastructureError):
    """A worker ended while it loaded a problem. One that does so again and again is at fault itself."""


class WorkerClient:
    """One thread's worker process and compilers. Not for concurrent use."""

    def __init__(
        self,
        zygotes: Zygotes,
        cache: CompileCache,
        new_builder: Callable[[], Builder],
        config: JudgeConfig,
        ahead: BuildsAhead | None = None,
    ) -> None:
        """`new_builder`: makes what builds candidates before they run; `ahead`: what is built while they wait."""
        self._zygotes = zygotes
        self._config = config
        self._compiler = Compiler(lambda: ForkServer(zygotes.fork("compile")[1]), cache)
        self._builder = new_builder()
        self._ahead = ahead
        self._worker: socket.socket | None = None
        self._process = 0
        self._judged = 0
        """Verdicts of the current worker."""
        self.seconds: dict[str, dict[str, float]] = {}
        """Of the last verdict, if it was judged on a GPU: `phases` (gpu.timing.phases), and those for which it
        had the `device` or waited for it (kernels_eval.gpu.device.detection.DeviceLock)."""

    def judge(self, job: Job) -> Judged:
        """Judge one kernel. Raises InfrastructureError if a process died, hung, or did not start.

        It is a ProblemEndedWorkerError if the worker died or hung while it loaded the problem, and a WorkerBugError if
        an exception that nobody expected ended it.
        """
        self.seconds = {}
        on_gpu = job.config.device == "cuda"
        built = Compiled()
        backend = backend_named(job.config.backend)
        if backend.is_built(on_gpu):
            built = (None if self._ahead is None else self._ahead.outcome(job)) or build(self._builder, job)
            decided = build_verdict(built, on_gpu, backend.compiler)
            if decided is not None:
                return Judged(decided)
        cache = None if self._ahead is None else self._ahead.warmed(job)
        reply = self._ask(job, built, cache)
        if reply["kind"] == "reference_failed":
            return Judged(fault(ErrorCategory.REFERENCE_FAILED, reply["message"]))
        if reply["kind"] == "bug":
            raise WorkerBugError(str(reply["message"]))
        if reply["kind"] != "graded":
            raise InfrastructureError(str(reply.get("message", "the worker gave no verdict")))
        verdict = Verdict(**reply["verdict"])
        if on_gpu:  # it was compiled where it ran
            self.seconds = reply["seconds"]
            return Judged(verdict)
        judged = Judged(verdict, [Launch(**values) for values in reply["launches"]], work=Work(**reply["work"]))
        if _is_compiled(job, verdict):
            judged = self._compile(job.config, judged, reply)
        return _with_issues(job.config, judged)

    def _compile(self, config: JudgeConfig, judged: Judged, reply: dict[str, Any]) -> Judged:
        """Compile the interpreted kernels; adds their resources, or returns a compile error.

        Of the configurations of autotuned kernels all are compiled; the verdict states the fastest that a device can
        run.
        """
        verdict = judged.verdict
        kept = {"sandbox": verdict.sandbox, "seed_commitment": verdict.seed_commitment}
        exceeded: Verdict | None = None
        best: Judged | None = None
        for index, (kernels, launches) in enumerate(_to_compile(reply)):
            compiled = self._compiled(config, kernels, launches)
            if compiled.category == COMPILE_TIMEOUT and index:
                break  # the kernels of the verdict have compiled
            if compiled.category is not None:
                return Judged(_compile_error(compiled, verdict.hardware).model_copy(update=kept))
            limit = limit_of_code(compiled.resources)
            if limit is not None:  # autotuning skips such a configuration
                exceeded = exceeded or _cannot_run(limit, compiled, verdict.hardware).model_copy(update=kept)
                continue
            architecture = HARDWARE[config.roofline_hardware].architecture
            usages = usages_of(launches, compiled.resources, config.targets, architecture)
            times = _times(config, verdict, launches, usages)
            found = verdict.model_copy(update={"resources": compiled.resources, **times})
            if best is None or (found.speedup or 0) > (best.verdict.speedup or 0):
                best = Judged(found, launches, usages, judged.work)
        return best or (Judged(exceeded) if exceeded else judged)

    def _compiled(self, config: JudgeConfig, kernels: list[KernelSource], launches: list[Launch]) -> Compiled:
        own = [launch for launch in launches if launch.kernel_number >= 0]
        limits = Limits(wall_s=config.compile_timeout_s, memory_mb=config.memory_mb, computes=True)
        return self._compiler.compile(kernels, own, config.targets, limits)

    def _ask(self, job: Job, built: Compiled, cache: str | None) -> dict[str, Any]:
        config = job.config
        wall_s = (1 + MAX_EXTENSION) * (config.timeout_s + config.full_size_limit_s) + _SPARE_S
        if config.device == "cuda":
            wall_s += config.compile_timeout_s + config.timing_s + _SPARE_S
        if self._judged >= WORKER_VERDICTS:
            self.reset()
        if self._worker is None:
            self.start_worker()
        assert self._worker is not None
        self._judged += 1
        request = {
            "kind": "evaluate",
            "problem": job.problem.source,
            "kernel": job.kernel_source,
            "config": config.model_dump(mode="json"),
            "build": {
                "resources": [used.model_dump(mode="json") for used in built.resources],
                "libraries": built.libraries,
                "cache": cache,
            },
        }
        step = ""
        try:
            self._worker.settimeout(wall_s)
            send_frame(self._worker, request)
            while (reply := receive_frame(self._worker)[0])["kind"] in ("loading", "loaded"):
                step = reply["kind"]
            return reply
        except (ChannelClosedError, MalformedFrameError, TimeoutError) as error:
            if step == "loading":
                raise ProblemEndedWorkerError(_ENDED_WORKER) from error
            raise InfrastructureError("a judge worker died or hung") from error

    def start_worker(self) -> list[str]:
        """Fork a worker; returns the parts of its sandbox. Raises InfrastructureError if it does not start."""
        self._process, self._worker = self._zygotes.fork_worker(self._config.device)
        self._worker.settimeout(_SPARE_S)
        try:
            hello, _ = receive_frame(self._worker)
        except (ChannelClosedError, MalformedFrameError, TimeoutError) as error:
            raise InfrastructureError("a judge worker did not start") from error
        return hello["sandbox"]

    def drop_dead_worker(self) -> bool:
        """Give up a worker that died while it was idle; returns whether it had."""
        if self._worker is None or not has_news(self._worker):
            return False  # there is none yet, or it lives: it sends nothing unasked
        self.reset()
        return True

    def reset(self) -> None:
        """Give up the worker; the next job gets a new one."""
        if self._worker is not None:
            self._worker.close()
            self._zygotes.kill(self._process)
        self._worker = None
        self._judged = 0

    def close(self) -> None:
        """Close the worker, the compiler and the builder."""
        if self._worker is not None:
            self._worker.close()
        self._compiler.close()
        self._builder.close()


def build_verdict(built: Compiled, runs: bool, compiler: str = "nvcc") -> Verdict | None:
    """Return the verdict that building alone decides; None: the candidate is to be run.

    Without a GPU a candidate that was built gets `runtime_error` with the category `not_run_without_gpu`, `compiled`
    True and `correct` False: its results are not known, and the message says so. `compiled` is False too if its host
    code did not get as far as a kernel without a GPU.
    """
    if built.category == NOT_RUN:
        return Verdict(
            status=Status.RUNTIME_ERROR, error_category=NOT_RUN, error_message=built.message, hardware=compiler
        )
    if built.category is not None:
        return _compile_error(built, compiler)
    if runs:
        return None
    followed = "" if built.message is None else f"; the host code was followed up to {built.message}"
    targets = ", ".join(sorted({used.architecture for used in built.resources})) or "no target"
    return Verdict(
        status=Status.RUNTIME_ERROR,
        compiled=True,
        error_category=NOT_RUN,
        error_message=f"compiled for {targets}; not run: this machine has no GPU{followed}",
        resources=built.resources,
        hardware=compiler,
    )


def _with_issues(config: JudgeConfig, judged: Judged) -> Judged:
    """Return the same with efficiency and issues of a correct kernel in its verdict."""
    if not judged.verdict.correct or not judged.launches:
        return judged
    hardware = HARDWARE[config.roofline_hardware]
    figures = figures_of(judged.launches, judged.usages, judged.work, hardware)
    found = {"efficiency": counted_efficiency(figures, hardware), "issues": find_issues(figures, hardware)}
    return judged._replace(verdict=judged.verdict.model_copy(update=found))


def _to_compile(reply: dict[str, Any]) -> Iterator[tuple[list[KernelSource], list[Launch]]]:
    """Yield what was graded, then the other configurations of autotuned kernels: sources and launches."""
    for sources, launches in (
        ("kernels", [reply["launches"]]),
        ("alternative_kernels", reply["alternatives"]),
    ):
        kernels = [KernelSource(**values) for values in reply[sources]]
        for each in launches:
            yield kernels, [Launch(**values) for values in each]


def _compile_error(compiled: Compiled, hardware: str) -> Verdict:
    return Verdict(
        status=Status.COMPILE_ERROR,
        error_category=compiled.category,
        error_message=compiled.message,
        hardware=hardware,
    )


def _cannot_run(exceeded: Exceeded, compiled: Compiled, hardware: str) -> Verdict:
    return Verdict(
        status=Status.RUNTIME_ERROR,
        compiled=True,
        error_category=exceeded.category,
        error_message=exceeded.message,
        resources=compiled.resources,
        hardware=hardware,
    )


def _is_compiled(job: Job, verdict: Verdict) -> bool:
    """Return True if the settings have an interpreted kernel compiled."""
    config = job.config
    if config.compile == "never" or not config.targets:
        return False
    return config.compile == "always" or (verdict.correct and _is_drawn(job.kernel_source, config.compile_share))


def _is_drawn(kernel_source: str, share: float) -> bool:
    """Draw from the text itself: rewards are then the same in each run, and a policy cannot learn what is drawn."""
    digest = hashlib.sha256(f"compile\0{kernel_source}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:4], "big") < share * 2**32


def _times(
    config: JudgeConfig, verdict: Verdict, launches: list[Launch], usages: Sequence[Usage | None]
) -> dict[str, float]:
    """Return the estimate anew, with registers, shared memory and spills of the compiled kernels."""
    if verdict.reference_ms is None or verdict.candidate_ms is None:
        return {}
    candidate_ms = 1e3 * total_s(launches, HARDWARE[config.roofline_hardware], usages)
    return {"candidate_ms": candidate_ms, "speedup": verdict.reference_ms / candidate_ms}
