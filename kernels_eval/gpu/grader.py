"""Grader of a GPU worker: holds its CUDA context, references and shared memory, and grades candidates.

A measurement that fails is repeated once, in another process, after everything was measured anew that it relies on. If
it fails again, and not for a reference that is as slow without the candidate, the candidate is refused: else one could
choose to have no verdict.
"""

import contextlib
import gc
import os
import secrets
import tempfile
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from cachetools import LRUCache

from kernels_eval.config import JudgeConfig
from kernels_eval.error_categories import ErrorCategory
from kernels_eval.errors import InfrastructureError
from kernels_eval.gpu.candidate.session import JUDGE_WALL_S, Session
from kernels_eval.gpu.candidate_run import CandidateRun
from kernels_eval.gpu.device import cuda_driver
from kernels_eval.gpu.device.cuda_driver import CudaDriver
from kernels_eval.gpu.device.detection import DeviceLock, device_facts, measured_bytes_per_s, share_of_memory
from kernels_eval.gpu.device.gate import Gate, GatePage, new_page
from kernels_eval.gpu.device.precision import set_precision
from kernels_eval.gpu.device.shared_memory import MIN_BYTES, HostTransport, IpcTransport
from kernels_eval.gpu.device.worker_memory import keep_within, release_unused_memory
from kernels_eval.gpu.reference import GpuReference
from kernels_eval.gpu.timing.phases import Phase, Phases
from kernels_eval.gpu.timing.reference_timer import ReferenceTimer
from kernels_eval.gpu.timing.timer import Measured, UnreliableTimingError
from kernels_eval.gpu.worker_state import MAX_REFERENCES, WorkerState
from kernels_eval.reference.inputs import SecretSeed, seed_cpu_and_gpu
from kernels_eval.reference.loading import load_within_limits
from kernels_eval.reference.reference import Reference
from kernels_eval.reference.settings import set_settings
from kernels_eval.sandbox.child import CandidateFailedError
from kernels_eval.sandbox.folders import remove_folder
from kernels_eval.sandbox.fork_server import ForkServer
from kernels_eval.sandbox.limits import Limits
from kernels_eval.verdict import Status, Verdict, fault

_UNLIMITED = 1 << 50
_BLAMED = {ErrorCategory.SLOWED_REFERENCE: ErrorCategory.BUSY_DEVICE}
"""Categories of a verdict on a kernel, by that of a measurement that failed twice because of it."""
_SCARCE_BYTES, _MOST_HELD_BYTES = 1 << 30, 4 << 30
"""Free memory that is little, and what a candidate's process may hold then: its context, and copies of a call."""
_MODELS_SHARE = 0.1
"""Share of a worker's memory for the models of problems that come back; of more, those that were used last stay."""


def took_memory(held: int, left: int, share: int) -> bool:
    """True if a candidate's process, and not its problem, is why memory did not suffice; all in bytes.

    `held`: by its process, as other workers' memory allows to say; `left`: free on the device meanwhile; `share`: the
    worker's. PyTorch gives back what it kept before it fails, so that some GiB can be left: then the process must have
    held as much as a half of the share. Before a candidate starts a problem was refused whose calls leave it less
    (CandidateStart).
    """
    if held < min(share, _MOST_HELD_BYTES) or left >= share:
        return False
    return left <= _SCARCE_BYTES or held >= share // 2


