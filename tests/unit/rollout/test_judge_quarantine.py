"""Judges on which the machine fails, in virtual time: they get no kernels until a probe passes, and no kernel is lost."""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels_eval.errors import InfrastructureError, InputError
from kernels_eval.problem import Problem
from kernels_eval.rewards import Answer
from kernels_eval.verdict import Status, Verdict, fault
from tasks.rollout.engines import FinishReason
from tasks.rollout.judge_client import JudgeClient
from tasks.rollout.judge_place import Ask, Place
from tests.unit.rollout.simulated_judges import RIGHT, farm_of, in_virtual_time

KERNELS = 128
FAULT = fault("judge_fault", "the device is lost")
FOREVER = float("inf")


def answering(verdict: Verdict) -> Callable[[], Awaitable[Verdict]]:
    async def answer() -> Verdict:
        return verdict

    return answer


failing = answering(FAULT)


async def raising() -> Verdict:
    raise InfrastructureError("the device is lost")


async def silent() -> Verdict:
    return await asyncio.get_running_loop().create_future()


@dataclass
class Machines:
    """A farm whose judges named in `bad` answer as `fails` does until their time; a replacement is as bad."""

    places: int
    bad: dict[str, float] = field(default_factory=dict[str, float])
    """By place: the second from which on it judges again."""
    fails: Callable[[], Awaitable[Verdict]] = failing
    fails_probes: Callable[[], Awaitable[Verdict]] = failing
    cursed: set[int] = field(default_factory=set[int])
    """Kernels on which every judge fails."""
    workers: int = 2

    def __post_init__(self) -> None:
        self.farm = farm_of(self.places, self.workers, self.probe, self.replace)
        self.asked: dict[int, list[str]] = {}
        self.sent, self.probed, self.replaced = Counter[str](), Counter[str](), Counter[str]()
        self.reasons: list[str] = []
        for place in self.farm.places:
            place.judge = object()

    def is_bad(self, place: Place) -> bool:
        return asyncio.get_running_loop().time() < self.bad.get(place.name, 0.0)

    async def probe(self, place: Place) -> Verdict:
        self.probed[place.name] += 1
        if self.is_bad(place):
            return await self.fails_probes()
        await asyncio.sleep(0.1)
        return RIGHT

    def replace(self, place: Place, dead: object, reason: str) -> None:
        assert place.judge is dead
        place.judge = object()
        self.replaced[place.name] += 1
        self.reasons.append(reason)

    def ask(self, number: int) -> Ask:
        async def answer(place: Place) -> Verdict:
            self.sent[place.name] += 1
            self.asked.setdefault(number, []).append(place.name)
            if self.is_bad(place):
                return await self.fails()
            await asyncio.sleep(0.2)
            return FAULT if number in self.cursed else RIGHT

        return answer

    async def evaluate_async(self, problem: Problem, kernel_source: str) -> Verdict:
        return await self.farm.verdict(problem.source, self.ask(int(kernel_source)))

    async def judge(self, count: int = KERNELS) -> list[Verdict]:
        """Return the verdicts of the client, which asks once more after a fault."""
        client = JudgeClient(self, lambda verdict, answer: 1.0, patience_s=600.0)

        async def one(number: int) -> Verdict:
            problem = Problem(problem_id="p", source=f"topic {number % 8}")
            judged = await client.judge_response(problem, str(number), FinishReason.STOP, Answer(text="", tokens=1))
            return judged.verdict

        return list(await asyncio.gather(*map(one, range(count))))


@pytest.mark.parametrize("places", [2, 4, 8])
@pytest.mark.parametrize("fails", [failing, raising])
def test_a_judge_that_answers_with_faults_costs_no_kernel(places: int, fails: Callable[[], Awaitable[Verdict]]):
    async def play() -> None:
        machines = Machines(places, {"judge-1": FOREVER}, fails)
        assert await machines.judge() == [RIGHT] * KERNELS
        assert machines.sent["judge-1"] <= 5, "those that it had room for, and one in the place of the first"
        assert machines.farm.quarantine.entered == 1
        assert [place.is_in_service for place in machines.farm.places] == [n != 1 for n in range(places)]

    in_virtual_time(play())


def test_three_bad_judges_of_four_cost_no_kernel():
    async def play() -> None:
        machines = Machines(4, {f"judge-{number}": FOREVER for number in range(3)})
        assert await machines.judge() == [RIGHT] * KERNELS

    in_virtual_time(play())


