"""Decides which mutants of a kernel are wrong, by running them at the problem's own size beside its reference.

`decide_mutants` runs in a process of its own, forked by judge_mutants.py: a mutant may crash it, spoil its CUDA context
or never end. `cuda` runs compiled kernels. `cpu` runs them in Triton's own interpreter (TRITON_INTERPRET=1) with the
guards of guarded_interpreter.py: an access out of bounds, a race or a result that depends on undefined lanes is wrong.
Neither uses the judge's tracer, interpreter, sizes or inputs; its tolerance is what wrong means.
"""

import importlib.util
import os
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from kernels_eval.correctness.tolerance import compare
from kernels_eval.problem import split_source


def along(values: torch.Tensor, first: float, last: float) -> torch.Tensor:
    """Return factors that change evenly from the first element to the last one: extremes lie at either end."""
    return torch.linspace(first, last, values.numel()).reshape(values.shape).to(values)


Draw = Callable[[torch.Tensor], torch.Tensor]
DRAWS: dict[str, Draw] = {
    "own": lambda values: values,
    "normal": torch.randn_like,
    "large falling": lambda values: values * along(values, 12.0, 0.5),
    "negative rising": lambda values: -(values.abs() + 0.25) * along(values, 0.5, 4.0),
    "sparse": lambda values: (values * 2).round() * (torch.rand(values.shape) < 0.1).to(values),
}
"""Changes of the problem's inputs of floating point; each set of inputs has a seed of its own.

One counts if the reference is finite on it and the kernel that was not mutated is right."""
SLOWEST_S = 1.5
"""On a CPU: a kernel whose draws take more CPU time is left out (`slow`)."""


def decide_mutants(path: Path, device: str, sources: dict[int, str], pipe: Connection) -> None:
    """Send (number, outcome) for each mutant: `started`, then `equal` or why it is wrong (`Truth.fault`).

    First (-1, `ready SECONDS`); or (-1, `unfit`) if the kernel that was not mutated fails itself, or (-1, `slow`).
    """
    torch.set_num_threads(1)
    torch.set_default_device(device)  # references that make an index tensor on their way
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), 1)  # kernels that print
    if device == "cpu":
        import guarded_interpreter

        guarded_interpreter.install()
        torch.use_deterministic_algorithms(True, warn_only=True)  # fills fresh memory with NaN or the largest number
    problem, kernel = split_source(path.read_text(encoding="utf-8"), str(path))
    with tempfile.TemporaryDirectory() as folder:
        truth = Truth(load(problem, Path(folder), "problem"), device)
        began = time.monotonic()
        pipe.send((-1, truth.keep_draws(load(kernel, Path(folder), "kernel"))))
        pipe.send((-1, f"ready {time.monotonic() - began:.2f}"))
        for number, source in sources.items():
            pipe.send((number, "started"))
            pipe.send((number, outcome(truth, source, Path(folder), f"mutant_{number}")))


def outcome(truth: "Truth", source: str, folder: Path, name: str) -> str:
    """Return `equal`, or how the mutant is wrong. A device that does not answer any more ends the process."""
    try:
        return truth.fault(load(source, folder, name))
    except Exception as error:
        if "CUDA error" in str(error):
            raise SystemExit(1) from error
        return failure(error)


def failure(error: Exception) -> str:
    if type(error).__name__ == "GuardError":
        return f"wrong: {error}"
    return f"fails: {type(error).__name__}: {str(error)[:120]}"


