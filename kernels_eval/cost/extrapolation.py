"""Extension of counts from two leading sizes at which a candidate was run to the full size, at which it was not."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from kernels_eval.cost.launch import SECTOR_ELEMENTS, Launch, Operation

_COUNTS = (
    "programs", "dram_bytes", "l2_bytes", "written_bytes", "again_bytes", "reread_bytes", "given_bytes",
    "most_accesses", "most_reductions", "most_turns", "contention", "same_address", "largest_index", "asked_bytes",
)  # fmt: skip
_TRAFFIC = (*_COUNTS[1:], "reread_reach", "lane_bytes", "lone_share", "busy_share", "operations", "blocks", "is_copy")


def extrapolate(
    small: Sequence[Launch],
    large: Sequence[Launch],
    m1: int,
    m2: int,
    m: int,
    true: Sequence[Launch] = (),
    given: Sequence[int] = (),
) -> list[Launch]:
    """Extend counts at leading sizes m1 < m2 to the full size m; every count is affine in the leading size.

    Launches are paired in order where both runs made the same ones; otherwise (a host loop over rows) the totals are
    extended and shared out over the extended number of launches.

    A kernel that does more at m1 than it has to would flatten the line. If the launches at the full size are known
    (`true`, and `given`, the bytes that each is passed and that no kernel made), no count is below an extension of the
    m2 run alone: each program does what one did there, and each row moves what one moved there, except for reads of
    tensors whose size does not depend on the leading size.
    """

    def at(first: float, second: float) -> float:
        slope = (second - first) / (m2 - m1)
        return max(second + slope * (m - m2), 0.0)

    def combined(first: Launch, second: Launch, share: float) -> Launch:
        counts = {name: at(getattr(first, name), getattr(second, name)) / share for name in _COUNTS}
        counts["reread_reach"] = max(at(first.reread_reach, second.reread_reach), second.reread_reach)
        # A few rows fill a sector in part: the more there are, until it is full, the more meet there.
        counts["contention"] = min(counts["contention"], SECTOR_ELEMENTS * counts["same_address"])
        operations = _merged(first.operations, second.operations, lambda before, after: at(before, after) / share)
        blocks = {
            shape: _merged(first.blocks.get(shape, {}), block, lambda before, after: at(before, after) / share)
            for shape, block in second.blocks.items()
        }
        shared = {"is_copy": first.is_copy and second.is_copy, "grid": None}
        return second.model_copy(update={**counts, **shared, "operations": operations, "blocks": blocks})

    if [launch.kernel for launch in small] == [launch.kernel for launch in large]:
        estimated = [combined(first, second, 1.0) for first, second in zip(small, large, strict=True)]
        if len(true) != len(large) or len(given) != len(large):
            return estimated
        return [_at_least(*each, m / m2) for each in zip(estimated, large, true, given, strict=True)]
    count = max(1, round(at(len(small), len(large))))
    return [combined(_sum(small), _sum(large), count)] * count


def with_full_grids(estimated: Sequence[Launch], grids: Sequence[Launch]) -> list[Launch]:
    """Replace estimated numbers of programs by those that the candidate launches at the full size, as traced.

    `grids`: the same launches in the same order, with programs and argument types of the full size but no traffic
    (kernels), or counted in full (operators of PyTorch). Other launches are left as estimated.
    """
    if [launch.kernel for launch in estimated] != [launch.kernel for launch in grids]:
        return list(estimated)
    return [
        grid if grid.dram_bytes else grid.model_copy(update={name: getattr(launch, name) for name in _TRAFFIC})
        for launch, grid in zip(estimated, grids, strict=True)
    ]


def with_traffic(launches: Sequence[Launch], counted: Sequence[Launch]) -> list[Launch]:
    """Return launches with the traffic and the operations of the same launches as counted elsewhere."""
    return [
        launch.model_copy(update={name: getattr(other, name) for name in _TRAFFIC})
        for launch, other in zip(launches, counted, strict=True)
    ]


def with_least_work(launches: Sequence[Launch], counted: Sequence[Launch], factor: float) -> list[Launch]:
    """Return launches with `factor` times the reads and operations of the same launches as counted, if that is more."""
    return [
        launch.model_copy(
            update={
                "l2_bytes": max(launch.l2_bytes, factor * other.l2_bytes),
                "asked_bytes": max(launch.asked_bytes, factor * other.asked_bytes),
                "operations": _merged(
                    launch.operations, {name: factor * count for name, count in other.operations.items()}, max
                ),
            }
        )
        for launch, other in zip(launches, counted, strict=True)
    ]


def _at_least(estimated: Launch, counted: Launch, true: Launch, given: int, rows: float) -> Launch:
    """Raise an estimate to the extension of one run alone. `rows`: the full size over the size of that run."""
    least = _extended(counted, true, given, rows)
    return estimated.model_copy(
        update={
            "dram_bytes": max(estimated.dram_bytes, least.dram_bytes),
            "l2_bytes": max(estimated.l2_bytes, least.l2_bytes),
            "asked_bytes": max(estimated.asked_bytes, least.asked_bytes),
            "reread_bytes": max(estimated.reread_bytes, least.reread_bytes),
            "contention": max(estimated.contention, counted.contention),
            "operations": _merged(estimated.operations, least.operations, max),
            "blocks": {
                shape: _merged(estimated.blocks.get(shape, {}), block, max) for shape, block in least.blocks.items()
            },
        }
    )


def extend(counted: Sequence[Launch], m1: int, m: int, true: Sequence[Launch], given: Sequence[int]) -> list[Launch]:
    """Extend counts at one leading size to the full size m, where the launches at the full size are the same.

    Each program does what one did at m1, and each row moves what one moved there, except for reads of tensors whose
    size does not depend on the leading size. Less exact than `extrapolate`: what each launch does but once is extended.
    """
    return [_extended(*each, m / m1) for each in zip(counted, true, given, strict=True)]


def _extended(counted: Launch, true: Launch, given: int, rows: float) -> Launch:
    programs = true.programs / counted.programs if counted.programs else rows
    given_bytes = min(counted.given_bytes * rows, max(float(given), counted.given_bytes))
    made = (counted.dram_bytes - counted.given_bytes) * rows
    growing = (
        "written_bytes", "again_bytes", "reread_bytes", "contention", "same_address", "largest_index", "asked_bytes",
    )  # fmt: skip
    counts = {name: getattr(counted, name) * rows for name in growing}
    return counted.model_copy(
        update={
            **counts,
            "reread_reach": counted.reread_reach * max(1.0, rows / programs if programs else 1.0),
            "programs": true.programs,
            "dram_bytes": made + given_bytes,
            "given_bytes": given_bytes,
            "l2_bytes": counted.l2_bytes * programs,
            "operations": {name: count * programs for name, count in counted.operations.items()},
            "blocks": {
                shape: {name: count * programs for name, count in block.items()}
                for shape, block in counted.blocks.items()
            },
            "grid": None,
        }
    )


def _sum(launches: Iterable[Launch]) -> Launch:
    total = Launch(kernel="all", programs=0)
    for launch in launches:
        counts = {name: getattr(total, name) + getattr(launch, name) for name in _COUNTS}
        counts["reread_reach"] = max(total.reread_reach, launch.reread_reach)
        lone = total.lone_share * total.l2_bytes + launch.lone_share * launch.l2_bytes
        counts["lone_share"] = min(1.0, lone / counts["l2_bytes"]) if counts["l2_bytes"] else 0.0
        operations = _merged(total.operations, launch.operations, float.__add__)
        total = total.model_copy(update={**counts, "operations": operations})
    return total


def _merged(
    first: Mapping[Operation, float], second: Mapping[Operation, float], merge: Callable[[float, float], float]
) -> dict[Operation, float]:
    names: list[Operation] = [*first, *(name for name in second if name not in first)]
    return {name: merge(float(first.get(name, 0)), float(second.get(name, 0))) for name in names}
