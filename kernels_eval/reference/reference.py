"""Worker process: the reference side of one problem: its model, inputs at any size, oracle, and traffic in eager mode.

The candidate's processes never hold a reference.
"""

import copy
import hashlib
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Self

import torch

from kernels_eval.correctness.outputs import Expected, ReferenceFailedError, unbounded
from kernels_eval.correctness.tolerance import compare
from kernels_eval.error_categories import ErrorCategory
from kernels_eval.reference.constructor import Constructor
from kernels_eval.reference.cutting import CallWork, Cut, cut_problem
from kernels_eval.reference.factories import PlainDraws
from kernels_eval.reference.inputs import (
    DISTRIBUTIONS,
    NORMAL,
    WIDE,
    SecretSeed,
    address_of,
    copied,
    redrawn,
    same_bytes,
    varied_if_constant,
    widened,
)
from kernels_eval.reference.problem_code import ProblemCode
from kernels_eval.reference.reduction import MIN_REDUCED, MIN_REDUCED_LONG, MIN_REDUCED_SIMPLE, Reduction
from kernels_eval.reference.repeatable import refuse_if_it_differs
from kernels_eval.reference.weights import (
    GivenWeights,
    WeightMatch,
    add_noise,
    constant_buffers,
    given_weights,
    in_float64,
    match_weights,
    structured_parameters,
    trained,
    vary_constants,
    vary_parameters,
    with_other_values,
)
from kernels_eval.sandbox.child import CandidateFailedError
from kernels_eval.sandbox.messages import StateAnswer
from kernels_eval.sandbox.module_state import plain_state, registered_state
from kernels_eval.sandbox.tensor_bytes import TensorForm
from kernels_eval.verdict import Status

# Trial and error shows if a reference runs on reduced inputs. Its failures are expected, and not worth a log line.
logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)
FIRST_REPEATED_TRIAL = 1001
"""Trial number of the first repeated call."""


