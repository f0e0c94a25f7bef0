"""Idioms of published libraries, in host code and kernels, are honest code; what hides behind them is refused."""

import pytest

from kernels_eval import Judge, Status, Verdict

PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0


def get_inputs():
    return [torch.randn(64, 200)]


def get_init_inputs():
    return []
"""
KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl

LIMITS = torch.finfo(torch.float8_e4m3fn)
WIDTH = tl.constexpr(32)
NOTE = "note"


@triton.jit
def k(x_ptr, y_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(y_ptr + i, tl.maximum(x, 0.0) * 2.0, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        n = x.numel()
        k[(triton.cdiv(n, 256),)](x, y, n, B=256)
        return y
"""
START = "@triton.jit\ndef k("
LAUNCH = "        k[(triton.cdiv(n, 256),)](x, y, n, B=256)\n"
LOAD = "    x = tl.load("
FIRST = "    i = tl.program_id(0)"
WITHIN = "        with {context}:\n    " + LAUNCH
COUNTED = """
        seen = torch.zeros(1, dtype=torch.uint32, device=x.device)
        marks = x.new_full((4,), 0, dtype=torch.uint16)
        k[(triton.cdiv(n, 256),)](x, y, n, seen, marks, B=256)
"""
WRAPPED = """
class Held:
    def __init__(self, data):
        self.data, self.dtype = data, data.dtype

    def data_ptr(self):
        return self.data.data_ptr()


"""
OF_CONSTANTS = """
from triton.language import core

integer = core.get_int_dtype
if hasattr(triton, "constexpr_function"):
    integer = triton.constexpr_function(integer)


"""
ALIKE = "        assert torch.cuda.current_stream() == torch.cuda.default_stream()\n"
ACCELERATOR = """
        s = torch.cuda.Stream()
        s.wait_stream(torch.accelerator.current_stream())
        with torch.cuda.stream(s):
            k[(triton.cdiv(n, 256),)](x, y, n, B=256)
        torch.accelerator.current_stream().wait_stream(s)
"""
MANY = "".join(f", a{number}" for number in range(70))
BITS = "tl.maximum(x, 0.0).to(integer(bitwidth=32, signed=True), bitcast=True).to(tl.float32, bitcast=True)"


def edited(*edits: tuple[str, str]) -> str:
    kernel = KERNEL
    for old, new in edits:
        assert old in kernel
        kernel = kernel.replace(old, new)
    return kernel


