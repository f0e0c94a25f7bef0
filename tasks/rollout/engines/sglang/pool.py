"""Server pool: assigns each request to its trajectory's server, else to a sibling's or the least busy one.

The turns of a trajectory go to one server, whose radix cache then holds the earlier turns. Samples of one prompt go to
one server too, unless it is much busier than another: it reads the prompt once. Failing servers are skipped. A server
is down if it cannot be reached, samples from other weights, or fails several times in a row, until the engine has
brought it up to date.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from kernels_eval.errors import InfrastructureError
from kernels_eval.frozen import FrozenModel
from tasks.rollout.engines.sglang.generation import FailureKind, ServerError

logger = logging.getLogger("kernelmill.rollout")

FAILURES_IN_A_ROW = 5
"""After so many, a server is down until its health check passes."""
_BUSIER = 8
"""Requests by which a server that has the prompt may be busier than the least busy one: a group of samples."""


class ServerState(FrozenModel):
    """State of a server, as its supervisor reports it."""

    is_running: bool
    gave_up: bool
    """True if it died and is not restarted."""
    restarts: int
    report: str
    """Last exit and last lines of its log; empty while the first process runs."""
    visible_gpus: str | None = None
    """Its CUDA_VISIBLE_DEVICES; None if unset: it sees all GPUs of the host."""


class Supervisor(Protocol):
    """Keeps one server running (tasks.rollout.engines.sglang.servers)."""

    async def state(self) -> ServerState:
        """Return the server's state."""
        ...

    async def set_model(self, folder: str, version: str) -> None:
        """Set the model for a restart."""

    async def stop(self) -> None:
        """End the server."""


class Member:
    """One server and its state."""

    def __init__(self, url: str, supervisor: Supervisor | None, concurrency: int) -> None:
        self.url = url
        self.supervisor = supervisor
        self.slots = asyncio.Semaphore(concurrency)
        self.changing = asyncio.Lock()
        """Held while its weights change and are compared."""
        self.load = 0
        """Requests under way or waiting for a slot."""
        self.is_up = False
        self.is_verified = False
        """True after a passed canary, until a failure."""
        self.gave_up = False
        """True if it will not come back."""
        self.reason = f"{url}: not asked yet"
        """Reason it is not up."""
        self.failures = 0
        """In a row."""
        self.is_borrowed = False
        """True if another engine has the server too, and stops it."""

    def borrowed(self) -> "Member":
        """Return the same server for another engine, which sends it other requests and has its own view of it."""
        other = Member(self.url, self.supervisor, 1)
        other.slots, other.changing, other.is_borrowed = self.slots, self.changing, True
        return other


class Pool:
    """The servers of an engine. Use from one event loop."""

    def __init__(self, members: Sequence[Member], patience_s: float) -> None:
        """`patience_s`: seconds that a request waits if no server is up."""
        self.members = tuple(members)
        self._patience_s = patience_s
        self._affinity: dict[str, Member] = {}
        self._prompts: dict[int, Member] = {}
        """Server that was asked last, by the prompt's hash."""
        self._changed = asyncio.Event()

    async def member_for(self, routing_key: str, prompt: tuple[int, ...] = (), avoid: Member | None = None) -> Member:
        """Return the server for a request: its trajectory's, unless that is down or to be avoided.

        Else the one that was sent the same prompt before, if it is about as busy as the least busy one, or that one.

        Waits if no server is up. Raises InfrastructureError if none comes back in time, or none will.
        """
        deadline = asyncio.get_running_loop().time() + self._patience_s
        while not (candidates := [member for member in self.members if member.is_up]):
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0 or all(member.gave_up for member in self.members):
                raise InfrastructureError(f"no SGLang server is left: {self.report()}")
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._changed.wait()
        home = self._affinity.get(routing_key)
        if home is None or home is avoid or not home.is_up:
            home = self._new_home([member for member in candidates if member is not avoid] or candidates, prompt)
            if routing_key:
                self._affinity[routing_key] = home
        return home

    def _new_home(self, candidates: Sequence[Member], prompt: tuple[int, ...]) -> Member:
        least_busy = min(candidates, key=lambda member: member.load)
        if not prompt:
            return least_busy
        home = self._prompts.get(hash(prompt), least_busy)
        if home not in candidates or home.load >= least_busy.load + _BUSIER:
            home = least_busy
        self._prompts[hash(prompt)] = home
        return home

    def failed(self, member: Member, error: ServerError) -> None:
        """Count a failed attempt; mark the server down if unreachable, stale, or failed several times in a row."""
        member.failures += 1
        if error.kind in (FailureKind.UNREACHABLE, FailureKind.STALE) or member.failures >= FAILURES_IN_A_ROW:
            self.mark_down(member, str(error))

    def mark_down(self, member: Member, reason: str, gave_up: bool = False) -> None:
        """Send it no more requests until `mark_up`; permanently if `gave_up`. `reason` names the server."""
        if member.is_up or gave_up:
            logger.warning("SGLang server taken out%s: %s", " for good" if gave_up else "", reason)
        member.is_up, member.is_verified, member.gave_up, member.reason = False, False, gave_up, reason
        self._notify()

    def hold(self, member: Member) -> None:
        """Send it no requests while its weights change."""
        member.is_up, member.gave_up, member.reason = False, False, f"{member.url}: its weights are being changed"

    def mark_up(self, member: Member) -> None:
        """Send it requests again: it holds the right weights."""
        member.is_up = member.is_verified = True
        member.gave_up, member.reason, member.failures = False, "", 0
        self._notify()

    def apply(self, member: Member, outcome: Exception | None) -> None:
        """Mark a server by the outcome of its synchronisation (`WeightSync.sync`)."""
        if outcome is None:
            self.mark_up(member)
        else:
            self.mark_down(member, str(outcome), gave_up=isinstance(outcome, InfrastructureError))

    def clear_affinity(self) -> None:
        """Forget each trajectory's and each prompt's server: after a change of weights all caches are empty."""
        self._affinity.clear()
        self._prompts.clear()

    def report(self) -> str:
        """Return the reasons of all servers that are down."""
        return "; ".join(member.reason for member in self.members if not member.is_up)

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