class Reference:
    """Executes one problem. Raises ReferenceFailedError if the problem's own code raises, or is random."""

    def __init__(self, source: str, weight_seed: int, may_be_cut: bool = False) -> None:
        """`may_be_cut`: make `cut`, where it is needed."""
        self.source = source
        self.weight_seed = weight_seed
        self.digest = hashlib.sha256(source.encode()).hexdigest()
        self._code = ProblemCode(source)
        self.arguments: list[Any] = self._code.arguments
        self._models: dict[bool, torch.nn.Module] = {False: self._code.model(weight_seed)}
        self._doubles: dict[bool, torch.nn.Module | None] = {}
        self._reduction = Reduction(self._code, self._models[False])
        self.constructor = Constructor(self._code.model, weight_seed)
        self.settings, self.nesting = self._code.settings, self._code.nesting
        self.full_forms = self._reduction.full_forms
        """Inputs at the full size: forms of tensors, and plain values."""
        self.full_size = self._reduction.full_size
        self.can_be_reduced = self._reduction.is_possible
        self.draws_shapes = self._reduction.draws_shapes
        """True if the inputs' shapes differ from draw to draw."""
        eager = self._reduction.eager
        self.eager_launches = eager.launches
        self.needed_bytes = eager.needed_bytes
        """Bytes of inputs, weights and outputs at the full size."""
        self.cut: Reference | None = None
        """The same problem with smaller constants, if its own call is too much to be interpreted."""
        self.cut_sizes: Mapping[str, tuple[int, int]] = {}
        """Constants of the problem that were cut: each with its value now, and the problem's own."""
        if may_be_cut and self.work.is_large and (cut := self._cut_problem()) is not None:
            self.cut, self.cut_sizes = Reference(cut.source, weight_seed), cut.sizes
        else:
            self._refuse_if_it_differs()

    def _refuse_if_it_differs(self) -> None:
        refuse_if_it_differs(self._code, self._models[False], self._reduction.eager, self._small_inputs)

    def _cut_problem(self) -> Cut | None:
        """Return the problem with smaller constants. The rows of a matrix are no batch: they are cut as columns are."""
        first = next((shape for shape in self._reduction.input_shapes if shape is not None), ())
        return cut_problem(self.source, self.full_size if len(first) > 2 else None, self._reduction.eager.output_shapes)

    def with_weights(self, weight_seed: int) -> "Reference":
        """Return the same problem with weights of another seed: with what is known of it, if no value decided that."""
        if self._reduction.eager.output_shapes is None:
            return type(self)(self.source, weight_seed, may_be_cut=self.cut is not None)
        other = copy.copy(self)
        other.weight_seed = weight_seed
        other._models, other._doubles = {False: self._code.model(weight_seed)}, {}
        other.can_be_reduced = self._reduction.is_possible  # this one may have failed on secret inputs since
        if self.cut is not None:
            other.cut = self.cut.with_weights(weight_seed)
        else:
            other._refuse_if_it_differs()
        return other

    def trained(self, generator: torch.Generator) -> Self:
        """Return the same problem after a step of training: trainable parameters have other values."""
        other = copy.copy(self)
        other._models, other._doubles = {**self._models, True: trained(self._model(True), generator)}, {}
        return other

    @property
    def has_square_input(self) -> bool:
        """True if an input is a square matrix. Kernels may rely on it, and reduced inputs are not square."""
        shapes = self._reduction.input_shapes
        return any(shape is not None and len(shape) == 2 and shape[0] == shape[1] for shape in shapes)

    @cached_property
    def loses_equal_sizes(self) -> bool:
        """True if sizes of several inputs that are equal in the problem are no longer so at a reduced size.

        Host code may compare them.
        """
        if not self.can_be_reduced:
            return False
        full, reduced = (_sizes(self._reduction.forms(size)) for size in (None, MIN_REDUCED + 1))
        if len(full) != len(reduced):
            return True
        leading = [after for before, after in zip(full, reduced, strict=True) if before == self.full_size]
        return len(set(leading)) > 1

    @property
    def has_long_rows(self) -> bool:
        """True if one unit of the leading size has more than 65536 input elements: a few units are then enough."""
        return self._reduction.has_long_rows

    @property
    def work(self) -> CallWork:
        """Work of one call at the smallest sizes to which the leading one is reduced, else at the full one."""
        least = MIN_REDUCED_LONG if self.has_long_rows else MIN_REDUCED if self.has_products else MIN_REDUCED_SIMPLE
        is_reduced = self.can_be_reduced and 2 * least < (self.full_size or 0)
        return self._whole_work.share(2 * least / (self.full_size or 1)) if is_reduced else self._whole_work

    @cached_property
    def _whole_work(self) -> CallWork:
        """Work of one call at the full size."""
        work = CallWork.of(self._reduction.eager)
        if not (work.is_large and self.can_be_reduced):  # else nobody asks for a share
            return work
        return CallWork.of(self._reduction.eager, self._reduction.fixed_bytes)

    def largest_size(self, seconds: float, memory_mb: int) -> int | None:
        """Return the leading size, the full one, a half, a quarter … of it, whose call can be interpreted in this time.

        None: not even the smallest can, or inputs, weights and outputs take more than an eighth of the memory.
        """
        size = full_size = self.full_size or 1
        while True:
            share = size / full_size
            fits = self.needed_bytes * share * 8 <= memory_mb * 2**20
            if fits and not self._whole_work.share(share).is_too_large(seconds):
                return size
            if not self.can_be_reduced or size < 2 * MIN_REDUCED_LONG:
                return None
            size //= 2

    @property
    def output_elements(self) -> int:
        """Elements of all outputs at the full size; 0 if they are not known."""
        return CallWork.of(self._reduction.eager).output_elements

    @property
    def has_products(self) -> bool:
        """True if eager execution multiplies matrices."""
        return self.matrix_flops > 0

    @property
    def matrix_flops(self) -> float:
        """Floating-point operations of the matrix products of eager execution."""
        return math.fsum(launch.matrix_flops for launch in self.eager_launches)

    def state(self, perturbed: bool) -> dict[str, torch.Tensor]:
        """Return parameters and buffers by name. `perturbed`: vary those that are constant (ones, zeros)."""
        return registered_state(self._model(perturbed))

    @property
    def plain_state(self) -> dict[str, torch.Tensor]:
        """Tensors in plain attributes by name. Training does not change them: they are never varied."""
        return plain_state(self._models[False])

    def weights_for(self, held: StateAnswer, draw: Callable[[], list[Any]]) -> GivenWeights:
        """Return perturbed parameters, buffers and plain tensors by the names of a candidate's that correspond to them.

        `held`: what the candidate has. `draw`: returns inputs, and is called only for a candidate that lacks a
        parameter or buffer. Raises CandidateFailedError if the result for them depends on it.
        """
        match = self._match(held)
        for name in self._needed(match.missing, draw):
            value = self.state(False)[name]
            raise CandidateFailedError(
                Status.INCORRECT,
                ErrorCategory.MISSING_PARAMETER,
                f"ModelNew has no parameter or buffer for {name} ({list(value.shape)}, {value.dtype}), and the result "
                "depends on it; they are matched by name, else by shape in the order in which they are registered",
            )
        return given_weights({**self.plain_state, **self.state(True)}, match, held)

    def drawn_for(self, held: StateAnswer, perturbed: bool = False) -> GivenWeights:
        """Return the same as the constructor drew it, or perturbed, whatever the candidate lacks."""
        return given_weights({**self.plain_state, **self.state(perturbed)}, self._match(held), held)

    def _match(self, held: StateAnswer) -> WeightMatch:
        own, plain = self.state(False), self.plain_state
        return match_weights(own, held.state, plain, held.plain, held.registered, lambda: self.constructor.turned)

    def _needed(self, names: tuple[str, ...], draw: Callable[[], list[Any]]) -> list[str]:
        """Return the names of parameters and buffers that the result depends on."""
        constant = {id(value) for value in constant_buffers(self._models[False])}
        buffers = dict(self._models[False].named_buffers())
        names = tuple(name for name in names if name not in buffers or id(buffers[name]) in constant)
        if not names:
            return []
        inputs = draw()
        if not self._depends_on(names, inputs):
            return []
        return [name for name in names if self._depends_on((name,), inputs)] or [names[0]]

    def _depends_on(self, names: tuple[str, ...], inputs: list[Any]) -> bool:
        model = copy.deepcopy(self._model(True))
        with_other_values(model, names, torch.Generator().manual_seed(self.weight_seed))
        expected = self.expected(inputs, perturbed=True)
        others, _ = self._code.run(model, copied(inputs))
        return not all(
            compare(other.contiguous(), oracle, native, "").agrees
            for other, oracle, native in zip(others, expected.oracle, expected.native, strict=True)
        )

    def draw(self, size: int | None, trial: int, seed: SecretSeed, own: bool, only_constant: bool = False) -> list[Any]:
        """Draw the inputs of one trial at a leading size (None: the full size).

        `own`: use the problem's own distribution for all inputs. Inputs with a structure always use it.
        `only_constant`: use it for all but constant tensors (ones, zeros, an all-true mask), whose values are varied.
        """
        torch.manual_seed(seed.number("inputs", trial))
        if own:
            return self._placed(self._reduction.inputs(size))
        with PlainDraws() as origin:
            values = self._placed(self._reduction.inputs(size))
        generator = self._generator(seed, trial)
        # Trial 1 is always normal: with wide values alone a softmax saturates and hides earlier operators.
        # The first repeated call is always wide, which reveals a kernel that relies on small values.
        drawn = seed.number("distribution", trial) % len(DISTRIBUTIONS)
        shape_of = NORMAL if trial == 1 else WIDE if trial == FIRST_REPEATED_TRIAL else DISTRIBUTIONS[drawn]
        return [
            value
            if not isinstance(value, torch.Tensor)
            else redrawn(value, shape_of, generator)
            if origin.is_plain(value) and not only_constant
            else varied_if_constant(value, origin.is_plain(value), generator)
            for value in values
        ]

    def with_expected(
        self, inputs: list[Any], size: int | None, trial: int, seed: SecretSeed, has_oracle: bool = True
    ) -> tuple[list[Any], Expected]:
        """Return the inputs of one trial, drawn at a leading size, and what the reference expects for them.

        Values outside the reference's domain (the logarithm of a negative, an index out of range) test nothing. Then
        only constant inputs are varied, or all are drawn from the problem's own distribution. `has_oracle`: with the
        outputs in float64.
        """
        run = self.expected if has_oracle else self.in_own_precision
        for only_constant in (False, True):
            try:
                expected = run(inputs, perturbed=True)
            except ReferenceFailedError:
                expected = None
            if expected is not None and expected.is_finite:
                return inputs, expected
            inputs = self.draw(size, trial, seed, own=only_constant, only_constant=True)
        return inputs, run(inputs, perturbed=True)

    def _placed(self, values: list[Any]) -> list[Any]:
        """Move drawn inputs to the reference's device."""
        return values

    def _generator(self, seed: SecretSeed, trial: int) -> torch.Generator:
        """Return a generator on the reference's device."""
        return seed.generator("values", trial)

    def forms(self, size: int | None) -> list[Any]:
        """Return the inputs at a leading size (None: the full size) as forms of tensors, and plain values."""
        return self._reduction.forms(size)

    def expected(self, inputs: list[Any], perturbed: bool) -> Expected:
        """Run the reference and its float64 oracle on copies of one input set."""
        return self.with_oracle(inputs, perturbed, self.in_own_precision(inputs, perturbed))

    def with_oracle(self, inputs: list[Any], perturbed: bool, found: Expected) -> Expected:
        """Run the float64 oracle as well, on a copy of the input set on which the reference `found` its results."""
        return replace(found, oracle=self._oracle(inputs, perturbed, found.native))

    def in_own_precision(self, inputs: list[Any], perturbed: bool) -> Expected:
        """Run the reference on a copy of one input set, without its oracle."""
        given = copied(inputs)
        model = self._model(perturbed)
        results, structure = self._code.run(model, given)
        held = [*model.parameters(), *model.buffers(), *plain_state(model).values()]
        owned = {address_of(value) for value in [*given, *held]} - {0}
        pairs = enumerate(zip(inputs, given, strict=True))
        after = {at: now for at, (old, now) in pairs if isinstance(old, torch.Tensor) and not same_bytes(old, now)}
        return Expected(
            [value.contiguous() for value in results],
            [],
            frozenset(after),
            structure,
            expanded=tuple(0 in value.stride() for value in results),
            aliased=tuple(address_of(value) in owned for value in results),
            shared=len({address_of(value) for value in results if value.numel()})
            < sum(value.numel() > 0 for value in results),
            inputs_after=after,
            call_again=partial(self._code.run, model),
        )

    def _oracle(self, inputs: list[Any], perturbed: bool, native: list[torch.Tensor]) -> list[torch.Tensor]:
        if perturbed not in self._doubles:
            self._doubles[perturbed] = in_float64(copy.deepcopy(self._model(perturbed)))
        double = self._doubles[perturbed]
        if double is None:
            return native
        wide = [widened(value) if isinstance(value, torch.Tensor) else value for value in inputs]
        try:
            outputs, _ = self._code.run(double, wide)
        except ReferenceFailedError:  # e.g. it creates fp32 tensors and multiplies matrices with them
            self._doubles[perturbed] = None
            return native
        outputs = [value.contiguous() for value in outputs]
        same = len(outputs) == len(native) and all(a.shape == b.shape for a, b in zip(outputs, native, strict=True))
        return outputs if same else native

    def _model(self, perturbed: bool) -> torch.nn.Module:
        if perturbed not in self._models:
            self._models[perturbed] = self._varied_model()
        return self._models[perturbed]

    def _varied_model(self) -> torch.nn.Module:
        """Return the model with other values in constant parameters.

        And, if its outputs stay finite, in constant buffers and in parameters that have a structure.
        """
        model = copy.deepcopy(self._models[False])
        generator = torch.Generator().manual_seed(self.weight_seed)
        with torch.no_grad():
            vary_parameters(model.parameters(), generator)
            self._vary(model, constant_buffers(model), lambda values: vary_constants(values, generator))
            structured = structured_parameters(model.parameters())
            self._vary(model, structured, lambda values: add_noise(values, generator))
        return model

    def _vary(
        self, model: torch.nn.Module, values: list[torch.Tensor], change: Callable[[list[torch.Tensor]], None]
    ) -> None:
        """Change tensors of a model; restore them if its outputs do not stay finite."""
        before = [value.clone() for value in values]
        if values:
            change(values)
            if not self._is_finite(model):
                for value, old in zip(values, before, strict=True):
                    value.copy_(old)

    def _is_finite(self, model: torch.nn.Module) -> bool:
        try:
            outputs, _ = self._code.run(model, self._small_inputs())
        except ReferenceFailedError:
            return False
        return not any(map(unbounded, outputs))

    def _small_inputs(self) -> list[Any]:
        """Draw inputs from the problem's own distribution, at a reduced size if it can be reduced."""
        torch.manual_seed(self.weight_seed)
        small = MIN_REDUCED_LONG if self.has_long_rows else MIN_REDUCED
        return self._reduction.inputs(small if self.can_be_reduced else None)


def _sizes(forms: Sequence[Any]) -> list[int]:
    return [size for form in forms if isinstance(form, TensorForm) for size in form.shape]