IDIOMS = {
    "limits of a type as a default": edited(
        ("n, B: tl.constexpr)", "n, B: tl.constexpr, LEAST: tl.constexpr = LIMITS.min, MOST: tl.constexpr = LIMITS.max)"),
        ("tl.maximum(x, 0.0)", "tl.maximum(tl.clamp(x, LEAST, MOST), 0.0)"),
    ),
    "the remainder by a constant of the module": edited(
        (LOAD, "    tl.static_assert(B % WIDTH == 0 and (B << (1 % WIDTH)) & WIDTH == 0)\n" + LOAD)
    ),
    "a function of the language as one of constants": edited(
        (START, OF_CONSTANTS.lstrip() + START), ("tl.maximum(x, 0.0)", BITS)
    ),
    "unsigned counters": edited(
        ("y_ptr, n, B", "y_ptr, n, seen, marks, B"), (LOAD, "    tl.atomic_add(seen, 1)\n" + LOAD), (LAUNCH, COUNTED)
    ),
    "a tensor in an object of its own": edited(
        ("class ModelNew", WRAPPED.lstrip() + "class ModelNew"), ("](x, y, n,", "](Held(x), y, n,")
    ),
    "more arguments than 64": edited(
        ("y_ptr, n, B", f"y_ptr, n{MANY}, B"), ("](x, y, n, B", "](x, y, n, *range(70), B")
    ),
    "a note under the name of a constant": edited((LAUNCH, LAUNCH + "        setattr(y, NOTE, n)\n")),
    "an empty tensor of the host in place of none": edited(
        ("y_ptr, n, B", "y_ptr, n, none, B"), ("](x, y, n, B", "](x, y, n, torch.empty(0), B")
    ),
    "a tensor moved to where another one lies": edited(("torch.empty_like(x)", "torch.zeros(x.shape).to(x)")),
    "streams are compared": edited((LAUNCH, ALIKE + LAUNCH)),
    "the accelerator's stream waits": edited((LAUNCH, ACCELERATOR)),
    "a merge of sorted halves": edited(
        ("tl.maximum(x, 0.0)", "tl.where(i < 0, tl.bitonic_merge(x), tl.maximum(x, 0.0))")
    ),
    "a forward that the compiler leaves alone": edited(
        ("import torch\n", "import torch\nimport torch._dynamo\nimport torch._inductor.utils\n"),
        ("    def forward", "    @torch._dynamo.disable\n    @torch.compiler.disable()\n    def forward"),
        (LAUNCH, "        torch.compiler.cudagraph_mark_step_begin()\n" + LAUNCH),
    ),
    "a compiler that is there if it can be": edited(
        (
            "class ModelNew",
            "try:\n    k_of = torch.compile(lambda x: x)\nexcept Exception:\n    k_of = None\n\n\nclass ModelNew",
        )
    ),
    **{
        context: edited((LAUNCH, WITHIN.format(context=context)))
        for context in (
            "torch.accelerator.device_index(x.device.index)",
            "torch.get_device_module().device(x.device)",
            "torch.get_device_module(x.device).device(x.device.index)",
            "torch.cuda.device(torch.accelerator.current_device_index())",
        )
    },
}  # fmt: skip


def judged(judge: Judge, kernel: str, problem: str = PROBLEM) -> Verdict:
    return judge.submit(problem, kernel).result()


@pytest.mark.parametrize("name", IDIOMS)
def test_what_libraries_do_is_correct(judge: Judge, name: str) -> None:
    verdict = judged(judge, IDIOMS[name])
    assert verdict.status is Status.CORRECT, verdict


@pytest.mark.parametrize("name", ["limits of a type as a default", "a function of the language as one of constants"])
def test_what_libraries_do_is_compiled(judge: Judge, name: str) -> None:
    verdict = judge.submit(PROBLEM, IDIOMS[name], settings={"compile": "always"}).result()
    assert verdict.status is Status.CORRECT, verdict


@pytest.mark.parametrize("kind", ["uint16", "uint32", "uint64"])
def test_unsigned_results_are_compared_as_others(judge: Judge, kind: str) -> None:
    problem = PROBLEM.replace("torch.relu(x) * 2.0", f"(x.long() * 3).to(torch.{kind})").replace(
        "torch.randn(64, 200)", "torch.randint(0, 1 << 30, (64, 200), dtype=torch.int32)"
    )
    right = edited(
        ("tl.maximum(x, 0.0) * 2.0", f"x.to(tl.{kind}) * 3"),
        ("torch.empty_like(x)", f"torch.empty(x.shape, dtype=torch.{kind}, device=x.device)"),
        (", other=0.0", ", other=0"),
    )
    assert judged(judge, right, problem).status is Status.CORRECT
    wrong = judged(judge, right.replace("* 3", "* 5"), problem)
    assert (wrong.status, wrong.error_category) == (Status.INCORRECT, "wrong_values"), wrong


COMPILED = {
    "a method": (("    def forward", "    @torch.compile\n    def forward"), "torch.compile (line 20)"),
    "a method with a mode": (
        ("    def forward", "    @torch.compile(mode='max-autotune')\n    def forward"),
        "torch.compile (line 20)",
    ),
    "the model": (
        (
            "    def forward",
            "    def __init__(self):\n        super().__init__()\n        self.compile()\n\n    def forward",
        ),
        "torch.compile (line 22)",
    ),
    "a call": ((LAUNCH, LAUNCH + "        torch.compile(k.fn)\n"), "torch.compile (line 24)"),
    "a function of dynamo's": (
        ("    def forward", "    @torch._dynamo.optimize('inductor')\n    def forward"),
        "torch._dynamo.optimize (line 20)",
    ),
}


