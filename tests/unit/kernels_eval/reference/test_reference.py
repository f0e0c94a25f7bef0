"""The reference side: which problems can be judged at a reduced size, what is drawn, what eager execution moves."""

import gc
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from kernels_eval.reference.inputs import SecretSeed, passed_as
from kernels_eval.reference.reference import Reference, ReferenceFailedError
from kernels_eval.reference.weights import Form
from kernels_eval.sandbox.child import CandidateFailedError
from kernels_eval.sandbox.messages import StateAnswer

SEED = SecretSeed(b"test")


def reference(forward: str, inputs: str, init: str = "") -> Reference:
    return Reference(
        "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
        f"class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n        {init or 'pass'}\n"
        f"    def forward(self, x, y=None):\n        {forward}\n"
        f"def get_inputs():\n    return {inputs}\ndef get_init_inputs():\n    return []\n",
        weight_seed=3,
    )


@pytest.mark.parametrize(
    ("forward", "inputs", "shapes"),
    [
        ("return x.relu()", "[torch.rand(1000, 8)]", [(32, 8)]),
        ("return x.relu()", "[torch.rand(size=(1000, 8))]", [(32, 8)]),
        ("return x + y", "[torch.randn(1000, 8), torch.randn(1000, 1)]", [(32, 8), (32, 1)]),
        ("return x + y", "[torch.randn(1000, 8), torch.randn(8)]", [(32, 8), (8,)]),
        ("return x @ y", "[torch.randn(512, 512), torch.randn(512, 512)]", [(32, 512), (512, 512)]),
        ("return x.t()", "[torch.randn(1000, 8)]", [(32, 8)]),
        ("return x.sum(1)", "[torch.randn(1000, 8)]", [(32, 8)]),
        ("return x.mean()", "[torch.randn(1000, 8)]", [(32, 8)]),
        ("return F.embedding(x, y)", "[torch.randint(0, 9, (1000,)), torch.randn(9, 4)]", [(32,), (9, 4)]),
    ],
)
def test_leading_sizes_are_reduced(forward: str, inputs: str, shapes: list[tuple[int, ...]]) -> None:
    problem = reference(forward, inputs)
    assert problem.can_be_reduced
    for own in (True, False):
        drawn = problem.draw(32, 1, SEED, own)
        assert [tuple(value.shape) for value in drawn] == shapes
        problem.expected(drawn, perturbed=False)


@pytest.mark.parametrize(
    ("forward", "inputs"),
    [
        ("return x.relu()", "[torch.rand(64, 8)]"),
        ("return x.reshape(10, 100, 8).sum(1)", "[torch.rand(1000, 8)]"),
        ("return x * 2", "[torch.tensor(3.0)]"),
        ("return x * torch.ones(1000, 1)", "[torch.rand(1000, 8)]"),
        ("return x.relu()", "[torch.rand(16, 1000).t()]"),
    ],
)
def test_some_problems_are_judged_at_their_own_size(forward: str, inputs: str) -> None:
    problem = reference(forward, inputs)
    assert not problem.can_be_reduced
    problem.expected(problem.draw(None, 0, SEED, own=True), perturbed=False)


def test_draws_differ_by_trial_and_secret_and_are_reproducible() -> None:
    problem = reference("return x", "[torch.rand(1000, 8)]")

    def draw(trial: int, secret: bytes, own: bool = True) -> torch.Tensor:
        return problem.draw(32, trial, SecretSeed(secret), own)[0]

    assert torch.equal(draw(0, b"a"), draw(0, b"a"))
    assert not torch.equal(draw(0, b"a"), draw(1, b"a"))
    assert not torch.equal(draw(0, b"a"), draw(0, b"b"))
    assert bool((draw(0, b"a") >= 0).all())
    assert all(bool((draw(1, bytes([secret]), own=False) < 0).any()) for secret in range(20))


