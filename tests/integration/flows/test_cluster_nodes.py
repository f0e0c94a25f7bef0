"""Nodes of a real Ray cluster that have not joined yet, or lack what stages need: told before anything is computed.

The cluster is a process's own, so that it meets no other test's Ray: this file, run as a program, is that process.
"""

import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
HIDDEN = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"']
"""Runs a command where another, empty folder lies in the place of the first argument."""


def node(*place: str, sglang: str, command: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
    """Start a node on which SGLang is looked for in one folder."""
    started = [*command, str(Path(sys.executable).with_name("ray")), "start", *place, "--num-cpus=1", "--block"]
    started += ["--node-ip-address=127.0.0.1", f"--object-store-memory={100 * 2**20}"]
    return subprocess.Popen(started, stdout=subprocess.DEVNULL, env={**os.environ, "KERNELMILL_SGLANG": sglang})


def kill(head: subprocess.Popen[bytes]) -> None:
    """Kill a node with its processes, as a machine that goes down does."""
    import psutil

    for each in (*psutil.Process(head.pid).children(recursive=True), psutil.Process(head.pid)):
        each.kill()
    head.wait()


NOTES: list[str] = []


def told(runs: Path, address: str, wait_s: float = 200, **settings: Any) -> str:
    """Return what is told of a run before it starts; "" if it may start. NOTES gets what is told of waiting."""
    from flows.checks import verify
    from flows.checks.nodes import check_cluster
    from flows.checks.result import Outcome
    from flows.settings.configuration import check_configuration
    from kernels_eval.errors import KernelmillError

    ray = {"address": address, "wait_s": wait_s, **settings.pop("ray")}
    config = check_configuration({"runs_dir": str(runs), "ray": ray, **settings}, "here")
    try:
        check_cluster(config, NOTES.append)
    except KernelmillError as error:
        found = str(error)
    else:
        found = ""
    if not wait_s:  # else it waits again
        said = verify.ray(config)
        assert said.found == found if found else said.outcome is Outcome.OK
    return found


def main(folder: Path) -> None:
    """Look at a cluster of one node, then of two, of which one lacks something."""
    address = f"127.0.0.1:{random.randrange(20_000, 30_000)}"
    runs, there = folder / "runs", folder / "there"
    runs.mkdir()
    (there / "sglang").mkdir(parents=True)
    served = {"rollout": {"engine": "sglang", "sglang": {"gpus_per_server": 0}}}
    nodes = [
        node(
            "--head", f"--port={address[10:]}", "--include-dashboard=false", '--resources={"worker": 1000}',
            sglang=str(there),
        )
    ]  # fmt: skip
    try:
        assert told(runs, address, ray={"nodes": 1}) == ""
        assert told(runs, address, 0, ray={}) == ""
        late = r"ray.address: node [0-9.]+: no answer within 1e-06 s \(ray.answer_timeout_s\)"
        assert re.fullmatch(late, told(runs, address, ray={"answer_timeout_s": 1e-6}))
        missing = "1 of 2 nodes have joined (ray.nodes)"
        assert told(runs, address, 0, ray={"nodes": 2}) == (
            f"ray.address: nothing to join within 0 s (ray.wait_s): {missing}."
        )
        nodes.append(node(f"--address={address}", sglang="/nowhere"))
        assert told(runs, address, ray={"nodes": 2}) == ""
        assert f"ray.address: {missing}: waiting for up to 200 s (ray.wait_s)" in NOTES
        assert told(runs, address, ray={}, update={"gpus_per_rank": 1, "ranks": 2}) == ""
        assert NOTES[-1] == "ray.address: found 0 GPUs, expected 2: stages wait until the cluster has them"
        lack = "rollout.engine: sglang: SGLang was not found in KERNELMILL_SGLANG=/nowhere"
        assert re.match(f"ray.address: node [0-9.]+: {lack}", told(runs, address, ray={}, **served))
        assert told(runs, address, ray={"worker_resource": "worker"}, **served) == ""
        if subprocess.run([*HIDDEN, str(runs), "true"], capture_output=True).returncode == 0:
            nodes.append(node(f"--address={address}", sglang=str(there), command=(*HIDDEN, str(runs))))
            lack = f"runs_dir: found no such folder as here at {runs}, expected one that all nodes share"
            assert re.fullmatch(f"ray.address: node [0-9.]+: {lack}", told(runs, address, ray={"nodes": 3}))
        assert list(runs.iterdir()) == []
    finally:
        for each in reversed(nodes):
            kill(each)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_cluster_is_looked_at_before_a_run(tmp_path: Path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_AUTH_MODE": "disabled", "RAY_worker_niceness": "0"}
    done = subprocess.run(
        [sys.executable, __file__, tmp_path], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=890
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
