"""One verdict for a problem that lists several workloads, from the verdicts at each of them."""

import math
from collections.abc import Sequence
from concurrent.futures import Future
from statistics import fmean

from kernels_eval.verdict import Cell, Status, Verdict
from kernels_eval.workloads import Workload

_MOST_SPEEDUP = 100.0
"""Speed-up of a cell, at most, in the mean of all, and its inverse at least: no cell alone carries the mean."""
_TIMES = ("candidate_ms", "reference_ms", "second_reference_ms")


def joined(workloads: Sequence[Workload], verdicts: Sequence["Future[Verdict]"]) -> "Future[Verdict]":
    """Return the verdict of all workloads, once each has one. Cancelling it cancels those that wait."""
    whole: Future[Verdict] = Future()

    def add(_: "Future[Verdict]") -> None:
        if all(each.done() for each in verdicts) and not whole.done():
            failed = next((each for each in verdicts if each.cancelled() or each.exception() is not None), None)
            if failed is None:
                whole.set_result(merged([each.name for each in workloads], [each.result() for each in verdicts]))
            elif failed.cancelled():
                whole.cancel()
            else:
                whole.set_exception(failed.exception())

    def drop(found: "Future[Verdict]") -> None:
        if found.cancelled():
            for each in verdicts:
                each.cancel()

    whole.add_done_callback(drop)
    for each in verdicts:
        each.add_done_callback(add)
    return whole


def merged(names: Sequence[str], verdicts: Sequence[Verdict]) -> Verdict:
    """Return one verdict for all workloads: correct where each is.

    The speed-up is the geometric mean, with each cell's held between 1/100 and 100; times are sums; issues are those of
    the cell that gains least. Otherwise it is the first failure, with its workload in the message. A fault of the
    machine in any cell is one of the whole.
    """
    cells = tuple(_cell(name, verdict) for name, verdict in zip(names, verdicts, strict=True))
    order = sorted(range(len(verdicts)), key=lambda place: not verdicts[place].is_fault)
    failed = next((place for place in order if verdicts[place].status is not Status.CORRECT), None)
    if failed is not None:
        message = f"at {names[failed]}: {verdicts[failed].error_message or ''}".rstrip(": ")
        return verdicts[failed].model_copy(update={"error_message": message, "cells": cells})
    speedups = [verdict.speedup for verdict in verdicts]
    slowest = verdicts[min(range(len(verdicts)), key=lambda place: speedups[place] or math.inf)]
    return slowest.model_copy(
        update={
            "cells": cells,
            "speedup": _mean(speedups),
            **{name: _sum([getattr(each, name) for each in verdicts]) for name in _TIMES},
            "sol_score": _average([verdict.sol_score for verdict in verdicts]),
            "warnings": tuple(dict.fromkeys(warning for verdict in verdicts for warning in verdict.warnings)),
        }
    )


def _mean(speedups: Sequence[float | None]) -> float | None:
    known = [min(max(each, 1 / _MOST_SPEEDUP), _MOST_SPEEDUP) for each in speedups if each is not None]
    return math.exp(fmean(math.log(each) for each in known)) if len(known) == len(speedups) else None


def _sum(times: Sequence[float | None]) -> float | None:
    known = [each for each in times if each is not None]
    return math.fsum(known) if len(known) == len(times) else None


def _average(scores: Sequence[float | None]) -> float | None:
    known = [each for each in scores if each is not None]
    return fmean(known) if len(known) == len(scores) else None


def _cell(name: str, verdict: Verdict) -> Cell:
    return Cell(
        workload=name,
        status=verdict.status,
        speedup=verdict.speedup,
        candidate_ms=verdict.candidate_ms,
        reference_ms=verdict.reference_ms,
        error_category=verdict.rejection_reason or verdict.error_category,
    )
