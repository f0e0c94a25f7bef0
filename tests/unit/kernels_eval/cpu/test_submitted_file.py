"""Kernels that a tracing process sends, held against the submitted file."""

from typing import Any

import pytest

from kernels_eval.cpu.submitted_file import SubmittedFile, check_kernel
from kernels_eval.sandbox.candidate_source import load_source
from kernels_eval.sandbox.child import CandidateFailedError
from kernels_eval.trace.schema import KernelSource
from kernels_eval.tracing.kernel_sources import KernelSources

FILE = """
import math
import os
import triton
import triton.language as tl
from triton.language import float16 as HALF
try:
    from triton.language.extra import libdevice
except ImportError:
    from triton.language.extra.cuda import libdevice

FACTOR = -1.5 * 2
WRAPPED = tl.constexpr(7)
TYPE = tl.float32
LIMIT = math.inf
SIZES = (64, 32)
FROM_OUTSIDE = int(os.environ.get("SIZE", "3"))

def abs(x):
    return x

@triton.jit
def inner(x):
    return x * FACTOR

@triton.jit
def other(x):
    return x

@triton.jit
def kernel(p, n, BLOCK: tl.constexpr):
    x = inner(tl.load(p)) + WRAPPED + FROM_OUTSIDE + SIZES[0]
    tl.store(p, libdevice.tanh(x).to(TYPE).to(HALF) + LIMIT)

def made(value):
    if True:
        @triton.autotune(configs=[], key=[])
        @triton.jit
        def within(p):
            tl.store(p, value * FACTOR)
    return within.fn
"""


def sent(*changes: dict[str, Any]) -> list[KernelSource]:
    """Return what an honest tracing process sends, the kernel `kernel` and its callee, with changes of each."""
    module: Any = load_source(FILE)
    found = KernelSources()
    for function in (module.other, module.kernel, module.made(3.0)):
        found.number_of(function)
    honest = {kernel["name"]: kernel for kernel in found.take_fresh()}
    for change in changes:
        for name, values in change.items():
            honest[name] = honest[name] | {**values, "globals": honest[name]["globals"] | values.get("globals", {})}
    return [KernelSource(**kernel) for kernel in honest.values()]


def held_against_the_file(kernels: list[KernelSource]) -> None:
    known: dict[int, KernelSource] = {}
    for kernel in kernels:
        check_kernel(SubmittedFile(FILE), kernel, known)
        known[kernel.number] = kernel


def test_what_an_honest_process_sends_is_the_files_own() -> None:
    kernels = sent()
    assert {kernel.name for kernel in kernels} == {"inner", "kernel", "other", "within"}
    held_against_the_file(kernels)


PLAIN = {"kind": "plain", "value": 2.0}


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("inner", {"source": "def inner(x):\n    return x\n"}, "another text"),
        ("inner", {"line": 30}, "no function of the submitted file"),
        ("inner", {"name": "made"}, "no function of the submitted file"),
        ("inner", {"number": 0}, "sent twice"),
        ("inner", {"is_constexpr_function": True}, "of another kind"),
        ("inner", {"globals": {"FACTOR": {"kind": "plain", "value": -3}}}, "FACTOR means something else"),
        ("inner", {"globals": {"FACTOR": PLAIN}}, "FACTOR means something else"),
        ("inner", {"globals": {"unbound": PLAIN}}, "unbound means something else"),
        ("kernel", {"globals": {"WRAPPED": {"kind": "constexpr", "value": PLAIN}}}, "WRAPPED means something else"),
        ("kernel", {"globals": {"WRAPPED": {"kind": "plain", "value": 7}}}, "WRAPPED means something else"),
        ("kernel", {"globals": {"TYPE": {"kind": "dtype", "name": "fp16"}}}, "TYPE means something else"),
        ("kernel", {"globals": {"HALF": {"kind": "dtype", "name": "fp32"}}}, "HALF means something else"),
        ("kernel", {"globals": {"LIMIT": PLAIN}}, "LIMIT means something else"),
        ("kernel", {"globals": {"tl": {"kind": "module", "name": "math"}}}, "tl means something else"),
        ("kernel", {"globals": {"libdevice": {"kind": "module", "name": "math"}}}, "libdevice means something else"),
        ("kernel", {"globals": {"inner": {"kind": "kernel", "kernel": 0}}}, "inner means something else"),
        ("kernel", {"globals": {"inner": {"kind": "kernel", "kernel": 99}}}, "inner means something else"),
        ("within", {"globals": {"FACTOR": PLAIN}}, "FACTOR means something else"),
    ],
)  # fmt: skip
def test_anything_else_is_refused(name: str, change: dict[str, Any], message: str) -> None:
    with pytest.raises(CandidateFailedError, match=message) as caught:
        held_against_the_file(sent({name: change}))
    assert caught.value.category == "other_source"


@pytest.mark.parametrize("change", [{"kernel": {"globals": {"FROM_OUTSIDE": PLAIN}}},
                                    {"within": {"globals": {"value": PLAIN}}}])  # fmt: skip
def test_a_value_that_the_file_does_not_fix_is_taken_as_sent(change: dict[str, Any]) -> None:
    held_against_the_file(sent(change))


def test_a_function_that_hides_a_builtin_cannot_be_left_out() -> None:
    text = "import triton\n@triton.jit\ndef abs(x):\n    return x\n@triton.jit\ndef kernel(p):\n    abs(p)\n"
    kernel = KernelSource(number=0, name="kernel", source="def kernel(p):\n    abs(p)\n", line=6)
    with pytest.raises(CandidateFailedError, match="own abs is left out"):
        check_kernel(SubmittedFile(text), kernel, {})


def test_a_function_of_constants_is_no_kernel() -> None:
    text = "import triton.language as tl\n@tl.constexpr\ndef width(n):\n    return n\n"
    as_kernel = KernelSource(number=0, name="width", source="def width(n):\n    return n\n", line=3)
    check_kernel(SubmittedFile(text), as_kernel.model_copy(update={"is_constexpr_function": True}), {})
    with pytest.raises(CandidateFailedError, match="of another kind"):
        check_kernel(SubmittedFile(text), as_kernel, {})


def test_a_file_that_cannot_be_parsed_has_no_kernels() -> None:
    kernel = KernelSource(number=0, name="kernel", source="def kernel(p):\n    pass\n", line=1)
    for text in ("(" * 10_000, "def kernel(p)", "\0", "-" * 100_000 + "1"):
        with pytest.raises(CandidateFailedError, match="no function"):
            check_kernel(SubmittedFile(text), kernel, {})


def test_helpers_of_inductor_are_the_judges_own_text() -> None:
    from kernels_eval.sandbox import inductor_helpers

    text = (
        "import triton\nfrom torch._inductor.runtime import triton_helpers\n"
        "@triton.jit\ndef kernel(p):\n    triton_helpers.maximum(p, p)\n"
    )
    found = KernelSources()
    found.number_of(inductor_helpers.maximum)
    (helper,) = [KernelSource(**kernel) for kernel in found.take_fresh()]
    source = "def kernel(p):\n    inductor_helper_maximum(p, p)\n"
    meanings: dict[str, Any] = {"inductor_helper_maximum": {"kind": "kernel", "kernel": 0}}
    kernel = KernelSource(number=1, name="kernel", source=source, line=4, globals=meanings)
    check_kernel(SubmittedFile(text), helper, {})
    check_kernel(SubmittedFile(text), kernel, {0: helper})
    forged = helper.model_copy(update={"source": helper.source.replace("a > b", "a < b")})
    with pytest.raises(CandidateFailedError):
        check_kernel(SubmittedFile(text), forged, {})