def test_a_kernel_that_met_a_fault_goes_to_another_judge():
    async def play() -> None:
        machines = Machines(4, cursed=set(range(KERNELS)))
        verdict = await machines.farm.verdict("topic", machines.ask(0))
        assert verdict == FAULT
        assert len(set(machines.asked[0])) == len(machines.asked[0]) == 3

    in_virtual_time(play())


@pytest.mark.parametrize("cursed", [{40}, {4, 5, 6, 7, 40, 41, 42, 43, 80, 120, 121}])
@pytest.mark.parametrize("places", [1, 2, 4])
def test_kernels_on_which_every_judge_fails_cost_no_other_kernel(places: int, cursed: set[int]):
    async def play() -> None:
        machines = Machines(places, cursed=cursed)
        verdicts = await machines.judge()
        assert verdicts == [FAULT if number in cursed else RIGHT for number in range(KERNELS)]
        assert all(len(machines.asked[number]) <= 6 for number in cursed), "three judges, and the client asks twice"
        await asyncio.sleep(1.0)
        assert all(place.is_in_service for place in machines.farm.places)
        assert machines.probed.total() == machines.farm.quarantine.entered, "each probe passed at once"
        assert not machines.replaced

    in_virtual_time(play())


@pytest.mark.parametrize("places", [1, 4])
@pytest.mark.parametrize(
    ("fails", "cause"),
    [
        (failing, "the device is lost"),
        (raising, "the device is lost"),
        (answering(Verdict(status=Status.INCORRECT, error_message="off by one")), "incorrect: off by one"),
        (silent, "no answer in 60 s"),
    ],
)
def test_where_every_judge_is_bad_kernels_end_as_faults_with_the_cause(
    places: int, fails: Callable[[], Awaitable[Verdict]], cause: str
):
    async def play() -> None:
        machines = Machines(places, {f"judge-{n}": FOREVER for n in range(places)}, fails_probes=fails)
        verdicts = await asyncio.gather(
            *(machines.farm.verdict(f"topic {number % 8}", machines.ask(number)) for number in range(KERNELS))
        )
        assert {verdict.error_message for verdict in verdicts} == {f"no judge is in service: {cause}"}
        assert all(verdict.is_fault for verdict in verdicts)
        assert machines.sent.total() <= 5 * places, "the others were sent to none"
        assert set(machines.probed.values()) <= {4, 5}, "the last judge's fifth"

    in_virtual_time(play())


@pytest.mark.parametrize("bad", [["judge-1"], ["judge-0", "judge-1", "judge-2", "judge-3"]])
def test_a_judge_that_recovers_gets_kernels_again(bad: list[str]):
    async def play() -> None:
        machines = Machines(4, dict.fromkeys(bad, 5.0))
        assert await machines.judge() == [RIGHT] * KERNELS
        await asyncio.sleep(30.0)
        assert all(place.is_in_service for place in machines.farm.places)
        machines.sent.clear()
        assert await machines.judge() == [RIGHT] * KERNELS
        assert all(machines.sent[name] >= 10 for name in bad)
        assert not machines.replaced

    in_virtual_time(play())


@pytest.mark.parametrize("fails", [failing, raising, silent, answering(Verdict(status=Status.TIMEOUT))])
def test_a_judge_on_which_probes_go_on_failing_is_replaced_and_the_operator_is_told(
    fails: Callable[[], Awaitable[Verdict]], caplog: pytest.LogCaptureFixture
):
    async def play() -> None:
        machines = Machines(2, {"judge-1": FOREVER}, fails_probes=fails)
        assert await machines.judge() == [RIGHT] * KERNELS
        while not machines.replaced:
            await asyncio.sleep(1.0)
        assert machines.probed == {"judge-1": 5}
        assert "5 probes failed, the last: " in machines.reasons[0]
        machines.bad.clear()
        while not all(place.is_in_service for place in machines.farm.places):
            await asyncio.sleep(1.0)

    in_virtual_time(play())
    lines = [record.getMessage() for record in caplog.records if record.message.startswith("judge-1: ")]
    assert sum("2 faults in a row, the last: the device is lost" in line for line in lines) == 1
    assert sum("it gets kernels again" in line for line in lines) == 1


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.INFRASTRUCTURE_ERROR])
def test_verdicts_on_kernels_take_no_judge_out_of_service(status: Status):
    async def play() -> None:
        machines = Machines(2, {"judge-0": FOREVER, "judge-1": FOREVER}, answering(Verdict(status=status)))
        assert {verdict.status for verdict in await machines.judge()} == {status}
        assert machines.farm.quarantine.entered == 0
        assert machines.sent.total() == KERNELS, "each is judged once"

    in_virtual_time(play())


