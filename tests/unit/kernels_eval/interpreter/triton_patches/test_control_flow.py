"""Boolean operators, conditions, loops, `raise` and numbers mean in the interpreter what they mean compiled.

The expected values follow triton/compiler/code_generator.py; tools/gpu/interpreter_against_compiler.py compares them
with compiled kernels.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

DOUBLE = Path(__file__).parents[4] / "doubles" / "interpreted.py"
Outcome = dict[str, Any]
HEAD = "def kernel(x_ptr, o_ptr, n, eps, flag, C: tl.constexpr):\n    i = tl.arange(0, 8)\n"
X = [-2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def body(*lines: str, value: str = "v", first: str = "") -> dict[str, Any]:
    """Return a launch whose kernel stores `value`, made by these lines, in eight places."""
    text = "".join(f"    {line}\n" for line in lines)
    source = f"{first}{HEAD}    x = tl.load(x_ptr + i)\n{text}    tl.store(o_ptr + i, {value})\n"
    return {
        "source": source,
        "grid": [1, 1, 1],
        "arguments": {
            "x_ptr": {"dtype": "float32", "shape": [8], "data": X},
            "o_ptr": {"dtype": "float32", "shape": [8], "data": [0] * 8},
            "n": 5,
            "eps": 0.1,
            "flag": True,
            "C": 4,
        },
    }


def each(function: Callable[[float], Any]) -> list[float]:
    return [float(function(x)) for x in X]


GIVES: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "a loop downwards by a number": (
        body("v = x", "for k in range(n, 0, -1):", "    v = v * 2 - k"),
        each(lambda x: 32 * x - 129),
    ),
    "a loop downwards by an argument, which takes no turn": (
        {
            **(down := body("v = x", "for k in range(8, 0, n):", "    v = v + k")),
            "arguments": {**down["arguments"], "n": -1},
        },
        X,
    ),
    "a loop's counter after it, which is undefined": (
        body("k = 3", "for k in range(0, n):", "    x = x * 1.0", value="k > 4"),
        [1.0] * 8,
    ),
    "a counter after a loop that is unrolled": (
        body("for k in tl.static_range(0, 3):", "    x = x * 1.0", value="k"),
        [2.0] * 8,
    ),
    "a counter after a loop that is given another value": (
        body("for k in range(0, n):", "    x = x * 1.0", "k = 7", value="k"),
        [7.0] * 8,
    ),
    "division of integers by zero": (
        body("d = i % 4", value="tl.where(i < 4, 7 // d, 7 % d)"),
        [-1.0, 7.0, 3.0, 2.0, 7.0, 0.0, 1.0, 1.0],
    ),
    "the place of a number beside a NaN": (
        body("v = tl.where(i == 2, float('nan'), x)", value="tl.argmax(v, 0)"),
        [7.0] * 8,
    ),
    "float16 values that overflow on the way": (
        body("h = tl.where(i < 4, 40000.0, -40000.0).to(tl.float16)", value="tl.sum(tl.where(i % 4 < 2, h, 0), 0)"),
        [0.0] * 8,
    ),
    "and of blocks": (body("v = (x > 0) and (i < n)"), each(lambda x: 0 < x < 3)),
    "or of blocks": (body("v = (x > 2) or (x < 0)"), each(lambda x: x > 2 or x < 0)),
    "not of a block": (body("v = not (x > 0)"), each(lambda x: not x > 0)),
    "and of three, in where": (
        body("v = tl.where((x > -2) and (i < n) and not (x == 0), x, 9.0)"),
        [9.0, -1.0, 9.0, 1.0, 2.0, 9.0, 9.0, 9.0],
    ),
    "constants decide": (body("v = tl.where(C == 4 or x > 0, 1.0, 2.0)"), [1.0] * 8),
    "constants that do not decide": (body("v = C == 4 and x > 0"), each(lambda x: x > 0)),
    "scalars": (body("v = x", "if n > 3 and not (n > 7):", "    v = x + 1"), each(lambda x: x + 1)),
    "a flag of the launch": (body("v = x", "if flag:", "    v = -x"), each(lambda x: -x)),
    "a float that is converted": (body("v = x * 0 + eps.to(tl.float32)"), [float(np.float32(0.1))] * 8),
    # 0.1 is 0.100000001… in single precision: in double precision its difference from 0.1 is 1.5e-9, here it is 0.
    "floats are single precision": (body("c = eps - 0.1", "v = x * 0 + c"), [0.0] * 8),
    "products of floats are single precision": (
        body("v = x * 0 + eps * eps * 1e8"),
        [float(np.float32(0.1) * np.float32(0.1) * np.float32(1e8))] * 8,
    ),
    "a size that is converted": (body("v = x + n.to(tl.int64)"), each(lambda x: x + 5)),
    "a counter is a tensor": (
        body("v = x * 0", "for k in range(0, n, 2):", "    v += k.to(tl.float32)"),
        [6.0] * 8,
    ),
    "loops of constants": (body("v = x", "for k in tl.static_range(C):", "    v += k"), each(lambda x: x + 6)),
    "smallest of scalars": (body("m = min(n, C)", "v = x + m"), each(lambda x: x + 4)),
    "largest of blocks": (body("v = max(x, 0.0)"), each(lambda x: max(x, 0.0))),
    "raise in a branch that is not taken": (
        body("if C == 8:", "    raise ValueError('C')", "v = x"),
        each(lambda x: x),
    ),
    "raise in the branch of an else": (
        body("if C == 4:", "    v = x", "else:", "    raise NotImplementedError(f'C is {C}')"),
        each(lambda x: x),
    ),
    "assertion that holds": (body("assert C == 4 and n > 0, 'C'", "v = x"), each(lambda x: x)),
    "conditional expression": (body("v = x if n > 3 else -x"), each(lambda x: x)),
    "in a function that is called": (
        body("v = chosen(x, n)", first="def chosen(x, n):\n    return tl.where((x > 0) and (x < n), x, 0.0)\n"),
        [0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 0.0],
    ),
    "lanes that are masked off hold no number": (
        body("v = tl.load(x_ptr + i, mask=i < n)", "v = tl.where(tl.abs(v) < 1e30, v, 77.0)"),
        [*X[:5], 77.0, 77.0, 77.0],
    ),
    "a scalar that is masked off holds no number": (
        body("v = x + tl.load(x_ptr, mask=n > 100)", "v = tl.where(tl.abs(v) < 1e30, v, 77.0)"),
        [77.0] * 8,
    ),
    "the largest of lanes of which some are masked off": (
        body("v = x * 0 + tl.max(tl.load(x_ptr + i, mask=i < n), axis=0)"),
        [float("inf")] * 8,
    ),
    "the smallest of lanes of which some are masked off": (
        body("v = x * 0 + tl.min(tl.load(x_ptr + i, mask=i < n), axis=0)"),
        [float("-inf")] * 8,
    ),
    "the largest of bfloat16 lanes of which some are masked off": (
        body(
            "p = x_ptr.to(tl.pointer_type(tl.bfloat16))",
            "v = x * 0 + tl.max(tl.load(p + i, mask=i < n).to(tl.float32), axis=0)",
        ),
        [float("inf")] * 8,
    ),
    "integers that are masked off are extreme": (
        body("p = x_ptr.to(tl.pointer_type(tl.int32))", "v = tl.abs(tl.load(p + i, mask=i < 0) // 2 + 1) > 1000000"),
        [1.0] * 8,
    ),
    "lanes that are masked off hold zero, as on NVIDIA's devices": (
        body("v = tl.load(x_ptr + i, mask=i < n)") | {"poisoned": False},
        [*X[:5], 0.0, 0.0, 0.0],
    ),
    "other": (body("v = tl.load(x_ptr + i, mask=i < n, other=7.0)"), [*X[:5], 7.0, 7.0, 7.0]),
    "unsigned numbers inverted": (body("v = ~i.to(tl.uint8)"), [255.0 - k for k in range(8)]),
    "static assertion that holds": (body("tl.static_assert(C == 4)", "v = x"), X),
    "a load whose lanes are all masked off by a scalar": (
        body("v = x + tl.load(x_ptr - 1000 + i, mask=(i < n) & (tl.program_id(0) > 0), other=0.0)"),
        X,
    ),
    "a store whose lanes are all masked off by a scalar": (
        body("v = x", "tl.store(o_ptr - 1000 + i, x, mask=(i < n) & (n < 0))"),
        X,
    ),
    "an atomic whose lanes are all masked off by a scalar": (
        body("v = x", "tl.atomic_add(o_ptr - 1000 + i, x, mask=(i < n) & (n < 0))"),
        X,
    ),
    "a scalar load whose other is zero": (
        body("v = x + tl.load(x_ptr + n, mask=n < 0, other=0.0)"),
        each(lambda x: x),
    ),
}
REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "the truth of a block": (body("v = x", "if x > 0:", "    v = -x"), "UnsupportedError", "ambiguous"),
    "a chained comparison": (body("v = 0 < i < n"), "UnsupportedError", "chained comparison"),
    "and of numbers that are no booleans": (body("v = n and x > 0"), "ValueError", "bitcast"),
    "not of a number": (body("v = x", "if not n:", "    v = -x"), "ValueError", "bitcast"),
    "raise that is reached": (body("if C == 4:", "    raise ValueError('no')", "v = x"), "UnsupportedError", "raise"),
    "raise in a branch on values": (
        body("if n > 100:", "    raise ValueError('n')", "v = x"),
        "UnsupportedError",
        "only known at run time",
    ),
    "a lane outside of a tensor under a mask of a block and a scalar": (
        body("v = tl.load(x_ptr + 4 * i, mask=(i < 3) & (n > 0), other=0.0)"),
        "OutOfBoundsError",
        "1 of 3 elements",
    ),
    "and evaluates both sides": (
        body("v = x", "if n < 0 and tl.load(x_ptr + 1000000) > 0:", "    v = -x"),
        "OutOfBoundsError",
        "outside its tensors",
    ),
    "static assertion that fails": (body("tl.static_assert(C == 5, 'five')", "v = x"), "UnsupportedError", "five"),
    "functions that have no half precision": (body("v = tl.exp(x.to(tl.float16))"), "ValueError", "Expected dtype"),
    "assertion that fails": (body("assert n > 100, 'n is small'", "v = x"), "AssertionError", "n is small"),
}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    cases = {name: case[0] for name, case in (*GIVES.items(), *REFUSED.items())}
    done = subprocess.run(
        [sys.executable, str(DOUBLE)],
        input=json.dumps(list(cases.values())),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return dict(zip(cases, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("name", GIVES)
def test_values_are_those_of_the_compiled_kernel(name: str, outcomes: dict[str, Outcome]) -> None:
    assert outcomes[name].get("error") is None, outcomes[name]
    assert outcomes[name]["tensors"]["o_ptr"] == GIVES[name][1]


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_are_those_of_the_compiler(name: str, outcomes: dict[str, Outcome]) -> None:
    _, kind, message = REFUSED[name]
    assert outcomes[name].get("error") == kind, outcomes[name]
    assert message in outcomes[name]["message"]
