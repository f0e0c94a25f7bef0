"""A small policy and trajectory batches in the published format."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tasks.cluster.workers import stop_workers
from tasks.models.config import ModelConfig
from tasks.models.policy import load_policy, new_policy, save_policy
from tasks.models.tokenizer import train_tokenizer
from tasks.pipeline.references import CheckpointRef, TrajectoryBatchRef
from tasks.pipeline.store import publish, published_digest

SCHEMA = {
    "prompt_token_ids": pl.List(pl.Int32),
    "response_token_ids": pl.List(pl.Int32),
    "response_logprobs": pl.List(pl.Float32),
}


@pytest.fixture(autouse=True, scope="module")
def _no_worker_outlives_the_module(ray_local: None) -> Iterator[None]:
    yield
    stop_workers()


@pytest.fixture
def make_policy(tmp_path: Path) -> Callable[..., CheckpointRef]:
    """A function that publishes a new policy."""

    return lambda name="policy", **choice: publish_policy(tmp_path / name, **choice)


@pytest.fixture(scope="module")
def shared_policy(tmp_path_factory: pytest.TempPathFactory) -> CheckpointRef:
    """A new policy for several tests of a module."""
    return publish_policy(tmp_path_factory.mktemp("shared") / "policy")


def publish_policy(place: Path, hidden: int = 32, seed: int = 0) -> CheckpointRef:
    config = ModelConfig(vocabulary=300, hidden=hidden, intermediate=64, heads=2, key_value_heads=1, head_dim=16)
    tokenizer = train_tokenizer([f"x = {number}\n" for number in range(50)], 300, place.parent / "tokenizer")
    with publish(place) as folder:
        save_policy(new_policy(config, tokenizer, seed), tokenizer, folder)
    return CheckpointRef(uri=str(place), digest=published_digest(place))


@pytest.fixture
def make_batch(tmp_path: Path) -> Callable[..., TrajectoryBatchRef]:
    """A function that publishes turns whose log-probabilities are those that the policy really gives."""

    def make(policy: CheckpointRef, name: str = "batch", seed: int = 0, groups: int = 6, samples: int = 4) -> Any:
        return publish_turns(tmp_path / name, turns_of(policy, groups, samples, seed))

    return make


@pytest.fixture(scope="session")
def turns() -> Callable[..., list[dict[str, Any]]]:
    """A function that makes rows of the turns table."""
    return turns_of


@pytest.fixture(scope="session", name="publish_turns")
def publish_turns_fixture() -> Callable[..., TrajectoryBatchRef]:
    """A function that publishes rows of the turns table in a folder."""
    return publish_turns


@pytest.fixture
def publish_rows(tmp_path: Path) -> Callable[..., TrajectoryBatchRef]:
    """A function that publishes rows of the turns table."""
    return lambda rows, name="rows": publish_turns(tmp_path / name, rows)


def turns_of(policy: CheckpointRef, groups: int = 6, samples: int = 4, seed: int = 0) -> list[dict[str, Any]]:
    """Responses drawn by Hugging Face's `generate` with its cache, which also says the log-probabilities."""
    import torch

    model = load_policy(policy.path).eval()
    generator = np.random.default_rng(seed)
    torch.manual_seed(seed)
    rows: list[dict[str, Any]] = []
    for group in range(groups):
        prompt = generator.integers(3, 290, int(generator.integers(3, 12))).tolist()
        for sample in range(samples):
            generated = model.generate(
                torch.tensor([prompt]),
                do_sample=True,
                top_k=0,
                max_new_tokens=int(generator.integers(2, 15)),
                output_logits=True,
                return_dict_in_generate=True,
                pad_token_id=2,
            )
            response = generated.sequences[0, len(prompt) :]
            log_probs = torch.stack([logits[0] for logits in generated.logits]).log_softmax(-1)
            reward = float(generator.choice([0.0, 0.1, 0.3, 1.6]))
            rows.append(
                {
                    "trajectory_id": f"g{group}-{sample}",
                    "group_id": f"g{group}",
                    "turn_index": 0,
                    "role": "solver",
                    "prompt_token_ids": prompt,
                    "response_token_ids": response.tolist(),
                    "response_logprobs": log_probs.gather(-1, response[:, None]).squeeze(-1).tolist(),
                    "finish_reason": "stop",
                    "verdict": {"status": "correct"},
                    "reward": reward,
                    "return": reward,
                }
            )
    return rows


def publish_turns(folder: Path, rows: Sequence[dict[str, Any]]) -> TrajectoryBatchRef:
    with publish(folder) as partial:
        pl.DataFrame(rows, schema_overrides=SCHEMA, infer_schema_length=None).write_parquet(partial / "turns.parquet")
    return TrajectoryBatchRef(
        uri=str(folder),
        digest=published_digest(folder),
        run_id="r",
        iteration=0,
        trajectories=len(rows),
        turns=len(rows),
    )
