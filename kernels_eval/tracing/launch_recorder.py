"""Tracing process: records each kernel launch with its arguments and grid, without running it.

Autotuners, heuristics and grids given as functions run here, because they are host code. Clocks have no meaning here
(kernels_eval.tracing.chance): the judge chooses the configuration of an autotuned kernel
(kernels_eval.tracing.autotuning).
"""

import inspect
import linecache
import operator
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels_eval.interpreter.triton_patches.names import (
    OPTIONS,
    WarmedKernel,
    has_allocator,
    pre_run_hooks,
    replace_launcher,
    stand_for_compiled,
    watch_definitions,
)
from kernels_eval.sandbox.candidate_source import line_of_candidate
from kernels_eval.trace.schema import MAX_LAUNCHES
from kernels_eval.tracing.autotuning import Autotuning
from kernels_eval.tracing.kernel_sources import KernelSources, UnknownGlobalError, sequence_of
from kernels_eval.tracing.tracer import Tracer

_MAX_OPTION = 1 << 30
_DEEPEST_TENSOR = 3
"""Attributes of attributes in which the tensor of an object is looked for."""
_OF_THE_TARGET = ("arch", "ptx_version", "ptx_options", "ir_override", "backend_name", "instrumentation_mode")
_NO_DEVICE = "a tensor that forward creates needs `device=`, as in torch.empty(n, device=x.device)"


class KernelArgumentError(Exception):
    """Launch that Triton's own launcher would refuse."""


