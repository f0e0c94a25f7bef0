"""Judges on actors that are closed, from threads and from the event loop. The actors are objects that answer as told."""

import asyncio
import threading
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from ray.exceptions import RayActorError

from kernels_eval.config import JudgeConfig
from kernels_eval.problem import Problem
from kernels_eval.verdict import Verdict, fault
from tasks.rollout import judge_actors
from tasks.rollout.config import JudgeActorsConfig
from tasks.rollout.judge_actors import ActorJudge

PROBLEM = Problem(problem_id="p", source="problem")
FAULT = fault("judge_fault", "the device is lost")


class Actors:
    """Stands for Ray: actors that fail on every kernel, or die of it, and answer no probe."""

    def __init__(self) -> None:
        self.living: set[object] = set()
        self.die = False

    def options(self, **_: object) -> "Actors":
        return self

    def remote(self, _: JudgeConfig) -> SimpleNamespace:
        actor = SimpleNamespace(evaluate=SimpleNamespace(remote=self._evaluate), name=object())
        self.living.add(actor.name)
        return actor

    def _evaluate(self, problem: Problem, *_: object) -> SimpleNamespace:
        answer = Future[Verdict]()
        if self.die:
            answer.set_exception(RayActorError(error_msg="it died"))
        elif problem.problem_id != "probe":
            answer.set_result(FAULT)
        return SimpleNamespace(future=lambda: answer)

    def kill(self, actor: SimpleNamespace) -> None:
        self.living.discard(actor.name)

    def cancel(self, _: object) -> None:
        pass


@pytest.fixture
def actors(monkeypatch: pytest.MonkeyPatch) -> Actors:
    found = Actors()
    monkeypatch.setattr(judge_actors, "RemoteJudgeActor", found)
    monkeypatch.setattr(judge_actors, "ray", found)  # no call of Ray's, each of which looks for a cluster
    monkeypatch.setattr(judge_actors, "options_in_worker", lambda _: {})
    return found


def judge_of(count: int) -> ActorJudge:
    return ActorJudge(JudgeConfig(), JudgeActorsConfig(count=count, workers=1))


@pytest.mark.parametrize("from_thread", [False, True])
def test_kernels_that_wait_end_as_faults_that_name_the_close(actors: Actors, from_thread: bool) -> None:
    async def play() -> list[Verdict]:
        judge = judge_of(2)
        calls = [asyncio.ensure_future(judge.evaluate_async(PROBLEM, str(number))) for number in range(20)]
        while any(place.is_in_service for place in judge.farm.places):
            await asyncio.sleep(0.01)
        if from_thread:
            await asyncio.to_thread(judge.close)
        else:
            judge.close()
        async with asyncio.timeout(60.0):
            return await asyncio.gather(*calls)

    assert {verdict.error_category for verdict in asyncio.run(play())} == {"judge_closed"}
    assert not actors.living


@pytest.mark.parametrize("is_used", [False, True])
def test_a_judge_can_be_closed_after_its_loop_and_twice(actors: Actors, is_used: bool) -> None:
    judge = judge_of(2)

    async def play() -> None:
        calls = [asyncio.ensure_future(judge.evaluate_async(PROBLEM, str(number))) for number in range(20)]
        await asyncio.wait(calls, timeout=0.1)

    if is_used:
        asyncio.run(play())
    judge.close()
    judge.close()
    assert not actors.living


def test_a_judge_can_be_closed_while_its_loop_stands(actors: Actors) -> None:
    judge = judge_of(2)
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        calls = [loop.create_task(judge.evaluate_async(PROBLEM, str(number))) for number in range(20)]
        runner.run(asyncio.sleep(0.1))
        judge.close()
        assert not actors.living

        async def ended() -> set[str | None]:
            async with asyncio.timeout(60.0):
                return {verdict.error_category for verdict in await asyncio.gather(*calls)}

        assert runner.run(ended()) == {"judge_closed"}


def test_an_actor_that_is_being_replaced_while_a_thread_closes_does_not_stay(
    actors: Actors, monkeypatch: pytest.MonkeyPatch
) -> None:
    actors.die = True
    closing: list[threading.Thread] = []

    async def play() -> Verdict:
        judge = judge_of(1)

        def kill(actor: SimpleNamespace) -> None:
            actors.kill(actor)
            if not closing:  # the loop, which replaces the actor
                closing.append(threading.Thread(target=judge.close, daemon=True))
                closing[0].start()
                closing[0].join(0.5)  # ends here only if it does not wait for the loop

        monkeypatch.setattr(judge_actors, "ray", SimpleNamespace(kill=kill))
        verdict = await judge.evaluate_async(PROBLEM, "kernel")
        async with asyncio.timeout(60.0):
            while closing[0].is_alive():
                await asyncio.sleep(0.01)
        return verdict

    assert asyncio.run(play()).error_category == "judge_closed"
    assert not actors.living
