"""Shared memory and the limit of the worker's own, before a candidate starts."""

from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernels_eval.correctness.outputs import ReferenceFailedError
from kernels_eval.gpu import candidate_start
from kernels_eval.gpu.call_sets import CallSets
from kernels_eval.gpu.candidate.session import Round, RoundAnswer, SerialCall
from kernels_eval.gpu.candidate_start import CandidateStart
from kernels_eval.gpu.device import cuda_driver
from kernels_eval.gpu.device.shared_memory import MIN_BYTES, rounded_up
from kernels_eval.gpu.reference import GpuReference
from kernels_eval.gpu.timing.phases import Phases
from kernels_eval.reference.inputs import SecretSeed
from kernels_eval.reference.weights import GivenWeights
from kernels_eval.sandbox.messages import StateAnswer

MIB = 1 << 20
PROBLEM = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2.0
def get_inputs():
    return [torch.rand({elements})]
def get_init_inputs():
    return []
"""


class Shared:
    """Shared memory that allocates nothing."""

    def __init__(self) -> None:
        self.nbytes = 0

    def suits(self, nbytes: int) -> bool:
        return rounded_up(nbytes, MIN_BYTES) <= self.nbytes <= 2 * rounded_up(nbytes, MIN_BYTES)

    def reserve(self, nbytes: int) -> None:
        if not self.suits(nbytes):
            self.nbytes = rounded_up(nbytes, MIN_BYTES)

    def release(self) -> None:
        self.nbytes = 0


class Worker:
    """A worker with a share of the memory, whose reference fails if its limit is too low for it."""

    def __init__(self, memory_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cuda_driver, "DEVICE", "cpu")
        monkeypatch.setattr(candidate_start, "keep_within", self._limit)
        self.limit = memory_bytes
        self.state: Any = SimpleNamespace(
            memory_bytes=memory_bytes,
            transport=Shared(),
            lock=SimpleNamespace(shared=self._shared),
            phases=Phases(),
            settle=lambda: None,
        )

    def _limit(self, nbytes: int) -> None:
        self.limit = nbytes

    @contextmanager
    def _shared(self) -> Generator[None]:
        yield

    def reserve(self, mebibytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have a problem's memory ready: inputs of so many MiB, and outputs of as many."""
        reference = GpuReference(PROBLEM.format(elements=mebibytes * MIB // 4), 1)
        sets = CallSets(reference, SecretSeed(b"1"), self.state.transport, self.state.memory_bytes * 2 // 5, lambda: 0)
        learn = sets.learn_forms

        def learn_forms() -> None:
            if self.limit < 2 * mebibytes * MIB:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
            learn()

        monkeypatch.setattr(sets, "learn_forms", learn_forms)
        CandidateStart(self.state, reference, sets, {}, "eager", False).reserve()


def test_a_problem_that_leaves_no_room_takes_none_from_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside its shared memory and the candidate's part nothing is left; a small problem then has its whole share."""
    worker = Worker(250 * MIB, monkeypatch)
    with pytest.raises(ReferenceFailedError, match=r"the problem does not fit into this worker's 0.2 GiB"):
        worker.reserve(64, monkeypatch)
    worker.reserve(1, monkeypatch)
    assert worker.limit > 150 * MIB


def test_shared_memory_that_is_larger_than_needed_is_no_reason_to_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(250 * MIB, monkeypatch)
    worker.reserve(30, monkeypatch)
    worker.state.transport.nbytes = 120 * MIB
    worker.reserve(29, monkeypatch)
    assert worker.state.transport.nbytes < 70 * MIB


def test_a_problem_that_fits_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(512 * MIB, monkeypatch)
    worker.reserve(64, monkeypatch)
    assert worker.limit == 512 * MIB - worker.state.transport.nbytes - 128 * MIB


def test_what_is_taken_off_is_measured_before_the_candidate_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    state = Worker(512 * MIB, monkeypatch).state
    vars(state).update(is_gated=True, can_hold=True, overheads={}, quiet={}, facts=SimpleNamespace(rates=rates()))
    state.transport.mapping = dict
    state.lock.alone = nullcontext
    state.reference_timer = SimpleNamespace(call_s=lambda *_: 1e-5, serial_s=lambda *_: 1e-5)
    sets: Any = SimpleNamespace(most_calls=4, serial_calls=lambda: 4, set_bytes=MIB, draw_ahead=lambda trials: None)
    sets.timed = lambda count: SimpleNamespace(sets=[[]] * count)
    sets.small = lambda: done.append("small")
    sets.sampling_s = lambda: (done.append("sampling"), ((4, 2e-5),))[1]
    reference: Any = SimpleNamespace(
        digest="d",
        eager_launches=[1],
        weights_for=lambda *_: GivenWeights({}),
        forward=lambda *_: None,
        state=lambda _: {},
    )
    waits = iter((7e-6, 6e-6, 8e-6) * 3 + (1e-7,) * 9)

    def empty_round(_: Any, gated: bool, held: bool = False, serial: bool = False) -> Round:
        made = (SerialCall(3e-6, next(waits), 1e-5, 2e-6 if gated else None),) if serial else ()
        return Round(RoundAnswer(kind="round", calls=()), 4e-6, serial=made)

    def load(meanwhile: Any) -> StateAnswer:
        done.append("load")
        return StateAnswer(kind="ready", state={})

    session: Any = SimpleNamespace(
        start=lambda job: done.append("start"), empty_round=empty_round, load=load, set_weights=lambda *_: None
    )
    overheads, quiet, _ = CandidateStart(state, reference, sets, {}, "eager", False).load(session, 2)
    assert done == ["start", "small", "sampling", "load"]
    assert quiet.sampling_s(3) == 2e-5
    assert (overheads.serial.spent_s, overheads.serial.waited_s, overheads.serial.sampled_s) == (3e-6, 7e-6, 1e-5)
    assert overheads.serial_open.waited_s == 1e-7, "no gate is waited for"
    assert overheads.serial_open.seen_s == overheads.serial.seen_s == 2e-6


def rates() -> Any:
    return SimpleNamespace(cache_bytes=0)
