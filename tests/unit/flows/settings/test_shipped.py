"""Shipped configurations: found by name from any folder; a file of the user's own comes first."""

from pathlib import Path

import pytest

from flows.settings.configuration import load_configuration
from flows.settings.shipped import CONFIGS, DEEPSPEED, configuration_file, configuration_names, deepspeed_file
from kernels_eval.errors import InputError
from kernels_eval.rewards import reward_of
from kernels_eval.verdict import Status, TimingSource, Verdict
from tasks.agents.config import SLACK
from tasks.sft.corpus_check import check_corpus


@pytest.fixture(autouse=True)
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_each_is_found_by_its_name_and_as_a_checkout_has_it(path: Path) -> None:
    found = load_configuration(path)
    for named in (path.stem, path.name, f"deployments/configs/{path.name}"):
        assert load_configuration(named) == found
        assert load_configuration(named).run_id == found.run_id


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_corpus_of_each_is_written_in_its_language(path: Path) -> None:
    config = load_configuration(path)
    check_corpus(config.sft.data, config.judge)


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_an_agent_that_may_stop_is_paid_for_speed(path: Path) -> None:
    """Else each right kernel is as good as any other, and the agent learns nothing but to stop."""
    config = load_configuration(path)
    episode = config.rollout.episode
    slow, fast = (
        Verdict(status=Status.CORRECT, compiled=True, correct=True, speedup=speedup, timing_source=TimingSource.GPU)
        for speedup in (1.2, 1.8)
    )
    if any(agent.may_stop for agent in episode.agents.values()):
        assert reward_of(episode.reward, fast) > reward_of(episode.reward, slow) + SLACK


def test_only_the_demo_s_corpus_is_partly_fused() -> None:
    found = {path.stem for path in CONFIGS.glob("*.yaml") if "partly_fused" in load_configuration(path).sft.data.styles}
    assert found == {"local"}


def test_a_file_of_the_users_own_comes_first(empty: Path) -> None:
    (empty / "local.yaml").write_text("name: mine\n")
    assert load_configuration("local.yaml").name == "mine"
    assert load_configuration("local").name == "local"


def test_a_file_extends_a_shipped_one_by_name(empty: Path) -> None:
    (empty / "mine.yaml").write_text("extends: local\nseed: 7\n")
    found = load_configuration("mine.yaml")
    assert (found.seed, found.sft) == (7, load_configuration("local").sft)


@pytest.mark.parametrize("text", ["nonsense", "other/local", "/local", "local.yml", "../local", "configs/local.yaml"])
def test_what_names_none_stays_as_it_is(text: str) -> None:
    assert configuration_file(Path(text)) == Path(text)
    with pytest.raises(InputError, match="no such configuration file"):
        load_configuration(text)


def test_a_name_that_is_none_lists_those_that_are() -> None:
    with pytest.raises(InputError) as error:
        load_configuration("locall")
    assert all(name in str(error.value) for name in configuration_names())


@pytest.mark.parametrize("path", sorted(DEEPSPEED.glob("*.json")), ids=lambda path: path.stem)
def test_deepspeed_files_are_found_likewise(path: Path) -> None:
    for named in (path.stem, path.name, f"deployments/deepspeed/{path.name}"):
        assert deepspeed_file(named) == str(path)
        assert load_configuration("local", [f"update.deepspeed={named}"]).update.deepspeed == str(path)
