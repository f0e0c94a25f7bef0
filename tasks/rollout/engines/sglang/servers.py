"""SGLang servers that the pipeline starts itself: one supervised process family each, on this machine's loopback.

A server that dies is restarted once, with the weights that are current by then; the engine uses it again after the
canary. Under Ray, an actor owns each server and its GPUs. A server ends with the process that supervises it (guard.py).
"""

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from kernels_eval.errors import InfrastructureError, InputError, first_line
from tasks.cluster.placement import options_in_worker
from tasks.rollout.config import SglangConfig
from tasks.rollout.engines.sglang.installation import server_command, server_environment
from tasks.rollout.engines.sglang.pool import Member, ServerState

logger = logging.getLogger("kernelmill.rollout")

RESTARTS = 1
"""Times that one server is started again."""
_GUARD = Path(__file__).with_name("guard.py")
_LOG_TAIL = 15
_STOP_S = 10.0
HIGHEST_PORT = 65_535 - 10_000
"""SGLang (0.5.13) takes the port 10,000 above a server's for gRPC, and ends if there is none."""
_PORTS_TRIED = 200


class SglangServer:
    """One server: started at once, kept running by a thread, ended by `stop`."""

    def __init__(self, config: SglangConfig, folder: str, version: str) -> None:
        self._config = config
        self._model = (folder, version)
        self._port = free_port()
        self._log = Path(tempfile.gettempdir()) / f"kernelmill-sglang-{os.getpid()}-{self._port}.log"
        self._log.touch()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._restarts = 0
        self._gave_up = self._stopping = False
        # The kernel ties a child to the thread that started it: this one lives as long as the server may.
        self._thread = threading.Thread(target=self._supervise, name=f"sglang-{self._port}", daemon=True)
        self._thread.start()

    def url(self) -> str:
        """Return its address, which a restart keeps."""
        return f"http://127.0.0.1:{self._port}"

    def set_model(self, folder: str, version: str) -> None:
        """Set the model for a restart."""
        with self._lock:
            self._model = (folder, version)

    def state(self) -> ServerState:
        """Return the server's state."""
        with self._lock:
            running = self._process is not None and self._process.poll() is None
            return ServerState(
                is_running=running,
                gave_up=self._gave_up,
                restarts=self._restarts,
                report=self._log_tail() if self._restarts or self._gave_up else "",
                visible_gpus=(os.environ | self._config.environment).get("CUDA_VISIBLE_DEVICES"),
            )

    def log_text(self) -> str:
        """Return the output of its processes."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def stop(self) -> None:
        """End the server's process group."""
        with self._lock:
            self._stopping = True
            process = self._process
        if process is not None:
            process.terminate()  # the guard takes the group with it
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
        self._thread.join(_STOP_S)
        if not self._gave_up:  # kept for diagnosis
            self._log.unlink(missing_ok=True)

    def _supervise(self) -> None:
        while True:
            with self._lock:
                if self._stopping:
                    return
                self._process = process = self._start()
            process.wait()
            with self._lock:
                if self._stopping:
                    return
                if self._restarts >= RESTARTS:
                    self._gave_up = True
                    return
                self._restarts += 1
            logger.warning("SGLang server %s died and is started again: %s", self.url(), self._log_tail())

    def _start(self) -> subprocess.Popen[bytes]:
        folder, version = self._model
        command = [
            *server_command(self._config, Path(folder)),
            "--model-path", folder,
            "--weight-version", version,
            "--host", "127.0.0.1",
            "--port", str(self._port),
        ]  # fmt: skip
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-S", "-E", str(_GUARD), str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=server_environment(self._config),
                start_new_session=True,
            )

    def _log_tail(self) -> str:
        lines = self.log_text().splitlines()
        return f"log {self._log}: " + " | ".join(line.strip() for line in lines[-_LOG_TAIL:] if line.strip())


class RaySupervisor:
    """A server of a Ray actor: it dies with the actor, the actor with this process."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    async def state(self) -> ServerState:
        """Return the server's state; a dead actor counts as given up."""
        try:
            return await self._actor.state.remote()
        except RayActorError as error:
            return ServerState(is_running=False, gave_up=True, restarts=0, report=first_line(error))

    async def set_model(self, folder: str, version: str) -> None:
        """Set the model for a restart."""
        with suppress(RayActorError):
            await self._actor.set_model.remote(folder, version)

    async def stop(self) -> None:
        """End the server, then the actor."""
        try:
            await asyncio.wait_for(self._actor.stop.remote(), 2 * _STOP_S)
        except (RayActorError, TimeoutError) as error:
            logger.warning("an SGLang server's actor did not stop by itself: %s", error)
        ray.kill(self._actor)


def start_on_ray(config: SglangConfig, folder: str, version: str) -> list[Member]:
    """Start the configured servers in Ray actors on this node. Raises InputError if it has too few GPUs.

    An actor has the time of its server, `start_timeout_s`: on a busy machine Ray's process takes as long as a server.
    """
    needed = config.servers * config.gpus_per_server
    available = float(ray.cluster_resources().get("GPU", 0))
    if needed > available:
        raise InputError(
            f"rollout.sglang: {config.servers} servers of {config.gpus_per_server:g} GPUs need {needed:g}, "
            f"Ray has {available:g}; name running servers with rollout.sglang_urls"
        )
    # On this node: servers listen on its loopback only.
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    place = {"scheduling_strategy": here, **options_in_worker("rollout")}
    actor_class: Any = ray.remote(SglangServer)
    actors = [
        actor_class.options(num_cpus=0, num_gpus=config.gpus_per_server, max_restarts=0, **place).remote(
            config, folder, version
        )
        for _ in range(config.servers)
    ]
    try:
        urls: Sequence[str] = ray.get([actor.url.remote() for actor in actors], timeout=config.start_timeout_s)
    except (GetTimeoutError, RayActorError) as error:
        for actor in actors:
            ray.kill(actor)
        limit = f"{config.start_timeout_s:g} s (rollout.sglang.start_timeout_s)"
        raise InfrastructureError(f"no actor for an SGLang server in {limit}: {error}") from error
    return [Member(url, RaySupervisor(actor), config.concurrency) for url, actor in zip(urls, actors, strict=True)]


def free_port() -> int:
    """Return a free port that a server can have. Raises InfrastructureError if the machine hands out no such port."""
    with ExitStack() as refused:  # held meanwhile: no port is handed out twice
        for _ in range(_PORTS_TRIED):
            probe = refused.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
            if port <= HIGHEST_PORT:
                return port
    raise InfrastructureError(
        f"no port for an SGLang server: found {_PORTS_TRIED} free ones above {HIGHEST_PORT}, expected one up to it "
        "(net.ipv4.ip_local_port_range)"
    )
