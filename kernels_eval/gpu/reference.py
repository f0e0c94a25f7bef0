"""Reference of one problem on a GPU, in the judge's worker: inputs, reference and float64 oracle are on the device.

Shapes and the reduced leading size are found on the CPU (kernels_eval.reference.reference); models move to the device
when first used.
"""

import contextlib
import copy
import itertools
import random
from collections.abc import Callable, Generator
from typing import Any

import torch

from kernels_eval.correctness.outputs import Expected, ReferenceFailedError, flat, unbounded
from kernels_eval.correctness.tolerance import least_size, size_of
from kernels_eval.gpu.device import cuda_driver
from kernels_eval.gpu.device.worker_memory import available_bytes
from kernels_eval.gpu.input_parts import (
    Spread,
    dense,
    drawn_fraction,
    drawn_period,
    make_sparse,
    mix_parts,
    spread_of,
    vary_parts,
    whole_range,
    with_fraction,
)
from kernels_eval.gpu.wide_convolutions import WideConvolutions
from kernels_eval.reference.factories import MixedDraws, PlainDraws
from kernels_eval.reference.inputs import SecretSeed, copied, varied_if_constant
from kernels_eval.reference.reference import Reference
from kernels_eval.sandbox.tensor_bytes import TensorForm

SPIKES = 64
_PLAIN_TRIALS, _PART_TRIALS, _OTHER_TRIALS = 2, 4, 3
_MARKED = 4096
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
        self._most_unbounded: int | None = None
        """Elements without a finite value that the problem's own inputs have in the outputs; None: not counted yet."""
        self._own_sizes: list[float] = []
        """Mean magnitudes of the outputs for the problem's own inputs."""
        self._takes_parts: bool | None = None
        self._takes_others: bool | None = None
        self._takes_sparse: bool | None = None
        """None: not tried yet."""
        self._takes_fractions = True
        self._is_whole: dict[int, bool] = {}
        """By input: floats with a structure that are whole numbers of a range."""
        self._only_constant = False
        self._is_placed = False
        """It is known where the problem's code makes its tensors."""

    def with_weights(self, weight_seed: int) -> "GpuReference":
        """Return the same problem with weights of another seed, with models of its own on the device."""
        return GpuReference(self.source, weight_seed)

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

    def takes_parts(self, seed: SecretSeed) -> bool:
        """Return whether inputs in parts have no more elements without a finite value in the outputs than the others.

        Tries it once, without fractions of whole numbers if the reference does not take these; `is_beyond` may find out
        later.
        """
        if self._takes_parts is None:
            self._takes_parts = self._takes_fractions_too(seed) or self._takes(self.draw_in_parts, _PART_TRIALS, seed)
        return self._takes_parts

    def _takes_fractions_too(self, seed: SecretSeed) -> bool:
        with contextlib.suppress(ReferenceFailedError):  # it looks at them
            self._takes_fractions = self._takes(self.draw_in_parts, _PART_TRIALS, seed)
            return self._takes_fractions
        self._takes_fractions = False
        return False

    def _takes(self, draw: Callable[[int, SecretSeed], list[Any]], trials: int, seed: SecretSeed) -> bool:
        """Return whether drawn inputs have no more elements without a finite value in the outputs than the own ones."""
        return all(self._unbounded(draw(-1 - trial, seed)) <= self._own_unbounded(seed) for trial in range(trials))

    def takes_others(self, seed: SecretSeed) -> bool:
        """Return the same of inputs of other distributions, or, where they do not do, of varied constants alone."""
        if self._takes_others is None:
            self._takes_others = self._takes_other(seed)
            if not self._takes_others:
                self._only_constant = True
                self._takes_others = self._takes_other(seed)
        return self._takes_others

    def _takes_other(self, seed: SecretSeed) -> bool:
        try:
            return self._takes(self.draw_other, _OTHER_TRIALS, seed)
        except ReferenceFailedError:  # an index out of range
            return False

    def draw_other(self, trial: int, seed: SecretSeed) -> list[Any]:
        """Draw full-size inputs of another distribution, as trials do, or with varied constants alone."""
        return self.draw(None, trial, seed, own=False, only_constant=self._only_constant)

    def takes_sparse(self, seed: SecretSeed) -> bool:
        """Return the same of sparse inputs."""
        if self._takes_sparse is None:
            self._takes_sparse = False
            with contextlib.suppress(ReferenceFailedError):  # a varied constant out of range
                self._takes_sparse = self._takes(self.draw_sparse, 1, seed)
        return self._takes_sparse

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
                with dense(before.detach()) as value, _as_floats(value) as wide:
                    make_sparse(wide, generator, spread_of(wide))
        return values

    def is_beyond(self, expected: Expected, in_parts: bool) -> bool:
        """Return whether a call's inputs, in parts or others, are more than the problem takes: no more are drawn."""
        is_beyond = sum(map(unbounded, expected.native)) > (self._most_unbounded or 0)
        if is_beyond and in_parts:
            self._takes_parts = False
        elif is_beyond:
            self._takes_others = self._takes_sparse = False
        return is_beyond

    @property
    def least_sizes(self) -> list[float]:
        """Sizes to which outputs for other inputs are held at least: where terms cancel, no digits are left."""
        return [least_size(size) for size in self._own_sizes]

    def _own_unbounded(self, seed: SecretSeed) -> int:
        """Return how many elements of the outputs have no finite value for the problem's own inputs, at most."""
        if self._most_unbounded is None:
            found = 0
            for trial in range(_PLAIN_TRIALS):
                outputs = self.results(self.draw(None, -1 - trial, seed, own=True))
                found = max(found, sum(map(unbounded, outputs)))
                self._own_sizes = list(map(size_of, outputs))
                del outputs  # the next ones need their memory
            self._most_unbounded = found
        return self._most_unbounded

    def _unbounded(self, inputs: list[Any]) -> int:
        return sum(map(unbounded, self.results(inputs)))

    def draw_in_parts(self, trial: int, seed: SecretSeed, stretched: bool = False) -> list[Any]:
        """Draw full-size inputs of the problem's own distribution, in secret parts (kernels_eval.gpu.input_parts).

        Inputs without a structure are changed. Those with one are made of draws in parts, and keep it; whole numbers
        get a fraction. `stretched`: parts of those without are far from each other.
        """
        places = random.Random(seed.number("parts", trial))
        period, fraction = drawn_period(places), drawn_fraction(places)
        mixing = MixedDraws(lambda value, again, is_even: mix_parts(value, again, places, is_even, period))
        with mixing if self._has_structure(seed) else contextlib.nullcontext():
            values, is_plain = self._drawn(trial, seed)
        if self._forms_of(values) != self._own_forms:
            values, is_plain = self._drawn(trial, seed)
        for index, value in enumerate(values):
            if is_plain[index]:
                with dense(value.detach()) as own, _as_floats(own) as wide:
                    if index not in self._spreads and wide.numel():
                        self._spreads[index] = spread_of(wide)
                    vary_parts(wide, places, stretched, self._spreads.get(index), period)
            elif self._takes_fractions and isinstance(value, torch.Tensor) and self._is_whole.get(index, True):
                is_drawn = index in self._is_whole or _mark(value) != self._own_marks[index]
                extremes = whole_range(value) if is_drawn else None
                self._is_whole[index] = extremes is not None
                if extremes is not None:
                    values[index] = with_fraction(value.detach(), extremes, fraction)
        return values

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
            with dense(value.detach()) as own, _as_floats(own) as wide:
                _add_spikes(wide, factor, generator)
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
            pairs = zip(self.results(values), self.results(copied(large)), strict=True)
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


