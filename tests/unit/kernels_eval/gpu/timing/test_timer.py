"""Rounds until the fastest agree: the loop, with a reference and a candidate of known times."""

from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kernels_eval.gpu.candidate.session import MAX_CALLS, Round, RoundAnswer, RoundRequest, SerialCall
from kernels_eval.gpu.device.gate import QUEUE
from kernels_eval.gpu.timing.timer import (
    MIN_ROUNDS,
    Device,
    Measured,
    Overhead,
    Overheads,
    SerialOverhead,
    Timer,
    TimingPlan,
    fewer,
    overhead_of,
    serial_overhead_of,
)
from kernels_eval.gpu.timing.timer import UnreliableTimingError as Unreliable

REFERENCE_S = 4e-4
GATED, OPEN = Overhead(5e-5, 1e-4, 3e-4), Overhead(9e-5, 1e-6, 2e-4)
PLAN = TimingPlan(
    most_calls=200,
    set_bytes=1 << 20,
    cache_bytes=0,
    launches=1,
    is_gated=True,
    overheads=Overheads(GATED, OPEN),
    precision=0.01,
    rounds=10,
    wall_s=60.0,
    profiled_round=1,
    some=lambda count: count,
)
Run = Callable[[Any, RoundRequest], Round]


def changed(**fields: Any) -> TimingPlan:
    return TimingPlan(**{**vars(PLAN), **fields})


def calls(count: int) -> Any:
    return SimpleNamespace(count=count, sets=[[]] * count)


def prepared(run: Run) -> Callable[[Any, RoundRequest], Any]:
    """Return rounds that `run` answers."""
    return lambda made, request: SimpleNamespace(make=lambda: None, answered=lambda: run(made, request))


def measure(
    run: Run, plan: TimingPlan = PLAN, second_s: Callable[[Any], float] | None = None, can_hold: bool = True
) -> Measured:
    device = Device(lambda _: REFERENCE_S, second_s, calls, prepared(run), lambda *_: None, nullcontext, can_hold)
    return Timer(plan, device).measure()


def answered(
    host_s: float, gave_up: bool = False, before_s: float = GATED.before_s, after_s: float = GATED.after_s
) -> Round:
    return Round(RoundAnswer(kind="round", calls=()), host_s, before_s, after_s, gave_up)


def honest(call_s: float, seen: list[tuple[int, RoundRequest]] | None = None) -> Run:
    def run(made: Any, request: RoundRequest) -> Round:
        if seen is not None:
            seen.append((made.count, request))
        empty = GATED if request.gated else OPEN
        return answered(empty.host_s + made.count * call_s, before_s=empty.before_s, after_s=empty.after_s)

    return run


def test_steady_times_settle_at_once_and_the_profiled_round_is_not_counted() -> None:
    seen: list[tuple[int, RoundRequest]] = []
    found = measure(honest(1e-4, seen))
    assert found.candidate.seconds == pytest.approx(1e-4)
    assert found.reference.seconds == pytest.approx(REFERENCE_S)
    assert found.is_gated
    assert found.rounds == found.candidate.samples == MIN_ROUNDS
    assert [request.profiled for _, request in seen] == [False, False, False, True, False, False]
    assert [request.gated for _, request in seen] == [False, True, True, True, True, True]
    assert [count for count, _ in seen] == [1, 16, 20, 20, 20, 20], "2 ms a round"


def test_no_call_can_know_that_it_is_the_last_of_its_round() -> None:
    seen: list[tuple[int, RoundRequest]] = []
    found = measure(honest(1e-5, seen), changed(some=fewer, precision=0.0))
    counts = {count for count, request in seen[2:] if not request.profiled}
    assert len(counts) > 1
    assert min(counts) >= 150
    assert max(counts) <= 200
    assert found.candidate.seconds == pytest.approx(1e-5)


def test_one_secret_round_is_made_call_by_call() -> None:
    seen: list[tuple[int, RoundRequest]] = []

    def run(made: Any, request: RoundRequest) -> Round:
        answer = honest(1e-4, seen)(made, request)
        serial = tuple(map(SerialCall, (7e-6, 1.2e-5, 1.3e-5)))
        return replace(answer, serial=serial) if request.serial else answer

    overheads = Overheads(GATED, OPEN, SerialOverhead(5e-6))
    found = measure(run, changed(serial_calls=24, serial_round=2, overheads=overheads))
    assert found.serial_s == found.told_serial_s == pytest.approx(7e-6)
    assert [count for count, request in seen if request.serial] == [24]
    assert found.rounds == MIN_ROUNDS


