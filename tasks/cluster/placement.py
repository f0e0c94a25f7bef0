"""Placement of workers on the nodes of a Ray cluster: a placement group with one bundle for each node.

`ray.placement` names groups of kinds, e.g. `[[update, judge], [rollout]]`: kinds of one group share a node, kinds of
different groups never do. The needs of a group are reserved on its node before the first stage computes. An update too
large for any node is spread over several, which hold no other group. The name of the Ray placement group maps kinds to
bundles (`update=0,1 judge=0 rollout=2`): workers that start others look up their places there.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from kernels_eval.errors import InfrastructureError, InputError

Kind = Literal["update", "rollout", "judge"]
"""Ranks of the update and of SFT; the process that generates, with its SGLang servers; judge actors."""
_A_LITTLE_CPU = 0.001
"""A bundle cannot be empty."""
_OWN = {"CPU", "GPU", "memory", "object_store_memory"}
"""Ray's own resources; other names are custom resources of a cluster."""


@dataclass(frozen=True)
class Need:
    """Resources of the workers of one kind."""

    gpus: tuple[float, ...] = ()
    """GPUs of each worker."""
    cpus: float = 0.0
    """CPUs of all."""


@dataclass(frozen=True)
class Bundle:
    """Resources reserved on one node."""

    kinds: tuple[Kind, ...]
    resources: Mapping[str, float] = field(default_factory=dict[str, float])


def whole_gpus(shares: Sequence[float]) -> int:
    """Return how many GPUs these shares take; shares below one are packed onto GPUs first-fit, as Ray does."""
    whole = sum(math.ceil(share) for share in shares if share >= 1)
    free: list[float] = []
    for share in sorted((share for share in shares if 0 < share < 1), reverse=True):
        place = next((index for index, room in enumerate(free) if room >= share - 1e-9), None)
        if place is None:
            free.append(1.0 - share)
        else:
            free[place] -= share
    return whole + len(free)


def bundles_for(
    groups: Sequence[Sequence[Kind]],
    needs: Mapping[Kind, Need],
    nodes: Sequence[Mapping[str, float]],
    node_resource: Mapping[str, float] | None = None,
) -> list[Bundle]:
    """Return one bundle for each node that the groups take.

    nodes: total resources of each living node. node_resource: a small amount of the custom resource of nodes that
    stages may run on. Raises InputError if these nodes can never hold the bundles, one bundle a node.
    """
    most = max((node.get("GPU", 0.0) for node in nodes), default=0.0)
    bundles: list[Bundle] = []
    for group in groups:
        wanted = {kind: needs.get(kind, Need()) for kind in group}
        shares = [gpus for need in wanted.values() for gpus in need.gpus]
        parts = 1
        if tuple(group) == ("update",) and most >= max(shares, default=0.0) > 0:
            parts = next(
                count
                for count in range(1, len(shares) + 1)
                if whole_gpus(shares[: math.ceil(len(shares) / count)]) <= most
            )
        gpus = whole_gpus(shares[: math.ceil(len(shares) / parts)])
        resources = {"GPU": float(gpus), "CPU": sum(need.cpus for need in wanted.values())}
        resources = {name: amount for name, amount in resources.items() if amount} or {"CPU": _A_LITTLE_CPU}
        bundles += [Bundle(tuple(group), {**resources, **(node_resource or {})})] * parts
    unplaced = bundle_without_node(bundles, nodes)
    if unplaced is not None:
        found = "; ".join(_shown(node) for node in nodes) or "none"
        raise InputError(
            f"ray.placement: found {len(nodes)} node{'s' * (len(nodes) != 1)} ({found}), expected {len(bundles)}, "
            f"one of them for {' and '.join(unplaced.kinds)} alone ({_shown(unplaced.resources)})"
        )
    return bundles


def bundle_without_node(bundles: Sequence[Bundle], nodes: Sequence[Mapping[str, float]]) -> Bundle | None:
    """Return a bundle that no assignment gives a node (Kuhn's matching), or None if all bundles can be placed."""
    holder: dict[int, int] = {}

    def finds(number: int, tried: set[int]) -> bool:
        for index, node in enumerate(nodes):
            if index in tried or any(
                node.get(name, 0.0) < wanted for name, wanted in bundles[number].resources.items()
            ):
                continue
            tried.add(index)
            if index not in holder or finds(holder[index], tried):
                holder[index] = number
                return True
        return False

    return next((bundle for number, bundle in enumerate(bundles) if not finds(number, set())), None)


def _shown(resources: Mapping[str, float]) -> str:
    """Return a node's CPUs, GPUs and the names of its custom resources, as text."""
    named = [
        f"{amount:g} {name}" for name, amount in sorted(resources.items()) if name in ("CPU", "GPU") and amount >= 0.1
    ]
    custom = sorted(name for name in resources if name not in _OWN and ":" not in name)
    return ", ".join([*named, *custom]) or "any"


def living_nodes() -> list[dict[str, float]]:
    """Return the total resources of each node of the cluster that this process is connected to."""
    import ray

    return [dict(node["Resources"]) for node in ray.nodes() if node["Alive"]]


class Reservation:
    """The placement group of this driver: made once, released with the driver's Ray job at the latest."""

    def __init__(self, bundles: Sequence[Bundle], within_s: float) -> None:
        """Reserve the bundles. Raises InfrastructureError if others hold the resources for longer than `within_s`."""
        from ray.util.placement_group import placement_group

        kinds = dict.fromkeys(kind for bundle in bundles for kind in bundle.kinds)
        places = {kind: [str(index) for index, bundle in enumerate(bundles) if kind in bundle.kinds] for kind in kinds}
        name = " ".join(f"{kind}={','.join(found)}" for kind, found in places.items())
        self._group: Any = placement_group(
            [dict(bundle.resources) for bundle in bundles], strategy="STRICT_SPREAD", name=name
        )
        self._within_s = within_s
        try:
            self.wait()
        except InfrastructureError:
            self.remove()
            raise

    def wait(self) -> None:
        """Wait until every bundle has its node, also after one has died. Raises InfrastructureError on a timeout."""
        if not self._group.wait(self._within_s):
            raise InfrastructureError(
                f"ray.placement: no nodes were free for it within {self._within_s:g} s (ray.placement_timeout_s): "
                "others hold them, or one has died"
            )

    def remove(self) -> None:
        """Release the group; workers that are still in it end."""
        from ray.util.placement_group import remove_placement_group

        remove_placement_group(self._group)

    def options(self, kind: Kind, number: int, of: int) -> dict[str, Any]:
        """Return the options of an actor of this kind."""
        return _options(self._group, kind, number, of)


def options_in_worker(kind: Kind) -> dict[str, Any]:
    """Return the options of an actor that a worker starts: in this worker's own placement group, if it has one."""
    from ray.util.placement_group import get_current_placement_group

    group = get_current_placement_group()
    return {} if group is None else _options(group, kind, 0, 1)


def _options(group: Any, kind: Kind, number: int, of: int) -> dict[str, Any]:
    from ray.util.placement_group import placement_group_table
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    table: Any = placement_group_table(group)
    places = dict(entry.split("=") for entry in str(table["name"]).split())
    if kind not in places:
        return {}
    indices = [int(index) for index in places[kind].split(",")]
    index = indices[number * len(indices) // of]
    return {"scheduling_strategy": PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)}