def test_the_oracle_is_in_double_where_it_can_be() -> None:
    expected = (problem := reference("return x.exp()", "[torch.rand(100, 8)]")).expected(
        problem.draw(32, 0, SEED, True), False
    )
    assert expected.oracle[0].dtype is torch.float64
    fixed = reference("return x @ torch.ones(8, 8)", "[torch.rand(100, 8)]")
    assert fixed.expected(fixed.draw(32, 0, SEED, True), False).oracle[0].dtype is torch.float32


def test_changed_inputs_are_noticed_and_the_given_ones_left_alone() -> None:
    problem = reference("return x.add_(1.0)", "[torch.rand(100, 8)]")
    inputs = problem.draw(32, 0, SEED, True)
    before = inputs[0].clone()
    assert problem.expected(inputs, False).changed_inputs == {0}
    assert torch.equal(inputs[0], before)


def test_constant_parameters_get_values_that_matter() -> None:
    problem = reference("return self.norm(x)", "[torch.rand(100, 8)]", "self.norm = nn.LayerNorm(8)")
    assert bool((problem.state(False)["norm.weight"] == 1).all())
    assert problem.state(True)["norm.weight"].unique().numel() > 1
    assert problem.state(True)["norm.bias"].unique().numel() > 1


def test_running_statistics_do_not_drift() -> None:
    problem = reference("return self.norm(x)", "[torch.rand(100, 8)]", "self.norm = nn.BatchNorm1d(8)")
    problem.expected(problem.draw(32, 0, SEED, True), False)
    assert bool((problem.state(False)["norm.running_mean"] == 0).all())


def test_eager_traffic() -> None:
    problem = reference("return F.softmax(x.relu() * 2.0 + y, dim=1)", "[torch.randn(4096, 512), torch.randn(512)]")
    kernels = [launch.kernel for launch in problem.eager_launches]
    assert kernels == ["aten.relu", "aten.mul", "aten.add", "aten._softmax"]
    full = 4096 * 512 * 4
    assert [launch.dram_bytes for launch in problem.eager_launches] == [2 * full, 2 * full, 2 * full + 2048, 2 * full]


def test_eager_products_count_their_operations() -> None:
    problem = reference("return self.linear(x).t()", "[torch.randn(1024, 64)]", "self.linear = nn.Linear(64, 32)")
    (launch,) = problem.eager_launches
    assert launch.matrix_flops == 2 * 1024 * 64 * 32
    assert launch.dram_bytes == 4 * (1024 * 64 + 64 * 32 + 32 + 1024 * 32)


@pytest.mark.parametrize("forward", ["raise ValueError('mine')", "return 3", "return x @ x"])
def test_a_reference_that_fails_says_so(forward: str) -> None:
    with pytest.raises(ReferenceFailedError):
        (problem := reference(forward, "[torch.rand(100, 8)]")).expected(problem.draw(None, 0, SEED, True), False)


def test_inputs_with_a_structure_are_drawn_as_the_problem_draws_them() -> None:
    problem = reference("return x @ y", "[torch.rand(40, 40), torch.tril(torch.rand(40, 40))]")
    first, second = problem.draw(None, 1, SEED, own=False)
    assert bool((first < 0).any())
    assert torch.equal(second, second.tril())
    assert bool((second >= 0).all())


def test_long_rows_are_judged_by_few() -> None:
    problem = reference("return x.relu()", "[torch.rand(16, 2, 64, 1024)]")
    assert problem.has_long_rows
    assert problem.can_be_reduced
    assert [tuple(value.shape) for value in problem.draw(2, 1, SEED, own=False)] == [(2, 2, 64, 1024)]
    assert not reference("return x.relu()", "[torch.rand(16, 1024)]").can_be_reduced


@pytest.mark.parametrize(
    "inputs",
    [
        "7",
        "None",
        "[torch.rand(4, 4).to_sparse()]",
        "[torch.zeros(4, dtype=torch.complex32)]",
        "[[torch.rand(4), object()]]",
        "[{'x': 1}]",
        "[object()]",
        "[torch.rand(4), print]",
    ],
)
def test_inputs_that_cannot_be_passed_on_are_the_problems_fault(inputs: str) -> None:
    with pytest.raises(ReferenceFailedError):
        reference("return x", inputs)


