"""GPUs: those of this machine, and slots of the Prefect server by which runs share them.

A run holds as many slots of the global concurrency limit `kernelmill-gpus` as it uses GPUs, from its first computed
stage until it ends; a killed run loses them when its lease expires. Without such a limit no run waits. Create it with
the number of GPUs: `prefect gcl create kernelmill-gpus --limit 8`.
"""

import logging
import shutil
import subprocess
from contextlib import ExitStack

from flows.capacity.planner import gpus_of
from flows.settings.configuration import RunConfig

LIMIT = "kernelmill-gpus"
LEASE_S = 60.0
"""The shortest lease that Prefect allows."""
QUERY_TIMEOUT_S = 20
_LOGGER = logging.getLogger("kernelmill.gpu_slots")


def gpus_here() -> list[str]:
    """Return name, memory and driver of each GPU as `nvidia-smi` or `rocm-smi` lists them, without importing torch."""
    for command in (
        ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"],
        ["rocm-smi", "--showproductname", "--csv"],
    ):
        if shutil.which(command[0]) is None:
            continue
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=QUERY_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            continue
        lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
        if done.returncode == 0 and lines:
            return lines if command[0] == "nvidia-smi" else lines[1:]
    return []


def _is_limited() -> bool:
    """Return whether the Prefect server has the limit."""
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound

    with get_client(sync_client=True) as client:
        try:
            client.read_global_concurrency_limit_by_name(LIMIT)
        except ObjectNotFound:
            return False
    return True


class GpuSlots:
    """The slots of one run."""

    def __init__(self, config: RunConfig) -> None:
        self.wanted = gpus_of(config)
        self._held = ExitStack()
        self._has = False

    def take(self) -> None:
        """Wait until the slots are free, and hold them. Does nothing if they are held, or without a limit or a GPU."""
        if self._has or self.wanted == 0:
            return
        if _is_limited():  # without a limit Prefect would warn in every run's log
            from prefect.concurrency.sync import concurrency

            _LOGGER.info("waiting for %d slots of %s", self.wanted, LIMIT)
            self._held.enter_context(concurrency(LIMIT, occupy=self.wanted, lease_duration=LEASE_S))
        self._has = True

    def give_back(self) -> None:
        """Release the slots."""
        self._held.close()
        self._has = False
