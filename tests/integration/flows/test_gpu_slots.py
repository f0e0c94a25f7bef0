"""Runs that share GPUs wait for one another, on a real server's concurrency limit."""

import contextvars
import os
import subprocess
import sys
import threading
import time

import pytest
from prefect import get_client
from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate

from flows.services.gpus import LIMIT, GpuSlots
from flows.services.prefect_server import PrefectServer
from flows.settings.configuration import RunConfig, check_configuration

HOLDER = """
import time
from flows.settings.configuration import check_configuration
from flows.services.gpus import GpuSlots
GpuSlots(check_configuration({"update": {"gpus_per_rank": 1.0, "ranks": 1}}, "here")).take()
print("taken", flush=True)
time.sleep(3600)
"""
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


@pytest.mark.slow
def test_a_holder_that_was_killed_loses_its_slots(server: PrefectServer):
    with get_client(sync_client=True) as client:
        client.create_global_concurrency_limit(GlobalConcurrencyLimitCreate(name=LIMIT, limit=1))
    environment = {**os.environ, "PREFECT_API_URL": server.api_url}
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], env=environment, stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"taken\n"
        holder.kill()
        slots = GpuSlots(asking(1))
        slots.take()  # once the lease has run out: pytest's own limit is for a hang
        slots.give_back()
    finally:
        holder.kill()
        holder.wait()
        with get_client(sync_client=True) as client:
            client.delete_global_concurrency_limit_by_name(LIMIT)


def test_without_a_limit_or_gpus_nobody_waits_or_is_warned(caplog: pytest.LogCaptureFixture):
    for slots in (GpuSlots(asking(4)), GpuSlots(RunConfig())):
        slots.take()
        slots.give_back()
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == []


def test_a_limit_made_later_does_not_hold_up_a_run_under_way():
    slots = GpuSlots(asking(4))
    slots.take()
    with get_client(sync_client=True) as client:
        client.create_global_concurrency_limit(GlobalConcurrencyLimitCreate(name=LIMIT, limit=1))
    try:
        slots.take()
    finally:
        with get_client(sync_client=True) as client:
            client.delete_global_concurrency_limit_by_name(LIMIT)
