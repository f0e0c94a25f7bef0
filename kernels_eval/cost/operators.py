"""Operator counts: the eager reference as launches, over the inputs and outputs of each operator that computes.

Run under FakeTensorMode at the true shape, so that nothing is allocated or computed. Traffic of an operator: the
distinct storages that it reads, once each, plus what it writes. Views and allocations are free. Matrix products count
their operations by PyTorch's own formulas.
"""

import math
from collections.abc import Callable, Container
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from kernels_eval.cost.eager_kernels import kernels_of
from kernels_eval.cost.host_waits import waiting
from kernels_eval.cost.instructions import operations_of, product_operation
from kernels_eval.cost.launch import Launch, Operation
from kernels_eval.cost.shapes_alone import SHAPES

_FREE = frozenset(
    {
        "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view", "_reshape_alias",
        "lift_fresh", "detach", "sym_size", "sym_stride", "sym_numel", "is_same_size", "set_", "resize_",
    }
)  # fmt: skip
_OVERWRITES = frozenset({"copy_", "fill_", "zero_"})
"""Their first argument is written, not read."""
_FUNCTIONS: dict[str, tuple[str, ...]] = {
    **{name: (name,) for name in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "sqrt",
                                  "rsqrt", "erf", "erfc", "tanh", "sinh", "cosh", "asin", "acos", "atan", "atan2",
                                  "asinh", "acosh", "atanh", "pow", "div", "fmod", "lgamma", "abs", "floor", "ceil",
                                  "round", "trunc", "clamp")},
    "reciprocal": ("div",), "sigmoid": ("exp", "div"), "silu": ("exp", "div", "mul"), "gelu": ("erf", "mul", "mul"),
    "elu": ("exp", "select"), "mish": ("exp", "log1p", "tanh"), "softplus": ("exp", "log1p"),
    "_softmax": ("exp", "exp", "max", "div"), "_log_softmax": ("exp", "log", "max", "sub"),
    "logsumexp": ("exp", "max", "add"), "native_layer_norm": ("fma", "fma", "fma"), "rms_norm": ("fma", "fma"),
    "native_group_norm": ("fma", "fma", "fma"),
    "var": ("fma", "fma"), "std": ("fma", "fma"), "var_mean": ("fma", "fma"), "relu": ("max",), "where": ("select",),
    "maximum": ("max",), "minimum": ("min",), "hardtanh": ("clamp",), "copy": (), "clone": (), "fill": (), "zero": (),
    "remainder": ("fmod",), "floor_divide": ("div", "floor"), "_to_copy": ("cast",),
}  # fmt: skip
"""Functions of kernels_eval.cost.instructions that an operator applies to each element; others: one addition."""
_FUSED: dict[Any, Any] = {torch.nn.functional.rms_norm: torch.ops.aten.rms_norm.default}
_RECURRENT = frozenset({torch.gru, torch.lstm, torch.rnn_tanh, torch.rnn_relu})
_ATTENTION = "_scaled_dot_product"
TRITON_TYPES = {
    torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32", torch.float64: "fp64", torch.int8: "int8",
}  # fmt: skip
_BYTES_PER_PROGRAM = 4096
"""PyTorch's element-wise kernels: blocks of 128 threads with 8 fp32 elements each."""
_MOST_PROGRAMS = 1024
"""About the number of blocks that an H100 runs at a time. Further blocks of PyTorch's kernels cost nothing: measured
on an H200 over 20 problems (docs/gpu-judge-measurements.md)."""


