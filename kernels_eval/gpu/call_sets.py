"""Input sets of one candidate's rounds, in the judge's worker: drawn from one secret seed, laid out within a budget."""

import contextlib
import random
import time
from collections.abc import Callable, Generator, Iterator
from statistics import median
from typing import Any

from kernels_eval.correctness.outputs import Expected, ReferenceFailedError
from kernels_eval.gpu.candidate.session import MAX_CALLS
from kernels_eval.gpu.candidate.shared_calls import SharedCalls
from kernels_eval.gpu.device.shared_memory import Transport, lay_out
from kernels_eval.gpu.device.watch import PIECE_BYTES
from kernels_eval.gpu.input_kinds import KINDS
from kernels_eval.gpu.input_parts import Group, Period, drawn_group
from kernels_eval.gpu.large_elements import SPIKES
from kernels_eval.gpu.reference import GpuReference
from kernels_eval.reference.inputs import SecretSeed
from kernels_eval.sandbox.tensor_bytes import TensorForm, form_of

_LARGEST_ROUND = 12 << 30
"""Bytes that the sets of one round take at most in all, whatever the budget is: more makes no timing better."""

_SPIKE = 8.0
"""Factor of the mean magnitude."""
_SPIKES_SHARE = 0.05
"""Share of the spikes in a sum over all elements: leaving one out changes a mean by 1/1280, above the tolerance."""
_KINDS = ("plain", "other", "sparse", "quiet", *["parts"] * 12)
"""Kinds of timed calls (kernels_eval.gpu.input_kinds), with equal shares."""
_GROUPS = (12, 24)
"""Groups of the calls of a round, fewest and most: to draw the parts of each call alone takes longer than the rest."""
_SERIAL_CALLS, _FEWEST_SERIAL = 32, 4
_STAGED_BYTES, _MOST_STAGED_BYTES = 256 << 20, 1 << 30
"""Pinned host memory for inputs of calls that are made one by one; the second one for calls on several streams.

With the guards it is a little less: PyTorch takes the next power of two. Calls with larger inputs gain less by
overlapping."""
_GUARDED_BYTES = 1 << 20
_SAMPLINGS = 5
_FURTHER = 6
"""Sets of a round of trials beside these, at most: the first one again, and one of each further kind."""

Rounds = Iterator[tuple[SharedCalls, list[Expected]]]
"""Calls of a round, and what the reference expects of each."""


