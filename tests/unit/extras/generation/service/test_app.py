"""The routes: who is let in, what is refused and how, one job for one key, progress as lines, and declared replies."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from extras.adapters.scoring import Scorer
from extras.generation.config import ServiceConfig
from extras.generation.generate import generate
from extras.generation.service.app import create_app
from extras.generation.service.jobs import JobStore
from extras.generation.service.runner import Runner
from kernels_eval import Judge, JudgeConfig
from kernels_eval.problem import EXAMPLE_PROBLEM

BODY = {"problem_source": EXAMPLE_PROBLEM, "budget": 3, "conversations": 1}
TOKEN = "secret-token"


@pytest.fixture
def served(tmp_path: Path, judge: Any, scorer: Scorer, writer: Callable[..., Any]) -> Any:
    """Run a test's coroutine against the service; judge and model are scripted."""

    @asynccontextmanager
    async def client(
        remarks: list[str], config: ServiceConfig, token: str | None, delay_s: float
    ) -> AsyncIterator[Any]:
        store, model = JobStore(tmp_path), writer(remarks, delay_s)

        async def work(*arguments: Any) -> Any:
            problem, search, on_attempt, earlier = arguments
            return await generate(problem, model, scorer, judge, search, on_attempt, earlier)

        runner = Runner(store, work, config, "identity")
        with Judge(JudgeConfig(workers=1, device="cpu")) as real:  # only its state is shown
            app = create_app(runner, real, model, config, token, model.close)
            runner.start()
            transport = httpx.ASGITransport(app)  # type: ignore[arg-type]
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=30) as client:
                yield client
            await runner.stop()
        store.close()

    def run(
        test: Callable[[httpx.AsyncClient], Coroutine[Any, Any, None]],
        remarks: list[str] | None = None,
        token: str | None = None,
        delay_s: float = 0.0,
        **settings: Any,
    ) -> None:
        async def once() -> None:
            async with client(remarks or ["speedup 2"], ServiceConfig(**settings), token, delay_s) as found:
                await test(found)

        asyncio.run(once())

    return run


async def ended(client: httpx.AsyncClient, name: str) -> dict[str, Any]:
    await client.get(f"/v1/kernels/{name}/events")
    return (await client.get(f"/v1/kernels/{name}")).json()


def test_from_a_problem_to_a_kernel(served: Any):
    async def test(client: httpx.AsyncClient) -> None:
        reply = await client.post("/v1/kernels", json=BODY)
        job = reply.json()
        assert (reply.status_code, reply.headers["Location"]) == (202, f"/v1/kernels/{job['id']}")
        found = await ended(client, job["id"])
        assert (found["state"], found["judged"], found["best_speedup"]) == ("finished", 3, 2.0)
        assert (found["result"]["outcome"], found["result"]["estimated"]) == ("improved", True)
        source = await client.get(f"/v1/kernels/{job['id']}/kernel.py")
        assert (source.text, source.headers["Content-Type"]) == (
            found["result"]["source"], "text/x-python; charset=utf-8",
        )  # fmt: skip
        lines = (await client.get(f"/v1/kernels/{job['id']}/events")).text.splitlines()
        events = [json.loads(line) for line in lines]
        assert [event["number"] for event in events] == list(range(1, 7))
        assert [event["kind"] for event in events] == ["queued", "started", *["attempt"] * 3, "finished"]
        assert events[2]["attempt"]["verdict"]["speedup"] == 2.0
        later = (await client.get(f"/v1/kernels/{job['id']}/events?after=5")).text.splitlines()
        assert later == lines[5:]
        (listed,) = (await client.get("/v1/kernels")).json()["jobs"]
        assert (listed["id"], listed["result"]) == (job["id"], None)
        text = (await client.get("/metrics")).text
        assert 'kernelmill_kernels_answers_total{status="correct"} 3.0' in text
        assert 'kernelmill_kernels_tokens_total{kind="prompt"} 300.0' in text
        assert "kernelmill_judge_workers" in text

    served(test)


def test_the_original_is_said_to_be_one(served: Any):
    async def test(client: httpx.AsyncClient) -> None:
        job = (await client.post("/v1/kernels", json=BODY)).json()
        result = (await ended(client, job["id"]))["result"]
        assert (result["outcome"], result["speedup"], result["statuses"]) == ("original", None, {"incorrect": 3})
        assert "ModelNew = Model" in result["source"]

    served(test, ["incorrect"])


