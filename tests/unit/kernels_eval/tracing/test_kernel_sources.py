"""Sources of kernels, with the meaning of their global names, as the interpreter and the compiler load them."""

import importlib.util
import math
from collections import namedtuple
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import triton.language as tl

from kernels_eval.sandbox.candidate_source import load_source
from kernels_eval.trace.kernel_syntax import checked_tree
from kernels_eval.trace.schema import Constexpr, KernelSource, NamedTupleClass, Plain, TypeName
from kernels_eval.tracing.kernel_sources import KernelSources, UnknownGlobalError, sequence_of

MODULE = """
import math
import os
import torch
import triton
import triton.language as tl
from triton.language import load
from triton.language.extra import libdevice

SCALE = 1.5
SIZES: tl.constexpr = 64
WRAPPED = tl.constexpr(7)
TORCH_TYPE = torch.float32
TABLE = {1: 2}

@triton.constexpr_function
def half(n):
    return n // 2

@triton.jit
def inner(x):
    return x * SCALE

class Holder:
    if True:
        @triton.jit
        def kernel(p, n, BLOCK: tl.constexpr):
            x = inner(load(p)) + WRAPPED + half(4) + SIZES
            tl.store(p, libdevice.tanh(x) + math.pi)

def closure(value):
    @triton.jit
    def with_closure(p):
        tl.store(p, value)
    return with_closure

@triton.jit
def uses_a_module(p):
    os.system(p)

@triton.jit
def uses_a_torch_type(p):
    tl.store(p, tl.load(p).to(TORCH_TYPE))

@triton.jit
def uses_a_table(p):
    tl.store(p, TABLE)

@triton.jit
def uses_nothing(p):
    tl.store(p, missing)
"""


@pytest.fixture(scope="module")
def module() -> Any:
    return load_source(MODULE)


def sources(*functions: Any) -> list[dict[str, Any]]:
    found = KernelSources()
    for function in functions:
        found.number_of(function)
    return found.take_fresh()


def test_callees_come_first_and_once(module: Any) -> None:
    found = KernelSources()
    number = found.number_of(module.Holder.kernel)
    fresh = found.take_fresh()
    assert sorted(kernel["name"] for kernel in fresh[:-1]) == ["half", "inner"]
    assert (fresh[-1]["name"], fresh[-1]["number"]) == ("kernel", number)
    assert found.number_of(module.Holder.kernel) == number
    assert found.take_fresh() == []


def test_globals_are_described_by_kind(module: Any) -> None:
    kernels = {kernel["name"]: kernel for kernel in sources(module.Holder.kernel)}
    assert kernels["inner"]["globals"] == {"SCALE": {"kind": "plain", "value": 1.5}}
    assert kernels["half"]["is_constexpr_function"]
    found = kernels["kernel"]["globals"]
    assert found["tl"] == {"kind": "module", "name": "triton.language"}
    assert found["load"] == {"kind": "language", "name": "load"}
    assert found["libdevice"] == {"kind": "module", "name": "libdevice"}
    assert found["math"] == {"kind": "module", "name": "math"}
    assert found["WRAPPED"] == {"kind": "constexpr", "value": {"kind": "plain", "value": 7}}
    assert found["SIZES"] == {"kind": "plain", "value": 64}, "an annotation makes no constant"
    assert found["inner"] == {"kind": "kernel", "kernel": kernels["inner"]["number"]}


def test_what_is_sent_passes_the_judges_check(module: Any) -> None:
    lines = MODULE.splitlines()
    for raw in sources(module.Holder.kernel, module.closure(3)):
        kernel = KernelSource(**raw)
        assert checked_tree(kernel).name == kernel.name
        assert kernel.source.splitlines()[0] == lines[kernel.line - 1].strip()


def test_a_closure_means_the_value_that_it_holds(module: Any) -> None:
    found = sources(module.closure(3), module.closure(4))
    assert [kernel["globals"]["value"]["value"] for kernel in found] == [3, 4]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("uses_a_module", "uses_a_module: global name os: a kernel cannot use the module os"),
        ("uses_a_torch_type", "global name TORCH_TYPE: torch.float32 is a type of PyTorch, not of Triton"),
        ("uses_a_table", "global name TABLE: a dict is nothing that a kernel can use"),
    ],
)
def test_what_kernels_cannot_use_is_named(module: Any, name: str, message: str) -> None:
    with pytest.raises(UnknownGlobalError, match=message):
        sources(getattr(module, name))


def test_a_name_that_means_nothing_is_left_out(module: Any) -> None:
    (found,) = sources(module.uses_nothing)
    assert "missing" not in found["globals"]


def test_plain_values_are_sent_as_what_they_stand_for() -> None:
    found = KernelSources()
    assert found.encode(torch.tensor(2.5).numpy()[()]) == {"kind": "plain", "value": 2.5}
    assert found.encode((1, None)) == {"kind": "sequence", "items": [found.encode(1), found.encode(None)]}
    assert math.isnan(found.encode(math.nan)["value"])
    with pytest.raises(UnknownGlobalError, match="is nothing that a kernel can use"):
        found.encode(object())


def test_a_kernel_whose_global_was_changed_is_another_kernel(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = KernelSources()
    first = found.number_of(module.Holder.kernel)
    monkeypatch.setattr(module, "SCALE", 3.0)  # of a function that the kernel calls
    second = found.number_of(module.Holder.kernel)
    assert second != first
    assert {kernel["name"] for kernel in found.take_fresh()[-2:]} == {"inner", "kernel"}
    monkeypatch.setattr(module, "SCALE", 1.5)
    assert found.number_of(module.Holder.kernel) == first
    assert found.take_fresh() == []


def test_a_kernel_whose_helper_was_exchanged_is_another_kernel(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = KernelSources()
    first = found.number_of(module.Holder.kernel)
    monkeypatch.setattr(module, "inner", module.half)
    assert found.number_of(module.Holder.kernel) != first
    monkeypatch.undo()
    assert found.number_of(module.Holder.kernel) == first


def test_a_kernel_that_calls_itself_is_refused(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "inner", module.Holder.kernel)
    with pytest.raises(UnknownGlobalError, match=r"kernel calls itself: .* write a loop with tl\.static_range"):
        sources(module.Holder.kernel)


def test_a_kernel_of_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "package.py"
    path.write_text("import triton\n\n@triton.jit\ndef kernel(p):\n    pass\n")
    spec = importlib.util.spec_from_file_location("package", path)
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    with pytest.raises(UnknownGlobalError, match="kernel is not defined in the submitted file"):
        sources(package.kernel)


def test_defaults_of_a_named_tuple_are_types_and_constants_too() -> None:
    class Made(NamedTuple):
        a: Any
        b: Any = tl.float32
        c: Any = tl.constexpr(3)

    class Wrong(NamedTuple):
        b: Any = tl

    meaning = KernelSources().meaning(Made, "made")
    assert NamedTupleClass(**meaning).defaults == (
        TypeName(name="fp32"),
        Constexpr(value=Plain(value=3)),
    )
    with pytest.raises(UnknownGlobalError, match="made: default of b: neither a number, a type nor a constant"):
        KernelSources().meaning(Wrong, "made")


def test_a_tuple_with_renamed_fields_is_a_plain_one() -> None:
    made = namedtuple("made", "a def", rename=True)  # pyright: ignore[reportUntypedNamedTuple]
    assert "fields" not in sequence_of(made(1, 2), [])
    with pytest.raises(UnknownGlobalError, match="made: a kernel cannot make a named tuple whose fields begin with _"):
        KernelSources().meaning(made, "made")
