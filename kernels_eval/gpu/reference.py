"""Reference of one problem on a GPU, in the judge's worker: inputs, reference and float64 oracle are on the device.

Shapes and the reduced leading size are found on the CPU (kernels_eval.reference.reference); models move to the device
when first used.
"""

import contextlib
import copy
import itertools
import random
from collections.abc import Callable, Generator, Sequence
from typing import Any, Self

import torch

from kernels_eval.correctness.outputs import Expected, ReferenceFailedError, flat, unbounded
from kernels_eval.gpu.device import cuda_driver
from kernels_eval.gpu.device.worker_memory import available_bytes
from kernels_eval.gpu.index_ranges import CheckedRanges
from kernels_eval.gpu.input_kinds import InputKinds
from kernels_eval.gpu.input_parts import (
    Group,
    Period,
    Spread,
    as_floats,
    dense,
    drawn_fraction,
    drawn_group,
    mix_parts,
    spread_of,
    vary_parts_of_calls,
    whole_range,
    with_fraction,
)
from kernels_eval.gpu.large_elements import add_spikes, make_sparse
from kernels_eval.gpu.wide_convolutions import WideConvolutions
from kernels_eval.reference.factories import MixedDraws, PlainDraws
from kernels_eval.reference.inputs import SecretSeed, copied, varied_if_constant
from kernels_eval.reference.reference import Reference
from kernels_eval.reference.weights import trained
from kernels_eval.sandbox.tensor_bytes import TensorForm

_QUIET = 1 / 64
"""Factor of all inputs but one."""
_MARKED = 4096
_NARROW_AT_ONCE = 1 << 26
"""Elements of eight bits that are floats at once."""
_MODES = {"compile": None, "max-autotune": "max-autotune-no-cudagraphs"}
"""Modes of torch.compile by baseline. A graph saves launches, which are not timed, and copies its inputs, which are."""
_LARGE, _LARGE_COPIES = 2.0**17, 4
"""Factor of large inputs, and the memory of finding out if a problem takes them, in multiples of inputs and models."""
_WITH_RANGE = (torch.float32, torch.bfloat16, torch.float64)
_ORACLE_COPIES = 3
"""Inputs, outputs and intermediate results in float64, in multiples of inputs and outputs."""


