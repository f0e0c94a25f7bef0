"""A small bundle made by uv and pip from their index, installed beside this Python's packages. Needs a package index."""

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

SMALL = {"cachetools", "typer", "jinja2", "tokenizers", "httpx", "packaging"}
"""Packages of the bundle; this Python has the others."""
WAIT_S = 280


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=WAIT_S, check=False)


def direct() -> set[str]:
    """Return what kernelmill's training extra requires by name."""
    lines = [Requirement(line) for line in metadata.requires("kernelmill") or ()]
    wanted = [line for line in lines if line.marker is None or line.marker.evaluate({"extra": "train"})]
    return {canonicalize_name(line.name) for line in wanted} - {"kernelmill"}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_bundle_for_this_python_installs_and_passes_its_self_test(tmp_path: Path):
    host = ",".join(sorted((direct() | {"fastapi", "uvicorn"}) - SMALL))
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    words = ("airgap", "build", "--python", python, "--host-has", host, "--part-size", "10MB", "--out")
    bundle, environment = tmp_path / "bundle", tmp_path / "venv"
    done = run(sys.executable, "-m", "flows.cli.main", *words, bundle)
    assert done.returncode == 0, done.stderr
    manifest = json.loads((bundle / "MANIFEST.json").read_text())
    packages = {canonicalize_name(name) for name in manifest["packages"]}
    assert SMALL | {"kernelmill", "httpcore"} <= packages
    assert not packages & {"torch", "ray", "prefect", "deepspeed", "sympy"}
    again = run(sys.executable, "-m", "flows.cli.main", *words, bundle)
    assert again.returncode == 0, again.stderr
    assert f"{len(packages)} of {len(packages)} wheels are there" in again.stdout
    done = run(sys.executable, bundle / "install.py", "--venv", environment)
    assert done.returncode == 0, done.stderr
    done = run(sys.executable, bundle / "selftest.py", "--venv", environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "✓ kernelmill --version" in done.stdout