def test_one_job_for_one_key(served: Any):
    async def test(client: httpx.AsyncClient) -> None:
        key = {"Idempotency-Key": "k"}
        replies = await asyncio.gather(*[client.post("/v1/kernels", json=BODY, headers=key) for _ in range(5)])
        assert len({reply.json()["id"] for reply in replies}) == 1
        assert sorted(reply.status_code for reply in replies) == [200, 200, 200, 200, 202]
        other = await client.post("/v1/kernels", json={**BODY, "budget": 4}, headers=key)
        assert other.status_code == 422
        assert other.json()["detail"][0]["loc"] == ["header", "Idempotency-Key"]

    served(test, delay_s=0.05)


def test_a_result_is_found_again_whatever_the_layout(served: Any):
    async def test(client: httpx.AsyncClient) -> None:
        first = (await client.post("/v1/kernels", json=BODY)).json()
        await ended(client, first["id"])
        again = await client.post("/v1/kernels", json={**BODY, "problem_source": "# a comment\n" + EXAMPLE_PROBLEM})
        assert (again.status_code, again.json()["cached"], again.json()["state"]) == (200, True, "finished")
        changed = EXAMPLE_PROBLEM.replace("2.0", "3.0")
        other = await client.post("/v1/kernels", json={**BODY, "problem_source": changed})
        assert (other.status_code, other.json()["cached"]) == (202, False)

    served(test)


def test_cancelling(served: Any):
    async def test(client: httpx.AsyncClient) -> None:
        job = (await client.post("/v1/kernels", json=BODY)).json()
        assert (await client.delete(f"/v1/kernels/{job['id']}")).json()["state"] == "cancelled"
        assert (await client.delete(f"/v1/kernels/{job['id']}")).json()["state"] == "cancelled"
        assert (await client.get(f"/v1/kernels/{job['id']}/kernel.py")).status_code == 409
        events = (await client.get(f"/v1/kernels/{job['id']}/events")).text.splitlines()
        assert json.loads(events[-1])["kind"] == "cancelled"

    served(test, delay_s=30)


def test_refusals(served: Any):
    async def test(client: httpx.AsyncClient) -> None:
        assert (await client.get("/health")).status_code == 200
        assert (await client.get("/metrics")).status_code == 401
        assert (await client.post("/v1/kernels", json=BODY)).status_code == 401
        client.headers["Authorization"] = f"Bearer {TOKEN}"
        for changes, status in (
            ({"problem_source": "def f(:"}, 422),
            ({"problem_source": "class Model: pass"}, 422),
            ({"problem_source": EXAMPLE_PROBLEM + "#" * 70_000}, 413),
            ({"budget": 0}, 422),
            ({"name": "a b"}, 422),
            ({"no_such_field": 1}, 422),
        ):
            reply = await client.post("/v1/kernels", json={**BODY, **changes})
            assert reply.status_code == status, (changes, reply.text)
        for path in ("", "/events", "/kernel.py"):
            assert (await client.get(f"/v1/kernels/nothing{path}")).status_code == 404
        assert (await client.delete("/v1/kernels/nothing")).status_code == 404
        for number in range(2):
            assert (await client.post("/v1/kernels", json={**BODY, "seed": number})).status_code == 202
        full = await client.post("/v1/kernels", json=BODY)
        assert full.status_code == 429
        assert int(full.headers["Retry-After"]) > 0

    served(test, token=TOKEN, delay_s=30, queue_limit=2)


def test_every_reply_is_declared(served: Any):
    async def test(client: httpx.AsyncClient) -> None:
        page = (await client.get("/openapi.json")).json()
        post = page["paths"]["/v1/kernels"]["post"]
        assert {"200", "202", "401", "413", "422", "429", "503"} <= set(post["responses"])
        assert [one["name"] for one in post["parameters"]] == ["Idempotency-Key"]
        lines = page["paths"]["/v1/kernels/{name}/events"]["get"]["responses"]["200"]["content"]
        assert list(lines) == ["application/x-ndjson"]
        assert (await client.get("/docs")).status_code == 200

    served(test)
