"""Judges many kernels in the rollout's process: it has the GPU, or the judge actors, that rollouts are judged on."""

from collections.abc import Sequence
from contextlib import closing

from kernels_eval import JudgeConfig, Problem, Verdict
from kernels_eval.errors import InfrastructureError
from tasks.pipeline.references import Progress
from tasks.rollout.config import JudgingPlace
from tasks.rollout.process import messages_of


def judge_kernels(
    items: Sequence[tuple[Problem, str]], config: JudgeConfig, place: JudgingPlace, progress: Progress
) -> list[Verdict]:
    """Return verdicts in the order of the items. Needs a running Ray.

    Raises InputError for a problem that is none, InfrastructureError if the process died.
    """
    verdicts: list[Verdict] | None = None
    with closing(messages_of("judge", place.gpus, list(items), config, place)) as messages:
        for message in messages:
            if isinstance(message, list):
                verdicts = message
            else:
                progress(message, len(items))
    if verdicts is None:
        raise InfrastructureError("the rollout's process ended without verdicts")
    return verdicts
