"""Worker process: the reference side of one problem: its model, inputs at any size, oracle, and traffic in eager mode.

The leading size M of the first tensor input is reduced if the problem allows. Inputs whose leading size is M are
drawn with fewer rows. The reference's output shapes, found under FakeTensorMode without computing, must be
proportional to the leading size or independent of it. The candidate's processes never hold a reference.
"""

import copy
import hashlib
import logging
import math
import pickle
import types
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from kernels_eval.correctness.outputs import Expected, ReferenceFailedError, flat
from kernels_eval.cost.launch import Launch
from kernels_eval.cost.operators import EagerCounter
from kernels_eval.reference.inputs import (
    DISTRIBUTIONS,
    NORMAL,
    WIDE,
    PlainDraws,
    ResizedFactories,
    SecretSeed,
    Shape,
    address_of,
    as_fake,
    copied,
    passed_as,
    same_bytes,
    shapes_of,
)
from kernels_eval.sandbox.tensor_bytes import TensorForm

# Trial and error shows if a reference runs on reduced inputs. Its failures are expected, and not worth a log line.
logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)
MIN_REDUCED = 32
"""Smallest reduced leading size."""
MIN_REDUCED_LONG = 2
"""Smallest reduced leading size if rows are long."""
FIRST_REPEATED_TRIAL = 1001
"""Trial number of the first repeated call."""
_LONG_ROW = 1 << 16


