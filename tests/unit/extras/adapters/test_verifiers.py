"""verifiers runs our environment: its own client, harness and traces, against an endpoint that answers from a script."""

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verifiers.v1", reason="verifiers is not installed (extra `verifiers`)")

import verifiers.v1 as vf
from verifiers.v1.utils.loaders import environment_class, taskset_class

from extras.adapters import verifiers as adapter
from extras.adapters.scoring import Scorer
from kernels_eval.problem import EXAMPLE_PROBLEM

PACKAGE = Path(__file__).parents[4] / "docs" / "examples" / "verifiers_environment"


@pytest.fixture
def endpoint() -> Iterator[tuple[str, list[str], list[list[dict[str, Any]]]]]:
    """An OpenAI-compatible endpoint; yields its address, the answers still to be given, and the prompts it was sent."""
    answers: list[str] = []
    prompts: list[list[dict[str, Any]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            prompts.append(asked["messages"])
            delta = {"role": "assistant", "content": answers[len(prompts) - 1]}
            choices = [
                {"index": 0, "delta": delta, "finish_reason": None},
                {"index": 0, "delta": {}, "finish_reason": "stop"},
            ]
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            base = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "policy"}
            chunks = [base | {"choices": [choice]} for choice in choices] + [base | {"choices": [], "usage": usage}]
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for line in [*map(json.dumps, chunks), "[DONE]"]:
                self.wfile.write(f"data: {line}\n\n".encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1", answers, prompts
    server.shutdown()
    server.server_close()


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, judge: Any) -> adapter.KernelEnv:
    """Our environment as the hub's package gives it, with one problem and the scripted judge."""
    monkeypatch.syspath_prepend(str(PACKAGE))
    monkeypatch.setattr(adapter, "open_scorer", lambda url, settings, episode: Scorer(judge, episode))
    path = tmp_path / "problems.jsonl"
    path.write_text(json.dumps({"problem_id": "one", "source": EXAMPLE_PROBLEM, "split": "train", "level": 2}) + "\n")
    problems = {"source": "jsonl", "path": str(path), "flag_trivial": False}
    episode = {"prompt": "source", "feedback": "brief", "max_turns": 3, "gamma": 0.5}
    config = adapter.KernelEnvConfig(
        taskset={"id": "kernelmill-kernels", "problems": problems, "episode": episode}  # type: ignore[arg-type]
    )
    return environment_class("kernelmill-kernels")(config)  # type: ignore[return-value]


def run(environment: adapter.KernelEnv, url: str) -> vf.Episode:
    async def one() -> vf.Episode:
        context = vf.ModelContext(model="policy", client=vf.EvalClientConfig(base_url=url, api_key_var="NO_KEY"))
        (task,) = list(environment.taskset)
        async with environment.serving():
            return await environment.run_slot(environment.slots(task)[0], context)

    return asyncio.run(one())


def test_the_package_exports_taskset_and_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(PACKAGE))
    assert taskset_class("kernelmill-kernels") is adapter.KernelTaskset
    assert environment_class("kernelmill-kernels") is adapter.KernelEnv


def test_an_episode_of_two_turns(environment: Any, endpoint: Any, answer: Any):
    url, answers, prompts = endpoint
    answers += [answer("incorrect"), answer("speedup 2.5")]
    episode = run(environment, url)
    assert episode.ok, episode.errors
    (trace,) = episode.traces
    assert trace.reward == pytest.approx(1.8)
    assert trace.metrics["turns"] == 2
    assert trace.info["turn_rewards"] == pytest.approx([0.1, 1.8])
    assert trace.info["turn_returns"] == pytest.approx([1.0, 1.8])
    assert [message["content"] for message in prompts[1]][-1] == "incorrect\nwrong_values"
    assert prompts[1][0]["content"] == prompts[0][0]["content"] == EXAMPLE_PROBLEM.strip("\n") + "\n"


def test_a_fault_fails_the_episode_and_records_no_reward(environment: Any, endpoint: Any, answer: Any):
    url, answers, _ = endpoint
    answers += [answer("speedup 1.2"), answer("fault")]
    episode = run(environment, url)
    assert not episode.ok
    assert "lost worker" in episode.errors[0].message
    assert all(not trace.rewards for trace in episode.traces)


def test_a_reward_that_needs_tokens_is_refused(environment: Any, endpoint: Any):
    environment.taskset.config.episode = environment.taskset.config.episode.model_copy(
        update={"reward": "kevin - 0.1*length"}
    )
    with pytest.raises(Exception, match="without `length`"):
        run(environment, endpoint[0])
