"""Engine of a team: one engine for each agent with weights of its own; each request goes to its agent's."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Any

from kernels_eval.errors import InputError, one_cause
from tasks.agents.team import members_of
from tasks.pipeline.references import CheckpointRef
from tasks.rollout.config import SamplingConfig
from tasks.rollout.engines import Engine, Generation, GenerationRequest, PolicyServer


class TeamEngine:
    """Engines by agent. They work at the same time."""

    def __init__(self, engines: Mapping[str, Engine]) -> None:
        self._engines = dict(engines)

    @property
    def context_tokens(self) -> int:
        """The smallest context of all."""
        return min(engine.context_tokens for engine in self._engines.values())

    @property
    def cohort_size(self) -> int:
        """The smallest batch of all: the turns of a cohort are written by one agent after the other."""
        return min(engine.cohort_size for engine in self._engines.values())

    async def generate(
        self, requests: Sequence[GenerationRequest], sampling: SamplingConfig
    ) -> AsyncIterator[tuple[int, Generation]]:
        """Yield (index of the request, its response) as they come, from all engines at once."""
        ended: asyncio.Queue[tuple[int, Generation] | None] = asyncio.Queue()

        async def relay(agent: str, places: Sequence[int]) -> None:
            stream: Any = self._engine_of(agent).generate([requests[place] for place in places], sampling)
            async with aclosing(aiter(stream)) as responses:
                async for index, generation in responses:
                    ended.put_nowait((places[index], generation))

        async def relay_all() -> None:
            try:
                with one_cause():
                    async with asyncio.TaskGroup() as group:
                        for agent in sorted({request.agent for request in requests}):
                            places = [place for place, request in enumerate(requests) if request.agent == agent]
                            group.create_task(relay(agent, places))
            finally:
                ended.put_nowait(None)

        relaying = asyncio.ensure_future(relay_all())
        try:
            while (item := await ended.get()) is not None:
                yield item
            await relaying
        finally:
            relaying.cancel()

    async def close(self) -> None:
        """Close all engines."""
        for engine in self._engines.values():
            await engine.close()

    def _engine_of(self, agent: str) -> Engine:
        if agent not in self._engines:
            raise InputError(f"agent {agent!r}: the team has no weights of its own for it, only {list(self._engines)}")
        return self._engines[agent]


class TeamServer(TeamEngine):
    """A team whose engines outlive their policies."""

    async def serve(self, policy: CheckpointRef, tokenizer: Any) -> None:
        """Switch every agent to its policy of this team, all at once. Raises the first error of an agent's engine."""
        members = self.members(policy)
        servers = {agent: engine for agent, engine in self._engines.items() if isinstance(engine, PolicyServer)}
        with one_cause():
            async with asyncio.TaskGroup() as group:
                for agent, server in servers.items():
                    group.create_task(server.serve(members[agent], tokenizer))

    def members(self, policy: CheckpointRef) -> dict[str, CheckpointRef]:
        """Return a team's policies by agent. Raises InputError if it has other agents."""
        members = members_of(policy)
        if members.keys() != self._engines.keys():
            raise InputError(f"{policy.path}: agents {list(members)}, expected {list(self._engines)}")
        return members


def open_together(openings: Mapping[str, Callable[[], Engine]]) -> dict[str, Engine]:
    """Open engines at the same time, by agent. If one fails the others are closed, and its error is raised."""
    with ThreadPoolExecutor(len(openings)) as threads:
        running = {agent: threads.submit(opening) for agent, opening in openings.items()}
        failed = [future for future in running.values() if future.exception() is not None]
        if failed:
            for future in running.values():
                if future not in failed:
                    threads.submit(asyncio.run, future.result().close()).result()
            failed[0].result()
        return {agent: future.result() for agent, future in running.items()}


def team_engine(engines: Mapping[str, Engine]) -> Engine:
    """Return the engine of a team, which can change its policies if all of its engines can."""
    serving = all(isinstance(engine, PolicyServer) for engine in engines.values())
    return TeamServer(engines) if serving else TeamEngine(engines)
