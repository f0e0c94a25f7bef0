"""Honest code that looks unusual to the judge gets the verdict that a GPU would give, or one sentence on why not."""

import pytest

from kernels_eval import Judge, JudgeConfig, Status, Verdict

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


@triton.jit
def k(x_ptr, y_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(y_ptr + i, tl.maximum(x, 0.0) * 2.0, mask=i < n)


class ModelNew(nn.Module):
    best = None

    def forward(self, x):
        y = torch.empty_like(x)
        n = x.numel()
        k[(triton.cdiv(n, 256),)](x, y, n, B=256)
        return y
"""
OF_CONSTANTS = """
from triton.language.standard import _log2


def plain(value):
    return value.value if isinstance(value, tl.constexpr) else value


@tl.constexpr
def integer(bits):
    return tl.core.get_int_dtype(plain(bits), True)


twice = tl.constexpr(plain)


@triton.jit
def least(dtype, n):
    of: tl.constexpr = dtype.value
    if of.is_floating():
        return n.value * 0.0
    return -1.0


@triton.jit
def k("""
COMBINING = """from triton.language.standard import _argmax_combine_tie_break_left, _elementwise_max


"""
COMBINED = """    j = tl.join(x, tl.zeros_like(x))
    places = tl.broadcast_to(tl.arange(0, 2)[None, :], (B, 2))
    v, _ = tl.reduce((j, places), 1, _argmax_combine_tie_break_left)
    s = tl.sum(tl.reduce(j, 1, tl.standard._sum_combine) - x, 0)
    x = tl.maximum(v, tl.reduce(j, 1, _elementwise_max)) + s
"""
LAUNCH = "        k[(triton.cdiv(n, 256),)](x, y, n, B=256)\n"


def judged(judge: Judge, kernel: str, problem: str = PROBLEM, **settings: object) -> Verdict:
    """Return the verdict on a kernel, never compiled unless the settings say so."""
    return judge.submit(problem, kernel, settings={"compile": "never"} | settings).result()


def with_launch(text: str) -> str:
    assert LAUNCH in KERNEL
    return KERNEL.replace(LAUNCH, text)


CORRECT = {
    "a parameter beyond ASCII": KERNEL.replace("x_ptr", "größe_ptr").replace("B:", "块:").replace("B ", "块 ")
    .replace("0, B)", "0, 块)").replace("B=", "块="),
    "an import for a plot": "import matplotlib.pyplot as plt\nfrom matplotlib import cm\n" + KERNEL,
    "a byte order mark": "\ufeff" + KERNEL,
    "a sparse matrix, unused, in a buffer": KERNEL.replace(
        "    best = None\n",
        "    best = None\n\n    def __init__(self):\n        super().__init__()\n"
        "        self.register_buffer('matrix', torch.eye(4).to_sparse())\n",
    ),
    "a benchmark in forward": with_launch(
        "        if self.best is None:\n"
        "            run = lambda b: k[(triton.cdiv(n, b),)](x, y, n, B=b)\n"
        "            times = {b: triton.testing.do_bench(lambda: run(b)) for b in (128, 256)}\n"
        "            low, high = triton.testing.do_bench(lambda: run(128), quantiles=[0.2, 0.8])\n"
        "            self.best = min(times, key=times.get) if low <= high else 0\n"
        "        k[(triton.cdiv(n, self.best),)](x, y, n, B=self.best)\n"
    ),
    "constants asked for their value, and plain functions of constants": KERNEL.replace(
        "@triton.jit\ndef k(", OF_CONSTANTS
    ).replace("tl.maximum(x, 0.0)", "tl.maximum(x, least(x.dtype, B)).to(integer(x.dtype.primitive_bitwidth), "
              "bitcast=True).to(tl.float32, bitcast=True)").replace("B + tl.arange(0, B)", "B.value + tl.arange(0, twice(1 << _log2(B)))"),
    "a launch that the next one need not wait for": KERNEL.replace(
        "    x = tl.load", "    tl.extra.cuda.gdc_wait()\n    x = tl.load"
    ) + "# tl.extra.cuda.gdc_launch_dependents()\n",
    "functions of mathematics as methods of a block": KERNEL.replace(
        "tl.maximum(x, 0.0)", "tl.where(x > 0, (x.abs() + 1e-30).log().exp().sqrt() * (x.abs() + 1e-30).sqrt(), 0.0)"
    ),
    "a kernel asked for its class, and a launch for its figures": with_launch(
        "        assert isinstance(k, triton.JITFunction) and isinstance(k, triton.runtime.jit.JITFunction)\n"
        "        assert not isinstance(x, triton.JITFunction)\n" + LAUNCH.replace("k[", "self.handle = k[")
        + "        assert self.handle.n_regs > 0 and self.handle.metadata.shared >= 0 and self.handle.n_spills == 0\n"
    ),
    "functions of the language that combine elements": KERNEL.replace("@triton.jit", COMBINING + "@triton.jit").replace(
        "    tl.store", COMBINED + "    tl.store"
    ),
    "types promoted in forward": with_launch(
        "        y = y.to(torch.promote_types(x.dtype, torch.result_type(x, 1.0)))\n" + LAUNCH
    ),
    "events in forward": with_launch(
        "        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))\n"
        "        start.record()\n" + LAUNCH + "        end.record()\n        torch.cuda.synchronize()\n"
        "        assert start.elapsed_time(end) > 0 and end.query()\n"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CORRECT)
def test_unusual_code_is_correct(judge: Judge, name: str) -> None:
    verdict = judged(judge, CORRECT[name])
    assert verdict.status is Status.CORRECT, verdict


def test_a_problem_with_a_byte_order_mark_is_a_problem(judge: Judge) -> None:
    assert judged(judge, KERNEL, "\ufeff" + PROBLEM).status is Status.CORRECT


@pytest.mark.parametrize("grid", ["triton.cdiv(n, 256)", "lambda meta: triton.cdiv(n, meta['B'])"])
def test_a_number_is_no_grid(judge: Judge, grid: str) -> None:
    verdict = judged(judge, KERNEL.replace("(triton.cdiv(n, 256),)", grid))
    assert verdict.status is Status.RUNTIME_ERROR
    assert "object of type 'int' has no len()" in (verdict.error_message or "")


def test_a_method_of_mathematics_takes_no_whole_numbers(judge: Judge) -> None:
    verdict = judged(judge, KERNEL.replace("tl.maximum(x, 0.0)", "tl.maximum(x, x.to(tl.int32).exp() * 0.0)"))
    assert (verdict.status, verdict.error_category) == (Status.COMPILE_ERROR, "triton_compile")
    assert "floating-point" in (verdict.error_message or "")


def test_a_kernels_own_name_is_ascii(judge: Judge) -> None:
    verdict = judged(judge, KERNEL.replace("def k(", "def kö(").replace(" k[", " kö["))
    assert (verdict.status, verdict.error_category) == (Status.COMPILE_ERROR, "triton_compile")


def test_more_operations_than_can_be_told_are_no_cheat(judge: Judge) -> None:
    many = "        for _ in range(7000):\n            y = torch.empty_like(x).copy_(y)\n"
    verdict = judged(judge, with_launch(LAUNCH + many))
    assert verdict.status is not Status.REJECTED, verdict


def test_an_exception_without_a_text_is_an_exception(judge: Judge) -> None:
    text = "        class E(Exception):\n            __str__ = None\n        raise E\n"
    verdict = judged(judge, with_launch(text))
    assert (verdict.status, verdict.error_category) == (Status.RUNTIME_ERROR, "exception")


def test_settings_of_one_problem_are_not_those_of_the_next() -> None:
    half = PROBLEM.replace("class Model", "torch.set_default_dtype(torch.float16)\n\n\nclass Model")
    wide = KERNEL.replace("empty_like(x)", "empty_like(x, dtype=torch.float32)")
    with Judge(JudgeConfig(workers=1, device="cpu")) as judge:
        assert judged(judge, wide, half).error_category == "wrong_dtype"
        assert judged(judge, wide).correct
        assert judged(judge, wide + "# again\n", half).error_category == "wrong_dtype"


ROWS = PROBLEM.replace("torch.relu(x) * 2.0", "x.sum(1)")
ROW_SUM = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def k(x_ptr, y_ptr, N, B: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, B)
    x = tl.load(x_ptr + row * N + c, mask=c < N)
    tl.store(y_ptr + row, tl.sum(x, 0))


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], device=x.device)
        k[(x.shape[0],)](x, y, x.shape[1], B=256)
        return y
"""
BLOCK = ROW_SUM.replace("    c = tl.arange(0, B)\n", "").replace(
    "tl.load(x_ptr + row * N + c, mask=c < N)",
    "tl.load(tl.make_block_ptr(x_ptr + row * N, (N,), (1,), (0,), (B,), (0,)), boundary_check=(0,))",
)


@pytest.mark.parametrize("kernel", [ROW_SUM, BLOCK], ids=["mask", "block pointer"])
def test_lanes_without_other_hold_zero_and_the_verdict_says_so(judge: Judge, kernel: str) -> None:
    verdict = judged(judge, kernel, ROWS)
    assert verdict.status is Status.CORRECT
    (warning,) = verdict.warnings
    line = next(number for number, text in enumerate(kernel.split("\n"), 1) if "tl.load(" in text)
    assert f"(line {line}): undefined by Triton's text; zero on NVIDIA" in warning
    for settings in ({"portable": True}, {"targets": ("cuda:90", "hip:gfx942")}):
        portable = judged(judge, kernel, ROWS, **settings)
        assert (portable.status, portable.error_category) == (Status.INCORRECT, "wrong_values"), portable
        assert f"line {line}" in (portable.error_message or "")
        assert not portable.warnings


def test_lanes_that_reach_no_result_are_no_warning(judge: Judge) -> None:
    for settings in ({}, {"portable": True}):
        verdict = judged(judge, KERNEL.replace(", other=0.0", ""), **settings)
        assert verdict.status is Status.CORRECT, verdict
        assert not verdict.warnings


def test_zero_is_the_wrong_number_for_a_maximum(judge: Judge) -> None:
    problem = ROWS.replace("x.sum(1)", "x.amax(1)").replace("torch.randn(64, 200)", "-1.0 - torch.rand(64, 200)")
    verdict = judged(judge, ROW_SUM.replace("tl.sum", "tl.max"), problem)
    assert verdict.status is Status.INCORRECT


IN_THE_CONSTRUCTOR = """    best = None

    def __init__(self):
        super().__init__()
        some = torch.zeros(4096, device="cuda")
        self.warm = torch.empty_like(some)
        k[(16,)](some, self.warm, 4096, B=256)
"""
IN_THE_FIRST_CALL = LAUNCH + (
    "        if self.best is None:\n            self.best = torch.empty_like(x)\n"
    "            k[(triton.cdiv(n, 256),)](x, self.best, n, B=256)\n"
)


@pytest.mark.parametrize("rows", [64, 4096])
def test_only_what_every_call_does_is_charged(judge: Judge, rows: int) -> None:
    problem = PROBLEM.replace("64, 200", f"{rows}, 200")
    kernels = (KERNEL, KERNEL.replace("    best = None\n", IN_THE_CONSTRUCTOR), with_launch(IN_THE_FIRST_CALL))
    verdicts = [judged(judge, kernel, problem) for kernel in kernels]
    assert [verdict.status for verdict in verdicts] == [Status.CORRECT] * 3, verdicts
    assert len({verdict.candidate_ms for verdict in verdicts}) == 1, verdicts