@pytest.mark.parametrize(("edit", "named"), COMPILED.values(), ids=list(COMPILED))
def test_pytorchs_compiler_is_refused_by_its_name_in_strict_and_does_nothing_in_mixed(
    judge: Judge, edit: tuple[str, str], named: str
) -> None:
    verdict = judged(judge, edited(edit))
    assert (verdict.status, verdict.error_category) == (Status.REJECTED, "library_compute"), verdict
    assert (verdict.error_message or "").startswith(named)
    mixed = judge.submit(PROBLEM, edited(edit), settings={"policy": "mixed"}).result()
    assert mixed.status is Status.CORRECT, mixed


def test_limits_are_for_defaults_alone(judge: Judge) -> None:
    verdict = judged(judge, edited(("tl.maximum(x, 0.0)", "tl.maximum(x, LIMITS.min * 0.0)")))
    assert verdict.status is Status.COMPILE_ERROR, verdict
    assert "LIMITS" in (verdict.error_message or "")


def test_an_address_without_its_tensor_is_named(judge: Judge) -> None:
    holder = WRAPPED.lstrip().replace(
        "self.data, self.dtype = data, data.dtype", "self.dtype, self.at = data.dtype, data.data_ptr"
    )
    kernel = edited(
        ("class ModelNew", holder.replace("self.data.data_ptr()", "self.at()") + "class ModelNew"),
        ("](x, y, n,", "](Held(x), y, n,"),
    )
    verdict = judged(judge, kernel)
    assert verdict.status is not Status.CORRECT
    assert "a Held with a data_ptr of its own holds no tensor" in (verdict.error_message or "")


IN_PLACE = PROBLEM.replace("return torch.relu(x) * 2.0", "x[:2] *= 2.0\n        return x")
IN_PLACE_KERNEL = edited(
    ("tl.store(y_ptr + i, tl.maximum(x, 0.0) * 2.0, mask=i < n)", "tl.store(x_ptr + i, x * 2.0, mask=i < n)"),
    ("        y = torch.empty_like(x)\n        n = x.numel()\n", "        y, n = x, 2 * x.shape[1]\n"),
)


def test_an_input_that_the_reference_changes_in_a_few_places_is_a_kernels(judge: Judge) -> None:
    verdict = judged(judge, IN_PLACE_KERNEL, IN_PLACE)
    assert verdict.status is Status.CORRECT, verdict


@pytest.mark.parametrize(
    "problem",
    [
        IN_PLACE.replace("x[:2] *= 2.0\n        return x", "y = x.clone()\n        y[:2] *= 2.0\n        return y"),
        IN_PLACE,
    ],
    ids=["the reference leaves the input alone", "PyTorch copies most of the result"],
)
def test_a_few_elements_beside_a_copy_are_not_a_kernels_result(judge: Judge, problem: str) -> None:
    copied = IN_PLACE_KERNEL.replace("y, n = x, 2", "x = y = x.clone()\n        n = 2")
    verdict = judged(judge, copied, problem)
    assert (verdict.status, verdict.error_category) == (Status.REJECTED, "output_not_from_kernel"), verdict


def test_an_input_that_pytorch_alone_changes_is_not_a_kernels_result(judge: Judge) -> None:
    filled = IN_PLACE_KERNEL.replace("y, n = x, 2", "y, n = x, 0").replace("return y", "x[:2] = 1.0\n        return x")
    verdict = judged(judge, filled.replace("(triton.cdiv(n, 256),)", "(1,)"), IN_PLACE.replace("*= 2.0", "= 1.0"))
    assert (verdict.status, verdict.error_category) == (Status.REJECTED, "output_not_from_kernel"), verdict