def test_neither_do_problems_that_fail_nor_bad_input():
    async def refuses() -> Verdict:
        raise InputError("not Python")

    async def play() -> None:
        broken = Machines(
            2, {"judge-0": FOREVER, "judge-1": FOREVER}, answering(fault("reference_failed", "it raised"))
        )
        assert {verdict.error_category for verdict in await broken.judge()} == {"reference_failed"}
        assert (broken.farm.quarantine.entered, broken.sent.total()) == (0, KERNELS)
        refusing = Machines(2, {"judge-0": FOREVER, "judge-1": FOREVER}, refuses)
        for number in range(5):
            with pytest.raises(InputError):
                await refusing.farm.verdict("topic", refusing.ask(number))
        assert (refusing.farm.quarantine.entered, refusing.sent.total()) == (0, 5)

    in_virtual_time(play())


def test_other_errors_are_raised_at_once_and_count():
    """An actor that dies raises such an error: its kernel is the caller's to send again."""

    async def dies() -> Verdict:
        raise ConnectionError("it died")

    async def play() -> None:
        machines = Machines(1, {"judge-0": 0.5}, dies)
        for number in range(2):
            with pytest.raises(ConnectionError):
                await machines.farm.verdict("topic", machines.ask(number))
        assert not machines.farm.places[0].is_in_service
        assert await machines.farm.verdict("topic", machines.ask(2)) == RIGHT

    in_virtual_time(play())


def test_a_kernel_returns_to_a_judge_that_failed_on_it_rather_than_wait_for_one_out_of_service():
    async def play() -> None:
        machines = Machines(2, {"judge-1": FOREVER})
        await machines.judge()
        machines.cursed = {500}
        assert await machines.farm.verdict("topic", machines.ask(500)) == FAULT
        assert machines.asked[500] == ["judge-0"] * 3

    in_virtual_time(play())


def test_a_closed_farm_sends_no_further_probe():
    async def play() -> None:
        machines = Machines(2, {"judge-1": FOREVER})
        await machines.judge()
        machines.farm.quarantine.close()
        sent = machines.probed.copy()
        await asyncio.sleep(300.0)
        assert machines.probed == sent

    in_virtual_time(play())


@pytest.mark.parametrize("places", [1, 4])
def test_kernels_that_wait_for_a_judge_out_of_service_end_when_the_farm_is_closed(places: int):
    async def play() -> None:
        machines = Machines(places, {f"judge-{n}": FOREVER for n in range(places)}, fails_probes=silent)
        calls = [asyncio.ensure_future(machines.farm.verdict("topic", machines.ask(n))) for n in range(20)]
        await asyncio.sleep(5.0)
        assert not any(call.done() for call in calls)
        machines.farm.close()
        async with asyncio.timeout(1.0):
            verdicts = await asyncio.gather(*calls)
        assert {(verdict.error_category, verdict.error_message) for verdict in verdicts} == {
            ("judge_closed", "the judge was closed")
        }
        machines.bad.clear()
        assert (await machines.farm.verdict("topic", machines.ask(20))).error_category == "judge_closed"
        assert asyncio.all_tasks() == {asyncio.current_task()}, "no probe goes on"

    in_virtual_time(play())


@dataclass
class Renewed(Machines):
    """Machines whose replacements are well. The first `troubles` of them cannot be had."""

    troubles: int = 0

    def replace(self, place: Place, dead: object, reason: str) -> None:
        if self.troubles:
            self.troubles -= 1
            raise ConnectionError("the cluster does not answer")
        super().replace(place, dead, reason)
        del self.bad[place.name]


