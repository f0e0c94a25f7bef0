"""Metrics of the service as Prometheus text, with those of its judge."""

from collections import Counter

from extras.generation.service.runner import Runner
from extras.generation.service.schemas import JobState
from kernels_eval.judge import Judge
from kernels_eval.server.metrics import judge_metrics, metric, replies_metric
from kernels_eval.verdict import Status

_PREFIX = "kernelmill_kernels_"
_FINAL = [state for state in JobState if state.is_final]
_OPEN = [state for state in JobState if not state.is_final]


def exposition(runner: Runner, judge: Judge, replies: Counter[int], queue_limit: int) -> str:
    """Return all metrics. `replies`: number of HTTP replies by status code."""
    counts = runner.counts
    ended = [({"state": state.value}, counts["ended", state.value]) for state in _FINAL]
    answers = [({"status": status.value}, counts["answers", status.value]) for status in Status]
    tokens = [({"kind": kind}, counts["tokens", kind]) for kind in ("prompt", "completion")]
    metrics = [
        ("jobs", "gauge", "Jobs that have not ended, by state.",
         [({"state": state.value}, runner.store.count(state)) for state in _OPEN]),
        ("queue_places", "gauge", "Jobs that may be open.", [({}, queue_limit)]),
        ("submitted_total", "counter", "Jobs accepted.", [({}, counts["submitted", ""])]),
        ("ended_total", "counter", "Jobs that ended, by state.", ended),
        ("job_seconds_total", "counter", "Seconds from a job's submission to its end, summed.",
         [({}, round(runner.job_seconds, 3))]),
        ("answers_total", "counter", "Judged answers, by status.", answers),
        ("tokens_total", "counter", "Tokens of all answers, as the model counts them.", tokens),
        ("cached_total", "counter", "Jobs answered by an earlier one's result.", [({}, counts["cached", ""])]),
        ("retried_total", "counter", "Jobs put back after a fault of the machine.", [({}, counts["retried", ""])]),
        ("resumed_total", "counter", "Jobs taken up after a restart.", [({}, counts["resumed", ""])]),
    ]  # fmt: skip
    own = [metric(name, kind, text, samples, _PREFIX) for name, kind, text, samples in metrics]
    return "".join(own) + replies_metric(replies, _PREFIX) + judge_metrics(judge)
