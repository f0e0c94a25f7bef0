"""When SGLang's servers start while SFT trains."""

from typing import Any

import pytest

from tasks.models.config import ModelConfig
from tasks.pipeline.references import SftDataRef
from tasks.rollout.config import RolloutConfig, SglangConfig
from tasks.sft.untrained import start_servers_beside_sft
from tasks.training.config import EngineConfig

DATA = SftDataRef(uri="pairs", digest="d", pairs=1, verified=True)
SHARED = RolloutConfig(engine="sglang", gpus=0.2, sglang=SglangConfig(gpus_per_server=0.3))


class Cluster:
    """Ray, as far as it is asked."""

    def __init__(self, gpus: float, is_initialized: bool = True) -> None:
        self._gpus = gpus
        self._is_initialized = is_initialized

    def is_initialized(self) -> bool:
        return self._is_initialized

    def cluster_resources(self) -> dict[str, float]:
        return {"GPU": self._gpus}


def started(monkeypatch: pytest.MonkeyPatch, rollout: RolloutConfig, ranks_gpus: float, cluster: Cluster) -> bool:
    import ray

    from tasks.rollout import process

    asked: list[Any] = []
    monkeypatch.setattr(process, "start_servers", lambda *given: asked.append(given))
    for name in ("is_initialized", "cluster_resources"):
        monkeypatch.setattr(ray, name, getattr(cluster, name))
    told = start_servers_beside_sft(DATA, ModelConfig(), rollout, EngineConfig(gpus_per_rank=ranks_gpus))
    assert told == bool(asked)
    return told


def test_where_the_gpus_suffice_for_both(monkeypatch: pytest.MonkeyPatch) -> None:
    assert started(monkeypatch, SHARED, 0.3, Cluster(1))


@pytest.mark.parametrize(
    ("rollout", "ranks_gpus", "cluster"),
    [
        (SHARED, 1.0, Cluster(1)),  # they take turns on the GPU
        (SHARED, 0.3, Cluster(1, is_initialized=False)),
        (SHARED.model_copy(update={"sglang_urls": ("http://127.0.0.1:1",)}), 0.0, Cluster(8)),
        (SHARED.model_copy(update={"engine": "transformers"}), 0.0, Cluster(8)),
    ],
)
def test_where_they_do_not(
    monkeypatch: pytest.MonkeyPatch, rollout: RolloutConfig, ranks_gpus: float, cluster: Cluster
) -> None:
    assert not started(monkeypatch, rollout, ranks_gpus, cluster)
