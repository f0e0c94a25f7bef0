"""Servers that the pipeline starts: real processes, supervised, and none that outlives its owner."""

import asyncio
import itertools
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernels_eval.errors import InfrastructureError, InputError
from tasks.models.tokenizer import load_tokenizer
from tasks.pipeline.references import CheckpointRef
from tasks.rollout.config import SamplingConfig, SglangConfig
from tasks.rollout.engines import FinishReason, GenerationRequest
from tasks.rollout.engines.sglang.engine import SglangEngine
from tasks.rollout.engines.sglang.pool import Member, ServerState
from tasks.rollout.engines.sglang.servers import HIGHEST_PORT, SglangServer, free_port, start_on_ray

DOUBLE = str(Path(__file__).parents[2] / "doubles" / "sglang_server.py")
CONFIG = SglangConfig(command=(sys.executable, DOUBLE), gpus_per_server=0, start_timeout_s=60, backoff_s=0.05)


def wait_for(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def processes(text: str) -> list[int]:
    """Living processes whose command line holds the text."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if text in line and state != "Z":
                found.append(int(folder.name))
    return found


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def program_of(server: SglangServer) -> int:
    """The process that listens, not its guard."""
    port = server.url().rpartition(":")[2]
    guard, program = sorted(processes(f"--port {port}"))
    assert "sglang/guard.py" in Path(f"/proc/{guard}/cmdline").read_text()
    return program


def hand_out(ports: Iterator[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the machine hand out these ports."""

    class Probe(socket.socket):
        def bind(self, _: Any) -> None:
            super().bind(("127.0.0.1", 0))
            self.port = next(ports)

        def getsockname(self) -> Any:
            return "127.0.0.1", self.port

    monkeypatch.setattr("tasks.rollout.engines.sglang.servers.socket.socket", Probe)


def test_a_port_leaves_room_for_the_one_that_sglang_takes_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    hand_out(iter([60_001, 65_535, HIGHEST_PORT + 1, HIGHEST_PORT, 40_000]), monkeypatch)
    assert free_port() == HIGHEST_PORT


def test_a_machine_that_hands_out_no_such_port_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    hand_out(itertools.count(60_000), monkeypatch)
    with pytest.raises(InfrastructureError, match="200 free ones above 55535"):
        free_port()


@pytest.fixture(autouse=True)
def logs_go_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def server(policy: CheckpointRef) -> Iterator[SglangServer]:
    started = SglangServer(CONFIG, policy.uri, policy.digest)
    yield started
    started.stop()


class LocalSupervisor:
    """A server of this process (tasks.rollout.engines.sglang.pool.Supervisor)."""

    def __init__(self, server: SglangServer) -> None:
        self._server = server

    async def state(self) -> ServerState:
        return await asyncio.to_thread(self._server.state)

    async def set_model(self, folder: str, version: str) -> None:
        await asyncio.to_thread(self._server.set_model, folder, version)

    async def stop(self) -> None:
        await asyncio.to_thread(self._server.stop)


def engine_on(server: SglangServer) -> SglangEngine:
    return SglangEngine([Member(server.url(), LocalSupervisor(server), 16)], CONFIG)


async def sample(engine: SglangEngine, count: int = 4) -> list[FinishReason]:
    requests = [GenerationRequest(f"r{n}", tuple(range(10, 30)), n, f"t{n}") for n in range(count)]
    return [g.finish_reason async for _, g in engine.generate(requests, SamplingConfig(max_new_tokens=8))]


@pytest.mark.long
def test_a_server_that_dies_comes_back_with_the_weights_of_the_day(server: SglangServer, policy: CheckpointRef) -> None:
    later = policy.model_copy(update={"digest": "later"})

    async def scenario() -> None:
        tokenizer = load_tokenizer(policy.path)
        engine = engine_on(server)
        await engine.serve(policy, tokenizer)
        await engine.serve(later, tokenizer)
        assert FinishReason.FAULT not in await sample(engine)
        os.kill(await asyncio.to_thread(program_of, server), signal.SIGKILL)
        assert FinishReason.FAULT not in await sample(engine), "waited for it"
        assert (await asyncio.to_thread(server.state)).restarts == 1
        command = Path(f"/proc/{await asyncio.to_thread(program_of, server)}/cmdline").read_text()
        assert "later" in command.split("\0")
        # The second time it stays down: something is wrong with this machine.
        os.kill(await asyncio.to_thread(program_of, server), signal.SIGKILL)
        with pytest.raises(InfrastructureError, match=r"no SGLang server is left.*signal 9"):
            await sample(engine)
        await engine.close()

    asyncio.run(scenario())


def test_a_server_that_cannot_start_says_why(policy: CheckpointRef) -> None:
    config = CONFIG.model_copy(update={"flags": ("--die-before-start",)})
    broken = SglangServer(config, policy.uri, policy.digest)

    async def scenario() -> None:
        with pytest.raises(InfrastructureError, match=r"no kernel image is available.*exit code 1"):
            await engine_on(broken).serve(policy, load_tokenizer(policy.path))

    asyncio.run(scenario())
    assert broken.state().restarts == 1
    broken.stop()


def test_a_command_that_is_none_says_so() -> None:
    broken = SglangServer(CONFIG.model_copy(update={"command": ("/no/such/python",)}), "", "")
    wait_for(lambda: broken.state().gave_up)
    assert "cannot start /no/such/python" in broken.state().report
    broken.stop()


def test_stopping_ends_the_whole_family(policy: CheckpointRef) -> None:
    config = CONFIG.model_copy(update={"flags": ("--child",)})
    started = SglangServer(config, policy.uri, policy.digest)
    port = started.url().rpartition(":")[2]
    child = child_of(started)
    started.stop()
    wait_for(lambda: not processes(f"--port {port}") and not is_alive(child))


def test_a_killed_program_takes_its_children_with_it(policy: CheckpointRef) -> None:
    """They hold the GPU's memory, which the next one needs."""
    started = SglangServer(CONFIG.model_copy(update={"flags": ("--child",)}), policy.uri, policy.digest)
    child = child_of(started)
    os.kill(program_of(started), signal.SIGKILL)
    wait_for(lambda: not is_alive(child))
    started.stop()


def child_of(server: SglangServer) -> int:
    log: Path = server._log  # pyright: ignore[reportPrivateUsage]
    wait_for(lambda: "child " in log.read_text())
    return int(log.read_text().rsplit("child ", 1)[1].split()[0])


def test_servers_die_with_their_owner(policy: CheckpointRef) -> None:
    """However it ends: here it is killed, and cannot clean up."""
    code = (
        "import sys, time\n"
        "from tasks.rollout.config import SglangConfig\n"
        "from tasks.rollout.engines.sglang.servers import SglangServer\n"
        f"config = SglangConfig(command=(sys.executable, {DOUBLE!r}), flags=('--child',))\n"
        f"server = SglangServer(config, {policy.uri!r}, 'x')\n"
        "print(server.url(), server._log, flush=True)\n"
        "time.sleep(1000)\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    url, log = owner.stdout.readline().split()
    port = url.rpartition(":")[2]
    wait_for(lambda: "child " in Path(log).read_text())
    child = int(Path(log).read_text().rsplit("child ", 1)[1].split()[0])
    assert processes(f"--port {port}")
    owner.kill()
    owner.wait()
    wait_for(lambda: not processes(f"--port {port}") and not is_alive(child))
    Path(log).unlink()


@pytest.mark.long
def test_an_actor_owns_its_server(ray_local: None, policy: CheckpointRef) -> None:
    (member,) = start_on_ray(CONFIG, policy.uri, policy.digest)
    port = member.url.rpartition(":")[2]

    async def scenario() -> None:
        engine = SglangEngine([member], CONFIG)
        await engine.serve(policy, load_tokenizer(policy.path))
        assert FinishReason.FAULT not in await sample(engine)
        await engine.close()

    asyncio.run(scenario())
    wait_for(lambda: not processes(f"--port {port}"))


def test_a_killed_actor_takes_its_server_with_it(ray_local: None, policy: CheckpointRef) -> None:
    import ray

    (member,) = start_on_ray(CONFIG, policy.uri, policy.digest)
    port = member.url.rpartition(":")[2]
    wait_for(lambda: len(processes(f"--port {port}")) == 2)
    supervisor: Any = member.supervisor
    ray.kill(supervisor._actor)
    wait_for(lambda: not processes(f"--port {port}"))
    assert asyncio.run(supervisor.state()).gave_up


def test_more_gpus_than_there_are_is_bad_input(ray_local: None, policy: CheckpointRef) -> None:
    with pytest.raises(InputError, match=r"rollout.sglang: 2 servers of 4 GPUs need 8, Ray has 0"):
        start_on_ray(CONFIG.model_copy(update={"servers": 2, "gpus_per_server": 4}), policy.uri, policy.digest)
