"""Metrics of the service as Prometheus text, with those of its judge."""

from collections import Counter

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from extras.generation.service.runner import Runner
from extras.generation.service.schemas import JobState
from kernels_eval.judge import Judge
from kernels_eval.server.metrics import counters, gauges, judge_metrics, replies_metric, text_of
from kernels_eval.verdict import Status

PREFIX = "kernelmill_kernels_"


def exposition(runner: Runner, judge: Judge, replies: Counter[int], queue_limit: int) -> bytes:
    """Return all metrics. `replies`: number of HTTP replies by status code."""
    counts = runner.counts
    is_open = {state.value: runner.store.count(state) for state in JobState if not state.is_final}
    ended = {state.value: counts["ended", state.value] for state in JobState if state.is_final}
    answers = {status.value: counts["answers", status.value] for status in Status}
    tokens = {kind: counts["tokens", kind] for kind in ("prompt", "completion")}
    summed = "Seconds from a job's submission to its end, summed."
    totals = {
        "submitted": ("Jobs accepted.", counts["submitted", ""]),
        "job_seconds": (summed, round(runner.job_seconds, 3)),
        "cached": ("Jobs answered by an earlier one's result.", counts["cached", ""]),
        "retried": ("Jobs put back after a fault of the machine.", counts["retried", ""]),
        "resumed": ("Jobs taken up after a restart.", counts["resumed", ""]),
    }
    own = [
        gauges(f"{PREFIX}jobs", "Jobs that have not ended, by state.", "state", is_open),
        GaugeMetricFamily(f"{PREFIX}queue_places", "Jobs that may be open.", queue_limit),
        counters(f"{PREFIX}ended", "Jobs that ended, by state.", "state", ended),
        counters(f"{PREFIX}answers", "Judged answers, by status.", "status", answers),
        counters(f"{PREFIX}tokens", "Tokens of all answers, as the model counts them.", "kind", tokens),
        *(CounterMetricFamily(PREFIX + name, text, found) for name, (text, found) in totals.items()),
    ]
    return text_of([*own, replies_metric(replies, PREFIX), *judge_metrics(judge)])
