"""Operators of PyTorch inside a call on a GPU; the guard itself does not depend on the device."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from kernels_eval.correctness.allowed_operators import MAX_HOST_READS, ForbiddenOperatorError, half_of_inputs
from kernels_eval.correctness.composed_operators import remember_registrations
from kernels_eval.gpu.candidate.operator_guard import OperatorGuard, refuse_host_copies
from kernels_eval.gpu.device import cuda_driver

X = torch.arange(6.0).reshape(2, 3)


@pytest.fixture(autouse=True)
def _device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_driver, "DEVICE", "cpu")


def test_what_computes_is_refused_and_remembered() -> None:
    guard = OperatorGuard(enforce=True)
    with guard, pytest.raises(ForbiddenOperatorError, match=r"aten\.mm"):
        torch.mm(X, X.t())
    assert guard.violations == ["aten.mm"]


def test_allocating_viewing_and_copying_are_allowed() -> None:
    guard = OperatorGuard(enforce=True)
    with guard:
        made = torch.empty(3, 2)
        made.copy_(X.t())
    assert guard.violations == []
    assert torch.equal(made, X.t())


def test_fresh_memory_holds_no_usable_values() -> None:
    guard = OperatorGuard(enforce=True)
    with guard:
        floats, integers = torch.empty(4), torch.empty(4, dtype=torch.int32)
    assert bool(floats.isnan().all())
    assert integers.tolist() == [85] * 4


def test_timed_calls_leave_fresh_memory_alone() -> None:
    """Filling costs device time: the guard itself must not call the fill."""
    guard = OperatorGuard(enforce=True)
    filled: list[torch.Tensor] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kernels_eval.gpu.candidate.operator_guard._fill", lambda tensor, value: filled.append(tensor))
        guard.start(poisons=False)
        with guard:
            torch.empty(4)
        assert not filled
        guard.start(poisons=True)
        with guard:
            torch.empty(4)
        assert len(filled) == 1


def test_host_reads_are_counted_for_each_call() -> None:
    guard = OperatorGuard(enforce=True)
    one = torch.ones(())
    for _ in range(2):
        guard.start(poisons=False)
        with guard:
            for _ in range(MAX_HOST_READS):
                one.item()
    with guard, pytest.raises(ForbiddenOperatorError):
        one.item()


def _custom(name: str, compute: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    return torch.library.custom_op(f"kernelmill_guard::{name}", compute, mutates_args=())


def _padded(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(x.t().contiguous(), (1, 1))


def _product(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.linear(x, x)


@pytest.mark.parametrize("call", [torch.inference_mode()(_padded), _custom("padded", _padded)])
def test_operators_are_judged_by_their_parts(call: Callable[[torch.Tensor], torch.Tensor]) -> None:
    guard = OperatorGuard(enforce=True)
    with torch.no_grad(), guard:
        found = call(X)
    assert guard.violations == []
    assert torch.equal(found, _padded(X))


@pytest.mark.parametrize("call", [torch.inference_mode()(_product), _custom("product", _product)])
def test_parts_that_compute_are_refused(call: Callable[[torch.Tensor], torch.Tensor]) -> None:
    guard = OperatorGuard(enforce=True)
    with torch.no_grad(), guard, pytest.raises(ForbiddenOperatorError, match=r"aten\.mm"):
        call(X)
    assert guard.violations == ["aten.mm"]


def test_parts_of_host_code_may_be_named_for_a_profiler() -> None:
    guard = OperatorGuard(enforce=True)
    with guard, torch.profiler.record_function("rows"):
        torch.empty(3)
    assert guard.violations == []


def test_not_enforced_everything_passes() -> None:
    with OperatorGuard(enforce=False):
        assert torch.equal(torch.mm(X, X.t()), X @ X.t())


class _Pretending(torch.Tensor):
    """Lies in host memory, and claims to be on a GPU."""

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device("cuda", 0)

    def __dlpack_device__(self) -> Any:
        return 2, 0


@pytest.fixture
def recorded() -> Iterator[list[str]]:
    """Host copies are refused; what was, by name. DLPack is given as the options that PyTorch was asked with."""
    refused: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "__dlpack__", lambda _, **options: options)
        for name in ("numpy", "tolist", "__array__"):
            patch.setattr(torch.Tensor, name, getattr(torch.Tensor, name))
        guard = OperatorGuard(enforce=True)
        guard.start(poisons=False, most_reads=half_of_inputs(0, 4096))
        refuse_host_copies(refused.append, guard.may_list)
        yield refused


@pytest.mark.parametrize("name", ["numpy", "tolist", "__array__", "__dlpack__"])
def test_the_host_gets_no_values(recorded: list[str], name: str) -> None:
    with pytest.raises(ForbiddenOperatorError, match=f"Tensor.{name}"):
        getattr(X, name)()
    assert recorded == [f"Tensor.{name}"]


def test_lengths_of_sequences_may_be_read_as_a_list(recorded: list[str]) -> None:
    lengths = torch.arange(1000)
    assert lengths.tolist() == list(range(1000))
    assert recorded == []
    with pytest.raises(ForbiddenOperatorError, match=r"Tensor\.tolist"):
        lengths.tolist()
    assert recorded == ["Tensor.tolist"], "of 1024 in one call"


def test_a_class_of_its_own_does_not_say_how_much_is_read(recorded: list[str]) -> None:
    class Small(torch.Tensor):
        def numel(self) -> int:
            return 1

        @property
        def dtype(self) -> torch.dtype:  # type: ignore[override]
            return torch.int64

    with pytest.raises(ForbiddenOperatorError, match=r"Tensor\.tolist"):
        torch.rand(4096).as_subclass(Small).tolist()
    assert recorded == ["Tensor.tolist"]


@pytest.mark.parametrize(
    ("values", "most"), [(torch.arange(4096), 1024), (torch.rand(2000), 16), (torch.arange(200), 100), (X[0], 1)]
)
def test_few_numbers_are_read_one_by_one(values: torch.Tensor, most: int) -> None:
    guard = OperatorGuard(enforce=True)
    half = half_of_inputs(len(values) if values.is_floating_point() else 0, len(values))
    for _ in range(2):
        guard.start(False, half)
        with guard:
            assert [values[index].item() for index in range(most)] == values[:most].tolist()
            assert guard.violations == []
    with guard, pytest.raises(ForbiddenOperatorError, match="_local_scalar_dense"):
        values[most].item()


def test_memory_of_the_device_is_handed_over(recorded: list[str]) -> None:
    tensor: Any = X.to("meta")  # for want of a GPU: not host memory
    given = tensor.__dlpack__(stream=-1, dl_device=(2, 0))
    assert given == {"stream": -1}
    assert recorded == []


def test_memory_of_the_device_is_not_copied_elsewhere(recorded: list[str]) -> None:
    tensor: Any = X.to("meta")
    with pytest.raises(ForbiddenOperatorError, match="__dlpack__"):
        tensor.__dlpack__(dl_device=(1, 0))
    assert recorded == ["Tensor.__dlpack__"]


def test_host_memory_stays_refused_whatever_a_class_says_of_itself(recorded: list[str]) -> None:
    with pytest.raises(ForbiddenOperatorError, match="__dlpack__"):
        X.as_subclass(_Pretending).__dlpack__()
    assert recorded == ["Tensor.__dlpack__"]


def test_an_implementation_of_an_operator_of_pytorch_s_does_not_run() -> None:
    remember_registrations()
    torch.library.Library("aten", "IMPL").impl("asinh", lambda x: x + 41.0, "CPU")
    assert float(torch.asinh(torch.zeros(()))) == 0.0
