"""A run whose store is on S3 is the run without it, and another machine has all of it from the store."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1500)]

CONFIG = Path("deployments/configs/test.yaml").resolve()
SMALL = [
    "iterations=1", "control=false", "problems.train=24", "problems.heldout=4", "problems.harder=0", "sft.steps=40",
    "sft.warmup_steps=5", "sft.data.compositions=24", "rollout.episode.reward=kernelbench - 0.2*length",
    "rollout.problems_per_iteration=4", "rollout.samples_per_problem=4",
]  # fmt: skip


@pytest.fixture
def on_s3() -> Iterator[dict[str, str]]:
    """Start an S3 server on this machine, and yield the environment that names it; `pip install s3fs 'moto[server]'`."""
    s3fs = pytest.importorskip("s3fs")
    server = pytest.importorskip("moto.server").ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    found = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "NO_PROXY": "*",
    }
    s3fs.S3FileSystem(key="test", secret="test", endpoint_url=found["AWS_ENDPOINT_URL"]).mkdir("bucket")
    yield found
    server.stop()


def train(folder: Path, environment: dict[str, str], *settings: str) -> str:
    """Run the loop with a folder of runs in this one, as on a machine of its own; return what it said."""
    named = [*SMALL, f"runs_dir={folder / 'runs'}", *settings]
    arguments = [sys.executable, "-m", "flows.cli.main", "train", "-c", str(CONFIG)]
    arguments += [part for setting in named for part in ("-s", setting)]
    ours = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
    ours |= {"PREFECT_HOME": str(folder / "prefect"), "COLUMNS": "200", **environment}
    done = subprocess.run(arguments, env=ours, capture_output=True, text=True, timeout=480)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def digests(folder: Path) -> dict[str, str]:
    """The digest of every artifact of the run, by its stage's label."""
    return json.loads((folder / "runs" / "latest" / "summary.json").read_text())["digests"]


def artifacts(folder: Path) -> dict[str, str]:
    """The manifest of every artifact, by its place in the folder of runs."""
    found = (folder / "runs" / "store").glob("*/*/manifest.json")
    return {str(manifest.relative_to(folder)): manifest.read_text() for manifest in found}


def computed(said: str) -> list[str]:
    return re.findall(r"^✓ (.+): [0-9.]+ s", said, flags=re.MULTILINE)


def test_with_a_store_on_s3_digests_are_those_of_a_run_without(tmp_path: Path, on_s3: dict[str, str]):
    alone, first, second = (tmp_path / name for name in ("alone", "first", "second"))
    store = "store=s3://bucket/kernelmill"
    assert computed(train(alone, {}))[-1] == "report"
    said = train(first, on_s3, store)
    assert "not stored" not in said
    assert {"problem set", "SFT data", "SFT", "rollout 0", "update 0", "evaluation of policy 1"} <= set(digests(alone))
    assert digests(first) == digests(alone)
    fetched = train(second, on_s3, store)
    assert computed(fetched) == ["report"], "it tells of its own run; all else is in the store"
    assert digests(second) == digests(alone)
    assert artifacts(second) == artifacts(first), "with what was measured"
    assert artifacts(second).keys() == artifacts(alone).keys()
