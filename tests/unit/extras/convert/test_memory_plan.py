"""Memory of a conversion: a layer at a time, and the copies of its largest weight beside it."""

from typing import Any

from extras.convert.memory_plan import BASE_BYTES, plan_memory, steps_of
from extras.convert.weights import Part, Weight

EMBEDDING, OUTPUT = Weight(Part.EMBEDDING), Weight(Part.OUTPUT)
FIRST = [Weight(Part.QKV, 0), Weight(Part.EXPERT_DOWN, 0, 0), Weight(Part.EXPERT_DOWN, 0, 1)]
SECOND = [Weight(Part.QKV, 1)]


def test_files_are_kept_for_a_layer_and_not_between_weights_outside_of_layers() -> None:
    weights = [EMBEDDING, *FIRST, *SECOND, Weight(Part.FINAL_NORM), OUTPUT]
    assert list(steps_of(weights)) == [[EMBEDDING], FIRST, SECOND, [Weight(Part.FINAL_NORM)], [OUTPUT]]
    assert list(steps_of([])) == []


class Source:
    """A checkpoint of which reading a weight takes a tenth more than the weight."""

    shard_sets = (700, 900)

    def __init__(self, sizes: dict[Weight, int]) -> None:
        self._sizes = sizes
        self.releases = 0

    def read_bytes(self, weight: Weight) -> int:
        return self._sizes[weight] + self._sizes[weight] // 10

    def release(self) -> None:
        self.releases += 1


def test_the_largest_step_decides() -> None:
    written = {EMBEDDING: 100, FIRST[0]: 60, FIRST[1]: 50, FIRST[2]: 50, OUTPUT: 100}
    source: Any = Source(written)
    plan = plan_memory(source, written, copies=2)
    assert plan.weights == 360
    assert plan.working == max(110 + 2 * 100, (66 + 55 + 55) + 2 * 60)
    assert (plan.shard_set, plan.peak) == (900, plan.working + BASE_BYTES)
    assert source.releases == 3
    assert plan_memory(source, written, copies=0).working == 66 + 55 + 55
