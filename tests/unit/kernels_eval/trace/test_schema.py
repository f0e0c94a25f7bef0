"""Messages of the tracing process: a program is read as sent; at whatever place it is malformed, it is refused."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kernels_eval.trace.schema import TRACING_ANSWER, Descriptor, Plain, Sequence, TraceAnswer, TypeName, View, views_in

VIEW = {"kind": "view", "storage": 0, "dtype": "float32", "shape": [4, 8], "strides": [8, 1], "offset": 0}
PROGRAM: dict[str, Any] = {
    "kind": "trace",
    "kernels": [
        {
            "number": 0,
            "name": "add",
            "source": "def add(x): pass",
            "line": 7,
            "globals": {
                "tl": {"kind": "module", "name": "triton.language"},
                "load": {"kind": "language", "name": "load"},
                "BLOCK": {"kind": "constexpr", "value": {"kind": "plain", "value": 128}},
                "helper": {"kind": "kernel", "kernel": 1},
            },
        }
    ],
    "commands": [
        {"kind": "upload", "storage": 1 << 21, "start": 0, "size": 64},
        {
            "kind": "operate",
            "name": "empty",
            "overload": "memory_format",
            "arguments": [{"kind": "sequence", "items": [{"kind": "plain", "value": 4}]}],
            "named": {"dtype": {"kind": "dtype", "name": "float32"}},
            "results": [VIEW, None],
        },
        {
            "kind": "launch",
            "kernel": 0,
            "arguments": {
                "x": VIEW,
                "d": {
                    "kind": "descriptor",
                    "base": VIEW,
                    "shape": [4, 8],
                    "strides": [8, 1],
                    "block_shape": [2, 8],
                    "padding": "nan",
                },
            },
            "grid": [4, 1, 1],
            "options": {"num_warps": 4},
            "line": 12,
        },
        {"kind": "free", "storages": [1 << 21]},
    ],
    "structure": "*",
    "outputs": [{"view": VIEW, "type": "Tensor"}],
}
Place = tuple[str | int, ...]


def places(value: Any, here: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yield every value inside a message with the way to it."""
    yield here, value
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from places(item, (*here, key))


def changed(place: Place, value: Any) -> dict[str, Any]:
    """Return the program with another value at one place."""
    program = copy.deepcopy(PROGRAM)
    target: Any = program
    for key in place[:-1]:
        target = target[key]
    target[place[-1]] = value
    return program


PLACES = [(place, value) for place, value in places(PROGRAM) if place]
OBJECTS = [
    place
    for place, value in PLACES
    if isinstance(value, dict) and place[-1] not in ("globals", "named", "arguments", "options")
]
NUMBERS = [
    place for place, value in PLACES if type(value) is int and place[-2:] not in ((0, "value"), ("value", "value"))
]
SIZES = [place for place in NUMBERS if "options" not in place]
KINDS = [place for place, _ in PLACES if place[-1] == "kind"]
NAMES = [place for place, _ in PLACES if place[-1] in ("name", "overload", "dtype") and isinstance(place[-1], str)]
NO_NUMBER = st.none() | st.text(alphabet="abc", max_size=3) | st.lists(st.integers(), max_size=2) | st.floats(0.1, 0.9)


def refused(message: Any) -> None:
    with pytest.raises(ValidationError):
        TRACING_ANSWER.validate_python(message)


def test_a_program_is_read_as_it_was_sent() -> None:
    answer = TRACING_ANSWER.validate_python(PROGRAM)
    assert isinstance(answer, TraceAnswer)
    again = TRACING_ANSWER.validate_json(answer.model_dump_json())
    assert again == answer
    launch: Any = answer.commands[2]
    assert launch.storages == {0}
    assert launch.grid == (4, 1, 1)
    assert len(OBJECTS) > 15
    assert len(NUMBERS) > 25


@given(st.sampled_from(OBJECTS))
def test_no_object_has_a_field_that_is_not_declared(place: Place) -> None:
    refused(changed((*place, "pointer"), 1))


@given(st.sampled_from(NUMBERS), NO_NUMBER)
def test_no_number_is_anything_else(place: Place, value: Any) -> None:
    refused(changed(place, value))


@given(st.sampled_from(SIZES), st.integers(max_value=-1) | st.integers(min_value=(1 << 40) + 1))
def test_numbers_and_sizes_are_possible_ones(place: Place, value: int) -> None:
    refused(changed(place, value))


