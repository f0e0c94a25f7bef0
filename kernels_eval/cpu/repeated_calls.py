"""CPU worker: calls the candidate again on shapes that it has seen, to detect host code that reuses earlier results.

At least a dozen further calls are traced, once the first trial has passed. This is cheap, because only host code runs,
and it overlaps with the kernels of the trials after it. If every call returns the program that passed, nothing else is
run. A different program is run on fresh values, after all programs before it, and its results are compared. The same is
done for calls whose kernels use memory of earlier calls, because such kernels could count calls.

The last call but one is made as if a thousand calls or more had passed: what host code or kernels count up is advanced
(kernels_eval.tracing.counters, kernels_eval.interpreter.tensor_counters). The last call is a second model's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernels_eval.correctness.outputs import Expected
from kernels_eval.cpu.session import Session
from kernels_eval.error_categories import ErrorCategory
from kernels_eval.reference.inputs import SecretSeed
from kernels_eval.reference.reference import FIRST_REPEATED_TRIAL, Reference
from kernels_eval.sandbox.child import CandidateFailedError
from kernels_eval.sandbox.tensor_bytes import DTYPES
from kernels_eval.trace.equivalence import fingerprint, made_by, uses_older_storage
from kernels_eval.trace.schema import TraceAnswer, Upload, View
from kernels_eval.verdict import Status

_FEWEST = 12
_MORE = 5
"""The number of calls is secret: `_FEWEST` plus a random number below `_MORE`."""
_TRIAL = FIRST_REPEATED_TRIAL - 1
"""Trial numbers for the seed follow this one."""
_RUN = 3
"""Number of calls to run if calls with the same program could still differ (kernels that keep state).

All but the first run on inputs that mostly equal those of the previous call. A kernel that compares only a few values
with the previous call's would then return an old result."""
_LATER = 2
"""A call that has had others before it, with which no counter is advanced, in the same model."""
_CHANGED = 1 / 32
"""Share of the elements that differ between such inputs."""


_FEWEST_PAST = 1000
_MORE_PAST = 1 << 16
"""Counters are advanced by so many calls, for the last call but one."""
_FEWEST_READING = 2
_MORE_READING = 3
_TURNED = 4
"""Minimum number of elements of an input that is changed. Smaller ones are scales and the like."""


@dataclass(frozen=True)
class RepeatedCall:
    """Traced call that was run again. Its results are fetched from the interpreter process later."""

    trace: TraceAnswer
    expected: Expected


