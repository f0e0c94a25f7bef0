"""The engine of SGLang's servers before it is opened: what it needs, and the servers that a run starts."""

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kernels_eval.errors import InputError
from tasks.pipeline.references import CheckpointRef
from tasks.rollout.config import RolloutConfig
from tasks.rollout.engines import Engine
from tasks.rollout.engines.health import unhealthy_servers
from tasks.rollout.engines.kind import EarlyStart, EngineKind, Finding, Outcome
from tasks.rollout.engines.sglang.installation import (
    VARIABLE,
    cuda_home,
    find_installation,
    looked_in,
    server_command,
    server_environment,
)

_GET_SGLANG = (
    f"python3 -m venv .sglang && .sglang/bin/pip install 'sglang==0.5.13', or {VARIABLE}=FOLDER of an environment or "
    "of packages that has it, or name its Python in rollout.sglang.command (docs/sglang.md)"
)
_LOOK_S = 60.0


class SglangKind(EngineKind):
    """Servers over HTTP, named by address or started by the run."""

    label = "SGLang"

    def open_team(self, policy: CheckpointRef, tokenizer: Any, config: RolloutConfig) -> Engine:
        """Return one engine for all adapters on one base, else one for each agent, opened at once: it takes minutes."""
        if config.sglang.adapter_rank:
            from tasks.rollout.engines.sglang.team import open_team

            return open_team(policy, tokenizer, config)
        from tasks.rollout.engines.team import open_together, team_engine

        return team_engine(open_together(self._openings(policy, tokenizer, config)))

    def check(self, config: RolloutConfig, has_team: bool, is_here: bool) -> None:
        """Raise InputError if named servers are not healthy, or if there is no SGLang to start some."""
        urls = config.sglang_urls
        if has_team and urls and not config.sglang.adapter_rank:
            raise InputError(
                "rollout.sglang_urls: agents with weights of their own need servers of their own, which the run "
                "starts; leave it empty, let the agents share weights (rollout.episode.agents), or serve them as "
                "adapters (rollout.sglang.adapter_rank)"
            )
        if not urls and is_here and config.sglang.command is None and find_installation() is None:
            raise InputError(
                f"rollout.engine: sglang: SGLang was not found in {looked_in()}; `kernelmill verify` says how to get it"
            )
        unhealthy = unhealthy_servers(urls)
        if unhealthy:
            raise InputError(f"rollout.sglang_urls: expected healthy servers: {'; '.join(unhealthy)}")

    def look(self, config: RolloutConfig, is_here: bool) -> Finding:
        """Say whether every named server is healthy, or the command that starts one exists."""
        if config.sglang_urls:
            unhealthy = unhealthy_servers(config.sglang_urls)
            if unhealthy:
                fix = "start the servers, or correct rollout.sglang_urls (docs/sglang.md)"
                return Finding(Outcome.FAILED, "; ".join(unhealthy), fix)
            return Finding(Outcome.OK, f"{_counted(len(config.sglang_urls))} healthy")
        if not is_here:
            return Finding(Outcome.OK, "servers are started on the cluster, whose nodes are looked at with Ray")
        command = config.sglang.command
        if command is None and find_installation() is None:
            return Finding(Outcome.FAILED, f"not found in {looked_in()}", _GET_SGLANG)
        problem = _start_problem(server_command(config.sglang), server_environment(config.sglang))
        if problem is not None:
            return Finding(Outcome.FAILED, problem, _GET_SGLANG)
        found = f"started with the run: {_counted(config.sglang.servers)}: {' '.join((command or ())[:1])}".rstrip(": ")
        missing = [name for name in ("nvcc", "ninja") if not _has_tool(name)]
        if missing:
            fix = "install the CUDA toolkit and ninja: SGLang compiles kernels at its first start"
            return Finding(Outcome.NOTE, f"{found}; not found: {', '.join(missing)}", fix)
        return Finding(Outcome.OK, found)

    def servers(self, config: RolloutConfig, policies: int) -> int:
        """Return the number of servers that a run starts: for each policy, or for all as adapters."""
        if config.sglang_urls:
            return 0
        return config.sglang.servers * (1 if config.sglang.adapter_rank else policies)

    def compared_bytes(self, config: RolloutConfig) -> float:
        """Return the bytes a parameter of the canary's checkpoint."""
        return 2.0 if config.sglang.canary_dtype == "bfloat16" else 4.0

    def start_early(
        self, config: RolloutConfig, write_model: Callable[[Path], Path], agents: Sequence[str]
    ) -> EarlyStart | None:
        """Have the servers start."""
        from tasks.rollout.engines.sglang.early import EarlyServers

        return EarlyServers(config, write_model, agents)


def _counted(servers: int) -> str:
    return f"{servers} server{'' if servers == 1 else 's'}"


def _has_tool(name: str) -> bool:
    return shutil.which(name) is not None or (name == "nvcc" and cuda_home() is not None)


def _start_problem(command: Sequence[str], environment: dict[str, str]) -> str | None:
    """Return the reason why a server's command cannot start one, or None."""
    if shutil.which(command[0]) is None:
        return f"rollout.sglang.command: {command[0]}: no such program"
    if "-m" not in command[1:-1]:
        return None  # not a Python module: nothing more can be checked
    package = command[command.index("-m") + 1].partition(".")[0]
    code = f"import importlib.util, sys; sys.exit(not importlib.util.find_spec({package!r}))"
    try:
        done = subprocess.run(
            [command[0], "-c", code],
            capture_output=True,
            timeout=_LOOK_S,
            check=False,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{command[0]}: {error}"
    return f"{command[0]} has no module {package}" if done.returncode else None


def open_sglang(policy: CheckpointRef, tokenizer: Any, config: RolloutConfig) -> Engine:
    """Return the engine with this policy on all servers."""
    from tasks.rollout.engines.sglang.engine import open_sglang as open_servers

    return open_servers(policy, tokenizer, config)


ENGINE = SglangKind(open_sglang)