@given(st.sampled_from(KINDS), st.text(max_size=12) | st.none() | st.integers())
def test_a_kind_is_one_of_those_declared(place: Place, kind: Any) -> None:
    if kind not in {value for found, value in PLACES if found[-1] == "kind"}:
        refused(changed(place, kind))


@given(
    st.sampled_from(OBJECTS),
    st.none() | st.integers() | st.text(max_size=5) | st.lists(st.none(), min_size=1, max_size=2),
)
def test_an_object_is_an_object(place: Place, value: Any) -> None:
    if value is None and place[-1] in ("view", 0):  # an output that is no tensor
        return
    refused(changed(place, value))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("commands", 1, "name"), "__class__.__mro__"),
        (("commands", 1, "name"), "add\n"),
        (("commands", 1, "overload"), ""),
        (("commands", 1, "arguments"), [{"kind": "plain", "value": 1}] * 65),
        (("commands", 1, "results"), [None] * 257),
        (("commands", 2, "grid"), [1, 1]),
        (("commands", 2, "arguments", "not an identifier"), VIEW),
        (("commands", 2, "options", "num warps"), 4),
        (("commands", 2, "arguments", "d", "padding"), "one"),
        (("commands", 2, "arguments", "x", "dtype"), "object"),
        (("commands", 2, "arguments", "x", "shape"), [1] * 17),
        (("commands", 3, "storages"), [1] * 100_001),
        (("commands",), [{"kind": "free", "storages": []}] * 20_001),
        (("kernels", 0, "source"), "x" * 200_001),
        (("kernels", 0, "line"), 0),
        (("kernels", 0, "name"), "add()"),
        (("kernels", 0, "globals", "tl"), {"kind": "module", "name": "os"}),
        (("kernels", 0, "globals", "load"), {"kind": "language", "name": "load", "module": "builtins"}),
        (("kernels", 0, "globals", "BLOCK"), {"kind": "constexpr", "value": {"kind": "kernel", "kernel": 0}}),
        (("kernels", 0, "globals", "x"), VIEW),
        (("structure",), "*" * 20_001),
        (("outputs",), [{"type": "int"}] * 257),
        (("outputs", 0, "type"), "T" * 101),
    ],
)
def test_whatever_could_reach_further_is_refused(place: Place, value: Any) -> None:
    refused(changed(place, value))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["kind", "view", "a"]), inner, max_size=3)
        ),
        max_leaves=8,
    )
)
def test_arbitrary_values_are_refused_and_nothing_else_happens(value: Any) -> None:
    refused(value)


VIEWS = st.integers(0, 4).flatmap(
    lambda rank: st.tuples(
        st.lists(st.integers(0, 4), min_size=rank, max_size=rank),
        st.lists(st.integers(0, 9), min_size=rank, max_size=rank),
        st.integers(0, 20),
    )
)


@given(VIEWS)
def test_a_views_elements_are_those_of_pytorchs(form: tuple[list[int], list[int], int]) -> None:
    shape, strides, offset = form
    view = View(storage=0, dtype="float32", shape=tuple(shape), strides=tuple(strides), offset=offset)
    elements = torch.arange(1000).as_strided(shape, strides, offset)
    assert view.numel == elements.numel()
    assert view.reach == (int(elements.max()) + 1 if elements.numel() else offset)
    if elements.numel() > elements.unique().numel():
        assert view.is_expanded


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.randoms(use_true_random=False), st.integers(1, 3))
def test_a_permuted_part_of_a_tensor_contains_no_element_twice(shape: list[int], random: Any, step: int) -> None:
    order = list(range(len(shape)))
    random.shuffle(order)
    part = torch.empty(shape).permute(order)[::step]
    view = View(
        storage=0, dtype="float32", shape=tuple(part.shape), strides=part.stride(), offset=part.storage_offset()
    )
    assert not view.is_expanded


def test_views_are_found_in_lists_and_descriptors() -> None:
    one, two = (View(storage=number, dtype="int8", shape=(2,), strides=(1,)) for number in (1, 2))
    descriptor = Descriptor(base=two, shape=(2,), strides=(1,), block_shape=(2,))
    inner = Sequence(items=(Plain(value=3), descriptor, TypeName(name="int8")))
    assert views_in(Sequence(items=(one, inner, one))) == [one, two, one]
    assert views_in(Plain(value=None)) == []
