"""Many jobs while the judge's workers, the model's server and the service itself are killed: nothing is lost.

Every job is a problem of its own, and the scripted model writes the kernel for the problem that it is shown, so that a
verdict of `correct` says that request, answer and verdict belong together.
"""

import json
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from service_process import Model, Service, killed, running

from kernels_eval.problem import EXAMPLE_KERNEL, EXAMPLE_PROBLEM

JOBS, BUDGET, CLIENTS = 24, 3, 8
KILL_S = 7.0
"""Pause between two kills."""


def problem(number: int) -> str:
    return EXAMPLE_PROBLEM.replace("* 2.0", f"* {number + 2}.0")


def script() -> list[dict[str, Any]]:
    take = r"torch\.relu\(x\) \* (\d+)\.0"
    right = f"```python\n{EXAMPLE_KERNEL.replace('* 2.0', '* {taken}.0')}```"
    wrong = f"```python\n{EXAMPLE_KERNEL.replace('* 2.0', '* {taken}.5')}```"
    return [{"text": text, "take": take, "delay_s": 0.2} for text in (right, wrong, right)]


class Chaos(threading.Thread):
    """Kills in turn: a worker of the judge, the model, the service; and starts again what does not come back."""

    def __init__(self, service: Service, model: Model) -> None:
        super().__init__(daemon=True)
        self.service, self.model = service, model
        self.kills = {"judge": 0, "model": 0, "service": 0}
        self.ending = threading.Event()
        self.random = random.Random(0)

    def run(self) -> None:
        turn = 0
        while not self.ending.wait(KILL_S):
            kind = ("judge", "judge", "model", "judge", "service")[turn % 5]
            turn += 1
            if kind == "judge":
                self.kills[kind] += killed(self._workers())
            else:
                process = self.model if kind == "model" else self.service
                process.kill()
                self.kills[kind] += 1
                time.sleep(1.0)
                process.start()

    def _workers(self) -> list[psutil.Process]:
        zygotes = [p for p in self.service.descendants("interpret") if p.ppid() == self.service.process.pid]
        workers = [child for zygote in zygotes for child in zygote.children()]
        return self.random.sample(workers, 1) if workers else []


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_nothing_is_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with running(Model(script(), tmp_path)) as model:
        options = ["--openai-base-url", model.address, "--model", "m", "--set", "judge.workers=2"]
        with running(Service(tmp_path, *options)) as service:
            service.wait()
            chaos = Chaos(service, model)
            began = time.monotonic()
            chaos.start()

            def client(number: int) -> tuple[str, list[dict[str, Any]]]:
                body = {"problem_source": problem(number), "budget": BUDGET, "conversations": 2}
                ids = {service.post(body, f"key {number}")["id"] for _ in range(2)}
                (name,) = ids  # sent twice, stored once
                return name, service.events(name)

            with ThreadPoolExecutor(CLIENTS) as clients:
                done = list(clients.map(client, range(JOBS)))
            seconds = time.monotonic() - began
            chaos.ending.set()
            chaos.join()
            service.wait()
            jobs = [service.get(f"/v1/kernels/{name}") for name, _ in done]
            listed = service.get("/v1/kernels?limit=1000")["jobs"]
            repeated = httpx.post(
                f"{service.address}/v1/kernels", json={"problem_source": problem(0), "budget": BUDGET}, timeout=30
            ).json()
    assert len({name for name, _ in done}) == len(listed) == JOBS
    states = [job["state"] for job in jobs]
    assert states == ["finished"] * JOBS, [job["error"] for job in jobs]
    for number, ((_, events), job) in enumerate(zip(done, jobs, strict=True)):
        kinds = [event["kind"] for event in events]
        assert [event["number"] for event in events] == list(range(1, len(events) + 1))
        assert (kinds.count("attempt"), kinds.count("finished")) == (BUDGET, 1)
        assert job["judged"] == job["result"]["judged"] == BUDGET
        assert "infrastructure_error" not in job["result"]["statuses"]
        if "correct" in job["result"]["statuses"]:
            assert job["result"]["outcome"] == "improved"
            assert f"* {number + 2}.0" in job["result"]["source"]
    assert repeated["cached"]
    assert chaos.kills["judge"] >= 2
    assert chaos.kills["model"] >= 1
    assert chaos.kills["service"] >= 1
    waited = sorted(job["ended_at"] - job["created_at"] for job in jobs)
    figures = {
        "jobs": JOBS, "lost": 0, "answers": JOBS * BUDGET, "kills": chaos.kills, "seconds": round(seconds, 1),
        "jobs_per_minute": round(60 * JOBS / seconds, 1), "median_s": round(waited[JOBS // 2], 1),
        "slowest_s": round(waited[-1], 1),
    }  # fmt: skip
    with capsys.disabled():
        print(json.dumps(figures))