def test_constructor_arguments_that_are_none_are_the_problems_fault() -> None:
    source = "class Model:\n    pass\ndef get_inputs():\n    return []\ndef get_init_inputs():\n    return True\n"
    with pytest.raises(ReferenceFailedError):
        Reference(source, weight_seed=3)


@pytest.mark.parametrize(
    "inputs",
    [
        "[torch.randn(300, 4), torch.randint(0, 300, (300,))]",
        "[torch.randn(300, 4), torch.randperm(300)]",
        "[torch.randn(300, 4), torch.arange(300)]",
    ],
)
def test_indices_that_follow_the_size_are_drawn_below_the_reduced_one(inputs: str) -> None:
    problem = reference("return F.embedding(y, x)", inputs)
    assert problem.can_be_reduced
    for size in (8, 32, None):
        drawn = problem.draw(size, 1, SEED, own=False)
        assert int(drawn[1].max()) < (size or 300)
        problem.expected(drawn, perturbed=False)


def test_indices_that_cannot_be_reduced_are_judged_at_the_full_size() -> None:
    problem = reference("return F.embedding(y, x)", "[torch.randn(300, 4), (torch.arange(0, 900, 3) * 7) % 300]")
    assert not problem.can_be_reduced
    problem.expected(problem.draw(None, 0, SEED, own=True), perturbed=False)


def no_inputs() -> list[Any]:
    raise AssertionError("inputs are drawn for a candidate that lacks nothing")


def held(state: dict[str, Form], registered: dict[str, Form] | None = None) -> StateAnswer:
    return StateAnswer(kind="ready", state=state, registered=registered or {})


@pytest.mark.parametrize("turned", ["", ".t()", ".t().contiguous()"])
def test_a_square_weight_is_set_as_registered_if_the_references_constructor_turns_it(turned: str) -> None:
    init = f"self.w = nn.Parameter(torch.randn(8, 8){turned})"
    problem = reference("return x @ self.w", "[torch.rand(100, 8)]", init)
    forms: dict[str, Form] = {"w": ("float32", (8, 8))}
    given = problem.weights_for(held(forms, forms), no_inputs)
    assert given.as_registered == ({"w"} if turned else frozenset())
    assert torch.equal(given.values["w"], problem.state(True)["w"])
    assert problem.drawn_for(held({})).values == {}


def test_what_the_references_constructor_computes_and_draws_is_known() -> None:
    init = (
        "self.w, self.h0 = nn.Parameter(torch.randn(8, 8)), torch.randn(8)\n"
        "        self.half, self.ones = self.w.detach() * 0.5, torch.ones(8)"
    )
    problem = reference("return x @ self.half + self.h0", "[torch.rand(100, 8)]", init)
    assert problem.constructor.computed == {"half"}
    assert problem.constructor.turned == frozenset()
    assert problem.constructor.drawn(["h0", "ones", "other"]) == ["h0"]


def test_weights_that_matter_are_needed() -> None:
    problem = reference("return self.norm(x)", "[torch.rand(100, 8)]", "self.norm = nn.LayerNorm(8)")
    inputs = problem.draw(32, 0, SEED, True)
    with pytest.raises(CandidateFailedError, match=r"ModelNew has no parameter or buffer for norm\.bias \(\[8\]"):
        problem.weights_for(held({"norm.weight": ("float32", (8,))}), lambda: inputs)
    given = problem.weights_for(held({"a": ("float32", (8,)), "b": ("float32", (8,))}), no_inputs).values
    assert torch.equal(given["a"], problem.state(True)["norm.weight"])
    assert torch.equal(given["b"], problem.state(True)["norm.bias"])


