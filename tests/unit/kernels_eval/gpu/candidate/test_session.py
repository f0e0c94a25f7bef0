"""A session with a candidate's process on a GPU: validation of its answers, and rounds that are held back."""

import ctypes
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from kernels_eval.gpu.candidate.operator_guard import OperatorGuard
from kernels_eval.gpu.candidate.rounds import Rounds
from kernels_eval.gpu.candidate.session import CANDIDATE_ANSWER, RoundAnswer, RoundRequest, Session
from kernels_eval.gpu.device.gate import GatePage, new_page
from kernels_eval.sandbox.child import CandidateFailedError
from kernels_eval.verdict import Status

CALL = {"structure": "a tensor", "outputs": [{"kind": "tensor", "dtype": "float32", "shape": [2, 3]}]}
KERNEL = {"name": "row_softmax", "duration_ns": 1000, "stream": 0}


def answered(**fields: Any) -> Any:
    return CANDIDATE_ANSWER.validate_python({"kind": "round", "calls": [CALL], **fields})


def test_a_round() -> None:
    answer = answered(unjoined_s=1e-6, kernels=[KERNEL], threads=1)
    assert isinstance(answer, RoundAnswer)
    assert answer.calls[0].outputs[0].shape == (2, 3)
    assert answer.kernels[0].duration_ns == 1000


