"""Decides which mutants of a kernel are wrong, by running them at the problem's own size beside its reference.

`decide_mutants` runs in a process of its own, forked by judge_mutants.py: a mutant may crash it, spoil its CUDA context
or never end. `cuda` runs compiled kernels; `cpu` runs them in Triton's own interpreter (TRITON_INTERPRET=1), where
programs follow one another and memory outside of a tensor is not guarded: races and some accesses out of bounds pass
there.
"""

import importlib.util
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from kernels_eval.correctness.tolerance import compare
from kernels_eval.problem import split_source

SEEDS = {"cuda": (11, 12, 13), "cpu": (11,)}
"""Seeds of the inputs; one alone in the interpreter, which takes seconds for a run."""


def decide_mutants(path: Path, device: str, sources: dict[int, str], pipe: Connection) -> None:
    """Send (number, outcome) for each mutant: `started`, then `equal`, `wrong` or `fails` (it raised).

    Equal: all outputs are within the judge's tolerance for each seed. First (-1, `ready`), or (-1, `unfit`) if the
    kernel that was not mutated fails itself.
    """
    torch.set_num_threads(1)
    torch.set_default_device(device)  # references that make an index tensor on their way
    problem, kernel = split_source(path.read_text(encoding="utf-8"), str(path))
    with tempfile.TemporaryDirectory() as folder:
        truth = Truth(load(problem, Path(folder), "problem"), device)
        pipe.send((-1, "ready" if outcome(truth, kernel, Path(folder), "kernel") == "equal" else "unfit"))
        for number, source in sources.items():
            pipe.send((number, "started"))
            pipe.send((number, outcome(truth, source, Path(folder), f"mutant_{number}")))


def outcome(truth: "Truth", source: str, folder: Path, name: str) -> str:
    """Return `equal`, `wrong` or `fails`. A device that does not answer any more ends the process."""
    try:
        agrees = truth.agrees(load(source, folder, name))
    except Exception as error:
        if "CUDA error" in str(error):
            raise SystemExit(1) from error
        return "fails"
    return "equal" if agrees else "wrong"


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
    """The reference's outputs for each seed, in its own precision and in float64."""

    def __init__(self, problem: ModuleType, device: str):
        self.problem, self.device, self.seeds = problem, device, SEEDS[device]
        self.model = self.build(problem.Model)
        with torch.no_grad():
            for parameter in self.model.parameters():
                if parameter.is_floating_point():
                    parameter.add_(torch.randn_like(parameter) * 0.1)
        self.expected = [(self.run(self.model, seed), self.oracle(seed)) for seed in self.seeds]

    def build(self, model: Any) -> torch.nn.Module:
        torch.manual_seed(7)
        made = model(*self.problem.get_init_inputs())
        return made.to(self.device) if isinstance(made, torch.nn.Module) else made

    def run(self, model: Any, seed: int, double: bool = False) -> list[torch.Tensor]:
        torch.manual_seed(seed)
        inputs = [self.placed(value, double) for value in self.problem.get_inputs()]
        with torch.no_grad():
            return flat(model(*inputs))

    def placed(self, value: Any, double: bool) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        value = value.to(self.device)
        return value.double() if double and value.is_floating_point() else value

    def oracle(self, seed: int) -> list[torch.Tensor]:
        """Return the outputs in float64, or in the reference's precision if it cannot run so."""
        state = {name: value.clone() for name, value in self.model.state_dict().items()}
        exact = self.build(self.problem.Model)
        exact.load_state_dict(state)
        try:
            return self.run(exact.double(), seed, double=True)
        except (RuntimeError, TypeError):
            return self.run(self.model, seed)

    def agrees(self, candidate: ModuleType) -> bool:
        model = self.build(candidate.ModelNew)
        take_weights(model, self.model)
        return all(
            same(self.run(model, seed), native, exact)
            for seed, (native, exact) in zip(self.seeds, self.expected, strict=True)
        )


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
