"""GPU worker: calls a candidate once more after its weights have changed in place, as kernels_eval.cpu does.

A product of weights, or fewer bits of one, that a kernel made in the first call is right until a step of training.
Copies that PyTorch makes of a weight follow it (kernels_eval.gpu.candidate.kept_copies), and whatever host code makes
anew when a weight's `_version` changes is right.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch

from kernels_eval.cpu.renewed_weights import because_weights_changed
from kernels_eval.gpu.device import cuda_driver
from kernels_eval.gpu.device.worker_memory import share_left
from kernels_eval.gpu.reference import GpuReference
from kernels_eval.reference.inputs import SecretSeed
from kernels_eval.reference.weights import GivenWeights, is_trained
from kernels_eval.sandbox.child import CandidateFailedError
from kernels_eval.sandbox.messages import StateAnswer

_MOST_BYTES = 2 << 30
"""Of weights: they cross the shared memory twice more."""
_COPIES = 6
"""Memory of two other models, and of the factors in float32 by which one differs, in multiples of the weights."""


def is_renewable(reference: GpuReference) -> bool:
    """Return whether a problem has parameters that a step of training changes, and not too many of them."""
    held = reference.state(False).values()
    return any(map(is_trained, held)) and sum(value.nbytes for value in held) <= _MOST_BYTES


def trained_reference(
    reference: GpuReference, seed: SecretSeed, order: Callable[[], AbstractContextManager[object]] = nullcontext
) -> GpuReference | None:
    """Return a problem after a step of training; None if none changes it, or the worker's share of memory is small.

    `order`: in which the device is shared with other workers meanwhile.
    """
    if not is_renewable(reference):
        return None
    if _COPIES * sum(value.nbytes for value in reference.state(True).values()) > share_left():
        return None
    with order():
        return reference.trained(torch.Generator(cuda_driver.DEVICE).manual_seed(seed.number("trained weights")))


def call_with_renewed_weights(
    reference: GpuReference,
    trained: GpuReference,
    held: StateAnswer,
    give: Callable[[GivenWeights], None],
    using: Callable[[GpuReference], AbstractContextManager[object]],
    call: Callable[[], None],
) -> None:
    """Change the candidate's weights, have a call of it checked, and give it the weights back that it had.

    `held`: what the candidate has; `give`: sets weights in it; `using`: draws and compares by another reference
    meanwhile; `call`: has a call made and checked. Raises CandidateFailedError if the result is wrong.
    """
    give(trained.drawn_for(held, perturbed=True))  # what it lacks it does not need: that was found when it was loaded
    try:
        with using(trained):
            call()
    except CandidateFailedError as failed:
        raise because_weights_changed(failed) from failed
    give(reference.drawn_for(held, perturbed=True))
