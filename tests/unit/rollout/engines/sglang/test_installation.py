"""SGLang is found without settings, started with flags that suit the machine, and the user's flags win."""

import json
import os
import sys
from pathlib import Path

import pytest

from tasks.rollout.config import SglangConfig
from tasks.rollout.engines.sglang.installation import (
    Installation,
    default_flags,
    find_installation,
    server_command,
    server_environment,
)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KERNELMILL_SGLANG", raising=False)
    monkeypatch.delenv("PYTHONPATH", raising=False)


def environment_of(folder: Path, version: str = "0.5.13") -> Path:
    """Make a folder that looks like a virtual environment with SGLang; return its interpreter."""
    site = folder / "lib/python3.12/site-packages"
    (site / "sglang").mkdir(parents=True)
    (site / f"sglang-{version}.dist-info").mkdir()
    python = folder / "bin/python"
    python.parent.mkdir()
    python.touch()
    return python


def test_an_environment_beside_the_checkout_is_found(tmp_path: Path) -> None:
    python = environment_of(tmp_path / ".sglang")
    assert find_installation() == Installation(str(python), None, (0, 5, 13))
    assert server_command(SglangConfig())[:3] == (str(python), "-m", "sglang.launch_server")


def test_a_folder_of_packages_is_seen_by_the_server_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site/sglang").mkdir(parents=True)
    monkeypatch.setenv("KERNELMILL_SGLANG", str(tmp_path / "site"))
    environment_of(tmp_path / ".sglang")  # the variable goes first
    assert find_installation() == Installation(sys.executable, tmp_path / "site")
    assert server_environment(SglangConfig())["PYTHONPATH"] == str(tmp_path / "site")
    monkeypatch.setenv("PYTHONPATH", "/ours")
    assert server_environment(SglangConfig())["PYTHONPATH"] == f"{tmp_path / 'site'}{os.pathsep}/ours"
    assert "attention-backend triton" in " ".join(server_command(SglangConfig()))


def test_a_folder_that_is_named_is_the_only_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment_of(tmp_path / ".sglang")
    monkeypatch.setenv("KERNELMILL_SGLANG", str(tmp_path / "nowhere"))
    assert find_installation() is None


def flags(config: SglangConfig, found: Installation | None, capability: float | None, cuda: str | None) -> str:
    return " ".join(part for flag in default_flags(config, found, capability, cuda) for part in flag)


def test_flags_suit_the_gpu_and_the_installation() -> None:
    whole, packages = Installation("python", None, (0, 5, 13)), Installation("python", Path("site"), (0, 5, 23))
    hopper = flags(SglangConfig(), whole, 9.0, "/usr/local/cuda")
    assert "--dtype bfloat16" in hopper
    assert "--attention-backend" not in hopper  # SGLang's own choice
    assert "--disable-piecewise-cuda-graph" in hopper
    assert "--mem-fraction-static" not in hopper
    assert "--dtype half" in flags(SglangConfig(), whole, 7.5, "/usr/local/cuda")
    assert "--attention-backend triton" in flags(SglangConfig(), whole, 9.0, None)  # nothing to compile with
    of_packages = flags(SglangConfig(), packages, 9.0, "/usr/local/cuda")
    assert "--attention-backend triton" in of_packages
    assert "--disable-piecewise-cuda-graph" not in of_packages  # not known of this version
    assert "--dtype" not in flags(SglangConfig(), None, None, None)


def test_a_server_with_a_part_of_a_gpu_takes_a_part_of_its_memory() -> None:
    assert "--mem-fraction-static 0.24" in flags(SglangConfig(gpus_per_server=0.3), None, 9.0, None)


def test_configured_flags_and_variables_win(tmp_path: Path) -> None:
    environment_of(tmp_path / ".sglang")
    config = SglangConfig(
        flags=("--grammar-backend=xgrammar", "--sampling-backend", "flashinfer"), environment={"HF_HUB_OFFLINE": "0"}
    )
    command = server_command(config)
    assert "--grammar-backend" not in command
    assert command.count("--sampling-backend") == 1
    assert command[-3:] == config.flags
    assert server_environment(config)["HF_HUB_OFFLINE"] == "0"
    assert server_environment(config)["TRANSFORMERS_OFFLINE"] == "1"


def test_another_command_is_taken_as_it_is() -> None:
    assert server_command(SglangConfig(command=("python", "double.py"), flags=("--fast",))) == (
        "python", "double.py", "--fast",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("config", "modules"),
    [
        ({}, "q_proj k_proj v_proj o_proj gate_proj up_proj down_proj"),
        ({"num_experts": 8}, "q_proj k_proj v_proj o_proj"),
    ],
)
def test_servers_that_take_adapters_are_told_rank_and_modules(
    config: dict[str, int], modules: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    command = " ".join(server_command(SglangConfig(adapter_rank=24), tmp_path))
    assert f"--enable-lora --max-lora-rank 24 --lora-target-modules {modules}" in command
    assert "--enable-lora" not in server_command(SglangConfig(), tmp_path)