@contextlib.contextmanager
def _as_floats(value: torch.Tensor) -> Generator[torch.Tensor]:
    """Give values of eight bits as float32, with which PyTorch computes, and write them back, within their range."""
    if value.dtype.itemsize > 1:
        yield value
        return
    wide = value.float()
    yield wide
    limits = torch.finfo(value.dtype) if value.dtype.is_floating_point else torch.iinfo(value.dtype)
    value.copy_((wide if value.dtype.is_floating_point else wide.round_()).clamp_(limits.min, limits.max))


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
    return not unbounded(large) and any(torch.equal(value * factor, large) for factor in (_LARGE, _LARGE**2))


def _add_spikes(value: torch.Tensor, factor: float, generator: torch.Generator) -> None:
    part = value.numel() // SPIKES
    if part < 2 or not value.is_contiguous():
        return
    within = torch.randint(part, (SPIKES,), generator=generator, device=value.device)
    places = within + part * torch.arange(SPIKES, device=value.device)
    wide = torch.float64 if value.dtype is torch.float64 else torch.float32
    size = torch.linalg.vector_norm(value, 1, dtype=wide) / value.numel() * factor
    # All of them differ: which one of two that are equal comes first is not defined (topk, sort).
    sizes = size * (1 + 0.25 * torch.rand(SPIKES, generator=generator, device=value.device, dtype=wide))
    value.view(-1)[places] = sizes.clamp(max=torch.finfo(value.dtype).max / 4).to(value.dtype)
