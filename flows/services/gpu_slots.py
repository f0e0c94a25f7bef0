"""GPU slots: runs that share GPUs wait for one another, by a global concurrency limit of the Prefect server.

A run holds as many slots of the limit `kernelmill-gpus` as it takes GPUs, from its first stage that computes until it ends: its warm
workers keep their GPUs between stages. Where the server has no such limit nobody waits. A holder that was killed loses its
slots when its lease runs out. Make the limit with the number of GPUs that there are:

    prefect gcl create kernelmill-gpus --limit 8
"""

import logging
from contextlib import ExitStack

from flows.capacity.planner import gpus_of
from flows.settings.configuration import RunConfig

LIMIT = "kernelmill-gpus"
LEASE_S = 60.0
"""The least that Prefect allows."""
_LOGGER = logging.getLogger("kernelmill.gpu_slots")


class GpuSlots:
    """The slots of one run."""

    def __init__(self, config: RunConfig) -> None:
        self.wanted = gpus_of(config)
        self._held = ExitStack()
        self._has = False

    def take(self) -> None:
        """Wait until the slots are free, and hold them; does nothing the second time, or where the run takes no GPU."""
        if self._has or self.wanted == 0:
            return
        from prefect.concurrency.sync import concurrency

        _LOGGER.info("waiting for %d slots of %s", self.wanted, LIMIT)
        self._held.enter_context(concurrency(LIMIT, occupy=self.wanted, lease_duration=LEASE_S))
        self._has = True

    def give_back(self) -> None:
        """Let others have them."""
        self._held.close()
        self._has = False
