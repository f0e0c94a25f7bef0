"""Sends artifacts to Prefect's server from a thread of the driver, in their order: a stage never waits for the server.

An artifact that cannot be sent waits until the server answers again. What is left when the process ends is lost.
"""

import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx

if TYPE_CHECKING:
    from prefect.artifacts import Artifact
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.actions import ArtifactCreate

RETRY_S = 1.0
PATIENCE_S = 10.0
"""Longest wait at the end of a run for what is still to be sent."""
INTERRUPTED_S = 0.3
"""The same after Ctrl-C."""
_LOGGER = logging.getLogger("kernelmill.artifacts")


@dataclass(frozen=True)
class _Waiting:
    action: "Callable[[SyncPrefectClient], object]"
    description: str | None
    api_url: str | None


_waiting: deque[_Waiting] = deque()
_changed = threading.Condition()
_threads: list[threading.Thread] = []


def send(artifact: "Artifact") -> None:
    """Have an artifact of the current task run or flow run sent. Returns at once."""
    request = _request(artifact)
    _enqueue(_Waiting(lambda client: client.create_artifact(request), artifact.description, _api_url()))


class ProgressBar:
    """A bar of the current task run, which appears when it is first moved. A position that is overtaken is not sent."""

    def __init__(self, key: str, label: str) -> None:
        from prefect.artifacts import ProgressArtifact

        self._request = _request(ProgressArtifact(key=key, description=label, progress=0.0))
        self._waiting = _Waiting(self._draw, label, _api_url())
        self._percent, self._is_queued = 0.0, False
        self._created: Any = None

    def move(self, percent: float) -> None:
        """Move it, from any thread. Returns at once."""
        self._percent = percent
        if not self._is_queued:
            self._is_queued = True
            _enqueue(self._waiting)

    def end(self) -> None:
        """Show it as complete, if it is shown."""
        if self._percent:
            self._percent = 100.0
            _enqueue(self._waiting)

    def _draw(self, client: "SyncPrefectClient") -> None:
        from prefect.client.schemas.actions import ArtifactUpdate

        if self._created is None:
            self._created = client.create_artifact(self._request.model_copy(update={"data": self._percent})).id
        else:
            client.update_artifact(self._created, ArtifactUpdate(data=self._percent))
        self._is_queued = False


def wait_until_sent(timeout_s: float = PATIENCE_S) -> int:
    """Wait until everything has been sent, or for the timeout. Returns the number of artifacts that are left."""
    with _changed:
        _changed.wait_for(lambda: not _waiting, timeout_s)
        return len(_waiting)


@contextmanager
def artifacts_sent() -> Generator[None]:
    """Wait at the end of the block until the artifacts have been sent, for `patience_s`."""
    try:
        yield
    finally:
        wait_until_sent(patience_s())


def patience_s() -> float:
    """Return the time that the end of a block may wait: `PATIENCE_S`, or hardly any after Ctrl-C. Call in `finally`."""
    ending = sys.exception()
    return PATIENCE_S if ending is None or isinstance(ending, Exception) else INTERRUPTED_S


def _request(artifact: "Artifact") -> "ArtifactCreate":
    """Return what is sent of an artifact, with the runs that it belongs to."""
    from prefect.client.schemas.actions import ArtifactCreate
    from prefect.utilities.context import get_task_and_flow_run_ids

    task_run_id, flow_run_id = get_task_and_flow_run_ids()
    return ArtifactCreate(
        key=artifact.key,
        type=artifact.type,
        description=artifact.description,
        data=artifact.format(),
        flow_run_id=flow_run_id,
        task_run_id=task_run_id,
    )


def _api_url() -> str | None:
    from prefect.settings import PREFECT_API_URL

    return PREFECT_API_URL.value()


def _enqueue(waiting: _Waiting) -> None:
    with _changed:
        _waiting.append(waiting)
        if not (_threads and _threads[0].is_alive()):
            _threads[:] = [threading.Thread(target=_work, name="prefect-artifacts", daemon=True)]
            _threads[0].start()
        _changed.notify_all()


def _work() -> None:
    while True:
        with _changed:
            _changed.wait_for(lambda: bool(_waiting))
            first = _waiting[0]
        if _is_taken(first):
            with _changed:
                _waiting.popleft()
                _changed.notify_all()
        else:
            time.sleep(RETRY_S)


def _is_taken(waiting: _Waiting) -> bool:
    """Send to the server; return False if it cannot be reached. What it refuses is logged."""
    from prefect.client.orchestration import get_client
    from prefect.exceptions import PrefectHTTPStatusError
    from prefect.settings import PREFECT_API_URL, temporary_settings

    try:
        with ExitStack() as opened:
            try:
                opened.enter_context(temporary_settings({PREFECT_API_URL: waiting.api_url}))
                client = opened.enter_context(get_client(sync_client=True))
            except KeyError:  # it reads the environment: a variable may go meanwhile
                return False
            waiting.action(client)
    except httpx.TransportError:
        return False
    except (httpx.HTTPError, PrefectHTTPStatusError) as error:
        _LOGGER.warning("%s: Prefect's server did not take an artifact: %s", waiting.description, error)
    return True
