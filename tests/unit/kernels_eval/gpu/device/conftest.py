from collections.abc import Iterator

import pytest
import torch

from tests.doubles.copy_engine import CopyEngine


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[CopyEngine]:
    empty, zeros = torch.empty, torch.zeros
    monkeypatch.setattr(torch, "empty", lambda *shape, pin_memory=False, **kinds: empty(*shape, **kinds))
    monkeypatch.setattr(torch, "zeros", lambda *shape, pin_memory=False, **kinds: zeros(*shape, **kinds))
    made = CopyEngine()
    made.start()
    yield made
    made.is_given_up = True
    made.work.join()
    made.work.put(None)
