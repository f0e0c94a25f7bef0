"""A double of SGLang's server that samples with the real policy, and policies for it."""

import importlib.util
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tasks.models.policy import load_policy, save_policy
from tasks.pipeline.references import CheckpointRef


@pytest.fixture(scope="session")
def doubles() -> ModuleType:
    path = Path(__file__).parents[4] / "doubles" / "sglang_server.py"
    spec = importlib.util.spec_from_file_location("sglang_double", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["sglang_double"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def policies(
    small_policy_folder: Path, small_policy: Any, small_tokenizer: Any, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, CheckpointRef]:
    """A policy; the same after a small update (with its optimizer's state); quite another one."""
    folder = tmp_path_factory.mktemp("policies")
    made = {"first": CheckpointRef(uri=str(small_policy_folder), digest="digest-first")}
    for name, size in (("updated", 1e-4), ("other", 1.0)):
        model = load_policy(small_policy_folder)
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(size * torch.randn(parameter.shape, generator=generator))
        save_policy(model, small_tokenizer, folder / name)
        made[name] = CheckpointRef(uri=str(folder / name), digest=f"digest-{name}")
    (folder / "updated" / "optimizer").mkdir()
    shutil.copy(folder / "updated" / "model.safetensors", folder / "updated" / "optimizer" / "state.safetensors")
    return made


@pytest.fixture
def servers(doubles: ModuleType, policies: dict[str, CheckpointRef]) -> Iterator[Callable[..., list[Any]]]:
    """Starts doubles that hold the first policy."""
    running: list[Any] = []

    def start(count: int = 1, **faults: Any) -> list[Any]:
        uri = policies["first"].uri
        for _ in range(count):
            double = doubles.Double(doubles.ModelPolicy(uri), uri, faults=doubles.Faults(**faults))
            running.append(doubles.RunningDouble(double).__enter__())
        return running

    yield start
    for server in running:
        server.stop()
