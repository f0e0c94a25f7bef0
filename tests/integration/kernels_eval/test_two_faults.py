"""Kernels with two faults: which of them a verdict names follows from problem and kernel, not from secret draws or time.

Each kernel is a right one with two faults put into it. It is judged several times, by workers with other secret seeds,
past the cache of verdicts.
"""

import itertools
from collections.abc import Iterator

import pytest

from kernels_eval import Judge, JudgeConfig, Problem
from kernels_eval.pool.job_queue import Job
from kernels_eval.pool.worker_client import WorkerClient

PROBLEM = Problem(
    problem_id="two faults",
    source="""
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0 + 1.0

def get_inputs():
    return [torch.randn(512, 48)]

def get_init_inputs():
    return []
""",
)
KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def kernel(x_ptr, out_ptr, M, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * N + cols, mask=mask, other=0.0)
    y = tl.maximum(x, 0.0) * 2.0 + 1.0
    # computed
    tl.store(out_ptr + row * N + cols, y, mask=mask)
    # stored

class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        out = torch.empty_like(x)
        # allocated
        kernel[(M,)](x, out, M, N, BLOCK=64)
        # launched
        return out
"""
FAULTS = {
    "undefined name": ("computed", "y = y + missing"),
    "undefined name in one program": ("computed", "if row == 3: y = y + missing"),
    "shapes that do not fit in one program": ("computed", "if row == 5: y = y + tl.arange(0, 32)"),
    "assertion in one program": ("computed", "assert row != 7"),
    "wrong values": ("computed", "y = y * 1.5"),
    "rarely wrong values": ("computed", "y = tl.where(x > 2.5, y + 1.0, y)"),
    "NaN": ("computed", "y = y * (0.0 / (x - x))"),
    "a column never written": ("computed", "mask = cols < N - 1"),
    "read outside": ("computed", "y = y + 0 * tl.load(x_ptr + 100000000 + row)"),
    "store outside": ("stored", "tl.store(out_ptr + 100000000, 1.0)"),
    "store outside in one program": ("stored", "tl.store(out_ptr + tl.where(row == 0, 100000000, row * N), 1.0)"),
    "race": ("stored", "tl.store(out_ptr + 1, row * 1.0)"),
    "race of two programs": ("stored", "tl.store(out_ptr + 1, row * 1.0, mask=row < 2)"),
    "changed input": ("stored", "tl.store(x_ptr + row * N, 0.0)"),
    "wrong type": ("allocated", "out = torch.empty_like(x, dtype=torch.float64)"),
    "exception": ("allocated", "x.missing"),
    "exception at the second size": ("allocated", "if M > 8: x.missing"),
    "wrong shape": ("launched", "out = out[:, :1]"),
    "wrong number of outputs": ("launched", "out = out, out"),
}
ORDERED = (
    "undefined name in one program",
    "shapes that do not fit in one program",
    "store outside in one program",
    "race of two programs",
    "exception at the second size",
)
"""Faults whose pairs were named by the order of programs, or by which process was faster."""
_EDGE = ("rarely wrong values", "changed input")
"""Refused kernels stay refused, and is wrong for a draw that shows the wrong values first: no public run decides."""
PAIRS = [pair for pair in itertools.combinations(FAULTS, 2) if pair != _EDGE]


def kernel_with(*names: str) -> str:
    source = KERNEL
    for place, code in (FAULTS[name] for name in names):
        source = source.replace(
            f"# {place}\n", f"{code}\n{' ' * (4 if place in ('computed', 'stored') else 8)}# {place}\n"
        )
    return source


@pytest.fixture(scope="module")
def clients() -> Iterator[list[WorkerClient]]:
    with Judge(JudgeConfig(workers=1, compile="never", full_size_share=0.0)) as judge:
        made = [judge.new_client() for _ in range(2)]
        yield made
        for client in made:
            client.close()


def named(clients: list[WorkerClient], pair: tuple[str, str], times: int) -> set[tuple[str, str | None]]:
    """Return what the verdicts on a kernel name, each worker's turn after the other."""
    source, config = kernel_with(*pair), JudgeConfig(compile="never", full_size_share=0.0, device="cpu")
    verdicts = [clients[turn % len(clients)].judge(Job("", PROBLEM, source, config)).verdict for turn in range(times)]
    assert not any(verdict.correct or verdict.is_fault for verdict in verdicts)
    return {(verdict.status, verdict.error_category) for verdict in verdicts}


@pytest.mark.long
def test_the_order_of_programs_decides_nothing(clients: list[WorkerClient]) -> None:
    found = {pair: named(clients, pair, 6) for pair in itertools.combinations(ORDERED, 2)}
    assert {pair: names for pair, names in found.items() if len(names) > 1} == {}


@pytest.mark.long
def test_each_pair_of_faults_has_one_name(clients: list[WorkerClient]) -> None:
    assert len(PAIRS) > 150
    found = {pair: named(clients, pair, 3) for pair in PAIRS}
    assert {pair: names for pair, names in found.items() if len(names) > 1} == {}
