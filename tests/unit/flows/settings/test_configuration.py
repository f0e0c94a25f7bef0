"""The configuration tree: what is read back, what is refused, and with which words."""

import functools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from flows.settings.configuration import (
    RunConfig,
    apply_override,
    load_configuration,
    save_configuration,
)
from flows.settings.explanation import setting_names
from kernels_eval.errors import InputError
from kernels_eval.expectations import WORDS

CONFIGS = sorted(Path("deployments/configs").glob("*.yaml"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text("name: demo\nsft: {steps: 7}\n")
    return path


def refusal(path: Path, *overrides: str) -> str:
    with pytest.raises(InputError) as caught:
        load_configuration(path, overrides)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_importing_it_imports_neither_torch_nor_ray():
    code = "import sys, flows.settings.configuration; print([m for m in ('torch', 'ray', 'prefect', 'polars') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_file_then_overrides_with_yaml_types(file: Path):
    config = load_configuration(
        file,
        [
            "sft.steps=9",
            "update.learning_rate=5e-4",
            "evaluation.pass_at=[1, 2]",
            "ray.address=null",
            "sft.data.verified=no",
        ],
    )
    assert (config.name, config.sft.steps, config.update.learning_rate) == ("demo", 9, 5e-4)
    assert config.evaluation.pass_at == (1, 2)
    assert config.ray.address is None
    assert config.sft.data.verified is False


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("update.lerning_rate=1", ["update.lerning_rate", "unknown", "did you mean update.learning_rate?"]),
        ("learning_rate=1", ["sft.learning_rate or update.learning_rate"]),
        ("rollout.temperature=1", ["rollout.sampling.temperature"]),
        ("zebra=1", ["zebra", "at the top there are name, seed"]),
        ("rollout.episode.max_turns=-1", ["rollout.episode.max_turns", "found -1", "expected at least 1"]),
        ("update.ranks=two", ["update.ranks", "found 'two'", "expected a whole number"]),
        ("sft.data.reader=mine", ["sft.data.reader: found 'mine', expected package.module:name of your own"]),
        ("model.dtype=fp16", ["model.dtype", "'float32' or 'bfloat16'"]),
        ("update=3", ["update: found 3"]),
        ("name=Bad Name", ["name: found 'Bad Name'", "matches"]),
        ("name.inner=1", ["--set name.inner=1", "name is a value"]),
        ("sft.steps", ["--set sft.steps", "a.b=value"]),
        ("sft.steps=[1", ["--set", "not YAML"]),
        ("runs_dir=", ["runs_dir: found None"]),
        ("runs_dir=''", ["runs_dir: found ''"]),
        ('runs_dir="a\\0b"', ["runs_dir: found 'a\\x00b'", "without NUL"]),
    ],
)
def test_a_wrong_setting_is_refused_with_path_found_and_expected(file: Path, override: str, words: list[str]):
    message = refusal(file, override)
    assert all(word in message for word in words), message


@pytest.mark.parametrize("wrong", ["two", 1.5, -1, None, [], [[1]], {"a": {"b": 1}}, ""])
def test_no_setting_is_refused_in_the_words_of_the_library(wrong: object):
    kinds = set[str]()
    for name in setting_names(RunConfig):
        values: dict[str, Any] = {}
        apply_override(values, f"{name}=0")
        group = functools.reduce(lambda inner, key: inner[key], name.split(".")[:-1], values)
        group[name.rpartition(".")[2]] = wrong
        try:
            RunConfig.model_validate(values)
        except ValidationError as error:
            kinds |= {each["type"] for each in error.errors()}
    assert kinds <= WORDS.keys() | {"extra_forbidden"}


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcdefg", "bcdefgh", strict=True)
)
"""A few lines that stand for a hundred million values."""


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("- a\n- b\n", ["expected a mapping", "list"]),
        ("a: [1\n", ["not YAML"]),
        (BOMB, ["expected at most 100,000 values", "aliases"]),
        ("extends: other.yaml\n", ["other.yaml", "no such configuration file"]),
        ("extends: run.yaml\n", ["extends itself"]),
        ("!!python/object/apply:os.system ['true']\n", ["not YAML"]),
    ],
)
def test_a_wrong_file_is_refused(file: Path, content: str, words: list[str]):
    file.write_text(content)
    message = refusal(file)
    assert all(word in message for word in words), message


