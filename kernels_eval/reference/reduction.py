"""Worker process: inputs of a problem at other leading sizes, if its reference allows them.

The leading size M is that of the first tensor input. Inputs whose leading size is M are created with fewer rows. The
reference's output shapes, at the full size found without computing, must be proportional to the leading size or
independent of it. If index values follow M as well (`torch.randint(0, M, …)`), they are drawn below the reduced size.
"""

import math
from functools import cached_property
from typing import Any

import torch

from kernels_eval.correctness.outputs import ReferenceFailedError
from kernels_eval.reference.eager_run import run_eager
from kernels_eval.reference.factories import ResizedFactories
from kernels_eval.reference.inputs import Shape, no_values, passed_as, shapes_of
from kernels_eval.reference.problem_code import ProblemCode
from kernels_eval.sandbox.tensor_bytes import TensorForm

MIN_REDUCED = 32
"""Smallest reduced leading size if the reference multiplies matrices."""
MIN_REDUCED_SIMPLE = 8
"""Smallest reduced leading size otherwise."""
MIN_REDUCED_LONG = 2
"""Smallest reduced leading size if rows are long."""
_LONG_ROW = 1 << 16
_QUICK_INPUTS, _QUICK_WEIGHTS = 1 << 19, 1 << 17
"""Elements with which the reference is run at a reduced size: less than 1 ms, where it takes 4 without computing."""
_DRAWS = 4
"""Draws that show whether the inputs' shapes differ from draw to draw."""
_WAYS = ((False, False), (False, True), (True, False), (True, True))
"""Ways to reduce: index values follow the size; only the first input does."""


