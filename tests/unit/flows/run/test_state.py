"""State of a run: descendants of a replaced policy are dropped; and the policies that a choice names."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from flows.cli.main import run
from flows.run.state import (
    ControlState,
    PolicyChoice,
    RunState,
    StageTiming,
    check_choices,
    parse_choice,
    policy_at,
    policy_name,
    policy_of,
    read_state,
    wall_seconds_of,
    write_state,
)
from flows.settings.configuration import RunConfig
from kernels_eval.errors import InputError
from tasks.pipeline.references import CheckpointRef, EvaluationRef, TrajectoryBatchRef
from tasks.pipeline.store import discard, publish, published_digest


def policy(version: int, digest: str = "d") -> CheckpointRef:
    return CheckpointRef(uri=f"/store/{version}", digest=f"{digest}{version}", weight_version=version)


def batch(iteration: int) -> TrajectoryBatchRef:
    return TrajectoryBatchRef(uri="/b", digest="b", run_id="r", iteration=iteration, trajectories=1, turns=1)


@pytest.fixture
def state() -> RunState:
    evaluation = EvaluationRef(uri="/e", digest="e", policy_digest="d")
    return RunState(
        policies={version: policy(version) for version in range(4)},
        batches={version: batch(version) for version in range(3)},
        evaluations={0: evaluation, 3: evaluation},
        greedy_evaluations={0: evaluation, 3: evaluation},
        control=ControlState(steps=5, rl_seconds=10.0, step_seconds=2.0, after=3, evaluation=evaluation),
    )


def test_newest_policy(state: RunState):
    assert state.newest_policy == policy(3)
    assert RunState().newest_policy is None


def test_the_same_policy_again_changes_nothing(state: RunState):
    assert state.with_policy(policy(1)) == state


def test_another_policy_forgets_what_descended_from_the_old_one(state: RunState):
    changed = state.with_policy(policy(1, "other"))
    assert changed.policies == {0: policy(0), 1: policy(1, "other")}
    assert set(changed.batches) == {0}
    assert set(changed.evaluations) == set(changed.greedy_evaluations) == {0}
    assert changed.control is None
    assert state.with_policy(policy(4)).control == state.control


def test_another_policy_forgets_only_what_it_wrote_if_rollouts_are_stale(state: RunState):
    assert set(state.with_policy(policy(1, "other"), staleness=1).batches) == {0, 1}
    assert set(state.with_policy(policy(1, "other"), staleness=2).batches) == {0, 1, 2}


def test_seconds_of_stages_that_went_on_side_by_side_count_once():
    def timing(seconds: float, began: float | None) -> StageTiming:
        return StageTiming(label=f"{began}", stage="update", seconds=seconds, overhead_s=0.0, began=began)

    assert wall_seconds_of([timing(10, 100), timing(4, 102), timing(5, 108), timing(2, 200)]) == 15
    assert wall_seconds_of([timing(3, None), timing(2, 1.0)]) == 5, "stages of an earlier version took turns"


def test_written_and_read_it_is_the_same(state: RunState, tmp_path: Path):
    write_state(tmp_path, state)
    assert read_state(tmp_path) == state
    assert read_state(tmp_path / "none") == RunState()


def test_after_a_move_paths_are_those_of_the_new_place(tmp_path: Path):
    here, there = tmp_path / "runs", tmp_path / "moved"
    inside = CheckpointRef(uri=str(here / "store" / "sft" / "k"), digest="d")
    outside = EvaluationRef(uri="/elsewhere/e", digest="e", policy_digest="d")
    made = RunState(
        policies={0: inside},
        evaluations={0: outside},
        control=ControlState(steps=1, rl_seconds=1.0, step_seconds=1.0, after=0, policy=inside),
        artifacts={"SFT": inside.uri},
        digests={"SFT": "d"},
    )
    (here / "r").mkdir(parents=True)
    write_state(here / "r", made)
    assert str(tmp_path) not in (here / "r" / "state.json").read_text()
    here.rename(there)
    (there / "latest").symlink_to("r")
    for folder in (there / "r", there / "latest"):
        found = read_state(folder)
        assert found.policies[0].path == there / "store" / "sft" / "k"
        assert found.evaluations == made.evaluations
        assert found.control is not None
        assert found.control.policy == found.policies[0]
        assert found.artifacts == {"SFT": found.policies[0].uri}
        assert found.digests == made.digests


def test_a_state_with_absolute_paths_of_an_earlier_version_is_read(state: RunState, tmp_path: Path):
    (tmp_path / "state.json").write_text(state.model_dump_json())
    assert read_state(tmp_path) == state


def test_a_broken_file_is_named(tmp_path: Path):
    for damaged in ("{", "[" * 100_000):
        (tmp_path / "state.json").write_text(damaged)
        with pytest.raises(InputError, match=r"state\.json"):
            read_state(tmp_path)


def test_the_names_of_stages_are_those_that_are_declared():
    import importlib

    from tasks.pipeline.retries import STAGE_NAMES
    from tasks.pipeline.stage import StageTask

    modules = [
        importlib.import_module(f"tasks.{name}.task") for name in ("problems", "sft", "rollout", "update", "agents")
    ]
    modules += [importlib.import_module(f"tasks.{name}.task") for name in ("validation", "evaluation")]
    modules.append(importlib.import_module("extras.generation.task"))
    declared = {value.name for module in modules for value in vars(module).values() if isinstance(value, StageTask)}
    assert declared == set(STAGE_NAMES)


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("SFT=runs/a@0", PolicyChoice(name="SFT", checkpoint="runs/a", version=0)),
        ("new=runs/a", PolicyChoice(name="new", checkpoint="runs/a")),
        ("first=@0", PolicyChoice(name="first", version=0)),
        ("new=", PolicyChoice(name="new")),
        ("runs/a/checkpoints/policy-003", PolicyChoice(name="policy-003", checkpoint="runs/a/checkpoints/policy-003")),
    ],
)
def test_what_a_text_says(text: str, choice: PolicyChoice):
    assert parse_choice(text) == choice


@pytest.mark.parametrize("text", ["=runs/a", "a=runs@x"])
def test_what_a_text_must_not_say(text: str):
    with pytest.raises(InputError, match="expected NAME=FOLDER"):
        parse_choice(text)


def test_two_policies_with_names_of_their_own_in_folders_that_exist(tmp_path: Path):
    here = PolicyChoice(name="a", checkpoint=str(tmp_path))
    check_choices((here, PolicyChoice(name="b")))
    for choices, words in (
        ((here,), "two or more"),
        ((here, here), "'a' twice"),
        ((here, PolicyChoice(name="b", checkpoint="/nowhere")), "/nowhere"),
    ):
        with pytest.raises(InputError, match=words):
            check_choices(choices)


@pytest.fixture
def run_of_two(tmp_path: Path) -> SimpleNamespace:
    folder = tmp_path / "runs" / "demo"
    folder.mkdir(parents=True)
    policies = {
        version: CheckpointRef(uri=f"/p{version}", digest=f"d{version}", weight_version=version) for version in (0, 1)
    }
    write_state(folder, RunState(policies=policies))
    return SimpleNamespace(run_dir=folder, config=RunConfig())


def test_a_policy_of_a_run(run_of_two: SimpleNamespace):
    assert policy_of(PolicyChoice(name="x"), run_of_two.run_dir, run_of_two.config).digest == "d1"
    assert policy_of(PolicyChoice(name="x", version=0), run_of_two.run_dir, run_of_two.config).digest == "d0"
    assert (
        policy_of(
            PolicyChoice(name="x", checkpoint=str(run_of_two.run_dir)), run_of_two.run_dir, run_of_two.config
        ).digest
        == "d1"
    )
    with pytest.raises(InputError, match="has no policy 7; it has: 0, 1"):
        policy_of(PolicyChoice(name="x", version=7), run_of_two.run_dir, run_of_two.config)


def test_a_policy_whose_weights_were_not_kept_is_refused(tmp_path: Path):
    folder = tmp_path / "runs" / "demo"
    folder.mkdir(parents=True)
    policies: dict[int, CheckpointRef] = {}
    for version in (0, 1):
        with publish(tmp_path / f"p{version}") as partial:
            (partial / "model.safetensors").write_text("x")
        path = tmp_path / f"p{version}"
        policies[version] = CheckpointRef(uri=str(path), digest=published_digest(path), weight_version=version)
    write_state(folder, RunState(policies=policies))
    discard(policies[0].path, ("*.safetensors",))
    assert policy_of(PolicyChoice(name="x", version=1), folder, RunConfig()) == policies[1]
    with pytest.raises(InputError, match=r"weights of policy 0 were not kept \(update\.weights_interval\)"):
        policy_of(PolicyChoice(name="x", version=0), folder, RunConfig())


def test_a_policys_folder_has_no_versions(run_of_two: SimpleNamespace, tmp_path: Path):
    with pytest.raises(InputError, match="no versions"):
        policy_of(PolicyChoice(name="x", checkpoint=str(tmp_path), version=1), run_of_two.run_dir, run_of_two.config)


def test_a_policy_by_its_folder_or_its_runs(run_of_two: SimpleNamespace, tmp_path: Path):
    run, folder = str(run_of_two.run_dir), run_of_two.run_dir / "checkpoints" / "policy-000"
    newest, configuration = policy_at(run)
    assert (newest.digest, policy_name(run, newest), configuration) == ("d1", "demo@1", None)
    (run_of_two.run_dir / "config.yaml").write_text("name: demo\n")
    first, configuration = policy_at(f"{run}@0")
    assert (first.digest, policy_name(f"{run}@0", first)) == ("d0", "demo@0")
    assert configuration == run_of_two.run_dir / "config.yaml"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    found, configuration = policy_at(str(folder))  # its run's settings hold for it
    assert (found.path, configuration) == (folder.resolve(), run_of_two.run_dir / "config.yaml")
    assert policy_name(str(folder), found) == "policy-000"
    for text, words in (
        (f"{run}@7", "has no policy 7; it has: 0, 1"),
        (str(tmp_path / "nothing"), "no such folder"),
        (str(tmp_path), "expected a Hugging Face folder"),
        (f"{folder}@1", "expected a Hugging Face folder"),
        ("", "no such folder"),
        (f"{run}@x", "--policy: found .*@x, expected FOLDER or RUN@VERSION"),
        (f"{run}@²", "expected FOLDER or RUN@VERSION"),
        (f"{run}@{'9' * 5000}", "expected FOLDER or RUN@VERSION"),
    ):
        with pytest.raises(InputError, match=words):
            policy_at(text)


def test_the_command_refuses_one_policy(capsys: pytest.CaptureFixture[str]):
    assert run(["compare", "a=@0"]) == 2
    assert "expected two or more to compare, found 1" in capsys.readouterr().err
