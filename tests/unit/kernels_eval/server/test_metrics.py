"""The Prometheus text, read back by the reference parser."""

from collections import Counter

from prometheus_client.parser import text_string_to_metric_families

from kernels_eval import Judge, JudgeConfig
from kernels_eval.server.metrics import exposition, resident_bytes


def test_the_reference_parser_reads_it() -> None:
    with Judge(JudgeConfig(workers=3)) as judge:
        judge.statuses.begins(0)
        judge.statuses.failed(0, 'odd"\\\ncategory', "message")
        text = exposition(judge, Counter({200: 5, 429: 2}), taken=7, queue_limit=9)
    families = {family.name: family for family in text_string_to_metric_families(text.decode())}
    assert len(families) == 12
    (fault,) = [sample for sample in families["kernelmill_judge_faults"].samples if sample.name.endswith("_total")]
    assert fault.labels == {"category": 'odd"\\\ncategory'}
    states = {sample.labels["state"]: sample.value for sample in families["kernelmill_judge_workers"].samples}
    assert states == {"idle": 2, "reserve": 3, "busy": 0, "quarantined": 1, "stopped": 0}
    histogram = families["kernelmill_judge_seconds"]
    assert histogram.type == "histogram"
    assert {sample.name.rpartition("_")[2] for sample in histogram.samples} == {"bucket", "count", "sum"}
    assert all(family.documentation for family in families.values())


def test_resident_memory_is_plausible() -> None:
    assert 5 << 20 < resident_bytes() < 10 << 30
