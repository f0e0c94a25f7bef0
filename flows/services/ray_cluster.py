"""Ray for one run, from the driver: a local cluster, or the one that `ray.address` names.

Token authentication is Ray's own (RAY_AUTH_MODE, RAY_AUTH_TOKEN), with the same token on every node. A local cluster
listens on loopback only, and gets a random token unless the environment sets one: its ports allow running any code.
"""

import logging
import math
import os
import secrets
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from flows.services.gpus import gpus_here
from flows.services.ray_start import ending_if_control_dies, waiting_for_node
from flows.settings.configuration import RayConfig
from kernels_eval.doors import sources_here
from kernels_eval.errors import InfrastructureError, InputError, first_line
from tasks.cluster.health import is_alive, leave
from tasks.cluster.placement import Bundle, Kind, Need, bundles_for, living_nodes

CONNECT_TIMEOUT_S = 2.0
RETRY_S = 2.0
"""Interval of the attempts to join a cluster that does not answer."""
LOOPBACK_ONLY = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Environment variable: if "0", Ray assumes a single machine and listens on loopback only."""


Note = Callable[[str], None]
"""Shows one line to the person who started the run."""


class RayUnavailableError(InfrastructureError):
    """A cluster did not answer for as long as a run waits; another attempt would only wait once more."""

    can_heal = False


def check_address(config: RayConfig) -> None:
    """Raise InputError if `ray.address` cannot be reached. Ray itself would wait for two minutes."""
    failure = unanswered(config)
    if failure is not None:
        raise InputError(f"ray.address: found {config.address!r}, expected a Ray cluster that answers there: {failure}")


def unanswered(config: RayConfig) -> str | None:
    """Return why `ray.address` cannot be reached, or None if it can. Raises InputError if it is no address."""
    if config.address is None or config.address in ("auto", "local"):
        return None
    text = config.address if "://" in config.address else f"ray-head://{config.address}"
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port or (10001 if parts.scheme == "ray" else 6379)
        if not host:
            raise ValueError("no host")
    except ValueError as error:
        raise InputError(f"ray.address: found {config.address!r}, expected host:6379 or ray://host:10001") from error
    try:
        socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S).close()
    except OSError as error:
        return f"{host} port {port}: {error.strerror or error}"
    return None


def shipped_packages() -> list[str]:
    """Return our packages and the modules of the current folder that settings name: nodes run the driver's code."""
    root = Path(__file__).parents[2]
    return [str(root / name) for name in ("flows", "extras", "tasks", "kernels_eval")] + list(map(str, sources_here()))


def check_placement(config: RayConfig, needs: Mapping[Kind, Need]) -> None:
    """Raise InputError if `ray.placement` names what there is not, or if a local Ray that is started can never hold it.

    Ray would wait for ever. A cluster is asked once it has been joined: see `RayCluster.bundles`.
    """
    if "judge" in {kind for group in config.placement for kind in group} and not needs["judge"].gpus:
        raise InputError(
            "ray.placement: judge: there are no judge actors (rollout.judge_actors.count is 0): "
            "the process that generates judges itself"
        )
    if config.address is not None:
        return
    if _is_initialized():
        RayCluster(config, needs).bundles()
        return
    if len(config.placement) > 1:
        raise InputError(
            f"ray.placement: {len(config.placement)} groups want a node each, a local Ray is one node; "
            "name a cluster in ray.address, or put the kinds into one group"
        )
    here = {"CPU": float(config.cpus or os.cpu_count() or 1), "GPU": float(len(gpus_here()))}
    bundles_for(config.placement, needs, [here])


def _is_initialized() -> bool:
    return "ray" in sys.modules and sys.modules["ray"].is_initialized()