class Grader:
    """Grades candidates in processes that its fork server forks. Creates this process's CUDA context."""

    def __init__(self, fork_server: ForkServer) -> None:
        set_precision()
        torch.zeros(1, device=cuda_driver.DEVICE)  # makes the CUDA context, which events need
        seed_cpu_and_gpu()
        self._driver = CudaDriver()
        self._folder = Path(os.environ.get("TMPDIR", tempfile.gettempdir()))
        descriptor = new_page()
        page = GatePage(descriptor)
        self._state = WorkerState(
            fork_server,
            descriptor,
            device_facts(),
            IpcTransport(self._driver),
            DeviceLock(self._folder, self._driver.synchronize),
            page,
            ReferenceTimer(self._driver, None),
            _UNLIMITED,
            self._driver.free_bytes,
        )
        self.facts = self._state.facts
        weight_seed = secrets.randbits(48)
        self._new_reference = lambda source: GpuReference(source, weight_seed)
        self._references: LRUCache[str, GpuReference] = LRUCache(MAX_REFERENCES)
        self.last_measured: Measured | None = None
        self._run: CandidateRun | None = None
        """The last one, until it is decided."""
        self._device_s_before = self._state.lock.seconds.copy()

    def limit_memory(self, config: JudgeConfig) -> None:
        """Keep this worker within its share of the device's memory. Raises InfrastructureError if it is too little."""
        if self._state.memory_bytes == _UNLIMITED:
            free = self._driver.free_bytes()
            share = share_of_memory(self._folder, config.workers, config.device_memory_gb, free)
            self._state.memory_bytes = share
            keep_within(share)

    @property
    def sandbox(self) -> list[str]:
        """Confinement in force for candidates, and the transport of tensors."""
        return [*self._state.fork_server.sandbox, self._state.transport.name]

    def use_host_copies(self) -> None:
        """Pass tensors through host memory: for machines on which device memory cannot be shared between processes."""
        self._state.transport = HostTransport(self._driver, self._state.descriptor)
        self._state.transport.reserve(MIN_BYTES)

    def probe(self) -> None:
        """Try if a candidate's process can map this worker's memory; use host copies if it cannot."""
        state = self._state
        state.transport.reserve(MIN_BYTES)
        scratch = tempfile.mkdtemp(dir=self._folder, prefix="candidate-")
        job = _job("", JudgeConfig(), {}, None, scratch)
        limits = Limits(JUDGE_WALL_S, 1024, folder=scratch)
        try:
            with Session(state.fork_server, limits, state.descriptor, state.page) as session:
                state.leftovers.append(session.wait_until_ended)
                session.start({**job, "memory": state.transport.mapping(), "device_bytes": state.memory_bytes})
                session.load()
        except CandidateFailedError:  # the empty source has no model: the memory was mapped before
            own_page = GatePage(new_page())
            own_gate = Gate(self._driver, own_page)
            state.reference_timer = ReferenceTimer(self._driver, own_gate)
            state.can_hold = own_gate.can_hold()
            with state.lock.alone(), contextlib.suppress(torch.cuda.OutOfMemoryError):
                self.facts = state.facts = replace(state.facts, measured_bytes_per_s=measured_bytes_per_s())
        except InfrastructureError:
            self.use_host_copies()
        finally:
            state.settle()
            remove_folder(scratch)

    def has_loaded(self, problem_source: str) -> bool:
        """Return True if a problem's reference is held."""
        return problem_source in self._references

    def load(self, problem_source: str, config: JudgeConfig) -> None:
        """Load a problem within limits. Raises ReferenceFailedError if it fails, or takes too long or too much."""
        load_within_limits(lambda: self._reference(problem_source), config)

    def grade(self, problem_source: str, kernel_source: str, config: JudgeConfig, build: dict[str, Any]) -> Verdict:
        """Grade one candidate. Raises ReferenceFailedError if the problem itself fails."""
        self._state.phases = Phases()
        self._device_s_before = self._state.lock.seconds.copy()
        try:
            return self._grade(problem_source, kernel_source, config, build)
        finally:
            self._state.phases.ended(Phase.END)

    @property
    def phases(self) -> dict[str, float]:
        """Seconds of the last verdict by phase."""
        return self._state.phases.seconds

    @property
    def device_s(self) -> dict[str, float]:
        """Seconds for which the last verdict had the device, or waited for it (kernels_eval.gpu.device.DeviceLock)."""
        return {name: spent_s - self._device_s_before[name] for name, spent_s in self._state.lock.seconds.items()}

    def _grade(self, problem_source: str, kernel_source: str, config: JudgeConfig, build: dict[str, Any]) -> Verdict:
        failed: Verdict | None = None
        for is_last in (False, True):
            try:
                reference = self._reference(problem_source)
                return self._grade_once(reference, kernel_source, config, build, is_last)
            except UnreliableTimingError as error:
                self._state.overheads.clear()
                failed = fault(error.category, str(error))
                if is_last and self._is_blamed(error):
                    category = _BLAMED.get(error.category, error.category)
                    failed = CandidateFailedError(Status.REJECTED, category, str(error)).verdict(True)
            except torch.cuda.OutOfMemoryError as error:
                self._state.settle()  # a process that has yet to end may hold what was missing
                failed = self._held_too_much() or fault(ErrorCategory.REFERENCE_FAILED, self._too_large(error))
                if not failed.is_fault:
                    is_last = True
                self._state.transport.release()  # an earlier problem may have left it larger than this one needs
                for other in [source for source in self._references if source != problem_source]:
                    del self._references[other]
            gc.collect()  # after the handler: the error holds tensors of the frames that it passed
            torch.cuda.empty_cache()
            if is_last:
                break
        assert failed is not None
        return failed

    def _is_blamed(self, error: UnreliableTimingError) -> bool:
        """True if a measurement failed twice because of the candidate.

        Its clocks were set again before the candidate was loaded; what the reference takes is taken once more.
        """
        self._state.settle()
        run, self._run = self._run, None
        return run is not None and run.is_blamed(error)

    def _held_too_much(self) -> Verdict | None:
        """Return the verdict on a candidate whose process, now ended, took the memory that was missing."""
        before, self._state.free_at_fault = self._state.free_at_fault, None
        held = 0 if before is None else self._state.free_bytes() - before
        if before is None or not took_memory(held, before, self._state.memory_bytes):
            return None
        message = f"the process held {held / 2**30:.1f} GiB of the device's memory, and left {before / 2**30:.1f}"
        return CandidateFailedError(Status.RUNTIME_ERROR, ErrorCategory.OUT_OF_MEMORY, message).verdict(True)

    def _too_large(self, error: Exception) -> str:
        share, free = self._state.memory_bytes / 2**30, self._driver.free_bytes() / 2**30
        first = ". ".join(str(error).split(". ")[:2])
        frames = traceback.extract_tb(error.__traceback__)
        named = [frame.name for frame in frames if "kernels_eval" in frame.filename and frame.name != "<lambda>"]
        where = " > ".join(named[-4:])
        return (
            f"the problem does not fit into this worker's {share:.1f} GiB (judge.device_memory_gb), with {free:.1f} "
            f"GiB of the device free, in {where}: {first}"
        )

    def _reference(self, source: str) -> GpuReference:
        """Return the reference of a problem; drops others that take much memory."""
        known = self._references.get(source)
        if known is None:
            room = _MODELS_SHARE * self._state.memory_bytes
            while self._references and sum(each.device_bytes for each in self._references.values()) > room:
                self._references.popitem()
            release_unused_memory()
            known = self._references[source] = self._new_reference(source)
        set_settings(known.settings)
        return known

    def _grade_once(
        self,
        reference: GpuReference,
        kernel_source: str,
        config: JudgeConfig,
        build: dict[str, Any],
        is_repeated: bool,
    ) -> Verdict:
        seed = SecretSeed(secrets.token_bytes(16))
        scratch = tempfile.mkdtemp(dir=self._folder, prefix="candidate-")
        try:
            job = _job(kernel_source, config, build, reference, scratch)
            run = self._run = CandidateRun(self._state, reference, config, seed, job, is_repeated)
            verdict = run.verdict()
            self.last_measured = run.measured
            self._run = None
        finally:
            self._state.leftovers.append(lambda: remove_folder(scratch))
            release_unused_memory()
        return verdict.model_copy(
            update={
                "hardware": self.facts.name,
                "sandbox": ",".join(self.sandbox),
                "seed_commitment": seed.commitment,
            }
        )


def _job(
    source: str, config: JudgeConfig, build: dict[str, Any], reference: Reference | None, scratch: str
) -> dict[str, Any]:
    """Return the job for a candidate's process, without the mapping of the shared memory.

    `reference`: None for a process that runs no candidate.
    """
    return {
        "source": source,
        "backend": config.backend,
        "build": build,
        "arguments": reference.arguments if reference else [],
        "weight_seed": reference.weight_seed if reference else 0,
        "nesting": reference.nesting if reference else None,
        "strict": config.policy == "strict",
        "scratch": scratch,
    }
