"""Small kernels over operators, types and shapes, for the comparison of the interpreter with the compiler.

Each kernel computes `v` from `x`, `y` and scalars, and stores it in `o_ptr` as float64 or int64, which hold every value
of the narrower types. Its launch is the input of tests/doubles/interpreted.py.
"""

import itertools
import math
import random
from typing import Any

Launch = dict[str, Any]
SIZE = 64
FLOATS = ("float16", "bfloat16", "float32", "float64")
SIGNED = ("int8", "int16", "int32", "int64")
INTEGERS = (*SIGNED, "uint8")
TRITON = {
    "float16": "tl.float16", "bfloat16": "tl.bfloat16", "float32": "tl.float32", "float64": "tl.float64",
    "int8": "tl.int8", "int16": "tl.int16", "int32": "tl.int32", "int64": "tl.int64", "uint8": "tl.uint8",
}  # fmt: skip
UNARY_FLOAT = (
    "tl.exp(x)", "tl.exp2(x)", "tl.log(tl.abs(x) + 1)", "tl.log2(tl.abs(x) + 1)", "tl.sin(x)", "tl.cos(x)",
    "tl.sqrt(tl.abs(x))", "tl.rsqrt(tl.abs(x) + 1)", "tl.erf(x)", "tl.sigmoid(x)", "tl.floor(x)", "tl.ceil(x)",
    "tl.sqrt_rn(tl.abs(x))", "tl.softmax(x)", "tl.fma(x, x, x)", "tl.clamp(x, -1.0, 1.0)",
)  # fmt: skip
"""For float32; Triton refuses most of them for other types, and so must the interpreter."""
UNARY_ANY = (
    "-x",
    "tl.abs(x)",
    "x + 1",
    "x * 2",
    "x - 3",
    "x * x",
    "x == x",
    "x > 0",
    "tl.maximum(x, 1)",
    "tl.minimum(x, 0)",
)
BINARY_FLOAT = ("x + y", "x - y", "x * y", "x / y", "x % y", "x < y", "x == y", "tl.maximum(x, y)", "tl.minimum(x, y)",
                "tl.where(x > y, x, y)", "tl.fdiv(x, y)", "tl.div_rn(x, y)", "x // y", "x * 0.1", "0.1 - x", "x / 3", "x + 1e-3")  # fmt: skip
BINARY_INTEGER = ("x + y", "x - y", "x * y", "x // y", "x % y", "x & y", "x | y", "x ^ y", "x << (y & 3)", "x >> (y & 3)",
                  "~x", "x < y", "x != y", "tl.maximum(x, y)", "tl.where(x > y, x, y)", "x / y", "x * 100", "x // 3", "x % 3",
                  "-x // 2", "tl.cdiv(x, 3)", "x * 0.5", "x > 1.5")  # fmt: skip
REDUCTIONS = ("tl.sum(x)", "tl.max(x)", "tl.min(x)", "tl.argmax(x, 0)", "tl.argmin(x, 0)", "tl.cumsum(x, 0)",
              "tl.cumsum(x, 0, reverse=True)", "tl.sort(x)", "tl.flip(x)", "tl.reduce(x, 0, larger)",
              "tl.associative_scan(x, 0, larger)", "tl.sum(tl.reshape(x, [8, 8]), 1)[:, None] + tl.zeros([8, 8], tl.float32)",
              "tl.max(tl.reshape(x, [8, 8]), 0)[None, :] + tl.zeros([8, 8], tl.float32)")  # fmt: skip
SHAPES = ("tl.trans(tl.reshape(x, [8, 8]))", "tl.reshape(x, [4, 16])", "tl.join(x, x)", "tl.interleave(x, x)",
          "tl.expand_dims(x, 0)", "tl.broadcast_to(tl.sum(x), [64])", "tl.gather(x, 63 - i, 0)",
          "tl.permute(tl.reshape(x, [2, 4, 8]), [2, 0, 1])", "tl.cat(x, x, can_reorder=True) * 0")  # fmt: skip