class Reduction:
    """Inputs of one problem at any leading size. `is_possible`: False if it can only be judged at its own."""

    def __init__(self, code: ProblemCode, model: torch.nn.Module) -> None:
        self._code = code
        self._model = model
        self._values = self._only_first = False
        full = self.fake_inputs(None)
        self.input_shapes = shapes_of(full)
        self.full_forms = [passed_as(value) for value in full]
        """Inputs at the full size: forms of tensors, and plain values."""
        self.eager = run_eager(code, model, full)
        """The model's operators at the full size."""
        self._has_indices = any(isinstance(value, torch.Tensor) and not value.dtype.is_floating_point for value in full)
        shape = next((shape for shape in self.input_shapes if shape is not None), None)
        self.full_size = shape[0] if shape else None
        """The leading size of the problem; None without tensors, or if the first one has no dimensions."""
        self.is_possible = self.full_size is not None and self._find(self.full_size)

    @property
    def has_long_rows(self) -> bool:
        """True if one unit of the leading size has more than 65536 input elements: a few units are then enough."""
        elements = sum(math.prod(shape) for shape in self.input_shapes if shape)
        return elements > _LONG_ROW * max(self.full_size or 1, 1)

    @cached_property
    def _is_quick(self) -> bool:
        """True if running the reference at a reduced size takes less time than following it without values."""
        shapes = [shape for shape in self.input_shapes if shape]
        rows = [2 * MIN_REDUCED if shape[0] == self.full_size else shape[0] for shape in shapes]
        elements = sum(count * math.prod(shape[1:]) for count, shape in zip(rows, shapes, strict=True))
        weights = sum(value.numel() for value in self._model.parameters())
        return not self.has_long_rows and elements <= _QUICK_INPUTS and weights <= _QUICK_WEIGHTS

    @cached_property
    def fixed_bytes(self) -> int:
        """Bytes of weights, and of inputs that stay as they are at a reduced leading size."""
        weights = [*self._model.parameters(), *self._model.buffers()]
        follows = self._follows or [True] * len(self.full_forms)  # they change in another way
        given = zip(self.full_forms, follows, strict=True)
        inputs = (form.nbytes for form, is_reduced in given if not is_reduced and isinstance(form, TensorForm))
        return sum(value.numel() * value.element_size() for value in weights) + sum(inputs)

    def inputs(self, size: int | None) -> list[Any]:
        """Run `get_inputs` at a leading size (None: the full size)."""
        if size is None:
            return self._code.inputs()
        assert self.full_size is not None
        with ResizedFactories(self.full_size, size, self._values):
            values = self._code.inputs()
        if self._only_first:
            rest = iter(self._code.inputs())
            first = next(index for index, value in enumerate(values) if isinstance(value, torch.Tensor))
            values = [
                value if index == first else full for index, (value, full) in enumerate(zip(values, rest, strict=True))
            ]
        return values

    def fake_inputs(self, size: int | None) -> list[Any]:
        """Return the inputs without values, or with values if `get_inputs` reads them."""
        try:
            with no_values():
                return self.inputs(size)
        except Exception:  # noqa: BLE001 (get_inputs may e.g. read values: then it runs on real tensors)
            return self.inputs(size)

    @cached_property
    def draws_shapes(self) -> bool:
        """True if values that `get_inputs` draws decide the shapes of its inputs, as lengths of sequences do."""
        try:
            with no_values():
                self._code.inputs()
            return False
        except Exception:  # noqa: BLE001 (get_inputs reads values)
            pass
        with torch.random.fork_rng(devices=[]):
            for seed in range(_DRAWS):
                torch.manual_seed(seed)
                if [passed_as(value) for value in self._code.inputs()] != self.full_forms:
                    return True
        return False

    def forms(self, size: int | None) -> list[Any]:
        """Return the inputs at a leading size (None: the full size) as forms of tensors, and plain values."""
        if size is None:
            return self.full_forms
        follows = self._follows
        if follows is None:
            return self._forms_at(size)
        return [
            _with_leading(form, size) if with_size else form
            for form, with_size in zip(self.full_forms, follows, strict=True)
        ]

    @cached_property
    def _follows(self) -> tuple[bool, ...] | None:
        """True for each input whose first dimension is the leading size; None if inputs change in another way."""
        sizes = (MIN_REDUCED_LONG, MIN_REDUCED + 1)
        try:
            small, large = (self._forms_at(size) for size in sizes)
        except Exception:  # noqa: BLE001 (code of the problem, at sizes that nobody has asked for)
            return None
        found: list[bool] = []
        for full, *others in zip(self.full_forms, small, large, strict=True):
            if all(other == full for other in others):
                found.append(False)
            elif _has_leading(full, self.full_size) and others == [_with_leading(full, size) for size in sizes]:
                found.append(True)
            else:
                return None
        return tuple(found)

    def _forms_at(self, size: int) -> list[Any]:
        inputs = self.inputs(size) if self._computes_at(size) else self.fake_inputs(size)
        return [passed_as(value) for value in inputs]

    def _computes_at(self, size: int) -> bool:
        """Return True if running the problem's code on values takes less time than without them."""
        return self._is_quick and size <= 2 * MIN_REDUCED and not self._only_first  # which draws all at the full size

    def _find(self, full_size: int) -> bool:
        small = MIN_REDUCED_LONG if self.has_long_rows else MIN_REDUCED
        large = 2 * small
        if full_size <= large:
            return False
        for self._values, self._only_first in _WAYS:
            try:
                shapes = [self._output_shapes(size) for size in (small, large, None)]
                if _follow(shapes, (small, large, full_size)) and self._runs():
                    return True
            except Exception:  # noqa: BLE001 (any error of the reference on reduced inputs rules this way out)
                continue
            if not self._has_indices and self._only_first:
                break
        return False

    def _runs(self) -> bool:
        """Run the reference at the smallest size if there are indices. Raises if one of them is out of range."""
        if self._has_indices:
            self._code.run(self._model, self.inputs(MIN_REDUCED_LONG if self.has_long_rows else MIN_REDUCED_SIMPLE))
        return True

    def _output_shapes(self, size: int | None) -> list[Shape]:
        if size is None and self.eager.output_shapes is not None:
            return self.eager.output_shapes
        computes = size is not None and self._computes_at(size)
        inputs = self.inputs(size) if computes else self.fake_inputs(size)
        for value, true_shape in zip(inputs, self.input_shapes, strict=True):
            reduced = (size, *(true_shape or ())[1:])
            if isinstance(value, torch.Tensor) and tuple(value.shape) not in (true_shape, reduced):
                raise ReferenceFailedError("an input does not follow the leading size")
        if size is not None and shapes_of(inputs) == self.input_shapes:
            raise ReferenceFailedError("no input follows the leading size")
        if computes:
            outputs = self._code.run(self._model, [_on_host(value) for value in inputs])[0]
        else:
            outputs = self._code.run_fake(self._model, inputs)
        return [tuple(value.shape) for value in outputs]


def _on_host(value: Any) -> Any:
    return value.cpu() if isinstance(value, torch.Tensor) else value


def _has_leading(form: Any, size: int | None) -> bool:
    """True for a tensor whose first dimension is `size`."""
    return isinstance(form, TensorForm) and form.shape[:1] == (size,)


def _with_leading(form: TensorForm, size: int) -> TensorForm:
    return form.model_copy(update={"shape": (size, *form.shape[1:])})


def _follow(shapes: list[list[Shape]], sizes: tuple[int, int, int]) -> bool:
    """True if every output dimension is constant or in proportion to the leading size."""
    if len({len(outputs) for outputs in shapes}) != 1:
        return False
    for first, second, true in zip(*shapes, strict=True):
        if not len(first) == len(second) == len(true):
            return False
        for a, b, c in zip(first, second, true, strict=True):
            in_proportion = a * sizes[1] == b * sizes[0] and a * sizes[2] == c * sizes[0]
            if not (a == b == c or in_proportion):
                return False
    return True
