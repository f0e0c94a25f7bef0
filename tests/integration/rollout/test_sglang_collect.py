"""`rollout.engine: sglang` through the whole stage: servers started, kept, given each iteration's weights, and ended."""

import asyncio
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray

from kernels_eval import Judge
from kernels_eval.config import JudgeConfig
from kernels_eval.errors import InfrastructureError, InputError
from tasks.agents.config import AgentConfig
from tasks.agents.team import publish_team
from tasks.cluster.workers import stop_worker, warm_worker
from tasks.models.config import ModelConfig
from tasks.models.policy import load_policy, new_policy, save_policy
from tasks.models.tokenizer import load_tokenizer
from tasks.pipeline.references import CheckpointRef, ProblemSetRef, TrajectoryBatchRef, silent
from tasks.pipeline.store import publish, published_digest
from tasks.problems.row import Split
from tasks.rollout.collect import collect_trajectories
from tasks.rollout.config import EpisodeConfig, RolloutConfig, SamplingConfig, SglangConfig
from tasks.rollout.engines.sglang.engine import SglangEngine
from tasks.rollout.engines.sglang.pool import Member
from tasks.rollout.engines.sglang.servers import SglangServer, start_on_ray
from tasks.rollout.episode_loop import RolloutCounts
from tasks.rollout.process import WORKER, start_servers
from tasks.rollout.worker import RolloutActor, RolloutRequest, roll_out
from tasks.trajectories.reader import read_trajectories, read_turns

pytestmark = pytest.mark.long
DOUBLE = str(Path(__file__).parents[2] / "doubles" / "sglang_server.py")
CONFIG = RolloutConfig(
    engine="sglang",
    sglang=SglangConfig(command=(sys.executable, DOUBLE), servers=2, gpus_per_server=0, start_timeout_s=600),
    problems_per_iteration=4,
    samples_per_problem=4,
    sampling=SamplingConfig(max_new_tokens=64),
    threads=1,
    episode=EpisodeConfig(prompt="source", feedback="brief"),
)


@pytest.fixture(scope="module", autouse=True)
def cluster(ray_local: None) -> Iterator[None]:
    yield
    stop_worker(WORKER)


@pytest.fixture(scope="module")
def next_policy(policy: CheckpointRef, tmp_path_factory: pytest.TempPathFactory) -> CheckpointRef:
    """The policy after a small update, with its optimizer's state beside it."""
    import torch

    model = load_policy(policy.path)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1e-3 * torch.randn(parameter.shape, generator=generator))
    folder = tmp_path_factory.mktemp("policy") / "next"
    with publish(folder) as partial:
        save_policy(model, load_tokenizer(policy.path), partial)
        (partial / "optimizer").mkdir()
        (partial / "optimizer" / "state.safetensors").write_bytes((partial / "model.safetensors").read_bytes())
    return CheckpointRef(uri=str(folder), digest=published_digest(folder), weight_version=1)


def collect(policy: CheckpointRef, problems: ProblemSetRef, destination: Path, **changes: Any) -> TrajectoryBatchRef:
    arguments: dict[str, Any] = {
        "split": "train", "config": CONFIG, "judge": JudgeConfig(workers=1, compile="never", trials=1),
        "run_id": "run", "iteration": 1, "seed": 0,
    } | changes  # fmt: skip
    request = RolloutRequest(policy=policy, problems=problems, destination=destination, **arguments)
    return collect_trajectories(request, silent)


def drawn(batch: TrajectoryBatchRef) -> Any:
    """Return what a seed decides of each turn, in order."""
    columns = ["trajectory_id", "turn_index", "prompt_token_ids", "response_token_ids", "finish_reason", "reward"]
    return read_turns(batch).select(columns)


def lines_of_processes() -> dict[psutil.Process, str]:
    """Return the command line of each process of this process's cluster. Not those of tests beside it."""
    lines: dict[psutil.Process, str] = {}
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            lines[process] = " ".join(process.cmdline())
    return lines


