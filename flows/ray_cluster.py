"""Ray for one run: a local cluster, or the one that `ray.address` names.

Token authentication is Ray's own (RAY_AUTH_MODE, RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH in the environment). For a cluster
it must be the same on every node, or all that Ray says is that it failed to connect. A local cluster gets a token of its
own where the environment says nothing: its ports can be reached from the network, and who reaches them can run code.
"""

import os
import secrets
import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

from flows.configuration import RayConfig
from kernels_eval.errors import InputError

CONNECT_TIMEOUT_S = 2.0


def check_address(config: RayConfig) -> None:
    """Raise InputError where `ray.address` cannot be reached. Ray itself would wait for two minutes."""
    if config.address is None or config.address in ("auto", "local"):
        return
    text = config.address if "://" in config.address else f"ray-head://{config.address}"
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port or (10001 if parts.scheme == "ray" else 6379)
    except ValueError as error:
        raise InputError(f"ray.address: found {config.address!r}, expected host:6379 or ray://host:10001") from error
    if not host:
        raise InputError(f"ray.address: found {config.address!r}, expected host:6379 or ray://host:10001")
    try:
        socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise InputError(
            f"ray.address: found {config.address!r}, expected a Ray cluster that answers there: "
            f"{host} port {port}: {error.strerror or error}"
        ) from error


def our_packages() -> list[str]:
    """Return the folders of our packages: shipped to the nodes, so that they run the code that the driver runs."""
    root = Path(__file__).parents[1]
    return [str(root / name) for name in ("flows", "tasks", "kernels_eval")]


class RayCluster:
    """Ray as this run uses it: started with the first stage that computes, ended with the run."""

    def __init__(self, config: RayConfig) -> None:
        self.config = config
        self._started = False

    def start(self) -> None:
        """Start or join; does nothing the second time, or where the caller has initialised Ray himself."""
        if "ray" in sys.modules and sys.modules["ray"].is_initialized():
            return
        check_address(self.config)
        if self.config.address is None:
            if "RAY_AUTH_MODE" not in os.environ:
                os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
            import ray

            ray.init(
                address="local",
                num_cpus=self.config.cpus or os.cpu_count(),
                object_store_memory=self.config.object_store_mb * 2**20,
                include_dashboard=False,
                log_to_driver=False,
                configure_logging=False,
            )
        else:
            import ray

            ray.init(
                address=self.config.address,
                log_to_driver=False,
                configure_logging=False,
                runtime_env={"py_modules": our_packages()},
            )
            from tasks.workers import place_on

            place_on(self.config.worker_resource)
        self._started = True

    def stop(self) -> None:
        """End the run's workers, and Ray where this object started it."""
        if "ray" not in sys.modules:
            return
        import ray

        from tasks.workers import stop_workers

        if not ray.is_initialized():
            return
        stop_workers()
        if self._started:
            ray.shutdown()
            self._started = False