class RayCluster:
    """Ray of one run: started before the first computed stage, ended with the run."""

    def __init__(self, config: RayConfig, needs: Mapping[Kind, Need]) -> None:
        self.config = config
        self.needs = needs
        self._started = False
        # Linux ends Ray's processes with the thread that started them: that of a stage may end before the run.
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="ray-start")
        self._folder: Path | None = None
        """Folder of logs and sockets of a local cluster that this object started."""

    def start(self, note: Note = lambda _text: None) -> None:
        """Start or join, and reserve the resources of `ray.placement`; a later call starts anew if Ray has died.

        `note` is called with a line about everything unusual. Raises RayUnavailableError if a cluster does not answer
        within `ray.wait_s`, InfrastructureError if a local Ray does not start.
        """
        if threading.current_thread() is threading.main_thread():
            self._start(note)
        else:
            self._starter.submit(self._start, note).result()

    def _start(self, note: Note) -> None:
        if self._started and not is_alive():
            note("Ray has died: it is started again" if self.config.address is None else "Ray has died: joining again")
            leave()
        self.join(note)
        if self.config.placement:
            from tasks.cluster.workers import reserve

            reserve(self.bundles, self.config.placement_timeout_s)

    def join(self, note: Note = lambda _text: None) -> bool:
        """Start or join; return True if this call did. Does nothing if Ray is initialised in this process already."""
        if _is_initialized():
            return False
        if self.config.address is None:
            try:
                self._folder = _start_local(self.config)
            except InfrastructureError as error:
                note(str(error))  # the stage is tried again, and shows nothing of that
                raise
        else:
            self._join_within(time.monotonic() + self.config.wait_s, note)
            from tasks.cluster.workers import place_on

            place_on(self.config.worker_resource)
        is_alive()  # finds this node's raylet while it lives
        self._started = True
        return True

    def _join_within(self, deadline: float, note: Note) -> None:
        """Join the cluster as soon as it answers and has the nodes that are expected."""
        said, limit = False, f"{self.config.wait_s:g} s (ray.wait_s)"
        while True:
            failure = self._join_once()
            if failure is None:
                return
            if time.monotonic() >= deadline:
                leave()
                raise RayUnavailableError(f"ray.address: nothing to join within {limit}: {failure}.")
            if not said:
                note(f"ray.address: {failure}: waiting for up to {limit}")
                said = True
            time.sleep(RETRY_S)

    def _join_once(self) -> str | None:
        """Join the cluster; return why that was impossible, or which nodes are missing, or None."""
        if not _is_initialized():
            failure = unanswered(self.config)
            if failure is not None:
                return failure
            try:
                _initialize(address=self.config.address, runtime_env={"py_modules": shipped_packages()})
            except InfrastructureError as error:
                return str(error)
        found, expected = len(living_nodes()), self.config.nodes or 1
        return f"{found} of {expected} nodes have joined (ray.nodes)" if found < expected else None

    def bundles(self) -> list[Bundle]:
        """Return the bundles to reserve on the living nodes. Raises InputError if they can never hold them."""
        from tasks.cluster.workers import NODE_SHARE

        mark = {self.config.worker_resource: NODE_SHARE} if self.config.worker_resource else None
        return bundles_for(self.config.placement, self.needs, living_nodes(), mark)

    def stop(self, keep_logs: bool = False) -> None:
        """End the run's workers, and Ray if this object started it.

        Logs of a local Ray are removed unless it died or `keep_logs`: each leaves 0.6 MB among temporary files.
        """
        try:
            self._stop(keep_logs)
        finally:
            self._starter.shutdown(wait=False)

    def _stop(self, keep_logs: bool) -> None:
        if not _is_initialized():
            return
        from tasks.cluster.workers import release, stop_workers

        in_order = is_alive()
        if in_order:
            stop_workers()
            release()
        if self._started:
            leave()
            self._started = False
            if in_order and not keep_logs and self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)


def _start_local(config: RayConfig) -> Path:
    """Start a local cluster; return the folder of its logs and sockets."""
    os.environ.setdefault(LOOPBACK_ONLY, "0")
    if "RAY_AUTH_MODE" not in os.environ:
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    if "ray" in sys.modules:
        _read_variables_again()
    os.environ.setdefault("RAY_gcs_server_port_wait_time_s", f"{math.ceil(config.start_timeout_s)}")
    context = _initialize(
        patience_s=config.start_timeout_s,
        address="local",
        num_cpus=config.cpus or os.cpu_count(),
        object_store_memory=config.object_store_mb * 2**20,
        include_dashboard=False,
    )
    return Path(context.address_info["session_dir"])


def _read_variables_again() -> None:
    """Have Ray read the variables set here, which it read when it was imported: by the caller's own code, perhaps."""
    from ray._private import ray_constants
    from ray._raylet import Config  # pyright: ignore[reportAttributeAccessIssue]

    ray_constants.ENABLE_RAY_CLUSTER = os.environ[LOOPBACK_ONLY] != "0"
    Config.initialize("")


def _initialize(patience_s: float | None = None, **options: Any) -> Any:
    """Call `ray.init` and return its context. Raises InfrastructureError with the first line of what went wrong.

    `patience_s`: longest wait for the processes of a local Ray.
    """
    handler = signal.getsignal(signal.SIGTERM)
    import ray

    if threading.current_thread() is not threading.main_thread():
        logging.getLogger("ray._private.worker").setLevel(logging.ERROR)  # it warns that it leaves SIGTERM alone
    try:
        with ending_if_control_dies(), nullcontext() if patience_s is None else waiting_for_node(patience_s):
            return ray.init(log_to_driver=False, configure_logging=False, **options)
    except Exception as error:  # Ray raises a plain Exception if a node does not start in time
        ray.shutdown()
        limit = "" if patience_s is None else f" (within ray.start_timeout_s = {patience_s:g})"
        raise InfrastructureError(f"Ray did not start: {first_line(error)}{limit}") from error
    finally:
        with suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGTERM, handler)  # Ray's own prints its stack and aborts
