"""Updates of a team: order, what is written, what would be made again, as the flow asks the stage for it."""

from pathlib import Path
from typing import Any

import pytest

from flows import iteration as iteration_flow
from flows.settings.configuration import RunConfig, load_configuration
from tasks.agents.team import members_of, publish_team
from tasks.pipeline.references import CheckpointRef, TrajectoryBatchRef
from tasks.pipeline.store import publish, published_digest
from tasks.training.retention import keep_optimizers, keep_weights
from tasks.update.request import UpdateRequest


def publish_member(folder: Path, version: int, batch: str, with_state: bool) -> CheckpointRef:
    with publish(folder, {"batch": batch} if version else {}) as partial:
        (partial / "model.safetensors").write_text(str(folder))
        if with_state:
            (partial / "optimizer").mkdir()
            (partial / "optimizer/state.safetensors").write_text("s")
    return CheckpointRef(uri=str(folder), digest=published_digest(folder), weight_version=version)


class FakeRun:
    """A run whose updates are only written down; agents named in `idle` have nothing to learn in an iteration."""

    def __init__(self, config: RunConfig, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.config, self.folder, self.workspace, self.run_dir = config, folder, None, folder
        self.state = self
        self.policies: dict[int, CheckpointRef] = {}
        self.batches: dict[int, TrajectoryBatchRef] = {}
        self.calls: list[tuple[str, UpdateRequest]] = []
        self.idle: set[tuple[int, str]] = set()
        monkeypatch.setattr(iteration_flow, "update", self._update)
        monkeypatch.setattr(iteration_flow, "check_update", lambda _, updated, *__, **___: updated)
        monkeypatch.setattr(iteration_flow, "look_for_collapse", lambda *_: None)
        monkeypatch.setattr(
            iteration_flow, "form_team",
            lambda _, members, weight_version: publish_team(members, folder / f"team-{weight_version}", weight_version),
        )  # fmt: skip

    def add_policy(self, policy: CheckpointRef) -> CheckpointRef:
        self.policies[policy.weight_version] = policy
        return policy

    def _update(self, _: Any, request: UpdateRequest) -> CheckpointRef:
        agent = request.of.split()[-1]
        if (request.iteration, agent) in self.idle:
            return request.policy
        self.calls.append((agent, request))
        folder = self.folder / f"{agent}-{request.iteration + 1}"
        return publish_member(folder, request.policy.weight_version + 1, "batch", request.writes_state)

    def run(self, iterations: int) -> None:
        first = {name: publish_member(self.folder / name, 0, "", False) for name in ("generator", "optimizer")}
        policy = self.add_policy(publish_team(first, self.folder / "team-0", 0))
        for number in range(iterations):
            batch = TrajectoryBatchRef(
                uri=f"b{number}", digest=f"b{number}", run_id="r", iteration=number, trajectories=1, turns=1
            )
            self.batches[number] = batch
            others_follow = number + 1 < iterations
            policy = iteration_flow.update_policy(self, policy, batch, number, others_follow)  # type: ignore[arg-type]

    def said(self, name: str) -> list[tuple[int, str, Any]]:
        return [(request.iteration, agent, getattr(request, name)) for agent, request in self.calls]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeRun:
    settings = ["update.checkpoint_interval=3", "update.weights_interval=100"]
    return FakeRun(load_configuration("deployments/configs/agents-local.yaml", settings), tmp_path, monkeypatch)


def test_a_team_writes_its_states_at_the_interval_and_at_the_end(run: FakeRun):
    run.run(5)
    written = {iteration for iteration, _, writes in run.said("writes_state") if writes}
    assert written == {2, 4}
    assert len(run.calls) == 10


def test_an_iteration_begins_with_the_agent_that_the_last_one_ended_with(run: FakeRun):
    run.run(3)
    order = [(iteration, agent) for iteration, agent, _ in run.said("keeps_ranks")]
    assert order == [
        (0, "generator"), (0, "optimizer"),
        (1, "optimizer"), (1, "generator"),
        (2, "generator"), (2, "optimizer"),
    ]  # fmt: skip
    assert [keeps for _, _, keeps in run.said("keeps_ranks")] == [False, True] * 3


def test_what_would_be_made_again_is_of_the_agents_own_updates(run: FakeRun):
    run.idle = {(1, "optimizer")}
    run.run(3)
    past = {agent: given for iteration, agent, given in run.said("past") if iteration == 2}
    assert [(each.iteration, each.batch.digest) for each in past["generator"]] == [(0, "b0"), (1, "b1")]
    assert [(each.iteration, each.batch.digest) for each in past["optimizer"]] == [(0, "b0")]
    assert [each.policy.path.name for each in past["generator"]] == ["generator", "generator-1"]
    assert [each.policy.path.name for each in past["optimizer"]] == ["optimizer"]


def test_the_team_that_has_every_state_keeps_its_weights(run: FakeRun):
    run.run(6)
    has = {version: all((each.path / "model.safetensors").exists() for each in members_of(team).values())
           for version, team in run.policies.items()}  # fmt: skip
    assert [version for version, whole in has.items() if whole] == [0, 5, 6]
    del run.policies[6]
    keep_optimizers(run.policies, 3)
    keep_weights(run.policies, 100)
    states = {version: all((each.path / "optimizer").exists() for each in members_of(team).values())
              for version, team in run.policies.items()}  # fmt: skip
    assert [version for version, whole in states.items() if whole] == [3]


def test_an_untrained_agent_does_not_hide_the_newest_state(tmp_path: Path):
    untrained = publish_member(tmp_path / "untrained", 0, "", False)
    teams: dict[int, CheckpointRef] = {}
    for version in range(7):
        trained = publish_member(tmp_path / f"o{version}", version, "b", version % 3 == 0)
        teams[version] = publish_team({"generator": untrained, "optimizer": trained}, tmp_path / f"t{version}", version)
        keep_weights(teams, 100)
        kept = {number for number in teams if (tmp_path / f"o{number}/model.safetensors").exists()}
        assert kept == {0, version - version % 3, version, max(version - 1, 0)}


def test_a_later_policy_that_was_damaged_stops_no_update_before_its_own(run: FakeRun):
    run.run(3)
    for name in ("metrics.parquet", "manifest.json"):
        (run.policies[3].path / name).write_bytes(b"damaged")
    before = run.policies[0]
    updated = iteration_flow.update_policy(run, before, run.batches[0], 0, others_follow=True)  # type: ignore[arg-type]
    assert updated.weight_version == 1