LOGIC = (
    "(x > 0) and (y > 0)", "(x > 0) or (y > 0)", "not (x > 0)", "(x > 0) and (y > 0) and (i < n)",
    "tl.where(C == 4 and x > 0, x, y)", "tl.where(C == 5 or x > 0, x, y)", "x if n > 3 else y", "x if n > 3 and flag else y",
    "x if not flag else y", "0 < i < n", "n and x > 0", "not n", "x and y", "min(n, C) + x", "max(x, y)", "n.to(tl.int64) + i",
    "eps.to(tl.float64)", "eps * eps", "eps - 0.1", "eps * 3 - eps * 2 - eps", "n // -2", "-n % 3", "n / 2", "eps + n",
    "(n * 1000000) * 1000", "n == 5", "flag + 1", "x + flag", "tl.full([64], eps, tl.float32)", "tl.cdiv(n, C)",
    "one.to(tl.int64)", "big + 1", "big * 4", "x * C", "C / 3", "tl.where(i < n, x, 0)", "tl.load(x_ptr + n) + x",
)  # fmt: skip
BODIES: dict[str, str] = {
    "assigned constant is a tensor": "a = -7\nv = a // 2",
    "constants are Python's": "v = (-7) // 2",
    "annotated constant": "a: tl.constexpr = C * 2\nv = tl.arange(0, a)",
    "counter of a loop": "v = x * 0\nfor k in range(0, n, 2):\n    v += k",
    "counter converted": "v = x * 0\nfor k in range(n):\n    v += k.to(tl.float32) * 0.5",
    "counter downwards": "v = x * 0\nfor k in range(n, 0, -1):\n    v = v * 2 + k",
    "static loop": "v = x\nfor k in tl.static_range(C):\n    v += k // 2",
    "while": "v = x * 0\nk = 0\nwhile k < n:\n    v += k\n    k += 1",
    "while with and": "v = x * 0\nk = 0\nwhile (k < n) and (k < C):\n    v += k\n    k += 1",
    "branch on a value": "v = x\nif tl.sum(x) > 0:\n    v = y",
    "branch on a block": "v = x\nif x > 0:\n    v = y",
    "raise in a constant branch": "v = x\nif C == 8:\n    raise ValueError('C')",
    "raise in another branch": "v = x\nif n == 8:\n    raise ValueError('n')",
    "raise reached": "v = x\nif C == 4:\n    raise ValueError('C')",
    "static assertion": "tl.static_assert(C == 4)\nv = x",
    "static assertion that fails": "tl.static_assert(C == 5, 'five')\nv = x",
    "float accumulates": "a = 0.0\nfor k in range(100):\n    a += 0.1\nv = x * 0 + a",
    "float constants": "a = 1.0 / 3.0\nv = x * a",
    "masked load with other": "v = tl.load(x_ptr + i, mask=i < n, other=7.0)",
    "scalar load with other zero": "v = tl.load(x_ptr + n, mask=n > 100, other=0) + x",
    "pointers move": "p = x_ptr + 3\np += 2\nv = tl.load(p) + x",
    "store and load with a barrier": "tl.store(s_ptr + i, x)\ntl.debug_barrier()\nv = tl.load(s_ptr + 63 - i)",
    "function with a default": "v = scaled(x)",
    "tuple of results": "a, b = both(x, y)\nv = a - b",
    "integer overflow": "v = (i + 2147483600)",
    "int8 arithmetic": "a = (x * 30).to(tl.int8)\nv = a + a",
    "uint8 and int8": "a = tl.abs(x).to(tl.uint8)\nb = x.to(tl.int8)\nv = a + b",
    "float16 overflow": "v = (x * 1e4).to(tl.float16) * 100",
    "bfloat16 sum": "a = x.to(tl.bfloat16)\nv = a + a * 0.3",
    "bitcast": "v = x.to(tl.int32, bitcast=True)",
    "umulhi": "v = tl.umulhi(i * 100000000, i * 30000000)",
    "random numbers": "v = tl.rand(5, i)",
    "random integers": "v = tl.randint(5, i).to(tl.int64)",
    "histogram": "v = tl.histogram(i // 4, 64)",
    "division of negative integers": "v = (i - 32) // 5",
    "remainder of negative integers": "v = (i - 32) % 5",
    "shift of negative integers": "v = (i - 32) >> 2",
    "unsigned shift": "v = ((i - 32).to(tl.uint32) >> 28).to(tl.int64)",
    "xor sum": "v = tl.xor_sum(i, 0)",
}
ATOMICS = ("add", "max", "min", "and", "or", "xor", "xchg")
DEVICE_1 = ["abs", "acos", "asin", "atan", "acosh", "asinh", "atanh", "cbrt", "ceil", "cos", "cosh", "cospi", "erf", "erfc", "erfinv", "erfcx", "exp", "exp10", "exp2", "expm1", "floor", "ilogb", "j0", "j1", "lgamma", "llrint", "llround", "log", "log10", "log1p", "log2", "logb", "nearbyint", "normcdf", "rcbrt", "rint", "round", "rsqrt", "saturatef", "sin", "sinh", "sinpi", "sqrt", "tan", "tanh", "tgamma", "trunc", "y0", "y1", "cyl_bessel_i0", "cyl_bessel_i1", "isnan", "isinf", "finitef", "signbit", "normcdfinv", "fast_expf", "fast_logf", "fast_sinf", "fast_cosf", "fast_tanf", "fast_log2f", "fast_log10f", "fast_exp10f", "rcp_rn", "sqrt_rz", "rcp_rd", "float2int_rn", "float2int_rz", "float2int_rd", "float2int_ru", "float2uint_rz", "float2ll_rn", "float_as_int", "erfcinv"]  # fmt: skip
DEVICE_2 = [
    "atan2",
    "copysign",
    "fdim",
    "fmod",
    "hypot",
    "nextafter",
    "pow",
    "remainder",
    "rhypot",
    "fast_dividef",
    "fast_powf",
    "add_rn",
    "add_rz",
    "add_rd",
    "add_ru",
    "mul_rd",
    "mul_ru",
    "div_rn",
    "div_rz",
    "div_ru",
    "sub_rz",
]
DEVICE_INT = [
    "clz",
    "popc",
    "brev",
    "ffs",
    "int2float_rn",
    "int2float_rd",
    "int2double_rn",
    "uint2float_rz",
    "int_as_float",
]
DEVICE_INT_2 = ["mulhi", "mul24", "hadd", "rhadd"]
HELPERS = (
    "def larger(a, b):\n    return tl.where(a > b, a, b)\n\n\ndef scaled(a, by: tl.constexpr = 3):\n    return a * by\n\n\n"
    "def both(a, b):\n    return a + b, a * b\n\n\n"
)


