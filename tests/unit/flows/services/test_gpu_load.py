"""The sampler of GPUs, with a program in place of nvidia-smi."""

import time
from pathlib import Path

import pytest

from flows.services.gpu_load import GpuLoad


def sampled(load: GpuLoad) -> float:
    """Return the first mean that there is."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if (mean := load.take()) is not None:
            return mean
        time.sleep(0.02)
    raise AssertionError("no sample")


def with_program(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


def test_the_mean_is_of_all_gpus_since_the_last_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_program(tmp_path, monkeypatch, "printf '20\\n60\\n[N/A]\\n'; exec sleep 1000")
    with GpuLoad() as load:
        time.sleep(0.5)
        assert sampled(load) == pytest.approx(0.4)
        assert load.take() is None
        process = load._process
        assert process is not None
    assert process.poll() is not None


def test_a_program_that_fails_or_is_missing_gives_no_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_program(tmp_path, monkeypatch, "echo 'NVIDIA-SMI has failed'; exit 9")
    with GpuLoad() as load:
        time.sleep(0.3)
        assert load.take() is None
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with GpuLoad() as load:
        assert load.take() is None
