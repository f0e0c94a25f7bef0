"""SFT in the driver: it needs neither a GPU nor bfloat16; the ranks, which train, do."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tasks.models.config import ModelConfig
from tasks.pipeline.references import SftDataRef, silent
from tasks.sft import train
from tasks.sft.config import SftConfig
from tasks.training.config import EngineConfig


def test_bfloat16_is_not_refused_for_the_drivers_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tasks.models.policy._cpu_has_bfloat16", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    jobs: list[Any] = []

    def ranks(_: EngineConfig, __: Any, job: Any) -> Any:
        jobs.append(job)
        yield {"rows": [{"step": 0, "loss": 1.0}], "known": {}}

    sequences = SimpleNamespace(training=[SimpleNamespace(length=5)], validation=[], dropped=0)
    monkeypatch.setattr(train, "read_conversations", lambda *_: [])
    monkeypatch.setattr(train, "learn_tokenizer", lambda *_: object())
    monkeypatch.setattr(train, "encode_conversations", lambda *_: sequences)
    monkeypatch.setattr(train, "prepare_ranks", lambda _: True)
    monkeypatch.setattr(train, "run_on_ranks", ranks)
    data = SftDataRef(uri=str(tmp_path), digest="d", pairs=1, verified=True)
    policy = train.train_sft(
        data, ModelConfig(dtype="bfloat16"), SftConfig(), EngineConfig(), 0,
        tmp_path / "policy", tmp_path / "work", silent,
    )  # fmt: skip
    assert jobs[0].model.dtype == "bfloat16"
    assert (policy.path / "metrics.parquet").exists()
