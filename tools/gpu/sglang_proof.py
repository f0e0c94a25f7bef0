"""The frame of the run on a real SGLang server: parts with time limits and results that are written at once, and the server itself."""

import asyncio
import json
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tasks.pipeline.references import CheckpointRef
from tasks.rollout.config import SglangConfig
from tasks.rollout.engines.sglang.engine import SglangEngine
from tasks.rollout.engines.sglang.pool import Member, ServerState
from tasks.rollout.engines.sglang.servers import SglangServer
from tasks.rollout.engines.sglang.weights import WeightSync

BATCH = 64
REPOSITORY = Path(__file__).resolve().parents[2]


class Proof:
    """Results so far: `sglang.json` in the folder, written after every part."""

    def __init__(self, out: Path, budget_s: float, patience: float = 1.0) -> None:
        """`patience`: factor of the parts' limits, since a processor is slower than a GPU."""
        self._out = out
        self._patience = patience
        self._started = time.monotonic()
        self._budget_s = budget_s
        self.parts: dict[str, dict[str, Any]] = {}
        self.server: SglangServer | None = None

    def left_s(self) -> float:
        """Return what is left of the time for everything."""
        return self._budget_s - (time.monotonic() - self._started)

    async def part(
        self, name: str, work: Callable[[], Awaitable[dict[str, Any]]], limit_s: float, needs_s: float = 0
    ) -> bool:
        """Do one part within its time, note what it returns; true where it succeeded. Left out where less than `needs_s` is left."""
        began = time.monotonic()
        if self.left_s() < needs_s:
            result: dict[str, Any] = {"skipped": f"needs {needs_s:g} s, {self.left_s():.0f} s are left"}
        else:
            try:
                async with asyncio.timeout(max(min(limit_s * self._patience, self.left_s()), 1)):
                    result = {"passed": True, **await work()}
            except Exception as error:  # noqa: BLE001 - the boundary: one part's failure must not hide the others' results
                result = {"passed": False, "error": f"{type(error).__name__}: {error}"}
                traceback.print_exc()
                self.keep_log(name)
        result["seconds"] = round(time.monotonic() - began, 2)
        self.parts[name] = result
        print(json.dumps({name: result}), flush=True)
        partial = self._out / ".sglang.json"
        partial.write_text(json.dumps(self.parts, indent=1), encoding="utf-8")
        partial.replace(self._out / "sglang.json")
        return bool(result.get("passed"))

    def keep_log(self, name: str) -> None:
        """Print the end of the server's log, and keep the last megabyte."""
        if self.server is not None:
            text = self.server.log_text()
            print(f"--- the server's log\n{text[-4000:]}\n---", flush=True)
            (self._out / f"server-{name}.log").write_text(text[-(1 << 20) :], encoding="utf-8")


def server_config(site: Path | None) -> SglangConfig:
    """Return the settings that start a server here: the flags that worked on Hopper, or the double where there is no `site`."""
    common = {"start_timeout_s": 240.0, "concurrency": BATCH, "request_timeout_s": 120.0, "canary_prompts": 4}
    if site is None:
        return SglangConfig(command=(sys.executable, str(REPOSITORY / "tests/doubles/sglang_server.py")), **common)
    compiler = shutil.which("nvcc") or str(next(Path("/usr/local").glob("cuda*/bin/nvcc")))
    return SglangConfig(
        command=("python3", "-m", "sglang.launch_server"),
        flags=(
            "--dtype", "bfloat16", "--attention-backend", "triton", "--sampling-backend", "pytorch",
            "--grammar-backend", "none", "--disable-piecewise-cuda-graph", "--skip-server-warmup",
            "--cuda-graph-max-bs", str(BATCH), "--mem-fraction-static", "0.35",
        ),
        environment={
            "PYTHONPATH": str(site.resolve()),
            "CUDA_HOME": str(Path(compiler).resolve().parents[1]),
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "GLOO_SOCKET_IFNAME": "lo",
            "NCCL_SOCKET_IFNAME": "lo",
            "TORCHDYNAMO_DISABLE": "1",  # one helper is compiled otherwise: 27 s of start-up
        },
        **common,
    )  # fmt: skip


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


@asynccontextmanager
async def serving(proof: Proof, config: SglangConfig, policy: CheckpointRef, tokenizer: Any) -> AsyncGenerator[Any]:
    """Start one supervised server and our engine on it: (engine, its weights, the server)."""
    weights = WeightSync(config)
    served = await weights.prepare(policy, tokenizer)
    before, proof.server = proof.server, SglangServer(config, str(served.folder), served.version)
    server = proof.server
    engine = SglangEngine([Member(server.url(), LocalSupervisor(server), config.concurrency)], config, weights)
    try:
        yield engine, weights, server
    finally:
        try:
            async with asyncio.timeout(30):
                await engine.close()
        finally:
            proof.server = before


def canary_result(weights: WeightSync) -> dict[str, Any]:
    """Return what the canary last found."""
    (result,) = weights.results.values()
    return asdict(result)


def kill_program(server: SglangServer) -> None:
    """Kill the program that serves: the child of its guard. (It may have changed its own name.)"""
    port = server.url().rpartition(":")[2]
    parents: dict[int, int] = {}
    guard = None
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            if "guard.py" in line and f"--port {port}" in line:
                guard = int(folder.name)
    (program,) = [process for process, parent in parents.items() if parent == guard]
    os.kill(program, signal.SIGKILL)
