"""Triton as a back end: names of kernels, whose exception it is, and what compiled kernels of a module use."""

from types import ModuleType, SimpleNamespace

import pytest

from kernels_eval.backends.triton import BACKEND


def test_every_function_may_be_a_kernel_also_one_in_a_string() -> None:
    source = "@triton.jit\ndef rows(x): pass\nclass M:\n    def forward(self): exec('def hidden(x): pass')"
    assert BACKEND.own_kernels(source) == {"rows", "forward", "hidden"}


class OutOfResources(Exception):
    """As Triton calls a kernel that takes more than the device has."""


def test_errors_of_the_compiler_are_told_from_those_of_the_run() -> None:
    failed = BACKEND.compile_failure(OutOfResources("out of resource: shared memory, Required: 300000"))
    assert failed is not None
    assert (failed.header["status"], failed.header["category"]) == ("compile_error", "triton_compile")
    assert "shared memory, Required: 300000" in str(failed)
    assert BACKEND.compile_failure(RuntimeError("an illegal memory access was encountered")) is None


def test_a_module_without_compiled_kernels_uses_nothing() -> None:
    module = ModuleType("candidate")
    module.__dict__.update(number=1, kernel=SimpleNamespace())
    assert BACKEND.resources(module) == []


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_it_runs_with_and_without_a_gpu(device: str) -> None:
    assert BACKEND.unavailable(device, ()) is None
