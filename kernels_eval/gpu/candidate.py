"""The candidate's process on a GPU: loads the candidate, makes the calls it is asked for, reports what was observed.

Warmed while it is still spare, before it is handed a job: a CUDA context, the events and the flush buffer of the stopwatch, the
profiler. Then one session (frames, see kernels_eval.sandbox.ipc). Judge: `load` (payload: pickled job, from the judge to us only).
Candidate: `awake`. Judge: any number of `round` with kernels of ours (`stand_ins`), by which it learns what a round takes beside
the calls; then `begin`, upon which the source is executed. Candidate: `ready` or `failed`. Judge: `weights`, then any number of `round` (calls: where the inputs lie in the shared device
memory and where the outputs go; whether to time, profile or suppress kernels). Candidate: `round` or `failed`. Nothing of the
reference, the input seeds or the verdict is ever in this process.
"""

import gc
import os
import pickle
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from kernels_eval.backends import Backend, backend_named
from kernels_eval.correctness.allowed_operators import refuse_host_copies
from kernels_eval.gpu import cuda_driver
from kernels_eval.gpu.cuda_driver import CudaDriver
from kernels_eval.gpu.operator_guard import DevicePolicy
from kernels_eval.gpu.profiler import Profiler
from kernels_eval.gpu.rounds import Rounds, StandIns
from kernels_eval.gpu.shared_memory import MappedMemory
from kernels_eval.gpu.stopwatch import Stopwatch
from kernels_eval.sandbox.candidate_source import CandidateError, describe, load_source
from kernels_eval.sandbox.ipc import ChannelClosedError, receive_frame, send_frame
from kernels_eval.sandbox.tensor_bytes import NAMES, TensorForm, tensor_from

_MAX_THREADS = 100_000
_MAX_PLACES = 6


class Warm:
    """What a spare process has ready."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        torch.cuda.init()
        torch.zeros(1, device=cuda_driver.DEVICE)
        self.driver = CudaDriver()
        self.stopwatch = Stopwatch(self.driver)
        self.profiler = Profiler(self.stopwatch.flush)
        if os.environ.get("KERNELS_EVAL_WARM_PROFILER", "1") == "1":
            self.profiler.warm_up()
        self._load_launcher()

    def _load_launcher(self) -> None:
        """Load Triton's own library for the device, which it builds once and finds in the shared cache afterwards."""
        from triton.runtime import driver

        active: Any = driver.active
        active.get_current_device()
        active.get_current_target()
        _ = active.utils


_warm: list[Warm | Exception] = []


def warm_up() -> None:
    """Make this process ready for a job. A failure is told once the job is there: before, nobody listens."""
    try:
        _warm.append(Warm())
    except Exception as error:  # noqa: BLE001 (whatever it is, it is told)
        _warm.append(error)


def _warmed() -> Warm:
    """What this process has ready; raises what stopped it from being made."""
    if not _warm:
        warm_up()
    if isinstance(_warm[0], Exception):
        raise _warm[0]
    return _warm[0]


def _with_places(error: Exception) -> str:
    """Say what failed in code of ours, or of a library that we called, and where: innermost first."""
    frames = reversed(traceback.extract_tb(error.__traceback__)[-_MAX_PLACES:])
    return f"{describe(error)} ({', '.join(f'{Path(frame.filename).name}:{frame.lineno}' for frame in frames)})"


def device_candidate_main(channel: socket.socket, memory_descriptor: int) -> None:
    """Run one candidate; returns when the judge hangs up."""
    channel.settimeout(None)
    gc.set_threshold(50_000)
    try:
        _Session(channel).serve(memory_descriptor)
    except CandidateError as failed:
        send_frame(channel, failed.header)
    except ChannelClosedError:
        return


class _Session:
    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._frames: Callable[[], Any] = sys._current_frames  # pyright: ignore[reportPrivateUsage]

    def serve(self, memory_descriptor: int) -> None:
        _, payload = receive_frame(self._channel)
        try:
            self._warm = _warmed()
            self._threads = len(self._frames())
            job: dict[str, Any] = pickle.loads(payload)
            _use_cache_folder(job["scratch"])
            memory = MappedMemory(self._warm.driver, job["memory"], memory_descriptor)
            backend = backend_named(job["backend"])
            backend.install(job["build"])
        # Nothing of the candidate has run: the judge takes it for a fault of the machine.
        except Exception as error:
            raise CandidateError("runtime_error", "judge_fault", _with_places(error)) from error
        policy = DevicePolicy(enforce=job["strict"])
        torch.set_grad_enabled(False)
        send_frame(self._channel, {"kind": "awake"})
        while (header := receive_frame(self._channel)[0])["kind"] == "round":
            stand_ins = StandIns([TensorForm(**form) for form in header["stand_ins"]])
            policy_of_ours = DevicePolicy(enforce=False)
            self._answer(self._rounds(memory, stand_ins, policy_of_ours, backend, None), header)
        module = load_source(job["source"])
        model = _build(module, job["arguments"], job["weight_seed"])
        if job["strict"]:
            refuse_host_copies(policy.violations.append)
        state = _state(model)
        named = {name: [NAMES.get(tensor.dtype, "?"), list(tensor.shape)] for name, tensor in state.items()}
        send_frame(self._channel, {"kind": "ready", "state": named})
        header, payload = receive_frame(self._channel)
        for item in header["weights"]:
            state[item["name"]].copy_(tensor_from(payload, TensorForm(**item["form"]), item["offset"]))
        rounds = self._rounds(memory, model, policy, backend, module)
        while True:
            header, _ = receive_frame(self._channel)
            self._answer(rounds, header)

    def _rounds(self, memory: MappedMemory, model: Any, policy: DevicePolicy, backend: Backend, module: Any) -> Rounds:
        return Rounds(self._warm.stopwatch, self._warm.profiler, memory, model, policy, backend, module)

    def _answer(self, rounds: Rounds, header: dict[str, Any]) -> None:
        """Make one round, at the judge's word."""
        rounds.prepare(header)
        send_frame(self._channel, {"kind": "prepared"})
        receive_frame(self._channel)
        answer = rounds.run(lambda: send_frame(self._channel, {"kind": "done"}))
        answer["threads"] = min(_MAX_THREADS, 1 + len(self._frames()) - self._threads)
        send_frame(self._channel, answer)


def _use_cache_folder(scratch: str) -> None:
    """Compile into a folder of this candidate's own: what it puts there is never loaded for another."""
    folder = Path(scratch) / "triton"
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["TRITON_CACHE_DIR"] = str(folder)
    os.environ["TMPDIR"] = scratch
    os.environ["TORCH_EXTENSIONS_DIR"] = str(Path(scratch) / "extensions")


def _build(module: Any, arguments: list[Any], weight_seed: int) -> Any:
    model_class = getattr(module, "ModelNew", None)
    if not isinstance(model_class, type):
        raise CandidateError("compile_error", "missing_model", "the source defines no class ModelNew")
    torch.manual_seed(weight_seed)
    try:
        model: Any = model_class(*arguments)
        return model.to(cuda_driver.DEVICE) if isinstance(model, torch.nn.Module) else model
    except CandidateError:
        raise
    except BaseException as error:
        raise CandidateError("runtime_error", "constructor_error", describe(error)) from error


def _state(model: Any) -> dict[str, torch.Tensor]:
    if not isinstance(model, torch.nn.Module):
        return {}
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}
