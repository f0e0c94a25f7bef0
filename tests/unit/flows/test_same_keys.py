"""One configuration gives one run and one set of cache keys, whichever way it comes in; and a run can be extended."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows import iteration as iteration_flow
from flows.settings.configuration import RunConfig, apply_override, load_configuration, save_configuration
from tasks.pipeline.cache import decisive
from tasks.pipeline.references import CheckpointRef, TrajectoryBatchRef
from tasks.update.task import update

CONFIGS = sorted(Path("deployments/configs").glob("*.yaml"))


def as_a_form_does(value: Any) -> Any:
    """Return JSON values as JavaScript writes them: whole numbers without a point."""
    if isinstance(value, dict):
        return {key: as_a_form_does(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_a_form_does(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def through_its_own_file(config: RunConfig, folder: Path) -> RunConfig:
    save_configuration(config, folder / "config.yaml")
    return load_configuration(folder / "config.yaml")


def through_params(config: RunConfig, _: Path) -> RunConfig:
    return RunConfig.model_validate(json.loads(json.dumps(config.model_dump(mode="json"))))


def through_a_form(config: RunConfig, _: Path) -> RunConfig:
    return RunConfig.model_validate(json.loads(json.dumps(as_a_form_does(config.model_dump(mode="json")))))


def through_overrides(config: RunConfig, folder: Path) -> RunConfig:
    """As `--set` would set every single value, written with a point."""
    (folder / "empty.yaml").write_text("")
    values: dict[str, Any] = {}

    def walk(group: dict[str, Any], prefix: str) -> None:
        for name, value in group.items():
            if isinstance(value, dict) and value:
                walk(value, f"{prefix}{name}.")
            else:
                apply_override(values, f"{prefix}{name}={yaml.safe_dump(value, default_flow_style=True)}")

    walk(config.model_dump(mode="json"), "")
    return RunConfig.model_validate(values)


@pytest.mark.parametrize("way", [through_its_own_file, through_params, through_a_form, through_overrides])
@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_way_gives_the_same_run_and_keys(path: Path, way: Callable[[RunConfig, Path], RunConfig], tmp_path: Path):
    config = load_configuration(path)
    other = way(config, tmp_path)
    assert other.run_id == config.run_id
    for name in RunConfig.model_fields:
        assert json.dumps(decisive(getattr(other, name))) == json.dumps(decisive(getattr(config, name))), name


def test_a_whole_number_counts_like_the_same_number_with_a_point():
    for name, whole in (("judge.timeout_s", 10), ("update.weight_decay", 0), ("rollout.sampling.temperature", 1)):
        values: list[dict[str, Any]] = [{}, {}, {}]
        for each, number in zip(values, (whole, float(whole), -0.0 if whole == 0 else float(whole)), strict=True):
            apply_override(each, f"{name}={number}")
        assert len({RunConfig.model_validate(each).run_id for each in values}) == 1, name
    assert decisive(1) == decisive(1.0)
    assert json.dumps(decisive((1.0, 0.5))) == json.dumps(decisive([1, 0.5]))


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> Callable[[RunConfig], list[str]]:
    """A function that returns the keys of all updates of a run, as its flow calls the stage."""

    def keys_of(config: RunConfig) -> list[str]:
        found: list[str] = []

        def called(*args: Any, **kwargs: Any) -> CheckpointRef:
            arguments = update.arguments(*args[1:], **kwargs)
            found.append(update.key(arguments))
            return CheckpointRef(uri="p", digest=found[-1])

        class Run:
            workspace = None

        Run.config = config  # type: ignore[attr-defined]
        monkeypatch.setattr(iteration_flow, "update", called)
        monkeypatch.setattr(iteration_flow, "check_update", lambda _, updated, *__, **___: updated)
        for number in range(config.iterations):
            policy = CheckpointRef(uri="p", digest=f"p{number}", weight_version=number)
            batch = TrajectoryBatchRef(uri="b", digest="b", run_id="r", iteration=number, trajectories=1, turns=1)
            iteration_flow.run_update(Run(), policy, policy, batch, number)  # type: ignore[arg-type]
        return found

    return keys_of


def longer(config: RunConfig, **update_settings: object) -> RunConfig:
    changed = config.update.model_copy(update=update_settings)
    return config.model_copy(update={"iterations": 2 * config.iterations, "update": changed})


def test_a_longer_run_reuses_every_update_if_the_schedule_keeps_its_length(keys: Callable[[RunConfig], list[str]]):
    config = load_configuration("deployments/configs/test.yaml", ["update.schedule=cosine"])
    before = keys(config)
    extended = longer(config, schedule_iterations=config.iterations)
    assert keys(extended)[: len(before)] == before
    assert len(set(keys(extended))) == 2 * len(before)
    assert extended.run_id != config.run_id
    assert not set(keys(longer(config))) & set(before), "another length is another rate from the first update on"


def test_with_a_constant_rate_a_longer_run_reuses_everything(keys: Callable[[RunConfig], list[str]]):
    config = load_configuration("deployments/configs/test.yaml", ["update.schedule=constant"])
    assert keys(longer(config))[: config.iterations] == keys(config)


def test_after_the_schedule_the_rate_stays_where_it_ended():
    from tasks.training.program import learning_rate

    rates = [learning_rate(step, 10, 1.0, final_fraction=0.05) for step in range(20)]
    assert rates[9:] == [pytest.approx(0.05)] * 11
    assert rates[0] == 1.0
