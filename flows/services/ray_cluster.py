"""Ray for one run, from the driver: a local cluster, or the one that `ray.address` names.

Token authentication is Ray's own (RAY_AUTH_MODE, RAY_AUTH_TOKEN), with the same token on every node. A local cluster
listens on loopback only, and gets a random token unless the environment sets one: its ports allow running any code.
"""

import os
import secrets
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from flows.services.gpus import gpus_here
from flows.settings.configuration import RayConfig
from kernels_eval.errors import InputError
from tasks.cluster.placement import Bundle, Kind, Need, bundles_for, living_nodes

CONNECT_TIMEOUT_S = 2.0
LOOPBACK_ONLY = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Environment variable: if "0" when Ray is imported, Ray assumes a single machine and listens on loopback only."""


def check_address(config: RayConfig) -> None:
    """Raise InputError if `ray.address` cannot be reached. Ray itself would wait for two minutes."""
    if config.address is None or config.address in ("auto", "local"):
        return
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
        raise InputError(
            f"ray.address: found {config.address!r}, expected a Ray cluster that answers there: "
            f"{host} port {port}: {error.strerror or error}"
        ) from error


def our_packages() -> list[str]:
    """Return the folders of our packages, which are shipped to the nodes: they run the driver's code."""
    root = Path(__file__).parents[2]
    return [str(root / name) for name in ("flows", "tasks", "kernels_eval")]


def check_placement(config: RayConfig, needs: Mapping[Kind, Need]) -> None:
    """Raise InputError if the cluster can never satisfy `ray.placement`. Ray would wait for ever."""
    if "judge" in {kind for group in config.placement for kind in group} and not needs["judge"].gpus:
        raise InputError(
            "ray.placement: judge: there are no judge actors (rollout.judge_actors.count is 0): "
            "the process that generates judges itself"
        )
    cluster = RayCluster(config, needs)
    if config.address is None and not _is_initialized():
        if len(config.placement) > 1:
            raise InputError(
                f"ray.placement: {len(config.placement)} groups want a node each, a local Ray is one node; "
                "name a cluster in ray.address, or put the kinds into one group"
            )
        here = {"CPU": float(config.cpus or os.cpu_count() or 1), "GPU": float(len(gpus_here()))}
        bundles_for(config.placement, needs, [here])
        return
    joined = cluster.join()
    try:
        cluster.bundles()
    finally:
        if joined:
            cluster.stop()


def _is_initialized() -> bool:
    return "ray" in sys.modules and sys.modules["ray"].is_initialized()


class RayCluster:
    """Ray of one run: started before the first computed stage, ended with the run."""

    def __init__(self, config: RayConfig, needs: Mapping[Kind, Need]) -> None:
        self.config = config
        self.needs = needs
        self._started = False

    def start(self) -> None:
        """Start or join, and reserve the resources of `ray.placement`. Later calls only check the reservation."""
        self.join()
        if self.config.placement:
            from tasks.cluster.workers import reserve

            reserve(self.bundles)

    def join(self) -> bool:
        """Start or join; return True if this call did. Does nothing if Ray is initialised in this process already."""
        if _is_initialized():
            return False
        check_address(self.config)
        quiet: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
        if self.config.address is None:
            os.environ.setdefault(LOOPBACK_ONLY, "0")
            if "RAY_AUTH_MODE" not in os.environ:
                os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
            import ray

            ray.init(
                address="local",
                num_cpus=self.config.cpus or os.cpu_count(),
                object_store_memory=self.config.object_store_mb * 2**20,
                include_dashboard=False,
                **quiet,
            )
        else:
            import ray

            ray.init(address=self.config.address, runtime_env={"py_modules": our_packages()}, **quiet)
            from tasks.cluster.workers import place_on

            place_on(self.config.worker_resource)
        self._started = True
        return True

    def bundles(self) -> list[Bundle]:
        """Return the bundles to reserve on the living nodes. Raises InputError if they can never hold them."""
        from tasks.cluster.workers import NODE_SHARE

        mark = {self.config.worker_resource: NODE_SHARE} if self.config.worker_resource else None
        return bundles_for(self.config.placement, self.needs, living_nodes(), mark)

    def stop(self) -> None:
        """End the run's workers, and Ray if this object started it."""
        if "ray" not in sys.modules:
            return
        import ray

        from tasks.cluster.workers import release, stop_workers

        if not ray.is_initialized():
            return
        stop_workers()
        release()
        if self._started:
            ray.shutdown()
            self._started = False
