"""Input of packages: the run's settings without the machine's, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from extras.packaging.package import write_package
from flows.run.packaging import package_inputs, portable_settings
from flows.run.state import policy_at, policy_in, read_state, reference_of
from flows.settings.configuration import RunConfig, apply_override, check_configuration, load_configuration
from kernels_eval.errors import InputError
from tasks.pipeline.store import discard

CONFIGS = sorted(Path("deployments/configs").glob("*.yaml"))


def with_settings(*overrides: str) -> RunConfig:
    values: dict[str, object] = {}
    for override in overrides:
        apply_override(values, override)
    return check_configuration(values, "test")


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_packaged_settings_are_loaded_again_and_decide_the_same(path: Path, tmp_path: Path):
    config = load_configuration(path)
    (tmp_path / "kernelmill.yaml").write_text(yaml.safe_dump(portable_settings(config)))
    loaded = load_configuration(tmp_path / "kernelmill.yaml")
    assert portable_settings(loaded) == portable_settings(config)
    assert (loaded.rollout.episode, loaded.rollout.sampling) == (config.rollout.episode, config.rollout.sampling)


def test_nothing_of_the_machine_is_packaged():
    config = with_settings(
        "runs_dir=/home/ann/runs",
        "model.pretrained=/home/ann/models/Qwen3-8B",
        "problems.path=/home/ann/problems.jsonl",
        "problems.source=jsonl",
        "judge.cache_dir=/home/ann/cache",
        "rollout.sglang_urls=[http://ann:1]",
        "rollout.sglang.command=[/home/ann/python]",
        "rollout.sglang.environment={TOKEN: ann}",
        "rollout.trajectory_logs=/home/ann/logs",
        "tracking.entity=ann",
        "ray.address=ann:6379",
    )
    text = json.dumps(portable_settings(config))
    assert "ann" not in text.replace("channel", "")
    assert '"pretrained": "Qwen3-8B"' in text
    assert '"path": "problems.jsonl"' in text


@pytest.mark.parametrize(
    ("pretrained", "name"),
    [
        (None, None),
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
        ("gpt2", "gpt2"),
        ("/models/Qwen3-8B", "Qwen3-8B"),
        ("./mine", "mine"),
        ("a/b/c", "c"),
        ("megatron:/checkpoints/large", "large"),
        ("tasks/models", "models"),  # a folder that is there
    ],
)
def test_the_base_model_is_named_without_its_folder(
    invented_run: Callable[..., Path], tmp_path: Path, pretrained: str | None, name: str | None
):
    run = invented_run(tmp_path / "runs", model={"pretrained": pretrained})
    assert package_inputs(str(run)).base_model == name
    assert package_inputs(str(run), base_model="org/real").base_model == "org/real"


def test_a_damaged_evaluation_is_refused_by_name(run_folder: Path):
    file = read_state(run_folder).evaluations[0].path / "evaluation.json"
    file.write_text("{")
    with pytest.raises(InputError, match=r"evaluation\.json: damaged.*`kernelmill train` makes it again"):
        package_inputs(str(run_folder))


def test_batches_are_those_behind_the_policy(run_folder: Path):
    assert [len(package_inputs(f"{run_folder}@{version}").batches) for version in range(3)] == [0, 1, 2]
    assert package_inputs(str(run_folder)).version == 2


def test_what_is_refused(run_folder: Path, tmp_path: Path):
    policies = [policy_at(f"{run_folder}@{version}")[0] for version in range(3)]
    discard(policies[1].path, ("*.safetensors",))
    for text, words in (
        (str(tmp_path / "nothing"), "RUN: no such folder"),
        (str(tmp_path), "expected a Hugging Face folder, or a run's folder"),
        (str(policies[2].path), "expected a run's folder"),
        (f"{run_folder}@7", "has no policy 7; it has: 0, 1, 2"),
        (f"{run_folder}@1", r"weights of policy 1 were not kept \(update\.weights_interval\)"),
    ):
        with pytest.raises(InputError, match=words):
            package_inputs(text)
    policies[0].path.rename(tmp_path / "moved")
    with pytest.raises(InputError, match="policy 0: its folder is gone"):
        package_inputs(f"{run_folder}@0")
    (run_folder / "config.yaml").unlink()
    with pytest.raises(InputError, match=r"config\.yaml: expected the run's configuration"):
        package_inputs(str(run_folder))


def test_a_package_is_a_policy_with_its_own_settings(run_folder: Path, tmp_path: Path):
    folder = tmp_path / "package"
    write_package(package_inputs(str(run_folder)), folder)
    policy, settings = policy_at(str(folder))
    assert (policy.path, settings) == (folder, folder / "kernelmill.yaml")
    assert settings is not None
    loaded = load_configuration(settings)
    assert (loaded.rollout.episode.prompt, loaded.rollout.sampling.max_new_tokens) == ("source", 12)
    assert loaded.name == "demo"


def test_flipped_weights_of_a_run_are_refused_with_a_remedy(run_folder: Path, tmp_path: Path):
    policy, _ = policy_at(f"{run_folder}@1")
    file = policy.path / "model.safetensors"
    damaged = bytearray(file.read_bytes())
    damaged[-1] ^= 1
    file.write_bytes(damaged)
    remedy = f"--policy: {file}: damaged: .*; remove {policy.path}, and `kernelmill train` makes it again"
    with pytest.raises(InputError, match=remedy):
        policy_at(f"{run_folder}@1")
    with pytest.raises(InputError, match=remedy.removeprefix("--policy: ")):
        write_package(package_inputs(f"{run_folder}@1"), tmp_path / "package")
    policy_at(f"{run_folder}@2")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "kernelmill.yaml", "package.json", "README.md"])
def test_a_damaged_package_is_not_opened(run_folder: Path, tmp_path: Path, name: str):
    folder = tmp_path / "package"
    write_package(package_inputs(str(run_folder)), folder)
    original = (folder / name).read_bytes()
    (folder / name).write_bytes(original[:-1] + b"!")
    with pytest.raises(InputError, match=f"--policy: .*/{name}: damaged"):
        policy_at(str(folder))
    with pytest.raises(InputError, match=f"policies: x: .*/{name}: damaged"):
        reference_of(folder, "policies: x")
    (folder / name).unlink()
    if name != "config.json":  # a folder without it is no policy at all
        with pytest.raises(InputError, match=f"/{name}"):
            reference_of(folder, "policies: x")


def test_a_package_without_its_manifest_is_not_opened(run_folder: Path, tmp_path: Path):
    folder = tmp_path / "package"
    write_package(package_inputs(str(run_folder)), folder)
    (folder / "manifest.json").unlink()
    with pytest.raises(InputError, match=r"manifest\.json: missing"):
        policy_at(str(folder))


def test_evaluation_takes_a_package_of_its_architecture(run_folder: Path, tmp_path: Path):
    folder = tmp_path / "package"
    write_package(package_inputs(str(run_folder)), folder)
    with pytest.raises(InputError, match="a checkpoint of another architecture than model settings"):
        policy_in(folder, RunConfig())
