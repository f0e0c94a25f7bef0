"""Whether an agent's engine stays on the ranks, as all ranks decide together before they write its checkpoint."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from torch import distributed

from tasks.training.config import SMALL_SHARE
from tasks.update import program
from tasks.update.program import stays_held


@pytest.fixture
def one_rank(tmp_path: Any) -> Iterator[None]:
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.parametrize(
    ("keeps_ranks", "share", "stays"),
    [
        (True, 0.9, True),  # nobody comes in between
        (False, SMALL_SHARE / 2, True),
        (False, 2 * SMALL_SHARE, False),  # another agent's engine takes its place
    ],
)
def test_an_engine_stays_if_it_is_small_or_nobody_comes_in_between(
    keeps_ranks: bool, share: float, stays: bool, one_rank: None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(program, "held_share", lambda: share)
    job: Any = SimpleNamespace(request=SimpleNamespace(keeps_ranks=keeps_ranks))
    assert stays_held(job) is stays
