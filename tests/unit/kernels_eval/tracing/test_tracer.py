"""Host code on tensors without values: the commands that it leaves behind, run on values, give what PyTorch gives."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.correctness.allowed_operators import MAX_HOST_INTEGERS, MAX_HOST_READS, ForbiddenOperatorError
from kernels_eval.interpreter.tensor_store import TensorStore
from kernels_eval.trace.schema import FIRST_OWN, FIRST_WEIGHT, MAX_COMMANDS, Operate, Part, Upload, View
from kernels_eval.tracing.traced_tensor import TracedTensor
from kernels_eval.tracing.tracer import Tracer

VIEWS: list[Callable[[Any], Any]] = [
    lambda x: x.t(),
    lambda x: x[1:],
    lambda x: x[:, ::2],
    lambda x: x.unsqueeze(1),
    lambda x: x.reshape(-1).view(x.shape[1], x.shape[0]) if x.is_contiguous() else x,
    lambda x: x.contiguous(),
    lambda x: x.clone(),
    lambda x: x.half().float(),
    lambda x: torch.zeros_like(x).copy_(x),
    lambda x: x.squeeze(1),
]


def tracer(strict: bool = True, read: Callable[[dict[str, Any]], Any] = lambda view: 0) -> Tracer:
    made = Tracer(strict=strict, read=read)
    made.start()
    return made


def replayed(made: Tracer, given: torch.Tensor, result: Any, weight: torch.Tensor | None = None) -> torch.Tensor:
    """Run what was recorded, as the interpreter process does, and return the value of a result."""
    view = View(**made.view_of(made.promote(result)))
    commands, payload = made.take()
    store = TensorStore(strict=made.strict)
    store.give(0, given, given.numel() * given.element_size())
    if weight is not None:
        store.give(FIRST_WEIGHT, weight, weight.numel() * weight.element_size())
    for command in Part.model_validate({"kernels": [], "commands": commands}).commands:
        if isinstance(command, Operate):
            store.operate(command)
        elif isinstance(command, Upload):
            store.upload(command, bytearray(b"".join(payload)))
    return store.tensor(view)


@given(st.lists(st.sampled_from(VIEWS), max_size=6))
def test_views_and_copies_are_replayed_to_the_same_values(steps: list[Callable[[Any], Any]]) -> None:
    x = torch.arange(30.0).reshape(5, 6)
    made = tracer()
    found: Any = made.input(0, (5, 6), torch.float32)
    expected = x
    for step in steps:
        if expected.dim() == 2 or step is VIEWS[-1]:
            expected = step(expected)
            with made:
                found = step(found)
    assert (found.shape, found.stride(), found.dtype) == (expected.shape, expected.stride(), expected.dtype)
    assert replayed(made, x, found).tolist() == expected.tolist()


def test_constants_of_the_host_are_uploaded_once_at_their_first_use() -> None:
    made = tracer(strict=False)
    x: Any = made.input(0, (2, 2), torch.float32)
    scale = torch.tensor([[2.0], [3.0]])
    with made:
        result = x * scale + scale
    kinds = [command["kind"] for command in made.commands]
    assert kinds.count("upload") == 1
    given = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert replayed(made, given, result).tolist() == (given * scale + scale).tolist()


def test_weights_keep_the_judges_numbers() -> None:
    made = tracer(strict=False)
    weight = torch.nn.Parameter(torch.zeros(3))
    made.adopt(weight.detach(), FIRST_WEIGHT)
    x: Any = made.input(0, (3,), torch.float32)
    with torch.no_grad(), made:
        result = x + weight.detach()
    assert not [command for command in made.commands if command["kind"] == "upload"]
    values = torch.tensor([10.0, 20.0, 30.0])
    assert replayed(made, torch.ones(3), result, values).tolist() == [11, 21, 31]


def test_operators_that_compute_are_refused_and_remembered() -> None:
    made = tracer()
    x: Any = made.input(0, (4, 4), torch.float32)
    with made, pytest.raises(ForbiddenOperatorError):
        torch.softmax(x, 1)
    assert made.violations == ["aten._softmax"]
    assert made.commands == []


@pytest.mark.parametrize("name", ["numpy", "tolist", "__array__", "__dlpack__"])
def test_values_do_not_leave_by_other_ways(name: str) -> None:
    made = tracer()
    x: Any = made.input(0, (4,), torch.float32)
    with pytest.raises(ForbiddenOperatorError, match=r"not on the host; `item\(\)` reads a single value"):
        getattr(x, name)()
    assert made.violations == [f"Tensor.{name}"]


def test_single_values_are_asked_of_the_judge_and_counted() -> None:
    asked: list[dict[str, Any]] = []
    made = tracer(read=lambda view: asked.append(view) or 2.5)
    x: Any = made.input(0, (MAX_HOST_READS + 1,), torch.float32)
    with made:
        assert float(x[3]) == 2.5
        assert (asked[0]["storage"], asked[0]["offset"], asked[0]["shape"]) == (0, 3, [])
        for place in range(MAX_HOST_READS - 1):
            float(x[place])
        with pytest.raises(ForbiddenOperatorError, match="17 values read on the host in one call; it may read 1024 "):
            float(x[0])
        made.start()
        assert float(x[0]) == 2.5  # in another call


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_an_item_is_a_number_whatever_dimensions_its_tensor_has(shape: tuple[int, ...]) -> None:
    made = tracer(read=lambda view: [2.5] if view["shape"] else 2.5)
    scale: Any = made.input(0, shape, torch.float32)
    with made:
        assert scale.item() == float(scale) == 2.5


def test_whole_numbers_are_asked_of_the_judge_as_one_list_and_counted() -> None:
    asked: list[dict[str, Any]] = []
    made = tracer(read=lambda view: asked.append(view) or list(range(6)))
    lengths: Any = made.input(0, (3, 2), torch.int32)
    many: Any = made.input(1, (MAX_HOST_INTEGERS - 6,), torch.int64)
    with made:
        assert lengths.tolist() == [[0, 1], [2, 3], [4, 5]]
        assert [view["shape"] for view in asked] == [[3, 2]]
        assert [command["kind"] for command in made.commands] == ["synchronise"]
        many.tolist()
        with pytest.raises(ForbiddenOperatorError, match="1025 values read on the host in one call"):
            int(lengths[0, 0])
        assert torch.tensor([4, 5]).to(lengths.device).tolist() == [4, 5], "what the host made itself is not counted"
        assert lengths[:0].tolist() == []
    assert len(asked) == 2


def test_a_storage_is_freed_once_no_tensor_shows_it() -> None:
    made = tracer()
    with made:
        first: Any = torch.empty_like(made.input(0, (4,), torch.float32))
        second = first[1:]
    number = second.kernels_eval_memory.number
    assert number >= FIRST_OWN

    def freed() -> set[int]:
        return {storage for command in made.take()[0] if command["kind"] == "free" for storage in command["storages"]}

    del first
    assert number not in freed()
    del second
    assert number in freed()


def test_a_loop_without_end_is_cut_off() -> None:
    made = tracer()
    for _ in range(MAX_COMMANDS):
        made.command({"kind": "free", "storages": []})
    with pytest.raises(RuntimeError, match=f"more than {MAX_COMMANDS} operations"):
        made.command({"kind": "free", "storages": []})


def test_traced_tensors_look_like_a_gpus() -> None:
    made = tracer()
    x = made.input(0, (4, 4), torch.float16)
    assert isinstance(x, TracedTensor)
    assert (x.device, x.is_cuda, x.get_device()) == (torch.device("cuda", 0), True, 0)
    with made:
        assert x.to("cuda") is x
        moved: Any = x.cpu()
        assert moved.kernels_eval_memory.is_on_host
        assert not moved.cuda().kernels_eval_memory.is_on_host
        assert x[1].data_ptr() - x.data_ptr() == 4 * 2
        assert x.clone().data_ptr() // (1 << 44) != x.data_ptr() // (1 << 44)


def test_a_tensor_that_names_no_device_lies_on_the_host_until_it_is_moved() -> None:
    made = tracer()
    x = made.input(0, (4, 4), torch.float32)

    def is_on_host(tensor: Any) -> bool:
        return tensor.kernels_eval_memory.is_on_host

    with made:
        for on_host in (torch.empty(3), torch.zeros(3, device="cpu"), torch.zeros(3).view(-1), torch.zeros(4).clone()):
            assert is_on_host(on_host)
            assert not is_on_host(on_host.to("cuda"))
            assert not is_on_host(on_host.cuda())
            assert not is_on_host(on_host.pin_memory())
        assert is_on_host(x.to("cpu").view(-1))
        assert not is_on_host(x.cpu().to(x.device))
        assert not any(map(is_on_host, (torch.zeros_like(x), x.new_empty(3))))
        assert x.new_tensor([1, 2]).dtype is torch.float32
        assert not is_on_host(x.new_empty(3).copy_(torch.zeros(3)))


def test_host_code_may_compute_with_a_few_numbers_of_its_own() -> None:
    x = torch.arange(30.0).reshape(5, 6)
    made = tracer()
    found: Any = made.input(0, (5, 6), torch.float32)
    with made:
        count = int(torch.prod(torch.tensor(found.shape)))
        scale = torch.tensor(3.0) / torch.tensor([2.0, 4.0])
        scale += 1.0
        out = torch.stack([scale, scale])
    assert count == 30
    assert made.violations == []
    assert replayed(made, x, out).tolist() == [[2.5, 1.75]] * 2
    with made, pytest.raises(ForbiddenOperatorError):
        _ = found + torch.tensor(1.0)
    with made, pytest.raises(ForbiddenOperatorError):
        _ = torch.zeros(65, device="cpu").mul(2.0)
    assert made.violations == ["aten.add", "aten.mul"]
