"""The input sets of a candidate's rounds on a GPU: drawn from one secret seed, laid out in the memory that both sides share."""

from typing import Any

from kernels_eval.gpu.reference import DeviceReference
from kernels_eval.gpu.session import SharedCalls
from kernels_eval.gpu.shared_memory import Transport, lay_out
from kernels_eval.reference.inputs import SecretSeed
from kernels_eval.reference.reference import Expected
from kernels_eval.sandbox.tensor_bytes import TensorForm, form_of

_SHARED_BUDGET = 3 << 30
"""Bytes of device memory for the sets of one round of timed calls."""
MOST_CALLS = 20


class CallSets:
    """Draws one candidate's input sets. `perturbed` is set once it is known whether the candidate takes all weights."""

    def __init__(self, reference: DeviceReference, seed: SecretSeed, transport: Transport) -> None:
        self.perturbed = False
        """Constant parameters have values that matter."""
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
        """Draw sets from the problem's own distribution, with what the reference makes of them."""
        sets = [self._with_expected(None, own=True) for _ in range(count)]
        return [values for values, _ in sets], [expected for _, expected in sets]

    def inputs(self) -> list[Any]:
        """Draw one input set from the problem's own distribution."""
        self._drawn += 1
        return self._reference.draw(None, self._drawn, self._seed, own=True)

    def shared(self, sets: list[list[Any]], forms: list[TensorForm]) -> SharedCalls:
        """Lay sets out in the shared memory, with room for outputs of these forms."""
        layout = lay_out(_input_forms(sets[0]), [form.nbytes for form in forms], len(sets))
        return SharedCalls(self._transport, layout, sets, forms)

    def calls_a_round(self, expected: Expected) -> int:
        """Return how many calls a timed round has."""
        forms = [form for form in self._reference.full_forms if isinstance(form, TensorForm)]
        nbytes = sum(form.nbytes for form in (*forms, *output_forms(expected)))
        return int(min(MOST_CALLS, max(4, _SHARED_BUDGET // max(nbytes, 1))))

    def timing_bytes(self, expected: Expected) -> int:
        """Size of the shared memory that timing needs: it must not move once the candidate has mapped it."""
        forms = output_forms(expected)
        layout = lay_out(self._reference.full_forms, [form.nbytes for form in forms], self.calls_a_round(expected))
        return layout.nbytes

    def _with_expected(self, size: int | None, own: bool) -> tuple[list[Any], Expected]:
        """Draw one input set on which the reference is finite, and what the reference makes of it."""
        number = self._drawn
        self._drawn += 1
        inputs = self._reference.draw(size, number, self._seed, own)
        expected = self._reference.expected(inputs, self.perturbed)
        if not own and not expected.is_finite:
            inputs = self._reference.draw(size, number, self._seed, own=True)
            expected = self._reference.expected(inputs, self.perturbed)
        return inputs, expected


def output_forms(expected: Expected) -> list[TensorForm]:
    """Forms of the outputs that are expected."""
    return [form_of(tensor) for tensor in expected.native]


def _input_forms(inputs: list[Any]) -> list[Any]:
    return [form_of(value) if hasattr(value, "dtype") else value for value in inputs]