def load(source: str, folder: Path, name: str) -> ModuleType:
    path = folder / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Truth:
    """The reference's outputs for each draw of inputs, in its own precision and in float64."""

    def __init__(self, problem: ModuleType, device: str):
        self.problem, self.device = problem, device
        self.model = self.build(problem.Model)
        with torch.no_grad():
            for parameter in self.model.parameters():
                if parameter.is_floating_point():
                    parameter.add_(torch.randn_like(parameter) * 0.1)
        self.expected: dict[str, tuple[list[torch.Tensor], list[torch.Tensor]]] = {}

    def keep_draws(self, kernel: ModuleType) -> str:
        """Keep the draws on which the kernel is right; returns `fit`, `slow`, or `unfit` and why."""
        began = time.process_time()
        model = self.candidate(kernel)
        for name in DRAWS:
            fault = self.fault_on(name, model)
            if fault and name == "own":
                return f"unfit: {fault}"
            if fault:
                self.expected.pop(name, None)
            if self.device == "cpu" and guard().launches == 0:
                return "unfit: launches nothing where tensors are on a CPU"
            if self.device == "cpu" and time.process_time() - began > SLOWEST_S:
                return "slow"
        return "fit"

    def fault_on(self, draw: str, model: torch.nn.Module) -> str:
        """Add what is expected for a draw; returns why it does not count, or nothing."""
        try:
            self.expected[draw] = self.run(self.model, draw), self.oracle(draw)
            if draw != "own" and not self.is_finite(draw):
                return "not finite"
            return "" if self.agrees(model, draw) else "wrong values"
        except Exception as error:
            if "CUDA error" in str(error):
                raise SystemExit(1) from error
            return failure(error)

    def is_finite(self, draw: str) -> bool:
        _, exact = self.expected[draw]
        return all(bool(tensor.isfinite().all()) for tensor in exact)

    def build(self, model: Any) -> torch.nn.Module:
        torch.manual_seed(7)
        made = model(*self.problem.get_init_inputs())
        return made.to(self.device) if isinstance(made, torch.nn.Module) else made

    def candidate(self, module: ModuleType) -> torch.nn.Module:
        model = self.build(module.ModelNew)
        take_weights(model, self.model)
        return model

    def run(self, model: Any, draw: str, double: bool = False) -> list[torch.Tensor]:
        torch.manual_seed(11 + list(DRAWS).index(draw))
        inputs = [self.placed(value, DRAWS[draw], double) for value in self.problem.get_inputs()]
        with torch.no_grad():
            return flat(model(*inputs))

    def placed(self, value: Any, change: Draw, double: bool) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        value = value.to(self.device)
        if not value.is_floating_point():
            return value
        value = change(value).to(value.dtype)
        return value.double() if double else value

    def oracle(self, draw: str) -> list[torch.Tensor]:
        """Return the outputs in float64, or in the reference's precision if it cannot run so."""
        state = {name: value.clone() for name, value in self.model.state_dict().items()}
        exact = self.build(self.problem.Model)
        exact.load_state_dict(state)
        try:
            return self.run(exact.double(), draw, double=True)
        except (RuntimeError, TypeError):
            return self.run(self.model, draw)

    def fault(self, module: ModuleType) -> str:
        """Return `equal`, or `wrong` with the draw that shows it. Each draw has another order of programs."""
        model = self.candidate(module)
        for name in self.expected:
            if not self.agrees(model, name):
                return f"wrong: values on {name} inputs"
        return "equal"

    def agrees(self, model: torch.nn.Module, draw: str) -> bool:
        if self.device == "cpu":
            guard().seed(list(DRAWS).index(draw))
        native, exact = self.expected[draw]
        return same(self.run(model, draw), native, exact)


def guard() -> Any:
    from guarded_interpreter import GUARD

    return GUARD


def take_weights(model: torch.nn.Module, reference: torch.nn.Module) -> None:
    """Copy the reference's weights by name, else in order if the shapes allow it."""
    named = dict(reference.state_dict())
    mine = model.state_dict()
    pairs = [(mine[name], named[name]) for name in mine if name in named]
    if not pairs:
        pairs = list(zip(mine.values(), named.values(), strict=False))
    with torch.no_grad():
        for target, source in pairs:
            if target.shape == source.shape:
                target.copy_(source)


def same(actual: list[torch.Tensor], native: list[torch.Tensor], exact: list[torch.Tensor]) -> bool:
    if [(one.shape, one.dtype) for one in actual] != [(one.shape, one.dtype) for one in native]:
        return False
    return all(
        compare(*(comparable(tensor) for tensor in three), "output").agrees
        for three in zip(actual, exact, native, strict=True)
    )


def comparable(tensor: torch.Tensor) -> torch.Tensor:
    tensor = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return (tensor.float() if tensor.element_size() == 1 and tensor.is_floating_point() else tensor).cpu()


def flat(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    items = value.values() if isinstance(value, dict) else value
    return [tensor for item in items for tensor in flat(item)]
