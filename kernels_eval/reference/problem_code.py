"""Worker process: a problem's own code: its model, constructor arguments and `get_inputs`, executed on this machine.

A problem is trusted code. It may name the device `cuda`; on a machine without a GPU that device is the CPU.
"""

import contextlib
import pickle
import re
import types
import weakref
from collections.abc import Callable, Generator
from typing import Any

import torch

from kernels_eval.correctness.outputs import ReferenceFailedError, flat
from kernels_eval.cost.operators import FewSteps
from kernels_eval.reference.factories import CudaOnCpu
from kernels_eval.reference.inputs import as_fake, no_values
from kernels_eval.reference.settings import settings
from kernels_eval.reference.unchanged import PROBLEM, unchanged
from kernels_eval.sandbox.nested_inputs import nest_inputs_of, unnested

_RANDOM_MODULES = re.compile(r"\brandom\b|\bsecrets\b|\btime\b")

_FULL = re.compile(r"CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED")
"""Messages of a GPU whose memory is full, where PyTorch's own allocator was not asked."""


class ProblemCode:
    """Executes one problem. Raises ReferenceFailedError if its code raises."""

    def __init__(self, source: str) -> None:
        self._is_virtual = "cuda" in source and not torch.cuda.is_available()
        self.default_device: str | None = None
        """Of tensors that its code makes without naming a device, if not the host."""
        self.guard: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
        """Returns a context in which the model runs, and which may raise."""
        self.may_be_random = _RANDOM_MODULES.search(source) is not None
        """True if the source names a module that random numbers or times come from."""
        module = types.ModuleType(PROBLEM)
        with self._virtual_default():
            self.call(lambda: exec(compile(source, "problem.py", "exec"), module.__dict__))
        self.settings = settings()
        """Settings of PyTorch once its source was executed (kernels_eval.reference.settings)."""
        self._names = module.__dict__
        self._models: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self.nesting: list[Any] | None = None
        """Collections among the inputs that hold tensors (kernels_eval.sandbox.nested_inputs), once some were drawn."""
        self.arguments = self._listed("get_init_inputs")
        try:
            pickle.dumps(self.arguments)
        except Exception as error:
            raise ReferenceFailedError(
                "get_init_inputs returns an object that cannot be sent to a kernel's process: expected numbers, texts, "
                f"tensors, and lists and dictionaries of them ({error})"
            ) from error

    def device(self) -> contextlib.AbstractContextManager[Any]:
        """Return the context that the problem's code needs on this machine."""
        if self._is_virtual:
            return CudaOnCpu()
        return contextlib.nullcontext() if self.default_device is None else torch.device(self.default_device)

    def call(self, call: Callable[[], Any]) -> Any:
        """Call a function of the problem. Raises ReferenceFailedError if it raises.

        A GPU whose memory is full is no fault of the problem: that error passes through.
        """
        try:
            with self.device():
                return call()
        except torch.cuda.OutOfMemoryError:
            raise
        except MemoryError as error:
            raise ReferenceFailedError("the reference takes more memory than this machine has for it") from error
        except Exception as error:
            if _FULL.search(str(error)):
                raise torch.cuda.OutOfMemoryError(str(error)) from error
            said = " ".join(str(error).split())[:300]
            raise ReferenceFailedError(f"the reference raised {type(error).__name__}: {said}") from error

    def model(self, weight_seed: int) -> torch.nn.Module:
        """Build the reference model. It is copied later: PyTorch copies no tensor that a gradient goes through."""
        torch.manual_seed(weight_seed)
        with torch.no_grad():
            model: torch.nn.Module = self.call(lambda: self._names["Model"](*self.arguments))
        nest_inputs_of(model, self.nesting)
        self._models.add(model)
        return model

    def inputs(self) -> list[Any]:
        """Return what `get_inputs` returns, without the collections that hold tensors: models take it so."""
        listed = self._listed("get_inputs")
        leaves, nesting = self.call(lambda: unnested(listed))  # a list may hold itself
        if nesting is not None and self.nesting is None:
            self.nesting = nesting
            for model in self._models:
                nest_inputs_of(model, nesting)
        return leaves

    def _listed(self, name: str) -> list[Any]:
        """Call a function of the problem that returns a list."""
        found = self.call(self._names[name])
        if found is None:
            raise ReferenceFailedError(f"{name}: expected a list, found nothing: does it return one?")
        if isinstance(found, dict | str | torch.Tensor):
            raise ReferenceFailedError(f"{name}: expected a list, found a {type(found).__name__}")
        return self.call(lambda: list(found))

    def run(self, model: torch.nn.Module, inputs: list[Any]) -> tuple[list[torch.Tensor], str]:
        """Run a model; returns its outputs and their structure. The model stays as it was."""
        with unchanged(model) as kept:  # running statistics must not drift from one verdict to the next
            outputs, structure = self.run_and_keep(model, inputs)
            return [value.clone() if kept.is_written(value) else value for value in outputs], structure

    def run_and_keep(self, model: torch.nn.Module, inputs: list[Any]) -> tuple[list[torch.Tensor], str]:
        """Run a model as `run` does. The model keeps what the call leaves in it."""
        with torch.no_grad(), self.guard():
            result = self.call(lambda: model(*inputs))
        outputs, structure = self.call(lambda: flat(result))
        if not outputs or not all(isinstance(value, torch.Tensor) for value in outputs):
            raise ReferenceFailedError("the reference returns something else than tensors")
        return [value.detach() for value in outputs], structure

    def run_fake(self, model: torch.nn.Module, inputs: list[Any]) -> list[Any]:
        """Run a model on tensors of the same forms without computing. Any exception of its code passes through."""
        with no_values(allow_non_fake_inputs=True), torch.no_grad(), FewSteps(), self.device():
            return flat(model(*as_fake(inputs)))[0]

    @contextlib.contextmanager
    def _virtual_default(self) -> Generator[None]:
        """Ignore a default device that a problem sets for the whole process, if the device is virtual."""
        original = torch.set_default_device
        if self._is_virtual:
            torch.set_default_device = lambda device: None
        try:
            yield
        finally:
            torch.set_default_device = original