@pytest.mark.parametrize(
    "fields",
    [
        {"unjoined_s": float("nan")},
        {"threads": -1},
        {"kernels": [{**KERNEL, "duration_ns": -1}]},
        {"kernels": [{**KERNEL, "name": "k" * 2001}]},
        {"calls": [CALL] * 513},
        {"calls": [{**CALL, "outputs": [{"kind": "tensor", "dtype": "quint8", "shape": [2]}]}]},
        {"calls": [{**CALL, "outputs": [{"kind": "tensor", "dtype": "float32", "shape": [-2]}]}]},
        {"kind": "graded"},
    ],
)
def test_a_round_that_cannot_be(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        answered(**fields)


@pytest.mark.parametrize(("status", "category"), [("correct", "exception"), ("rejected", "Not a category")])
def test_a_failure_that_cannot_be(status: str, category: str) -> None:
    failure = {"kind": "failed", "status": status, "category": category, "message": "boo"}
    with pytest.raises(ValidationError):
        CANDIDATE_ANSWER.validate_python(failure)


class Candidate:
    """A candidate's process, as a session sees it, that answers with what it is given once it `is_ready`."""

    def __init__(self, answers: list[dict[str, Any]], is_ready: Callable[[], bool] = lambda: True) -> None:
        self.answers, self.is_ready = answers, is_ready
        self.sent: list[str] = []

    def limit_wait(self, seconds: float) -> None: ...

    def send(self, header: dict[str, Any]) -> None:
        self.sent.append(header["kind"])

    def has_news(self, wait_s: float = 0.0) -> bool:
        return self.is_ready()

    def receive_unchecked(self, most: int) -> tuple[dict[str, Any], bytearray]:
        return self.answers.pop(0), bytearray()

    def check(self, header: dict[str, Any]) -> None:
        raise CandidateFailedError(Status(header["status"]), header["category"], header["message"])

    def receive(self, most: int) -> tuple[Any]:
        return (CANDIDATE_ANSWER.validate_python(self.answers.pop(0)),)


@pytest.fixture
def page() -> GatePage:
    return GatePage(new_page())


def session_with(candidate: Candidate, page: GatePage, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setattr("kernels_eval.gpu.candidate.session.Child", lambda *_: candidate)
    unused: Any = None
    return Session(unused, unused, 0, page)


def session_of_one_round(page: GatePage, monkeypatch: pytest.MonkeyPatch) -> Session:
    """Return a session whose candidate makes one round, of which the device has told the end already."""
    answers: list[dict[str, Any]] = [{"kind": "prepared"}, {"kind": "done"}, {"kind": "round", "calls": [CALL]}]
    monkeypatch.setattr(page, "wait_until_seen", lambda group=1: None)
    monkeypatch.setattr(GatePage, "ended", 3)
    return session_with(Candidate(answers), page, monkeypatch)


def noted(done: list[str]) -> Any:
    names = ("publish", "complete", "sample_at_end", "sample_at_once", "sample", "collect", "stage", "forget_samples")
    steps: dict[str, Any] = {name: (lambda name=name: done.append(name) or time.perf_counter()) for name in names}
    for name in ("deliver", "sample_call"):
        steps[name] = lambda call, name=name: done.append(f"{name} {call}") or time.perf_counter()
    return SimpleNamespace(nbytes=1, count=3, requests=list, watch=lambda call: None, **steps)


def test_a_held_round_is_admitted_when_it_is_made_and_its_outputs_are_copied_before_the_candidate_says_a_word(
    page: GatePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    answers: list[dict[str, Any]] = [{"kind": "prepared"}, {"kind": "done"}, {"kind": "round", "calls": [CALL]}]
    session = session_with(Candidate(answers), page, monkeypatch)
    monkeypatch.setattr(page, "admit", lambda: done.append("admit"))
    monkeypatch.setattr(page, "wait_until_seen", lambda group=1: None)
    monkeypatch.setattr(page, "open", lambda group=1: done.append(f"open {group}"))
    monkeypatch.setattr(GatePage, "ended", 3)

    prepared = session.prepare(noted(done), RoundRequest(gated=True, held=True), 1.0)
    assert done == []
    prepared.make()
    assert done == ["admit", "complete", "sample_at_end", "open 1", "sample_at_once", "sample", "collect"]
    assert len(answers) == 2
    made = prepared.answered()
    assert len(made.answer.calls) == 1
    assert not made.gave_up


def test_a_round_that_fails_leaves_no_sample_to_wait_for(page: GatePage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device tells no end then, and what waits for one would hold the worker up for ever."""
    done: list[str] = []
    failure = {"kind": "failed", "status": "runtime_error", "category": "exception", "message": "ValueError: 3"}
    session = session_with(Candidate([{"kind": "prepared"}, failure]), page, monkeypatch)
    monkeypatch.setattr(page, "wait_until_seen", lambda group=1: None)
    monkeypatch.setattr(page, "wait_for_end", lambda *_: None)
    prepared = session.prepare(noted(done), RoundRequest(gated=True), 1.0)
    with pytest.raises(CandidateFailedError, match="ValueError"):
        prepared.make()
    assert done[-1] == "forget_samples"


def test_in_a_serial_round_the_inputs_of_a_call_arrive_when_the_one_before_it_has_ended(
    page: GatePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    answers: list[dict[str, Any]] = [{"kind": "prepared"}, {"kind": "done"}, {"kind": "round", "calls": [CALL]}]
    session = session_with(Candidate(answers), page, monkeypatch)
    monkeypatch.setattr(page, "wait_until_seen", lambda group=1: done.append(f"seen {group}"))
    monkeypatch.setattr(page, "open", lambda group=1: done.append(f"open {group}"))
    monkeypatch.setattr(page, "wait_for_end", lambda _, group=1, meanwhile=None: done.append(f"ended {group}"))
    monkeypatch.setattr(GatePage, "ended", 3)

    prepared = session.prepare(noted(done), RoundRequest(gated=True, serial=True), 1.0)
    prepared.make()
    steps = (
        [f"deliver {call}", *(f"{step} {call + 1}" for step in ("seen", "open", "ended")), f"sample_call {call}"]
        for call in range(3)
    )
    assert done == ["stage", "seen 1", *(step for call in steps for step in call), "sample", "collect"]
    assert len(prepared.answered().serial) == 3


class CandidatesHost(threading.Thread):
    """Rounds of a candidate whose calls need the host, in groups of one: each adds up what its inputs are by then."""

    def __init__(self, page: GatePage, arrived: list[int], gathers: bool) -> None:
        super().__init__(daemon=True)
        self.page, self.arrived, self.gathers = page, arrived, gathers
        self.outputs: list[int] = []
        held: Any = None
        unused: Any = None
        gate: Any = SimpleNamespace(page=page, end=self.end, close=held)
        tools: Any = SimpleNamespace(synchronize=lambda: None, use_default_stream=lambda: None)
        memory: Any = SimpleNamespace(tensor=None, pull=lambda _: None, push=lambda _: None)
        self.rounds = Rounds(tools, memory, gate, self.call, OperatorGuard(enforce=False), unused)

    def end(self, group: int) -> None:
        (ctypes.c_uint32 * 1024).from_address(self.page.address)[32] = group

    def call(self) -> list[Any]:
        calls = 3 if self.gathers and not self.outputs else 1
        self.outputs += [len(self.arrived)] * calls
        return []

    def prepare(self) -> None:
        call: dict[str, Any] = {"inputs": [], "outputs": []}
        kind = vars(RoundRequest(poison=False, timed=True, serial=True))
        self.rounds.prepare({"nbytes": 1, "calls": [call] * 3, "groups": 3, **kind})

    def run(self) -> None:
        self.rounds.run(lambda _: None)


@pytest.mark.parametrize("gathers", [False, True])
def test_calls_that_need_the_host_can_be_made_one_by_one_as_well(
    page: GatePage, monkeypatch: pytest.MonkeyPatch, gathers: bool
) -> None:
    """One that makes all calls of a round at once does it before the inputs of the others have arrived."""
    page.open(3)  # what an earlier round has left
    answers: list[dict[str, Any]] = [{"kind": "prepared"}, {"kind": "done"}, {"kind": "round", "calls": [CALL]}]
    candidate = Candidate(answers, lambda: False)
    session = session_with(candidate, page, monkeypatch)
    calls, arrived, watched = noted([]), list[int](), list[int]()
    calls.deliver = arrived.append
    calls.watch = watched.append
    host = CandidatesHost(page, arrived, gathers)
    host.prepare()
    prepared = session.prepare(calls, RoundRequest(timed=True, serial=True), 30.0)
    host.start()
    prepared.make()
    host.join(30)
    assert candidate.sent == ["round", "go"]
    assert host.outputs[:3] == ([1, 1, 1] if gathers else [1, 2, 3])
    made = prepared.answered()
    assert len(made.serial) == 3
    assert len(watched) == 1, "half of them"
    assert not made.gave_up


class CandidatesDevice(threading.Thread):
    """The gate's kernels of three groups as a device runs them; host code of a candidate puts off what they tell."""

    def __init__(self, page: GatePage, put_off_s: float) -> None:
        super().__init__(daemon=True)
        self.words = (ctypes.c_uint32 * 1024).from_address(page.address)
        self.put_off_s = put_off_s
        self.delivered = [threading.Event() for _ in range(3)]

    def run(self) -> None:
        for group in (1, 2, 3):
            if group > 1:
                self.delivered[group - 1].wait(30)
                time.sleep(self.put_off_s)
            self.words[3] = group
            while self.words[0] < group:
                self.words[2] += 1
                time.sleep(1e-4)
            self.words[32] = group


@pytest.mark.parametrize("put_off_s", [0.0, 0.03])
def test_in_a_serial_round_a_gate_that_is_put_off_is_waited_for_from_the_arrival_of_the_inputs_on(
    page: GatePage, monkeypatch: pytest.MonkeyPatch, put_off_s: float
) -> None:
    answers: list[dict[str, Any]] = [{"kind": "prepared"}, {"kind": "done"}, {"kind": "round", "calls": [CALL]}]
    session = session_with(Candidate(answers, lambda: False), page, monkeypatch)
    device = CandidatesDevice(page, put_off_s)
    calls = noted([])
    calls.deliver = lambda call: device.delivered[call].set()
    calls.sample_call = lambda call: time.sleep(0.01) or time.perf_counter()
    prepared = session.prepare(calls, RoundRequest(gated=True, serial=True), 30.0)
    device.start()
    prepared.make()
    device.join()
    made = prepared.answered().serial
    assert all(call.waited_s >= put_off_s for call in made[1:])
    assert all(call.sampled_s >= 0.01 for call in made)


class OutlastedWatch:
    """Looks that were all made before a call ended."""

    def begin(self) -> None: ...

    def follow(self) -> None: ...

    def wait_until_told(self) -> float | None:
        return None

    is_told = False


def test_the_sample_of_a_call_that_outlasts_its_looks_is_taken_at_its_end(
    page: GatePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The judge's work with the looks is no time of the call: of one of 0.13 ms it counted as 0.1."""
    session = session_of_one_round(page, monkeypatch)
    calls = noted(done := [])
    calls.watch = lambda call: OutlastedWatch()
    calls.keep_looks = lambda watch: done.append("keep_looks")
    prepared = session.prepare(calls, RoundRequest(gated=True, serial=True), 1.0)
    prepared.make()
    assert [step for step in done if "sample_call" in step or step == "keep_looks"] == [
        step for call in range(3) for step in (f"sample_call {call}", "keep_looks")
    ]
    assert not any(call.is_told for call in prepared.answered().serial)


def test_the_samples_of_a_round_count_until_they_came(page: GatePage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not until the driver has said so."""
    session = session_of_one_round(page, monkeypatch)
    calls = noted([])

    def sample_at_once() -> float:
        came_s = time.perf_counter()
        time.sleep(0.05)
        return came_s

    calls.sample_at_once = sample_at_once
    prepared = session.prepare(calls, RoundRequest(gated=True), 1.0)
    prepared.make()
    assert prepared.answered().sample_s < 0.05


def test_a_slow_copy_engine_is_seen_in_the_samples_of_a_round(page: GatePage, monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow it is for whatever the judge reads: nothing is taken off that was measured beside a candidate."""
    session = session_of_one_round(page, monkeypatch)
    calls = noted([])
    calls.sample_at_once = lambda: time.sleep(0.02) or time.perf_counter()
    prepared = session.prepare(calls, RoundRequest(gated=True, held=True), 1.0)
    prepared.make()
    assert prepared.answered().sample_s >= 0.02


def test_a_held_call_that_waits_for_the_device_has_its_gate_given_up(
    page: GatePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernels_eval.gpu.candidate.session.LONGEST_WAIT_S", 0.05)
    session = session_with(Candidate([{"kind": "prepared"}], lambda: page.gave_up), page, monkeypatch)
    prepared = session.prepare(noted([]), RoundRequest(gated=True, held=True), 30.0)
    assert prepared.page.gave_up


def test_a_held_candidate_that_says_nothing_is_not_waited_for_longer_than_its_time(
    page: GatePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = {"kind": "failed", "status": "timeout", "category": "timeout", "message": "ran longer than 0.1 s"}
    session = session_with(Candidate([failure], lambda: False), page, monkeypatch)
    with pytest.raises(CandidateFailedError, match=r"0\.1 s"):
        session.prepare(noted([]), RoundRequest(gated=True, held=True), 0.1)


def test_leaving_a_session_does_not_wait_for_the_end_of_its_process(
    page: GatePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    candidate: Any = SimpleNamespace(
        release=lambda: done.append("release"), wait_until_ended=lambda: done.append("wait")
    )
    with session_with(candidate, page, monkeypatch) as session:
        assert done == []
    assert done == ["release"]
    session.wait_until_ended()
    assert done == ["release", "wait"]
