"""Candidate's processes: the session's frame, and the candidate's ModelNew with its parameters and buffers.

For the tracing process (kernels_eval.tracing.process), the interpreter process (kernels_eval.interpreter.process) and
the candidate's process on a GPU (kernels_eval.gpu.candidate.process).
"""

import gc
import socket
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from kernels_eval.error_categories import ErrorCategory
from kernels_eval.sandbox.candidate_source import CandidateError, describe
from kernels_eval.sandbox.messages import ChannelClosedError, OversizedFrameError, send_frame
from kernels_eval.sandbox.module_state import plain_state, registered_state
from kernels_eval.sandbox.nested_inputs import nest_inputs_of
from kernels_eval.sandbox.tensor_bytes import NAMES

_MOST_COMPUTED = 5
_MOST_CONFIGURATIONS = 10**6
_LONGEST_NAME = 200


@contextmanager
def candidate_session(channel: socket.socket) -> Generator[None]:
    """Serve one candidate in the block; send its failure, if there is one, and end quietly if the judge hangs up."""
    channel.settimeout(None)
    gc.set_threshold(50_000)  # short-lived: early collection would touch, and so copy, the zygote's pages
    try:
        yield
    except CandidateError as failed:
        send_frame(channel, failed.header)
    except OversizedFrameError as error:
        message = f"a call makes too many launches and operations to describe: {error}"
        send_frame(channel, CandidateError("runtime_error", ErrorCategory.BEYOND_LIMITS, message).header)
    except ChannelClosedError:
        return


def build_model(module: Any, arguments: list[Any], weight_seed: int, nesting: list[Any] | None = None) -> Any:
    """Construct the ModelNew of a loaded source. Raises CandidateError if it fails.

    `nesting`: the collections that it takes its flat inputs in.
    """
    model_class = getattr(module, "ModelNew", None)
    if not isinstance(model_class, type):
        raise CandidateError("compile_error", ErrorCategory.MISSING_MODEL, "the source defines no class ModelNew")
    torch.manual_seed(weight_seed)
    with _constructing():
        model: Any = model_class(*arguments)
        nest_inputs_of(model, nesting)
        return model


def move_model(model: Any, device: str) -> None:
    """Move a model's parameters and buffers to a device. Raises CandidateError if it fails.

    PyTorch moves a buffer that several modules share once for each. Here it stays one, under its one name.
    """
    with _constructing():
        if isinstance(model, torch.nn.Module):
            groups: list[dict[str, Any]] = [
                vars(module)[kind] for module in model.modules() for kind in ("_parameters", "_buffers")
            ]
            before = [(group, name, tensor) for group in groups for name, tensor in group.items() if tensor is not None]
            model.to(device)
            moved: dict[int, Any] = {}
            for group, name, tensor in before:
                group[name] = moved.setdefault(id(tensor), group[name])


@contextmanager
def _constructing() -> Generator[None]:
    try:
        yield
    except CandidateError:  # of a build that the constructor asked for
        raise
    except BaseException as error:
        raise CandidateError("runtime_error", ErrorCategory.CONSTRUCTOR_ERROR, describe(error)) from error


def send_state(
    channel: socket.socket,
    model: Any,
    with_plain: bool = False,
    drawn: dict[str, torch.Tensor] | None = None,
    computed: Sequence[str] = (),
    configurations: int = 0,
) -> dict[str, torch.Tensor]:
    """Return the model's parameters and buffers by name, after sending `ready` with their types and shapes.

    `with_plain`: tensors in plain attributes as well. `drawn`: what stands for some of the parameters and buffers.
    `computed`: names of tensors that the constructor computed of others. `configurations`: as in StateAnswer.
    """
    registered = registered_state(model)
    state = {**registered, **(drawn or {})}
    plain = plain_state(model) if with_plain else {}
    ready: dict[str, Any] = {"kind": "ready", "state": _forms(state), "plain": _forms(plain)}
    if drawn:
        ready["registered"] = _forms({name: registered[name] for name in drawn})
    if configurations:
        ready["configurations"] = min(configurations, _MOST_CONFIGURATIONS)
    if computed:
        ready["computed"] = [name[:_LONGEST_NAME] for name in computed[:_MOST_COMPUTED]]
    send_frame(channel, ready)
    return {**plain, **state}


def _forms(state: dict[str, torch.Tensor]) -> dict[str, Any]:
    return {name: [NAMES.get(tensor.dtype, "?"), list(tensor.shape)] for name, tensor in state.items()}
