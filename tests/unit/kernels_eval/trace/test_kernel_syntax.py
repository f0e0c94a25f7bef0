"""The checker of kernels' sources: wherever an escape stands in a kernel it is refused, wherever an honest expression stands it passes."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.trace.kernel_syntax import ForbiddenSyntaxError, checked_tree, free_names
from kernels_eval.trace.schema import Global, KernelSource, ModuleName

GLOBALS: dict[str, Global] = {"tl": ModuleName(name="triton.language"), "triton": ModuleName(name="triton")}
PLACES = (
    "x = {}",
    "x += {}",
    "tl.store(p, {})",
    "tl.sum(p, axis={})",
    "for i in range({}):\n        pass",
    "while {}:\n        break",
    "if {}:\n        pass\n    else:\n        x = 1",
    "x = p[{}]",
    "x = p[{}:]",
    "p[{}] = 1",
    "assert {}, 'why'",
    "return {}",
    "x = [{} for k in range(2)]",
    "x = [k for k in {}]",
    "x = [k for k in range(2) if {}]",
    "x = 1 if {} else 2",
    "x = ({}, 1)",
    "x = (y := {})",
    "x = f'a{{{}}}b'",
    "x = f'{{p:{{{}}}}}'",
    "x: tl.constexpr = {}",
    "x, y = p, {}",
    "x = p < {} < q",
    "x = not {}",
    "x = {} and p",
    "x = p + ({}) * 2",
    "for i in tl.static_range(0, 4):\n        for j in range(4):\n            x = tl.where(p > 0, {}, j)",
)
ESCAPES = (
    "().__class__",
    "p.handle",
    "p.handle.data",
    "p.__init__",
    "tl.core.builtins",
    "tl.load.__globals__",
    "tl._core",
    "tl.nothing",
    "triton.runtime",
    "(lambda: 1)()",
    "({'a': 1})",
    "({1, 2})",
    "({k: k for k in range(2)})",
    "list(k for k in range(2))",
    "(yield)",
    "(await p)",
    "'a'.join(p)",
    "'x'.format(p)",
    "(1).real",
    "p.dtype.mangle",
    "range.__self__",
    "tl.sum(p, _semantic=None)",
    "tl.sum(**p)",
    "interpreter_semantic.builder",
    "_InterpreterComparison(p)",
    "__import__('os')",
    "__builtins__",
    "tl",
    "max(tl, 1)",
)
HONEST = (
    "tl.sum(p, axis=0)",
    "tl.program_id(0) * 4",
    "(p + 1).to(tl.float32)",
    "max(p, 1)",
    "p.shape[0]",
    "-p",
    "p[None, :]",
    "tl.zeros((4, 4), dtype=tl.float32)",
    "'text'",
    "triton.cdiv(p, 4)",
    "tl.math.exp2(p)",
    "tl.load(p + tl.arange(0, 16), mask=p < q, other=0.0)",
    "~p & (q | 1) ^ 3",
    "float('inf')",
    "helper(p, n=3)",
    "p.dtype.get_int_max_value()",
    "p.dtype.is_standard_floating()",
)


def kernel_source(body: str, parameters: str = "p, q") -> KernelSource:
    source = f"def kernel({parameters}):\n    {body}\n"
    return KernelSource(number=0, name="kernel", source=source, line=7, globals=GLOBALS)


def filled(place: str, expression: str) -> str:
    return place.format(expression)


@given(st.sampled_from(PLACES), st.sampled_from(ESCAPES), st.lists(st.sampled_from(HONEST), max_size=3))
def test_an_escape_is_refused_wherever_it_stands(place: str, escape: str, around: list[str]) -> None:
    expression = escape
    for honest in around:
        expression = f"tl.where({honest}, {expression}, 0)"
    try:
        ast.parse(kernel_source(filled(place, expression)).source)
    except SyntaxError:
        with pytest.raises(ForbiddenSyntaxError):
            checked_tree(kernel_source(filled(place, expression)))
        return
    with pytest.raises(ForbiddenSyntaxError) as refused:
        checked_tree(kernel_source(filled(place, expression)))
    assert 7 <= refused.value.line <= 12


@given(st.sampled_from(PLACES), st.lists(st.sampled_from(HONEST), min_size=1, max_size=4))
def test_what_is_honest_passes_wherever_it_stands(place: str, parts: list[str]) -> None:
    expression = " + ".join(f"({part})" for part in parts)
    checked_tree(kernel_source(filled(place, expression.replace("'", '"'))))


@given(st.sampled_from(ESCAPES))
def test_defaults_of_parameters_are_checked_too(escape: str) -> None:
    with pytest.raises(ForbiddenSyntaxError):
        checked_tree(kernel_source("pass", f"p, q={filled('{}', escape)}"))


@pytest.mark.parametrize(
    "source",
    [
        "def other(p):\n    pass\n",
        "def kernel(p):\n    pass\ndef more(p):\n    pass\n",
        "@decorator\ndef kernel(p):\n    pass\n",
        "async def kernel(p):\n    pass\n",
        "class kernel:\n    pass\n",
        "def kernel(*p):\n    pass\n",
        "def kernel(**p):\n    pass\n",
        "def kernel(p):\n    import os\n",
        "def kernel(p):\n    from os import path\n",
        "def kernel(p):\n    global p2\n    p2 = 1\n",
        "def kernel(p):\n    def inner():\n        pass\n",
        "def kernel(p):\n    class Inner:\n        pass\n",
        "def kernel(p):\n    try:\n        p\n    except Exception:\n        pass\n",
        "def kernel(p):\n    with p:\n        pass\n",
        "def kernel(p):\n    del p\n",
        "def kernel(p):\n    match p:\n        case 1:\n            pass\n",
        "def kernel(p):\n    p.value = 1\n",
        "def kernel(p):\n    tl.load = p\n",
        "def kernel(p):\n    __builtins__ = p\n",
        "def kernel(interpreter_semantic):\n    pass\n",
        "def kernel(p):\n    p.shape: int = 1\n",
        "def kernel(p:\n",
        "def kernel(p):\n    x = " + "(" * 500 + "1" + ")" * 500 + "\n",
        "",
        "\x00",
    ],
)
def test_statements_that_no_kernel_has(source: str) -> None:
    with pytest.raises(ForbiddenSyntaxError):
        checked_tree(KernelSource(number=0, name="kernel", source=source, line=1, globals=GLOBALS))


def test_raise_is_left_to_the_interpreter_and_what_it_raises_is_never_evaluated() -> None:
    source = "def kernel(p):\n    if p:\n        raise Error(p.__class__)\n"
    kernel = KernelSource(number=0, name="kernel", source=source, line=1, globals=GLOBALS)
    assert "Error" not in free_names(checked_tree(kernel))
    with pytest.raises(ForbiddenSyntaxError, match="raise"):
        checked_tree(kernel.model_copy(update={"is_constexpr_function": True}))


@pytest.mark.parametrize(
    "value", ["(p - 1).bit_length()", "p.startswith('relu')", "p.index(2) + p.count(1)", "p.lower().endswith('f')"]
)
def test_functions_of_constants_may_ask_plain_values(value: str) -> None:
    kernel = kernel_source(f"return {value}")
    checked_tree(kernel.model_copy(update={"is_constexpr_function": True}))
    with pytest.raises(ForbiddenSyntaxError, match="attribute"):
        checked_tree(kernel)


@given(st.text(max_size=80))
def test_any_text_is_a_kernel_or_refused(text: str) -> None:
    try:
        function = checked_tree(kernel_source(text.replace("\n", "\n    ")))
    except ForbiddenSyntaxError:
        return
    assert function.name == "kernel"


@pytest.mark.parametrize(("value", "told"), [("p.size_of_rows", True), ("p._handle", False), ("f(p).rows", False)])
def test_what_may_be_a_field_of_a_named_tuple_is_told(value: str, told: bool) -> None:
    source = f"def kernel(p, f):\n    x = {value}"
    with pytest.raises(ForbiddenSyntaxError, match=r"a kernel cannot use the attribute \.") as refused:
        checked_tree(KernelSource(number=0, name="kernel", source=source, line=1, globals={}))
    assert ("if p is a named tuple, its class has to be a global of the file" in str(refused.value)) is told
