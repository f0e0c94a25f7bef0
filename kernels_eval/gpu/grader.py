"""Grader of a GPU worker: holds its CUDA context, references and shared memory, and grades candidates.

The overhead of a round is calibrated once for each problem. If the machine was busy just then, the clocks of honest
candidates seem to disagree. A measurement that fails is repeated once, with a fresh calibration. If it fails again,
that is a fault of the machine, never a verdict on the kernel.
"""

import os
import secrets
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from cachetools import LRUCache

from kernels_eval.config import JudgeConfig
from kernels_eval.errors import InfrastructureError
from kernels_eval.gpu import cuda_driver
from kernels_eval.gpu.candidate_run import JUDGE_WALL_S, MAX_REFERENCES, CandidateRun, WorkerState
from kernels_eval.gpu.cuda_driver import CudaDriver
from kernels_eval.gpu.device import GIB, DeviceLock, device_facts, share_of_memory
from kernels_eval.gpu.reference import GpuReference, release_unused_memory, set_precision
from kernels_eval.gpu.session import Session
from kernels_eval.gpu.shared_memory import HostTransport, IpcTransport
from kernels_eval.gpu.stopwatch import Stopwatch
from kernels_eval.gpu.timing import Measured, Timer, UnreliableTimingError
from kernels_eval.reference.inputs import SecretSeed
from kernels_eval.sandbox.child import CandidateFailedError
from kernels_eval.sandbox.fork_server import ForkServer
from kernels_eval.sandbox.limits import Limits
from kernels_eval.verdict import Verdict, fault

_LARGE_MODEL_BYTES = 256 << 20
"""A reference that takes more is dropped when another problem comes."""


class Grader:
    """Grades candidates in processes that its fork server forks. Creates this process's CUDA context."""

    def __init__(self, fork_server: ForkServer) -> None:
        set_precision()
        torch.zeros(1, device=cuda_driver.DEVICE)  # makes the CUDA context, which events need
        self._driver = CudaDriver()
        self._folder = Path(os.environ.get("TMPDIR", tempfile.gettempdir()))
        self._state = WorkerState(
            fork_server,
            os.memfd_create("device"),
            device_facts(),
            Timer(Stopwatch(self._driver), self._driver.synchronize),
            IpcTransport(self._driver),
            DeviceLock(self._folder / "device.lock"),
        )
        self.facts = self._state.facts
        self._weight_seed = secrets.randbits(48)
        self._references: LRUCache[str, GpuReference] = LRUCache(MAX_REFERENCES)
        self._is_limited = False
        self.last_measured: Measured | None = None

    def limit_memory(self, config: JudgeConfig) -> None:
        """Keep this worker within its share of the device's memory. Raises InfrastructureError if it is too little."""
        if not self._is_limited:
            free = self._driver.free_bytes()
            share = share_of_memory(self._folder, config.workers, config.device_memory_gb, free)
            self._state.memory_bytes = share
            total = torch.cuda.get_device_properties(0).total_memory
            torch.cuda.set_per_process_memory_fraction(min(1.0, share / total))
            self._is_limited = True

    @property
    def sandbox(self) -> list[str]:
        """Confinement in force for candidates, and the transport of tensors."""
        return [*self._state.fork_server.sandbox, self._state.transport.name]

    def use_host_copies(self) -> None:
        """Pass tensors through host memory: for machines on which device memory cannot be shared between processes."""
        self._state.transport = HostTransport(self._driver, self._state.descriptor)
        self._state.transport.memory(1 << 21)

    def probe(self) -> None:
        """Try if a candidate's process can map this worker's memory; use host copies if it cannot."""
        state = self._state
        state.transport.memory(1 << 21)
        scratch = tempfile.mkdtemp(dir=self._folder, prefix="candidate-")
        job = _job("", JudgeConfig(), {}, [], 0, scratch)
        limits = Limits(JUDGE_WALL_S, 1024, folder=scratch)
        try:
            with Session(state.fork_server, limits, state.descriptor) as session:
                session.start({**job, "memory": state.transport.mapping()})
                session.load()
        except CandidateFailedError:
            return  # the empty source has no model: the memory was mapped before
        except InfrastructureError:
            self.use_host_copies()
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def grade(self, problem_source: str, kernel_source: str, config: JudgeConfig, build: dict[str, Any]) -> Verdict:
        """Grade one candidate. Raises ReferenceFailedError if the problem itself fails."""
        reference = self._reference(problem_source)
        unreliable: UnreliableTimingError | None = None
        try:
            for _ in range(2):
                try:
                    return self._grade_once(reference, kernel_source, config, build)
                except UnreliableTimingError as error:
                    unreliable = error
                    self._state.calibrations.pop(reference.digest, None)
        except torch.cuda.OutOfMemoryError as error:
            share = self._state.memory_bytes / GIB
            first = str(error).split(".")[0]
            message = f"the problem does not fit into this worker's {share:.1f} GiB (judge.device_memory_gb): {first}"
            return fault("reference_failed", message)
        assert unreliable is not None
        return fault(unreliable.category, str(unreliable))

    def _reference(self, source: str) -> GpuReference:
        """Return the reference of a problem; drops others that take much memory."""
        known = self._references.get(source)
        if known is None:
            for other, reference in list(self._references.items()):
                if reference.device_bytes > _LARGE_MODEL_BYTES:
                    del self._references[other]
            release_unused_memory()
            known = self._references[source] = GpuReference(source, self._weight_seed)
        return known

    def _grade_once(
        self, reference: GpuReference, kernel_source: str, config: JudgeConfig, build: dict[str, Any]
    ) -> Verdict:
        seed = SecretSeed(secrets.token_bytes(16))
        scratch = tempfile.mkdtemp(dir=self._folder, prefix="candidate-")
        try:
            job = _job(kernel_source, config, build, reference.arguments, reference.weight_seed, scratch)
            run = CandidateRun(self._state, reference, config, seed, job)
            verdict = run.verdict()
            self.last_measured = run.measured
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
            release_unused_memory()
        return verdict.model_copy(
            update={
                "hardware": self.facts.name,
                "sandbox": ",".join(self.sandbox),
                "seed_commitment": seed.commitment,
            }
        )


def _job(
    source: str, config: JudgeConfig, build: dict[str, Any], arguments: list[Any], weight_seed: int, scratch: str
) -> dict[str, Any]:
    """Return the job for a candidate's process, without the mapping of the shared memory."""
    return {
        "source": source,
        "backend": config.backend,
        "build": build,
        "arguments": arguments,
        "weight_seed": weight_seed,
        "strict": config.policy == "strict",
        "scratch": scratch,
    }
