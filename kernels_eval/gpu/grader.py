"""A worker's side of a GPU: its CUDA context, its references, its way of sharing memory with candidates, and a candidate's second try.

What a round takes beside its calls is rehearsed once for each problem. Where the machine was busy just then, honest candidates'
clocks seem to disagree; so that is never a verdict before it was rehearsed again, and the candidate judged once more.
"""

import os
import secrets
import shutil
import tempfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch

from kernels_eval.config import JudgeConfig
from kernels_eval.errors import InfrastructureError
from kernels_eval.gpu import cuda_driver
from kernels_eval.gpu.candidate_run import MAX_REFERENCES, SPARE_WALL_S, CandidateRun, Device
from kernels_eval.gpu.cuda_driver import CudaDriver
from kernels_eval.gpu.hardware import device_facts
from kernels_eval.gpu.lock import DeviceLock
from kernels_eval.gpu.reference import DeviceReference, set_precision
from kernels_eval.gpu.session import DeviceSession, anonymous_file
from kernels_eval.gpu.shared_memory import HostTransport, IpcTransport
from kernels_eval.gpu.stopwatch import Stopwatch
from kernels_eval.gpu.timing import Measured, Timer
from kernels_eval.reference.inputs import SecretSeed
from kernels_eval.sandbox.child import CandidateFailedError
from kernels_eval.sandbox.fork_server import ForkServer
from kernels_eval.sandbox.limits import Limits
from kernels_eval.verdict import Verdict


class DeviceGrader:
    """Holds the references of one worker and grades candidates that its fork server bears. Creates this process's CUDA context."""

    def __init__(self, fork_server: ForkServer) -> None:
        set_precision()
        torch.zeros(1, device=cuda_driver.DEVICE)  # makes the CUDA context, without which the driver gives no events
        self._driver = CudaDriver()
        self._folder = Path(os.environ.get("TMPDIR", tempfile.gettempdir()))
        self._device = Device(
            fork_server,
            anonymous_file(),
            device_facts(),
            Timer(Stopwatch(self._driver), self._driver.synchronize),
            IpcTransport(self._driver),
            DeviceLock(self._folder / "device.lock"),
        )
        self.facts = self._device.facts
        self._references: OrderedDict[str, DeviceReference] = OrderedDict()
        self._weight_seed = secrets.randbits(48)
        self.last_measured: Measured | None = None

    @property
    def sandbox(self) -> list[str]:
        """What keeps candidates in, and how tensors pass."""
        return [*self._device.fork_server.sandbox, self._device.transport.name]

    def use_host_copies(self) -> None:
        """Pass tensors through host memory: for machines on which device memory cannot be shared between processes."""
        self._device.transport = HostTransport(self._driver, self._device.descriptor)
        self._device.transport.memory(1 << 21)

    def probe(self) -> None:
        """Find out whether a candidate's process can map the judge's memory; use host copies where it cannot."""
        device = self._device
        device.transport.memory(1 << 21)
        job = _job("", JudgeConfig(), {}, [], 0, str(self._folder))
        try:
            with DeviceSession(device.fork_server, Limits(SPARE_WALL_S, 1024), device.descriptor) as session:
                session.wake({**job, "memory": device.transport.ticket()})
                session.begin()
        except CandidateFailedError:
            return  # it has no model: it got as far as being loaded
        except InfrastructureError:
            self.use_host_copies()

    def grade(self, problem_source: str, kernel_source: str, config: JudgeConfig, build: dict[str, Any]) -> Verdict:
        """Grade one candidate. Raises ReferenceFailedError where the problem itself is at fault."""
        reference = self._reference(problem_source)
        verdict = self._grade_once(reference, kernel_source, config, build)
        if verdict.rejection_reason == "clock_disagreement":
            self._device.rehearsed.pop(reference.digest, None)
            verdict = self._grade_once(reference, kernel_source, config, build)
        return verdict

    def _grade_once(
        self, reference: DeviceReference, kernel_source: str, config: JudgeConfig, build: dict[str, Any]
    ) -> Verdict:
        seed = SecretSeed(secrets.token_bytes(16))
        scratch = tempfile.mkdtemp(dir=self._folder, prefix="candidate-")
        try:
            job = _job(kernel_source, config, build, reference.arguments, reference.weight_seed, scratch)
            run = CandidateRun(self._device, reference, config, seed, job)
            verdict = run.verdict()
            self.last_measured = run.measured
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return verdict.model_copy(
            update={
                "hardware": self.facts.name,
                "sandbox": ",".join(self.sandbox),
                "seed_commitment": seed.commitment,
            }
        )

    def _reference(self, source: str) -> DeviceReference:
        reference = self._references.pop(source, None) or DeviceReference(source, self._weight_seed)
        self._references[source] = reference
        if len(self._references) > MAX_REFERENCES:
            self._references.popitem(last=False)
        return reference


def _job(
    source: str, config: JudgeConfig, build: dict[str, Any], arguments: list[Any], weight_seed: int, scratch: str
) -> dict[str, Any]:
    """Return what a candidate's process is told, but for the memory that it shares with the judge."""
    return {
        "source": source,
        "backend": config.backend,
        "build": build,
        "arguments": arguments,
        "weight_seed": weight_seed,
        "strict": config.policy == "strict",
        "scratch": scratch,
    }
