"""The farm of judges, in virtual time: who gets a kernel, who gets it a second time, and that it changes no verdict."""

import asyncio
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels_eval.verdict import Status, Verdict
from tasks.rollout.judge_client import fault_verdict
from tasks.rollout.judge_place import Ask, Place
from tests.unit.rollout.simulated_judges import HUNG, RIGHT, TIMEOUT_S, Judges, farm_of, in_virtual_time


@pytest.mark.parametrize("places", [1, 2, 4])
def test_a_batch_takes_its_share_of_each_judge_whatever_the_topics(places: int):
    async def play() -> float:
        judges = Judges(farm_of(places), lambda _: 0.5)
        _, ended = await judges.judge(64, topics=3)
        assert judges.farm.copies == 0
        assert max(judges.most.values()) <= 4, "no more than it can judge, and as many ahead"
        return max(ended)

    assert in_virtual_time(play()) <= 64 * 0.5 / (2 * places) + 0.5, "half a second: some sit ahead at a busy judge"


def test_a_topic_stays_at_its_judge_while_that_one_has_room():
    async def play() -> Counter[str]:
        judges = Judges(farm_of(4), lambda _: 0.5)
        for _ in range(5):
            await judges.judge(4, topics=1)
        return judges.sent

    assert list(in_virtual_time(play()).values()) == [20]


def test_a_kernel_that_hangs_is_a_timeout_at_its_time_and_delays_no_other():
    async def play() -> None:
        judges = Judges(farm_of(4), lambda number: 3600.0 if number == 5 else 0.2)
        verdicts, ended = await judges.judge(200)
        assert [number for number, verdict in enumerate(verdicts) if verdict.status is Status.TIMEOUT] == [5]
        assert judges.asked == {number: 2 if number == 5 else 1 for number in range(200)}
        assert judges.farm.overtaken == 0, "the first judge's clock was first"
        others = max(seconds for number, seconds in enumerate(ended) if number != 5)
        assert others <= 200 * 0.2 / 7 + 0.4, "one of eight workers is held up"
        assert TIMEOUT_S <= ended[5] <= TIMEOUT_S + others

    in_virtual_time(play())


@pytest.mark.parametrize("slowness", [20.0, float("inf")])
def test_kernels_of_a_slow_judge_are_judged_by_others(slowness: float):
    async def play() -> None:
        judges = Judges(farm_of(4), lambda _: 0.2, {"judge-2": slowness})
        verdicts, ended = await judges.judge(200)
        assert verdicts == [RIGHT] * 200
        assert judges.farm.overtaken > 0
        assert judges.most["judge-2"] <= 4, "it is sent no more than it has room for"
        assert max(ended) <= 200 * 0.2 / 6 + 2.0

    in_virtual_time(play())


def test_no_kernel_goes_twice_while_every_judge_is_busy():
    async def play() -> None:
        judges = Judges(farm_of(2, workers=1), lambda number: 5.0 if number in (30, 31) else 0.2)
        farm, copies = judges.farm, list[int]()

        async def look() -> None:
            while True:
                copies.append(farm.copies if farm.places[0].load + farm.places[1].load >= 4 else 0)
                await asyncio.sleep(0.1)

        looking = asyncio.ensure_future(look())
        await judges.judge(60)
        looking.cancel()
        assert not any(copies)

    in_virtual_time(play())


@pytest.mark.parametrize("end", [fault_verdict("judge_fault", "lost"), ConnectionError("lost")])
def test_a_fault_of_one_judge_does_not_count_while_another_has_the_kernel(end: Verdict | Exception):
    async def play() -> Verdict:
        judges = Judges(farm_of(2), lambda _: 0.2)
        await judges.judge(40)
        sent: list[str] = []

        async def ask(place: Place) -> Verdict:
            sent.append(place.name)
            await asyncio.sleep(3.0 if len(sent) == 1 else 6.0)
            if len(sent) == 2 and place.name == sent[0]:
                if isinstance(end, Exception):
                    raise end
                return end
            return RIGHT

        return await judges.farm.verdict("topic", ask)

    assert in_virtual_time(play()) == RIGHT


def test_a_late_kernel_goes_to_no_judge_that_was_asked_and_to_three_in_all():
    async def play() -> None:
        judges = Judges(farm_of(4), lambda _: 0.2)
        await judges.judge(40)
        sent: list[str] = []

        async def ask(place: Place) -> Verdict:
            sent.append(place.name)
            if len(sent) < 3:
                return fault_verdict("judge_fault", "lost")
            await asyncio.sleep(30.0)
            return RIGHT

        assert await judges.farm.verdict("topic", ask) == RIGHT
        assert len(sent) == len(set(sent)) == 3

    in_virtual_time(play())


