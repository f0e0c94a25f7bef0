"""OpenEnv runs our environment: its own server and clients, over WebSocket, with a judge whose verdicts are scripted."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openenv.core", reason="openenv is not installed (extra `openenv`)")

import httpx
import uvicorn
from openenv.core.generic_client import GenericEnvClient

from extras.adapters.openenv import KernelAction, KernelClient, kernel_app
from extras.adapters.scoring import KernelSettings, Scorer
from kernels_eval.problem import EXAMPLE_PROBLEM
from tasks.problems.config import ProblemsConfig
from tasks.rollout.config import EpisodeConfig

EPISODE = EpisodeConfig(prompt="source", feedback="brief", max_turns=3, gamma=0.5)


@pytest.fixture
def url(tmp_path: Path, judge: Any) -> Iterator[str]:
    path = tmp_path / "problems.jsonl"
    rows = [
        {"problem_id": name, "source": f"{EXAMPLE_PROBLEM}\nNAME = {name!r}\n", "split": split, "level": level}
        for name, split, level in [("one", "train", 1), ("two", "train", 2), ("three", "heldout", 1)]
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    problems = ProblemsConfig(source="jsonl", path=str(path), flag_trivial=False)  # type: ignore[arg-type]
    app = kernel_app(problems, KernelSettings(episode=EPISODE), scorer=Scorer(judge, EPISODE))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until = time.monotonic() + 30
    while not server.started and time.monotonic() < until:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(10)


def test_an_episode_of_three_turns(url: str, answer: Any) -> None:
    with KernelClient(base_url=url).sync() as client:
        begun = client.reset(split="train", index=1)
        assert (begun.observation.problem_id, begun.observation.level, begun.done) == ("two", 2, False)
        assert [message["role"] for message in begun.observation.messages] == ["user"]
        wrong = client.step(KernelAction(answer=answer("incorrect")))
        assert (wrong.reward, wrong.done, wrong.observation.status) == (0.1, False, "incorrect")
        assert [message["role"] for message in wrong.observation.messages] == ["user", "assistant", "user"]
        right = client.step(KernelAction(answer=answer("speedup 0.8")))
        slower = client.step(KernelAction(answer=answer("speedup 0.5")))
        assert (right.observation.correct, right.observation.speedup) == (True, 0.8)
        assert (slower.reward, slower.done) == (0.0, True)
        rewards = slower.observation.turn_rewards
        assert wrong.reward + right.reward + slower.reward == pytest.approx(max(rewards)), "that of the best turn"
        assert max(rewards) == rewards[1]
        assert slower.observation.turn_returns[1] == pytest.approx(rewards[1] + 0.5 * rewards[2])
        assert client.state().step_count == 3


def test_sessions_do_not_mix_and_a_seed_draws_the_problem(url: str, answer: Any) -> None:
    with KernelClient(base_url=url).sync() as first, KernelClient(base_url=url).sync() as second:
        assert first.reset(split="heldout").observation.problem_id == "three"
        drawn = {second.reset(seed=seed).observation.problem_id for seed in range(8)}
        assert drawn == {"one", "two"}
        assert second.reset(seed=3).observation.problem_id == second.reset(seed=3).observation.problem_id
        first.step(KernelAction(answer=answer("incorrect")))
        assert second.step(KernelAction(answer=answer("speedup 3.0"))).observation.turn_rewards[1:] == []


@pytest.mark.parametrize("remark", ["fault", "raises"])
def test_a_fault_of_the_machine_is_an_error_and_no_reward(url: str, answer: Any, remark: str) -> None:
    with KernelClient(base_url=url).sync() as client:
        client.reset(split="train", index=0)
        with pytest.raises(RuntimeError, match="not judged: "):
            client.step(KernelAction(answer=answer(remark)))


@pytest.mark.parametrize(
    ("asked", "says"),
    [({"split": "tset"}, "found 'tset', expected one of train, heldout"), ({"index": 7}, "found 7, expected 0 to 1")],
)
def test_a_problem_that_is_not_there_is_named(url: str, asked: dict[str, Any], says: str) -> None:
    with KernelClient(base_url=url).sync() as client, pytest.raises(RuntimeError, match=says):
        client.reset(**asked)


def test_step_comes_after_reset(url: str) -> None:
    with KernelClient(base_url=url).sync() as client, pytest.raises(RuntimeError, match="reset comes before step"):
        client.step(KernelAction(answer="x"))


def test_tasks_are_listed_and_a_client_without_our_package_gets_along(url: str, answer: Any) -> None:
    splits = httpx.get(f"{url}/kernelmill/splits", timeout=10).json()
    assert [entry["name"] for entry in splits] == ["train", "heldout"]
    with GenericEnvClient(base_url=url).sync() as client:
        begun = client.reset(split="train", index=0)
        assert begun.observation["problem_id"] == "one"
        assert client.step({"answer": answer("speedup 1.5")}).observation["speedup"] == 1.5
