"""Interpreter process: owns one candidate's tensors, runs the programs that its host code traced, and counts.

It talks to the judge alone, in frames (kernels_eval.sandbox.messages). The judge sends `begin` (allowed operators,
weights, seed of the order of programs, the targets' precision of products), then `execute` (a part of a program; the
place of the inputs in shared memory; the outputs or the value to send back; the calls by which counters are advanced;
what undefined lanes hold). The answer is `executed` or `failed`. `renew` gives weights other values; it has no answer.

Of the candidate's code only kernels run here, and only if kernels_eval.trace.kernel_syntax accepts them. The process is
sandboxed all the same. It never holds the reference, its outputs, the seeds or the verdict.
"""

import linecache
import mmap
import os
import socket
import time
from collections.abc import Iterator
from typing import Any

import torch

from kernels_eval.cost.host_waits import waiting
from kernels_eval.error_categories import ErrorCategory
from kernels_eval.interpreter.data_races import DataRaceError
from kernels_eval.interpreter.kernel_runs import KernelRuns
from kernels_eval.interpreter.memory_accesses import OutOfBoundsError
from kernels_eval.interpreter.tensor_counters import TensorCounters
from kernels_eval.interpreter.tensor_store import LEAST_GAP, ProgramError, TensorStore
from kernels_eval.interpreter.triton_patches import libdevice
from kernels_eval.interpreter.triton_patches.descriptors import NoAllocatorError
from kernels_eval.interpreter.triton_patches.dot_precision import DOT_PRECISION
from kernels_eval.interpreter.triton_patches.interpreter import KernelError
from kernels_eval.interpreter.triton_patches.undefined_lanes import UNDEFINED_LANES
from kernels_eval.interpreter.weight_copies import WeightCopies
from kernels_eval.sandbox.candidate_model import candidate_session
from kernels_eval.sandbox.candidate_source import FILE_NAME, CandidateError, describe
from kernels_eval.sandbox.messages import receive_frame, send_frame
from kernels_eval.sandbox.tensor_bytes import TensorForm, aligned, bytes_of, tensor_from
from kernels_eval.trace.kernel_syntax import ForbiddenSyntaxError
from kernels_eval.trace.schema import Free, LaunchKernel, Operate, Part, Synchronise, Upload, View


def prepare() -> None:
    """Replace what kernels call, once for all children of this process, which runs no candidate itself."""
    torch.set_num_threads(1)
    libdevice.install()


def interpreter_main(channel: socket.socket, memory_descriptor: int) -> None:
    """Serve one candidate; returns when the judge hangs up. `prepare` was called in the process that forked this."""
    with candidate_session(channel), torch.no_grad():
        _Executor(channel, memory_descriptor).serve()


