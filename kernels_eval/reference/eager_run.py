"""Worker process: operators of a reference in eager mode: as launches for the estimate, and those that are random."""

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves

from kernels_eval.correctness.outputs import flat
from kernels_eval.cost.operators import EagerCounter
from kernels_eval.reference.inputs import Shape, as_fake, no_values
from kernels_eval.reference.problem_code import ProblemCode
from kernels_eval.reference.unchanged import running_statistics, unchanged

_NORMALISE = frozenset(
    f"{kind}_batch_norm" for kind in ("native", "cudnn", "miopen")
) | {"_native_batch_norm_legit", "_batch_norm_with_update"}  # fmt: skip


class EagerRun(EagerCounter):
    """Collects one launch for each operator that runs inside, and the names of those that draw random numbers."""

    def __init__(self, model: torch.nn.Module | None = None) -> None:
        super().__init__()
        self.random_operators: set[str] = set()
        self.may_keep = False
        """True if a call may leave something in the model that the next one depends on."""
        self._before: dict[int, Any] = {}
        """Storages of views of tensors from before the call. They are kept, since an address may come back."""
        self._statistics = [] if model is None else running_statistics(model)
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
        self.may_keep = self.may_keep or self._reaches_back(func, args, kwargs or {})
        result = super().__torch_dispatch__(func, types, args, kwargs)
        is_view = func.is_view or func is torch.ops.aten.detach.default
        if is_view and isinstance(result, FakeTensor) and self._is_from_before(args[0]):
            storage: Any = result.untyped_storage()
            self._before[storage._cdata] = storage
        return result

    def _reaches_back(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Return whether an operator writes to a tensor from before the call, or takes a running statistic.

        What a call makes has no values, what was there before has them. A normalisation may write its own statistics.
        """
        if any(value is statistic for value in args for statistic in self._statistics):
            name = func.overloadpacket.__name__
            return not (name in _NORMALISE or (name == "add_" and type(args[1]) is int))  # it counts its calls
        given = zip(func._schema.arguments, args, strict=False)
        written = [value for argument, value in given if _is_written(argument)]
        written += [kwargs[each.name] for each in func._schema.arguments if each.name in kwargs and _is_written(each)]
        return any(self._is_from_before(value) for value in tree_leaves(written))

    def _is_from_before(self, value: Any) -> bool:
        """Return whether a value is a tensor from before the call, or a view of one."""
        if not isinstance(value, FakeTensor):
            return isinstance(value, torch.Tensor)
        storage: Any = value.untyped_storage()
        return storage._cdata in self._before


def run_eager(code: ProblemCode, model: torch.nn.Module, inputs: list[Any]) -> EagerRun:
    """Run a model at the full size without computing if possible; returns what was collected.

    `inputs`: those of the problem. Only their forms are used; if the model has to compute, others are drawn.
    """
    try:
        with unchanged(model) as kept:  # a tensor without values that the model keeps would end the process later
            with no_values(allow_non_fake_inputs=True), torch.no_grad():
                run = _followed(code, model, as_fake(inputs))
            run.may_keep |= kept.has_opaque or bool(kept.changed())
            return run
    except Exception:  # noqa: BLE001 (data-dependent operators do not run on fake tensors: count a real run)
        torch.manual_seed(0)
        inputs = code.inputs()
        run = EagerRun()
        run.may_keep = True  # with values throughout, nothing tells what was there before
        with unchanged(model), torch.no_grad(), run:
            results = code.call(lambda: model(*inputs))
        run.needed_bytes = _bytes_of(inputs, model, results)
    return run


def follow(code: ProblemCode) -> EagerRun:
    """Follow a problem at its own size, with neither values nor memory for inputs and weights.

    Any exception of its code passes through, also of a constructor that reads values.
    """
    with no_values(allow_non_fake_inputs=True), torch.no_grad():
        return _followed(code, code.model(0), as_fake(code.inputs()))


def _followed(code: ProblemCode, model: torch.nn.Module, inputs: list[Any]) -> EagerRun:
    run = EagerRun(model)
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


def _is_written(argument: Any) -> bool:
    """Return whether an operator writes to an argument; a batch normalisation does without saying so."""
    alias = argument.alias_info
    return (alias is not None and alias.is_write) or argument.name in ("running_mean", "running_var")
