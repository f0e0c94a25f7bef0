"""Judges many kernels in the rollout's process: it has the GPU, or the judge actors, that rollouts are judged on."""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any

from kernels_eval import JudgeConfig, Problem, Verdict
from kernels_eval.errors import InfrastructureError
from kernels_eval.streaming import stream_verdicts
from tasks.pipeline.references import Progress
from tasks.rollout.config import JudgingPlace
from tasks.rollout.judge_client import AsyncJudge
from tasks.rollout.process import messages_of
from tasks.rollout.worker import REPORT_INTERVAL_S

_AT_ONCE = 1024
"""Kernels of one call under way or queued: more than any judge has workers."""


def judge_kernels(
    items: Sequence[tuple[Problem, str]], config: JudgeConfig, place: JudgingPlace, progress: Progress
) -> list[Verdict]:
    """Return verdicts in the order of the items. Needs a running Ray.

    Raises InputError for a problem that is none, InfrastructureError if the process died.
    """
    verdicts: list[Verdict] | None = None
    with closing(messages_of("with_judge", place.gpus, partial(_verdicts, list(items)), config, place)) as messages:
        for message in messages:
            if isinstance(message, list):
                verdicts = message
            else:
                progress(message, len(items))
    if verdicts is None:
        raise InfrastructureError("the rollout's process ended without verdicts")
    return verdicts


async def _verdicts(items: Sequence[tuple[Problem, str]], judge: AsyncJudge) -> AsyncIterator[int | list[Verdict]]:
    """Yield the number of verdicts from time to time, then all of them in the order of the items."""

    async def evaluate(problem: Any, kernel_source: str, _: str | None) -> Verdict:
        return await judge.evaluate_async(problem, kernel_source)

    verdicts: dict[int, Verdict] = {}
    shown = 0.0
    async for index, verdict in stream_verdicts(evaluate, items, at_once=_AT_ONCE):
        verdicts[index] = verdict
        if time.perf_counter() - shown > REPORT_INTERVAL_S:
            shown = time.perf_counter()
            yield len(verdicts)
    yield len(verdicts)
    yield [verdicts[index] for index in range(len(items))]