class EagerCounter(TorchDispatchMode):
    """Collects the launches of each operator that runs inside."""

    def __init__(self) -> None:
        super().__init__()
        self.launches: list[Launch] = []
        self._touched: dict[int, Any] = {}
        """Storages that operators have read or written. They are kept, since an address may come back."""

        self._on_host: dict[int, Any] = {}
        """Storages of numbers that Python made, and of what was computed of those alone: reading them is no wait."""
        self._functions = _FusedFunctions(self)

    def __enter__(self) -> "EagerCounter":
        """Count what runs from now on."""
        self._functions.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        """Count no longer."""
        super().__exit__(*error)
        self._functions.__exit__(*error)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operator and count it."""
        kwargs = kwargs or {}
        has_values = not (args and isinstance(args[0], FakeTensor))
        name: str = func.overloadpacket.__name__
        run = func if has_values else SHAPES.get(name, func)
        result = run(*args, **kwargs)
        given = [_storage(value) for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
        is_on_host = name == "lift_fresh" or all(each._cdata in self._on_host for each in given)
        if given and is_on_host:
            made = [_storage(value) for value in tree_leaves(result) if isinstance(value, torch.Tensor)]
            self._on_host |= {storage._cdata: storage for storage in made}
        elif name == "_local_scalar_dense":
            self.read(args[0])
        self.add(count_operator(func, args, kwargs, result, self._touched), (args, kwargs, result))
        return result

    def add(self, launches: list[Launch], values: Any) -> None:
        """Note the launches of an operator, and the tensors among `values` as touched."""
        if not launches:
            return
        self.launches += launches
        for value in tree_leaves(values):
            if isinstance(value, torch.Tensor):
                storage = _storage(value)
                self._touched[storage._cdata] = storage

    def read(self, value: torch.Tensor) -> None:
        """Count that host code waits for values, unless they never left the host."""
        if _storage(value)._cdata not in self._on_host:
            self.launches.append(waiting("read"))

    def recurrent(self, func: Any, args: tuple[Any, ...]) -> Any:
        """Count a recurrent network on a sequence without values: its second step stands for all that follow.

        `args`: those of `torch.gru`. A sequence of 512 steps has ten thousand operators, and takes half a minute.
        """
        steps = args[0].shape[int(args[-1])]
        results = _by_first_step(func, args)
        if steps > 1:
            before = len(self.launches)
            _step(func, 1, args)
            self.launches += self.launches[before:] * (steps - 2)
        return results

    def fused(self, func: Any, call: Callable[[], Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Count a function that is one kernel on a GPU as one launch, not as the operators that it consists of."""
        before, touched = len(self.launches), dict(self._touched)
        result = call()
        del self.launches[before:]
        self._touched = touched
        self.add(count_operator(func, args, kwargs, result, touched), (args, kwargs, result))
        return result


class FewSteps(TorchFunctionMode):
    """Runs one step of a recurrent network on a sequence without values, which gives the forms of the results."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one function."""
        return _by_first_step(func, args) if _is_recurrent(func, args) else func(*args, **(kwargs or {}))


def _is_recurrent(func: Any, args: tuple[Any, ...]) -> bool:
    """True for a recurrent network on a sequence without values that is not packed."""
    return func in _RECURRENT and type(args[0]) is FakeTensor and type(args[-1]) is bool