def servers() -> set[int]:
    """Return the servers, without forks of one."""
    found: dict[int, int] = {}
    for process, line in lines_of_processes().items():
        if "sglang_server.py" in line and "--port" in line and "guard.py" not in line:
            with suppress(psutil.Error):
                found[process.pid] = process.ppid()
    return {process for process, parent in found.items() if parent not in found}


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait as long as a server may start: that is how slow a busy machine may be."""
    deadline = time.monotonic() + CONFIG.sglang.start_timeout_s
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def end_servers() -> None:
    """End the rollout's servers. Ray ends an actor's children before it: until it is gone, it starts them again."""
    stop_worker(WORKER)
    wait_until(lambda: not servers() and not any("SglangServer" in line for line in lines_of_processes().values()))


def test_servers_outlive_the_policy_and_not_the_worker(
    policy: CheckpointRef, next_policy: CheckpointRef, problem_set: ProblemSetRef, tmp_path: Path
) -> None:
    end_servers()
    first = collect(policy, problem_set, tmp_path / "first")
    running = servers()
    assert len(running) == 2
    second = collect(next_policy, problem_set, tmp_path / "second", iteration=2)
    assert servers() == running, "kept, with other weights"
    for batch, reference in ((first, policy), (second, next_policy)):
        assert batch.trajectories == 16
        turns = read_turns(batch)
        assert turns["reward"].null_count() == 0
        assert set(turns["policy_digest"]) == {reference.digest}
        assert len(set(read_trajectories(batch)["trajectory_id"])) == 16
        check_logprobs(turns, reference)
    # The same rollout on the embedded engine draws the same tokens: seeds decide, not the engine.
    embedded = collect(
        policy, problem_set, tmp_path / "embedded", config=CONFIG.model_copy(update={"engine": "transformers"})
    )
    assert not servers(), "ended with the engine"
    assert drawn(embedded).equals(drawn(first))


def test_a_killed_rollout_takes_over_what_it_had_finished(
    policy: CheckpointRef, problem_set: ProblemSetRef, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept, long = tmp_path / "kept", CONFIG.model_copy(update={"samples_per_problem": 24})

    def kill_once_some_are_kept() -> None:
        pid = int(ray.get(warm_worker(WORKER, RolloutActor).ping.remote()))
        while not list(kept.glob("[!.]*/manifest.json")):
            time.sleep(0.01)
        os.kill(pid, signal.SIGKILL)

    whole = collect(policy, problem_set, tmp_path / "undisturbed", config=long)
    killer = threading.Thread(target=kill_once_some_are_kept)
    killer.start()
    with pytest.raises(InfrastructureError):
        collect(policy, problem_set, tmp_path / "batch", config=long, kept=kept)
    killer.join()
    batch = collect(policy, problem_set, tmp_path / "batch", config=long, kept=kept)
    assert re.search(r"\d+ finished episodes of an earlier attempt are taken over", caplog.text)
    assert drawn(batch).equals(drawn(whole))
    assert not kept.exists()


def untrained(policy: CheckpointRef, folder: Path) -> Path:
    """Write a model of the policy's shape with other weights."""
    tokenizer = load_tokenizer(policy.path)
    save_policy(new_policy(ModelConfig(vocabulary=700, max_positions=512), tokenizer, seed=7), tokenizer, folder)
    return folder


def both_servers() -> set[int]:
    """Return the two servers, once they run."""
    wait_until(lambda: len(servers()) == 2)
    return servers()


def untrained_folders() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob("kernelmill-untrained-*"))


def test_servers_that_started_early_get_the_first_policys_weights(
    policy: CheckpointRef, problem_set: ProblemSetRef, tmp_path: Path
) -> None:
    end_servers()
    folders = untrained_folders()
    start_servers(CONFIG, partial(untrained, policy))
    running = both_servers()
    batch = collect(policy, problem_set, tmp_path / "first")
    assert servers() == running, "no others were started"
    check_logprobs(read_turns(batch), policy)
    assert untrained_folders() == folders, "the untrained model is gone"


def test_agents_servers_that_started_early_get_each_agents_weights(
    policy: CheckpointRef, next_policy: CheckpointRef, problem_set: ProblemSetRef, tmp_path: Path
) -> None:
    team = publish_team({"generator": policy, "optimizer": next_policy}, tmp_path / "team", 1)
    agents = {
        "generator": AgentConfig(turns="first", shown="problem"),
        "optimizer": AgentConfig(turns="later", shown="kernel"),
    }
    episode = CONFIG.episode.model_copy(update={"agents": agents, "max_turns": 2})
    one_server_each = CONFIG.sglang.model_copy(update={"servers": 1})
    config = CONFIG.model_copy(update={"episode": episode, "sglang": one_server_each})
    end_servers()
    folders = untrained_folders()
    start_servers(config, partial(untrained, policy), tuple(agents))
    running = both_servers()
    batch = collect(team, problem_set, tmp_path / "first", config=config)
    assert servers() == running, "no others were started"
    turns = read_turns(batch)
    for agent, member in (("generator", policy), ("optimizer", next_policy)):
        own = turns.filter(turns["agent"] == agent)
        assert set(own["policy_digest"]) == {member.digest}
        check_logprobs(own, member)
    assert untrained_folders() == folders


