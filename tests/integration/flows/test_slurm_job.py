"""The Slurm job: real Ray on two nodes by the job's own script; doubles of Slurm's commands, which few machines have.

Both nodes lie on this machine. `kernelmill` is a double as well: it joins the cluster, tells what it finds, and waits to
be ended, as a run does.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "deployments/ray/slurm.sh"
SRUN = """#!/bin/bash
# Runs a step: what follows the options. As Slurm does, it takes SIGTERM to the step's processes.
echo "$@" >> steps
while [[ $1 == -* ]]; do shift; done
exec "$@"
"""
RUN = """#!{python}
import json, os, signal, sys, time
import ray
settings = dict(text.split("=", 1) for text in sys.argv[1:] if "=" in text)
ray.init(address=settings["ray.address"], log_to_driver=False)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
while len(ray.nodes()) < int(settings["ray.nodes"]):
    time.sleep(0.1)
found = {{"arguments": sys.argv[1:], "cpus": [node["Resources"].get("CPU") for node in ray.nodes()]}}
open("found.part", "w").write(json.dumps(found))
os.rename("found.part", "found.json")
time.sleep(600)
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A folder to submit from, with an environment whose commands are doubles where Slurm or a run is meant."""
    folder = tmp_path / ".venv/bin"
    folder.mkdir(parents=True)
    commands = {
        **{name: f'#!/bin/sh\nexec {Path(sys.executable).with_name(name)} "$@"\n' for name in ("ray", "python")},
        "srun": SRUN,
        "kernelmill": RUN.format(python=sys.executable),
        "squeue": "#!/bin/sh\ncat state\n",
        "scontrol": '#!/bin/sh\necho "$@" > requeued\n',
    }
    for name, text in commands.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return tmp_path


def ended(job: Path, state: str) -> subprocess.CompletedProcess[bytes]:
    """Start the job, end it as Slurm does as soon as the run works, and return it. `state`: what Slurm says of it."""
    (job / "state").write_text(state)
    environment = {
        **os.environ, "SLURM_JOB_ID": str(os.getpid()), "SLURM_JOB_NUM_NODES": "2", "SLURMD_NODENAME": "first",
        "SLURM_CPUS_ON_NODE": "3", "RAY_worker_niceness": "0", "RAY_DISABLE_DOCKER_CPU_WARNING": "1",
    }  # fmt: skip
    command = ["bash", str(SCRIPT), "my.yaml", "--set", "seed=1"]
    with (job / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=job, env=environment, stdout=log, stderr=log)
    try:
        while not (job / "found.json").exists():
            assert process.poll() is None, (job / "log").read_text()
            time.sleep(0.2)
        process.send_signal(signal.SIGTERM)  # as `--signal=B:TERM@300` asks for: to the script alone
        return subprocess.CompletedProcess(command, process.wait(300))
    finally:
        process.kill()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_job_at_its_time_limit_ends_its_run_and_is_queued_again(job: Path):
    assert ended(job, "RUNNING").returncode == 0
    assert (job / "requeued").read_text().split() == ["requeue", str(os.getpid())]
    found = json.loads((job / "found.json").read_text())
    assert found["cpus"] == [3.0, 3.0]
    assert found["arguments"][:3] == ["train", "--config", "my.yaml"]
    assert found["arguments"][-2:] == ["--set", "seed=1"]
    other, head, removal = sorted((job / "steps").read_text().splitlines())
    assert head.startswith("--nodes=1 --ntasks=1 --nodelist=first ray start")
    assert other.startswith("--nodes=1 --ntasks=1 --exclude=first ray start")
    assert not Path(removal.split()[-1]).exists()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_cancelled_job_is_not_queued_again(job: Path):
    assert ended(job, "COMPLETING").returncode == 143
    assert not (job / "requeued").exists()