def all_launches() -> dict[str, Launch]:
    """Return every launch by name."""
    found: dict[str, Launch] = {}
    for dtype in FLOATS:
        found |= {f"{code} of {dtype}": launch(code, dtype) for code in (*UNARY_FLOAT, *UNARY_ANY, *BINARY_FLOAT)}
    for dtype in INTEGERS:
        found |= {f"{code} of {dtype}": launch(code, dtype) for code in (*UNARY_ANY, *BINARY_INTEGER)}
    for left, right in itertools.permutations((*FLOATS, *INTEGERS), 2):
        found[f"{left} + {right}"] = launch("x + y", left, right)
        found[f"{left} to {right}"] = launch(f"x.to({TRITON[right]})", left)
    found |= {
        f"{code} of {dtype}": launch(code, dtype) for code in REDUCTIONS for dtype in ("float32", "int32", "float16")
    }
    found |= {code: launch(code, "float32") for code in (*SHAPES, *LOGIC)}
    found |= {name: launch("v", "float32", body=body) for name, body in BODIES.items()}
    found |= {f"libdevice.{name}(x)": launch(f"libdevice.{name}(x)", "float32") for name in DEVICE_1}
    found |= {f"libdevice.{name}(x) of float64": launch(f"libdevice.{name}(x)", "float64") for name in DEVICE_1[:40]}
    found |= {f"libdevice.{name}(x, y)": launch(f"libdevice.{name}(x, y)", "float32") for name in DEVICE_2}
    found |= {f"libdevice.{name}(i)": launch(f"libdevice.{name}(i * 1000003)", "int32") for name in DEVICE_INT}
    found |= {
        f"libdevice.{name}(i, j)": launch(f"libdevice.{name}(i * 1000003, i - 40)", "int32") for name in DEVICE_INT_2
    }
    for name in ATOMICS:
        for dtype in ("int32", "float32") if name in ("add", "max", "min", "xchg") else ("int32",):
            body = f"tl.atomic_{name}(s_ptr + i % 8, i.to({TRITON[dtype]}))\ntl.debug_barrier()\nv = tl.load(s_ptr + i)"
            if name != "xchg":
                found[f"atomic_{name} of {dtype}"] = launch("v", dtype, body=body)
    for dtype, precision in itertools.product(("float16", "bfloat16", "float32", "int8"), ("ieee", "tf32")):
        code = f"tl.dot(tl.reshape(x, [16, 16]), tl.reshape(y, [16, 16]), input_precision='{precision}')"
        found[f"dot of {dtype}, {precision}"] = launch(code, dtype, size=256)
    return found


