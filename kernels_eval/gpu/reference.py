"""Reference of one problem on a GPU, in the judge's worker: inputs, reference and float64 oracle are on the device.

Shapes and the reduced leading size are found on the CPU (kernels_eval.reference.reference); models move to the device
when first used. PyTorch's TF32 and reduced-precision sums are off: they would change the reference, not the oracle.
"""

import copy
from collections.abc import Iterator
from typing import Any

import torch

from kernels_eval.correctness.outputs import Expected
from kernels_eval.gpu import cuda_driver
from kernels_eval.gpu.shared_memory import SharedCalls, Transport, lay_out
from kernels_eval.reference.inputs import SecretSeed
from kernels_eval.reference.reference import Reference
from kernels_eval.sandbox.tensor_bytes import TensorForm, form_of

_SHARED_BUDGET = 3 << 30
"""Bytes of device memory for the sets of one round of timed calls."""
MOST_CALLS = 20


def set_precision() -> None:
    """Have this process compute matrix products in the precision of their operands."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


class GpuReference(Reference):
    """One problem, executed on the device. Raises ReferenceFailedError if the problem's code fails."""

    def __init__(self, source: str, weight_seed: int) -> None:
        super().__init__(source, weight_seed)
        self._on_device: dict[bool, torch.nn.Module] = {}
        self._compiled: dict[bool, Any] = {}

    def state(self, perturbed: bool) -> dict[str, torch.Tensor]:
        """Return parameters and buffers by name, on the host."""
        model = super()._model(perturbed)
        return {**dict(model.named_parameters()), **dict(model.named_buffers())}

    def draw(self, size: int | None, trial: int, seed: SecretSeed, own: bool) -> list[Any]:
        """Draw the inputs of one trial on the device."""
        with torch.device(cuda_driver.DEVICE):
            return super().draw(size, trial, seed, own)

    def _placed(self, values: list[Any]) -> list[Any]:
        return [value.to(cuda_driver.DEVICE) if isinstance(value, torch.Tensor) else value for value in values]

    def _generator(self, seed: SecretSeed, trial: int) -> torch.Generator:
        return torch.Generator(cuda_driver.DEVICE).manual_seed(seed.number("values", trial))

    def forward(self, perturbed: bool, compiled: bool) -> Any:
        """Return what is timed: the model itself, or `torch.compile` of it."""
        model = self._model(perturbed)
        if not compiled:
            return model
        if perturbed not in self._compiled:
            self._compiled[perturbed] = torch.compile(model)
        return self._compiled[perturbed]

    def _model(self, perturbed: bool) -> torch.nn.Module:
        if not hasattr(self, "_on_device"):  # while the base class looks at shapes, all is on the host
            return super()._model(perturbed)
        if perturbed not in self._on_device:
            self._on_device[perturbed] = copy.deepcopy(super()._model(perturbed)).to(cuda_driver.DEVICE)
        return self._on_device[perturbed]


class CallSets:
    """Draws the input sets of one candidate's rounds from one secret seed, and lays them out in the shared memory."""

    def __init__(self, reference: GpuReference, seed: SecretSeed, transport: Transport) -> None:
        self.perturbed = False
        """Constant parameters have random values too: set once the candidate is known to take all weights."""
        self._reference = reference
        self._seed = seed
        self._transport = transport
        self._drawn = 0

    def trial(self, size: int | None, trials: int) -> tuple[SharedCalls, list[Expected]]:
        """Draw sets of different distributions, the first one twice; a hidden size has one set beside the first."""
        first = self._with_expected(size, own=True)
        count = max(trials, 2) if size is None else 1
        sets = [first, first, *(self._with_expected(size, own=False) for _ in range(count - 1))]
        return self.shared([values for values, _ in sets], output_forms(first[1])), [expected for _, expected in sets]

    def own(self, count: int) -> tuple[list[list[Any]], list[Expected]]:
        """Draw sets from the problem's own distribution, with the reference's results."""
        sets = [self._with_expected(None, own=True) for _ in range(count)]
        return [values for values, _ in sets], [expected for _, expected in sets]

    def timed(self, count: int, forms: list[TensorForm]) -> SharedCalls:
        """Draw sets from the problem's own distribution, without the reference's results."""
        sets: list[list[Any]] = []
        for _ in range(count):
            self._drawn += 1
            sets.append(self._reference.draw(None, self._drawn, self._seed, own=True))
        return self.shared(sets, forms)

    def expected(self, calls: SharedCalls) -> Iterator[Expected]:
        """Yield the reference's results for each call, one at a time: all would take too much memory."""
        return (self._reference.expected(inputs, self.perturbed) for inputs in calls.sets)

    def shared(self, sets: list[list[Any]], forms: list[TensorForm]) -> SharedCalls:
        """Lay sets out in the shared memory, with slots for outputs of these forms."""
        layout = lay_out(_input_forms(sets[0]), [form.nbytes for form in forms], len(sets))
        return SharedCalls(self._transport, layout, sets, forms)

    def calls_a_round(self, expected: Expected) -> int:
        """Return the number of calls in a timed round."""
        forms = [form for form in self._reference.full_forms if isinstance(form, TensorForm)]
        nbytes = sum(form.nbytes for form in (*forms, *output_forms(expected)))
        return int(min(MOST_CALLS, max(4, _SHARED_BUDGET // max(nbytes, 1))))

    def timing_bytes(self, expected: Expected) -> int:
        """Return the bytes of shared memory that timing needs: it must not move once the candidate has mapped it."""
        forms = output_forms(expected)
        layout = lay_out(self._reference.full_forms, [form.nbytes for form in forms], self.calls_a_round(expected))
        return layout.nbytes

    def _with_expected(self, size: int | None, own: bool) -> tuple[list[Any], Expected]:
        """Draw one input set on which the reference is finite; returns it with the reference's results."""
        number = self._drawn
        self._drawn += 1
        inputs = self._reference.draw(size, number, self._seed, own)
        expected = self._reference.expected(inputs, self.perturbed)
        if not own and not expected.is_finite:
            inputs = self._reference.draw(size, number, self._seed, own=True)
            expected = self._reference.expected(inputs, self.perturbed)
        return inputs, expected


def output_forms(expected: Expected) -> list[TensorForm]:
    """Return the forms of the expected outputs."""
    return [form_of(tensor) for tensor in expected.native]


def _input_forms(inputs: list[Any]) -> list[Any]:
    return [form_of(value) if hasattr(value, "dtype") else value for value in inputs]