def test_a_copy_of_a_kernel_avoids_the_judge_that_failed_on_it():
    async def play() -> None:
        judges = Judges(farm_of(3), lambda _: 0.2)
        await judges.judge(40)
        sent: list[str] = []

        async def ask(place: Place) -> Verdict:
            sent.append(place.name)
            if len(sent) == 1:
                return fault_verdict("judge_fault", "lost")
            await asyncio.sleep(30.0)
            return RIGHT

        assert await judges.farm.verdict("topic", ask) == RIGHT
        assert len(sent) == len(set(sent)) == 3
        assert judges.farm.copies == 1

    in_virtual_time(play())


def test_the_log_names_the_judge_that_a_fault_is_of(caplog: pytest.LogCaptureFixture):
    """The copy fails first, which is passed over; then the first judge does."""
    sent: list[str] = []

    async def play() -> None:
        judges = Judges(farm_of(3), lambda _: 0.2)
        await judges.judge(40)

        async def ask(place: Place) -> Verdict:
            sent.append(place.name)
            if len(sent) == 3:
                return RIGHT
            await asyncio.sleep(30.0 if len(sent) == 1 else 1.0)
            return fault_verdict("judge_fault", "lost")

        assert await judges.farm.verdict("topic", ask) == RIGHT

    in_virtual_time(play())
    assert [record.getMessage() for record in caplog.records] == [f"{sent[0]}: lost; the kernel is judged again"]


def test_an_error_is_raised_and_the_kernel_can_be_sent_again():
    async def play() -> Verdict:
        farm = farm_of(2)

        async def fails(place: Place) -> Verdict:
            raise ConnectionError(place.name)

        with pytest.raises(ConnectionError, match="judge-"):
            await farm.verdict("topic", fails)
        return await farm.verdict("topic", Judges(farm, lambda _: 0.1).ask(0))

    assert in_virtual_time(play()) == RIGHT


@pytest.mark.parametrize("steps", range(6))
def test_a_caller_that_gives_up_as_it_gets_a_place_leaves_it_to_others(steps: int):
    async def play() -> None:
        farm, judged = farm_of(1, workers=1), [asyncio.get_running_loop().create_future() for _ in range(2)]

        def ask(number: int) -> Ask:
            async def answer(_: Place) -> Verdict:
                return await judged[number] if number < 2 else RIGHT

            return answer

        sent = [asyncio.ensure_future(farm.verdict("topic", ask(number))) for number in range(4)]
        await asyncio.sleep(0.1)
        judged[0].set_result(RIGHT)
        for _ in range(steps):
            await asyncio.sleep(0)
        sent[2].cancel()
        assert await sent[3] == RIGHT
        judged[1].set_result(RIGHT)
        await asyncio.gather(*sent, return_exceptions=True)
        await asyncio.sleep(0.1)
        assert farm.places[0].load == 0

    in_virtual_time(play())


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.integers(1, 3), st.integers(0, 2**32))
def test_each_kernel_gets_its_own_verdict_and_nothing_stays_behind(places: int, workers: int, seed: int):
    """Times, hanging kernels, slow judges and callers that give up are drawn."""
    generator = random.Random(seed)
    seconds = [generator.choice([0.1, 0.3, 1.0, 3600.0]) for _ in range(50)]
    slow = {f"judge-{n}": generator.choice([1.0, 1.0, 30.0]) for n in range(places)}
    leaving = {n for n in range(50) if generator.random() < 0.2}

    async def play() -> None:
        judges = Judges(farm_of(places, workers), seconds.__getitem__, slow)

        async def one(number: int) -> Verdict | None:
            call = asyncio.ensure_future(judges.farm.verdict(f"topic {number % 5}", judges.ask(number)))
            if number in leaving:
                await asyncio.sleep(generator.random() * 5)
                call.cancel()
            return (await asyncio.gather(call, return_exceptions=True))[0]  # pyright: ignore[reportReturnType]

        found = await asyncio.gather(*map(one, range(50)))
        for number, verdict in enumerate(found):
            expected = HUNG if seconds[number] >= TIMEOUT_S else RIGHT
            assert verdict == expected or (number in leaving and isinstance(verdict, asyncio.CancelledError))
        assert all(count <= 2 for count in judges.asked.values())
        assert all(most <= 2 * workers for most in judges.most.values())
        await asyncio.sleep(500)
        assert [place.load for place in judges.farm.places] == [0] * places

    in_virtual_time(play())
