"""Device files of GPUs, found by the driver's list of them."""

from pathlib import Path

import pytest

from kernels_eval.gpu.device import gpu_files
from kernels_eval.gpu.device.gpu_files import file_of, files_of_others

INFORMATION = """Model: \t\t NVIDIA H100 80GB HBM3
IRQ:   \t\t 192
GPU UUID: \t GPU-{uuid}
Bus Location: \t 0000:{bus}:00.0
Device Minor: \t {minor}
GPU Excluded:\t No
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of three GPUs, of which the driver lists two; their numbers are not in the order of the buses."""
    for bus, uuid, minor in (("18", "aa", 1), ("2a", "bb", 0)):
        folder = tmp_path / "gpus" / f"0000:{bus}:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(INFORMATION.format(uuid=uuid, bus=bus, minor=minor))
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / "dev" / name).touch()
    monkeypatch.setattr(gpu_files, "_GPUS", tmp_path / "gpus")
    monkeypatch.setattr(gpu_files, "_DEVICES", tmp_path / "dev")
    return tmp_path / "dev"


def test_the_file_is_the_one_with_the_gpus_minor_number(machine: Path) -> None:
    assert file_of("GPU-aa") == str(machine / "nvidia1")
    assert file_of("GPU-bb") == str(machine / "nvidia0")
    assert file_of("GPU-cc") is None


def test_files_of_all_other_gpus_and_none_of_the_driver(machine: Path) -> None:
    assert files_of_others("GPU-aa") == [str(machine / "nvidia0"), str(machine / "nvidia2")]


def test_nothing_is_known_of_a_gpu_that_the_driver_does_not_list(machine: Path) -> None:
    assert machine.exists()
    assert files_of_others("0") == files_of_others("") == []


def test_a_machine_without_a_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_files, "_GPUS", tmp_path / "none")
    assert file_of("GPU-aa") is None
    assert files_of_others("GPU-aa") == []
