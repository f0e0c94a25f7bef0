"""Judge spread over Ray: one actor per group of cores or device; the client runs in the rollout worker.

A kernel stays an entry of the client until its verdict arrives: an actor that dies or hangs is replaced, and its
unanswered kernels are judged again. Which actor gets a kernel, and when a second one gets it too, is decided by
`tasks.rollout.judge_farm`; which of them are in service, by `tasks.rollout.judge_quarantine`.
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import ray
from ray.exceptions import RayActorError, RayTaskError

from kernels_eval.config import JudgeConfig, with_settings
from kernels_eval.errors import InfrastructureError, KernelmillError, first_line
from kernels_eval.pool.probe import PROBE_KERNEL, PROBE_PROBLEM, PROBE_SETTINGS
from kernels_eval.pool.verdict_cache import VerdictCache, verdict_key
from kernels_eval.problem import Problem
from kernels_eval.verdict import Verdict
from tasks.cluster.placement import options_in_worker
from tasks.rollout.config import JudgeActorsConfig
from tasks.rollout.judge_farm import Farm
from tasks.rollout.judge_place import Place

logger = logging.getLogger("kernelmill.rollout")
_ATTEMPTS = 5
"""Actors that one kernel may lose before it is given up: the kernel may be the cause."""
_SILENCE_S = 30.0
"""An actor that has not answered for so long is asked whether it lives."""
_PING_S = 15.0
_CLOSE_S = 30.0
"""Actors are ended without the event loop if it has not answered for so long."""


class JudgeActor:
    """Ray actor with a judge; judges many kernels concurrently."""

    def __init__(self, config: JudgeConfig) -> None:
        from kernels_eval.judge import Judge

        self._judge = Judge(config)

    async def ping(self) -> int:
        """Return the process id, as a sign of life."""
        return os.getpid()

    async def evaluate(self, problem: Problem, kernel_source: str, settings: Mapping[str, Any]) -> Verdict:
        """Judge one kernel."""
        return await self._judge.evaluate_async(problem, kernel_source, settings=settings)


RemoteJudgeActor = ray.remote(JudgeActor)


class ActorJudge:
    """Judges on actors (tasks.rollout.judge_client.AsyncJudge). For one event loop; `close` ends the actors."""

    def __init__(
        self, config: JudgeConfig, actors: JudgeActorsConfig, silence_s: float = _SILENCE_S, ping_s: float = _PING_S
    ) -> None:
        """Start the actors. Needs a running Ray. An actor silent for `silence_s` has `ping_s` to say that it lives."""
        self._config = config.model_copy(update={"workers": actors.workers})
        self._options = {
            "num_cpus": actors.cpus,
            "num_gpus": actors.gpus,
            "max_restarts": 0,  # replaced here, with what it had not answered
            "max_task_retries": 0,
            "max_concurrency": 1000,
            "scheduling_strategy": "SPREAD",
            **options_in_worker("judge"),
        }
        self._cache = VerdictCache(Path(config.cache_dir) if config.cache_dir else None, config.cache_mb)
        self._silence_s, self._ping_s = silence_s, ping_s
        self._loop: asyncio.AbstractEventLoop | None = None
        names = [f"judge-actor-{index}" for index in range(actors.count)]
        self.farm = Farm(names, actors.workers, self._probe, self._replace)
        """Places of the actors, and counts of kernels that two of them judged."""
        self.replaced = 0
        """Actors that died or hung, or failed on probes, and were replaced."""
        for place in self.farm.places:
            place.judge = self._new_actor()

    async def evaluate_async(
        self, problem: Problem, kernel_source: str, settings: Mapping[str, Any] | None = None
    ) -> Verdict:
        """Return the verdict on one kernel. Raises InfrastructureError if every actor that was asked died.

        `settings`: fields of JudgeConfig for this kernel alone, as `Judge.submit` takes them.
        """
        settings, self._loop = settings or {}, asyncio.get_running_loop()
        key = verdict_key(problem, kernel_source, with_settings(self._config, None, settings))
        known = self._cache.get(key)
        if known is not None:
            return known

        for _ in range(_ATTEMPTS):
            try:
                verdict = await self.farm.verdict(
                    problem.source, lambda place: self._ask_at(place, problem, kernel_source, settings)
                )
            except RayActorError:
                continue
            self._cache.put(key, verdict)
            return verdict
        raise InfrastructureError(f"{problem.problem_id}: {_ATTEMPTS} judge actors died of it, or beside it")

    def close(self) -> None:
        """End every actor and its processes; kernels without a verdict end as faults. Safe for threads."""
        self.farm.quarantine.is_closed = True
        if self._loop is not None and not self._loop.is_closed():
            _call_on(self._loop, self.farm.close)  # an actor that it is just replacing has its place then
        for place in self.farm.places:
            ray.kill(place.judge)  # the judge's processes end with their parent

    def _new_actor(self) -> Any:
        return RemoteJudgeActor.options(**self._options).remote(self._config)

    async def _probe(self, place: Place) -> Verdict:
        """Judge a kernel that is known to be right on a place's actor. It is new to the actor's cache."""
        return await self._ask_at(place, PROBE_PROBLEM, f"{PROBE_KERNEL}# {uuid4().hex}\n", PROBE_SETTINGS)

    async def _ask_at(self, place: Place, problem: Problem, kernel_source: str, settings: Mapping[str, Any]) -> Verdict:
        """Ask a place's actor; raises what the judge raised there, and RayActorError if the actor was replaced."""
        actor = place.judge
        try:
            return await self._ask(actor, problem, kernel_source, settings)
        except RayActorError as error:
            self._replace(place, actor, first_line(error))
            raise
        except RayTaskError as error:
            if isinstance(error.cause, KernelmillError):
                raise error.cause from None
            raise

    async def _ask(self, actor: Any, problem: Problem, kernel_source: str, settings: Mapping[str, Any]) -> Verdict:
        """Ask one actor; raises RayActorError if it is dead or does not answer a ping."""
        reference = actor.evaluate.remote(problem, kernel_source, settings)
        answer = asyncio.wrap_future(reference.future())
        try:
            while True:
                done, _ = await asyncio.wait([answer], timeout=self._silence_s)
                if done:
                    return answer.result()
                try:
                    async with asyncio.timeout(self._ping_s):
                        await actor.ping.remote()
                except TimeoutError:
                    raise RayActorError(error_msg="it does not answer") from None
        except asyncio.CancelledError:
            ray.cancel(reference)
            raise
        finally:
            answer.cancel()

    def _replace(self, place: Place, dead: Any, reason: str) -> None:
        """Replace the actor, unless another kernel's task has replaced it already, or the judge is closed."""
        if place.judge is not dead or self.farm.quarantine.is_closed:
            return
        logger.warning("%s: %s; replaced, and its kernels are judged again", place.name, reason)
        ray.kill(dead)
        place.judge = self._new_actor()
        self.replaced += 1


def _call_on(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Call on an event loop and wait for that, at most `_CLOSE_S`; directly if it is this thread's, or stands."""
    if _is_running_here(loop) or not loop.is_running():
        call()
        return
    called = threading.Event()

    def run() -> None:
        try:
            call()
        finally:
            called.set()

    until = time.monotonic() + _CLOSE_S
    with suppress(RuntimeError):  # it has been closed just now
        loop.call_soon_threadsafe(run)
        while not called.wait(0.1) and loop.is_running() and time.monotonic() < until:
            pass


def _is_running_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
