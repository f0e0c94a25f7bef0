"""Judging on Ray actors that die: every kernel gets exactly one verdict, and the right one."""

import asyncio
import os
import random
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import ray
from ray.exceptions import RayActorError

from kernels_eval.config import JudgeConfig
from kernels_eval.errors import InputError
from kernels_eval.problem import Problem
from kernels_eval.verdict import Status, Verdict, fault
from tasks.cluster.workers import stop_worker
from tasks.pipeline.references import CheckpointRef, ProblemSetRef, silent
from tasks.problems.row import Split
from tasks.rollout.collect import collect_trajectories
from tasks.rollout.config import EpisodeConfig, JudgeActorsConfig, RolloutConfig, SamplingConfig
from tasks.rollout.judge_actors import ActorJudge
from tasks.rollout.process import WORKER
from tasks.rollout.worker import RolloutRequest
from tasks.trajectories.reader import read_turns

JUDGE = JudgeConfig(workers=9, compile="never", trials=1, timeout_s=20.0)
ACTORS = JudgeActorsConfig(count=2, workers=1)
PROBLEM = (
    "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n    def forward(self, x):\n        return x * {number}.0\n\n\n"
    "def get_inputs():\n    return [torch.randn(64, 32)]\n\n\ndef get_init_inputs():\n    return []\n"
)
KERNEL = """import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * {number}.0, mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        scale[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
"""


@pytest.fixture(scope="module", autouse=True)
def cluster(ray_local: None) -> Iterator[None]:
    yield
    stop_worker(WORKER)


def items(count: int) -> list[tuple[Problem, str, Status]]:
    """Kernels that all differ, for six problems; every third is wrong and every tenth is no Python."""
    found: list[tuple[Problem, str, Status]] = []
    for index in range(count):
        number = 2 + index % 6
        problem = Problem(problem_id=f"scale_{number}", source=PROBLEM.format(number=number))
        status = Status.COMPILE_ERROR if index % 10 == 9 else Status.INCORRECT if index % 3 == 2 else Status.CORRECT
        kernel = KERNEL.format(number=number + (status is Status.INCORRECT)) + f"# {index}\n"
        found.append((problem, kernel + ("def f(:\n" if status is Status.COMPILE_ERROR else ""), status))
    return found


async def judge_all(judge: ActorJudge, kernels: list[tuple[Problem, str, Status]]) -> list[Verdict]:
    return list(await asyncio.gather(*(judge.evaluate_async(problem, kernel) for problem, kernel, _ in kernels)))


async def judged_with(judge: ActorJudge, settings: Sequence[dict[str, str]]) -> list[Verdict]:
    problem, kernel, _ = items(1)[0]
    return [await judge.evaluate_async(problem, kernel, settings=each) for each in settings]


@pytest.mark.long
def test_settings_of_one_kernel_reach_the_actors() -> None:
    judge = ActorJudge(JUDGE, ACTORS)
    try:
        verdicts = asyncio.run(judged_with(judge, [{}, {"compile": "correct"}, {}]))
    finally:
        judge.close()
    assert [bool(verdict.resources) for verdict in verdicts] == [False, True, False]


async def judge_and_kill(
    judge: ActorJudge, kernels: list[tuple[Problem, str, Status]], every: int, seed: int
) -> tuple[list[Verdict], int]:
    """Judge all, and after so many verdicts each time end an actor: its process killed from outside, or by Ray."""
    generator = random.Random(seed)
    calls = [asyncio.ensure_future(judge.evaluate_async(problem, kernel)) for problem, kernel, _ in kernels]
    killed = 0
    while not all(call.done() for call in calls):
        await asyncio.sleep(0.01)
        if sum(call.done() for call in calls) < every * (killed + 1):
            continue
        actor = generator.choice(judge.farm.places).judge
        if generator.random() < 0.5:
            try:
                os.kill(await actor.ping.remote(), signal.SIGKILL)
            except RayActorError:
                continue
        else:
            ray.kill(actor)
        killed += 1
    return [call.result() for call in calls], killed


@pytest.mark.slow
def test_five_hundred_kernels_while_actors_die() -> None:
    kernels = items(500)

    async def play() -> tuple[list[Verdict], list[Verdict], int, int]:
        judge = ActorJudge(JUDGE, ACTORS)
        try:
            verdicts, killed = await judge_and_kill(judge, kernels, every=60, seed=5)
            return verdicts, await judge_all(judge, kernels), killed, judge.replaced
        finally:
            judge.close()

    verdicts, again, killed, replaced = asyncio.run(play())
    assert [verdict.status for verdict in verdicts] == [status for _, _, status in kernels]
    assert killed >= 8
    assert replaced >= 6, "the last one killed may never be asked again"
    assert all(first is second for first, second in zip(verdicts, again, strict=True)), "each has one verdict, for good"


