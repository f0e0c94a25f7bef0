"""Runs that share GPUs wait for one another, on a real server's concurrency limit."""

import contextvars
import threading
import time

import pytest
from prefect import get_client
from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate

from flows.configuration import RunConfig, check_configuration
from flows.gpu_slots import LIMIT, GpuSlots

pytestmark = pytest.mark.usefixtures("server")


def asking(gpus: int) -> RunConfig:
    return check_configuration({"update": {"gpus_per_rank": 1.0, "ranks": gpus}}, "here")


@pytest.mark.slow
def test_a_run_waits_until_another_gives_its_slots_back():
    with get_client(sync_client=True) as client:
        client.create_global_concurrency_limit(GlobalConcurrencyLimitCreate(name=LIMIT, limit=3))
    try:
        first, second, third = GpuSlots(asking(2)), GpuSlots(asking(2)), GpuSlots(asking(1))
        first.take()
        first.take()  # a second stage: takes no more
        third.take()  # there is one left
        # A thread does not know by itself which server this one talks to.
        context = contextvars.copy_context()
        waiting = threading.Thread(target=context.run, args=(second.take,), daemon=True)
        waiting.start()
        time.sleep(1.0)
        assert waiting.is_alive()
        first.give_back()
        waiting.join(timeout=60)
        assert not waiting.is_alive()
        second.give_back()
        third.give_back()
    finally:
        with get_client(sync_client=True) as client:
            client.delete_global_concurrency_limit_by_name(LIMIT)


def test_without_a_limit_or_gpus_nobody_waits():
    for slots in (GpuSlots(asking(4)), GpuSlots(RunConfig())):
        slots.take()
        slots.give_back()
