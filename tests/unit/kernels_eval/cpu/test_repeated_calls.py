"""Further calls of a candidate: nothing is run while programs stay the same; one that differs is, after those before it."""

import itertools
from collections.abc import Iterable
from typing import Any

import pytest
import torch

from kernels_eval.cpu.repeated_calls import RepeatedCalls
from kernels_eval.reference.inputs import SecretSeed
from kernels_eval.sandbox.child import CandidateFailedError
from kernels_eval.sandbox.messages import ExecutedAnswer
from kernels_eval.trace.equivalence import fingerprint
from kernels_eval.trace.schema import FIRST_OWN, TraceAnswer, View

SEEDS = [SecretSeed(bytes([number]) * 16) for number in range(8)]
VIEW = {"kind": "view", "storage": 0, "dtype": "float32", "shape": [4], "strides": [1], "offset": 0}


def program(factor: int, storage: int = 0) -> dict[str, Any]:
    arguments = {"x": {**VIEW, "storage": storage}, "factor": {"kind": "plain", "value": factor}}
    launch = {"kind": "launch", "kernel": 0, "arguments": arguments, "grid": [1, 1, 1]}
    return {"kind": "trace", "kernels": [], "commands": [launch], "structure": "", "outputs": [{"view": VIEW}]}


class Session:
    """The judge's side of a candidate whose calls leave given programs behind; notes what it is asked to run.

    `payloads`: what the calls upload, in turn.
    """

    memory_mb = 1

    def __init__(self, *programs: dict[str, Any], payloads: Iterable[bytes] = ()) -> None:
        self._payloads = iter(payloads)
        self.asked: list[dict[str, Any]] = []
        self.executed_programs: list[tuple[int, list[float], dict[str, Any]]] = []
        self.has_read = self.wrote_weights = False
        self.reads: list[View] = []
        self._programs = iter(programs)
        self._inputs: list[Any] = []

    def ask(self, inputs: list[Any], **how: Any) -> None:
        self.asked.append(how)

    def repeated(self) -> tuple[dict[str, Any], bytearray]:
        return next(self._programs), bytearray(next(self._payloads, b""))

    def checked(self, raw: dict[str, Any]) -> TraceAnswer:
        return TraceAnswer.model_validate(raw)

    def put(self, inputs: list[Any]) -> None:
        self._inputs = inputs

    def traced(self) -> tuple[TraceAnswer, dict[str, Any], bytearray]:
        raw = next(self._programs)
        return self.checked(raw), raw, bytearray()

    def execute(self, raw: dict[str, Any], payload: bytearray, outputs: list[Any], **how: Any) -> None:
        factor = raw["commands"][0]["arguments"]["factor"]["value"]
        self.executed_programs.append((factor, self._inputs[0].tolist(), how))

    def executed(self, max_bytes: int) -> tuple[ExecutedAnswer | None, bytearray]:
        return None, bytearray()


class Expected:
    is_finite = True


class Reference:
    """A problem with one input of 64 elements."""

    draws_shapes = False

    def forms(self, size: int | None) -> list[Any]:
        return []

    def draw(self, size: int | None, trial: int, seed: SecretSeed, own: bool) -> list[Any]:
        return [torch.rand(64, generator=torch.Generator().manual_seed(trial))]

    def with_expected(self, inputs: list[Any], *_: Any) -> tuple[list[Any], Expected]:
        return inputs, Expected()

    def expected(self, inputs: list[Any], perturbed: bool) -> Expected:
        return Expected()


def repeated(session: Session, seed: SecretSeed = SEEDS[0]) -> RepeatedCalls:
    made = RepeatedCalls(session, Reference(), 4, seed)  # pyright: ignore[reportArgumentType]
    made.ask()
    return made


def found(calls: RepeatedCalls, right: dict[str, Any]) -> list[Any]:
    return calls.reruns(fingerprint(right, b""), TraceAnswer.model_validate(right))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_dozen_calls_and_more_are_asked_for_the_last_but_one_far_ahead(seed: SecretSeed) -> None:
    session = Session()
    repeated(session, seed)
    assert 12 <= len(session.asked) < 17
    *first, far, second_model = session.asked
    assert all(how["ahead"] == 0 and not how["again"] for how in first)
    assert far["ahead"] >= 1000
    assert second_model["again"]


