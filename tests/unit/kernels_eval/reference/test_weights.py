"""Correspondence of a candidate's parameters and buffers with the reference's, and other values for constant ones."""

import copy

import pytest
import torch
import torch.nn as nn
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.reference.weights import (
    Form,
    add_noise,
    constant_buffers,
    given_weights,
    in_float64,
    is_constant,
    match_weights,
    structured_parameters,
    varied,
    vary_parameters,
)
from kernels_eval.sandbox.messages import StateAnswer

WANTED = {
    "norm.weight": torch.arange(8.0),
    "norm.bias": torch.arange(8.0) + 10,
    "linear.weight": torch.arange(32.0).reshape(4, 8),
    "steps": torch.tensor(3),
}


def state(**forms: tuple[int, ...]) -> dict[str, Form]:
    return {name.replace("__", "."): ("float32", shape) for name, shape in forms.items()}


def test_names_come_first() -> None:
    match = match_weights(WANTED, state(norm__bias=(8,), norm__weight=(8,), linear__weight=(4, 8)))
    assert match.names == {name: name for name in ("norm.weight", "norm.bias", "linear.weight")}
    assert match.missing == ("steps",)


def test_the_last_part_of_a_name_comes_before_the_order() -> None:
    match = match_weights(WANTED, state(bias=(8,), weight=(8,)))
    assert match.names == {"norm.weight": "weight", "norm.bias": "bias"}


def test_shape_and_order_decide_where_names_say_nothing() -> None:
    match = match_weights(WANTED, {**state(a=(4, 8), b=(8,), c=(8,)), "n": ("int64", ())})
    assert match.names == {"norm.weight": "b", "norm.bias": "c", "linear.weight": "a", "steps": "n"}
    assert match.missing == ()


@pytest.mark.parametrize("form", [("float32", (8, 4)), ("int64", (4, 8)), ("?", (4, 8)), ("float32", (32,))])
def test_other_shapes_and_kinds_do_not_match(form: Form) -> None:
    assert match_weights({"linear.weight": WANTED["linear.weight"]}, {"linear.weight": form}).names == {}


@given(st.lists(st.sampled_from([(8,), (4, 8), (3,)]), max_size=6), st.lists(st.sampled_from("abcdefgh"), max_size=6))
def test_each_of_the_candidates_is_used_once_at_most(shapes: list[tuple[int, ...]], names: list[str]) -> None:
    forms: dict[str, Form] = {name: ("float32", shape) for name, shape in zip(names, shapes, strict=False)}
    match = match_weights(WANTED, forms)
    assert len(set(match.names.values())) == len(match.names)
    assert {*match.names, *match.missing} == WANTED.keys()
    assert all(forms[other][1] == tuple(WANTED[name].shape) for name, other in match.names.items())


@pytest.mark.parametrize(
    ("registered", "expected"),
    [({"linear.weight": (4, 8)}, {"linear.weight"}), ({"linear.weight": (32, 1)}, set()), ({"other": (4, 8)}, set())],
)
def test_a_registered_form_counts_under_its_own_name(
    registered: dict[str, tuple[int, ...]], expected: set[str]
) -> None:
    wanted = {"linear.weight": WANTED["linear.weight"]}
    forms: dict[str, Form] = {name: ("float32", shape) for name, shape in registered.items()}
    drawn: dict[str, Form] = dict.fromkeys(registered, ("float32", (32,)))
    assert match_weights(wanted, drawn, registered=forms).names == {name: name for name in expected}


def held(state: dict[str, Form], registered: dict[str, Form] | None = None) -> StateAnswer:
    return StateAnswer(kind="ready", state=state, registered=registered or {})


def test_values_go_to_the_candidates_names_in_its_precision() -> None:
    forms: dict[str, Form] = {"w": ("float16", (4, 8))}
    weights = {"linear.weight": WANTED["linear.weight"]}
    given_to = given_weights(weights, match_weights(weights, forms), held(forms)).values
    assert given_to["w"].dtype is torch.float16
    assert torch.equal(given_to["w"].float(), WANTED["linear.weight"])


@pytest.mark.parametrize("name", ["w", "other"])
@pytest.mark.parametrize("is_turned", [False, True])
def test_a_square_weight_is_set_as_it_was_drawn_unless_the_reference_turns_it_too(name: str, is_turned: bool) -> None:
    wanted = {"w": torch.arange(16.0).reshape(4, 4)}
    drawn: dict[str, Form] = {name: ("float32", (4, 4))}
    registered: dict[str, Form] = {name: ("float16", (4, 4))}
    turned = {"w"} if is_turned else set[str]()
    match = match_weights(wanted, drawn, registered=registered, turned=lambda: turned)
    given_to = given_weights(wanted, match, held(drawn, registered))
    assert given_to.as_registered == ({name} if is_turned else frozenset())
    assert given_to.values[name].dtype is (torch.float16 if is_turned else torch.float32)