@pytest.mark.parametrize(
    ("forward", "init"),
    [
        ("return x.exp()", "self.unused = nn.Linear(8, 8)"),
        ("return self.norm(x)", "self.norm = nn.BatchNorm1d(8, affine=False)"),  # statistics of the batch
        ("return x * self.causal", "self.register_buffer('causal', torch.tril(torch.ones(8, 8))[3])"),
        ("return x * self.index", "self.register_buffer('index', torch.full((8,), 2))"),
    ],
)
def test_weights_that_do_not_matter_or_follow_from_the_problem_may_be_missing(forward: str, init: str) -> None:
    problem = reference(forward, "[torch.rand(100, 8)]", init)
    assert problem.weights_for(held({}), lambda: problem.draw(32, 0, SEED, True)).values == {}


def test_running_statistics_vary_within_their_domain() -> None:
    problem = reference("return self.norm(x)", "[torch.rand(100, 8)]", "self.norm = nn.BatchNorm1d(8).eval()")
    state = problem.state(True)
    assert state["norm.running_mean"].unique().numel() > 1
    assert state["norm.running_var"].unique().numel() > 1
    assert bool((state["norm.running_var"] > 0).all())
    assert int(state["norm.num_batches_tracked"]) == 0
    assert problem.expected(problem.draw(32, 0, SEED, True), perturbed=True).is_finite


def test_buffers_keep_their_values_where_others_are_outside_the_domain() -> None:
    problem = reference(
        "return (x - self.zero).log()", "[torch.rand(99, 8)]", "self.register_buffer('zero', -torch.ones(8))"
    )
    assert problem.state(True)["zero"].unique().numel() > 1
    root = reference("return x / self.one.floor()", "[torch.rand(99, 8)]", "self.register_buffer('one', torch.ones(8))")
    assert bool((root.state(True)["one"] == 1).all())


@pytest.mark.parametrize(
    ("forward", "inputs", "varied"),
    [
        ("return x.log() * y", "[torch.rand(100, 8) + 0.5, torch.ones(8)]", 1),
        ("return x.sqrt() + y", "[torch.rand(100, 8) + 0.5, torch.zeros(100, 8)]", 1),
        ("return torch.where(y, x, 0.0)", "[torch.rand(100, 8), torch.ones(100, 8, dtype=torch.bool)]", 1),
        ("return x[y]", "[torch.rand(100, 8), torch.zeros(100, dtype=torch.int64)]", 1),
        ("return x * y[:, None]", "[torch.rand(100, 8), torch.full((100,), 9)]", 1),
    ],
)
def test_constant_inputs_get_other_values_where_the_reference_stays_finite(
    forward: str, inputs: str, varied: int
) -> None:
    problem = reference(forward, inputs)
    drawn = problem.draw(32, 2, SEED, own=False)
    values, expected = problem.with_expected(drawn, 32, 2, SEED)
    assert expected.is_finite
    assert values[varied].unique().numel() > 1


def test_a_constant_that_cannot_vary_is_left_as_it_is() -> None:
    problem = reference("return x[y]", "[torch.rand(1, 8), torch.zeros(100, dtype=torch.int64)]")
    drawn = problem.draw(None, 2, SEED, own=False)
    values, expected = problem.with_expected(drawn, None, 2, SEED)
    assert expected.native[0].shape == (100, 8)
    assert bool((values[1] == 0).all())


@pytest.mark.parametrize(
    "inputs",
    [
        "[torch.randn(100, 8, dtype=torch.complex64), torch.randn(8, dtype=torch.complex64)]",
        "[torch.randn(100, 8).half(), torch.randn(8)]",
        "[torch.randint(0, 9, (100, 8)), torch.ones(8, dtype=torch.bool)]",
        "[torch.randn(100, 0), torch.randn(0)]",
        "[torch.randn(()), torch.tensor(2)]",
        "[torch.randint(0, 9, (100, 8), dtype=torch.uint8), torch.randn(8, dtype=torch.float64)]",
    ],
)
def test_inputs_of_every_kind_are_drawn_and_computed_with(inputs: str) -> None:
    problem = reference("return x * y", inputs)
    size = 32 if problem.can_be_reduced else None
    for trial in range(4):
        values, expected = problem.with_expected(problem.draw(size, trial, SEED, trial == 0), size, trial, SEED)
        assert expected.native[0].dtype == (values[0] * values[1]).dtype