class _Executor:
    def __init__(self, channel: socket.socket, memory_descriptor: int) -> None:
        self._channel = channel
        self._memory_descriptor = memory_descriptor

    def serve(self) -> None:
        header, payload = receive_frame(self._channel)
        self._state = TensorStore(header["strict"], header["order"])
        self._runs = KernelRuns(self._state, header["order"])
        self._counters = TensorCounters(self._state.kept_values)
        for number, tensor, nbytes in _weights(header, payload):
            self._state.give(number, tensor, nbytes)
        DOT_PRECISION.default = header["dot_precision"]
        self._copies = WeightCopies(self._state) if header["renewable"] else None
        while True:
            header, payload = receive_frame(self._channel)
            if header["kind"] == "renew":
                assert self._copies is not None
                self._copies.renew({number: tensor for number, tensor, _ in _weights(header, payload)})
            else:
                self._execute(header, payload)

    def _execute(self, header: dict[str, Any], payload: bytearray) -> None:
        if header["inputs"] is not None:
            self._map_inputs(header["inputs"])
        self._counters.observe()
        if header["ahead"]:
            self._counters.advance(header["ahead"])
        self._runs.begin_call()
        UNDEFINED_LANES.begin(header["poisoned"])
        part = Part(kernels=header["part"]["kernels"], commands=header["part"]["commands"])
        launches: list[dict[str, Any]] = []
        began = time.process_time()
        try:
            self._runs.load(part.kernels)
            for command in part.commands:
                if header["scrambled"] and isinstance(command, LaunchKernel):
                    self._runs.run_scrambled(command)
                else:
                    self._carry_out(command, payload, launches)
            answer: dict[str, Any] = {"kind": "executed", "launches": launches}
            answer["undefined_line"] = UNDEFINED_LANES.line
            answer["rounded_products"] = DOT_PRECISION.has_rounded
            answer["wrote_weights"] = self._state.wrote_weights
            if header["read"] is not None:
                values = self._state.tensor(View(**header["read"]))
                answer["value"] = values.reshape(-1).tolist() if values.dim() else values.item()
            views = [View(**view) for view in header["outputs"]]
            answer["outputs"] = [{"origins": self._state.origins_of_output(view)} for view in views]
            content = [bytes_of(self._state.tensor(view)) for view in views]
            answer["cpu_s"] = time.process_time() - began
        except CandidateError:
            raise
        except Exception as error:
            raise _failure(error) from error
        send_frame(self._channel, answer, content)

    def _carry_out(self, command: Any, payload: bytearray, launches: list[dict[str, Any]]) -> None:
        if isinstance(command, LaunchKernel):
            launches.append(self._runs.run(command).model_dump())
        elif isinstance(command, Operate):
            launches += [launch.model_dump() for launch in self._state.operate(command)]
            if self._copies is not None:
                self._copies.note(command)
        elif isinstance(command, Synchronise):
            launches.append(waiting("read" if command.reads else "synchronise").model_dump())
        elif isinstance(command, Upload):
            self._state.upload(command, payload)
        else:
            assert isinstance(command, Free)
            self._state.free(command.storages)

    def _map_inputs(self, items: list[dict[str, Any]]) -> None:
        size = os.fstat(self._memory_descriptor).st_size
        memory = memoryview(mmap.mmap(self._memory_descriptor, size) if size else bytearray())
        for index, item in enumerate(items):
            if "form" in item:
                form = TensorForm(**item["form"])
                self._state.give(index, tensor_from(memory, form, item["offset"]), form.nbytes)


def _weights(header: dict[str, Any], payload: bytearray) -> Iterator[tuple[int, torch.Tensor, int]]:
    """Yield number, values and size in bytes of each weight of a message; the values share its payload's memory."""
    memory = aligned(payload, spare=LEAST_GAP)
    for item in header["weights"]:
        form = TensorForm(**item["form"])
        yield item["storage"], tensor_from(memory, form, item["offset"]), form.nbytes


def _failure(error: Exception) -> CandidateError:
    """Return a program's failure as the candidate's error."""
    if isinstance(error, KernelError):
        return _kernel_failure(error)
    if isinstance(error, ProgramError):
        return CandidateError("rejected", error.category, str(error))
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return CandidateError("runtime_error", ErrorCategory.OUT_OF_MEMORY, describe(error))
    return CandidateError("runtime_error", ErrorCategory.EXCEPTION, describe(error))


def _kernel_failure(error: KernelError) -> CandidateError:
    cause = error.__cause__ or error
    if isinstance(cause, ForbiddenSyntaxError):
        code = linecache.getline(FILE_NAME, cause.line).strip()
        return CandidateError(
            "compile_error", ErrorCategory.TRITON_COMPILE, f"{error.kernel}: {cause} (line {cause.line}: {code})"
        )
    message = f"{error.kernel}: {describe(cause)}"
    if isinstance(cause, DataRaceError):
        return CandidateError("incorrect", ErrorCategory.DATA_RACE, message)
    if isinstance(cause, OutOfBoundsError):
        return CandidateError("runtime_error", ErrorCategory.OUT_OF_BOUNDS, message)
    if isinstance(cause, NoAllocatorError):
        return CandidateError("runtime_error", ErrorCategory.EXCEPTION, message)
    if isinstance(cause, MemoryError):
        return CandidateError("runtime_error", ErrorCategory.OUT_OF_MEMORY, message)
    if isinstance(cause, AssertionError):
        return CandidateError("runtime_error", ErrorCategory.KERNEL_ASSERTION, message)
    # The interpreter runs the kernel's Python: code that it cannot run does not compile either.
    return CandidateError("compile_error", ErrorCategory.TRITON_COMPILE, message)
