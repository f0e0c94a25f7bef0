"""Warm Ray actors: a process that has imported torch and holds a policy is kept for the next stage of the same driver.

Runs in the driver's process. Starting a worker takes about ten seconds. A dead worker is replaced. Workers end with the
driver's Ray job.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from tasks.cluster.placement import Bundle, Kind, Reservation

NODE_SHARE = 0.001
"""Amount of the custom resource of nodes for stages that a worker takes: many workers fit on one node."""
_ANSWER_S = 120.0
"""Time for a worker's sign of life, which waits for what it imports: up to a minute on a machine that is new to it."""
_workers: dict[str, Any] = {}
_used_by: dict[str, int] = {}
"""By worker: the thread that asked for it last."""
_node_resource: list[str] = []
_reservation: list[Reservation] = []


def place_on(resource: str | None) -> None:
    """Have workers started from now on run only on nodes that have this custom resource; None: on any node."""
    _node_resource[:] = [] if resource is None else [resource]


def reserve(bundles: Callable[[], Sequence[Bundle]], within_s: float) -> None:
    """Reserve places for workers started from now on; if reserved already, wait for them: a node may have died.

    Raises InfrastructureError if that takes longer than `within_s`.
    """
    if _reservation:
        _reservation[0].wait()
    else:
        _reservation.append(Reservation(bundles(), within_s))


def release() -> None:
    """Release what was reserved."""
    while _reservation:
        _reservation.pop().remove()


def placed(kind: Kind, number: int = 0, of: int = 1) -> dict[str, Any]:
    """Return the place of worker `number` of `of` as options of its actor; empty if nothing is reserved."""
    return _reservation[0].options(kind, number, of) if _reservation else {}


def warm_worker(name: str, actor_class: Any, **options: Any) -> Any:
    """Return the living actor of this name, or start one: `actor_class.options(**options).remote()`."""
    import ray
    from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError

    worker = _workers.get(name)
    _used_by[name] = threading.get_ident()
    if worker is not None:
        try:
            ray.get(worker.ping.remote(), timeout=_ANSWER_S)
            return worker
        except (RayActorError, ActorUnavailableError, GetTimeoutError):
            stop_worker(name)
    if _node_resource and "scheduling_strategy" not in options:
        options["resources"] = {**options.get("resources", {}), _node_resource[0]: NODE_SHARE}
    worker = actor_class.options(max_restarts=0, **options).remote()
    _workers[name] = worker
    return worker


def stop_worker(name: str) -> None:
    """Kill one worker, if there is one."""
    worker = _workers.pop(name, None)
    if worker is not None:
        import ray

        ray.kill(worker)


def forget_workers() -> None:
    """Forget every worker and the reservation, which went with their cluster."""
    _workers.clear()
    _reservation.clear()


def stop_workers(used_by: int | None = None) -> None:
    """Kill every worker of this driver, or those alone that this thread uses, by its identity."""
    for name in list(_workers):
        if used_by in (None, _used_by.get(name)):
            stop_worker(name)
