"""Quarantine of judges: takes those out of service on which the machine fails, and returns them. For one event loop.

A judge whose answers are faults has always room, and would be sent every kernel that waits. So after `_FAULTS` of them
in a row it gets no kernels until a probe, a kernel that is known to be right, has passed on it. The probe alone
decides: a kernel on which every judge fails keeps one out of service no longer than a probe takes. A judge on which
probes go on failing is replaced. kernels_eval.judge does the same with the workers of one judge.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from kernels_eval.error_categories import ErrorCategory
from kernels_eval.errors import first_line
from kernels_eval.pool.probe import next_wait_s
from kernels_eval.verdict import Verdict, fault
from tasks.rollout.judge_place import Ask, Place, Replace, fault_of, is_good

logger = logging.getLogger("kernelmill.rollout")
_FAULTS = 2
"""Faults in a row of a judge that is in service: one may be chance, or the kernel's."""
_PROBES = 5
"""Failed probes in a row after which a judge is replaced, and after which, if it is so with all, kernels that wait end
as faults."""
_ALONE_S = 60.0
"""A probe has failed that has no answer after so long on a judge that has nothing else to do."""
_LOOKS = 10
"""Times `_ALONE_S` after which it has failed anyway; before, kernels that the judge was sent may take its time."""


class Quarantine:
    """Decides which places are in service."""

    def __init__(
        self,
        places: Sequence[Place],
        probe: Ask,
        replace: Replace,
        changed: Callable[[], None],
        none_left: Callable[[Verdict], None],
    ) -> None:
        """Put every place in service.

        `probe` judges the probe; `changed` is called when a place went out of service or came back, `none_left` with
        the fault for the kernels that wait when every place has failed `_PROBES` probes, and after each further one.
        """
        self.entered = 0
        """Times that a place went out of service."""
        self.is_closed = False
        """True: no further probe is sent."""
        self._places = places
        self._probe, self._replace = probe, replace
        self._changed, self._none_left = changed, none_left
        self._probing: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """End the probes, and send no further one."""
        self.is_closed = True
        for probing in self._probing:
            probing.cancel()

    def note(self, place: Place, answer: "asyncio.Task[Verdict]") -> None:
        """Note the answer of a place's judge, which may take it out of service."""
        cause = fault_of(answer)
        if cause is None:
            place.faults = 0 if is_good(answer) else place.faults
            return
        place.faults += 1
        if place.faults < _FAULTS or not place.is_in_service or self.is_closed:
            return
        logger.warning(
            "%s: %d faults in a row, the last: %s; it gets no kernels until a probe has passed",
            place.name, place.faults, cause.error_message,
        )  # fmt: skip
        place.is_in_service, place.failed_probes = False, 0
        self.entered += 1
        probing = asyncio.ensure_future(self._probe_until_it_passes(place))
        self._probing.add(probing)
        probing.add_done_callback(self._probing.discard)
        self._changed()

    async def _probe_until_it_passes(self, place: Place) -> None:
        """Return a place to service when the probe gets the verdict `correct` there."""
        wait_s = 0.0
        while not self.is_closed:
            try:
                await self._probe_once(place)
            except Exception as error:  # noqa: BLE001 - nothing else returns the place once the machine is well
                logger.warning("%s: %s: %s; probes go on", place.name, type(error).__name__, first_line(error))
            if place.is_in_service:
                return
            wait_s = next_wait_s(wait_s)
            await asyncio.sleep(wait_s)

    async def _probe_once(self, place: Place) -> None:
        """Return a place to service if a probe passes there; replace its judge after every `_PROBES` that did not."""
        judge = place.judge
        found = await _failure(place, self._probe(place))
        if found is None:
            logger.warning("%s: a probe has passed; it gets kernels again", place.name)
            place.is_in_service, place.faults, place.failed_probes = True, 0, 0
            self._changed()
            return
        place.failed_probes += 1
        if all(each.failed_probes >= _PROBES for each in self._places):
            cause = found.error_category or ErrorCategory.JUDGE_FAULT
            self._none_left(fault(cause, f"no judge is in service: {found.error_message}"))
        if place.failed_probes % _PROBES == 0:
            self._replace(place, judge, f"{place.failed_probes} probes failed, the last: {found.error_message}")


async def _failure(place: Place, probe: Awaitable[Verdict]) -> Verdict | None:
    """Return how a probe of a place failed, as a fault; None if it passed."""
    answer = asyncio.ensure_future(probe)
    looks, is_alone = 0, False
    try:
        while not (answer.done() or is_alone or looks == _LOOKS):
            is_alone = place.load == 0
            await asyncio.wait([answer], timeout=_ALONE_S)
            looks += 1
    finally:
        is_silent = answer.cancel()
    if is_silent:
        return fault(ErrorCategory.JUDGE_SILENT, f"no answer in {looks * _ALONE_S:g} s")
    if answer.cancelled():
        return fault(ErrorCategory.JUDGE_FAULT, "the probe was cancelled")
    if (error := answer.exception()) is not None:
        return fault(ErrorCategory.JUDGE_FAULT, first_line(error))
    verdict = answer.result()
    if verdict.is_fault or verdict.correct:
        return verdict if verdict.is_fault else None
    return fault(ErrorCategory.PROBE_FAILED, f"{verdict.status}: {verdict.error_message}")
