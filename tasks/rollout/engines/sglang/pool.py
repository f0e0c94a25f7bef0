"""Which server answers which request: the one that knows the trajectory, else the least busy, and past those that fail.

A trajectory's turns go to one server, whose radix cache then holds the earlier ones. A server that cannot be reached, that
samples from other weights, or that fails several times in a row is taken out; it comes back when the engine has brought
it up to date.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from kernels_eval.errors import InfrastructureError
from kernels_eval.frozen import FrozenModel
from tasks.rollout.engines.sglang.api import FailureKind, ServerError

logger = logging.getLogger("kernelmill.rollout")

FAILURES_IN_A_ROW = 5
"""After so many, a server is taken out until its health check passes."""


class ServerState(FrozenModel):
    """What a supervisor knows of its server."""

    is_running: bool
    gave_up: bool
    """True where it died and is not started again."""
    restarts: int
    report: str
    """How it ended last, and the last lines of its log; empty while the first process runs."""
    visible_gpus: str | None = None
    """Its CUDA_VISIBLE_DEVICES; None where that is not set, so that it sees all of the host's."""


class Supervisor(Protocol):
    """Keeps one server running (tasks.rollout.engines.sglang.servers)."""

    async def state(self) -> ServerState:
        """Say how the server is."""
        ...

    async def set_model(self, folder: str, version: str) -> None:
        """Say what a restarted server is to load."""
        ...

    async def stop(self) -> None:
        """End the server."""
        ...


class Member:
    """One server and what is known of it."""

    def __init__(self, url: str, supervisor: Supervisor | None, concurrency: int) -> None:
        self.url = url
        self.supervisor = supervisor
        self.slots = asyncio.Semaphore(concurrency)
        self.load = 0
        """Requests under way or waiting for a slot."""
        self.is_up = False
        self.is_verified = False
        """True from the canary on, until something goes wrong."""
        self.gave_up = False
        """True where it will not come back."""
        self.trouble = f"{url}: not asked yet"
        """Why it is not up."""
        self.failures = 0
        """In a row."""


class Pool:
    """The servers of an engine. Use from one event loop."""

    def __init__(self, members: Sequence[Member], patience_s: float) -> None:
        """`patience_s`: how long a request waits where no server is up."""
        self.members = tuple(members)
        self._patience_s = patience_s
        self._homes: dict[str, Member] = {}
        self._changed = asyncio.Event()

    async def member_for(self, routing_key: str, avoid: Member | None = None) -> Member:
        """Return the server for a request: its trajectory's, unless that is down or to be avoided.

        Waits where no server is up. Raises InfrastructureError where none comes back in time, or none will.
        """
        deadline = asyncio.get_running_loop().time() + self._patience_s
        while not (candidates := [member for member in self.members if member.is_up]):
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0 or all(member.gave_up for member in self.members):
                raise InfrastructureError(f"no SGLang server is left: {self.report()}")
            changed = self._changed
            try:
                async with asyncio.timeout(left):
                    await changed.wait()
            except TimeoutError:
                continue
        home = self._homes.get(routing_key)
        if home is None or home is avoid or not home.is_up:
            others = [member for member in candidates if member is not avoid]
            home = min(others or candidates, key=lambda member: member.load)
            if routing_key:
                self._homes[routing_key] = home
        return home

    def failed(self, member: Member, error: ServerError) -> None:
        """Note a failed attempt; take the server out where it is more than a mishap."""
        member.failures += 1
        if error.kind in (FailureKind.UNREACHABLE, FailureKind.STALE) or member.failures >= FAILURES_IN_A_ROW:
            self.take_out(member, str(error))

    def take_out(self, member: Member, trouble: str, gave_up: bool = False) -> None:
        """Send it nothing more until `bring_back`; for good where `gave_up`. `trouble` names it and says why."""
        if member.is_up or gave_up:
            logger.warning("SGLang server taken out%s: %s", " for good" if gave_up else "", trouble)
        member.is_up, member.is_verified, member.gave_up, member.trouble = False, False, gave_up, trouble
        self._notify()

    def hold(self, member: Member) -> None:
        """Send it nothing for now: its weights are being changed."""
        member.is_up, member.gave_up, member.trouble = False, False, f"{member.url}: its weights are being changed"

    def bring_back(self, member: Member) -> None:
        """It serves the right weights: send it requests."""
        member.is_up = member.is_verified = True
        member.gave_up, member.trouble, member.failures = False, "", 0
        self._notify()

    def clear_affinity(self) -> None:
        """The servers' caches are empty: any server is as good as another."""
        self._homes.clear()

    def report(self) -> str:
        """Return what is wrong, server by server."""
        return "; ".join(member.trouble for member in self.members if not member.is_up)

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
