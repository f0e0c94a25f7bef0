"""Candidate's process on a GPU: loads the candidate and makes the rounds of calls that the judge's worker asks for.

Forked by the worker's fork server; `warm_up_child` has run in it while it was a spare. One session, in frames of
kernels_eval.sandbox.messages, with kernels_eval.gpu.candidate.session:

    worker `start` (payload: pickled job)         candidate `started`   no code of the candidate has run yet
    worker `round`, any number, without calls     candidate as below    measures the overhead of a round
    worker `load`                                 candidate `ready`     the source is executed, the model built
    worker `weights`, any number                  candidate `taken`     pieces of weights lie in the shared memory; they
                                                                        may come again between rounds
    worker `round`, any number                    candidate `prepared`; worker `go`, or it opens the gate;
                                                  candidate `launched` if it is asked to tell, `done`, `round`

`failed` takes the place of any answer and ends the session. A round tells at which offsets of the shared device memory
inputs and outputs lie, and if the calls are to be profiled or the candidate's kernels suppressed. Nothing of the
reference, the input seeds or the verdict is ever in this process.
"""

import os
import pickle
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from kernels_eval.backends import backend_named
from kernels_eval.correctness.composed_operators import remember_registrations
from kernels_eval.correctness.made_of_weights import MadeOfWeights
from kernels_eval.error_categories import ErrorCategory
from kernels_eval.gpu.candidate.held_weights import HeldWeights
from kernels_eval.gpu.candidate.limits import confine_child, confine_fork_server
from kernels_eval.gpu.candidate.operator_guard import OperatorGuard, refuse_host_copies
from kernels_eval.gpu.candidate.rounds import Rounds, device_failure
from kernels_eval.gpu.candidate.shared_weights import WeightTaker
from kernels_eval.gpu.candidate.warm_up import instruments, warm_up_child
from kernels_eval.gpu.device import cuda_driver
from kernels_eval.gpu.device.cuda_driver import CudaError
from kernels_eval.gpu.device.gate import Gate, GatePage
from kernels_eval.gpu.device.shared_memory import MappedMemory
from kernels_eval.gpu.device.worker_memory import keep_within
from kernels_eval.sandbox.candidate_model import build_model, candidate_session, move_model, send_state
from kernels_eval.sandbox.candidate_source import CandidateError, describe, load_source
from kernels_eval.sandbox.fork_server import ChildSetup
from kernels_eval.sandbox.inductor_names import provide
from kernels_eval.sandbox.messages import receive_frame, send_frame

_MAX_THREADS = 100_000
_MAX_PLACES = 6


SETUP = ChildSetup(warm_up_child, confine_fork_server, confine_child)


def candidate_main(channel: socket.socket, memory_descriptor: int) -> None:
    """Run one candidate; returns when the judge hangs up."""
    with candidate_session(channel):
        _Candidate(channel).serve(memory_descriptor)


class _Candidate:
    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._frames: Callable[[], Any] = sys._current_frames  # pyright: ignore[reportPrivateUsage]

    def serve(self, memory_descriptor: int) -> None:
        _, payload = receive_frame(self._channel)
        try:
            tools = instruments()
            self._threads = len(self._frames())
            job: dict[str, Any] = pickle.loads(payload)
            _use_cache_folder(job["scratch"])
            memory = MappedMemory(tools.driver, job["memory"], memory_descriptor)
            gate = Gate(tools.driver, GatePage(memory_descriptor), memory.end_word) if memory.is_shared else None
            backend = backend_named(job["backend"])
            backend.use_folder(job["scratch"])
            backend.install(job["build"])
            keep_within(job["device_bytes"])
        # No code of the candidate has run: the judge takes it for a fault of the machine.
        except Exception as error:
            raise CandidateError("runtime_error", ErrorCategory.JUDGE_FAULT, _with_places(error)) from error
        guard = OperatorGuard(enforce=job["strict"])
        torch.set_grad_enabled(False)
        send_frame(self._channel, {"kind": "started"})
        while (header := receive_frame(self._channel)[0])["kind"] == "round":
            self._answer(Rounds(tools, memory, gate, None, guard, backend), header)
        remember_registrations()
        provide(job["source"], on_gpu=True)
        with backend.compiling():
            module = load_source(job["source"])
            with MadeOfWeights() as made:
                model = build_model(module, job["arguments"], job["weight_seed"], job["nesting"])
            held: HeldWeights | None = HeldWeights(model, made)
            del made
            move_model(model, cuda_driver.DEVICE)
        if job["strict"]:
            refuse_host_copies(guard.violations.append, guard.may_list)
        configurations = backend.configurations(module)
        send_state(self._channel, model, drawn=held.drawn, computed=held.computed, configurations=configurations)
        rounds = Rounds(tools, memory, gate, model, guard, backend, module)
        header, _ = receive_frame(self._channel)
        is_renewable = False
        while True:
            if header["kind"] == "weights":
                assert held is not None
                is_renewable = header["is_renewable"]
                header = self._take_weights(header, held, guard, memory, tools)
            if not is_renewable:
                held = None  # what the constructor made on the host
            self._answer(rounds, header)
            header, _ = receive_frame(self._channel)

    def _take_weights(
        self, header: dict[str, Any], held: HeldWeights, guard: OperatorGuard, memory: MappedMemory, tools: Any
    ) -> dict[str, Any]:
        """Take the judge's weights, the first of which have come; returns the header that follows them."""
        try:
            targets = held.targets(header["as_registered"])
            weights = WeightTaker(memory, targets)
            while header["kind"] == "weights":
                weights.take(header["pieces"], header["nbytes"])
                if header["is_last"]:
                    held.remake()
                    guard.copies.renew()
                    if header["forgets"]:
                        held.forget_computed(header["as_registered"])
                    if header["is_renewable"]:
                        guard.copies.watch([*targets.values(), *held.made_of_weights])
                tools.synchronize()  # the next ones come to the same places
                send_frame(self._channel, {"kind": "taken"})
                header, _ = receive_frame(self._channel)
        except (CudaError, RuntimeError) as error:  # of work that the candidate began as its model was built
            raise device_failure(describe(error)) from error
        return header

    def _answer(self, rounds: Rounds, header: dict[str, Any]) -> None:
        """Prepare one round, make it once the worker sends `go`, and answer."""
        rounds.prepare(header)
        send_frame(self._channel, {"kind": "prepared"})
        if not header["gated"]:
            receive_frame(self._channel)
        answer = rounds.run(lambda kind: send_frame(self._channel, {"kind": kind}))
        answer["threads"] = min(_MAX_THREADS, 1 + len(self._frames()) - self._threads)
        send_frame(self._channel, answer)


def _use_cache_folder(scratch: str) -> None:
    """Compile into a folder of this candidate alone: nothing that it puts there is loaded for another."""
    folder = Path(scratch) / "triton"
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["TRITON_CACHE_DIR"] = str(folder)
    os.environ["TMPDIR"] = scratch
    os.environ["TORCH_EXTENSIONS_DIR"] = str(Path(scratch) / "extensions")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(scratch) / "inductor")
    os.environ["USER"] = "candidate"  # the process's user has no name, which `torch.compile` asks for


def _with_places(error: Exception) -> str:
    """Describe an error in the judge's code, or in a library that it called, with its places: innermost first."""
    frames = reversed(traceback.extract_tb(error.__traceback__)[-_MAX_PLACES:])
    return f"{describe(error)} ({', '.join(f'{Path(frame.filename).name}:{frame.lineno}' for frame in frames)})"
