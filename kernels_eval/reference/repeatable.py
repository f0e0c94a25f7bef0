"""Worker process: the check that a reference answers equal calls alike: no kernel can agree with one that does not."""

from collections.abc import Callable
from typing import Any

import torch

from kernels_eval.correctness.outputs import RandomReferenceError
from kernels_eval.reference.eager_run import EagerRun
from kernels_eval.reference.inputs import copied, same_bytes
from kernels_eval.reference.problem_code import ProblemCode
from kernels_eval.reference.unchanged import unchanged

_REPEATS = 3
"""Calls after the first one that a reference which keeps something has to answer as it did the first."""


def refuse_if_it_differs(
    code: ProblemCode, model: torch.nn.Module, eager: EagerRun, draw_inputs: Callable[[], list[Any]]
) -> None:
    """Raise RandomReferenceError if the problem may be random or keep state, and two equal calls differ.

    `eager`: of one call of the model, which is left as it was built.
    """
    if not (eager.random_operators or eager.may_keep or code.may_be_random):
        return
    operators, inputs, kept, is_same = eager.random_operators, draw_inputs(), frozenset[str](), True
    with unchanged(model, with_parameters=True) as before:
        first = _outputs(code, model, inputs)
        for _ in range(_REPEATS):
            is_same = _same(first, _outputs(code, model, inputs))
            kept = before.changed()
            if not (is_same and kept):  # with nothing kept, each call is like the one before
                break
        if not (kept or code.may_be_random):
            kept = before.changed(with_statistics=True)
    if is_same:
        return
    if kept and not operators:
        raise RandomReferenceError(
            "the reference keeps state: its outputs differ between two runs on the same inputs "
            f"({', '.join(sorted(kept))} change{'s' if len(kept) == 1 else ''} in each call); no kernel can agree "
            "with it"
        )
    drawn = f" ({', '.join(sorted(operators))}; dropout in training mode?)" if operators else ""
    raise RandomReferenceError(
        f"the reference is random: its outputs differ between two runs on the same inputs{drawn}; no kernel can "
        "agree with it"
    )


def _outputs(code: ProblemCode, model: torch.nn.Module, inputs: list[Any]) -> list[torch.Tensor]:
    """Return copies of the outputs for a copy of the inputs. The model keeps what the call leaves in it."""
    return [value.clone() for value in code.run_and_keep(model, copied(inputs))[0]]


def _same(ones: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return len(ones) == len(others) and all(
        one.shape == other.shape and one.dtype == other.dtype and same_bytes(one, other)
        for one, other in zip(ones, others, strict=True)
    )
