"""The optimizer's state on its way to the file: one tensor at a time, and on rank 0 alone."""

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from tasks.models.safetensors_stream import Planned
from tasks.training import checkpoint

NAMES = [f"exp_avg/{number}" for number in range(20)]


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.long
def test_no_rank_holds_more_than_one_tensor_of_the_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: int):
    alive: list[Any] = []
    most = 0

    def gathered(_: Any) -> Iterator[tuple[str, torch.Tensor]]:
        nonlocal most
        for number, name in enumerate(NAMES):
            tensor = torch.full((1000,), float(number))
            alive.append(weakref.ref(tensor))
            yield name, tensor
            del tensor
            gc.collect()
            most = max(most, sum(reference() is not None for reference in alive))

    steps = SimpleNamespace(state={"flat": {"step": torch.tensor(7.0)}})
    monkeypatch.setattr(checkpoint, "_gathered_state", gathered)
    monkeypatch.setattr(checkpoint, "_planned_state", lambda _: [Planned(n, torch.float32, (1000,)) for n in NAMES])
    monkeypatch.setattr(checkpoint, "_ensure_state", lambda *_: None)
    monkeypatch.setattr(checkpoint, "_inner_optimizer", lambda _: steps)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: rank)
    monkeypatch.setattr(torch.distributed, "barrier", lambda: None)
    engine: Any = object()
    checkpoint.save_optimizer(engine, tmp_path)
    assert most <= 1  # the loop's own, until the next one is gathered
    file = tmp_path / checkpoint.OPTIMIZER_FILE
    assert file.exists() == (rank == 0)
    if rank == 0:
        assert {name: float(value[0]) for name, value in load_file(file).items()} == {
            name: float(number) for number, name in enumerate(NAMES)
        }
        with safe_open(file, framework="pt") as stored:
            assert stored.metadata()["steps"] == "7"
