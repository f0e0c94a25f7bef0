"""Metrics: the judge's state as Prometheus text (exposition format 0.0.4).

Written without prometheus_client: everything is counted already, and its registries and collectors would be a
dependency for these few lines.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from kernels_eval.judge import Judge
from kernels_eval.pool.worker_status import BUCKETS_S, Durations, WorkerState
from kernels_eval.verdict import Status

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX = "kernelmill_judge_"
Sample = tuple[Mapping[str, str], float]


def exposition(judge: Judge, replies: Counter[int], taken: int, queue_limit: int) -> str:
    """Return all metrics. `replies`: number of HTTP replies by status code. `taken`: places of the queue in use."""
    return judge_metrics(judge) + "".join(
        [
            metric("queue_places_taken", "gauge", "Places of the bounded queue in use.", [({}, taken)]),
            metric("queue_places", "gauge", "Places of the bounded queue.", [({}, queue_limit)]),
            replies_metric(replies),
        ]
    )


def replies_metric(replies: Counter[int], prefix: str = _PREFIX) -> str:
    """Return the number of HTTP replies by status code."""
    by_code = (({"code": str(code)}, count) for code, count in sorted(replies.items()))
    return metric("http_replies_total", "counter", "HTTP replies by status code.", by_code, prefix)


def judge_metrics(judge: Judge) -> str:
    """Return the metrics of a judge, and of the memory of its process."""
    verdicts = judge.statuses.verdicts
    states = Counter(report.state for report in judge.statuses.workers())
    faults = judge.statuses.fault_statistics()
    metrics = [
        metric("verdicts_total", "counter", "Verdicts given, those from the cache not counted.",
                (({"status": status.value}, verdicts.get(status.value, 0)) for status in Status)),
        _histogram("seconds", "Seconds from a worker's taking a kernel to its verdict.", judge.statuses.durations),
        metric("workers", "gauge", "Workers by state.",
                (({"state": state.value}, states.get(state, 0)) for state in WorkerState)),
        metric("running", "gauge", "Kernels that are being judged.", [({}, judge.running)]),
        metric("waiting", "gauge", "Kernels that no worker has taken yet.", [({}, judge.waiting)]),
        metric("cached_verdicts", "gauge", "Verdicts kept in memory.", [({}, judge.cached)]),
        metric("faults_total", "counter", "Failures of the machine.",
                (({"category": name}, count) for name, count in sorted(faults.by_category.items()))),
        metric("returned_total", "counter", "Workers returned from quarantine.", [({}, faults.returned)]),
        metric("resident_bytes", "gauge", "Memory of the server's own process.", [({}, resident_bytes())]),
    ]  # fmt: skip
    return "".join(metrics)


def resident_bytes() -> int:
    """Return the resident memory of this process; 0 if /proc cannot be read."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return 0
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def metric(name: str, kind: str, text: str, samples: Iterable[Sample], prefix: str = _PREFIX) -> str:
    """Return one metric with its help text and samples."""
    lines = [f"# HELP {prefix}{name} {text}", f"# TYPE {prefix}{name} {kind}"]
    lines += [f"{prefix}{name}{_labels(labels)} {value}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def _histogram(name: str, text: str, durations: Durations) -> str:
    lines = [f"# HELP {_PREFIX}{name} {text}", f"# TYPE {_PREFIX}{name} histogram"]
    running = 0
    for bound, count in zip((*(f"{bound:g}" for bound in BUCKETS_S), "+Inf"), durations.counts, strict=True):
        running += count
        lines.append(f'{_PREFIX}{name}_bucket{{le="{bound}"}} {running}')
    lines += [f"{_PREFIX}{name}_sum {durations.total_s:.6f}", f"{_PREFIX}{name}_count {running}"]
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    escaped = (
        f'{name}="' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
        for name, value in labels.items()
    )
    return "{" + ",".join(escaped) + "}"