@pytest.mark.parametrize(
    ("rounds_s", "least_s", "made"),
    [
        ([1.1e-4], 1.1e-4, 1),
        ([1.9e-4, 1.1e-4], 1.1e-4, 2),
        ([1.9e-4, 1.4e-4, 1.1e-4], 1.1e-4, 3),
        ([1.9e-4, 1.4e-4, 1.7e-4], 1.4e-4, 3),
    ],
    ids=["as the rounds say", "disturbed once", "disturbed twice", "they overlap"],
)
def test_calls_that_seem_to_overlap_are_made_one_by_one_again(rounds_s: list[float], least_s: float, made: int) -> None:
    seen: list[tuple[int, RoundRequest]] = []
    left = iter(rounds_s)

    def run(made: Any, request: RoundRequest) -> Round:
        answer = honest(1e-4, seen)(made, request)
        return replace(answer, serial=(SerialCall(next(left)),) * 3) if request.serial else answer

    late = changed(
        serial_calls=24, serial_round=2, late_s=lambda call_s, serial_s, *_: max(0.0, serial_s - 1.2 * call_s)
    )
    found = measure(run, late)
    assert (found.serial_s, found.least_serial_s) == (pytest.approx(rounds_s[0]), pytest.approx(least_s))
    assert sum(request.serial for _, request in seen) == made


EMPTY = [SerialCall(3e-6, wait_us * 1e-6, 1.2e-5) for wait_us in (6, 6.4, 6.8, 7, 7.3, 7.7, 60)]
"""Calls that do nothing: gates of which a turn takes 2 us; at one of them the machine was busy."""


@pytest.mark.parametrize(
    ("waited_s", "sampled_s", "counted_s"),
    [
        (6e-6, 1e-5, 1e-5),
        (8e-6, 3e-5, 1e-5),
        (8.75e-6 + 4e-5, 1.2e-5, 5e-5),
        (7e-6, 3.2e-5 + 4e-5, 5e-5),
    ],
    ids=["early", "late, as honest ones are", "its gate is put off", "its sample is put off"],
)
def test_the_time_for_which_a_call_alone_was_kept_from_starting_or_being_sampled_counts(
    waited_s: float, sampled_s: float, counted_s: float
) -> None:
    found = serial_overhead_of(EMPTY).call_s(SerialCall(1.3e-5, waited_s, sampled_s))
    assert found == pytest.approx(counted_s)


def test_the_sample_of_a_call_whose_end_a_look_has_found_does_not_count() -> None:
    """The look has read the outputs long before it."""
    late = SerialCall(1.3e-5, 7e-6, 3.2e-5 + 4e-5, seen_s=2e-6)
    overhead = serial_overhead_of(EMPTY)
    assert overhead.call_s(replace(late, is_told=True)) == pytest.approx(1e-5)
    assert overhead.call_s(late) == pytest.approx(5e-5), "the last look had come without that"


def test_what_rounds_without_calls_take_is_their_median() -> None:
    made = [replace(answered(us * 1e-6), sample_s=us * 2e-6) for us in (5, 9, 6)]
    assert (overhead_of(made).host_s, overhead_of(made).sample_s) == (pytest.approx(6e-6), pytest.approx(1.2e-5))


def looked_at(seen_us: list[float | None]) -> list[SerialCall]:
    return [SerialCall(3e-6, seen_s=None if us is None else us * 1e-6) for us in seen_us]


@pytest.mark.parametrize(
    ("seen_us", "unseen_us"),
    [
        ([2.0, 3.0, 2.5], 0.0),
        ([2.9, 3.1, 2.9], 0.0),
        ([4.5, 5.5, 5.0], 2.0),
        ([5.0, None, 5.0], 2.0),
        ([None, None, None], 0.0),
    ],
    ids=["as without a candidate", "by noise", "told early", "some took longer than the looks", "all did"],
)
def test_the_time_from_an_end_to_the_look_that_finds_it_counts(seen_us: list[float | None], unseen_us: float) -> None:
    overhead = serial_overhead_of(looked_at([2.0, 2.5, None, 3.0]))
    assert 1e6 * overhead.unseen_s(looked_at(seen_us)) == pytest.approx(unseen_us)


def test_it_does_not_count_where_no_look_was_made_without_a_candidate() -> None:
    assert serial_overhead_of(looked_at([None] * 3)).unseen_s(looked_at([9.0] * 3)) == 0.0


def test_an_end_that_is_told_early_adds_to_a_call_alone() -> None:
    def run(made: Any, request: RoundRequest) -> Round:
        answer = honest(1e-4)(made, request)
        return replace(answer, serial=(SerialCall(1.3e-5, seen_s=7e-6),) * 3) if request.serial else answer

    overheads = Overheads(GATED, OPEN, SerialOverhead(spent_s=5e-6, seen_s=2e-6))
    found = measure(run, changed(serial_calls=3, serial_round=1, overheads=overheads))
    assert found.serial_s == pytest.approx(8e-6 + 4.5e-6)
    assert found.told_serial_s == pytest.approx(8e-6)


