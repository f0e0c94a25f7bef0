"""A decorated class computes what it did: by the kernel exactly where that was verified, by itself everywhere else."""

import copy
import logging
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from imported import import_file

from extras.generation.optimize import optimize
from kernels_eval.errors import InputError

PROGRAM = """
import torch
from torch import nn
from extras.generation.optimize import optimize

@optimize(OPTIONS)
class Fused(nn.Module):
    def __init__(self, width):
        super(Fused, self).__init__()
        self.linear = nn.Linear(4, width)
        self.register_buffer("offset", torch.zeros(1))
    def forward(self, x):
        return torch.relu(self.linear(x)) + self.offset

def get_inputs():
    return [torch.ones(2, 4)]

def get_init_inputs():
    return [3]
"""
KERNEL = """
import torch
from torch import nn

CALLS = []

class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.projection = nn.Linear(4, width)
        self.register_buffer("offset", torch.zeros(1))
        self.packed = None
    def forward(self, x):
        CALLS.append(tuple(x.shape))
        if self.packed is None:
            self.packed = self.projection.weight.t().contiguous()  # kept from one call to the next
        return torch.relu(x @ self.packed + self.projection.bias) + self.offset
"""
COPYING = """
import torch
from torch import nn

CALLS = []

class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        linear = nn.Linear(4, width)
        turned = linear.weight.detach().t().contiguous()
        self.bias = linear.bias
        KEEPS
    def forward(self, x):
        CALLS.append(tuple(x.shape))
        return torch.relu(x @ self.turned + self.bias)
"""
Load = Callable[..., tuple[ModuleType, list[tuple[int, ...]]]]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Import the program with a kernel; return it and the shapes of the kernel's calls."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # a kernel may run on a CPU then

    def load(kernel: str = KERNEL, program: str = PROGRAM) -> tuple[ModuleType, list[tuple[int, ...]]]:
        file = tmp_path / f"kernel_{len(list(tmp_path.iterdir()))}.py"
        file.write_text(kernel)
        path = tmp_path / f"{file.stem}_program.py"
        path.write_text(program.replace("OPTIONS", f"file={str(file)!r}"))
        module = import_file(path)
        return module, getattr(sys.modules.get(f"kernelmill_kernel_{file.stem}"), "CALLS", [])

    return load


