"""Copies that a constructor makes of weights are made again of other weights; all else stays as it was drawn."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from kernels_eval.correctness.made_of_weights import MadeOfWeights, attributes, key_of
from kernels_eval.interpreter.tensor_store import TensorStore
from kernels_eval.trace.schema import FIRST_WEIGHT, Operate, Part, Upload, View
from kernels_eval.tracing.tracer import Tracer

OTHER = torch.arange(12.0).reshape(3, 4)


def remade(make: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor | None:
    """Return what a tensor that is made of a drawn weight becomes with other values of the weight, or None."""
    tracer = Tracer(strict=True, read=lambda view: 0)
    with MadeOfWeights() as made:
        weight = torch.nn.Linear(4, 3).weight
        tensor = make(weight)
    handle = tracer.adopt(weight, FIRST_WEIGHT)
    tracer.start()
    with torch.no_grad(), tracer:
        again = made.remake(tensor, {key_of(weight): handle}, tracer.promote)
    if again is None:
        return None
    assert (again.shape, again.stride(), again.dtype) == (tensor.shape, tensor.stride(), tensor.dtype)
    view = View(**tracer.view_of(again))
    commands, payload = tracer.take()
    store = TensorStore(strict=True)
    store.give(FIRST_WEIGHT, OTHER.clone(), OTHER.nbytes)
    for command in Part.model_validate({"kernels": [], "commands": commands}).commands:
        if isinstance(command, Operate):
            store.operate(command)
        elif isinstance(command, Upload):
            store.upload(command, bytearray(b"".join(payload)))
    return store.tensor(view)


def in_a_frame(weight: torch.Tensor) -> torch.Tensor:
    frame = torch.zeros(5, 6)
    frame[1:4, 1:5].copy_(weight.detach())
    return frame


def with_a_constant(weight: torch.Tensor) -> torch.Tensor:
    return torch.cat([weight.detach(), torch.tensor([[7.0, 8.0, 9.0, 10.0]])])


MADE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transposed": lambda weight: weight.detach().t().contiguous(),
    "transposed by its data": lambda weight: weight.data.transpose(0, 1).clone(),
    "another view": lambda weight: weight.detach().view(-1)[2:8],
    "converted": lambda weight: weight.detach().half(),
    "padded": lambda weight: torch.nn.functional.pad(weight.detach(), (0, 2, 1, 0)),
    "in a frame of zeros": in_a_frame,
    "beside a constant": with_a_constant,
    "twice": lambda weight: torch.stack([weight.detach(), weight.detach().clone()]).flatten(1).contiguous(),
}


@pytest.mark.parametrize("name", MADE)
def test_copies_and_views_follow(name: str) -> None:
    assert torch.equal(remade(MADE[name]), MADE[name](OTHER))  # pyright: ignore[reportArgumentType]


def changed_afterwards(weight: torch.Tensor) -> torch.Tensor:
    copied = weight.detach().clone()
    weight.detach().mul_(2)
    return copied


def computed_in_place(weight: torch.Tensor) -> torch.Tensor:
    copied = weight.detach().clone()
    return copied.add_(1)


@pytest.mark.parametrize(
    "make", [changed_afterwards, computed_in_place, lambda weight: weight.detach() * 2, torch.zeros_like]
)
def test_what_is_computed_or_of_older_values_does_not(make: Callable[[torch.Tensor], torch.Tensor]) -> None:
    found = remade(make)
    assert found is None or torch.equal(found, torch.zeros(3, 4))


def written_by_numpy(weight: torch.Tensor) -> torch.Tensor:
    copied = weight.detach().t().contiguous()
    copied.numpy()[:] *= 2
    return copied


def in_a_frame_of_nothing(weight: torch.Tensor) -> torch.Tensor:
    frame = torch.empty(5, 6)
    frame[1:4, 1:5].copy_(weight.detach())
    return frame


@pytest.mark.parametrize("make", [written_by_numpy, in_a_frame_of_nothing, *MADE.values()])
def test_what_was_written_unnoticed_is_seen_by_its_values(make: Callable[[torch.Tensor], torch.Tensor]) -> None:
    with MadeOfWeights() as made:
        tensor = make(torch.nn.Linear(4, 3).weight)
    assert made.is_as_noted(tensor) == (make is not written_by_numpy)


class Transposed(torch.nn.Module):
    """Keeps what `nn.Linear` draws in another shape, or in its own beside that."""

    def __init__(self, keeps: bool) -> None:
        super().__init__()
        linear = torch.nn.Linear(4, 3)
        self.turned = torch.nn.Parameter(linear.weight.detach().t().contiguous())
        self.bias = torch.nn.Parameter(linear.bias.detach().clone())
        if keeps:
            self.linear = linear


@pytest.mark.parametrize("keeps", [False, True])
def test_a_weight_is_matched_in_the_form_it_was_drawn_in(keeps: bool) -> None:
    with MadeOfWeights() as made:
        model = Transposed(keeps)
    state = {**dict(model.named_parameters()), **made.drawn_for(model)}
    shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
    expected: dict[str, Any] = {"turned": (4, 3) if keeps else (3, 4), "bias": (3,)}
    if keeps:
        expected |= {"linear.weight": (3, 4), "linear.bias": (3,)}
    assert shapes == expected
    assert {name for _, name, _ in attributes(model)} == {name.rpartition(".")[2] for name in expected}


class Square(torch.nn.Module):
    """Drops a layer, and keeps what is made of its weight in the same shape."""

    def __init__(self, make: Callable[[torch.Tensor], torch.Tensor], fill: float | None = None) -> None:
        super().__init__()
        linear = torch.nn.Linear(6, 6)
        if fill is not None:
            torch.nn.init.constant_(linear.weight, fill)
        self.kept = torch.nn.Parameter(make(linear.weight.detach()))


MOVED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transposed": lambda weight: weight.t().contiguous(),
    "a transposed view": lambda weight: weight.t(),
    "transposed and converted": lambda weight: weight.to(torch.bfloat16).t().contiguous(),
    "other columns first": lambda weight: torch.cat([weight[:, 2:], weight[:, :2]], dim=1),
    "copied into its columns": lambda weight: torch.empty_like(weight).copy_(weight.t()),
    "copied into a transposed view": lambda weight: torch.zeros(6, 6).t().copy_(weight.t()).t(),
    "one row everywhere": lambda weight: weight[:1].repeat(6, 1),
}
AS_DRAWN: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "the same": lambda weight: weight,
    "copied": lambda weight: weight.clone(),
    "converted": lambda weight: weight.half(),
    "copied into another": lambda weight: torch.zeros(6, 6).copy_(weight),
    "copied twice": lambda weight: torch.empty_like(weight).copy_(weight.clone()),
}
COMPUTED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "scaled": lambda weight: weight * 0.5,
    "shifted": lambda weight: weight + 1,
    "negated": lambda weight: -weight,
    "turned round": lambda weight: weight.flip(0),
    "its triangle": lambda weight: weight.tril(),
    "normalised": lambda weight: weight.clone() / weight.norm(dim=1, keepdim=True),
    "transposed and scaled": lambda weight: weight.t().contiguous().mul_(2),
    "scaled and transposed": lambda weight: (weight * 2).t().contiguous(),
}


@pytest.mark.parametrize("fill", [None, 1.0])
@pytest.mark.parametrize("name", MOVED)
def test_a_square_weight_is_matched_as_it_was_drawn(name: str, fill: float | None) -> None:
    with MadeOfWeights() as made:
        model = Square(MOVED[name], fill)
    root = made.drawn_for(model)["kept"]
    values = torch.arange(36.0).reshape(6, 6)
    again = made.remake(model.kept, {key_of(root): values}, lambda tensor: tensor)
    assert root.shape == (6, 6)
    assert torch.equal(again, MOVED[name](values))


@pytest.mark.parametrize("name", AS_DRAWN)
def test_a_square_weight_that_lies_as_it_was_drawn_is_matched_itself(name: str) -> None:
    with MadeOfWeights() as made:
        model = Square(AS_DRAWN[name])
    assert made.drawn_for(model) == {}
    assert made.computed(model) == []


@pytest.mark.parametrize("name", COMPUTED)
def test_what_is_computed_of_the_weight_of_a_layer_that_is_dropped_is_named(name: str) -> None:
    with MadeOfWeights() as made:
        model = Square(COMPUTED[name])
    assert made.computed(model) == ["kept"]


def scaled_by_numpy(weight: torch.Tensor) -> torch.Tensor:
    turned = weight.t().contiguous()
    turned.numpy()[:] *= 2
    return turned


def test_a_copy_that_keeps_values_of_its_own_is_matched_itself() -> None:
    with MadeOfWeights() as made:
        model = Square(scaled_by_numpy)
    assert made.drawn_for(model) == {}


class Folded(torch.nn.Module):
    """Keeps what it computes of a batch normalisation, at once and in place, and a copy of its weight."""

    def __init__(self) -> None:
        super().__init__()
        self.bn = torch.nn.BatchNorm2d(4)
        scale = self.bn.weight.detach() / torch.sqrt(self.bn.running_var + self.bn.eps)
        self.register_buffer("scale", scale.reshape(2, 2).clone())
        self.doubled = self.bn.bias.detach().clone().mul_(2)
        self.copied = self.bn.weight.detach().clone()
        self.table = torch.arange(4.0) * 2


def test_what_is_computed_of_weights_is_named() -> None:
    with MadeOfWeights() as made:
        model = Folded()
    assert sorted(made.computed(model)) == ["doubled", "scale"]


class Inverted(torch.nn.Module):
    """Keeps what it computes of a buffer of a layer that it drops."""

    def __init__(self) -> None:
        super().__init__()
        norm = torch.nn.BatchNorm1d(4)
        assert norm.running_var is not None
        self.register_buffer("inverse", torch.rsqrt(norm.running_var + norm.eps))


def test_what_is_computed_of_the_buffers_of_a_dropped_layer_is_named() -> None:
    with MadeOfWeights() as made:
        model = Inverted()
    assert made.computed(model) == ["inverse"]


class Repeated(torch.nn.Module):
    """Makes tensors in many steps, each of which reads the one before twice."""

    def __init__(self) -> None:
        super().__init__()
        weight = torch.nn.Linear(6, 6).weight.detach()
        scaled = weight
        for _ in range(300):
            weight = torch.cat([weight[1:], weight[:1]])
            scaled = scaled / scaled.norm()
        self.rolled = torch.nn.Parameter(weight)
        self.scaled = scaled


def test_many_steps_are_followed() -> None:
    with MadeOfWeights() as made:
        model = Repeated()
    values = torch.arange(36.0).reshape(6, 6)
    (root,) = made.drawn_for(model).values()
    assert torch.equal(made.remake(model.rolled, {key_of(root): values}, lambda tensor: tensor), values)
    assert made.computed(model) == ["scaled"]


class Sparse(torch.nn.Module):
    """Keeps the parts of a sparse matrix, that matrix, and what it copies back from it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(3, 4))
        matrix = self.weight.detach().to_sparse_csr()
        self.register_buffer("values", matrix.values().clone())
        self.register_buffer("matrix", matrix)
        self.dense = torch.zeros(3, 4)
        self.dense.copy_(matrix.to_dense())


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_a_constructor_may_make_sparse_tensors() -> None:
    with MadeOfWeights() as made:
        model = Sparse()
    assert made.drawn_for(model) == {}
    assert {name for _, name, _ in attributes(model)} == {"weight", "values", "dense"}
    assert all(made.is_as_noted(tensor) for _, _, tensor in attributes(model))


def test_what_a_constructor_gives_up_takes_no_memory() -> None:
    sizes: list[StorageWeakRef] = []
    with MadeOfWeights() as made:
        weight = torch.nn.Linear(4, 3).weight
        turned = weight.detach().t().contiguous()
        for _ in range(64):
            frame = torch.zeros(5, 6)
            sizes += [StorageWeakRef(each.untyped_storage()) for each in (frame, frame.clone().half())]
    del frame
    assert sum(not each.expired() for each in sizes) <= 2 * 16
    assert torch.equal(made.remake(turned, {key_of(weight): OTHER}, lambda tensor: tensor), OTHER.t())


def test_a_module_that_is_converted_keeps_its_parameters_and_they_are_no_copies_of_themselves() -> None:
    """`module.half()` puts what it makes of a parameter into the same parameter."""
    with MadeOfWeights() as made:
        layer = torch.nn.Linear(3, 2).half()
        drawn = layer.weight.detach().clone()
        layer.float()
    assert made.is_as_noted(layer.weight)
    assert torch.equal(layer.weight, drawn.float())
