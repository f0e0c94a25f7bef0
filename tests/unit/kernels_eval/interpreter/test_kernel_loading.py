"""Functions made of the sources of kernels: with the meanings that were declared, and nothing else within reach."""

import ast
import linecache
import math
from typing import Any

import pytest
import triton
import triton.language as tl

from kernels_eval.interpreter.kernel_loading import KernelLibrary, dtype_named
from kernels_eval.interpreter.triton_patches import control_flow
from kernels_eval.sandbox.candidate_source import FILE_NAME
from kernels_eval.trace.kernel_syntax import INTERPRETER_NAMES, ForbiddenSyntaxError
from kernels_eval.trace.schema import (
    Constexpr,
    KernelReference,
    KernelSource,
    LanguageName,
    ModuleName,
    Plain,
    Sequence,
    TypeName,
)


def plain_library() -> KernelLibrary:
    return KernelLibrary(lambda function, *_: function, for_interpreter=False)


def source(number: int, text: str, line: int = 1, **names: Any) -> KernelSource:
    return KernelSource(number=number, name=text.split("(")[0].split()[-1], source=text, line=line, globals=names)


def test_functions_call_those_loaded_before_with_declared_values() -> None:
    library = plain_library()
    twice = source(4, "def twice(x):\n    return x * FACTOR\n", FACTOR=Plain(value=2))
    kernel = source(7, "def kernel(x, n):\n    return twice(x) + n\n", twice=KernelReference(kernel=4))
    library.load([twice, kernel])
    assert library[7](10, 1) == 21
    with pytest.raises(KeyError):
        library[5]


def test_each_kind_of_name_has_its_value() -> None:
    library = plain_library()
    values = {
        ModuleName(name="triton.language"): tl,
        ModuleName(name="triton"): triton,
        ModuleName(name="math"): math,
        LanguageName(module="triton.language", name="sum"): tl.sum,
        TypeName(name="fp16"): tl.float16,
    }
    for declared, value in values.items():
        assert library.value_of(declared) is value
    assert library.value_of(Sequence(items=(Plain(value=1), TypeName(name="int32")))) == (1, tl.int32)
    wrapped = library.value_of(Constexpr(value=Plain(value=7)))
    assert (type(wrapped), wrapped.value) == (tl.constexpr, 7)


@pytest.mark.parametrize("name", ["open", "exec", "__import__", "getattr", "object"])
def test_builtins_that_reach_further_are_refused_or_unknown(name: str) -> None:
    library = plain_library()

    def load_and_call() -> None:
        library.load([source(0, f"def kernel(x):\n    return {name}\n")])
        library[0](1)

    with pytest.raises((ForbiddenSyntaxError, NameError)):
        load_and_call()


@pytest.mark.parametrize(
    ("name", "expected"),
    [("fp32", tl.float32), ("bf16", tl.bfloat16), ("int1", tl.int1), ("pointer<fp32>", tl.pointer_type(tl.float32)),
     ("pointer<pointer<int8>>", tl.pointer_type(tl.pointer_type(tl.int8)))],
)  # fmt: skip
def test_types_by_their_names(name: str, expected: tl.dtype) -> None:
    assert dtype_named(name) == expected


@pytest.mark.parametrize("name", ["float", "", "pointer<>", "pointer<fp32", "__class__"])
def test_unknown_types_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is no type of Triton"):
        dtype_named(name)


def test_tracebacks_show_the_kernels_lines_at_their_place_in_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(linecache.cache, FILE_NAME, (0, None, [], FILE_NAME))
    library = plain_library()
    library.load(
        [source(0, "def first(x):\n    return x\n", line=5), source(1, "def second(x):\n    return -x\n", line=2)]
    )
    shown = [linecache.getline(FILE_NAME, number) for number in range(1, 7)]
    assert shown == ["\n", "def second(x):\n", "    return -x\n", "\n", "def first(x):\n", "    return x\n"]


def test_what_is_refused_is_quoted_from_the_kernels_own_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(linecache.cache, FILE_NAME, (0, None, ["# of another file\n"] * 9, FILE_NAME))
    with pytest.raises(ForbiddenSyntaxError) as refused:
        plain_library().load([source(0, "def kernel(x, *more):\n    return x\n", line=3)])
    assert linecache.getline(FILE_NAME, refused.value.line) == "def kernel(x, *more):\n"


@pytest.mark.parametrize("for_interpreter", [True, False])
def test_functions_of_constants_have_more_of_pythons_functions(for_interpreter: bool) -> None:
    library = KernelLibrary(lambda function, *_: function, for_interpreter)
    text = "def padded(sizes):\n    return 1 << (sum([size for _, size in enumerate(sizes)]) - 1).bit_length()\n"
    constant = source(0, text).model_copy(update={"is_constexpr_function": True})
    library.load([constant, source(1, "def kernel(x):\n    return sum(x)\n")])
    assert library[0]((3, 6)) == 16
    with pytest.raises(NameError, match="sum"):
        library[1]((3, 6))


def test_the_tree_that_is_passed_on_keeps_its_annotations() -> None:
    """They are taken away while the function is made: evaluating one would run code."""
    seen: list[ast.FunctionDef] = []
    library = KernelLibrary(lambda function, _, tree: seen.append(tree) or function, for_interpreter=False)
    library.load(
        [source(0, "def kernel(x, N: tl.constexpr):\n    return x + N\n", tl=ModuleName(name="triton.language"))]
    )
    assert library[0](1, 2) == 3
    assert library[0].__annotations__ == {}
    assert ast.unparse(seen[0].args.args[1]) == "N: tl.constexpr"


def test_no_kernel_binds_a_name_that_its_rewriting_calls() -> None:
    assert control_flow.GLOBALS.keys() <= INTERPRETER_NAMES
