"""Events of a run, among them the states of its stages: kept until Prefect's server takes them.

Prefect itself gives them up after about eight seconds without a server.
"""

from collections.abc import Generator
from contextlib import contextmanager

RECONNECTIONS = 600
"""Attempts to connect again, one a second: a busy machine needs a minute or two to start a server."""


@contextmanager
def events_kept(api_url: str | None) -> Generator[None]:
    """Have the events of the block sent to this server, also if it is away for minutes."""
    from prefect.events.clients import PrefectEventsClient
    from prefect.events.worker import EventsWorker

    if api_url is None:
        yield
        return
    EventsWorker.set_client_override(PrefectEventsClient, api_url=api_url, reconnection_attempts=RECONNECTIONS)
    try:
        yield
    finally:
        EventsWorker.set_client_override(None)
