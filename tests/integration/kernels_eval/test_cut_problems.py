"""Problems too large to be interpreted are judged with smaller constants, and the verdict says so."""

import pytest

from kernels_eval import Judge, Status, Verdict

PROBLEM = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(features))

    def forward(self, x):
        return torch.tanh(x) * self.scale[None, :, None, None]

batch_size = 64
features = 48
height = 256
width = 320

def get_inputs():
    return [torch.randn(batch_size, features, height, width)]

def get_init_inputs():
    return [features]
"""
KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def kernel(x_ptr, scale_ptr, out_ptr, n, plane, features, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    scale = tl.load(scale_ptr + i // plane % features, mask=i < n, other=0.0)
    y = 1.0 - 2.0 / (tl.exp(2.0 * x) + 1.0)
    tl.store(out_ptr + i, y * scale, mask=i < n)

class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(features))

    def forward(self, x):
        out = torch.empty_like(x)
        n = x.numel()
        plane = x.shape[2] * x.shape[3]
        kernel[(triton.cdiv(n, 1024),)](x, self.scale, out, n, plane, x.shape[1], BLOCK=1024)
        return out
"""
LAUNCH = "        kernel[(triton.cdiv(n, 1024),)]"
TOO_LARGE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return x @ x

def get_inputs():
    return [torch.randn(2**14, 2**14)]

def get_init_inputs():
    return []
"""


def judged(judge: Judge, kernel: str, full_size_share: float = 0.0) -> Verdict:
    return judge.submit(PROBLEM, kernel, settings={"full_size_share": full_size_share}).result()


def test_a_kernel_is_judged_small_and_timed_at_the_problem_s_own_sizes(judge: Judge) -> None:
    verdict = judged(judge, KERNEL)
    assert verdict.status is Status.CORRECT, verdict.error_message
    assert verdict.judged_at is not None
    assert verdict.judged_at.endswith("of 64 × 48 × 256 × 320")
    assert (verdict.executed_size, verdict.full_size) == (4, 64)
    # One read and one write of 1 GB at an H100's rate, and less than eager execution's two operators.
    assert verdict.candidate_ms == pytest.approx(2 * 64 * 48 * 256 * 320 * 4 / 3.35e12 * 1e3, rel=0.5)
    assert 1.2 < (verdict.speedup or 0.0) < 2.5


@pytest.mark.parametrize(
    "kernel",
    [
        KERNEL.replace("x * scale", "scale").replace("y * scale", "y"),
        KERNEL.replace(LAUNCH, f"        if x.shape[2] > 64:\n            return out\n{LAUNCH}"),
        KERNEL.replace(LAUNCH, f"        out = out if x.shape[2] < 64 else torch.empty_like(x)\n{LAUNCH}").replace(
            "return out", "return out if x.shape[2] < 64 else x"
        ),
    ],
    ids=["wrong", "left out at the problem's own sizes", "another output there"],
)
def test_a_kernel_that_is_right_at_small_sizes_alone_is_refused(judge: Judge, kernel: str) -> None:
    assert not judged(judge, kernel).correct


def test_what_is_paid_is_run_at_the_largest_size_that_fits(judge: Judge) -> None:
    wrong = KERNEL.replace(
        "tl.store(out_ptr + i, y * scale", "y = tl.where(i // plane > 150, 0.0, y)\n    tl.store(out_ptr + i, y * scale"
    )
    verdict = judged(judge, wrong, 1.0)
    assert verdict.status is not Status.CORRECT


def test_what_cannot_be_cut_is_refused_for_the_problem(judge: Judge) -> None:
    verdict = judge.submit(TOO_LARGE, KERNEL).result()
    assert verdict.status is Status.INFRASTRUCTURE_ERROR
    assert verdict.error_category == "reference_failed"
    assert "8796.1 GFLOP" in (verdict.error_message or "")


@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_a_candidate_may_call_a_recurrent_network_with_a_first_state_in_a_plain_attribute(
    judge: Judge, kind: str
) -> None:
    first = "self.h0" if kind == "GRU" else "(self.h0, self.h0)"
    problem = f"""
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.{kind}(width, 24)
        self.h0 = torch.randn(1, 5, 24)

    def forward(self, x):
        self.h0 = self.h0.to(x.device)
        return torch.tanh(self.net(x, {first})[0])