class LaunchRecorder:
    """Replaces Triton's launcher."""

    def __init__(self, tracer: Tracer, sources: KernelSources) -> None:
        self._tracer = tracer
        self._sources = sources
        self._signatures: dict[Any, inspect.Signature] = {}
        self._launches = 0
        self.autotuning = Autotuning()

    def start(self) -> None:
        """Begin another forward call."""
        self._launches = 0

    def install(self) -> None:
        """Record every launch of this process from now on."""

        def run(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
            if warmup:
                return _Warmed(self, kernel, kwargs)
            for hook in pre_run_hooks(kernel):
                hook(*args, **kwargs)
            self.launch(kernel, args, kwargs, grid)
            return _Warmed(self, kernel, kwargs)

        replace_launcher(run)
        stand_for_compiled()
        watch_definitions(_check_readers)
        self.autotuning.install()

    def launch(self, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any) -> None:
        """Record one launch."""
        self._launches += 1
        if self._launches > MAX_LAUNCHES:
            raise RuntimeError(f"more than {MAX_LAUNCHES} kernel launches in one forward call")
        signature = self._signatures.get(kernel)
        if signature is None:
            signature = self._signatures[kernel] = inspect.signature(kernel.fn)
        known = signature.parameters
        bound = signature.bind(*args, **{name: value for name, value in kwargs.items() if name in known})
        bound.apply_defaults()
        arguments: dict[str, Any] = dict(bound.arguments)
        _check_numbers(arguments, known)
        options = {name: value for name, value in kwargs.items() if name not in known}
        _check_options(options)
        number = self._sources.number_of(kernel)
        if not kernel.fn.__name__.isascii():
            raise KernelArgumentError(f"invalid function identifier: {kernel.fn.__name__}: a kernel's name is ASCII")
        encoded = {name: self._encode(value, name) for name, value in arguments.items()}
        self._tracer.command(
            {
                "kind": "launch",
                "kernel": number,
                "arguments": encoded,
                "reached": self._tracer.addresses.reached(),
                "grid": _grid(grid, arguments),
                "options": {
                    name: int(value)
                    for name, value in options.items()
                    if isinstance(value, int) and abs(value) < _MAX_OPTION
                },
                "line": line_of_candidate(),
                "has_allocator": has_allocator(),
                "tuned": self.autotuning.current,
            }
        )

    def _encode(self, value: Any, name: str) -> dict[str, Any]:
        if isinstance(value, torch.Tensor):
            return self._tensor(value, name)
        if isinstance(value, TensorDescriptor):
            return {
                "kind": "descriptor",
                "base": self._tensor(value.base, name),
                "shape": [int(size) for size in value.shape],
                "strides": [int(stride) for stride in value.strides],
                "block_shape": [int(size) for size in value.block_shape],
                "padding": value.padding,
            }
        if isinstance(value, tuple):
            return sequence_of(value, [self._encode(item, name) for item in value])
        if callable(getattr(value, "data_ptr", None)):
            return self._encode(_tensor_behind(value), name)
        if isinstance(value, list):
            raise TypeError(f"unhashable type: 'list': argument {name} of a launch has to be a tuple")
        self._tracer.addresses.put_number(value)
        try:
            return self._sources.encode(value)
        except UnknownGlobalError as error:
            raise KernelArgumentError(f"argument {name}: {error}") from error

    def _tensor(self, value: torch.Tensor, name: str) -> dict[str, Any]:
        """Describe a tensor that a kernel gets. Raises ValueError, as Triton's launcher does, for one of the host."""
        handle = self._tracer.promote(value)
        if handle.kernels_eval_memory.is_on_host and handle.numel():  # an empty one has no address
            raise ValueError(f"Pointer argument {name} cannot be accessed from Triton (cpu tensor?): {_NO_DEVICE}")
        return self._tracer.view_of(handle)


def _tensor_behind(value: Any) -> torch.Tensor:
    """Return the tensor of an object that has an address and a type, which Triton takes for a tensor.

    It is looked for in the object's attributes, and in theirs. Raises KernelArgumentError if none has that address.
    """
    waiting, address = [(value, 0)], value.data_ptr()
    for held, depth in waiting:
        if isinstance(held, torch.Tensor):
            if held.data_ptr() == address and held.dtype == value.dtype:
                return held
        elif depth < _DEEPEST_TENSOR:
            waiting += [(each, depth + 1) for each in getattr(held, "__dict__", {}).values()]
    kind = type(value).__name__
    raise KernelArgumentError(f"a {kind} with a data_ptr of its own holds no tensor of this address and this type")


class _Warmed(WarmedKernel):
    """Result of `kernel.warmup(...)` or of a launch: metadata that host code may read, and a kernel to launch."""

    def __init__(self, recorder: LaunchRecorder, kernel: Any, fixed: dict[str, Any]) -> None:
        self.kernels_eval_recorder = recorder
        self._kernel = kernel
        self._fixed = fixed
        self.metadata = _Metadata()

    def __getitem__(self, grid: Any) -> Any:
        """Return the launcher, as `kernel[grid]` does; compile-time arguments are those of the warm-up."""
        names = list(inspect.signature(self._kernel.fn).parameters)

        def launch(*args: Any, **kwargs: Any) -> None:
            given = dict(zip(names, args, strict=False)) | kwargs
            self.kernels_eval_recorder.launch(self._kernel, (), self._fixed | given, grid)

        return launch


class _Metadata:
    shared = 128
    """Bytes: a word for each of 32 warps, as a reduction takes at least. Host code divides by it."""
    num_warps = 4


def _readers() -> list[Any]:
    """Return the functions by which Triton reads a kernel's source where it compiles it."""
    return [inspect.getsourcelines, inspect.getsource, inspect.findsource, inspect.getsourcefile, inspect.unwrap,
            linecache.getlines, linecache.getline, linecache.updatecache, linecache.checkcache]  # fmt: skip


_READERS = _readers()


def _check_readers() -> None:
    """Raise KernelArgumentError if the candidate decides what Triton reads: another text than was submitted."""
    if any(now is not before for now, before in zip(_readers(), _READERS, strict=True)):
        raise KernelArgumentError("a function that reads the source of kernels was replaced")


def _check_numbers(arguments: Mapping[str, Any], parameters: Mapping[str, inspect.Parameter]) -> None:
    """Raise TypeError, as Triton's launcher does, for numbers of NumPy's that are no compile-time arguments."""
    for name, value in arguments.items():
        is_number = isinstance(value, np.generic) and not isinstance(value, float)
        if is_number and "constexpr" not in str(parameters[name].annotation):
            raise TypeError(f"failed to specialize argument {name} of type: numpy.{type(value).__name__}")


def _check_options(options: Mapping[str, Any]) -> None:
    """Raise KernelArgumentError for what Triton's launcher refuses: options that no vendor has, an odd `num_warps`."""
    unknown = next((name for name in options if name not in OPTIONS), None)
    if unknown is not None:
        raise KernelArgumentError(f"KeyError: Keyword argument {unknown} was specified but unrecognised")
    own = next((name for name in _OF_THE_TARGET if options.get(name) is not None), None)
    if own is not None:
        raise KernelArgumentError(f"option {own} is refused: the judge decides what a kernel is compiled for, and how")
    warps = options.get("num_warps")
    if warps is not None and (not isinstance(warps, int) or warps <= 0 or warps & (warps - 1)):
        raise KernelArgumentError(f"AssertionError: num_warps must be a power of 2, found {warps}")


def _grid(grid: Any, arguments: dict[str, Any]) -> list[int]:
    """Return the three sizes of a grid. Raises TypeError where Triton's launcher does, which takes its length."""
    if callable(grid):
        grid = grid(arguments)
    if not hasattr(grid, "__len__"):
        kind = type(grid).__name__
        raise TypeError(f"object of type '{kind}' has no len(): a grid is a tuple, e.g. (n,), or a function to one")
    sizes = [operator.index(size) for size in grid]
    if not 1 <= len(sizes) <= 3:
        raise KernelArgumentError(f"a grid has one to three sizes, found {len(sizes)}")
    if min(sizes) < 0:
        raise KernelArgumentError(f"a grid's sizes cannot be negative: {tuple(sizes)}")
    return sizes + [1] * (3 - len(sizes))
