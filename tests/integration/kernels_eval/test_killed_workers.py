"""Processes of the judge killed at random while it works: no kernel is lost, none is judged twice to its caller, none is blamed."""

import asyncio
import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from kernel_sources import ROW_KERNEL, ROW_PROBLEM, with_forward

from kernels_eval import Judge, JudgeConfig, Status
from kernels_eval.pool.worker_status import WorkerState
from kernels_eval.sandbox.limits import children_of

pytestmark = pytest.mark.long

WRONG = ROW_KERNEL.replace("x * 2.0", "x * 2.1")
BROKEN = "def f(:\n"
RAISING = with_forward("        raise ValueError('boo')\n")
KINDS = [
    (ROW_KERNEL, Status.CORRECT),
    (WRONG, Status.INCORRECT),
    (BROKEN, Status.COMPILE_ERROR),
    (RAISING, Status.RUNTIME_ERROR),
]


def kernels(count: int) -> list[tuple[str, Status]]:
    """Kernels that all differ, so that no verdict comes from the cache; every sixteenth differs for the compiler too."""
    found: list[tuple[str, Status]] = []
    for index, (source, status) in enumerate(KINDS * (count // 4)):
        own = source.replace("tl.maximum(x, 0.0)", f"tl.maximum(x, 0.0 * {index})") if index % 16 == 0 else source
        found.append((f"{own}# {index}\n", status))
    return found


def no_kernel_is_near_its_end(judge: Judge) -> bool:
    """True while each kernel has attempts left, however slow the machine: the machine may fail on one four times."""
    queue = judge._dispatcher
    with queue._lock:
        return all(job.faults < 2 for job in (*queue._running.values(), *queue._waiting.values()))


class Killer:
    """Kills processes of a judge at random until told to stop; candidates are left alone, since their end is theirs."""

    def __init__(self, judge: Judge, seed: int, pause_s: float, zygotes: int) -> None:
        self._judge = judge
        self._random = random.Random(seed)
        self._pause_s = pause_s
        self._zygotes = zygotes
        self._stop = threading.Event()
        self.killed: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> "Killer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._stop.wait(self._pause_s * self._random.uniform(0.5, 1.5)):
            victims = list(self._processes())
            if victims and no_kernel_is_near_its_end(self._judge):
                kind, process = self._random.choice(victims)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
                    self.killed[kind] += 1

    def _processes(self) -> Iterator[tuple[str, int]]:
        for way, kind, below in (
            ("interpret", "worker", "fork server"),
            ("compile", "compilers' fork server", "compiler"),
        ):
            zygote = self._judge._zygotes._known.get(way)
            if zygote is None or not zygote.is_alive:
                continue
            process = zygote._process.pid
            if self.killed[f"{way} zygote"] < self._zygotes:
                yield f"{way} zygote", process
            for child in children_of(process):
                yield kind, child
                yield from ((below, grandchild) for grandchild in children_of(child))


@pytest.fixture(scope="module")
def compiling_judge() -> Iterator[Judge]:
    with Judge(JudgeConfig(workers=2, compile="correct", timeout_s=20.0)) as judge:
        judge.evaluate(ROW_PROBLEM, ROW_KERNEL)
        yield judge


@pytest.mark.slow
def test_five_hundred_kernels_while_processes_die() -> None:
    expected = kernels(500)
    seen: list[tuple[int, int]] = []
    with Judge(JudgeConfig(workers=3, compile="correct", timeout_s=20.0)) as judge:
        judge.evaluate(ROW_PROBLEM, ROW_KERNEL)
        with Killer(judge, seed=7, pause_s=0.6, zygotes=2) as killer:
            verdicts = judge.evaluate_many(
                [(ROW_PROBLEM, source) for source, _ in expected], progress=lambda *told: seen.append(told)
            )
        assert [verdict.status for verdict in verdicts] == [status for _, status in expected]
        assert sorted(seen) == [(done, 500) for done in range(1, 501)]
        assert killer.killed["worker"] + killer.killed["fork server"] >= 3, killer.killed
        assert killer.killed["compilers' fork server"] + killer.killed["compiler"] >= 1, killer.killed
        faults = judge.statuses.fault_statistics()
        assert faults.total >= 5
        # A worker that is killed twice while it runs the reference looks like a problem that ends its process.
        assert "judge_fault" in faults.by_category
        assert faults.by_category.keys() <= {"judge_fault", "reference_failed"}
        deadline = time.monotonic() + 60
        while judge.statuses.in_service < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert judge.statuses.fault_statistics().quarantined == ()
        assert (judge.waiting, judge.running) == (0, 0)


def test_a_stream_while_processes_die(compiling_judge: Judge) -> None:
    expected = kernels(60)

    async def collect(judge: Judge) -> list[tuple[int, Status]]:
        items = ((ROW_PROBLEM, source) for source, _ in expected)
        return [(index, verdict.status) async for index, verdict in judge.stream(items)]

    with Killer(compiling_judge, seed=3, pause_s=0.4, zygotes=0):
        found = asyncio.run(collect(compiling_judge))
    assert sorted(found) == [(index, status) for index, (_, status) in enumerate(expected)]


def test_killed_compilers_lose_nothing(compiling_judge: Judge) -> None:
    stop = threading.Event()
    killed: Counter[str] = Counter()

    def kill(judge: Judge) -> None:
        generator = random.Random(11)
        while sum(killed.values()) < 6 and not stop.wait(0.15):
            if not no_kernel_is_near_its_end(judge):
                continue
            zygote = judge._zygotes._known.get("compile")
            fork_servers = children_of(zygote._process.pid) if zygote is not None else []
            compilers = [child for fork_server in fork_servers for child in children_of(fork_server)]
            kind, victims = generator.choice([("fork server", fork_servers), ("compiler", compilers)])
            for victim in victims:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
                    killed[kind] += 1

    sources = [ROW_KERNEL.replace("ROWS=4", f"ROWS={rows}").replace("(M, 4)", f"(M, {rows})") for rows in (1, 2, 8, 16)]
    killer = threading.Thread(target=kill, args=[compiling_judge])
    killer.start()
    try:
        verdicts = compiling_judge.evaluate_many([(ROW_PROBLEM, source) for source in sources])
    finally:
        stop.set()
        killer.join()
    assert [verdict.status for verdict in verdicts] == [Status.CORRECT] * 4
    assert all(verdict.resources for verdict in verdicts)
    assert killed, "it was over too soon"


def test_where_no_worker_can_be_had_every_kernel_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernels_eval.judge._PROBES", 2)
    with Judge(JudgeConfig(workers=2, compile="never")) as judge:
        judge._zygotes._closed = True  # no process can be had any more
        verdicts = judge.evaluate_many([(ROW_PROBLEM, f"{ROW_KERNEL}# {index}") for index in range(6)])
        assert {verdict.status for verdict in verdicts} == {Status.INFRASTRUCTURE_ERROR}
        assert judge.statuses.in_service == 0
        assert {report.state for report in judge.statuses.workers()} == {WorkerState.QUARANTINED}
        judge._zygotes._closed = False
        deadline = time.monotonic() + 30
        while judge.statuses.in_service < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert judge.evaluate(ROW_PROBLEM, ROW_KERNEL).status is Status.CORRECT
