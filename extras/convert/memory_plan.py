"""Memory of a conversion, planned from shapes and types before anything is read.

A conversion goes through the weights of one layer after the other and unmaps the files in between. In memory at a time
are the shares and chunks of the layer that was read, the whole weight that is made of them, and the tensors that are
cut from it, beside Python and PyTorch themselves (`BASE_BYTES`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from extras.convert.formats import Format, Source
from extras.convert.weights import Weight

Progress = Callable[[int, int], None]
"""Called with the number of weights written and of all."""
COPIES = {Format.HUGGINGFACE: 1, Format.TORCH_DIST: 2, Format.MP_RANK: 2}
"""Copies of a weight beside the one that was read: cut or padded; serialised by `torch.save`, or mapped."""
BASE_BYTES = 500 * 2**20
"""Resident memory of the command beside the weights; measured: 300 to 430 MiB."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes of a conversion."""

    weights: int
    """All weights, as they are written."""
    working: int
    """Most bytes of weights that are in memory at a time."""
    shard_set: int
    """Largest set of files with the same layers: what a converter that loads shards whole would hold."""

    @property
    def peak(self) -> int:
        """Planned resident memory of the process."""
        return self.working + BASE_BYTES


def plan_memory(source: Source, weights: Mapping[Weight, int], copies: int) -> MemoryPlan:
    """Plan a conversion of these weights, given by the bytes of each as it is written.

    `copies`: of a weight at a time, while it is rearranged and written (`COPIES`, and one more for another type).
    """
    working = 0
    for step in steps_of(weights):
        read = sum(source.read_bytes(weight) for weight in step)
        working = max(working, read + copies * max(weights[weight] for weight in step))
        source.release()
    return MemoryPlan(sum(weights.values()), working, max(source.shard_sets))


def steps_of(weights: Iterable[Weight]) -> Iterator[list[Weight]]:
    """Yield the weights between two releases: those of a layer, or a single one outside the layers."""
    step: list[Weight] = []
    for weight in weights:
        if step and (weight.layer is None or weight.layer != step[-1].layer):
            yield step
            step = []
        step.append(weight)
    if step:
        yield step
