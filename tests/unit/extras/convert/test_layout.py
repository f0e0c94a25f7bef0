"""Fused and divided weights, compared with loops over single rows."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from extras.convert.architecture import Architecture, Family
from extras.convert.layout import divide, fuse, join, pad_vocabulary, padded_vocabulary, split
from extras.convert.weights import Part, Weight, huggingface_names, shape_of, weights_of


@st.composite
def architectures(draw: st.DrawFn) -> Architecture:
    family = draw(st.sampled_from(list(Family)))
    groups = draw(st.sampled_from([1, 2, 4]))
    moe = family is Family.QWEN3_MOE
    return Architecture(
        family=family,
        layers=draw(st.integers(1, 3)),
        hidden=draw(st.sampled_from([8, 12])),
        intermediate=draw(st.sampled_from([8, 16])),
        heads=groups * draw(st.integers(1, 3)),
        key_value_heads=groups,
        head_dim=draw(st.sampled_from([2, 3])),
        vocabulary=draw(st.integers(3, 20)),
        tied=draw(st.booleans()),
        experts=4 if moe else 0,
        expert_intermediate=8 if moe else 0,
    )


def numbered(*shape: int) -> torch.Tensor:
    return torch.arange(torch.Size(shape).numel()).reshape(shape)


@given(architectures())
def test_queries_keys_and_values_go_by_groups(architecture: Architecture) -> None:
    head, heads, groups = architecture.head_dim, architecture.heads, architecture.key_value_heads
    queries, keys, values = (numbered(count * head, 5) + 10_000 * n for n, count in enumerate((heads, groups, groups)))
    rows: list[torch.Tensor] = []
    for group in range(groups):
        for query in range(heads // groups):
            first = (group * (heads // groups) + query) * head
            rows += [queries[first + row] for row in range(head)]
        rows += [keys[group * head + row] for row in range(head)]
        rows += [values[group * head + row] for row in range(head)]
    weight = Weight(Part.QKV, 0)
    fused = fuse(weight, architecture, [queries, keys, values])
    assert torch.equal(fused, torch.stack(rows))
    assert all(map(torch.equal, split(weight, architecture, fused), (queries, keys, values)))


@given(architectures(), st.sampled_from([1, 2, 4]))
def test_every_weight_survives_division_and_splitting(architecture: Architecture, ranks: int) -> None:
    for weight in weights_of(architecture):
        rows = padded_vocabulary(architecture.vocabulary, 1, ranks)
        whole = numbered(*shape_of(weight, architecture, rows))
        axis = weight.part.parallel_axis
        if axis is not None and whole.shape[axis] % (ranks * (2 if weight.part.is_gate_up else 1)):
            continue
        assert torch.equal(join(weight.part, divide(weight.part, whole, ranks)), whole)
        parts = split(weight, architecture, whole)
        assert len(parts) == len(huggingface_names(weight))
        back = fuse(weight, architecture, parts)
        assert torch.equal(pad_vocabulary(back, len(back)), whole[: len(back)])


def test_ranks_hold_their_share_of_gate_and_of_up() -> None:
    whole = numbered(8, 1)
    shares = divide(Part.GATE_UP, whole, 2)
    assert [share.flatten().tolist() for share in shares] == [[0, 1, 4, 5], [2, 3, 6, 7]]


@given(st.integers(1, 10_000), st.integers(1, 200), st.sampled_from([1, 2, 4, 8]))
def test_padding_is_the_next_multiple(vocabulary: int, divisor: int, ranks: int) -> None:
    rows = padded_vocabulary(vocabulary, divisor, ranks)
    assert rows % (divisor * ranks) == 0
    assert 0 <= rows - vocabulary < divisor * ranks
