"""Rows that kernels read twice are counted, whatever else a kernel does to hide it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DOUBLE = Path(__file__).parents[3] / "doubles" / "interpreted.py"
ROWS, COLUMNS = 18, 16384
ROW_BYTES = 4 * COLUMNS
HEAD = "    row = x_ptr + pid * N + tl.arange(0, 4096)\n    m = tl.full([4096], -1e9, tl.float32)\n"
FIRST = "    for s in range(0, N, 4096):\n        m = tl.maximum(m, tl.load(row + s{mask}))\n"
SECOND = (
    "    t = tl.zeros([4096], tl.float32)\n    for s in range(0, N, 4096):\n        t += tl.load(row + s{mask})\n"
    "    tl.store(o_ptr + pid, tl.max(m) + tl.sum(t){last})\n"
)
PID = "    pid = tl.program_id(0)\n"
PLAIN = HEAD + FIRST.format(mask="") + SECOND.format(mask="", last="")
MASKED = (
    HEAD + FIRST.format(mask=", mask=on, other=-1e9") + SECOND.format(mask=", mask=on, other=0.0", last=", mask=on")
)
IDLE = "    p = tl.program_id(0)\n    on = (p % 16) != 8\n    pid = p - (p + 7) // 16\n"
ALTERNATING = (
    "    z = tl.zeros([4096, 2], tl.int32)\n    q = tl.zeros([4096, 2], tl.float32)\n    for s in range(0, 256, 16):\n"
    "        q = tl.maximum(q, tl.load(x_ptr + pid * N + s + z + 8 * tl.arange(0, 2)[None, :]))\n"
)
POLLS = "    if pid % 8 != 0:\n        for k in range(4):\n            tl.atomic_add(c_ptr + pid, 0)\n"
SOME = "    if pid % 3 == 0:\n        for s in range(0, N, 4096):\n            m = tl.maximum(m, tl.load(row + s))\n"
KERNELS: dict[str, tuple[str, int, bool, float]] = {
    "together": (PID + PLAIN, ROWS, False, 1.0),
    "one by one": (PID + PLAIN, ROWS, True, 1.0),
    "programs that do nothing in between": (IDLE + MASKED, ROWS + 1, False, 1.0),
    "lanes that alternate between two sectors": (PID + ALTERNATING + PLAIN, ROWS, False, 1.0),
    "other programs within its atomics": (
        PID + HEAD + FIRST.format(mask="") + POLLS + SECOND.format(mask="", last=""), ROWS, False, 1.0,
    ),
    "one program in three": (
        PID + HEAD + FIRST.format(mask="") + SOME + "    tl.store(o_ptr + pid, tl.max(m))\n", ROWS, False, 1 / 3,
    ),
}  # fmt: skip
"""Body, programs, whether they run one by one in any case, and the share of the rows that is read again."""


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Any]:
    row = [(place % 7) / 7 for place in range(ROWS * COLUMNS)]
    tensors = {
        "x_ptr": {"dtype": "float32", "shape": [ROWS, COLUMNS], "data": row},
        "o_ptr": {"dtype": "float32", "shape": [ROWS], "data": [0.0] * ROWS},
        "c_ptr": {"dtype": "int32", "shape": [ROWS], "data": [0] * ROWS},
    }
    cases = [
        {
            "source": f"def kernel(x_ptr, o_ptr, c_ptr, N):\n{body}",
            "grid": [programs, 1, 1],
            "arguments": {**tensors, "N": COLUMNS},
            "fresh": ["o_ptr", "c_ptr"],
            "one_by_one": one_by_one,
        }
        for body, programs, one_by_one, _ in KERNELS.values()
    ]
    done = subprocess.run(
        [sys.executable, str(DOUBLE)], input=json.dumps(cases), capture_output=True, text=True, check=True
    )
    return dict(zip(KERNELS, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("name", KERNELS)
def test_rows_that_are_read_twice_count(outcomes: dict[str, Any], name: str) -> None:
    found, share = outcomes[name], KERNELS[name][3]
    assert "launch" in found, found
    assert found["launch"]["reread_bytes"] == pytest.approx(share * ROWS * ROW_BYTES, rel=0.01)
    assert found["launch"]["reread_reach"] == pytest.approx(ROW_BYTES, rel=0.1)


def test_only_programs_that_never_wait_run_together(outcomes: dict[str, Any]) -> None:
    together = [name for name in KERNELS if outcomes[name]["in_batches"]]
    assert together == ["together", "programs that do nothing in between", "lanes that alternate between two sectors"]
