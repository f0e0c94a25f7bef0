"""GPU worker: calls a candidate once more after its weights have changed in place, as kernels_eval.cpu does.

A product of weights, or fewer bits of one, that a kernel made in the first call is right until a step of training.
Copies that PyTorch makes of a weight follow it (kernels_eval.gpu.candidate.kept_copies), and whatever host code makes
anew when a weight's `_version` changes is right.
"""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager

import torch

from kernels_eval.cpu.renewed_weights import because_weights_changed
from kernels_eval.gpu.device import cuda_driver
from kernels_eval.gpu.device.worker_memory import available_bytes
from kernels_eval.gpu.reference import GpuReference
from kernels_eval.reference.inputs import SecretSeed
from kernels_eval.reference.weights import GivenWeights
from kernels_eval.sandbox.child import CandidateFailedError
from kernels_eval.sandbox.messages import StateAnswer

_MOST_BYTES = 2 << 30
"""Of weights: they cross the shared memory twice more."""
_COPIES = 3
"""Memory of another model, and of the factors by which it differs, in multiples of the weights."""


def is_renewable(reference: GpuReference) -> bool:
    """Return whether a problem has parameters that a step of training changes, and not too many of them."""
    trainable = [value for value in reference.state(False).values() if value.requires_grad]
    nbytes = sum(value.numel() * value.element_size() for value in reference.state(False).values())
    return any(value.dtype.is_floating_point for value in trainable) and nbytes <= _MOST_BYTES


def call_with_renewed_weights(
    reference: GpuReference,
    held: StateAnswer,
    seed: SecretSeed,
    give: Callable[[GivenWeights], None],
    using: Callable[[GpuReference], AbstractContextManager[object]],
    call: Callable[[], None],
) -> None:
    """Change the candidate's weights, have a call of it checked, and give it the weights back that it had.

    `held`: what the candidate has; `give`: sets weights in it; `using`: draws and compares by another reference
    meanwhile; `call`: has a call made and checked. Raises CandidateFailedError if the result is wrong.
    """
    nbytes = sum(value.numel() * value.element_size() for value in reference.state(True).values())
    if _COPIES * nbytes > available_bytes():
        return
    generator = torch.Generator(cuda_driver.DEVICE).manual_seed(seed.number("trained weights"))
    trained = reference.trained(generator)
    with _weights(reference, trained, held, give), using(trained):
        try:
            call()
        except CandidateFailedError as failed:
            raise because_weights_changed(failed) from failed


@contextmanager
def _weights(
    reference: GpuReference, other: GpuReference, held: StateAnswer, give: Callable[[GivenWeights], None]
) -> Generator[None]:
    """Have the candidate hold another reference's weights. A candidate that fails is not called again."""
    give(other.weights_for(held, list))
    yield
    give(reference.weights_for(held, list))
