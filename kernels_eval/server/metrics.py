"""Metrics: the judge's state as families of prometheus_client, and their text (exposition format 0.0.4)."""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import accumulate
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE
from prometheus_client.metrics_core import Metric

from kernels_eval.judge import Judge
from kernels_eval.pool.worker_status import BUCKETS_S, WorkerState
from kernels_eval.verdict import Status

__all__ = ["CONTENT_TYPE", "counters", "exposition", "gauges", "judge_metrics", "replies_metric", "text_of"]
PREFIX = "kernelmill_judge_"


class _Collected:
    """Families that are counted already, as a collector."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """Return the families."""
        return self._families


def exposition(judge: Judge, replies: Counter[int], taken: int, queue_limit: int) -> bytes:
    """Return all metrics. `replies`: number of HTTP replies by status code. `taken`: places of the queue in use."""
    places = [
        GaugeMetricFamily(f"{PREFIX}queue_places_taken", "Places of the bounded queue in use.", taken),
        GaugeMetricFamily(f"{PREFIX}queue_places", "Places of the bounded queue.", queue_limit),
    ]
    return text_of([*judge_metrics(judge), *places, replies_metric(replies)])


def text_of(families: Iterable[Metric]) -> bytes:
    """Return metrics as Prometheus reads them."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(list(families)))
    return generate_latest(registry)


def replies_metric(replies: Counter[int], prefix: str = PREFIX) -> Metric:
    """Return the number of HTTP replies by status code."""
    by_code = {str(code): count for code, count in sorted(replies.items())}
    return counters(f"{prefix}http_replies", "HTTP replies by status code.", "code", by_code)


def counters(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    """Return counters that differ in one label."""
    family = CounterMetricFamily(name, text, labels=[label])
    for value, count in values.items():
        family.add_metric([value], count)
    return family


def gauges(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    """Return gauges that differ in one label."""
    family = GaugeMetricFamily(name, text, labels=[label])
    for value, found in values.items():
        family.add_metric([value], found)
    return family


def judge_metrics(judge: Judge) -> list[Metric]:
    """Return the metrics of a judge, and of the memory of its process."""
    verdicts = judge.statuses.verdicts
    states = Counter(report.state for report in judge.statuses.workers())
    faults = judge.statuses.fault_statistics()
    by_status = {status.value: verdicts.get(status.value, 0) for status in Status}
    return [
        counters(f"{PREFIX}verdicts", "Verdicts given, those from the cache not counted.", "status", by_status),
        _seconds(judge),
        gauges(f"{PREFIX}workers", "Workers by state.", "state", {each.value: states[each] for each in WorkerState}),
        GaugeMetricFamily(f"{PREFIX}running", "Kernels that are being judged.", judge.running),
        GaugeMetricFamily(f"{PREFIX}waiting", "Kernels that no worker has taken yet.", judge.waiting),
        GaugeMetricFamily(f"{PREFIX}cached_verdicts", "Verdicts kept in memory.", judge.cached),
        counters(f"{PREFIX}faults", "Failures of the machine.", "category", dict(sorted(faults.by_category.items()))),
        CounterMetricFamily(f"{PREFIX}returned", "Workers returned from quarantine.", faults.returned),
        GaugeMetricFamily(f"{PREFIX}resident_bytes", "Memory of the server's own process.", resident_bytes()),
    ]


def resident_bytes() -> int:
    """Return the resident memory of this process; 0 if /proc cannot be read."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return 0
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def _seconds(judge: Judge) -> Metric:
    durations = judge.statuses.durations
    bounds = (*(f"{bound:g}" for bound in BUCKETS_S), "+Inf")
    buckets = list(zip(bounds, accumulate(durations.counts), strict=True))
    text = "Seconds from a worker's taking a kernel to its verdict."
    return HistogramMetricFamily(f"{PREFIX}seconds", text, buckets=buckets, sum_value=durations.total_s)