class CallSets:
    """Draws the input sets of one candidate's rounds from one secret seed, and lays them out in the shared memory.

    Memory of a call: its inputs twice, private and shared, and its outputs three times, the reference's among them.
    """

    def __init__(
        self,
        reference: GpuReference,
        seed: SecretSeed,
        transport: Transport,
        budget: int,
        give_way: Callable[[], object],
    ) -> None:
        """`budget`: bytes of device memory for the sets of one round; `give_way`: called before each set is drawn."""
        self._reference = reference
        self._seed = seed
        self._transport = transport
        self._budget = min(budget, _LARGEST_ROUND)
        self._give_way = give_way
        self._drawn = 0
        self._ahead: Rounds | None = None
        self.forms: list[TensorForm] = []
        """Forms of the outputs at the full size: known after `learn_forms`."""
        self.kinds: list[str] = []
        """Kind of each of the sets that `timed` has drawn last, of `_KINDS`."""

    def learn_forms(self) -> None:
        """Run the reference on one input set for the forms of its outputs.

        Raises ReferenceFailedError where inputs have other shapes in each draw: all calls of a round have one layout.
        """
        if self._reference.draws_shapes:
            raise ReferenceFailedError("get_inputs draws tensors of other shapes each time: only judged without a GPU")
        self.forms = [form_of(tensor) for tensor in self._reference.first_results(self.one)]

    @property
    def is_reserved(self) -> bool:
        """True if the shared memory has the right size for these sets as it is."""
        return self._transport.suits(self._layout(self.most_calls).nbytes)

    def reserve(self) -> None:
        """Have the shared memory ready, which must not move while a candidate has mapped it: after `learn_forms`."""
        self._transport.reserve(self._layout(self.most_calls).nbytes)

    def sampling_s(self) -> tuple[tuple[int, float], ...]:
        """Measure what the first samples of a round's outputs take: while no candidate's code can be at work.

        Returns numbers of calls, ascending, up to the most in a round, and the seconds of each.
        """
        most = self.most_calls
        layout = self._layout(most)
        outputs = [slots.outputs[0] for slots in layout.calls if slots.outputs] or [layout.outputs_from]
        distance = outputs[1] - outputs[0] if len(outputs) > 1 else PIECE_BYTES

        def seconds(count: int) -> float:
            started = time.perf_counter()
            return self._transport.pieces(outputs[0], distance, count).came_s - started

        counts = sorted({min(1 << power, most) for power in range(most.bit_length() + 1)})
        return tuple((count, median(seconds(count) for _ in range(_SAMPLINGS))) for count in counts)

    def one(self) -> list[Any]:
        """Draw one input set, the same each time."""
        return self._reference.draw(None, 0, self._seed, own=True)

    def trials(self, size: int | None, trials: int) -> Rounds:
        """Yield rounds of sets of different distributions, the first set twice.

        A hidden size has that set alone. All sets are in one round if the budget allows, else each has one. A round of
        the full size that `draw_ahead` has drawn comes first.
        """
        ahead, self._ahead = self._ahead, None
        return ahead if ahead is not None and size is None else self._rounds(size, trials)

    def draw_ahead(self, trials: int) -> None:
        """Draw the first of the rounds that `trials` yields for the full size."""
        rounds = self._rounds(None, trials)
        first = [next(rounds)]

        def all_rounds() -> Rounds:
            yield first.pop()  # no longer held here: the next sets need its memory
            yield from rounds

        self._ahead = all_rounds()

    def forget_ahead(self) -> None:
        """Give back the memory of what `draw_ahead` has drawn: it is drawn once more."""
        self._ahead = None

    def _rounds(self, size: int | None, trials: int) -> Rounds:
        first = self._with_expected(size, own=True, has_oracle=size is None)
        forms = [form_of(tensor) for tensor in first[1].native]
        if size is None:
            _check_forms(first[1], self.forms)
        others = self._others(size, trials)
        if self.most_calls >= max(trials, 2) + _FURTHER:
            sets = [first, first, *others]
            for _, expected in sets:
                _check_forms(expected, forms)
            yield self._shared([values for values, _ in sets], forms), [expected for _, expected in sets]
            return
        calls, expected_sets = self._shared([first[0]], forms), [first[1]]
        del first  # its inputs: the round has them in memory of its own
        yield calls, expected_sets
        yield calls, expected_sets
        del calls, expected_sets
        for values, expected in others:
            _check_forms(expected, forms)
            drawn = self._shared([values], forms), [expected]
            del values, expected  # as above, and the next set needs what this one expects
            yield drawn
            del drawn

    def _others(self, size: int | None, trials: int) -> Iterator[tuple[list[Any], Expected]]:
        """Draw the sets beside the first: other distributions, spikes, a sparse set, a quiet one, and one in parts.

        Then one with large elements alone, for problems of which it makes results larger, and no more.
        """
        if size is None:
            for _ in range(max(trials, 2) - 1):
                yield self._with_expected(size, own=False)
            yield self._with_spikes()
            for kind in ("sparse", "quiet"):
                found = self._of_kind(kind)
                if found:
                    yield found.pop()  # no longer held here
            yield self._in_parts()
            self._next()
            large = self._reference.draw_large(self._drawn, self._seed)
            if large is not None:
                yield large, self._reference.in_own_precision(large, perturbed=True)

    def _of_kind(self, kind: str) -> list[tuple[list[Any], Expected]]:
        """Draw a set of a kind; none if the problem does not take it, which trying the kind once may not have shown."""
        kinds = self._reference.kinds
        if not kinds.takes(kind, self._seed):
            return []
        self._next()
        drawn = self._reference.draw_as(kind, self._drawn, self._seed)
        if drawn is None:
            return []
        with contextlib.suppress(ReferenceFailedError):  # of values that it does not take
            expected = self._reference.in_own_precision(drawn, perturbed=True)
            if not kinds.is_beyond(expected, kind):
                return [(drawn, expected)]
        return []

    def _in_parts(self) -> tuple[list[Any], Expected]:
        """Draw a set in secret parts, far from each other if the reference can take that."""
        self._next()
        for stretched in (True, False):
            inputs = self._reference.draw_in_parts(self._drawn, self._seed, stretched)
            with contextlib.suppress(ReferenceFailedError):  # of values that it does not take
                expected = self._reference.in_own_precision(inputs, perturbed=True)
                if expected.is_finite:
                    return inputs, expected
        return self._with_expected(None, own=True)

    def _with_spikes(self) -> tuple[list[Any], Expected]:
        """Draw a set with large elements, as large as the reference can take."""
        self._next()
        reduced = self._reference.input_bytes / max(self.output_bytes, 1)
        for factor in (max(_SPIKE, _SPIKES_SHARE * reduced / SPIKES), _SPIKE):
            inputs = self._reference.draw_spiked(self._drawn, self._seed, factor)
            with contextlib.suppress(ReferenceFailedError):  # of values that it does not take, as probabilities
                expected = self._reference.in_own_precision(inputs, perturbed=True)
                if expected.is_finite:
                    return inputs, expected
        return self._with_expected(None, own=True)

    def own(self, count: int) -> tuple[SharedCalls, list[Expected]]:
        """Draw sets from the problem's own distribution, with the reference's results in its own precision."""
        sets = [self._with_expected(None, own=True) for _ in range(min(count, self.most_calls))]
        return self._shared([values for values, _ in sets], self.forms), [expected for _, expected in sets]

    def finite(self, count: int) -> tuple[SharedCalls, list[Expected]] | None:
        """Draw sets as `own` does; None if the reference fails on one, or has a result that is not finite."""
        try:
            calls, expected = self.own(count)
        except ReferenceFailedError:
            return None
        return (calls, expected) if all(each.is_finite for each in expected) else None

    def timed(self, count: int) -> SharedCalls:
        """Draw sets from the problem's own distribution, without the reference's results.

        Their kinds are secret. A kernel that leaves parts out in timed rounds alone, or is less exact, is wrong there.
        """
        takes = {kind: self._reference.kinds.takes(kind, self._seed) for kind in KINDS}
        self.kinds = []
        plain: list[list[bool]] = []
        groups = _groups(self._seed.number("groups", self._drawn), count)

        def draw() -> Iterator[list[Any]]:
            for call in range(count):
                self._next()
                kind = _KINDS[self._seed.number("kind", self._drawn) % len(_KINDS)]
                if kind in ("sparse", "quiet") and not takes[kind]:
                    kind = "other"
                self.kinds.append(kind if takes[kind] else "plain")
                values, is_plain = self._drawn_as(self.kinds[-1], groups[call % len(groups)].period)
                plain.append(is_plain)
                yield values

        calls = SharedCalls(self._transport, self._layout(count), draw(), self.forms)
        for index in range(len(plain[0])):
            changes = [is_plain[index] for is_plain in plain]
            if any(changes):
                self._reference.vary_calls(index, calls.inputs(index), changes, groups)
        return calls

    def _drawn_as(self, kind: str, period: Period | None) -> tuple[list[Any], list[bool]]:
        """Draw a set of a kind; returns also which inputs are to have parts."""
        if kind == "parts":
            return self._reference.draw_mixed(self._drawn, self._seed, period)
        values = self._reference.draw_as(kind, self._drawn, self._seed)
        if values is None:
            return self._drawn_as("plain", period)
        return values, [False] * len(values)

    def small(self) -> SharedCalls:
        """Return a call without inputs, of one small output: for rounds without calls, which serve all problems."""
        form = TensorForm(dtype="uint8", shape=(PIECE_BYTES,))
        return SharedCalls(self._transport, lay_out([], [form.nbytes], 1), [[]], [form])

    def _next(self) -> None:
        """Begin another set: it has a number of its own, from which it is drawn."""
        self._give_way()
        self._drawn += 1

    @contextlib.contextmanager
    def using(self, reference: GpuReference) -> Generator[None]:
        """Draw and compare by another reference of the same problem meanwhile."""
        own, self._reference = self._reference, reference
        try:
            yield
        finally:
            self._reference = own

    def expected(self, inputs: list[Any]) -> Expected:
        """Return the reference's results for one input set."""
        return self._reference.expected(inputs, perturbed=True)

    def with_oracle(self, inputs: list[Any], found: Expected) -> Expected:
        """Return the reference's results for one input set, with those in float64."""
        return found if found.has_oracle else self._reference.with_oracle(inputs, True, found)

    @property
    def most_calls(self) -> int:
        """Number of calls whose sets fit into the budget, at least 1. It must not change while a candidate runs."""
        taken = 2 * self._reference.input_bytes + 3 * self.output_bytes
        return int(min(MAX_CALLS, max(1, self._budget // max(taken, 1))))

    def serial_calls(self, has_side_streams: bool = False) -> int:
        """Return the number of calls of a round that are made one by one; 0 if the inputs are too large for that."""
        staged = _MOST_STAGED_BYTES - _GUARDED_BYTES if has_side_streams else _STAGED_BYTES
        fitting = min(_SERIAL_CALLS, self.most_calls, staged // max(self._reference.input_bytes, 1))
        return fitting if fitting >= _FEWEST_SERIAL else 0

    @property
    def output_bytes(self) -> int:
        """Bytes of one call's outputs."""
        return sum(form.nbytes for form in self.forms)

    @property
    def least_bytes(self) -> int:
        """Bytes that one call takes at least in the worker, beside the shared memory: it never runs with less.

        The reference works on a copy of the inputs, and its outputs lie beside those collected.
        """
        return self._reference.input_bytes + max(self._reference.input_bytes, 2 * self.output_bytes)

    @property
    def set_bytes(self) -> int:
        """Bytes of one call's inputs and outputs."""
        return self._reference.input_bytes + self.output_bytes

    def _layout(self, calls: int) -> Any:
        return lay_out(self._reference.full_forms, [form.nbytes for form in self.forms], calls)

    def _shared(self, sets: list[list[Any]], forms: list[TensorForm]) -> SharedCalls:
        """Lay sets out in the shared memory, with slots for outputs of these forms."""
        inputs = [form_of(value) if hasattr(value, "dtype") else value for value in sets[0]]
        layout = lay_out(inputs, [form.nbytes for form in forms], len(sets))
        return SharedCalls(self._transport, layout, sets, forms)

    def _with_expected(self, size: int | None, own: bool, has_oracle: bool = False) -> tuple[list[Any], Expected]:
        """Draw one input set on which the reference is finite; returns it with the reference's results."""
        self._next()
        inputs = self._reference.draw(size, self._drawn, self._seed, own)
        return self._reference.with_expected(inputs, size, self._drawn, self._seed, has_oracle)


def _groups(seed: int, count: int) -> list[Group]:
    """Draw the groups of a round of `count` calls, which belong to them in turn."""
    numbers = random.Random(seed)
    return [drawn_group(numbers.getrandbits(62)) for _ in range(min(count, numbers.randint(*_GROUPS)))]


def _check_forms(expected: Expected, forms: list[TensorForm]) -> None:
    """Raise ReferenceFailedError if a set's results have other shapes: all calls of a round have one layout."""
    if [form_of(tensor) for tensor in expected.native] != forms:
        raise ReferenceFailedError("the results' shapes depend on the inputs' values: only judged without a GPU")