def launch(code: str, dtype: str, other: str | None = None, body: str = "", size: int = SIZE) -> Launch:
    """Return one launch that stores the value of an expression in `v`, and the width of its type."""
    other = other or dtype
    result = "int64" if "int64" in (dtype, other) and dtype in INTEGERS and other in INTEGERS else "float64"
    lines = "".join(f"    {line}\n" for line in (body.splitlines() if body else [f"v = {code}"]))
    source = (
        f"{HELPERS}{_PLACES}{_HEAD}{lines}    tl.store(t_ptr, v.dtype.primitive_bitwidth)\n"
        "    tl.store(o_ptr + places(v), v)\n"
    )
    return {
        "source": source,
        "grid": [1, 1, 1],
        "arguments": {
            "x_ptr": tensor(dtype, size, 1),
            "y_ptr": tensor(other, size, 2),
            "s_ptr": {"dtype": dtype, "shape": [size], "data": [0] * size},
            "o_ptr": {"dtype": result, "shape": [2 * size], "data": [0] * 2 * size},
            "t_ptr": {"dtype": "int32", "shape": [1], "data": [0]},
            "n": 5,
            "eps": 0.1,
            "flag": True,
            "one": 1,
            "big": 2**31,
            "C": 4,
            "N": size,
        },
    }


_HEAD = """def kernel(x_ptr, y_ptr, s_ptr, o_ptr, t_ptr, n, eps, flag, one, big, C: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    y = tl.load(y_ptr + i)
"""
_PLACES = """def places(v):
    if len(v.shape) == 0:
        found = 0
    elif len(v.shape) == 1:
        found = tl.arange(0, v.shape[0])
    elif len(v.shape) == 2:
        found = tl.arange(0, v.shape[0])[:, None] * v.shape[1] + tl.arange(0, v.shape[1])[None, :]
    else:
        found = tl.reshape(tl.arange(0, v.shape[0] * v.shape[1] * v.shape[2]), [v.shape[0], v.shape[1], v.shape[2]])
    return found


"""


def tensor(dtype: str, size: int, seed: int) -> dict[str, Any]:
    """Return values that every type holds exactly: eighths in floats, never zero in the second argument."""
    draw = random.Random(f"{dtype} {seed}")
    if dtype in FLOATS:
        data = [draw.choice([-1, 1]) * draw.randint(1, 32) / 8 for _ in range(size)]
    else:
        low = 1 if dtype.startswith("u") else -50
        data = [draw.choice([number for number in range(low, 51) if number]) for _ in range(size)]
    assert all(math.isfinite(value) for value in data)
    return {"dtype": dtype, "shape": [size], "data": data}