def test_servers_that_could_not_start_early_are_started_by_the_rollout(
    policy: CheckpointRef, problem_set: ProblemSetRef, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(folder: Path) -> Path:
        raise InputError("no model to start with")

    stop_worker(WORKER)
    start_servers(CONFIG, broken)
    assert collect(policy, problem_set, tmp_path / "batch").trajectories == 16
    assert "no model to start with" in caplog.text


def check_logprobs(turns: Any, reference: CheckpointRef) -> None:
    import torch

    model: Any = load_policy(reference.path).eval()
    for row in turns.rows(named=True):
        prompt, response = row["prompt_token_ids"], row["response_token_ids"]
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([prompt + response])).logits[0]
        expected = logits.log_softmax(-1)[len(prompt) - 1 : -1].gather(1, torch.tensor(response).unsqueeze(1))[:, 0]
        assert row["response_logprobs"] == pytest.approx(expected.tolist(), abs=5e-5)


def test_servers_without_a_process_in_time_are_an_infrastructure_error() -> None:
    others = servers()
    settings = CONFIG.sglang.model_copy(update={"start_timeout_s": 0.001})
    with pytest.raises(InfrastructureError, match=r"0\.001 s \(rollout\.sglang\.start_timeout_s\)"):
        start_on_ray(settings, "no folder", "no version")
    wait_until(lambda: servers() == others)


def test_a_server_that_is_not_there_is_an_infrastructure_error(
    policy: CheckpointRef, problem_set: ProblemSetRef, tmp_path: Path
) -> None:
    settings = CONFIG.sglang.model_copy(update={"start_timeout_s": 1})
    config = CONFIG.model_copy(update={"sglang_urls": ("http://127.0.0.1:9",), "sglang": settings})
    with pytest.raises(InfrastructureError, match=r"http://127\.0\.0\.1:9"):
        collect(policy, problem_set, tmp_path / "batch", config=config)
    assert not (tmp_path / "batch").exists()


def test_servers_that_cannot_be_had_are_bad_input(
    policy: CheckpointRef, problem_set: ProblemSetRef, tmp_path: Path
) -> None:
    settings = CONFIG.sglang.model_copy(update={"gpus_per_server": 8.0})
    with pytest.raises(InputError, match=r"rollout\.sglang: .* Ray has 0"):
        collect(policy, problem_set, tmp_path / "batch", config=CONFIG.model_copy(update={"sglang": settings}))


@pytest.mark.slow
@pytest.mark.parametrize(("temperature", "warned"), [(1.0, False), (0.7, True)])
def test_training_off_the_policy_is_said_aloud(
    policy: CheckpointRef,
    problem_set: ProblemSetRef,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    temperature: float,
    warned: bool,
) -> None:
    """And the log-probabilities that are stored are those of T = 1 all the same."""
    settings = CONFIG.sglang.model_copy(update={"servers": 1})
    sampling = SamplingConfig(max_new_tokens=64, temperature=temperature)
    request = RolloutRequest(
        policy=policy,
        problems=problem_set,
        split=Split.TRAIN,
        config=CONFIG.model_copy(update={"sglang": settings, "sampling": sampling}),
        judge=JudgeConfig(workers=1, compile="never", trials=1),
        run_id="run",
        iteration=1,
        seed=0,
        destination=tmp_path / "batch",
    )

    async def scenario() -> TrajectoryBatchRef:
        tokenizer = load_tokenizer(policy.path)
        server = SglangServer(settings, policy.uri, policy.digest)
        engine = SglangEngine([Member(server.url(), None, settings.concurrency)], settings)
        try:
            await engine.serve(policy, tokenizer)
            with Judge(request.judge) as judge:
                return await roll_out(request, engine, tokenizer, judge, RolloutCounts())
        finally:
            await engine.close()
            server.stop()

    with caplog.at_level("WARNING", logger="kernelmill.rollout"):
        batch = asyncio.run(scenario())
    assert ("temperature 0.7" in caplog.text) == warned
    check_logprobs(read_turns(batch), policy)
