"""Inductor's device functions, interpreted by Triton on a CPU, against PyTorch and Python."""

import json
import subprocess
import sys
from typing import Any

import pytest

PROGRAM = """
import json, torch, triton, triton.language as tl
from kernels_eval.sandbox import inductor_helpers as helpers

@triton.jit
def pairs(a_ptr, b_ptr, largest, smallest, n: tl.constexpr):
    i = tl.arange(0, n)
    a, b = tl.load(a_ptr + i), tl.load(b_ptr + i)
    tl.store(largest + i, helpers.maximum(a, b))
    tl.store(smallest + i, helpers.minimum(a, b))

@triton.jit
def rows(x_ptr, largest, smallest, some, n: tl.constexpr):
    i, j = tl.arange(0, n), tl.arange(0, n)
    x = tl.load(x_ptr + n * i[:, None] + j[None, :])
    tl.store(largest + i, helpers.max2(x, 1))
    tl.store(smallest + i, helpers.min2(x, 1))
    tl.store(some + i, helpers.any(x > 1.0, 1).to(tl.int32))

@triton.jit
def integers(a_ptr, b_ptr, quotient, remainder, n: tl.constexpr):
    i = tl.arange(0, n)
    a, b = tl.load(a_ptr + i), tl.load(b_ptr + i)
    tl.store(quotient + i, helpers.div_floor_integer(a, b))
    tl.store(remainder + i, helpers.remainder_integer(a, b))

nan, inf = float("nan"), float("inf")
values = torch.tensor([nan, -inf, -1.0, -0.5, 0.0, 1.0, 1.5, inf])
a, b = torch.cartesian_prod(values, values).T.contiguous()
made = [torch.empty(64) for _ in range(2)]
pairs[(1,)](a, b, *made, 64)
same = torch.equal
found = {"pairs": all(torch.allclose(x, y, equal_nan=True, rtol=0, atol=0)
                      for x, y in zip(made, (torch.maximum(a, b), torch.minimum(a, b))))}
x = torch.stack([values.roll(k).where(values.roll(k).isfinite(), torch.tensor(float(k) - 4)) for k in range(8)])
x[3, 2] = nan
made = [torch.empty(8), torch.empty(8), torch.empty(8, dtype=torch.int32)]
rows[(1,)](x, *made, 8)
expected = x.amax(1), x.amin(1), (x > 1.0).any(1).int()
found["rows"] = [torch.allclose(m.float(), e.float(), equal_nan=True, rtol=0, atol=0) for m, e in zip(made, expected)]
numbers = torch.tensor([-7, -6, -1, 1, 2, 3, 6, 7], dtype=torch.int32)
a, b = torch.cartesian_prod(numbers, numbers).T.contiguous()
made = [torch.empty(64, dtype=torch.int32) for _ in range(2)]
integers[(1,)](a, b, *made, 64)
found["quotients"] = made[0].tolist() == [p // q for p, q in zip(a.tolist(), b.tolist())]
found["remainders"] = made[1].tolist() == [p % q for p, q in zip(a.tolist(), b.tolist())]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Whether kernels are interpreted is decided when Triton is imported: in a process of its own."""
    file = tmp_path_factory.mktemp("helpers") / "program.py"
    file.write_text(PROGRAM)
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import os, runpy; os.environ['TRITON_INTERPRET'] = '1'; runpy.run_path({str(file)!r})",
        ],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_larger_and_the_smaller_of_two_are_pytorchs_with_nan(found: dict[str, Any]) -> None:
    assert found["pairs"]


def test_reductions_are_pytorchs_with_nan(found: dict[str, Any]) -> None:
    assert found["rows"] == [True, True, True]


def test_integers_divide_as_in_python(found: dict[str, Any]) -> None:
    assert (found["quotients"], found["remainders"]) == (True, True)
