"""Ray that dies under a run: its control process or raylet killed, a cluster that goes away and comes back.

Each case is a process of its own, so that it meets no other test's Ray: this file, run as a program, is that process.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]


def configured(**ray: Any) -> Any:
    from flows.settings.configuration import check_configuration

    return check_configuration({"runs_dir": "/tmp", "ray": ray}, "here")


def cluster_of(config: Any) -> Any:
    from flows.capacity.planner import needs_of
    from flows.services.ray_cluster import RayCluster

    return RayCluster(config.ray, needs_of(config))


def sleeper() -> Any:
    """A warm worker, as a stage has one."""
    import ray

    from tasks.cluster.workers import warm_worker

    @ray.remote(num_cpus=0)
    class Sleeper:
        def ping(self) -> bool:
            return True

        def sleep(self, seconds: float) -> float:
            time.sleep(seconds)
            return seconds

        def count(self) -> Iterator[int]:
            for number in range(10**6):
                time.sleep(0.01)
                yield number

    return warm_worker("sleeper", Sleeper)


def kill_ray(name: str) -> None:
    """Kill the process of this name that this process started."""
    import psutil

    (found,) = [each for each in psutil.Process().children() if Path(each.cmdline()[0]).name == name]
    os.kill(found.pid, signal.SIGKILL)
    while found.is_running() and found.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.05)


def killed_processes_are_replaced() -> None:
    from tasks.cluster.health import RayLostError, is_alive, results_of, wait_for_any

    cluster, notes = cluster_of(configured(cpus=1, object_store_mb=80)), list[str]()
    cluster.start(notes.append)  # before Ray is imported: it sets the token
    import ray

    for number, name in enumerate(("gcs_server", "raylet"), start=1):
        assert results_of([sleeper().sleep.remote(0.01)]) == [0.01]
        waiting = sleeper().sleep.remote(600)
        owned = ray.put(b"x" * 2**20)
        kill_ray(name)
        began = time.monotonic()
        with pytest.raises(RayLostError):
            results_of([waiting])
        assert time.monotonic() - began < 60
        assert not is_alive()
        del owned
        cluster.start(notes.append)
        assert notes == ["Ray has died: it is started again"] * number
    counting = sleeper().count.options(num_returns="streaming").remote()
    ray.get(next(wait_for_any([counting])[0]))
    kill_ray("raylet")  # a worker goes on for some seconds: it is not waited for
    with pytest.raises(RayLostError):
        any(ray.get(next(wait_for_any([counting])[0])) < 0 for _ in range(10**6))
    cluster.start(notes.append)
    kill_ray("raylet")  # between two stages: nobody is waiting
    cluster.start(notes.append)
    assert results_of([sleeper().sleep.remote(0.01)]) == [0.01]
    assert len(notes) == 4
    cluster.stop()


def two_threads_that_wait_lose_ray_once() -> None:
    """The first to find it dead closes the connection when the other has found it too, and Ray starts again once."""
    from tasks.cluster.health import RayLostError, results_of
    from tasks.cluster.workers import warm_worker

    cluster, notes = cluster_of(configured(cpus=2, object_store_mb=80)), list[str]()
    cluster.start(notes.append)
    import ray

    starting, found, waiting = threading.Lock(), list[float](), threading.Barrier(3)

    @ray.remote(num_cpus=0)
    class Napping:
        def ping(self) -> bool:
            return True

        def sleep(self, seconds: float) -> float:
            time.sleep(seconds)
            return seconds

    def stage(name: str) -> None:
        nap = warm_worker(name, Napping).sleep.remote(600)
        waiting.wait(120)
        with pytest.raises(RayLostError):
            results_of([nap])
        with starting:
            cluster.start(notes.append)
        found.extend(results_of([warm_worker(name, Napping).sleep.remote(0.01)]))

    lanes = [threading.Thread(target=stage, args=(name,)) for name in ("one", "other")]
    for lane in lanes:
        lane.start()
    waiting.wait(120)
    time.sleep(1.0)  # both are inside Ray's wait
    kill_ray("raylet")
    for lane in lanes:
        lane.join(240)
    assert found == [0.01, 0.01]
    assert notes == ["Ray has died: it is started again"]
    cluster.stop()


def a_failing_start_is_one_line() -> None:
    from kernels_eval.errors import InfrastructureError

    os.environ["RAY_TMPDIR"] = __file__  # a file: no folder can be made below it
    with pytest.raises(InfrastructureError, match=r"^Ray did not start: [^\n]+$") as raised:
        cluster_of(configured(cpus=1, object_store_mb=80)).start()
    assert raised.value.can_heal


def head_at(port: int) -> subprocess.Popen[bytes]:
    """Start a cluster of one node there."""
    command = [
        str(Path(sys.executable).with_name("ray")),
        "start",
        "--head",
        f"--port={port}",
        "--num-cpus=1",
        "--block",
    ]
    command += ["--node-ip-address=127.0.0.1", "--include-dashboard=false", f"--object-store-memory={100 * 2**20}"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def kill_all(head: subprocess.Popen[bytes]) -> None:
    """Kill a head with its processes, as a machine that goes down does."""
    import psutil

    for each in (*psutil.Process(head.pid).children(recursive=True), psutil.Process(head.pid)):
        each.kill()
    head.wait()


def a_cluster_is_waited_for() -> None:
    os.environ["RAY_AUTH_MODE"] = "disabled"
    from flows.services.ray_cluster import RayUnavailableError
    from tasks.cluster.health import results_of

    port = random.randrange(20_000, 30_000)  # of those that no other process is given by chance
    heads, notes = [head_at(port)], list[str]()
    patient = cluster_of(configured(address=f"127.0.0.1:{port}", wait_s=200))
    try:
        patient.start(notes.append)  # the head needs some seconds
        assert results_of([sleeper().sleep.remote(0.01)]) == [0.01]
        kill_all(heads[0])
        notes.clear()

        def come_back() -> None:
            while len(notes) < 2:
                time.sleep(0.1)
            heads.append(head_at(port))

        threading.Thread(target=come_back).start()
        patient.start(notes.append)
        assert results_of([sleeper().sleep.remote(0.01)]) == [0.01]
        assert notes[0] == "Ray has died: joining again"
        assert notes[1].startswith(f"ray.address: 127.0.0.1 port {port}: ")
        assert notes[1].endswith(": waiting for up to 200 s (ray.wait_s)")
        patient.stop()
    finally:
        for head in heads[1:]:
            kill_all(head)
    with pytest.raises(RayUnavailableError, match=r"nothing to join within 3 s \(ray.wait_s\): 127.0.0.1 ") as raised:
        cluster_of(configured(address="127.0.0.1:9", wait_s=3)).start(notes.append)
    assert not raised.value.can_heal


def a_control_process_that_dies_while_ray_starts_ends_the_driver() -> None:
    import psutil

    def kill_once_it_has_begun() -> None:
        while True:
            for each in psutil.Process().children():
                with suppress(psutil.Error):
                    if Path(each.cmdline()[0]).name == "gcs_server":
                        time.sleep(1.0)
                        each.kill()
                        return
            time.sleep(0.01)

    if os.environ.get("KERNELMILL_TEST_DIES"):
        threading.Thread(target=kill_once_it_has_begun, daemon=True).start()
        cluster_of(configured(cpus=1, object_store_mb=80)).start()
        return
    command = [sys.executable, __file__, a_control_process_that_dies_while_ray_starts_ends_the_driver.__name__]
    environment = {**os.environ, "KERNELMILL_TEST_DIES": "1"}
    began = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Ray's control process died while Ray started" in done.stderr or "Ray did not start: " in done.stderr
    assert time.monotonic() - began < 120


CASES = [
    a_control_process_that_dies_while_ray_starts_ends_the_driver,
    killed_processes_are_replaced,
    two_threads_that_wait_lose_ray_once,
    a_failing_start_is_one_line,
    a_cluster_is_waited_for,
]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", [case.__name__ for case in CASES])
def test(case: str):
    run = subprocess.run(
        [sys.executable, __file__, case], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    assert "Raylet is terminated" not in run.stdout + run.stderr


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    from flows.services.environment import set_defaults

    set_defaults()
    next(case for case in CASES if case.__name__ == sys.argv[1])()
