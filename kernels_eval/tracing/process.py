"""Tracing process: loads the candidate's source, builds ModelNew, and traces forward calls on tensors without values.

Session with the judge (frames, see kernels_eval.sandbox.messages):

- Judge: `load` (payload: pickled job; only from the judge to the candidate). Candidate: `ready` (names and shapes of
  parameters, buffers and tensors in plain attributes) or `failed`.
- Judge: `weights` (names of those whose values the judge sets; each with whether it is set as it is registered, or as
  it was drawn).
- Judge: any number of `trace` (shapes of the inputs). Candidate: `trace` (a program, kernels_eval.trace.schema), `read`
  (request for one value, or a list; the judge answers `value`) or `failed`. `ahead`: calls that host code's counters
  are advanced by before; negative: not at all, and nothing is counted. `again`: a second ModelNew takes the place of
  the first. `renewed`: the judge has changed the weights in place.

This process never holds an input, an output, a count or a clock, nor anything of the reference or the verdict. Even
from hostile code it sends out only programs, and the judge checks them.
"""

import math
import pickle
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from kernels_eval.correctness.allowed_operators import ForbiddenOperatorError
from kernels_eval.correctness.composed_operators import remember_registrations
from kernels_eval.correctness.made_of_weights import MadeOfWeights, attributes, is_whole, key_of
from kernels_eval.correctness.outputs import flat
from kernels_eval.error_categories import ErrorCategory
from kernels_eval.sandbox.candidate_model import build_model, candidate_session, send_state
from kernels_eval.sandbox.candidate_source import CandidateError, describe, load_source
from kernels_eval.sandbox.inductor_names import provide
from kernels_eval.sandbox.made_code import guard_made_code
from kernels_eval.sandbox.messages import ChannelClosedError, receive_frame, send_frame
from kernels_eval.sandbox.module_state import has_storage, plain_attributes, plain_state, registered_state
from kernels_eval.sandbox.tensor_bytes import DTYPES
from kernels_eval.trace.schema import FIRST_WEIGHT
from kernels_eval.tracing import fake_cuda
from kernels_eval.tracing.chance import Chance
from kernels_eval.tracing.counters import Counters
from kernels_eval.tracing.kernel_sources import KernelSources, UnknownGlobalError
from kernels_eval.tracing.launch_recorder import KernelArgumentError, LaunchRecorder
from kernels_eval.tracing.traced_tensor import TracedTensor
from kernels_eval.tracing.tracer import Tracer

_DIFFERENCE_NAMES = 5
_OF_THE_PROCESS = "settings of PyTorch are the whole process's, and no kernel of the file needs them; leave them out"
_LONGEST_BUILD_S = 0.02
"""CPU time to build a model, beyond which no second one is built."""


def prepare() -> None:
    """Replace what host code calls, once for all children of this process, which runs no candidate itself.

    Each replaced method of a class makes Python forget what it has looked up in all of its subclasses; in every child
    that would write to, and so copy, their pages.
    """
    _prepared.append(_Host())


def tracing_main(channel: socket.socket, memory_descriptor: int) -> None:
    """Serve one candidate; returns when the judge closes the channel. `prepare` was called in the fork server."""
    with candidate_session(channel):
        _prepared[0].serve(channel)


