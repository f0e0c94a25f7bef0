"""Operators of PyTorch in the interpreter process: their results, and the origins of what they wrote."""

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels_eval.interpreter.memory_accesses import Origin
from kernels_eval.interpreter.tensor_store import LEAST_GAP, ProgramError, TensorStore
from kernels_eval.trace.schema import FIRST_OWN, FIRST_WEIGHT, Operate, Plain, Sequence, TypeName, Upload, View

X, OUT, OTHER = 0, FIRST_OWN, FIRST_OWN + 1


def view(storage: int, *shape: int, dtype: str = "float32", offset: int = 0) -> View:
    strides = torch.empty(shape, device="meta").stride()
    return View(storage=storage, dtype=dtype, shape=shape, strides=strides, offset=offset)


def operate(name: str, *arguments: Any, result: View, overload: str = "default", **named: Any) -> Operate:
    return Operate(name=name, overload=overload, arguments=arguments, named=named, results=(result,))


@pytest.fixture
def store() -> TensorStore:
    made = TensorStore(strict=True)
    x = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    made.give(X, x, 24)
    return made


def counts(store: TensorStore, shown: View) -> dict[Origin, int]:
    return {Origin(index): count for index, count in enumerate(store.origin_counts(shown)) if count}


def kernel_writes(store: TensorStore, shown: View) -> None:
    store.origins(shown).fill_(int(Origin.KERNEL))


def test_inputs_are_used_in_place(store: TensorStore) -> None:
    assert store.tensor(view(X, 2, 3)).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert counts(store, view(X, 2, 3)) == {Origin.GIVEN: 6}


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float32", "float64", "float8_e5m2", "int8", "int32", "int64"]
)
def test_fresh_memory_holds_no_result_and_is_no_beginning_of_one(store: TensorStore, dtype: str) -> None:
    """A minimum, or a maximum, with an element shows in some of them."""
    values = fresh(store, dtype, 4)
    assert bool((values > 80).any())
    assert bool((values < -80).any())
    assert bool(values.isnan().any()) is values.dtype.is_floating_point
    assert counts(store, view(OUT, 4, dtype=dtype)) == {Origin.NOBODY: 4}


def test_fresh_memory_of_one_element_differs_from_call_to_call(store: TensorStore) -> None:
    values = torch.cat([fresh(store, "float32", 1) for _ in range(30)])
    assert [bool(each.any()) for each in (values.isnan(), values > 80, values < -80)] == [True] * 3


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("stride", [2, 3])
def test_no_stride_and_no_count_of_allocations_meets_one_kind_alone(dtype: str, stride: int) -> None:
    made = [TensorStore(True, order) for order in range(8)]
    first = [fresh(store, dtype, 192) for store in made]
    kinds = 3 if dtype == "float32" else 2
    assert all(len(values[::stride].nan_to_num(0.0).unique()) == kinds for values in first)
    assert len({float(values[0].nan_to_num(0.0)) for values in first}) > 1, "the seed decides"


def fresh(store: TensorStore, dtype: str, size: int) -> torch.Tensor:
    shape, result = Sequence(items=(Plain(value=size),)), view(OUT, size, dtype=dtype)
    store.operate(operate("empty", shape, result=result, overload="memory_format"))
    values = store.tensor(result)
    return values.double() if values.dtype.is_floating_point else values.clone()


def test_constants_are_filled_by_pytorch(store: TensorStore) -> None:
    store.operate(operate("zeros_like", view(X, 2, 3), result=view(OUT, 2, 3)))
    assert counts(store, view(OUT, 2, 3)) == {Origin.FILL: 6}


def test_a_copy_has_the_origins_of_its_source(store: TensorStore) -> None:
    store.operate(operate("zeros_like", view(X, 2, 3), result=view(OUT, 2, 3)))
    kernel_writes(store, view(OUT, 3))
    store.operate(operate("clone", view(OUT, 2, 3), result=view(OTHER, 2, 3)))
    assert counts(store, view(OTHER, 2, 3)) == {Origin.KERNEL: 3, Origin.FILL: 3}
    assert counts(store, view(OTHER, 3)) == {Origin.KERNEL: 3}


def test_a_plain_copy_of_an_input_is_given_and_a_conversion_is_moved(store: TensorStore) -> None:
    store.operate(operate("clone", view(X, 2, 3), result=view(OUT, 2, 3)))
    assert counts(store, view(OUT, 2, 3)) == {Origin.GIVEN: 6}
    half = view(OTHER, 2, 3, dtype="float16")
    store.operate(operate("_to_copy", view(X, 2, 3), result=half, dtype=TypeName(name="float16")))
    assert counts(store, half) == {Origin.MOVED: 6}
    assert store.tensor(half).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_concatenation_and_padding_move_origins_with_the_values(store: TensorStore) -> None:
    store.operate(operate("zeros_like", view(X, 2, 3), result=view(OUT, 2, 3)))
    kernel_writes(store, view(OUT, 2, 3))
    joined = view(OTHER, 4, 3)
    parts = Sequence(items=(view(X, 2, 3), view(OUT, 2, 3)))
    store.operate(operate("cat", parts, result=joined))
    assert store.origins(joined).tolist() == 2 * [3 * [Origin.MOVED]] + 2 * [3 * [Origin.KERNEL]]
    padded = view(OTHER + 1, 2, 4)
    sides = Sequence(items=(Plain(value=0), Plain(value=1)))
    store.operate(operate("constant_pad_nd", view(OUT, 2, 3), sides, Plain(value=9), result=padded))
    assert store.origins(padded).tolist() == 2 * [[*3 * [Origin.KERNEL], Origin.FILL]]
    assert store.tensor(padded).tolist() == 2 * [[0, 0, 0, 9]]