class GpuReference(Reference):
    """One problem, executed on the device. Raises ReferenceFailedError if the problem's code fails."""

    def __init__(self, source: str, weight_seed: int) -> None:
        super().__init__(source, weight_seed)
        self._on_device: dict[bool, torch.nn.Module] = {}
        self._timed: dict[tuple[bool, str], Any] = {}
        self._spreads: dict[int, Spread] = {}
        """By input."""
        self._structured: bool | None = None
        self._own_forms: list[tuple[Any, Any] | None] = []
        self._own_marks: list[float] = []
        """Of one draw: inputs with the same mark in another one are no draws."""
        self._is_scalable = True
        self.kinds = InputKinds(self)
        """Kinds of inputs that it takes."""
        self.has_fractions = True
        """Of whole numbers, in inputs in parts."""
        self.only_constants = False
        """Inputs of another distribution are as drawn, but for constants."""
        self._is_whole: dict[int, bool] = {}
        """By input: floats with a structure that are whole numbers of a range."""
        self._is_placed = False
        """It is known where the problem's code makes its tensors."""

    def with_weights(self, weight_seed: int) -> "GpuReference":
        """Return the same problem with weights of another seed, with models of its own on the device."""
        return GpuReference(self.source, weight_seed)

    def trained(self, generator: torch.Generator) -> Self:
        """Return the same problem after a step of training, with a model of its own on the device.

        Of the host's model: timed calls of the one on the device may have left there what they made of its weights.
        """
        other = copy.copy(self)
        as_drawn = copy.deepcopy(super()._model(True)).to(cuda_driver.DEVICE)
        other._on_device, other._timed, other._doubles = {True: trained(as_drawn, generator)}, {}, {}
        return other

    def state(self, perturbed: bool) -> dict[str, torch.Tensor]:
        """Return parameters and buffers by name: the perturbed ones on the device, the others on the host."""
        model = self._model(True) if perturbed else super()._model(False)
        return {**dict(model.named_parameters()), **dict(model.named_buffers())}

    @property
    def device_bytes(self) -> int:
        """Bytes that the models take on the device at most: with given and perturbed weights, each with its oracle."""
        return 2 * 3 * sum(tensor.numel() * tensor.element_size() for tensor in self.state(False).values())

    @property
    def input_bytes(self) -> int:
        """Bytes of one input set."""
        return sum(form.nbytes for form in self.full_forms if isinstance(form, TensorForm))

    def draw(self, size: int | None, trial: int, seed: SecretSeed, own: bool, only_constant: bool = False) -> list[Any]:
        """Draw the inputs of one trial on the device."""
        with torch.device(cuda_driver.DEVICE):
            return super().draw(size, trial, seed, own, only_constant)

    def draw_as(self, kind: str, trial: int, seed: SecretSeed) -> list[Any] | None:
        """Draw full-size inputs of a kind (`KINDS`); None where the problem has none of it."""
        if kind == "parts":
            return self.draw_in_parts(trial, seed)
        if kind == "sparse":
            return self.draw_sparse(trial, seed)
        if kind == "quiet":
            return self.draw_quiet(trial, seed)
        other = kind == "other"
        return self.draw(None, trial, seed, own=not other, only_constant=other and self.only_constants)

    def draw_sparse(self, trial: int, seed: SecretSeed) -> list[Any]:
        """Draw full-size inputs of which few elements are far from zero, all in the range of the problem's own.

        Constants are varied.
        """
        values, is_plain = self._drawn(trial, seed)
        generator = self._generator(seed, trial)
        for index in itertools.compress(range(len(values)), is_plain):
            before = values[index]
            with torch.device(cuda_driver.DEVICE):
                values[index] = varied_if_constant(before, True, generator)
            if values[index] is before and before.numel():
                with dense(before.detach()) as value, as_floats(value) as wide:
                    make_sparse(wide, generator, spread_of(wide))
        return values

    def draw_quiet(self, trial: int, seed: SecretSeed) -> list[Any] | None:
        """Draw full-size inputs of which all but one, secretly, are 64 times smaller; None where there is but one.

        A term of that one which is below the tolerance beside the others' is then above it.
        """
        values, is_plain = self._drawn(trial, seed)
        plain = list(itertools.compress(range(len(values)), is_plain))
        if len(plain) < 2:
            return None
        del plain[seed.number("loud", trial) % len(plain)]
        for index in plain:
            with as_floats(values[index].detach()) as wide:
                wide.mul_(_QUIET)
        return values

    def guarded_results(self, inputs: list[Any]) -> list[torch.Tensor]:
        """Return what `results` does. What would end the CUDA context raises ReferenceFailedError."""
        with self._guarded():
            return self.results(inputs)

    def in_own_precision(self, inputs: list[Any], perturbed: bool) -> Expected:
        """Run the reference on a copy of one input set. What would end the CUDA context raises ReferenceFailedError."""
        with self._guarded():
            return super().in_own_precision(inputs, perturbed)

    @contextlib.contextmanager
    def _guarded(self) -> Generator[None]:
        """Have the model raise for an index or a probability out of range, as it does on a host."""
        self._code.guard = CheckedRanges
        try:
            yield
        finally:
            self._code.guard = contextlib.nullcontext

    def draw_in_parts(self, trial: int, seed: SecretSeed, stretched: bool = False) -> list[Any]:
        """Draw full-size inputs of the problem's own distribution, in secret parts (kernels_eval.gpu.input_parts).

        Those that `draw_mixed` leaves as they are have parts, too. `stretched`: these are far from each other.
        """
        group = drawn_group(seed.number("places", trial))
        values, is_plain = self.draw_mixed(trial, seed, group.period)
        for index, value in enumerate(values):
            if is_plain[index]:
                with dense(value.detach()) as own:
                    self.vary_calls(index, own[None], [True], [group], stretched)
        return values

    def draw_mixed(self, trial: int, seed: SecretSeed, period: Period | None) -> tuple[list[Any], list[bool]]:
        """Draw full-size inputs of which those with a structure are made of draws in parts, and keep it.

        Whole numbers get a fraction. Returns also which inputs have no structure: they are as the problem draws them.
        """
        places = random.Random(seed.number("parts", trial))
        fraction = drawn_fraction(places)
        mixing = MixedDraws(lambda value, again, is_even: mix_parts(value, again, places, is_even, period))
        with mixing if self._has_structure(seed) else contextlib.nullcontext():
            values, is_plain = self._drawn(trial, seed)
        if self._forms_of(values) != self._own_forms:
            values, is_plain = self._drawn(trial, seed)
        for index, value in enumerate(values):
            is_tensor = isinstance(value, torch.Tensor) and not is_plain[index]
            if is_tensor and self.has_fractions and self._is_whole.get(index, True):
                is_drawn = index in self._is_whole or _mark(value) != self._own_marks[index]
                extremes = whole_range(value) if is_drawn else None
                self._is_whole[index] = extremes is not None
                if extremes is not None:
                    values[index] = with_fraction(value.detach(), extremes, fraction)
        return values, is_plain

    def vary_calls(
        self,
        index: int,
        values: torch.Tensor,
        changes: Sequence[bool],
        groups: Sequence[Group],
        stretched: bool = False,
    ) -> None:
        """Give an input without a structure parts, (calls, …), in place.

        `changes`: calls that have them; `groups`: those of the calls, in turn.
        """
        step = max(1, _NARROW_AT_ONCE // max(values[0].numel(), 1)) if values.dtype.itemsize == 1 else len(values)
        for first in range(0, len(values), step):
            changed = changes[first : first + step]
            if not any(changed):
                continue
            with as_floats(values[first : first + step]) as wide:
                if index not in self._spreads and wide.numel():
                    self._spreads[index] = spread_of(wide[changed.index(True)])
                turn = first % len(groups)
                in_turn = [*groups[turn:], *groups[:turn]]
                vary_parts_of_calls(wide, changed, in_turn, stretched, self._spreads.get(index))

    def _has_structure(self, seed: SecretSeed) -> bool:
        """Return whether an input is made of draws otherwise than by scaling and reshaping them."""
        if self._structured is None:
            values, is_plain = self._drawn(-1, seed)
            self._own_forms, self._own_marks = self._forms_of(values), list(map(_mark, values))
            tensors = zip(values, is_plain, strict=True)
            self._structured = any(isinstance(value, torch.Tensor) and not plain for value, plain in tensors)
        return self._structured

    @staticmethod
    def _forms_of(values: list[Any]) -> list[tuple[Any, Any] | None]:
        return [(value.shape, value.dtype) if isinstance(value, torch.Tensor) else None for value in values]

    def draw_spiked(self, trial: int, seed: SecretSeed, factor: float) -> list[Any]:
        """Draw full-size inputs of the problem's own distribution, with large elements at secret places.

        Each of 64 equal parts of every input without structure has one element of `factor` times its mean magnitude, or
        up to a quarter more: a kernel that leaves a part out is wrong, also where the mean of the rest is the same.
        """
        values, is_plain = self._drawn(trial, seed)
        generator = self._generator(seed, trial)
        for value in itertools.compress(values, is_plain):
            with dense(value.detach()) as own, as_floats(own) as wide:
                add_spikes(wide, factor, generator)
        return values

    def draw_large(self, trial: int, seed: SecretSeed) -> list[Any] | None:
        """Draw full-size inputs of 2^17 times the problem's own size, where each result is then the same times 2^17k.

        Bit for bit, with k of 1 or 2, as of a product or a sum. None elsewhere: a function that bends has no such size.
        """
        if not self._is_scalable or _LARGE_COPIES * self.input_bytes > available_bytes():
            return None
        values, is_plain = self._drawn(trial, seed)
        plain = list(itertools.compress(values, is_plain))
        self._is_scalable = bool(plain) and all(value.dtype in _WITH_RANGE for value in plain)
        if not self._is_scalable:
            return None
        large = [value * _LARGE if plain else value for value, plain in zip(values, is_plain, strict=True)]
        try:
            pairs = zip(self.guarded_results(values), self.guarded_results(copied(large)), strict=True)
            self._is_scalable = all(itertools.starmap(_is_multiple, pairs))
        except (ReferenceFailedError, torch.cuda.OutOfMemoryError):
            self._is_scalable = False
        return large if self._is_scalable else None

    def _drawn(self, trial: int, seed: SecretSeed) -> tuple[list[Any], list[bool]]:
        """Draw full-size inputs of the problem's own distribution; returns also which are floats without structure."""
        torch.manual_seed(seed.number("inputs", trial))
        with torch.device(cuda_driver.DEVICE), PlainDraws() as origin:
            values = self._placed(self._reduction.inputs(None))
        return values, [
            isinstance(value, torch.Tensor) and value.dtype.is_floating_point and origin.is_plain(value)
            for value in values
        ]

    def _placed(self, values: list[Any]) -> list[Any]:
        return [value.to(cuda_driver.DEVICE) if isinstance(value, torch.Tensor) else value for value in values]

    def _generator(self, seed: SecretSeed, trial: int) -> torch.Generator:
        return torch.Generator(cuda_driver.DEVICE).manual_seed(seed.number("values", trial))

    def forward(self, perturbed: bool, baseline: str) -> Any:
        """Return what is timed under a baseline: the model itself, or `torch.compile` of it."""
        model = self._model(perturbed)
        key = perturbed, baseline
        if key not in self._timed:
            timed: Any = model if baseline == "eager" else torch.compile(model, mode=_MODES[baseline])
            self._timed[key] = timed if self._code.default_device is None else _on_device(timed)
        return self._timed[key]

    def first_results(self, inputs: Callable[[], list[Any]]) -> list[torch.Tensor]:
        """Return what `results` does, and learn if the problem's code needs a device for tensors that name none.

        One that was written on a machine without a GPU may name no device. `inputs`: draws them. Raises
        ReferenceFailedError if the code fails either way.
        """
        failed: ReferenceFailedError | None = None
        for device in (self._code.default_device,) if self._is_placed else (None, cuda_driver.DEVICE):
            self._code.default_device = device
            try:
                outputs = self.results(inputs())
            except ReferenceFailedError as error:
                failed = failed or error.with_traceback(None)  # its frames hold tensors
                continue
            if all(value.device.type == cuda_driver.DEVICE for value in outputs):
                self._is_placed = True
                return outputs
            failed = failed or ReferenceFailedError("the reference returns a tensor that is not on the GPU")
        self._code.default_device = None
        assert failed is not None
        raise failed

    def results(self, inputs: list[Any]) -> list[torch.Tensor]:
        """Return the outputs in the reference's own precision, with perturbed weights. May change the inputs."""
        return [value.contiguous() for value in self._code.run(self._model(True), inputs)[0]]

    @staticmethod
    def listed(result: Any) -> list[torch.Tensor]:
        """Return what a call of `forward` gave as `results` does."""
        return [value.detach().contiguous() for value in flat(result)[0]]

    def _oracle(self, inputs: list[Any], perturbed: bool, native: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return the outputs in float64, or the native ones if that takes too much memory."""
        widened = 8 * sum(value.numel() for value in (*inputs, *native) if isinstance(value, torch.Tensor))
        if _ORACLE_COPIES * widened > available_bytes():
            return native
        try:
            with WideConvolutions():
                return super()._oracle(inputs, perturbed, native)
        except torch.cuda.OutOfMemoryError:  # more intermediate results than estimated
            return native

    def _model(self, perturbed: bool) -> torch.nn.Module:
        if not hasattr(self, "_on_device"):  # while the base class looks at shapes, all is on the host
            return super()._model(perturbed)
        if perturbed not in self._on_device:
            self._on_device[perturbed] = copy.deepcopy(super()._model(perturbed)).to(cuda_driver.DEVICE)
        return self._on_device[perturbed]


def _on_device(forward: Any) -> Any:
    """Return the function with the device for tensors that name none."""

    def on_device(*inputs: Any) -> Any:
        with torch.device(cuda_driver.DEVICE):
            return forward(*inputs)

    return on_device


def _mark(value: Any) -> float:
    """Return a number by which draws of an input differ, of its first elements."""
    if not isinstance(value, torch.Tensor) or value.dtype.is_complex:
        return 0.0
    first = value.detach()[:_MARKED] if value.dim() else value.detach()
    first = first.reshape(-1)[:_MARKED].double()
    return float((first * torch.arange(1, len(first) + 1, device=value.device)).sum())


def _is_multiple(value: torch.Tensor, large: torch.Tensor) -> bool:
    """Return True if a result for large inputs is `_LARGE` or its square times that for the own ones, bit for bit."""
    if not value.dtype.is_floating_point:
        return torch.equal(value, large)
    if value.dtype.itemsize == 1:  # no range for such results, and no product on a GPU
        return False
    return not unbounded(large) and any(torch.equal(value * factor, large) for factor in (_LARGE, _LARGE**2))