def test_a_form_that_the_reference_has_is_set_as_it_is_registered_in_that_types_precision() -> None:
    wanted = {"w": torch.arange(8.0).reshape(2, 4)}
    drawn: dict[str, Form] = {"w": ("float32", (4, 2))}
    registered: dict[str, Form] = {"w": ("float16", (2, 4))}
    match = match_weights(wanted, drawn, registered=registered, turned=unasked)
    given_to = given_weights(wanted, match, held(drawn, registered))
    assert given_to.as_registered == {"w"}
    assert torch.equal(given_to.values["w"], wanted["w"].half())


def unasked() -> frozenset[str]:
    raise AssertionError("the reference's constructor is asked though the form tells")


def test_a_registered_form_of_nothing_in_the_state_is_no_match() -> None:
    forms: dict[str, Form] = {"linear.weight": ("float32", (4, 8))}
    match = match_weights({"linear.weight": WANTED["linear.weight"]}, {}, registered=forms)
    assert (match.names, match.as_registered) == ({}, frozenset())


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (torch.zeros(4), True),
        (torch.full((2, 2), 3), True),
        (torch.ones(1), False),
        (torch.zeros(0), False),
        (torch.arange(3), False),
    ],
)
def test_constant_tensors_have_several_equal_elements(value: torch.Tensor, expected: bool) -> None:
    assert is_constant(value) is expected


def test_constant_parameters_change_and_others_stay() -> None:
    ones, drawn = torch.ones(8), torch.randn(8)
    before = drawn.clone()
    vary_parameters([ones, drawn], torch.Generator().manual_seed(1))
    assert ones.unique().numel() > 1
    assert torch.equal(drawn, before)


def test_parameters_with_a_structure_are_found_and_drawn_ones_are_not() -> None:
    model = nn.Module()
    model.drawn = nn.Linear(16, 16)
    model.copied = copy.deepcopy(model.drawn)
    model.identity = nn.Parameter(torch.eye(8))
    model.decays = nn.Parameter(torch.arange(1.0, 9.0).log().repeat(4, 1))
    model.mask = nn.Parameter(torch.tril(torch.ones(8, 8)), requires_grad=False)
    model.ones = nn.Parameter(torch.ones(8))
    found = {id(value) for value in structured_parameters(model.parameters())}
    expected = [model.identity, model.decays, model.copied.weight, model.copied.bias]
    assert found == {id(value) for value in expected}
    before = [value.detach().clone() for value in expected]
    with torch.no_grad():
        add_noise(expected, torch.Generator().manual_seed(1))
    assert all(0.05 < (after - old).std() < 0.5 for after, old in zip(expected, before, strict=True))


def test_statistics_are_constant_buffers_counters_and_triangles_are_not() -> None:
    model = nn.BatchNorm1d(8)
    model.register_buffer("causal", torch.tril(torch.ones(4, 4)))
    model.register_buffer("scale", torch.tensor(0.5))
    model.register_buffer("index", torch.zeros(4, dtype=torch.int64))
    found = {id(value) for value in constant_buffers(model)}
    assert found == {id(model.running_mean), id(model.running_var)}


@given(st.integers(0, 2**32), st.floats(0.01, 100.0))
def test_positive_constants_stay_positive(seed: int, constant: float) -> None:
    value = varied(torch.full((64,), constant), torch.Generator().manual_seed(seed))
    assert bool((value > 0).all())
    assert value.unique().numel() > 1


def test_zeros_are_moved_both_ways_and_masks_flipped_in_part() -> None:
    generator = torch.Generator().manual_seed(2)
    zeros = varied(torch.zeros(1000), generator)
    assert bool((zeros < 0).any())
    assert bool((zeros > 0).any())
    flipped = varied(torch.ones(1000, dtype=torch.bool), generator)
    assert 0.1 < 1 - flipped.float().mean().item() < 0.4


def test_plain_attributes_are_matched_by_their_full_name_alone() -> None:
    wanted = {"weight": torch.rand(3), "scale": torch.rand(3)}
    wanted_plain = {"h0": torch.rand(3), "rnn.c0": torch.rand(3), "table": torch.rand(2)}
    state = {"w": ("float32", (3,)), "c0": ("float32", (3,)), "spare": ("float32", (3,))}
    plain = {"h0": ("float32", (3,)), "scale": ("float16", (3,)), "table": ("float32", (4,)), "own": ("float32", (3,))}
    match = match_weights(wanted, state, wanted_plain, plain)
    assert match.names == {"h0": "h0", "scale": "scale", "weight": "w"}
    assert match.missing == ()
    assert match_weights({"bias": torch.rand(3)}, {}, {}, {"own": ("float32", (3,))}).missing == ("bias",)


def test_plain_tensors_of_an_oracle_have_its_precision_and_stay_one() -> None:
    model = torch.nn.Linear(2, 2)
    model.first = model.same = torch.ones(2)
    model.index = torch.tensor([1, 0])
    double = in_float64(model)
    assert double.weight.dtype is double.first.dtype is torch.float64
    assert double.same is double.first
    assert double.index.dtype is torch.int64