def expected(module: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    linear, offset = module.linear, module.offset
    return torch.relu(torch.nn.functional.linear(x, linear.weight, linear.bias)) + offset  # type: ignore[operator]


@torch.no_grad()
def test_the_kernel_runs_where_it_was_verified_and_with_the_modules_own_values(load: Load):
    program, calls = load()
    module = program.Fused(3)
    assert type(module) is program.Fused
    assert set(module.state_dict()) == {"linear.weight", "linear.bias", "offset"}
    x = torch.randn(2, 4)
    torch.testing.assert_close(module(x), expected(module, x))
    module.linear.weight.mul_(2)  # in place, as an optimizer does
    torch.testing.assert_close(module(x), expected(module, x))
    module.load_state_dict({name: torch.randn_like(value) for name, value in module.state_dict().items()})
    torch.testing.assert_close(module(x), expected(module, x))
    module.offset = torch.full((1,), 7.0)
    torch.testing.assert_close(module(x), expected(module, x))
    module.linear.weight.data = torch.randn(3, 4)
    torch.testing.assert_close(module(x), expected(module, x))
    assert calls == [(2, 4)] * 5
    torch.testing.assert_close(module.eval()(x), expected(module, x))  # nothing in it depends on the mode
    assert len(calls) == 6


def test_everywhere_else_it_is_the_module(load: Load):
    program, calls = load()
    module, other = program.Fused(3), program.Fused(5)
    x = torch.randn(2, 4)
    module(x).sum().backward()  # a kernel has no backward pass
    assert module.linear.weight.grad is not None
    with torch.no_grad():
        for value in (torch.randn(3, 4), torch.randn(4, 2).t(), torch.randn(2, 4, dtype=torch.float64).float()[:1]):
            torch.testing.assert_close(module(value), expected(module, value))
        assert module(x=x).shape == (2, 3)
        assert other(x).shape == (2, 5)  # other constructor arguments
        with torch.autocast("cpu", dtype=torch.bfloat16):
            module(x)
        assert module.double()(x.double()).dtype == torch.float64
    assert calls == []


@torch.no_grad()
@pytest.mark.parametrize("keeps", ["self.linear, self.turned = linear, turned", "self.turned = nn.Parameter(turned)"])
def test_a_kernel_whose_constructor_copies_weights_does_not_run(
    load: Load, caplog: pytest.LogCaptureFixture, keeps: str
):
    program, calls = load(COPYING.replace("KEEPS", keeps), PROGRAM.replace("return [3]", "return [4]"))
    with caplog.at_level(logging.WARNING):
        module = program.Fused(4)
    assert "its constructor makes turned of weights" in caplog.text
    x = torch.randn(2, 4)
    torch.testing.assert_close(module(x), expected(module, x))
    assert calls == []


@torch.no_grad()
def test_copies_and_pickles_are_the_module(load: Load):
    program, calls = load()
    module = program.Fused(3)
    x = torch.randn(2, 4)
    for again in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert type(again) is program.Fused
        torch.testing.assert_close(again(x), expected(module, x))
    assert calls == []


@torch.no_grad()
def test_on_a_cpu_without_the_interpreter_it_is_the_module(load: Load, monkeypatch: pytest.MonkeyPatch):
    program, calls = load()
    monkeypatch.delenv("TRITON_INTERPRET")
    module = program.Fused(3)
    assert module(torch.ones(2, 4)).shape == (2, 3)
    assert calls == []


@torch.no_grad()
def test_a_module_with_a_mode_runs_its_kernel_in_the_verified_one_alone(load: Load):
    program, calls = load(
        program=PROGRAM.replace("torch.relu(self", "(torch.relu if self.training else torch.tanh)(self")
    )
    module = program.Fused(3)
    module(torch.ones(2, 4))
    assert len(calls) == 1
    module.eval()(torch.ones(2, 4))
    assert len(calls) == 1


@torch.no_grad()
@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (KERNEL.replace("CALLS.append(tuple(x.shape))", "raise RuntimeError('illegal access')"), "illegal access"),
        (KERNEL.replace("nn.Linear(4, width)", "nn.Linear(4, 1)"), "it has nothing for linear.weight"),
        (KERNEL.replace("super().__init__()", "raise ValueError('no')"), "no"),
        ("raise OSError('broken')", "cannot be imported"),
        ("x = 1", "expected a class ModelNew"),
    ],
)
def test_a_kernel_that_fails_is_given_up(load: Load, caplog: pytest.LogCaptureFixture, kernel: str, reason: str):
    with caplog.at_level(logging.WARNING, logger="kernelmill.generation"):
        program, _ = load(kernel)
        module = program.Fused(3)
        for _ in range(3):
            torch.testing.assert_close(module(torch.ones(2, 4)), expected(module, torch.ones(2, 4)))
    (said,) = [record.getMessage() for record in caplog.records]
    assert reason in said
    assert said.startswith("Fused: runs as it is")


def test_the_callers_random_numbers_are_not_touched(load: Load):
    program, _ = load()
    plain, _ = load("x = 1")
    draws = []
    for source in (program, plain):
        torch.manual_seed(3)
        module = source.Fused(3)
        with torch.no_grad():
            module(torch.ones(2, 4))
        draws.append((module.linear.weight.detach().clone(), torch.rand(1)))
    assert torch.equal(draws[0][0], draws[1][0])
    assert torch.equal(draws[0][1], draws[1][1])


def test_without_a_service_it_is_the_module(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KERNELMILL_KERNELS_URL", "http://127.0.0.1:9")
    path = tmp_path / "no_service.py"
    path.write_text(PROGRAM.replace("OPTIONS", f"folder={str(tmp_path / 'kernels')!r}"))
    program = import_file(path)
    assert program.Fused(3)(torch.ones(2, 4)).shape == (2, 3)
    assert "ConnectError" in caplog.text
    with pytest.raises(InputError, match=r"expected a subclass of torch\.nn\.Module"):
        optimize()(dict)  # type: ignore[type-var]
