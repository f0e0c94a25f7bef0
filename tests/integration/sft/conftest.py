"""A small SFT data set in the published format."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tasks.cluster.workers import stop_workers
from tasks.pipeline.references import SftDataRef
from tasks.pipeline.store import publish, published_digest

OPERATORS = ("relu", "exp", "tanh", "sqrt", "abs", "neg", "square", "sigmoid")


@pytest.fixture(autouse=True, scope="module")
def _no_worker_outlives_the_module(ray_local: None) -> Iterator[None]:
    yield
    stop_workers()


@pytest.fixture
def make_pairs(tmp_path: Path) -> Callable[..., SftDataRef]:
    """A function that publishes pairs whose answer repeats the question's operators in another dialect."""

    def make(conversations: int = 120, seed: int = 0) -> SftDataRef:
        generator = np.random.default_rng(seed)
        rows = [{"messages": _conversation(generator), "used": True} for _ in range(conversations)]
        rows.append({"messages": _conversation(generator), "used": False})
        with publish(tmp_path / "pairs") as folder:
            pl.DataFrame(rows).write_parquet(folder / "pairs.parquet")
        return SftDataRef(
            uri=str(tmp_path / "pairs"),
            digest=published_digest(tmp_path / "pairs"),
            pairs=conversations,
            verified=True,
        )

    return make


def _conversation(generator: np.random.Generator) -> list[dict[str, Any]]:
    names = [str(name) for name in generator.choice(OPERATORS, size=int(generator.integers(1, 5)))]
    problem = "import torch\n" + "".join(f"x = torch.{name}(x)\n" for name in names)
    kernel = "import triton\n" + "".join(f"x = tl.{name}(x)\n" for name in names)
    return [
        {"role": "user", "content": problem, "trained": False},
        {"role": "assistant", "content": f"```python\n{kernel}```", "trained": True},
    ]
