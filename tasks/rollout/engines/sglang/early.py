"""Servers that start while SFT trains, with an untrained model of the policy's shape; they get its weights later.

A server takes 30 to 120 s to start: imports, kernels that it compiles for this GPU, CUDA graphs. None of it depends on
the weights.
"""

import asyncio
import logging
import shutil
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kernels_eval.errors import KernelmillError
from tasks.agents.team import is_team, members_of
from tasks.pipeline.references import CheckpointRef
from tasks.rollout.config import RolloutConfig
from tasks.rollout.engines.sglang.engine import SglangEngine
from tasks.rollout.engines.sglang.pool import Member
from tasks.rollout.engines.sglang.servers import start_on_ray
from tasks.rollout.engines.sglang.team import TeamOnOneBase
from tasks.rollout.engines.team import TeamServer

logger = logging.getLogger("kernelmill.rollout")

_VERSION = "untrained"
"""Label of their weights: no policy's, so that the first policy is pushed."""


class EarlyServers:
    """Servers that are starting. Used in the process that rolls out."""

    def __init__(self, config: RolloutConfig, write_model: Callable[[Path], Path], agents: Sequence[str] = ()) -> None:
        """`write_model` is given an empty folder, and returns the folder of the model.

        `agents`: those of a team that have servers of their own each; none: all share the same servers.
        """
        self.config = config
        self._agents = agents
        self._folder = Path(tempfile.mkdtemp(prefix="kernelmill-untrained-"))
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._members = self._thread.submit(self._start, write_model)

    def engine(self, policy: CheckpointRef) -> SglangEngine | TeamServer | None:
        """Return an engine of these servers for a policy, or for a team; it holds none yet.

        None, with a warning, if they did not start.
        """
        import torch

        torch.set_num_threads(self.config.threads)  # of the canary
        try:
            engines = [SglangEngine(members, self.config.sglang) for members in self._members.result()]
            if self._agents:
                return TeamServer(dict(zip(self._agents, engines, strict=True)))
            (engine,) = engines
            return TeamOnOneBase(engine, members_of(policy)) if is_team(policy) else engine
        except KernelmillError as error:
            logger.warning("SGLang's servers could not start beside SFT, and are started now: %s", error)
            return None

    def remove_model(self) -> None:
        """Remove the untrained model: the servers hold a policy, and would start again with it, or they are gone."""
        self._thread.shutdown(wait=False)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, write_model: Callable[[Path], Path]) -> list[list[Member]]:
        """Return the servers of each agent, or the only ones: processes that have begun to start."""
        folder = str(write_model(self._folder))
        started: list[list[Member]] = []
        try:
            for _ in self._agents or (None,):
                started.append(start_on_ray(self.config.sglang, folder, _VERSION))
        except BaseException:
            for members in started:
                asyncio.run(SglangEngine(members, self.config.sglang).close())
            raise
        return started