def get_inputs():
    return [torch.randn(4, 5, 16)]

def get_init_inputs():
    return [16]
"""
    own = "\nclass ModelNew(Model):\n    pass\n"
    verdict = judge.submit(problem, problem + own, None, {"policy": "mixed"}).result()
    assert verdict.error_category == "no_kernel_launched", verdict.error_message


FIRST_STATE = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.h0 = torch.randn(width)
    def forward(self, x):
        return x + self.h0
def get_inputs():
    return [torch.randn(64, 96)]
def get_init_inputs():
    return [96]
"""
OWN_STATE = """
import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def add(x_ptr, h_ptr, out_ptr, n, M, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    h = tl.load(h_ptr + i % M, mask=i < n, other=0.0)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n, other=0.0) + h, mask=i < n)

class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        spare = torch.randn({spare})
        self.start = torch.randn(width)
    def forward(self, x):
        out = torch.empty_like(x)
        add[(triton.cdiv(x.numel(), 256),)](x, self.start, out, x.numel(), x.shape[1], BLOCK=256)
        return out
"""


def test_a_first_state_of_another_name_is_right_if_drawn_alike_and_else_said_to_be_missing(judge: Judge) -> None:
    alike, other, named = (
        judge.submit(FIRST_STATE, kernel).result()
        for kernel in (
            OWN_STATE.format(spare=0),
            OWN_STATE.format(spare=7),
            OWN_STATE.format(spare=7).replace("self.start", "self.h0"),
        )
    )
    assert alike.correct, alike.error_message
    assert named.correct, named.error_message
    assert other.error_category == "wrong_values"
    assert "the reference draws h0 in its constructor" in (other.error_message or "")


SQUARE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, A, B):
        return torch.matmul(A, B)


N = 2048


def get_inputs():
    return [torch.randn(N, N), torch.randn(N, N)]


def get_init_inputs():
    return []
"""
OF_ONE_SIZE = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product(a, b, c, N, B: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * B + tl.arange(0, B)
    rn = tl.program_id(1) * B + tl.arange(0, B)
    acc = tl.zeros((B, B), tl.float32)
    for k in range(0, N, BK):
        rk = k + tl.arange(0, BK)
        x = tl.load(a + rm[:, None] * N + rk[None, :], mask=(rm[:, None] < N) & (rk[None, :] < N), other=0.0)
        y = tl.load(b + rk[:, None] * N + rn[None, :], mask=(rk[:, None] < N) & (rn[None, :] < N), other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
    tl.store(c + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < N) & (rn[None, :] < N))


class ModelNew(nn.Module):
    def forward(self, A, B):
        N = A.shape[0]
        C = torch.empty_like(A)
        product[(triton.cdiv(N, 128), triton.cdiv(N, 128))](A, B, C, N, B=128, BK=64)
        return C
"""


@pytest.mark.slow
@pytest.mark.parametrize("size", [2048, 4096])
def test_a_kernel_may_rely_on_square_matrices_that_are_too_large(judge: Judge, size: int) -> None:
    """Judge the smaller one, which is not cut for other kernels, and the larger one, which is run at twice its cut."""
    problem = SQUARE.replace("2048", str(size))
    settings = {"full_size_share": 1.0, "timeout_s": 3.0}
    verdict = judge.submit(problem, OF_ONE_SIZE, settings=settings).result()
    assert verdict.status is Status.CORRECT, verdict
    wrong = OF_ONE_SIZE.replace("C = torch.empty_like(A)", "C = torch.empty_like(A) if N < 1000 else A.clone()")
    wrong = wrong.replace("        product[", "        if N < 1000:\n          product[")
    assert not judge.submit(problem, wrong, settings=settings).result().correct
