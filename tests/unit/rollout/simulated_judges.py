"""Judges that answer in virtual time, for tests of the farm: slow ones and ones that stand still."""

import asyncio
import selectors
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kernels_eval.verdict import Status, Verdict
from tasks.rollout.judge_farm import Farm
from tasks.rollout.judge_place import Ask, Place, Replace

T = TypeVar("T")
TIMEOUT_S = 10.0
RIGHT = Verdict(status=Status.CORRECT, compiled=True, correct=True, speedup=1.5)
HUNG = Verdict(status=Status.TIMEOUT)


class Jumping(selectors.SelectSelector):
    """Never waits: the time until the next event is added to the clock."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        assert ready or timeout is not None, "everything waits, and nothing is left to happen"
        self.now += 0 if ready else max(timeout or 0.0, 0.0)
        return ready


def in_virtual_time(play: Coroutine[Any, Any, T]) -> T:
    jumping = Jumping()

    class Loop(asyncio.SelectorEventLoop):
        def time(self) -> float:
            return jumping.now

    with asyncio.Runner(loop_factory=lambda: Loop(jumping)) as runner:
        return runner.run(play)


@dataclass
class Judges:
    """Judges that take `seconds` for a kernel, by its number, and judge `workers` at once."""

    farm: Farm
    seconds: Callable[[int], float]
    slowness: dict[str, float] = field(default_factory=dict[str, float])
    """By place: factor of its times; infinite for one that stands still."""
    sent: Counter[str] = field(default_factory=Counter[str])
    asked: Counter[int] = field(default_factory=Counter[int])
    most: Counter[str] = field(default_factory=Counter[str])

    def __post_init__(self) -> None:
        self._workers = {place: asyncio.Semaphore(place.workers) for place in self.farm.places}

    def ask(self, number: int) -> Ask:
        async def answer(place: Place) -> Verdict:
            self.sent[place.name] += 1
            self.asked[number] += 1
            self.most[place.name] = max(self.most[place.name], place.load)
            slowness = self.slowness.get(place.name, 1.0)
            if slowness == float("inf"):
                await asyncio.get_running_loop().create_future()
            async with self._workers[place]:
                hangs = self.seconds(number) >= TIMEOUT_S
                await asyncio.sleep(TIMEOUT_S if hangs else self.seconds(number) * slowness)
            return HUNG if hangs else RIGHT

        return answer

    async def judge(self, count: int, topics: int = 8) -> tuple[list[Verdict], list[float]]:
        """Return the verdicts of a batch and the times at which they came."""
        loop, ended = asyncio.get_running_loop(), [0.0] * count

        async def one(number: int) -> Verdict:
            verdict = await self.farm.verdict(f"topic {number % topics}", self.ask(number))
            ended[number] = loop.time()
            return verdict

        return list(await asyncio.gather(*map(one, range(count)))), ended


async def passes(_: Place) -> Verdict:
    """Judge a probe on a healthy judge."""
    await asyncio.sleep(0.1)
    return RIGHT


def farm_of(places: int, workers: int = 2, probe: Ask = passes, replace: Replace = lambda *_: None) -> Farm:
    """Return a farm of healthy judges."""
    return Farm([f"judge-{number}" for number in range(places)], workers, probe, replace)
