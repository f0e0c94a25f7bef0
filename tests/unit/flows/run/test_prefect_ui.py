"""Names and tags of flow runs, and the log of stages."""

import logging
from pathlib import Path

import pytest

from flows.run.prefect_ui import LogListener, newest_version, problems_of, run_name, tags_of
from flows.run.state import RunState, write_state
from flows.settings.configuration import RunConfig, check_configuration
from tasks.pipeline.references import CheckpointRef
from tasks.pipeline.stage import Workspace


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    config = check_configuration({"runs_dir": str(tmp_path), "iterations": 1}, "here")
    (tmp_path / config.run_id).mkdir()
    policies = {version: CheckpointRef(uri="/p", digest="d", weight_version=version) for version in (0, 1, 2)}
    write_state(tmp_path / config.run_id, RunState(policies=policies))
    return config


def test_a_name_says_run_policy_and_problems(config: RunConfig):
    run_id = config.run_id
    assert run_name("training", config) == f"{run_id} · 1 iteration on generated problems"
    assert run_name("iteration", config) == f"{run_id} · iteration 2 · policy 2 on generated problems"
    assert run_name("policy", config) == f"{run_id} · policy 2 on generated problems"
    assert run_name("problems", config) == f"{run_id} · generated problems"


def test_a_run_without_a_readable_state_has_policy_0(config: RunConfig, tmp_path: Path):
    (tmp_path / config.run_id / "state.json").write_text("{")
    assert newest_version(config) == 0
    (tmp_path / config.run_id / "state.json").unlink()
    assert newest_version(config) == 0


def test_problems_from_a_file_and_a_pretrained_model_are_named(config: RunConfig):
    values = {"problems": {"source": "jsonl", "path": "/data/mine.jsonl"}, "model": {"pretrained": "/models/Qwen3-8B"}}
    other = check_configuration(values, "here")
    assert problems_of(other) == "mine.jsonl problems"
    assert {"kernelmill", "local", other.run_id, "mine.jsonl problems", "Qwen3-8B"} == tags_of(other)
    assert "model from scratch" in tags_of(config)


def test_every_listener_is_told_every_event(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    log = logging.getLogger("kernelmill.test_prefect_ui")
    workspace = Workspace(tmp_path, "r", [LogListener(log, interval_s=0.0), LogListener(log, interval_s=3600.0)])
    with caplog.at_level(logging.INFO, logger=log.name):
        workspace.tell(lambda each: each.started("SFT"))
        workspace.tell(lambda each: each.progressed("SFT", 1, 4, {"loss": 0.12345}))
        workspace.tell(lambda each: each.finished("SFT", 2.0, cached=False))
        workspace.tell(lambda each: each.finished("SFT", 2.0, cached=True))
        workspace.tell(lambda each: each.failed("SFT", RuntimeError("no")))
        workspace.tell(lambda each: each.warned("Ray was started again"))
    once = ["SFT: 1 of 4 loss 0.1235"]
    started, done, cached, failed, warned = (
        [text] * 2
        for text in ("SFT: started", "SFT: done in 2.0 s", "SFT: cached", "SFT: failed: no", "Ray was started again")
    )
    assert caplog.messages == [*started, *once, *done, *cached, *failed, *warned]