class RepeatedCalls:
    """Repeated calls of one candidate at one size."""

    def __init__(self, session: Session, reference: Reference, size: int | None, seed: SecretSeed) -> None:
        self._session = session
        self._reference = reference
        self._size = size
        self._seed = seed
        self._count = _FEWEST + seed.number("repeats") % _MORE
        self._ahead = _FEWEST_PAST + seed.number("calls passed") % _MORE_PAST
        self._drawn = 0
        self._last: list[Any] = []
        """Inputs of the last call that ran."""
        self._rest: _Call | None = None
        self.uploads = False
        """True if a call that has had others before it uploads what host code made."""
        self.keeps_state = False
        """True if a call uses what earlier ones left on the device, or needs values."""

    @property
    def needs_values(self) -> bool:
        """True if each call has to be traced with its own inputs: host code reads values, or shapes are drawn."""
        return self._session.has_read or self._reference.draws_shapes

    def ask(self) -> None:
        """Request the traces, on shapes alone; the last but one after many more calls, the last of a second model."""
        forms = self._reference.forms(self._size)
        for left in reversed(range(self._count)):
            ahead = 0 if left > 1 else self._ahead if left == 1 else -1
            self._session.ask(forms, has_values=False, ahead=ahead, again=left == 0)

    def reruns(self, known: str, right: TraceAnswer) -> "list[_Call]":
        """Wait for the programs; returns those to run, each with the calls before it.

        `right`: the program that passed. `known`: its fingerprint. Programs with a known fingerprint are not checked.
        """
        calls: list[_Call] = []
        waiting: list[tuple[dict[str, Any], bytearray]] = []
        trace, held, last = right, 0, bytearray()
        for index in range(self._count):
            raw, payload = self._session.repeated()
            payload = last = last if payload == last else payload  # a table that is made anew in each call is held once
            name = fingerprint(raw, payload)
            held += len(payload) if name != known else 0
            if held > self._session.memory_mb << 20:
                raise _uploads_too_much(self._session.memory_mb)
            if name != known:
                trace = self._session.checked(raw)
            if index == _LATER:
                self.uploads = any(isinstance(command, Upload) for command in trace.commands)
            if self.needs_values:
                self.keeps_state = True
                continue  # host code got values or shapes of another call: program and inputs would not match
            waiting.append((raw, payload))
            stateful = uses_older_storage(trace) or self._session.wrote_weights
            self.keeps_state |= stateful
            is_later = index == self._count - 2
            if name != known or (stateful and (index < _RUN or is_later)):
                ahead = self._ahead if is_later else 0
                calls.append(_Call(trace, waiting, stateful and 0 < index < _RUN, ahead))
                waiting = []
                known = name
        self._rest = _Call(trace, waiting) if waiting else None
        return calls

    def with_values(self) -> Iterator[RepeatedCall]:
        """Make further calls, each traced with its inputs (`needs_values`). Call after all other requests.

        Every second call gets inputs that read the same as those of the
        previous call. A cached result, keyed by a sampled value or a sum, is wrong for them.
        """
        inputs: list[Any] = []
        for number in range(_FEWEST_READING + self._seed.number("reading") % _MORE_READING):
            alike = number % 2 == 1
            inputs, expected = self._alike(inputs, self._session.reads) if alike else self._fresh()
            self._session.ask(inputs, has_values=True)
            self._session.put(inputs)
            trace, raw, payload = self._session.traced()
            self._session.execute(raw, payload, _views(raw))
            yield RepeatedCall(trace, expected)

    def _alike(self, first: list[Any], reads: Sequence[View]) -> tuple[list[Any], Expected]:
        """Rotate the elements of an input set, except those that host code read."""
        inputs = list(first)
        for index, value in enumerate(first):
            if not isinstance(value, torch.Tensor) or not value.dtype.is_floating_point or value.numel() < _TURNED:
                continue
            inputs[index] = value.contiguous().reshape(-1).roll(1).reshape(value.shape)
            before, after = (flat.contiguous().reshape(-1).view(torch.uint8) for flat in (value, inputs[index]))
            for view in reads:
                if view.storage == index:
                    itemsize = DTYPES[view.dtype].itemsize
                    after[view.offset * itemsize : (view.offset + 1) * itemsize] = before[
                        view.offset * itemsize : (view.offset + 1) * itemsize
                    ]
        expected = self._reference.expected(inputs, perturbed=True)
        return (inputs, expected) if expected.is_finite else self._fresh()

    def _mostly_alike(self, last: list[Any]) -> tuple[list[Any], Expected]:
        """Change some elements of an input set, but never the first or last of a tensor."""
        self._drawn += 1
        others = self._reference.draw(self._size, _TRIAL + self._drawn, self._seed, own=False)
        generator = self._seed.generator("changed", self._drawn)
        inputs = list(last)
        for index, (value, other) in enumerate(zip(last, others, strict=True)):
            if not isinstance(value, torch.Tensor) or not value.dtype.is_floating_point or value.numel() < _TURNED:
                continue
            changes = torch.rand(value.numel(), generator=generator) < _CHANGED
            changes[0] = changes[-1] = False
            if not bool(changes.any()):
                changes[int(torch.randint(1, value.numel() - 1, (), generator=generator))] = True
            inputs[index] = torch.where(changes.reshape(value.shape), other, value)
        expected = self._reference.expected(inputs, perturbed=True)
        return (inputs, expected) if expected.is_finite else self._fresh()

    def start_scrambled(self) -> RepeatedCall | None:
        """Start the last call with random values in place of its kernels' results. Returns None if it already ran."""
        return self.start(self._rest, scrambled=True) if self._rest is not None else None

    def start_scrambled_again(self) -> RepeatedCall:
        """Run a call whose host code reads values once more: what it has read are the values of an ordinary run."""
        inputs, expected = self._fresh()
        self._session.ask(inputs, has_values=True)
        self._session.put(inputs)
        trace, raw, _ = self._session.traced()
        self._session.put(inputs)  # kernels may have changed them before a value was read
        *earlier, (last, payload) = self._session.parts
        made = {"kind": "free", "storages": sorted(made_by(trace))}
        for part, content in earlier:
            self._session.execute({"commands": [made, *part["commands"]]}, content, [], scrambled=True)
            self._session.executed(0)
            made = {"kind": "free", "storages": []}
        self._session.execute({"commands": [made, *last["commands"]]}, payload, _views(raw), scrambled=True)
        return RepeatedCall(trace, expected)

    def start(self, call: "_Call", scrambled: bool = False) -> RepeatedCall:
        """Run a call on fresh values in the interpreter process, after the calls before it that were only traced."""
        inputs, expected = self._mostly_alike(self._last) if call.mostly_alike else self._fresh()
        self._last = inputs
        # Earlier programs run on other values: any state that they leave belongs to other inputs.
        for raw, payload in call.programs[:-1]:
            self._drawn += 1
            self._session.put(self._reference.draw(self._size, _TRIAL + self._drawn, self._seed, own=True))
            self._session.execute(raw, payload, [])
            self._session.executed(0)
        self._session.put(inputs)
        raw, payload = call.programs[-1]
        self._session.execute(raw, payload, _views(raw), scrambled=scrambled, ahead=call.ahead)
        return RepeatedCall(call.trace, expected)

    def _fresh(self) -> tuple[list[Any], Expected]:
        """Draw new values."""
        self._drawn += 1
        trial = _TRIAL + self._drawn
        inputs = self._reference.draw(self._size, trial, self._seed, own=False)
        return self._reference.with_expected(inputs, self._size, trial, self._seed)


def _uploads_too_much(memory_mb: int) -> CandidateFailedError:
    message = f"repeated calls upload different values of more than {memory_mb} MB, which the judge would have to hold"
    return CandidateFailedError(Status.RUNTIME_ERROR, ErrorCategory.OUT_OF_MEMORY, message)


def _views(raw: dict[str, Any]) -> list[Any]:
    return [output["view"] for output in raw["outputs"] if output.get("view") is not None]


@dataclass(frozen=True)
class _Call:
    trace: TraceAnswer
    programs: list[tuple[dict[str, Any], bytearray]]
    """Programs of the calls before it that have not run yet, then its own."""
    mostly_alike: bool = False
    """True to run on inputs that mostly equal those of the previous call."""
    ahead: int = 0
    """Calls by which numbers that kernels count up are advanced before it."""
