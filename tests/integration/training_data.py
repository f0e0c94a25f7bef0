"""Small SFT data sets and trajectory batches in the published format."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tasks.references import SftDataRef, TrajectoryBatchRef
from tasks.store import publish, published_digest

OPERATORS = ("relu", "exp", "tanh", "sqrt", "abs", "neg", "square", "sigmoid")


def conversation(generator: np.random.Generator) -> list[dict[str, Any]]:
    names = [str(name) for name in generator.choice(OPERATORS, size=int(generator.integers(1, 5)))]
    problem = "import torch\n" + "".join(f"x = torch.{name}(x)\n" for name in names)
    kernel = "import triton\n" + "".join(f"x = tl.{name}(x)\n" for name in names)
    return [
        {"role": "user", "content": problem, "trained": False},
        {"role": "assistant", "content": f"```python\n{kernel}```", "trained": True},
    ]


def publish_pairs(folder: Path, conversations: int, seed: int = 0) -> SftDataRef:
    generator = np.random.default_rng(seed)
    rows = [{"messages": conversation(generator), "used": True} for _ in range(conversations)]
    with publish(folder) as partial:
        pl.DataFrame(rows).write_parquet(partial / "pairs.parquet")
    return SftDataRef(uri=str(folder), digest=published_digest(folder), pairs=conversations, verified=True)


def turn_rows(
    groups: int, samples: int, vocabulary: int, seed: int = 0, lengths: tuple[int, int] = (20, 50)
) -> list[dict[str, Any]]:
    generator = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for group in range(groups):
        prompt = generator.integers(3, vocabulary, int(generator.integers(15, 40))).tolist()
        for sample in range(samples):
            length = int(generator.integers(*lengths))
            reward = float(generator.choice([0.0, 0.1, 0.3, 1.6]))
            rows.append(
                {
                    "trajectory_id": f"g{group}-{sample}",
                    "group_id": f"g{group}",
                    "turn_index": 0,
                    "role": "solver",
                    "prompt_token_ids": prompt,
                    "response_token_ids": generator.integers(3, vocabulary, length).tolist(),
                    "response_logprobs": (-generator.random(length) * 3).tolist(),
                    "verdict": {"status": "correct" if reward >= 0.3 else "incorrect"},
                    "reward": reward,
                    "return": reward,
                }
            )
    return rows


SCHEMA = {
    "prompt_token_ids": pl.List(pl.Int32),
    "response_token_ids": pl.List(pl.Int32),
    "response_logprobs": pl.List(pl.Float32),
}


def publish_turns(folder: Path, rows: Sequence[dict[str, Any]]) -> TrajectoryBatchRef:
    with publish(folder) as partial:
        pl.DataFrame(rows, schema_overrides=SCHEMA).write_parquet(partial / "turns.parquet")
    return TrajectoryBatchRef(
        uri=str(folder), digest=published_digest(folder), run_id="r", iteration=0, trajectories=len(rows), turns=len(rows)
    )
