"""CPU worker: calls a candidate that keeps state once more, after its weights have changed in place.

A product of weights, or a number read from one, that was made in the first call and kept is right until a step of
training. Copies that PyTorch makes of a weight (transposed, padded, converted) follow it and may be kept
(kernels_eval.interpreter.weight_copies); so may whatever host code makes anew when a weight's `_version` changes.
"""

from typing import Any

import torch

from kernels_eval.cpu.session import Session
from kernels_eval.cpu.trials import Errors, finish, start
from kernels_eval.error_categories import ErrorCategory
from kernels_eval.reference.inputs import SecretSeed, same_bytes
from kernels_eval.reference.reference import Reference
from kernels_eval.sandbox.child import CandidateFailedError
from kernels_eval.trace.schema import FIRST_WEIGHT

_TRIAL = 4001
"""Trial number of these calls, for the seed."""
_MOST_BEFORE = 2
"""Calls before the weights change, at most."""


def run_with_renewed_weights(
    session: Session, kernel_source: str, reference: Reference, size: int | None, seed: SecretSeed
) -> None:
    """Load the candidate in a fresh session; call it, change its weights, and call it again at a leading size.

    Raises CandidateFailedError if anything is wrong. Does nothing if the problem has no trainable parameters.
    """
    session.load(kernel_source, reference.arguments, reference.weight_seed, reference.nesting)
    drawn = reference.draw(size, _TRIAL, seed, own=False)
    inputs, expected = reference.with_expected(drawn, size, _TRIAL, seed)
    trained = reference.trained(seed.generator("trained weights"))
    state = session.ready()
    weights, others = (each.weights_for(state, lambda: inputs) for each in (reference, trained))
    changed = _changed(weights.values, others.values)
    after = trained.expected(inputs, perturbed=True) if changed else expected
    if not changed or not after.is_finite:
        return
    session.set_weights(weights, renewable=True)
    for _ in range(1 + seed.number("calls before") % _MOST_BEFORE):
        session.ask(inputs, has_values=True)
        finish(session, start(session, inputs).trace, expected, session.strict, Errors())
    session.renew_weights(changed)
    session.ask(inputs, has_values=True, renewed=True)
    try:
        finish(session, start(session, inputs).trace, after, session.strict, Errors())
    except CandidateFailedError as failed:
        raise because_weights_changed(failed) from failed


def _changed(weights: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> dict[int, Any]:
    """Return the values that differ, by the weight's number."""
    pairs = zip(weights.values(), others.values(), strict=True)
    return {
        number: other for number, (value, other) in enumerate(pairs, start=FIRST_WEIGHT) if not same_bytes(value, other)
    }


def because_weights_changed(failed: CandidateFailedError) -> CandidateFailedError:
    """Return the failure of a call after weights have changed, with that said where its values are wrong."""
    if failed.category != ErrorCategory.WRONG_VALUES:
        return failed
    message = (
        f"{failed.message}; in a call after the parameters have changed in place: what kernels or host code compute "
        "from parameters has to be computed in each call"
    )
    return CandidateFailedError(failed.status, failed.category, message, failed.is_certain)