def test_what_a_candidate_puts_off_is_not_told_as_the_time_of_a_call_alone() -> None:
    """It may not hide that a call takes less time than its kernels."""

    def run(made: Any, request: RoundRequest) -> Round:
        answer = honest(1e-4)(made, request)
        return replace(answer, serial=(SerialCall(1.3e-5, 4e-5),) * 3) if request.serial else answer

    overheads = Overheads(GATED, OPEN, SerialOverhead(spent_s=5e-6))
    found = measure(run, changed(serial_calls=3, serial_round=1, overheads=overheads))
    assert found.serial_s == pytest.approx(4.8e-5)
    assert found.told_serial_s == pytest.approx(8e-6)


def test_a_second_baseline_is_timed_in_every_round_and_takes_no_more_of_them() -> None:
    times = iter([1e-4, 5e-4, 3e-4])
    found = measure(honest(1e-4), second_s=lambda _: next(times))
    assert found.second is not None
    assert found.second.seconds == pytest.approx(3e-4)
    assert found.rounds == found.second.samples == MIN_ROUNDS


@pytest.mark.parametrize("can_hold", [True, False])
def test_only_what_is_timed_keeps_others_from_the_device(can_hold: bool) -> None:
    """A round that can be held back is prepared beside others; one that cannot, and one without a gate, is not."""
    done: list[str] = []

    @contextmanager
    def alone() -> Generator[None]:
        done.append("<")
        yield
        done.append(">")

    def noted(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given: (done.append(name), work(*given))[1]

    def prepare(made: Any, request: RoundRequest) -> Any:
        return SimpleNamespace(make=noted("m", str), answered=noted("o", lambda: honest(1e-4)(made, request)))

    device = Device(
        reference_s=noted("r", lambda _: REFERENCE_S),
        second_s=noted("s", lambda _: 1e-4),
        new_calls=noted("n", calls),
        prepare=noted("p", prepare),
        check=noted("c", lambda *_: None),
        alone=alone,
        can_hold=can_hold,
    )
    Timer(PLAN, device).measure()
    first, profiled, timed = "npmocnp<m>oc<r>", "np<m>oc", "np<rms>oc"
    if not can_hold:
        first, profiled, timed = "npmocn<pm>oc<r>", "n<pm>oc", "n<rpms>oc"
    assert "".join(done) == first + timed + profiled + timed + timed


def test_noise_takes_all_rounds() -> None:
    times = iter([1e-4 * 1.1**number for number in range(20)])
    assert measure(lambda made, _: answered(GATED.host_s + made.count * next(times))).rounds == PLAN.rounds


def test_a_candidate_that_waits_for_the_device_is_timed_with_its_host() -> None:
    seen: list[RoundRequest] = []

    def waits(made: Any, request: RoundRequest) -> Round:
        seen.append(request)
        return answered(1.0, gave_up=True) if request.gated else honest(3e-4)(made, request)

    found = measure(waits)
    assert not found.is_gated
    assert [request.early for request in seen] == [False, True, *[False] * (len(seen) - 2)], "it reads its inputs"
    assert found.candidate.seconds == pytest.approx(3e-4)
    assert [request.profiled for request in seen if request.timed] == [request.profiled for request in seen]
    assert any(request.profiled for request in seen), "a profiled round is one like those that count"


def test_a_candidate_that_waits_for_the_device_makes_one_secret_round_call_by_call_too() -> None:
    seen: list[tuple[int, RoundRequest]] = []

    def run(made: Any, request: RoundRequest) -> Round:
        if request.gated:
            return answered(1.0, gave_up=True)
        answer = honest(1e-4, seen)(made, request)
        looked_at = SerialCall(4e-4, seen_s=7e-6, counts=False)
        return replace(answer, serial=(SerialCall(1.7e-4), looked_at, looked_at)) if request.serial else answer

    overheads = Overheads(GATED, OPEN, SerialOverhead(5e-6), SerialOverhead(3e-5, seen_s=2e-6))
    found = measure(run, changed(serial_calls=24, serial_round=2, overheads=overheads))
    assert [count for count, request in seen if request.serial] == [24]
    assert not found.is_gated
    assert found.told_serial_s == pytest.approx(1.4e-4), "looks keep such calls from the copy engine"
    assert found.serial_s == found.least_serial_s == pytest.approx(1.4e-4 + 4.5e-6), "their end was told early"


def test_a_machine_without_gates_makes_no_round_call_by_call() -> None:
    seen: list[tuple[int, RoundRequest]] = []
    assert measure(honest(1e-4, seen), changed(is_gated=False, serial_calls=24)).serial_s is None
    assert not any(request.serial for _, request in seen)


def test_a_gate_that_fails_later_is_a_fault_of_the_measurement() -> None:
    rounds = iter([False] * 2 + [True] * 9)
    with pytest.raises(Unreliable, match="queue"):
        measure(lambda made, request: answered(0.1, gave_up=next(rounds)))


def test_a_round_that_takes_no_time_is_a_fault_of_the_measurement() -> None:
    with pytest.raises(Unreliable, match="empty") as failed:
        measure(lambda *_: answered(GATED.host_s / 2))
    assert failed.value.category == "clock_disagreement"


def test_outputs_are_checked_before_the_clock() -> None:
    """Calls that did nothing took no time: they are wrong, and no fault of the measurement."""

    def check(made: Round, _: Any) -> None:
        if made.host_s < GATED.host_s:
            raise ValueError("wrong values")

    run = prepared(lambda *_: answered(GATED.host_s / 2))
    device = Device(lambda _: REFERENCE_S, None, calls, run, check, nullcontext, True)
    with pytest.raises(ValueError, match="wrong values"):
        Timer(PLAN, device).measure()
    rounds = iter([honest(1e-4)] * 2 + [lambda *_: answered(GATED.host_s / 2)] * 9)
    later = replace(device, prepare=prepared(lambda made, request: next(rounds)(made, request)))
    with pytest.raises(ValueError, match="wrong values"):
        Timer(PLAN, later).measure()


def with_changes(changes: list[tuple[float, float]]) -> Run:
    """Return rounds in which the device changes to the candidate and back by so much later than usual."""
    given = iter(changes * 10)

    def run(made: Any, _: RoundRequest) -> Round:
        before_s, after_s = next(given)
        host_s = GATED.host_s + made.count * 1e-4
        return answered(host_s, before_s=GATED.before_s + before_s, after_s=GATED.after_s + after_s)

    return run


@pytest.mark.parametrize(("change", "late_s"), [((6.7e-4, 0.0), 6.5e-4), ((0.0, 8e-4), 6.5e-4), ((2e-5, 1.5e-4), 0.0)])
def test_a_device_that_changed_later_than_usual_was_at_work(change: tuple[float, float], late_s: float) -> None:
    assert measure(with_changes([change])).candidate.seconds == pytest.approx(1e-4 + late_s / 20)


@pytest.mark.parametrize(("sample_s", "late_s"), [(5e-5, 0.0), (6e-5, 0.0), (4.6e-4, 4e-4)])
def test_samples_that_came_later_than_without_a_candidate_left_it_time(sample_s: float, late_s: float) -> None:
    """The usual time is that of a round without calls, and what 20 of them take longer than one."""

    def run(made: Any, request: RoundRequest) -> Round:
        return replace(honest(1e-4)(made, request), sample_s=sample_s)

    overheads = Overheads(replace(GATED, sample_s=1.2e-5), OPEN)
    found = measure(run, changed(sampling_s=lambda calls: 2e-6 * calls, overheads=overheads))
    assert found.candidate.seconds == pytest.approx(1e-4 + late_s / 20)


def test_one_late_change_between_processes_among_others_is_noise() -> None:
    found = measure(with_changes([(1e-4, 3e-4), (0.0, 0.0), (0.0, 0.0), (0.0, 0.0)]))
    assert found.candidate.seconds == pytest.approx(1e-4)


@pytest.mark.parametrize(
    ("plan", "call_s", "count"),
    [
        (changed(most_calls=150), 1e-5, 150),  # 200 would make 2 ms; memory is for 150
        (changed(most_calls=900), 1e-5, 200),
        (changed(most_calls=10_000), 1e-7, min(MAX_CALLS, QUEUE)),
        (PLAN, 1.0, 1),
        (changed(cache_bytes=50 << 20), 1.0, 125),  # each set of inputs is out of the cache when it comes again
        (changed(launches=10), 1e-6, QUEUE // 10),
        (changed(launches=10 * QUEUE), 1e-6, 1),
        (changed(most_calls=1), 1e-6, 1),
    ],
)
def test_calls_of_a_round(plan: TimingPlan, call_s: float, count: int) -> None:
    assert plan.calls(call_s) == count


def test_more_launches_than_a_queue_holds_are_not_gated() -> None:
    assert not measure(honest(1e-4), changed(launches=QUEUE + 1)).is_gated
