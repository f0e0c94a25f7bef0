"""Operators of published kernel libraries as problem and candidate, made of the text of a package that was downloaded.

A candidate is the operator's module as its authors wrote it, without imports of its own package, below a preamble that
stands for what those imports gave (host code alone), and above a `ModelNew` that calls its entry. No library's text is
kept in this repository.
"""

import ast
from dataclasses import dataclass
from pathlib import Path

LIGER = """
import functools, operator
import torch, triton
import triton.language as tl

def is_hip(): return False
def is_npu_available(): return False
def infer_device(): return "cuda"
def infer_device_arch(): return "sm90"
def get_npu_core_count(): return 1
def set_large_grf_mode(options): return None
def compare_version(package, compare, target): return compare((3, 7, 1), tuple(int(part) for part in target.split(".")))
torch_to_triton_dtype = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}

def ensure_contiguous(fn):
    def wrapper(ctx, *args, **kwargs):
        args = [arg.contiguous() if isinstance(arg, torch.Tensor) else arg for arg in args]
        return fn(ctx, *args, **kwargs)
    return wrapper

def calculate_settings(n):
    return triton.next_power_of_2(n), 4

class device_context:
    def __init__(self, device): pass
    def __enter__(self): return self
    def __exit__(self, *_): return False
"""
FLAG_GEMS = """
import contextlib
import torch, triton
import triton.language as tl
import triton.language as tle
from triton.language.extra import libdevice as tl_extra_shim

def libentry(): return lambda kernel: kernel
def libtuner(configs, key, **rest): return triton.autotune(configs=configs, key=key)

@triton.jit
def get_dtype_min(dtype: tl.constexpr):
    return float("-inf")  # of floating types; the operators below are given no others

class torch_device_fn:
    @staticmethod
    def device(device): return contextlib.nullcontext()

class runtime:
    @staticmethod
    def get_tuned_config(name): return [triton.Config(dict(TUNED[name]), num_warps=4)]
    @staticmethod
    def get_heuristic_config(name): return HEURISTICS[name]

TUNED = {
    "naive_reduction": {"BLOCK_M": 8, "BLOCK_N": 64},
    "layer_norm_persistent": {}, "layer_norm_loop": {"TILE_N": 64},
    "layer_norm_backward": {"BLOCK_ROW_SIZE": 1, "BLOCK_COL_SIZE": 64},
    "weight_bias_backward": {"BLOCK_ROW_SIZE": 64, "BLOCK_COL_SIZE": 4},
    "var_mean": {"BLOCK_M": 8, "BLOCK_N": 64}, "vector_norm": {"BLOCK_M": 8, "BLOCK_N": 64},
    "softmax_non_inner": {"TILE_K": 16, "TILE_N": 64}, "softmax_inner": {"TILE_M": 8, "TILE_N": 64},
    "log_softmax": {"BLOCK_M": 8, "BLOCK_N": 256},
}
INNER = {"TILE_N": lambda args: min(triton.next_power_of_2(args["N"]), 128),
         "ONE_TILE_PER_CTA": lambda args: args["TILE_N"] >= args["N"]}
HEURISTICS = {
    "softmax_inner": INNER, "argmax_inner": INNER, "softmax_backward_inner": INNER,
    "softmax_non_inner": {"TILE_K": lambda args: 16, **INNER}, "argmax_non_inner": {"TILE_K": lambda args: 16, **INNER},
    "softmax_backward_non_inner": INNER, "mean_non_inner": {"TILE_K": lambda args: 16, **INNER},
    "var_mean": {"BLOCK_N": lambda args: triton.next_power_of_2(args["BLOCK_NUM"])},
}

def dim_compress(x, dims):
    dims = [dims] if isinstance(dims, int) else list(dims)
    order = [d for d in range(x.ndim) if d not in dims] + dims
    return x.permute(order).contiguous()
"""
PACKAGES = {"liger-kernel": ("liger_kernel", LIGER), "flag-gems": ("flag_gems", FLAG_GEMS)}


@dataclass(frozen=True)
class Operator:
    """A library's operator and the problem that it answers."""

    package: str
    module: str
    """Path of the operator's module inside the package."""
    inputs: str
    """List of the inputs, as source."""
    reference: str
    """Expression of a to d, the inputs."""
    entry: str
    """Expression of the candidate's result."""

    @property
    def problem(self) -> str:
        return (
            "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n"
            f"class Model(nn.Module):\n    def forward(self, *given):\n        {self._names}\n"
            f"        return {self.reference}\n\ndef get_inputs():\n    return [{self.inputs}]\n\n"
            "def get_init_inputs():\n    return []\n"
        )

    @property
    def _names(self) -> str:
        count = len(ast.parse(f"[{self.inputs}]", mode="eval").body.elts)  # type: ignore[attr-defined]
        return ", ".join("abcd"[:count]) + ", = given"

    def candidate(self, folder: Path) -> str:
        own, preamble = PACKAGES[self.package]
        text = (folder / own / self.module).read_text(encoding="utf-8")
        return (
            f"{preamble}\n{without_imports_of(text, own)}\n\nclass ModelNew(torch.nn.Module):\n"
            f"    def forward(self, *given):\n        {self._names}\n        return {self.entry}\n"
        )