class _Host:
    def __init__(self) -> None:
        torch.set_num_threads(1)
        self._sources = KernelSources()
        self._tracer = Tracer(strict=True, read=self._read)
        self._recorder = LaunchRecorder(self._tracer, self._sources)
        self._recorder.install()
        fake_cuda.install(self._tracer)
        remember_registrations()
        self._values: list[Any] = []
        """Values read so far in this forward call."""
        self._queued: deque[dict[str, Any]] = deque()
        """Requests that arrived during the wait for a value."""
        self._remembered: list[Any] | None = None
        """Values of an earlier call, if this call is traced without values."""
        self._made: list[Any] = []
        """Attributes to be made again of weights in the next call."""

    def serve(self, channel: socket.socket) -> None:
        self._channel = channel
        _, payload = receive_frame(self._channel)
        job: dict[str, Any] = pickle.loads(payload)
        self._tracer.strict = job["strict"]
        self._tracer.step_limit.seconds = job["step_cpu_s"]
        self._chance = Chance()
        self._chance.install()
        before = global_state()
        provide(job["source"], on_gpu=False)
        clock = time.process_time
        guard_made_code()
        with fake_cuda.OnCpu():
            module = load_source(job["source"], hash=lambda value: self._chance.hash_of(value))
            began = clock()
            with MadeOfWeights() as made:
                model = build_model(module, job["arguments"], job["weight_seed"], job["nesting"])
            is_large = clock() - began > _LONGEST_BUILD_S
        state = send_state(self._channel, model, True, made.drawn_for(model), made.computed(model))
        header, _ = receive_frame(self._channel)
        as_registered: dict[str, bool] = header["as_registered"]
        self._use_handles(model, made, _given(model, state, as_registered))
        models = [model]
        self._counters = Counters([module, models])
        while True:
            header = self._queued.popleft() if self._queued else receive_frame(self._channel)[0]
            if header["again"] and not is_large:
                models[:] = [self._second(module, job, as_registered) or model]
            if header["renewed"]:
                torch.autograd.graph.increment_version(list(registered_state(models[0]).values()))
            self._trace(models[0], header)
            _check_global_state(before)

    def _use_handles(self, model: Any, made: MadeOfWeights, given: dict[str, torch.Tensor]) -> None:
        """Replace parameters, buffers and the plain attributes that are given; others are made again of those."""
        kept = attributes(model)
        weights = _use_handles(model, self._tracer, given)
        held = {id(tensor) for tensor in given.values()}
        self._made = [(made, weights, *each) for each in kept if id(each[2]) not in held and made.is_as_noted(each[2])]

    def _remake(self) -> None:
        """Make again, once, what a constructor made of weights: their values are the judge's."""
        pending, self._made = self._made, []
        for made, weights, holder, name, tensor in pending:
            again = made.remake(tensor, weights, self._tracer.promote)
            if again is not None:
                again.kernels_eval_memory.is_on_host = False  # it was moved with the model
                holder[name] = again

    def _second(self, module: Any, job: dict[str, Any], as_registered: dict[str, bool]) -> Any:
        """Build ModelNew once more, with the weights of the first. Returns None if it cannot be built.

        A program that a second model launches otherwise is run, like any other that differs.
        """
        try:
            with fake_cuda.OnCpu(), MadeOfWeights() as made:
                model = build_model(module, job["arguments"], job["weight_seed"], job["nesting"])
            state = {**plain_state(model), **registered_state(model), **made.drawn_for(model)}
            self._use_handles(model, made, _given(model, state, as_registered))
        except (CandidateError, KeyError):
            return None
        return model

    def _trace(self, model: Any, header: dict[str, Any]) -> None:
        inputs = [
            self._tracer.input(index, tuple(item["form"]["shape"]), DTYPES[item["form"]["dtype"]])
            if "form" in item
            else item["value"]
            for index, item in enumerate(header["inputs"])
        ]
        self._chance.next_call()
        if header["ahead"] > 0:
            self._counters.advance(header["ahead"])
        self._recorder.autotuning.begin(header["configurations"], header["tried"])
        self._remembered = None if header["has_values"] else list(self._values)
        self._values.clear()
        result = self._forward(model, inputs)
        try:
            outputs, structure = flat(result)
        except Exception as error:  # the result may hold objects of the candidate's classes
            raise CandidateError("runtime_error", ErrorCategory.EXCEPTION, describe(error)) from error
        described = [self._output(output) for output in outputs]
        if header["ahead"] == 0:
            self._counters.observe()
        self._send({"kind": "trace", "structure": structure, "outputs": described})

    def _forward(self, model: Any, inputs: list[Any]) -> Any:
        tracer = self._tracer
        tracer.start()
        self._recorder.start()
        tracer.step_limit.begin()
        tracer.is_in_call = True
        tracer.streams.begin_call()
        try:
            with torch.no_grad(), tracer:
                self._remake()
                result = model(*inputs)
            tracer.streams.end_call()
        except ForbiddenOperatorError as error:
            raise CandidateError("rejected", ErrorCategory.LIBRARY_COMPUTE, describe(error)) from error
        except (KernelArgumentError, UnknownGlobalError) as error:
            raise CandidateError("compile_error", ErrorCategory.TRITON_COMPILE, describe(error)) from error
        except MemoryError as error:
            raise CandidateError("runtime_error", ErrorCategory.OUT_OF_MEMORY, describe(error)) from error
        except (CandidateError, ChannelClosedError):
            raise
        except BaseException as error:
            if tracer.violations:
                raise CandidateError(
                    "rejected", ErrorCategory.LIBRARY_COMPUTE, ", ".join(tracer.violations[:5])
                ) from error
            raise CandidateError("runtime_error", ErrorCategory.EXCEPTION, describe(error)) from error
        finally:
            tracer.is_in_call = False
            tracer.step_limit.end()
        if tracer.violations:
            used = ", ".join(sorted(set(tracer.violations))[:_DIFFERENCE_NAMES])
            raise CandidateError("rejected", ErrorCategory.LIBRARY_COMPUTE, f"used {used}")
        if tracer.streams.unordered is not None:
            raise CandidateError("incorrect", ErrorCategory.DATA_RACE, tracer.streams.unordered)
        if threading.active_count() > 1:
            raise CandidateError(
                "rejected", ErrorCategory.BACKGROUND_THREAD, "a thread goes on after forward has returned"
            )
        return result

    def _output(self, output: Any) -> dict[str, Any]:
        if isinstance(output, torch.Tensor) and type(output) in (TracedTensor, torch.Tensor, torch.nn.Parameter):
            if isinstance(output, TracedTensor) and output.kernels_eval_memory.is_on_host:
                return {"type": "tensor on another device than the inputs"}
            return {"view": self._tracer.view_of(self._tracer.promote(output))}
        kind = type(output).__name__
        return {"type": f"{kind}, a subclass of Tensor" if isinstance(output, torch.Tensor) else kind[:100]}

    def _read(self, view: dict[str, Any]) -> Any:
        """Request a value, or a list, from the judge. A call on shapes alone reuses the values of an earlier call."""
        if self._remembered is not None:
            known = self._remembered[len(self._values) : len(self._values) + 1]
            value = _as_many(known[0] if known else 0, view["shape"])
        else:
            self._send({"kind": "read", "view": view})
            while (header := receive_frame(self._channel)[0])["kind"] != "value":
                self._queued.append(header)  # the judge sends requests ahead
            value = header["value"]
        self._values.append(value)
        return value

    def _send(self, header: dict[str, Any]) -> None:
        commands, payload = self._tracer.take()
        send_frame(self._channel, {**header, "kernels": self._sources.take_fresh(), "commands": commands}, payload)


