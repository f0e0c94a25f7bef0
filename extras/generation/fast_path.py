"""Fast path of a module: the kernel runs exactly where the judge verified it.

That is: constructor arguments equal to `get_init_inputs()`; tensors with the shapes, strides and types of
`get_inputs()`, other arguments equal to theirs; on a GPU (or in Triton's interpreter, TRITON_INTERPRET=1); nothing that
needs a gradient, no autocast; the mode in which the module was constructed, unless no part of it depends on the mode.

The kernel's module is built with the module's own tensors, and again when one of them has changed. A kernel whose
constructor keeps copies of weights, or registers them transposed, does not run: they would have other values.
"""

import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from kernels_eval.correctness.made_of_weights import MadeOfWeights, attributes, key_of
from kernels_eval.errors import InputError
from kernels_eval.reference.weights import WeightMatch, match_weights
from kernels_eval.sandbox.tensor_bytes import NAMES

_Form = tuple[Any, ...]
_WITH_MODES = (
    nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm,
    nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d,
    nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout,
    nn.RReLU, nn.RNNBase, nn.MultiheadAttention,
)  # fmt: skip
"""Parts whose results depend on the mode."""


class FastPath:
    """The kernel of a class."""

    def __init__(
        self, file: Path, get_inputs: Callable[[], Any], get_init_inputs: Callable[[], Any], uses_mode: bool = False
    ) -> None:
        """Import the kernel from `file`. `uses_mode`: the class's source asks for the mode.

        Raises InputError if the file defines no `ModelNew`.
        """
        self._get_inputs, self._get_init_inputs, self._uses_mode = get_inputs, get_init_inputs, uses_mode
        self._forms: list[_Form] | None = None
        self._new = _imported(file)

    def bind(self, module: nn.Module, arguments: Sequence[Any]) -> "BoundKernel | None":
        """Return the kernel for one instance; None if it was not verified for its constructor arguments."""
        verified = list(self._get_init_inputs())
        if len(verified) != len(arguments) or any(
            a is not b and a != b for a, b in zip(verified, arguments, strict=True)
        ):
            return None
        if self._forms is None:
            with torch.device("meta"):  # shapes alone: inputs may be large
                self._forms = [_form(value) for value in self._get_inputs()]
        has_mode = self._uses_mode or any(isinstance(part, _WITH_MODES) for part in module.modules())
        return BoundKernel(lambda: self._new(*arguments), module, self._forms, module.training if has_mode else None)


class BoundKernel:
    """The kernel of one instance."""

    def __init__(
        self, build: Callable[[], nn.Module], module: nn.Module, forms: list[_Form], mode: bool | None
    ) -> None:
        """`forms`: of the forward arguments; `mode`: `training` as it has to be, None: either.

        Raises InputError if the kernel lacks one of the module's parameters or buffers, or keeps copies of its own.
        """
        self._build, self._forms, self._mode = build, forms, mode
        with MadeOfWeights() as made:
            self._kernel = self._built()
        if copies := _copies(self._kernel, made):
            raise InputError(f"its constructor makes {', '.join(copies)} of weights")
        state = {name: (NAMES[value.dtype], tuple(value.shape)) for name, value in _tensors(self._kernel).items()}
        self._match: WeightMatch = match_weights(_tensors(module), state)
        if self._match.missing:
            raise InputError(f"it has nothing for {', '.join(self._match.missing)}")
        self._versions: tuple[Any, ...] | None = None

    def serves(self, module: nn.Module, arguments: Sequence[Any]) -> bool:
        """True if the kernel was verified for this call."""
        if self._mode is not None and module.training is not self._mode:
            return False
        if len(arguments) != len(self._forms):
            return False
        tensors = [*(value for value in arguments if isinstance(value, torch.Tensor)), *_tensors(module).values()]
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            return False
        devices = {tensor.device for tensor in tensors}
        kind = "cpu" if _interpreted() else "cuda"
        if len(devices) != 1 or next(iter(devices)).type != kind or torch.is_autocast_enabled(kind):
            return False
        return all(_form(value) == form for value, form in zip(arguments, self._forms, strict=True))

    def run(self, module: nn.Module, arguments: Sequence[Any]) -> Any:
        """Return the kernel's result."""
        tensors = _tensors(module)
        versions = tuple((tensor.data_ptr(), tensor._version) for tensor in tensors.values())
        if versions != self._versions:
            self._kernel = self._built()  # a kernel may keep what it computed from other values
            self._give(self._kernel, tensors)
            self._versions = versions
        return self._kernel(*arguments)

    def _built(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):  # its own first weights are not drawn from the caller's numbers
            return self._build()

    def _give(self, kernel: nn.Module, tensors: Mapping[str, torch.Tensor]) -> None:
        """Put the module's tensors in the place of the kernel's, and the kernel's others on their device."""
        own = _tensors(kernel)
        device = next((tensor.device for tensor in tensors.values()), None)
        if device is not None:
            kernel.to(device)
        for name, other in self._match.names.items():
            if own[other].dtype != tensors[name].dtype:
                raise InputError(f"{name}: verified as {own[other].dtype}, found {tensors[name].dtype}")
            holder_name, _, key = other.rpartition(".")
            holder: Any = kernel.get_submodule(holder_name)
            place = holder._parameters if key in holder._parameters else holder._buffers
            place[key] = tensors[name]


def _copies(kernel: nn.Module, made: MadeOfWeights) -> list[str]:
    """Return the names of what a constructor keeps beside its weights as copies of them, or in their place."""
    weights = {key_of(value): value for value in _tensors(kernel).values()}
    others = [(name, value) for _, name, value in attributes(kernel) if key_of(value) not in weights]
    beside = [name for name, value in others if made.remake(value, weights, lambda tensor: tensor) is not None]
    return [*made.drawn_for(kernel), *beside]


def _tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _form(value: Any) -> _Form:
    if isinstance(value, torch.Tensor):
        return (value.dtype, tuple(value.shape), value.stride())
    return (type(value), repr(value))


def _interpreted() -> bool:
    return os.environ.get("TRITON_INTERPRET") == "1"


def _imported(file: Path) -> Callable[..., nn.Module]:
    name = f"kernelmill_kernel_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise InputError(f"{file}: expected a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(f"{file}: cannot be imported: {type(error).__name__}: {error}") from error
    found = getattr(module, "ModelNew", None)
    if not isinstance(found, type) or not issubclass(found, nn.Module):
        raise InputError(f"{file}: expected a class ModelNew")
    return found