def _liger(module: str, inputs: str, reference: str, entry: str) -> Operator:
    return Operator("liger-kernel", f"ops/{module}.py", inputs, reference, entry)


def _gems(module: str, inputs: str, reference: str, entry: str) -> Operator:
    return Operator("flag-gems", f"ops/{module}.py", inputs, reference, entry)


X = "torch.randn(128, 90)"
OPERATORS = (
    _liger(
        "rms_norm",
        f"{X}, torch.rand(90)",
        "F.rms_norm(a, (90,), b, 1e-6)",
        "LigerRMSNormFunction.apply(a, b, 1e-6, 0.0, 'llama', False, None)",
    ),
    _liger(
        "layer_norm",
        f"{X}, torch.rand(90), torch.randn(90)",
        "F.layer_norm(a, (90,), b, c, 1e-5)",
        "LigerLayerNormFunction.apply(a, b, c, 1e-5)",
    ),
    _liger("swiglu", f"{X}, {X}", "F.silu(a) * b", "LigerSiLUMulFunction.apply(a, b, 1.0, 1.0)"),
    _liger("geglu", f"{X}, {X}", "F.gelu(a, approximate='tanh') * b", "LigerGELUMulFunction.apply(a, b)"),
    _liger("softmax", X, "torch.softmax(a, -1)", "LigerSoftmaxFunction.apply(a)"),
    _liger("relu_squared", X, "torch.relu(a) ** 2", "LigerReLUSquaredFunction.apply(a)"),
    _liger(
        "group_norm",
        "torch.randn(8, 12, 30), torch.rand(12), torch.randn(12)",
        "F.group_norm(a, 3, b, c, 1e-6)",
        "LigerGroupNormFunction.apply(a, b, c, 12, 3, 1e-6)",
    ),
    _liger(
        "dyt",
        f"{X}, torch.rand(1), torch.rand(90), torch.randn(90)",
        "c * torch.tanh(b * a) + d",
        "LigerDyTFunction.apply(a, b, c, d)",
    ),
    _liger(
        "fused_add_rms_norm",
        f"{X}, {X}, torch.rand(90)",
        "(F.rms_norm(a + b, (90,), c, 1e-6), a + b)",
        "LigerFusedAddRMSNormFunction.apply(a, b, c, 1e-6, 0.0, 'llama', False)",
    ),
    _liger(
        "sparsemax",
        "torch.randn(64, 30)",
        "torch.clamp(a - (((torch.sort(a, 1, True)[0].cumsum(1) - 1) / torch.arange(1, 31))).amax(1, keepdim=True), min=0)",
        "LigerSparsemaxFunction.apply(a, -1)",
    ),
    _liger(
        "poly_norm",
        f"{X}, torch.rand(3), torch.rand(1)",
        "b[0] * F.rms_norm(a ** 3, (90,), None, 1e-6) + b[1] * F.rms_norm(a ** 2, (90,), None, 1e-6) + b[2] * F.rms_norm(a, (90,), None, 1e-6) + c",
        "LigerPolyNormFunction.apply(a, b, c, 1e-6, False)",
    ),
    _liger(
        "kl_div",
        f"{X}.log_softmax(-1), {X}.softmax(-1)",
        "F.kl_div(a, b, reduction='none')",
        "LigerKLDivLossFunction.apply(a, b, 'none', False, 1e-10)",
    ),
    _gems("softmax", X, "torch.softmax(a, 1)", "softmax(a, 1)"),
    _gems(
        "layernorm",
        f"{X}, torch.rand(90), torch.randn(90)",
        "F.layer_norm(a, (90,), b, c)",
        "layer_norm(a, (90,), b, c)[0]",
    ),
    _gems("argmax", X, "torch.argmax(a, 1)", "argmax(a, 1)"),
    _gems("amax", X, "torch.amax(a, 1)", "amax(a, [1])"),
    _gems("any", f"{X} > 2", "torch.any(a, 1)", "any_dim(a, 1)"),
    _gems("prod", "torch.rand(128, 40) + 0.5", "torch.prod(a, 1)", "prod_dim(a, 1)"),
    _gems("var_mean", X, "torch.var_mean(a, 1)", "var_mean(a, [1])"),
    _gems("vector_norm", X, "torch.linalg.vector_norm(a, dim=1)", "vector_norm(a, 2, [1])"),
    _gems("tril", X, "torch.tril(a, 2)", "tril(a, 2)"),
)


def without_imports_of(source: str, package: str) -> str:
    """Return a module's text without its imports of its own package and from __future__."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if any(name.split(".")[0] in (package, "__future__") for name in names):
            assert isinstance(node, ast.Import | ast.ImportFrom)
            first, last = node.lineno - 1, node.end_lineno or node.lineno
            lines[first:last] = [f"{' ' * node.col_offset}pass", *[""] * (last - first - 1)]
    return "\n".join(lines)