@pytest.mark.parametrize(
    ("forward", "inputs"),
    [
        ("return x + y", "[torch.randn(1000, 8), torch.randn(1000, 1)]"),
        ("return x + y", "[torch.randn(1000, 8), torch.randn(8)]"),
        ("return x @ y", "[torch.randn(512, 512), torch.randn(512, 512)]"),
        ("return x * y", "[torch.randn(1000, 8).half(), 3]"),
        ("return F.embedding(x, y)", "[torch.randint(0, 9, (1000,)), torch.randn(9, 4)]"),
        ("return x[: x.shape[0]] * y", "(lambda x: [x, float(x.shape[0])])(torch.rand(1000, 8))"),
        ("return x + y.sum()", "(lambda x: [x, torch.zeros(2 * x.shape[0])])(torch.rand(1000, 8))"),
        ("return x + y.sum()", "(lambda x: [x, x[:100].sum(1)])(torch.rand(1000, 8))"),
    ],
)
def test_forms_at_a_size_are_those_of_the_inputs_drawn_at_it(forward: str, inputs: str) -> None:
    """Also where an input follows the size in a way of its own (a number, twice the rows)."""
    problem = reference(forward, inputs)
    for size in (8, 33, 257):
        drawn = problem.draw(size, 0, SecretSeed(bytes(16)), own=True)
        assert problem.forms(size) == [passed_as(value) for value in drawn]


def test_forms_at_secret_sizes_take_no_memory() -> None:
    problem = reference("return x + y", "[torch.randn(100000, 8), torch.randn(8)]")
    problem.forms(40)
    gc.collect()
    before = len(gc.get_objects())
    for size in range(100, 2100):
        problem.forms(size)
    gc.collect()
    assert len(gc.get_objects()) - before < 200


def test_a_reference_with_other_weights_is_that_of_its_seed() -> None:
    """It differs in its weights alone, whatever the first one was used for before."""
    inputs, init = "[torch.rand(1000, 8), torch.rand(8)]", "self.linear = nn.Linear(8, 8)"
    first = reference("return self.linear(x) + y", inputs, init)
    first.state(True)
    first.can_be_reduced = False
    found, wanted = first.with_weights(5), Reference(first.source, 5)
    for perturbed in (False, True):
        weights, same = found.state(perturbed), wanted.state(perturbed)
        assert all(torch.equal(weights[name], same[name]) for name in (*weights, *same))
        assert not torch.equal(weights["linear.weight"], first.state(perturbed)["linear.weight"])
    drawn = found.draw(32, 1, SEED, own=False)
    results = [each.expected(drawn, perturbed=True) for each in (found, wanted)]
    assert torch.equal(results[0].oracle[0], results[1].oracle[0])
    assert (found.can_be_reduced, first.can_be_reduced) == (True, False)
    assert (found.eager_launches, found.needed_bytes) == (wanted.eager_launches, wanted.needed_bytes)


def test_forms_and_launches_with_other_weights_are_found_anew_where_values_decide_them() -> None:
    first = reference("return x[(self.w > 0).nonzero()[:, 0]]", "[torch.rand(1000, 8)]", "self.w = torch.randn(1000)")
    found, wanted = first.with_weights(5), Reference(first.source, 5)
    assert found.needed_bytes == wanted.needed_bytes != first.needed_bytes


def test_a_random_reference_is_refused_with_other_weights_too() -> None:
    first = reference("return x.relu()", "[torch.rand(1000, 8)]", "import random; self.random = random.random")
    first.with_weights(5)
    with pytest.raises(ReferenceFailedError, match="random"):
        reference("return F.dropout(x, 0.5)", "[torch.rand(1000, 8)]").with_weights(5)


def test_references_leave_nothing_in_the_cache_of_operators_without_values() -> None:
    before = FakeTensorMode.cache_info().size
    for columns in range(8, 16):
        reference("return torch.softmax(x, 1) + y", f"[torch.rand(1000, {columns}), torch.rand({columns})]").forms(40)
    assert FakeTensorMode.cache_info().size == before