class Reference:
    """Executes one problem. Raises ReferenceFailedError if the problem's own code raises."""

    def __init__(self, source: str, weight_seed: int) -> None:
        module = types.ModuleType("problem")
        self.weight_seed = weight_seed
        self.digest = hashlib.sha256(source.encode()).hexdigest()
        _guarded(lambda: exec(compile(source, "problem.py", "exec"), module.__dict__))
        self._get_inputs: Callable[[], Any] = module.__dict__["get_inputs"]
        self.arguments: list[Any] = _guarded(lambda: list(module.__dict__["get_init_inputs"]()))
        _guarded(lambda: pickle.dumps(self.arguments))  # they are sent to another process
        torch.manual_seed(weight_seed)
        self._models: dict[bool, torch.nn.Module] = {False: _guarded(lambda: module.__dict__["Model"](*self.arguments))}
        self._doubles: dict[bool, torch.nn.Module | None] = {}
        true_inputs = self._fake_inputs(None)
        self.input_shapes = shapes_of(true_inputs)
        self.full_forms = [passed_as(value) for value in true_inputs]
        """Inputs at the full size: forms of tensors, and plain values."""
        self._forms: dict[int, list[Any]] = {}
        self._only_first = False
        self.full_size = self._leading_size()
        self.can_be_reduced = self.full_size is not None and self._find_reduction()
        self.eager_launches = self._count_eager()
        FakeTensorMode.cache_clear()  # otherwise never emptied: it grows with each new shape

    @property
    def is_half(self) -> bool:
        """True if the first floating-point input is fp16 or bf16."""
        floats = [form.dtype for form in self.full_forms if isinstance(form, TensorForm) and "float" in form.dtype]
        return bool(floats) and floats[0] in ("float16", "bfloat16")

    @property
    def has_square_input(self) -> bool:
        """True if an input is a square matrix. Kernels may rely on it, and reduced inputs are not square."""
        return any(shape is not None and len(shape) == 2 and shape[0] == shape[1] for shape in self.input_shapes)

    @property
    def has_long_rows(self) -> bool:
        """True if one unit of the leading size has more than 65536 input elements: a few units are then enough."""
        elements = sum(math.prod(shape) for shape in self.input_shapes if shape)
        return elements > _LONG_ROW * max(self.full_size or 1, 1)

    @property
    def has_products(self) -> bool:
        """True if eager execution multiplies matrices."""
        return any(launch.flops for launch in self.eager_launches)

    def state(self, perturbed: bool) -> dict[str, torch.Tensor]:
        """Return parameters and buffers by name. `perturbed`: add noise to constant parameters (ones, zeros)."""
        model = self._model(perturbed)
        return {**dict(model.named_parameters()), **dict(model.named_buffers())}

    def draw(self, size: int | None, trial: int, seed: SecretSeed, own: bool) -> list[Any]:
        """Draw the inputs of one trial at a leading size (None: the full size).

        `own`: use the problem's own distribution for all inputs. Inputs with a structure always use it.
        """
        torch.manual_seed(seed.number("inputs", trial))
        if own:
            return self._placed(self._inputs(size))
        with PlainDraws() as origin:
            values = self._placed(self._inputs(size))
        generator = self._generator(seed, trial)
        # Trial 1 is always normal: with wide values alone a softmax saturates and hides earlier operators.
        # The first repeated call is always wide, which reveals a kernel that relies on small values.
        drawn = seed.number("distribution", trial) % len(DISTRIBUTIONS)
        shape_of = NORMAL if trial == 1 else WIDE if trial == FIRST_REPEATED_TRIAL else DISTRIBUTIONS[drawn]
        return [
            shape_of(tuple(value.shape), generator).to(value.dtype)
            if isinstance(value, torch.Tensor) and value.dtype.is_floating_point and origin.is_plain(value)
            else value
            for value in values
        ]

    def _placed(self, values: list[Any]) -> list[Any]:
        """Move drawn inputs to the reference's device."""
        return values

    def _generator(self, seed: SecretSeed, trial: int) -> torch.Generator:
        """Return a generator on the reference's device."""
        return seed.generator("values", trial)

    def forms(self, size: int | None) -> list[Any]:
        """Return the inputs at a leading size (None: the full size) as forms of tensors, and plain values."""
        if size is None:
            return self.full_forms
        if size not in self._forms:
            values = self._fake_inputs(size)
            self._forms[size] = [passed_as(value) for value in values]
        return self._forms[size]

    def expected(self, inputs: list[Any], perturbed: bool) -> Expected:
        """Run the reference and its float64 oracle on copies of one input set."""
        given = copied(inputs)
        model = self._model(perturbed)
        results, structure = self._run(model, given)
        native = [value.contiguous() for value in results]
        owned = {address_of(value) for value in [*given, *model.parameters(), *model.buffers()]} - {0}
        changed = frozenset(
            index
            for index, (before, after) in enumerate(zip(inputs, given, strict=True))
            if isinstance(before, torch.Tensor) and not same_bytes(before, after)
        )
        return Expected(
            native,
            self._oracle(inputs, perturbed, native),
            changed,
            structure,
            expanded=tuple(0 in value.stride() for value in results),
            aliased=tuple(address_of(value) in owned for value in results),
            shared=len({address_of(value) for value in results if value.numel()})
            < sum(value.numel() > 0 for value in results),
        )

    def _oracle(self, inputs: list[Any], perturbed: bool, native: list[torch.Tensor]) -> list[torch.Tensor]:
        if perturbed not in self._doubles:
            self._doubles[perturbed] = copy.deepcopy(self._model(perturbed)).double()
        double = self._doubles[perturbed]
        if double is None:
            return native
        wide = [
            value.double() if isinstance(value, torch.Tensor) and value.dtype.is_floating_point else value
            for value in copied(inputs)
        ]
        try:
            outputs, _ = self._run(double, wide)
        except ReferenceFailedError:  # e.g. it creates fp32 tensors and multiplies matrices with them
            self._doubles[perturbed] = None
            return native
        outputs = [value.contiguous() for value in outputs]
        same = len(outputs) == len(native) and all(a.shape == b.shape for a, b in zip(outputs, native, strict=True))
        return outputs if same else native

    def _run(self, model: torch.nn.Module, inputs: list[Any]) -> tuple[list[torch.Tensor], str]:
        buffers = {name: value.clone() for name, value in model.named_buffers()}
        with torch.no_grad():
            result = _guarded(lambda: model(*inputs))
            for name, value in model.named_buffers():  # running statistics must not drift from one verdict to the next
                value.copy_(buffers[name])
        outputs, structure = _guarded(lambda: flat(result))
        if not outputs or not all(isinstance(value, torch.Tensor) for value in outputs):
            raise ReferenceFailedError("the reference returns something else than tensors")
        return [value.detach() for value in outputs], structure

    def _model(self, perturbed: bool) -> torch.nn.Module:
        if perturbed not in self._models:
            model = copy.deepcopy(self._models[False])
            generator = torch.Generator().manual_seed(self.weight_seed)
            with torch.no_grad():
                for value in model.parameters():
                    if value.numel() and value.dtype.is_floating_point and bool((value == value.reshape(-1)[0]).all()):
                        value.add_(0.2 * torch.randn(value.shape, generator=generator).to(value.dtype))
            self._models[perturbed] = model
        return self._models[perturbed]

    def _inputs(self, size: int | None) -> list[Any]:
        if size is None:
            return _guarded(lambda: list(self._get_inputs()))
        assert self.full_size is not None
        with ResizedFactories(self.full_size, size):
            values = _guarded(lambda: list(self._get_inputs()))
        if self._only_first:
            rest = iter(_guarded(lambda: list(self._get_inputs())))
            first = next(index for index, value in enumerate(values) if isinstance(value, torch.Tensor))
            values = [
                value if index == first else full for index, (value, full) in enumerate(zip(values, rest, strict=True))
            ]
        return values

    def _fake_inputs(self, size: int | None) -> list[Any]:
        try:
            with FakeTensorMode():
                return self._inputs(size)
        except Exception:  # noqa: BLE001 (get_inputs may e.g. read values: then it runs on real tensors)
            return self._inputs(size)

    def _leading_size(self) -> int | None:
        shape = next((shape for shape in self.input_shapes if shape is not None), None)
        return shape[0] if shape else None

    def _find_reduction(self) -> bool:
        assert self.full_size is not None
        small = MIN_REDUCED_LONG if self.has_long_rows else MIN_REDUCED
        large = 2 * small
        if self.full_size <= large:
            return False
        for only_first in (False, True):
            self._only_first = only_first
            try:
                shapes = [self._output_shapes(size) for size in (small, large, None)]
            except Exception:  # noqa: BLE001 (any error of the reference on reduced inputs rules this reduction out)
                continue
            if _follow(shapes, (small, large, self.full_size)):
                return True
        return False

    def _output_shapes(self, size: int | None) -> list[Shape]:
        inputs = self._fake_inputs(size)
        true_shapes = self.input_shapes
        for value, true_shape in zip(inputs, true_shapes, strict=True):
            if isinstance(value, torch.Tensor) and tuple(value.shape) not in (
                true_shape,
                (size, *(true_shape or ())[1:]),
            ):
                raise ReferenceFailedError("an input does not follow the leading size")
        if size is not None and shapes_of(inputs) == true_shapes:
            raise ReferenceFailedError("no input follows the leading size")
        with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
            result = self._models[False](*as_fake(inputs))
        outputs, _ = flat(result)
        return [tuple(value.shape) for value in outputs]

    def _count_eager(self) -> list[Launch]:
        counter = EagerCounter()
        try:
            inputs = self._fake_inputs(None)
            with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
                fakes = as_fake(inputs)
                with counter:
                    self._models[False](*fakes)
        except Exception:  # noqa: BLE001 (data-dependent operators do not run on fake tensors: count a real run)
            counter = EagerCounter()
            torch.manual_seed(0)
            inputs = self._inputs(None)
            with torch.no_grad(), counter:
                _guarded(lambda: self._models[False](*inputs))
        return counter.launches


def _guarded(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        raise ReferenceFailedError(f"the reference raised {type(error).__name__}: {str(error)[:300]}") from error


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