def _by_first_step(func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Run the first step of a recurrent network; returns results of the forms that the whole sequence has."""
    given, time = args[0], int(args[-1])
    first, *states = _step(func, 0, args)
    shape = [given.shape[time] if place == time else size for place, size in enumerate(first.shape)]
    return first.new_empty(shape), *states


def _step(func: Any, number: int, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Run one step of a recurrent network by the operators that it consists of, as a candidate's host code does."""
    was_enabled = torch._C._get_mkldnn_enabled()  # `mkldnn.flags` warns  # pyright: ignore[reportPrivateUsage]
    torch._C._set_mkldnn_enabled(False)  # pyright: ignore[reportPrivateUsage]
    try:
        return func(args[0].narrow(int(args[-1]), number, 1), *args[1:])
    finally:
        torch._C._set_mkldnn_enabled(was_enabled)  # pyright: ignore[reportPrivateUsage]


class _FusedFunctions(TorchFunctionMode):
    """Finds the functions that CUDA runs as one kernel, and that consist of several operators elsewhere."""

    def __init__(self, counter: EagerCounter) -> None:
        super().__init__()
        self._counter = counter

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one function."""
        kwargs = kwargs or {}
        if _is_recurrent(func, args):
            return self._counter.recurrent(func, args)
        if func is torch.Tensor.tolist:  # on the host no operator does it
            self._counter.read(args[0])
        operator = _FUSED.get(func)
        if operator is None:
            return func(*args, **kwargs)
        return self._counter.fused(operator, lambda: func(*args, **kwargs), args, kwargs)


def _storage(tensor: torch.Tensor) -> Any:
    """Return a tensor's storage. Its `_cdata` tells it from others: without values it has no address."""
    return tensor.untyped_storage()


def count_operator(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, touched: Container[int] = ()
) -> list[Launch]:
    """Return the counts of one operator as launches named `aten.…`; none for views and allocations.

    `touched`: addresses of storages that earlier operators read or wrote.
    """
    name: str = func.overloadpacket.__name__
    if func.is_view or name in _FREE:
        return []
    reads: dict[int, int] = {}
    given = tree_leaves((args[1:] if name in _OVERWRITES else args, kwargs))
    inputs = [value for value in given if isinstance(value, torch.Tensor)]
    for value in inputs:
        size = min(value.numel() * value.element_size(), value.untyped_storage().nbytes())
        storage: Any = value.untyped_storage()
        address = storage._cdata  # fake tensors have no address
        reads[address] = max(reads.get(address, 0), size)
    outputs = [value for value in tree_leaves(result) if isinstance(value, torch.Tensor)]
    if not outputs:  # a property of a tensor, e.g. its device
        return []
    written = sum(value.numel() * value.element_size() for value in outputs)
    moved = float(sum(reads.values()) + written)
    largest = float(max([0, *reads.values(), written]))
    launch = Launch(
        kernel=f"aten.{name}"[:200],
        programs=min(_MOST_PROGRAMS, max(1.0, largest / _BYTES_PER_PROGRAM)),
        dram_bytes=moved,
        l2_bytes=moved,
        written_bytes=written,
        again_bytes=sum(size for address, size in reads.items() if address in touched),
        operations=_operations(func, args, kwargs, result, max(tensor.numel() for tensor in [*inputs, *outputs])),
    )
    return kernels_of(launch, func, args, largest, kwargs.get("output_size") is not None)


def _operations(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, elements: int
) -> dict[Operation, float]:
    name: str = func.overloadpacket.__name__
    dtype = next((value.dtype for value in tree_leaves((args, result)) if isinstance(value, torch.Tensor)), None)
    packet: Any = func.overloadpacket
    formula = _attention_flops if name.startswith(_ATTENTION) else flop_registry.get(packet)
    if formula is not None:
        precision = "tf32" if "conv" in name and torch.backends.cudnn.allow_tf32 else "ieee"
        unit, _ = product_operation(TRITON_TYPES.get(dtype or torch.float16, "fp16"), precision)
        return {unit: float(formula(*args, **kwargs, out_val=result))}
    counts: dict[Operation, float] = {}
    exponent = args[1] if name.startswith("pow") and len(args) > 1 else None
    is_power = isinstance(exponent, int | float) and exponent in (2, 3, 0.5, -1)  # these are not `powf`
    for function in ("mul",) if is_power else _FUNCTIONS.get(name.rstrip("_"), ("add",)):
        for unit, count in operations_of(function, dtype is torch.float64):
            counts[unit] = counts.get(unit, 0.0) + count * elements
    return counts


def _attention_flops(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any) -> float:
    """Return the operations of both products of attention; PyTorch's formula takes no keys that heads share."""
    *batches, queries, width = query.shape
    return 2.0 * math.prod(batches) * queries * key.shape[-2] * (width + value.shape[-1])
