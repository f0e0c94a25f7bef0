"""Problems at the sizes of KernelBench's first two levels, written here, each with a kernel that is to be judged correct.

No checkout was at hand: operators and sizes are those of its problem list, as known; sources are this project's. An
element-wise operator has an honest kernel. Any other one has the reference's own code behind a kernel that copies its
result: under `policy: mixed` that is right, and takes the judge's whole path and memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Operator:
    """One problem: `forward` computes on `inputs`, whose sizes have names."""

    name: str
    forward: str
    """Expression of the result."""
    inputs: Mapping[str, str]
    """Expression of each input by its name."""
    sizes: Mapping[str, int]
    layers: str = ""
    """Statements of `__init__`."""
    kernel: str = ""
    """Triton expression of one element `x`; empty: the reference's code and a copy."""
    level: int = 1
    fixed: frozenset[str] = field(default_factory=frozenset[str])
    """Sizes that a small copy keeps."""

    def small(self) -> "Operator":
        """Return the same problem at small sizes, for a rehearsal without a GPU."""
        small = {
            name: size if name in self.fixed or size <= 64 else max(16, size // 256)
            for name, size in self.sizes.items()
        }
        return replace(self, sizes=small)

    @property
    def problem(self) -> str:
        """Source of the problem, in KernelBench's form."""
        return (
            f"{_HEAD}{self._sizes}\n\nclass Model(nn.Module):\n{self._model(self.forward)}"
            f"\ndef get_inputs():\n    return [{', '.join(self.inputs.values())}]\n"
            "\ndef get_init_inputs():\n    return []\n"
        )

    @property
    def candidate(self) -> str:
        """Source of the kernel."""
        program = _KERNEL.replace("EXPRESSION", self.kernel or "x")
        result = f"own({next(iter(self.inputs)) if self.kernel else self.forward})"
        return f"{_HEAD}{_TRITON}{self._sizes}\n{program}\n\nclass ModelNew(nn.Module):\n{self._model(result)}"

    @property
    def _sizes(self) -> str:
        return "\n" + "\n".join(f"{name} = {size}" for name, size in self.sizes.items())

    def _model(self, result: str) -> str:
        layers = f"        {self.layers}\n" if self.layers else ""
        return (
            f"    def __init__(self):\n        super().__init__()\n{layers}\n"
            f"    def forward(self, {', '.join(self.inputs)}):\n        return {result}\n"
        )


_HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
_TRITON = "import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n"
_KERNEL = """
@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, EXPRESSION, mask=at < n)


def own(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 4096),)](x, y, x.numel(), BLOCK=4096, num_warps=8)
    return y
"""

_WIDE = {"B": 4096, "N": 393216}
_X = {"x": "torch.rand(B, N)"}


def _elementwise() -> list[Operator]:
    """Return the activations, 6.4 GB each, and two more."""
    kernels = {
        "relu": ("torch.relu(x)", "tl.maximum(x, 0.0)"),
        "leaky_relu": ("F.leaky_relu(x, negative_slope=0.01)", "tl.where(x > 0, x, 0.01 * x)"),
        "sigmoid": ("torch.sigmoid(x)", "tl.sigmoid(x)"),
        "tanh": ("torch.tanh(x)", "libdevice.tanh(x)"),
        "swish": ("x * torch.sigmoid(x)", "x * tl.sigmoid(x)"),
        "gelu": ("F.gelu(x)", "0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))"),
        "selu": (
            "torch.selu(x)",
            "1.0507009873554805 * tl.where(x > 0, x, 1.6732632423543772 * libdevice.expm1(x))",
        ),
        "hardsigmoid": ("F.hardsigmoid(x)", "tl.minimum(tl.maximum(x / 6.0 + 0.5, 0.0), 1.0)"),
        "softplus": ("F.softplus(x)", "tl.where(x > 20.0, x, libdevice.log1p(tl.exp(x)))"),
        "softsign": ("x / (1 + torch.abs(x))", "x / (1.0 + tl.abs(x))"),
        "elu": ("F.elu(x, alpha=1.0)", "tl.where(x > 0, x, libdevice.expm1(x))"),
        "hardtanh": ("F.hardtanh(x, min_val=-1.0, max_val=1.0)", "tl.minimum(tl.maximum(x, -1.0), 1.0)"),
    }
    wide = [Operator(name, forward, _X, _WIDE, kernel=kernel) for name, (forward, kernel) in kernels.items()]
    new_gelu = "0.5 * x * (1.0 + torch.tanh(0.7978845608028654 * (x + 0.044715 * torch.pow(x, 3.0))))"
    own = "0.5 * x * (1.0 + libdevice.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))"
    return [
        *wide,
        Operator("scale a matrix", "x * 3.14", {"x": "torch.rand(M, N)"}, {"M": 65536, "N": 16384}, kernel="x * 3.14"),
        Operator("new gelu", new_gelu, {"x": "torch.rand(N, N)"}, {"N": 8192}, kernel=own),
    ]


def _products() -> list[Operator]:
    def product(
        name: str, left: str, right: str, sizes: dict[str, int], forward: str = "torch.matmul(a, b)"
    ) -> Operator:
        return Operator(name, forward, {"a": f"torch.rand({left})", "b": f"torch.rand({right})"}, sizes)

    common = {"M": 2048, "K": 8192, "N": 4096}
    return [
        product("square product", "N, N", "N, N", {"N": 4096}),
        product("product", "M, K", "K, N", common),
        product("batched product", "B, M, K", "B, K, N", {"B": 128, "M": 512, "K": 1024, "N": 2048}, "torch.bmm(a, b)"),
        product("matrix and vector", "M, K", "K, 1", {"M": 2048, "K": 1048576}),
        product("product, large K", "M, K", "K, N", {"M": 256, "N": 256, "K": 524288}),
        product("product, small K", "M, K", "K, N", {"M": 32768, "N": 32768, "K": 64}),
        product("product, odd sizes", "M, K", "K, N", {"M": 8205, "K": 2949, "N": 5921}),
        product("tall and skinny", "M, N", "N, M", {"M": 32768, "N": 32}),
        product("3D tensor and matrix", "B, M, K", "K, L", {"B": 16, "M": 1024, "K": 2048, "L": 768}),
        product("4D tensor and matrix", "B, I, J, L", "L, K", {"B": 8, "I": 256, "J": 512, "L": 256, "K": 768}),
        product("diagonal and matrix", "N", "N, M", {"M": 4096, "N": 4096}, "torch.diag(a) @ b"),
        product(
            "upper triangular", "N, N", "N, N", {"N": 4096}, "torch.triu(torch.matmul(torch.triu(a), torch.triu(b)))"
        ),
        product(
            "lower triangular", "N, N", "N, N", {"N": 4096}, "torch.tril(torch.matmul(torch.tril(a), torch.tril(b)))"
        ),
        product("transposed A", "K, M", "K, N", common, "torch.matmul(a.T, b)"),
        product("transposed B", "M, K", "N, K", common, "torch.matmul(a, b.T)"),
        product("both transposed", "K, M", "N, K", common, "torch.matmul(a.T, b.T)"),
    ]


def _reductions() -> list[Operator]:
    middle, sums, square = {"B": 128, "M": 4096, "N": 4095}, {"M": 32768, "N": 65535}, {"N": 32768}
    cube, image = {"x": "torch.rand(B, M, N)"}, {"x": "torch.rand(B, C, H, W)"}
    sizes, whole = {"B": 112, "C": 64, "H": 512, "W": 512}, {"x": "torch.rand(N, N)"}
    pair = {"x": "torch.rand(N, N)", "y": "torch.rand(N, N)"}
    chances = {"x": "torch.rand(N, N).softmax(dim=-1)", "y": "torch.rand(N, N).softmax(dim=-1)"}
    return [
        Operator("softmax", "torch.softmax(x, dim=1)", _X, _WIDE),
        Operator("log softmax", "torch.log_softmax(x, dim=1)", _X, _WIDE),
        Operator("sum", "torch.sum(x, dim=1, keepdim=True)", cube, middle),
        Operator("mean", "torch.mean(x, dim=1)", cube, middle),
        Operator("max", "torch.max(x, dim=1)[0]", cube, middle),
        Operator("min", "torch.min(x, dim=1)[0]", cube, middle),
        Operator("argmax", "torch.argmax(x, dim=1)", cube, middle),
        Operator("argmin", "torch.argmin(x, dim=1)", cube, middle),
        Operator("batch norm", "self.norm(x)", image, {**sizes, "B": 64}, "self.norm = nn.BatchNorm2d(C)"),
        Operator("instance norm", "self.norm(x)", image, sizes, "self.norm = nn.InstanceNorm2d(C)"),
        Operator("group norm", "self.norm(x)", image, sizes, "self.norm = nn.GroupNorm(8, C)"),
        Operator("RMS norm", "x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + 1e-5)", image, sizes),
        Operator("Frobenius norm", "x / torch.norm(x, p='fro')", image, sizes),
        Operator("L1 norm", "x / torch.mean(torch.abs(x), dim=1, keepdim=True)", {"x": "torch.rand(M, N)"}, sums),
        Operator("L2 norm", "x / torch.norm(x, p=2, dim=1, keepdim=True)", {"x": "torch.rand(M, N)"}, sums),
        Operator(
            "layer norm",
            "self.norm(x)",
            image,
            {"B": 16, "C": 64, "H": 256, "W": 256},
            "self.norm = nn.LayerNorm((C, H, W))",
        ),
        Operator("cumulative sum", "torch.cumsum(x, dim=1)", whole, square),
        Operator("cumulative product", "torch.cumprod(x, dim=1)", whole, square),
        Operator("reverse cumulative sum", "torch.cumsum(x.flip(1), dim=1).flip(1)", whole, square),
        Operator("mean squared error", "torch.mean((x - y) ** 2)", pair, square),
        Operator("Huber loss", "F.smooth_l1_loss(x, y)", pair, square),
        Operator("KL divergence", "F.kl_div(torch.log(x), y, reduction='batchmean')", chances, {"N": 16384}),
        Operator(
            "triplet loss",
            "F.triplet_margin_loss(a, p, n, margin=1.0)",
            dict.fromkeys("apn", "torch.rand(M, N)"),
            {"M": 32768, "N": 8192},
        ),
    ]


def _convolutions() -> list[Operator]:
    def layer(
        name: str, layers: str, shape: str, sizes: dict[str, int], level: int = 1, after: str = "self.layer(x)"
    ) -> Operator:
        inputs = {"x": f"torch.rand({shape})"}
        return Operator(name, after, inputs, sizes, f"self.layer = {layers}", level=level, fixed=frozenset("CO"))

    flat, deep = "B, C, H, H", "B, C, H, H, H"
    return [
        layer("max pool 1D", "nn.MaxPool1d(8, stride=1, padding=4, dilation=3)", "B, C, H", {"B": 64, "C": 192, "H": 65536}),
        layer("max pool 2D", "nn.MaxPool2d(4, stride=1, padding=1)", flat, {"B": 32, "C": 64, "H": 512}),
        layer("max pool 3D", "nn.MaxPool3d(3, stride=2, padding=1)", deep, {"B": 16, "C": 32, "H": 128}),
        layer("average pool 1D", "nn.AvgPool1d(8, stride=1, padding=4)", "B, C, H", {"B": 64, "C": 128, "H": 65536}),
        layer("average pool 2D", "nn.AvgPool2d(11)", flat, {"B": 16, "C": 64, "H": 2048}),
        layer("average pool 3D", "nn.AvgPool3d(3, stride=2, padding=1)", deep, {"B": 16, "C": 32, "H": 128}),
        layer("first of AlexNet", "nn.Conv2d(3, 96, 11, stride=4, padding=2)", "B, 3, H, H", {"B": 256, "H": 224}),
        layer("convolution", "nn.Conv2d(C, O, 3)", flat, {"B": 16, "C": 16, "O": 128, "H": 1024}),
        layer("convolution 1D", "nn.Conv1d(C, O, 3)", "B, C, H", {"B": 32, "C": 64, "O": 128, "H": 131072}),
        layer("convolution 3D", "nn.Conv3d(C, O, 3)", deep, {"B": 16, "C": 3, "O": 64, "H": 64}),
        layer("transposed convolution", "nn.ConvTranspose2d(C, O, 3)", flat, {"B": 8, "C": 64, "O": 64, "H": 1024}),
        layer("depthwise", "nn.Conv2d(C, C, 3, groups=C)", flat, {"B": 16, "C": 64, "H": 512}),
        layer("pointwise", "nn.Conv2d(C, O, 1)", flat, {"B": 16, "C": 64, "O": 128, "H": 1024}),
        layer("convolution, relu", "nn.Conv2d(C, O, 3)", flat, {"B": 128, "C": 64, "O": 128, "H": 128}, 2, "torch.relu(self.layer(x))"),
        layer("convolution, mish, mish", "nn.Conv2d(C, O, 3)", flat, {"B": 64, "C": 64, "O": 128, "H": 256}, 2, "F.mish(F.mish(self.layer(x)))"),
        layer("transposed 3D, softmax, sigmoid", "nn.ConvTranspose3d(C, O, 3, stride=2, padding=1)", deep, {"B": 16, "C": 32, "O": 64, "H": 32}, 2, "torch.sigmoid(torch.softmax(self.layer(x), dim=1))"),
        layer("linear, subtract, multiply, relu", "nn.Linear(N, N)", "B, N", {"B": 1024, "N": 8192}, 2, "torch.relu((self.layer(x) - 2.0) * 1.5)"),
        layer("linear, swish, scale", "nn.Linear(N, N)", "B, N", {"B": 128, "N": 32768}, 2, "self.layer(x) * torch.sigmoid(self.layer(x)) * 2.0"),
        layer("linear, group norm, hardtanh", "nn.Linear(N, N)", "B, N", {"B": 1024, "N": 8192}, 2, "F.hardtanh(F.group_norm(self.layer(x), 16))"),
        layer("linear, max, subtract, gelu", "nn.Linear(N, N)", "B, N", {"B": 1024, "N": 8192}, 2, "F.gelu(torch.max(self.layer(x), dim=1, keepdim=True).values - 0.1)"),
    ]  # fmt: skip


def operators() -> list[Operator]:
    """Return all problems."""
    attention = Operator(
        "attention",
        "F.scaled_dot_product_attention(q, k, v)",
        dict.fromkeys("qkv", "torch.rand(B, H, S, D, dtype=torch.float16)"),
        {"B": 32, "H": 32, "S": 512, "D": 1024},
    )
    return [*_elementwise(), *_products(), *_reductions(), *_convolutions(), attention]
