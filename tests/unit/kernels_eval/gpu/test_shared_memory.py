"""Slots, guards and poison of the memory that tensors pass through."""

from itertools import pairwise

import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.gpu.shared_memory import ALIGNMENT, GUARD_BYTES, POISON, lay_out, view
from kernels_eval.sandbox.tensor_bytes import TensorForm

forms = st.builds(
    TensorForm,
    dtype=st.sampled_from(["float32", "float16", "int64", "bool"]),
    shape=st.lists(st.integers(0, 9), max_size=3).map(tuple),
)


@given(
    st.lists(st.one_of(forms, st.integers()), max_size=4), st.lists(st.integers(0, 5000), max_size=3), st.integers(1, 5)
)
def test_slots_are_apart(inputs: list[TensorForm | int], outputs: list[int], calls: int) -> None:
    layout = lay_out(inputs, outputs, calls)
    spans: list[tuple[int, int]] = []
    for slots in layout.calls:
        for value, offset in zip(inputs, slots.inputs, strict=True):
            assert (offset is None) == isinstance(value, int)
            if isinstance(value, TensorForm) and offset is not None:
                spans.append((offset, offset + value.nbytes))
        spans += [(offset, offset + size) for offset, size in zip(slots.outputs, outputs, strict=True)]
    assert all(start % ALIGNMENT == 0 for start, _ in spans)
    assert all(start >= GUARD_BYTES and end + GUARD_BYTES <= layout.nbytes for start, end in spans)
    ordered = sorted(spans)
    assert all(end + GUARD_BYTES <= start for (_, end), (start, _) in pairwise(ordered))


def test_poison_is_no_number() -> None:
    memory = torch.full((4096,), POISON, dtype=torch.uint8)
    for name in ("float16", "bfloat16", "float32", "float64"):
        form = TensorForm(dtype=name, shape=(2, 3))
        assert bool(view(memory, form, 512).isnan().all())
    assert bool((view(memory, TensorForm(dtype="int32", shape=(4,)), 512) == -1).all())


def test_a_view_is_no_copy() -> None:
    memory = torch.zeros(4096, dtype=torch.uint8)
    view(memory, TensorForm(dtype="float32", shape=(2, 2)), 1024).fill_(1.0)
    assert int(memory.count_nonzero()) == 8
    assert int(memory[1024:1040].count_nonzero()) == 8