@pytest.mark.long
def test_an_actor_that_dies_is_replaced_and_its_kernels_are_judged_again() -> None:
    kernels = items(24)

    async def play() -> tuple[list[Verdict], int]:
        judge = ActorJudge(JUDGE, ACTORS)
        try:
            judging = asyncio.ensure_future(judge_all(judge, kernels))
            await asyncio.sleep(1.0)
            for place in judge.farm.places:
                ray.kill(place.judge)
            return await judging, judge.replaced
        finally:
            judge.close()

    verdicts, replaced = asyncio.run(play())
    faults = [verdict.error_message for verdict in verdicts if verdict.is_fault]
    assert [verdict.status for verdict in verdicts] == [status for _, _, status in kernels], faults
    assert replaced == 2


@pytest.mark.slow
def test_a_hanging_actor_is_replaced() -> None:
    (problem, kernel, _), *_ = items(1)

    async def play() -> tuple[Verdict, int]:
        judge = ActorJudge(JUDGE, JudgeActorsConfig(count=1), silence_s=1.0, ping_s=10.0)
        try:
            os.kill(await judge.farm.places[0].judge.ping.remote(), signal.SIGSTOP)
            return await judge.evaluate_async(problem, kernel), judge.replaced
        finally:
            judge.close()

    verdict, replaced = asyncio.run(play())
    assert verdict.status is Status.CORRECT
    assert replaced == 1


@ray.remote
class FaultyActor:
    """An actor that lives, and on which the machine fails at once."""

    async def ping(self) -> int:
        return os.getpid()

    async def evaluate(self, *_: object) -> Verdict:
        return fault("judge_fault", "the device is lost")


@pytest.mark.long
def test_an_actor_that_answers_with_faults_costs_no_kernel_and_is_replaced() -> None:
    kernels = items(24)

    async def play() -> tuple[list[Verdict], int]:
        judge = ActorJudge(JUDGE, ACTORS)
        bad = judge.farm.places[1]
        try:
            ray.kill(bad.judge)
            bad.judge = FaultyActor.remote()
            verdicts = await judge_all(judge, kernels)
            while not bad.is_in_service:  # until probes have failed there, and one passes on the replacement
                await asyncio.sleep(0.1)
            return verdicts, judge.replaced
        finally:
            judge.close()

    verdicts, replaced = asyncio.run(play())
    assert [verdict.status for verdict in verdicts] == [status for _, _, status in kernels]
    assert replaced >= 1, "a replacement that starts slowly is replaced as well"


@pytest.mark.long
def test_bad_input_keeps_its_kind_and_a_cancelled_call_frees_its_place() -> None:
    async def play() -> None:
        judge = ActorJudge(JUDGE, JudgeActorsConfig(count=1))
        try:
            with pytest.raises(InputError, match="not Python"):
                await judge.evaluate_async(Problem(problem_id="p", source="def f(:"), "x = 1")
            (problem, kernel, _), *_ = items(1)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await judge.evaluate_async(problem, kernel + "import time\ntime.sleep(3)\n")
            assert (await judge.evaluate_async(problem, kernel)).correct
            assert judge.farm.places[0].load == 0
        finally:
            judge.close()

    asyncio.run(play())


@pytest.mark.long
def test_the_rollout_stage_judges_on_actors(
    policy: CheckpointRef, problem_set: ProblemSetRef, destination: Path
) -> None:
    config = RolloutConfig(
        problems_per_iteration=3,
        samples_per_problem=4,
        batch_size=16,
        threads=1,
        judge_actors=ACTORS,
        sampling=SamplingConfig(max_new_tokens=64),
        episode=EpisodeConfig(prompt="source", feedback="brief"),
    )
    request = RolloutRequest(
        policy=policy, problems=problem_set, split=Split.TRAIN, config=config, judge=JUDGE, run_id="run",
        iteration=1, seed=0, destination=destination,
    )  # fmt: skip
    reference = collect_trajectories(request, silent)
    statuses = {verdict["status"] for verdict in read_turns(reference)["verdict"]}
    assert "correct" in statuses
    assert "infrastructure_error" not in statuses
