"""Health of Ray as the driver sees it, and waits for results that end if Ray is gone.

Ray's own calls wait for ever if its control process (GCS) is dead: nothing is left that could report a dead worker. If
this node's raylet dies, Ray ends the driver some 15 s later, when it misses the objects of the raylet's store. Hence
the connection is given up as soon as either is found dead. Stages of several threads may wait: the connection is closed
when none of them is inside Ray's own wait any more, and once, however many found it dead.
"""

import socket
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kernels_eval.errors import InfrastructureError
from tasks.cluster.workers import forget_workers

CHECK_S = 2.0
"""Interval of the checks in a wait, and the longest wait for a connection."""
LOST_AFTER_S = 10.0
"""Time of failed checks after which the control process counts as dead; the network may fail for less."""
LEAVE_WITHIN_S = 13.0
"""Longest wait for other threads to find Ray dead as well: some 2 s later Ray may end the driver."""
_RAYLET_DIED = "the raylet of this node died"
_raylets: dict[str, tuple[Path, str] | None] = {}
"""Command line of a node's raylet and the name of its socket, by the node's id; None if it cannot be seen from here."""
_changed = threading.Condition()
_waiting: list[int] = []
"""Threads that are inside Ray's wait."""
_leaving = threading.Lock()
_left: list[float] = []
"""Times at which a connection was closed."""


class RayLostError(InfrastructureError):
    """Ray itself is gone. The next attempt at the stage starts it again."""


def is_alive() -> bool:
    """Return True if Ray is connected, its control process answers and this node's raylet lives."""
    return _failure() is None


def wait_for_any(pending: Sequence[Any]) -> list[Any]:
    """Return those references or streams that have something, at least one. Raises RayLostError if Ray is gone."""
    connection = len(_left)
    with _inside():
        found = _ready_or_failure(pending)
    if not isinstance(found, str):
        return found
    _leave(connection)
    raise RayLostError(f"Ray is gone: {found}")


def _ready_or_failure(pending: Sequence[Any]) -> list[Any] | str:
    """Return those references or streams that have something, or what is wrong with Ray."""
    import ray

    alive_at = time.monotonic()
    while True:
        ready, _ = ray.wait(list(pending), num_returns=1, timeout=CHECK_S)
        if ready and not _raylet_died():  # processes of a dead raylet may go on until Ray ends the driver
            return ready
        failure = _RAYLET_DIED if ready else _failure()
        if failure is None:
            alive_at = time.monotonic()
        elif failure is _RAYLET_DIED or time.monotonic() - alive_at >= LOST_AFTER_S:
            return failure


@contextmanager
def _inside() -> Generator[None]:
    """Count this thread among those that wait inside Ray."""
    me = threading.get_ident()
    with _changed:
        _waiting.append(me)
    try:
        yield
    finally:
        with _changed:
            _waiting.remove(me)
            _changed.notify_all()


def results_of(references: Sequence[Any]) -> list[Any]:
    """Return the values of references. Raises what their tasks raised, or RayLostError if Ray is gone."""
    import ray

    return [ray.get(wait_for_any([reference])[0]) for reference in references]


def leave() -> None:
    """Disconnect from Ray, alive or dead, and forget its workers; a local one ends."""
    _leave(len(_left))


def _leave(connection: int) -> None:
    """Disconnect if this connection, by its number, is still the present one: another thread may have left it."""
    import ray

    with _leaving:
        if connection != len(_left):
            return
        with _changed:
            _changed.wait_for(lambda: not _waiting, LEAVE_WITHIN_S)
        forget_workers()
        ray.shutdown()
        _left.append(time.monotonic())


def _failure() -> str | None:
    """Return what is wrong with Ray, or None."""
    import ray
    from ray.exceptions import RayError
    from ray.util.client import ray as client

    if not ray.is_initialized():
        return "not connected"
    try:
        if client.is_connected():  # ray://: the nodes' ports cannot be reached from here
            return None if ray.nodes() else "no nodes"
        here = ray.get_runtime_context()
        host, _, port = here.gcs_address.rpartition(":")
        socket.create_connection((host, int(port)), timeout=CHECK_S).close()
        nodes = [node for node in ray.nodes() if node["Alive"] and node["NodeID"] == here.get_node_id()]
    except (OSError, RayError) as error:
        return f"its control process does not answer: {error}"
    if not nodes:
        return _RAYLET_DIED
    node = nodes[0]["NodeID"]
    if node not in _raylets:
        _raylets[node] = _find_raylet(nodes[0]["RayletSocketName"])
    return _RAYLET_DIED if _raylet_died() else None


def _raylet_died() -> bool:
    """Return True if the process of this node's raylet was seen once (in Linux' /proc) and has ended since."""
    import ray

    raylet = _raylets.get(ray.get_runtime_context().get_node_id())
    return raylet is not None and not _is_raylet(*raylet)


def _find_raylet(socket_name: str) -> tuple[Path, str] | None:
    lines = Path("/proc").glob("[0-9]*/cmdline")
    return next(((line, socket_name) for line in lines if _is_raylet(line, socket_name)), None)


def _is_raylet(command_line: Path, socket_name: str) -> bool:
    """Return True for the command line of the raylet at this socket; that of a zombie is empty."""
    try:
        program, *arguments = command_line.read_bytes().split(b"\0")
    except OSError:
        return False
    return program.endswith(b"/raylet") and any(argument.endswith(socket_name.encode()) for argument in arguments)
