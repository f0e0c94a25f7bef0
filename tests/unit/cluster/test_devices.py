"""A process computes on a GPU only if Ray reserved one for it, although Ray leaves all of them visible."""

from typing import Any

import pytest
import ray
import torch

from tasks.cluster.devices import has_gpu


class InActor:
    def __init__(self, actor: str | None) -> None:
        self._actor = actor

    def get_actor_id(self) -> str | None:
        return self._actor


@pytest.mark.parametrize(
    ("visible", "actor", "reserved", "expected"),
    [
        (False, None, [], False),
        (True, None, [], True),
        (True, "actor", [], False),
        (True, "actor", [0], True),
    ],
)
def test_a_gpu_that_is_not_reserved_is_not_used(
    monkeypatch: pytest.MonkeyPatch, visible: bool, actor: str | None, reserved: list[Any], expected: bool
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: visible)
    monkeypatch.setattr(ray, "is_initialized", lambda: actor is not None)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: InActor(actor))
    monkeypatch.setattr(ray, "get_gpu_ids", lambda: reserved)
    assert has_gpu() is expected