_prepared: list[_Host] = []
"""The host that `prepare` made: each child has a copy of its own."""


def _given(model: Any, state: dict[str, torch.Tensor], as_registered: dict[str, bool]) -> dict[str, torch.Tensor]:
    """Return the tensors that the judge sets, by name: as they are registered, or as in the state."""
    registered = registered_state(model)
    return {name: registered[name] if is_so else state[name] for name, is_so in as_registered.items()}


def _use_handles(model: Any, tracer: Tracer, given: dict[str, torch.Tensor]) -> dict[int, TracedTensor]:
    """Replace the model's parameters and buffers by traced tensors, and the plain attributes that are given.

    Returns the traced tensors of the latter and of given parameters, by the keys of their storages.
    """
    weights: dict[int, TracedTensor] = {}
    if not isinstance(model, torch.nn.Module):
        return weights
    handles: dict[int, torch.Tensor] = {}
    with torch.no_grad():
        for number, tensor in enumerate(given.values(), start=FIRST_WEIGHT):
            handles[id(tensor)] = adopted = tracer.adopt(tensor, number)
            if is_whole(tensor):
                weights[key_of(tensor)] = adopted
        for module in model.modules():
            for group in (vars(module)["_parameters"], vars(module)["_buffers"]):
                for name, tensor in group.items():
                    if not has_storage(tensor) or isinstance(tensor, TracedTensor):
                        continue
                    if id(tensor) not in handles:
                        handles[id(tensor)] = tracer.promote(tensor)
                    group[name] = handle = handles[id(tensor)]
                    if isinstance(tensor, torch.nn.Parameter):
                        handle._is_param = True  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage]
        for found in list(plain_attributes(model)):  # others stay on the host, which may read them
            if id(found.value) in handles:
                vars(found.holder)[found.attribute] = handles[id(found.value)]
    return weights


def _as_many(known: Any, shape: list[int]) -> Any:
    """Return a value, or a list of as many as a shape has, of what was read in its place at another size."""
    values = known if isinstance(known, list) else [known]
    if not shape:
        return values[0]
    count = math.prod(shape)
    return (values + [0] * count)[:count]


def _check_global_state(before: dict[str, Any]) -> None:
    changed = [name for name, value in global_state().items() if before[name] != value]
    if changed:
        names = ", ".join(changed[:_DIFFERENCE_NAMES])
        message = f"changed {names}: {_OF_THE_PROCESS}"
        raise CandidateError("rejected", ErrorCategory.CHANGED_GLOBAL_STATE, message)


def global_state() -> dict[str, Any]:
    """Return PyTorch's process-wide settings by name. A candidate must not change them."""
    return {
        "torch.get_default_dtype": torch.get_default_dtype(),
        "torch.get_float32_matmul_precision": _told(torch.get_float32_matmul_precision),
        "torch.backends.cuda.matmul.allow_tf32": _told(lambda: torch.backends.cuda.matmul.allow_tf32),
        "torch.backends.cudnn.allow_tf32": _told(lambda: torch.backends.cudnn.allow_tf32),
        "torch.backends.cudnn.benchmark": torch.backends.cudnn.benchmark,
        "torch.backends.cudnn.deterministic": torch.backends.cudnn.deterministic,
        "torch.are_deterministic_algorithms_enabled": torch.are_deterministic_algorithms_enabled(),
        "torch.is_autocast_enabled": torch.is_autocast_enabled("cuda"),
        "torch.get_num_threads": torch.get_num_threads(),
    }


def _told(precision: Callable[[], Any]) -> Any:
    """Return a precision; None where PyTorch refuses to tell it, since it was set for one library alone."""
    try:
        return precision()
    except RuntimeError:
        return None
