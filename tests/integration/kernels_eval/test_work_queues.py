"""Programs that take their tiles from a queue share them; work that one program does alone stays its own."""

import pytest

from kernels_eval import Judge

PROBLEM = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0 + 1.0
def get_inputs():
    return [torch.randn(272, 1024)]
def get_init_inputs():
    return []
"""
KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl
@triton.jit
def kernel(x_ptr, out_ptr, counter, tiles, n, BLOCK: tl.constexpr):
{tiles}
        i = tile * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + i, mask=i < n, other=0.0)
        tl.store(out_ptr + i, tl.maximum(x, 0.0) * 2.0 + 1.0, mask=i < n)
{then}
class ModelNew(nn.Module):
    def forward(self, x):
        out, n = torch.empty_like(x), x.numel()
        tiles = triton.cdiv(n, 1024)
        counter = torch.zeros(2, dtype=torch.int32, device=x.device)
        kernel[(min(tiles, 132),)](x, out, counter, tiles, n, BLOCK=1024)
        return out
"""
IN_STEPS = ("    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):", "")
QUEUE = (
    "    tile = tl.atomic_add(counter, 1)\n    while tile < tiles:",
    "        tile = tl.atomic_add(counter, 1)\n",
)
RELAXED = (
    "    tile = tl.atomic_add(counter, 1, sem='relaxed')\n    while tile < tiles:",
    "        tile = tl.atomic_add(counter, 1, sem='relaxed')\n",
)
WITH_AN_END = (
    QUEUE[0],
    QUEUE[1] + "    if tile == tiles + tl.num_programs(0) - 1:\n        tl.store(counter, 0)\n",
)
ALONE = (
    "    tile = tl.program_id(0) * tiles\n    while tile < tiles:",
    "        taken = tl.atomic_add(counter, 1)\n        tile += tl.where(taken < 0, 2, 1)\n",
)
"""The first program does all, and counts as one would that takes its tiles from a queue."""
ONE_BY_ONE = (
    "    tile = tl.program_id(0) * tiles\n    while tile < tiles:",
    "        taken = tl.atomic_add(counter, 1)\n        while tl.atomic_add(counter + 1, 0) > taken:\n"
    "            taken = tl.atomic_add(counter, 1)\n        tile += tl.where(taken < 0, 2, 1)\n",
)


def speedup(judge: Judge, kernel: tuple[str, str]) -> float:
    tiles, then = kernel
    verdict = judge.submit(PROBLEM, KERNEL.format(tiles=tiles, then=then), settings={"full_size_share": 1.0}).result()
    assert verdict.speedup is not None, verdict
    return verdict.speedup


@pytest.mark.parametrize("queue", [QUEUE, RELAXED, WITH_AN_END], ids=["queue", "relaxed", "with an end"])
def test_a_queue_of_tiles_is_shared_and_costs_its_atomics(judge: Judge, queue: tuple[str, str]) -> None:
    in_steps = speedup(judge, IN_STEPS)
    assert 0.5 * in_steps < speedup(judge, queue) <= in_steps


@pytest.mark.parametrize("alone", [ALONE, ONE_BY_ONE], ids=["alone", "beside another counter"])
def test_counting_does_not_share_what_one_program_does_alone(judge: Judge, alone: tuple[str, str]) -> None:
    assert speedup(judge, alone) < 0.1 * speedup(judge, IN_STEPS)