@pytest.mark.parametrize("is_well_again", [False, True])
def test_a_replacement_that_fails_ends_no_probes(is_well_again: bool, caplog: pytest.LogCaptureFixture):
    async def play() -> None:
        machines = Renewed(1, {"judge-0": 60.0 if is_well_again else FOREVER}, troubles=100 if is_well_again else 1)
        await machines.judge(8)
        async with asyncio.timeout(600.0):
            while not machines.farm.places[0].is_in_service:
                await asyncio.sleep(1.0)
        assert machines.replaced == ({} if is_well_again else {"judge-0": 1})
        assert await machines.judge(8) == [RIGHT] * 8

    in_virtual_time(play())
    (line, *_) = [record for record in caplog.records if "the cluster does not answer" in record.getMessage()]
    assert line.getMessage().startswith("judge-0: ")
    assert line.levelno == logging.WARNING


async def cancelled() -> Verdict:
    raise asyncio.CancelledError


def test_a_cancelled_probe_has_failed_and_others_follow():
    async def play() -> None:
        machines = Machines(1, {"judge-0": 5.0}, fails_probes=cancelled)
        assert await machines.judge(8) == [RIGHT] * 8
        assert machines.probed["judge-0"] > 1

    in_virtual_time(play())


@pytest.mark.parametrize("places", [1, 4])
def test_kernels_outlast_judges_that_answer_no_probe(places: int):
    async def play() -> None:
        machines = Renewed(places, {f"judge-{n}": FOREVER for n in range(places)}, fails_probes=silent)
        assert await machines.judge() == [RIGHT] * KERNELS
        assert machines.replaced.total() == places

    in_virtual_time(play())


@pytest.mark.parametrize("places", [1, 4])
def test_kernels_end_with_the_cause_before_patience_where_no_replacement_answers_a_probe(places: int):
    async def play() -> None:
        machines = Machines(places, {f"judge-{n}": FOREVER for n in range(places)}, fails_probes=silent)
        verdicts = await machines.judge()
        assert {verdict.error_message for verdict in verdicts} == {"no judge is in service: no answer in 60 s"}
        assert asyncio.get_running_loop().time() < 600.0

    in_virtual_time(play())


def test_a_probe_may_wait_for_kernels_that_the_judge_was_sent():
    async def play() -> None:
        machines = Machines(1, {"judge-0": 1.0}, fails_probes=silent, workers=2)
        place = machines.farm.places[0]

        async def long(_: Place) -> Verdict:
            await asyncio.sleep(400.0)
            return RIGHT

        working = asyncio.ensure_future(machines.farm.verdict("topic", long))
        await asyncio.sleep(0)
        waiting = asyncio.ensure_future(machines.farm.verdict("topic", machines.ask(0)))
        assert await working == RIGHT
        assert (machines.probed, place.failed_probes) == ({"judge-0": 1}, 0)
        assert await waiting == RIGHT
        assert asyncio.get_running_loop().time() < 500.0

    in_virtual_time(play())


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.integers(1, 3), st.integers(0, 2**32))
def test_whatever_fails_each_kernel_ends_and_nothing_stays_behind(places: int, workers: int, seed: int):
    """Bad judges, when they recover, how they fail, cursed kernels and callers that give up are drawn."""
    generator = random.Random(seed)
    bad = {f"judge-{n}": generator.choice([0.0, 0.0, 3.0, 50.0, 500.0]) for n in range(places)}
    cursed = {n for n in range(60) if generator.random() < 0.05}
    leaving = {n for n in range(60) if generator.random() < 0.2}
    is_hard = all(bad.values()) or sum(until > 0 for until in bad.values()) >= 3

    async def play() -> None:
        machines = Machines(places, bad, generator.choice([failing, raising]), cursed=cursed, workers=workers)

        async def one(number: int) -> Verdict | BaseException:
            await asyncio.sleep(generator.random() * 10)
            call = asyncio.ensure_future(machines.farm.verdict(f"topic {number % 5}", machines.ask(number)))
            if number in leaving:
                await asyncio.sleep(generator.random() * 5)
                call.cancel()
            return (await asyncio.gather(call, return_exceptions=True))[0]

        found = await asyncio.gather(*map(one, range(60)))
        for number, verdict in enumerate(found):
            left = number in leaving and isinstance(verdict, asyncio.CancelledError)
            lost = isinstance(verdict, InfrastructureError) or (isinstance(verdict, Verdict) and verdict.is_fault)
            assert left or lost or (verdict == RIGHT and number not in cursed)
            assert not lost or number in cursed or is_hard, "two of its three judges may be bad, not all"
        await asyncio.sleep(600)
        assert [place.load for place in machines.farm.places] == [0] * places
        assert all(place.is_in_service for place in machines.farm.places)

    in_virtual_time(play())
