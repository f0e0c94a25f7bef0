"""Place of one judge in the farm (tasks.rollout.judge_farm), and what an answer of its judge says of the machine."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from kernels_eval.error_categories import ErrorCategory
from kernels_eval.errors import InputError, first_line
from kernels_eval.verdict import Verdict, fault


@dataclass(eq=False, slots=True)
class Place:
    """Place of one judge; a replacement takes the same place."""

    name: str
    workers: int
    """Kernels that it judges at once."""
    judge: Any = None
    load: int = 0
    """Kernels sent and not answered."""
    faults: int = 0
    """Answers in a row that were faults of the machine."""
    is_in_service: bool = True
    """False: it gets no kernels until a probe has passed (tasks.rollout.judge_quarantine)."""
    failed_probes: int = 0
    """Failed probes since it went out of service."""

    @property
    def is_idle(self) -> bool:
        """True if a further kernel would be judged at once."""
        return self.is_in_service and self.load < self.workers

    @property
    def has_room(self) -> bool:
        """True if it may be sent a further kernel."""
        return self.is_in_service and self.load < 2 * self.workers


Ask = Callable[[Place], Awaitable[Verdict]]
"""Function that asks the judge of a place for one kernel's verdict."""
Replace = Callable[[Place, Any, str], None]
"""Function that gives a place another judge for the one named, unless it has one already; takes the reason."""


def is_good(answer: "asyncio.Future[Verdict]") -> bool:
    """Return True unless the judge failed, or the machine."""
    return not answer.cancelled() and answer.exception() is None and not answer.result().is_fault


def fault_of(answer: "asyncio.Future[Verdict]") -> Verdict | None:
    """Return the machine's fault that a judge answered with; None for another answer.

    An error is a fault unless it is the caller's. A problem that fails does so on every judge: that is none.
    """
    if answer.cancelled():
        return None
    if (error := answer.exception()) is not None:
        return None if isinstance(error, InputError) else fault(ErrorCategory.JUDGE_FAULT, first_line(error))
    verdict = answer.result()
    return verdict if verdict.is_fault and verdict.error_category != ErrorCategory.REFERENCE_FAILED else None
