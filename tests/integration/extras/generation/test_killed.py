"""The service and the engine of a policy, killed in the middle of their work: it goes on where it was."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from service_process import ROOT, Model, Service, running

from extras.generation.writers import Draft
from extras.generation.writers.policy import PolicyWriter
from kernels_eval.problem import EXAMPLE_KERNEL, EXAMPLE_PROBLEM
from tasks.pipeline.references import CheckpointRef
from tasks.rollout.config import RolloutConfig, SamplingConfig

pytestmark = pytest.mark.long

DECORATED = """
import json
import sys
import torch
from torch import nn
from extras.generation.optimize import optimize

@optimize(url=sys.argv[1], folder=sys.argv[2], wait_s=float(sys.argv[3]), budget=2)
class Fused(nn.Module):
    def forward(self, x):
        x = torch.sigmoid(torch.relu(x) * 2.0 + torch.exp(x))
        return x / (x.sum(dim=1, keepdim=True) + x.amax(dim=1, keepdim=True))

def get_inputs():
    return [torch.randn(1024, 16)]

x = torch.randn(1024, 16)
with torch.no_grad():
    found, expected = Fused()(x), torch.sigmoid(torch.relu(x) * 2.0 + torch.exp(x))
expected = expected / (expected.sum(dim=1, keepdim=True) + expected.amax(dim=1, keepdim=True))
torch.testing.assert_close(found, expected)
print(json.dumps([name for name in sys.modules if name.startswith("kernelmill_kernel")]))
"""
MESSAGES = [{"role": "user", "content": "class Model:\n    x = 1\n"}]
CONFIG = RolloutConfig(threads=1, sampling=SamplingConfig(max_new_tokens=12))


def test_a_killed_service_takes_its_jobs_up_again(tmp_path: Path):
    answer = {"text": f"```python\n{EXAMPLE_KERNEL}```", "delay_s": 0.5}
    with running(Model([answer], tmp_path)) as model:
        options = ["--openai-base-url", model.address, "--model", "m"]
        with running(Service(tmp_path, *options)) as service:
            service.wait()
            body = {"problem_source": EXAMPLE_PROBLEM, "budget": 6, "conversations": 1}
            job = service.post(body, "key")
            while service.get(f"/v1/kernels/{job['id']}")["judged"] < 2:
                time.sleep(0.1)
            service.kill()
            service.start()
            service.wait()
            assert service.post(body, "key")["id"] == job["id"]
            events = service.events(job["id"])
            found = service.get(f"/v1/kernels/{job['id']}")
    kinds = [event["kind"] for event in events]
    assert [event["number"] for event in events] == list(range(1, len(events) + 1))
    assert (kinds.count("attempt"), kinds.count("resumed"), kinds.count("finished")) == (6, 1, 1)
    assert kinds.index("resumed") >= 4  # queued, started, two attempts
    assert (found["state"], found["judged"], found["result"]["outcome"]) == ("finished", 6, "improved")


def test_a_decorated_module_gets_its_kernel_from_the_service(tmp_path: Path):
    program, kernels = tmp_path / "program.py", tmp_path / "found"
    program.write_text(DECORATED)

    def run(url: str, wait_s: int) -> list[str]:
        command = [sys.executable, str(program), url, str(kernels), str(wait_s)]
        environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, env=environment, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout)

    with (
        running(Model([{"text": f"```python\n{EXAMPLE_KERNEL}```"}], tmp_path)) as model,
        running(Service(tmp_path, "--openai-base-url", model.address, "--model", "m")) as service,
    ):
        service.wait()
        assert run(service.address, 0) == []  # the search has begun
        (loaded,) = run(service.address, 150)
        (job,) = service.get("/v1/kernels")["jobs"]  # one question, one job
        assert loaded == f"kernelmill_kernel_{job['problem_digest']}"
        assert job["state"] == "finished"
    assert run("http://127.0.0.1:9", 0) == [loaded]  # kept: nobody is asked


def answers(policy_folder: Path, kill: bool) -> list[Draft]:
    async def all_of_them() -> list[Draft]:
        writer = PolicyWriter(CheckpointRef(uri=str(policy_folder), digest="d"), CONFIG)
        try:
            asking = [asyncio.ensure_future(writer.write(MESSAGES, seed)) for seed in range(4)]
            if kill:
                await writer.write(MESSAGES, 0)  # the engine is loaded
                asking += [asyncio.ensure_future(writer.write(MESSAGES, seed)) for seed in range(4)]
                await asyncio.sleep(0.06)  # the batch has begun
                for process in writer.process_ids:
                    os.kill(process, signal.SIGKILL)
            return list(await asyncio.gather(*asking))
        finally:
            await writer.close()

    return asyncio.run(all_of_them())


def test_a_killed_engine_is_started_again_and_draws_the_same(policy_folder: Path):
    undisturbed = answers(policy_folder, kill=False)
    assert len({draft.text for draft in undisturbed}) > 1
    assert answers(policy_folder, kill=True) == undisturbed * 2
    assert all(1 <= draft.completion_tokens <= 12 for draft in undisturbed)


def test_an_engine_ends_with_its_parent(policy_folder: Path):
    code = f"""
import asyncio, time
from extras.generation.writers.policy import PolicyWriter
from tasks.pipeline.references import CheckpointRef
from tasks.rollout.config import RolloutConfig, SamplingConfig
async def main():
    config = RolloutConfig(threads=1, sampling=SamplingConfig(max_new_tokens=12))
    writer = PolicyWriter(CheckpointRef(uri={str(policy_folder)!r}, digest="d"), config)
    await writer.write({MESSAGES!r}, 0)
    print(*writer.process_ids, flush=True)
    time.sleep(600)
if __name__ == "__main__":
    asyncio.run(main())
"""
    parent: Any = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        engine = psutil.Process(int(parent.stdout.readline()))
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
    engine.wait(timeout=20)
