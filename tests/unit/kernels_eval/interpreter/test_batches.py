"""Programs that are interpreted together write and count what they do one after the other; others are not."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DOUBLE = Path(__file__).parents[3] / "doubles" / "interpreted.py"
PROGRAMS, COLUMNS = 40, 7
HEAD = (
    "    p = tl.program_id(0)\n    rows = p * 2 + tl.arange(0, 2)[:, None]\n    i = tl.arange(0, 8)\n    cols = i[None, :]\n"
    "    offs = rows * N + cols\n    mask = (rows < M) & (cols < N)\n    x = tl.load(x_ptr + offs, mask=mask, other=0.0)\n"
)
STORE = "    tl.store(o_ptr + offs, x, mask=mask)\n"
TOGETHER = {
    "elements": "    x = tl.exp(x) * 2 - tl.abs(x) / 3 + tl.erf(x)\n" + STORE,
    "reductions": "    x = x - tl.max(x, 1)[:, None] + tl.sum(x, 0)[None, :] + tl.min(tl.sum(x, 1, keep_dims=True)) + tl.sum(x)\n"
    + STORE,
    "whole numbers": "    x = x + (offs % 5 + offs // 3 + (offs << 1)).to(tl.float32)\n" + STORE,
    "halves": "    x = (x.to(tl.float16) * 1.5).to(tl.bfloat16).to(tl.float32)\n" + STORE,
    "a value that all share": "    x = x * tl.load(w_ptr + i)[None, :] + tl.load(w_ptr)\n" + STORE,
    "products": "    k = tl.load(w_ptr + i[:, None] * 8 + i[None, :])\n    x = tl.dot(x, k)\n" + STORE,
    "in place, step by step": STORE + "    x = tl.load(o_ptr + offs, mask=mask, other=0.0) + 1\n" + STORE,
    "a transposed access": "    x = tl.load(x_ptr + (cols * 2 + rows) % (M * N))\n" + STORE,
    "a loop": "    for step in range(0, N, 2):\n        x = x * 0.5 + step\n" + STORE,
    "a loop over every fortieth tile": "    for t in range(p, 100, 40):\n        flat = t * 4 + tl.arange(0, 4)\n"
    "        tl.store(o_ptr + flat, tl.load(x_ptr + flat) * t)\n",
    "a loop over tiles of its own": "    for t in range(p * 3, min(p * 3 + 3, 115)):\n        flat = t * 4 + tl.arange(0, 4)\n"
    "        tl.store(o_ptr + flat, tl.load(x_ptr + flat) - t)\n",
    "a loop backwards": "    for t in range(p + 40, p - 1, -40):\n        tl.store(o_ptr + t, tl.load(x_ptr + t) * t)\n",
    "a branch that all take": "    if M > 3:\n        x = x + M\n    x = tl.where(p > 3, x, -x)\n" + STORE,
    "rows without a gap": "    flat = p * 14 + tl.arange(0, 16)\n    part = (tl.arange(0, 16) < 14) & (flat < M * N)\n"
    "    x = tl.load(x_ptr + flat, mask=part)\n    tl.store(o_ptr + flat, x + 1, mask=part)\n"
    "    y = tl.load(o_ptr + flat, mask=part, other=2.0)\n    tl.store(o_ptr + flat, y * 2, mask=part)\n",
    "programs with nothing to do": "    flat = p * 16 + tl.arange(0, 16)\n    part = flat < M * N // 2\n"
    "    tl.store(o_ptr + flat, tl.load(x_ptr + flat, mask=part), mask=part)\n",
    "scalars": "    tl.store(o_ptr + p, tl.load(x_ptr + p) + p)\n",
    "axes of the grid": "    q = tl.program_id(1)\n    tl.store(o_ptr + p + q * tl.num_programs(0), tl.load(x_ptr + q) * p)\n",
}
APART = {
    "a branch": "    if p % 2 == 0:\n        x = x + 1\n" + STORE,
    "a loop of another length": "    for step in range(0, p):\n        x = x + step\n" + STORE,
    "an atomic": "    tl.atomic_add(o_ptr + i, i.to(tl.float32))\n",
    "the same value by all": "    tl.store(o_ptr, tl.load(x_ptr + 3))\n",
    "a barrier": "    tl.store(o_ptr + p * 8 + i, i)\n    tl.debug_barrier()\n"
    "    r = tl.load(o_ptr + p * 8 + (7 - i))\n    tl.debug_barrier()\n    tl.store(o_ptr + p * 8 + i, r)\n",
    "a running sum": "    x = tl.cumsum(x, 1)\n" + STORE,
    "a store to what was given": "    tl.store(x_ptr + offs, x + 1, mask=mask)\n",
}
FAILS = {
    "a neighbour's element": STORE + "    x = tl.load(o_ptr + offs + N)\n    tl.store(s_ptr + offs, x, mask=mask)\n",
    "an element that was read": "    s = tl.load(o_ptr)\n    tl.store(o_ptr + offs, x + s, mask=mask)\n",
    "an element that the last one reads": "    s = tl.load(o_ptr + (p + 1) % 40)\n    tl.store(o_ptr + p, s)\n",
    "several values for one element": "    tl.store(o_ptr, p.to(tl.float32))\n",
    "lanes": "    tl.store(o_ptr + p * 8 + i, i)\n    r = tl.load(o_ptr + p * 8 + (7 - i))\n    tl.store(s_ptr + p * 8 + i, r)\n",
    "past the end": "    tl.store(o_ptr + offs + 500, x)\n",
    "an assertion": "    assert p < 39\n" + STORE,
}


def launch(body: str) -> dict[str, Any]:
    """Return a launch of 40 programs over two rows each, the last of which is masked off."""
    generator = random.Random(1)

    def tensor(count: int) -> dict[str, Any]:
        return {"shape": [count], "dtype": "float32", "data": [generator.uniform(-2, 2) for _ in range(count)]}

    rows = 2 * PROGRAMS - 1
    numbers = {"M": rows, "N": COLUMNS}
    tensors = {"x_ptr": tensor(rows * COLUMNS), "w_ptr": tensor(64), "o_ptr": tensor(700), "s_ptr": tensor(700)}
    return {
        "source": f"def kernel(x_ptr, w_ptr, o_ptr, s_ptr, M, N):\n{HEAD}{body}",
        "grid": [PROGRAMS, 3 if "tl.program_id(1)" in body else 1, 1],
        "arguments": tensors | numbers,
        "fresh": ["o_ptr", "s_ptr"],
    }


@pytest.fixture(scope="module")
def outcomes() -> dict[str, tuple[Any, Any]]:
    """Outcome of each kernel: as it comes, and one program after the other."""
    bodies = TOGETHER | APART | FAILS
    cases = [launch(body) | {"one_by_one": one_by_one} for body in bodies.values() for one_by_one in (False, True)]
    done = subprocess.run(
        [sys.executable, str(DOUBLE)], input=json.dumps(cases), capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    return dict(zip(bodies, zip(found[::2], found[1::2], strict=True), strict=True))


@pytest.mark.parametrize("name", TOGETHER)
def test_programs_that_do_the_same_run_together(outcomes: dict[str, Any], name: str) -> None:
    together, apart = outcomes[name]
    assert together["in_batches"], together
    assert not apart["in_batches"]
    for tensor, expected in apart["tensors"].items():
        assert together["tensors"][tensor] == pytest.approx(expected, rel=1e-5, abs=1e-5), (
            "sums are added up in another order"
        )
    _assert_same_counts(together["launch"], apart["launch"])


@pytest.mark.parametrize("name", APART)
def test_programs_that_branch_or_meet_run_one_after_the_other(outcomes: dict[str, Any], name: str) -> None:
    found, apart = outcomes[name]
    assert not found["in_batches"], found
    assert found == apart


@pytest.mark.parametrize("name", FAILS)
def test_what_is_wrong_is_named_as_ever(outcomes: dict[str, Any], name: str) -> None:
    found, apart = outcomes[name]
    assert found["error"] in ("DataRaceError", "OutOfBoundsError", "AssertionError"), found
    assert found == apart


def _assert_same_counts(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert _plain(found) == pytest.approx(_plain(expected))


def _plain(launch: dict[str, Any]) -> dict[str, Any]:
    """Return the counts of a launch by name, without operations that did not occur."""
    counts = {name: value for name, value in launch.items() if isinstance(value, int | float)}
    blocks = {f"{unit} of {shape}": n for shape, block in launch["blocks"].items() for unit, n in block.items() if n}
    return counts | blocks | {unit: count for unit, count in launch["operations"].items() if count}
