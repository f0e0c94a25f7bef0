"""Updates of agents: one role that writes everything is the single policy, and roles learn from their own turns alone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from safetensors.torch import load_file

from tasks.cluster.workers import stop_workers
from tasks.pipeline.references import CheckpointRef, TrajectoryBatchRef, silent
from tasks.update.config import UpdateConfig
from tasks.update.past import updates_without_state
from tests.integration.update.requested import update_policy

pytestmark = pytest.mark.long

BASE = UpdateConfig(
    optimizer_steps=2, threads_per_rank=1, learning_rate=1e-3, kl_coefficient=0.05, credit="return"
)  # the return that rows say; other credits count what later turns earn
Publish = Callable[..., TrajectoryBatchRef]
Turns = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def updated(tmp_path: Path, make_policy: Callable[..., CheckpointRef], publish_rows: Publish) -> Any:
    """A function that updates one policy on rows of turns; returns its weights, its optimizer's state, its metrics."""
    policy = make_policy()

    def update(name: str, rows: list[dict[str, Any]], roles: tuple[str, ...] = ()) -> dict[str, torch.Tensor]:
        batch = publish_rows(rows, name)
        after = update_policy(policy, policy, batch, BASE, 0, 1, 0, tmp_path / f"after-{name}", silent, roles=roles)
        return {
            **load_file(after.path / "model.safetensors"),
            **{f"state {key}": value for key, value in load_file(after.path / "optimizer/state.safetensors").items()},
            "losses": torch.tensor(pl.read_parquet(after.path / "metrics.parquet")["loss"].to_list()),
        }

    update.policy = policy  # pyright: ignore[reportFunctionMemberAccess]
    return update


def of_role(rows: list[dict[str, Any]], role: str) -> list[dict[str, Any]]:
    return [{**row, "role": role, "agent": role} for row in rows]


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    assert first.keys() == second.keys()
    return all(torch.equal(value, second[name]) for name, value in first.items())


def test_one_role_of_any_name_is_the_single_policy_to_the_bit(updated: Any, turns: Turns) -> None:
    rows = turns(updated.policy)
    alone = updated("alone", rows)
    assert same(alone, updated("named", of_role(rows, "writer")))
    assert same(alone, updated("chosen", of_role(rows, "writer"), roles=("writer",)))


def test_an_agent_learns_from_its_own_turns_alone(updated: Any, turns: Turns) -> None:
    own, others = turns(updated.policy), turns(updated.policy, seed=1)
    later = [{**row, "turn_index": 1} for row in of_role(others, "optimizer")]
    alone = updated("own", of_role(own, "generator"), roles=("generator",))
    beside = updated("both", [*of_role(own, "generator"), *later], roles=("generator",))
    assert same(alone, beside)
    assert not same(alone, updated("all", [*of_role(own, "generator"), *later]))


def test_agents_go_on_from_engines_that_stay_and_after_a_kill_from_updates_made_again(
    tmp_path: Path, make_policy: Callable[..., CheckpointRef], publish_rows: Publish, turns: Turns,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Two agents on the same ranks, two iterations; the second one once with warm ranks, once after their loss."""
    agents = {"generator": make_policy("g", seed=1), "optimizer": make_policy("o", seed=2)}
    rows = [
        *of_role(turns(agents["generator"]), "generator"),
        *of_role(turns(agents["optimizer"], seed=1), "optimizer"),
    ]
    batches = {number: publish_rows(rows, f"batch-{number}") for number in range(2)}
    policies = {agent: {0: policy} for agent, policy in agents.items()}

    def updated(agent: str, number: int, name: str, writes_state: bool, keeps_ranks: bool) -> CheckpointRef:
        past = updates_without_state(policies[agent][number], policies[agent], batches)
        return update_policy(
            policies[agent][number], agents[agent], batches[number], BASE, number, 2, 0, tmp_path / f"{agent}-{name}",
            silent, writes_state=writes_state, past=past, roles=(agent,), keeps_ranks=keeps_ranks,
        )  # fmt: skip

    for agent in agents:
        policies[agent][1] = updated(agent, 0, "first", writes_state=False, keeps_ranks=agent == "optimizer")
    assert not any((policies[agent][1].path / "optimizer").exists() for agent in agents), "on a CPU all engines stay"
    warm = {agent: updated(agent, 1, "warm", writes_state=True, keeps_ranks=True) for agent in reversed(agents)}
    assert "made again" not in caplog.text
    stop_workers()
    cold = {agent: updated(agent, 1, "cold", writes_state=True, keeps_ranks=True) for agent in agents}
    assert caplog.text.count("is made again") == 2
    assert "the first time" not in caplog.text
    assert {agent: policy.digest for agent, policy in warm.items()} == {
        agent: policy.digest for agent, policy in cold.items()
    }
