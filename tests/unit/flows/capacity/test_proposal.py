"""Configurations that `kernelmill init` proposes, and the command."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from flows.capacity.memory import GIB
from flows.capacity.planner import plan
from flows.capacity.proposal import Machine, Proposal, gpu_of, propose
from flows.capacity.speed import GPUS
from flows.checks.settings import check_settings
from flows.cli.main import run
from flows.settings.configuration import check_configuration, load_configuration
from flows.settings.shipped import configuration_names

CONFIGS = Path("deployments/configs")
CARDS = {"L4": 22.5, "RTX 4090": 24.0, "A100": 39.6, "L40S": 45.0, "H100": 79.6, "H200": 140.4}
H100 = ("NVIDIA H100 80GB HBM3", 79.6)


def proposed(cores: int, *gpus: tuple[str, float], memory: float = 64 * GIB) -> Proposal:
    return propose(Machine(cores, memory, gpus), CONFIGS)


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("cores", [8, 16, 64])
def test_what_is_proposed_for_a_gpu_fits_it(card: str, cores: int) -> None:
    found = proposed(cores, (card, CARDS[card]))
    assert found.base == "one-gpu.yaml"
    values = load_configuration(CONFIGS / found.base).model_dump(mode="json", exclude_unset=True)
    values["judge"] |= found.settings.get("judge", {})
    config = check_configuration(values, "proposal")
    check_settings(config)
    assert plan(config, replace(GPUS["h100"], memory_gib=CARDS[card])).fits


def test_a_large_gpu_has_more_workers_with_more_memory() -> None:
    assert proposed(16, H100).settings == {"judge": {"workers": 8, "device_memory_gb": 44.0}}
    assert proposed(14, H100).settings == {"judge": {"workers": 6, "device_memory_gb": 36.0}}
    assert proposed(12, H100).settings == {"judge": {"workers": 4, "device_memory_gb": 36.0}}
    assert proposed(16, ("L40S", 48.0)).settings == {"judge": {"workers": 4, "device_memory_gb": 24.0}}
    assert proposed(16, ("RTX 4090", 24.0)).settings == {}
    assert proposed(8, H100).settings == {}, "each worker needs a core, and its candidate another"


@pytest.mark.parametrize(
    ("cores", "gpus", "why"),
    [
        (16, (), "no NVIDIA GPU"),
        (16, (("T4", 15.0),), "needs one of 22 GiB, found 15"),
        (4, (H100,), "8 cores, found 4"),
    ],
)
def test_without_a_gpu_that_is_large_enough(cores: int, gpus: tuple[tuple[str, float], ...], why: str) -> None:
    found = proposed(cores, *gpus)
    assert found.base == "local.yaml"
    assert why in found.reasons[0]
    assert found.settings == {"judge": {"workers": cores}, "ray": {"cpus": None}}


def test_workers_are_limited_by_memory() -> None:
    assert proposed(2).settings == {}
    assert proposed(64, memory=16 * GIB).settings["judge"] == {"workers": 8}


def test_of_several_gpus_one_is_used_and_it_is_said() -> None:
    assert any("one of 8 GPUs" in reason for reason in proposed(64, *[H100] * 8).reasons)


@pytest.mark.parametrize(
    ("line", "gpu"),
    [
        ("NVIDIA H100 80GB HBM3, 81559 MiB, 580.159.04", ("NVIDIA H100 80GB HBM3", 81559 / 1024)),
        ("NVIDIA A10G, [N/A], 580.1", None),
        ("card0,Instinct MI300X", None),
        ("", None),
    ],
)
def test_lines_of_nvidia_smi(line: str, gpu: tuple[str, float] | None) -> None:
    assert gpu_of(line) == gpu


def test_the_command_writes_a_file_that_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.services.gpus.gpus_here", lambda: ["NVIDIA H100 80GB HBM3, 81559 MiB, 580.1"])
    monkeypatch.setattr("flows.checks.machine.cores_here", lambda: 16)
    file = tmp_path / "My Machine.yaml"
    assert run(["init", str(file)]) == 0
    config = load_configuration(file)
    assert (config.name, config.judge.workers, config.judge.device_memory_gb) == ("my-machine", 8, 44.0)
    assert yaml.safe_load(file.read_text())["extends"].endswith("one-gpu.yaml")
    assert "H100" in file.read_text().splitlines()[0]


def test_the_command_replaces_no_file_unasked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("name: mine\n")
    assert run(["init", str(file)]) == 2
    assert "run.yaml: exists" in capsys.readouterr().err
    assert file.read_text() == "name: mine\n"
    assert run(["init", str(file), "--force"]) == 0
    assert load_configuration(file).name == "run"


def test_the_command_outside_a_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["init"]) == 0
    assert "kernelmill train this-machine.yaml" in capsys.readouterr().out
    written = tmp_path / "this-machine.yaml"
    assert yaml.safe_load(written.read_text())["extends"] in configuration_names()
    assert load_configuration(written).name == "this-machine"
