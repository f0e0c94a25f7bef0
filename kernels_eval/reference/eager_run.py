"""Worker process: operators of a reference in eager mode: as launches for the estimate, and those that are random."""

from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from kernels_eval.correctness.outputs import flat
from kernels_eval.cost.operators import EagerCounter
from kernels_eval.reference.inputs import Shape, as_fake, no_values
from kernels_eval.reference.problem_code import ProblemCode
from kernels_eval.reference.unchanged import unchanged


class EagerRun(EagerCounter):
    """Collects one launch for each operator that runs inside, and the names of those that draw random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.random_operators: set[str] = set()
        self.kept: frozenset[str] = frozenset()
        """Plain attributes of the model that a call assigns or writes to."""
        self.needed_bytes = 0
        """Bytes of inputs, weights and outputs: each has to be read or written once."""
        self.output_shapes: list[Shape] | None = None
        """Shapes of the results; None if the model had to compute, or returns something else than tensors."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operator and note it."""
        if torch.Tag.nondeterministic_seeded in func.tags:
            self.random_operators.add(f"aten.{func.overloadpacket.__name__}")
        return super().__torch_dispatch__(func, types, args, kwargs)


def run_eager(code: ProblemCode, model: torch.nn.Module, inputs: list[Any]) -> EagerRun:
    """Run a model at the full size without computing if possible; returns what was collected.

    `inputs`: those of the problem. Only their forms are used; if the model has to compute, others are drawn.
    """
    try:
        with unchanged(model) as kept:  # a tensor without values that the model keeps would end the process later
            with no_values(allow_non_fake_inputs=True), torch.no_grad():
                run = _followed(code, model, as_fake(inputs))
            run.kept = kept.changed()
            return run
    except Exception:  # noqa: BLE001 (data-dependent operators do not run on fake tensors: count a real run)
        torch.manual_seed(0)
        inputs = code.inputs()
        run = EagerRun()
        with unchanged(model) as kept, torch.no_grad(), run:
            results = code.call(lambda: model(*inputs))
            run.kept = kept.changed()
        run.needed_bytes = _bytes_of(inputs, model, results)
    return run


def follow(code: ProblemCode) -> EagerRun:
    """Follow a problem at its own size, with neither values nor memory for inputs and weights.

    Any exception of its code passes through, also of a constructor that reads values.
    """
    with no_values(allow_non_fake_inputs=True), torch.no_grad():
        return _followed(code, code.model(0), as_fake(code.inputs()))


def _followed(code: ProblemCode, model: torch.nn.Module, inputs: list[Any]) -> EagerRun:
    run = EagerRun()
    with run, code.device():
        results = model(*inputs)
    run.needed_bytes = _bytes_of(inputs, model, results)
    run.output_shapes = _shapes_of(results)
    return run


def _bytes_of(inputs: list[Any], model: torch.nn.Module, results: Any) -> int:
    """Return the bytes of inputs, of a model's parameters and buffers, and of its results."""
    tensors = [*tree_leaves((inputs, results)), *model.parameters(), *model.buffers()]
    return sum(value.numel() * value.element_size() for value in tensors if isinstance(value, torch.Tensor))


def _shapes_of(results: Any) -> list[Shape] | None:
    values = flat(results)[0]
    return [tuple(value.shape) for value in values] if all(isinstance(each, torch.Tensor) for each in values) else None