def test_computing_operators_are_the_librarys_or_refused(store: TensorStore) -> None:
    command = operate("mul", view(X, 2, 3), view(X, 2, 3), result=view(OUT, 2, 3), overload="Tensor")
    with pytest.raises(ProgramError, match=r"aten\.mul: the kernels have to compute this") as refused:
        store.operate(command)
    assert refused.value.category == "library_compute"
    mixed = TensorStore(strict=False)
    mixed.give(X, store.tensor(view(X, 2, 3)), 24)
    launch = mixed.operate(command)
    assert launch is not None
    assert mixed.tensor(view(OUT, 2, 3)).tolist() == [[0, 1, 4], [9, 16, 25]]
    assert counts(mixed, view(OUT, 2, 3)) == {Origin.LIBRARY: 6}


def test_a_result_takes_the_layout_that_the_program_names(store: TensorStore) -> None:
    turned = View(storage=OUT, dtype="float32", shape=(2, 3), strides=(1, 2))
    store.operate(operate("clone", view(X, 2, 3), result=turned))
    assert store.tensor(turned).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert store.tensor(view(OUT, 6)).tolist() == [0, 3, 1, 4, 2, 5]


def test_views_stay_inside_their_storage(store: TensorStore) -> None:
    with pytest.raises(ProgramError, match="reaches beyond its storage") as refused:
        store.tensor(view(X, 2, 3, offset=1))
    assert refused.value.category == "out_of_bounds"
    with pytest.raises(ProgramError, match="before it was made"):
        store.tensor(view(OTHER, 1))
    store.free((X,))
    with pytest.raises(ProgramError, match="before it was made"):
        store.tensor(view(X, 1))


def test_uploads_are_bytes_of_the_payload(store: TensorStore) -> None:
    payload = bytearray(8) + bytearray(torch.tensor([1.5, 2.5]).numpy().tobytes())
    store.upload(Upload(storage=OUT, start=8, size=8), payload)
    assert store.tensor(view(OUT, 2)).tolist() == [1.5, 2.5]
    with pytest.raises(ProgramError, match="uploads more than it sent"):
        store.upload(Upload(storage=OUT, start=8, size=9), payload)


def test_writes_to_weights_are_noticed(store: TensorStore) -> None:
    store.give(FIRST_WEIGHT, torch.ones(2), 8)
    assert not store.wrote_weights
    store.operate(operate("zero_", view(FIRST_WEIGHT, 2), result=view(FIRST_WEIGHT, 2)))
    assert store.wrote_weights


def test_operators_that_do_not_exist_are_refused(store: TensorStore) -> None:
    with pytest.raises(ProgramError, match="does not exist"):
        TensorStore(strict=False).operate(operate("nonsense", result=view(OUT, 1)))


@settings(max_examples=50, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["empty", "zeros", "upload", "free"]), st.integers(0, 30_000)),
        min_size=2,
        max_size=60,
    )
)
def test_memory_behind_a_storage_is_nobody_elses(steps: list[tuple[str, int]]) -> None:
    """An access past the end is out of bounds wherever the memory of others lies."""
    store, sizes = TensorStore(strict=True), dict[int, int]()
    for number, (kind, count) in enumerate(steps, start=FIRST_OWN):
        shape = Sequence(items=(Plain(value=count),))
        if kind == "upload":
            store.upload(Upload(storage=number, start=0, size=4 * count), bytearray(4 * count))
        elif kind == "free":
            store.free(tuple(sizes)[: count % 3])
            sizes = dict(list(sizes.items())[count % 3 :])
            continue
        else:
            result = view(number, count, dtype="float32")
            store.operate(
                operate(kind, shape, result=result, overload="memory_format" if kind == "empty" else "default")
            )
        sizes[number] = 4 * count
    places = sorted((store[number].base, size) for number, size in sizes.items() if size)
    for (start, size), (following, _) in itertools.pairwise(places):
        assert following >= start + size + LEAST_GAP


def test_what_pytorch_copied_of_a_kernels_result_may_hold_a_counter(store: TensorStore) -> None:
    written, kept = view(OUT, 3, dtype="int32"), view(OTHER, 3, dtype="int32")
    for each in (written, kept):
        shape = Sequence(items=(Plain(value=3),))
        store.operate(operate("zeros", shape, result=each, dtype=TypeName(name="int32")))
    kernel_writes(store, written)
    store.operate(operate("copy_", kept, written, result=kept))
    assert store.kept_values(1 << 10)[OTHER].dtype is torch.int32