def test_the_folder_of_runs_may_lie_in_the_home_folder(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load_configuration(file, ["runs_dir=~/runs"]).runs_dir == str(tmp_path / "runs")
    assert load_configuration(file, ["runs_dir=~/other"]).run_id == load_configuration(file).run_id


def test_a_missing_file_is_refused(tmp_path: Path):
    assert "no such configuration file" in refusal(tmp_path / "none.yaml")


def test_a_file_that_extends_another_changes_only_what_it_names(file: Path):
    child = file.with_name("child.yaml")
    child.write_text("extends: run.yaml\nsft: {batch_size: 3}\n")
    config = load_configuration(child)
    assert (config.name, config.sft.steps, config.sft.batch_size) == ("demo", 7, 3)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_the_configurations_that_ship_are_valid(path: Path):
    load_configuration(path)


def test_saved_and_loaded_it_is_the_same_run(file: Path, tmp_path: Path):
    config = load_configuration(file, ["judge.targets=['cuda:80','hip:gfx942']"])
    save_configuration(config, tmp_path / "saved.yaml")
    again = load_configuration(tmp_path / "saved.yaml")
    assert again == config
    assert again.run_id == config.run_id


@given(st.sampled_from(sorted(setting_names(RunConfig))), st.integers(0, 30), st.sampled_from("abcxyz_"))
def test_any_setting_with_a_letter_added_is_refused_and_named(name: str, place: int, letter: str):
    leaf = name.rpartition(".")[2]
    wrong = leaf[: place % (len(leaf) + 1)] + letter + leaf[place % (len(leaf) + 1) :]
    path = name.removesuffix(leaf) + wrong
    if path in set(setting_names(RunConfig)):
        return
    values: dict[str, object] = {}
    apply_override(values, f"{path}=1")
    from flows.settings.configuration import check_configuration

    with pytest.raises(InputError) as caught:
        check_configuration(values, "here")
    assert f"here: {path}: unknown setting; did you mean" in str(caught.value)


def test_what_does_not_decide_the_result_does_not_change_the_run(file: Path):
    base = load_configuration(file).run_id
    for same in (
        "runs_dir=elsewhere",
        "ray.cpus=3",
        "judge.workers=7",
        "judge.cache_dir=elsewhere",
        "judge.cache_mb=128",
        "judge.require_sandbox=true",
        "tracking.mode=disabled",
        "control=true",
        "update.ranks=2",
        "rollout.sglang_urls=[http://elsewhere:30000]",
        "rollout.sglang.servers=3",
        "rollout.judge_patience_s=9",
        "sft.best_metric=loss",
    ):
        assert load_configuration(file, [same]).run_id == base
    for other in ("seed=1", "iterations=1", "judge.trials=3", "judge.timeout_s=3", "update.epochs=2"):
        assert load_configuration(file, [other]).run_id != base


def test_every_group_is_described_in_the_saved_file(file: Path, tmp_path: Path):
    save_configuration(load_configuration(file), tmp_path / "saved.yaml")
    assert set(yaml.safe_load((tmp_path / "saved.yaml").read_text())) == set(RunConfig.model_fields)


@pytest.mark.parametrize("value", [".inf", "-.inf", ".nan", "1.0e+26", "100000000000000000000000000"])
@pytest.mark.parametrize("name", ["iterations", "update.learning_rate", "sft.steps"])
def test_a_number_that_nothing_can_mean_is_refused(name: str, value: str, file: Path):
    with pytest.raises(InputError, match=rf"{name}: found .*, expected a finite number below 1e\+18$"):
        load_configuration(file, [f"{name}={value}"])


def test_a_key_that_stands_twice_is_refused(tmp_path: Path):
    twice = tmp_path / "twice.yaml"
    twice.write_text("name: demo\nsft:\n  steps: 1\n  steps: 2\n")
    with pytest.raises(InputError, match=r"steps is set twice .*line 4"):
        load_configuration(twice)


def test_a_number_is_what_a_person_reads(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("name: x\niterations: 010\nseed: 0x10\n")
    config = load_configuration(tmp_path / "run.yaml")
    assert (config.iterations, config.seed) == (10, 16)
    with pytest.raises(InputError, match="iterations: found '1:30', expected a whole number"):
        load_configuration(tmp_path / "run.yaml", ["iterations=1:30"])