def test_the_number_of_calls_is_secret() -> None:
    counts: set[int] = set()
    for seed in SEEDS:
        repeated(session := Session(), seed)
        counts.add(len(session.asked))
    assert len(counts) > 1


def test_calls_with_the_program_that_passed_are_not_run() -> None:
    session = Session(*[program(2)] * 20)
    calls = repeated(session)
    assert found(calls, program(2)) == []
    assert session.executed_programs == []
    scrambled = calls.start_scrambled()
    assert scrambled is not None
    factor, _, how = session.executed_programs[-1]
    assert (factor, how["scrambled"]) == (2, True)


def test_a_program_that_differs_is_run_after_those_before_it() -> None:
    session = Session(*[program(2)] * 5, *[program(3)] * 15)
    calls = repeated(session)
    (call,) = found(calls, program(2))
    run = calls.start(call)
    assert [factor for factor, *_ in session.executed_programs] == [2] * 5 + [3]
    assert len({tuple(values) for _, values, _ in session.executed_programs}) == 6  # each on values of its own
    assert run.trace.commands[0] == TraceAnswer.model_validate(program(3)).commands[0]


def test_kernels_with_memory_of_earlier_calls_are_run_though_their_program_stays() -> None:
    """Such kernels could count calls: three are run, and the one after which counters are far ahead."""
    kept = program(2, storage=FIRST_OWN + 5)
    session = Session(*[kept] * 20)
    calls = repeated(session)
    runs = found(calls, kept)
    for call in runs:
        calls.start(call)
    assert len(runs) == 4
    ahead = [how["ahead"] for *_, how in session.executed_programs if "ahead" in how]
    assert ahead[:3] == [0, 0, 0]
    assert ahead[3] >= 1000


def test_inputs_of_such_calls_mostly_equal_those_of_the_call_before() -> None:
    kept = program(2, storage=FIRST_OWN + 5)
    session = Session(*[kept] * 20)
    calls = repeated(session)
    for call in found(calls, kept)[:3]:
        calls.start(call)
    drawn = [torch.tensor(values) for _, values, _ in session.executed_programs]
    for before, after in itertools.pairwise(drawn):
        changed = (before != after).nonzero().flatten().tolist()
        assert 0 < len(changed) < 32
        assert not {0, 63} & set(changed)


def test_host_code_that_reads_gets_other_values_behind_those_that_it_reads() -> None:
    session = Session(*[program(2)] * 10)
    session.has_read = True
    session.reads = [View(storage=0, dtype="float32", shape=(), strides=(), offset=7)]
    list(RepeatedCalls(session, Reference(), 4, SEEDS[0]).with_values())  # pyright: ignore[reportArgumentType]
    (_, first, _), (_, second, _), *_ = session.executed_programs
    assert second[7] == first[7]
    assert [value for place, value in enumerate(second) if place != 7] != [
        value for place, value in enumerate(first) if place != 7
    ]
    assert second[8:] == first[7:-1]  # rotated, so that its sum is the same but for what was read


_MOST = 1 << 20
"""Bytes that a candidate of this file may have held."""


def test_a_table_that_is_uploaded_in_each_call_is_held_once() -> None:
    session = Session(*[program(2)] * 20, payloads=itertools.repeat(bytes(_MOST)))
    assert len(found(calls := repeated(session), program(2))) == 1
    assert calls._rest is not None
    assert len({id(payload) for _, payload in calls._rest.programs}) == 1


def test_different_uploads_of_more_than_its_memory_are_refused() -> None:
    calls = (bytes([number]) * (_MOST // 4) for number in range(20))
    with pytest.raises(CandidateFailedError, match="of more than 1 MB") as refused:
        found(repeated(Session(*[program(2)] * 20, payloads=calls)), program(2))
    assert refused.value.category == "out_of_memory"


def test_small_uploads_that_differ_are_run() -> None:
    session = Session(*[program(2)] * 20, payloads=(bytes([number]) * 64 for number in range(20)))
    assert len(found(repeated(session), program(2))) == len(session.asked)
