"""Ray on this machine: it asks for a token, listens on loopback only, whoever imported it first, and leaves nothing."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("imported", ["before", "after"])
def test_a_local_cluster_has_a_token_and_no_open_port_and_leaves_no_folder(imported: str) -> None:
    command = [sys.executable, str(Path(__file__)), imported]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["token", "loopback", "removed"]


def test_a_start_that_takes_too_long_is_told_with_its_reason_and_the_setting() -> None:
    done = subprocess.run(
        [sys.executable, str(Path(__file__)), "hurried"], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("Ray did not start: "), done.stdout
    assert done.stdout.endswith(" (within ray.start_timeout_s = 2)\n"), done.stdout


def test_the_flows_do_not_import_ray() -> None:
    """It starts slowly, and reads its variables when it is imported."""
    code = "import sys, flows.training, flows.cli.main; print('ray' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "False", done.stderr[-2000:]


def hurried() -> None:
    """Print what is noted about a start whose node never answers."""
    import tempfile

    from ray._private import services

    from flows.capacity.planner import needs_of
    from flows.services.ray_cluster import RayCluster
    from flows.settings.configuration import check_configuration
    from kernels_eval.errors import InfrastructureError

    idle = Path(tempfile.mkdtemp()) / "raylet"
    idle.write_text("#!/bin/sh\nexec sleep 5\n")
    idle.chmod(0o755)
    services.RAYLET_EXECUTABLE = str(idle)
    config = check_configuration({"runs_dir": "/tmp", "ray": {"cpus": 1, "start_timeout_s": 2}}, "here")
    try:
        RayCluster(config.ray, needs_of(config)).start(print)
    except InfrastructureError:
        return
    print("started")


def main() -> None:
    sys.path.insert(0, str(ROOT))
    if sys.argv[1] == "hurried":
        return hurried()
    if sys.argv[1] == "before":
        import ray
    import os

    from flows.capacity.planner import needs_of
    from flows.services.ray_cluster import RayCluster
    from flows.settings.configuration import check_configuration

    config = check_configuration({"runs_dir": "/tmp", "ray": {"cpus": 1}}, "here")
    cluster = RayCluster(config.ray, needs_of(config))
    cluster.start()
    import ray

    assert ray.get(ray.remote(lambda: 1).remote()) == 1
    print("token" if os.environ["RAY_AUTH_MODE"] == "token" else "open")
    listening = {
        connection.laddr.ip
        for process in [psutil.Process(), *psutil.Process().children(recursive=True)]
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    print("loopback" if listening and listening <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"} else listening)
    folder = Path(ray._private.worker._global_node.get_session_dir_path())  # pyright: ignore
    assert folder.is_dir()
    cluster.stop()
    print("left" if folder.exists() else "removed")


if __name__ == "__main__":
    main()
