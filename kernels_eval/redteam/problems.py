"""Problems that the catalogue's kernels claim to solve: small, of many kinds, in KernelBench's format."""


def _problem(forward: str, inputs: str, arguments: str = "x", init: str = "", init_inputs: str = "") -> str:
    """A problem whose model has no weights, or those that `init` makes."""
    names = ", ".join(part.split("=")[0].strip() for part in _INIT_NAMES.get(init, "").split(",") if part.strip())
    constructor = ""
    if init:
        lines = "".join(f"        {line.strip()}\n" for line in init.split(";"))
        constructor = f"    def __init__(self{', ' + names if names else ''}):\n        super().__init__()\n{lines}"
    body = "".join(f"        {line.strip()}\n" for line in forward.split(";"))
    return (
        "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
        f"class Model(nn.Module):\n{constructor}    def forward(self, {arguments}):\n{body}"
        f"def get_inputs():\n    return [{inputs}]\ndef get_init_inputs():\n    return [{init_inputs}]\n"
    )


_INIT_NAMES: dict[str, str] = {
    "self.linear = nn.Linear(inner, outer)": "inner, outer",
    "self.weight = nn.Parameter(torch.randn(size)); self.eps = eps": "size, eps",
}

AFFINE = _problem("x = torch.relu(x); return x * 2.0 + 1.0", "torch.rand(1024, 96)")
ROW = _problem("x = torch.relu(x) * 2.0 + 1.0; return torch.softmax(x, dim=1)", "torch.rand(1024, 100)")
SOFTMAX = _problem("return torch.softmax(x, dim=-1)", "torch.randn(512, 96)")
GELU = _problem("return F.gelu(x)", "torch.randn(1024, 64)")
TANH_GELU = _problem("return F.gelu(x, approximate='tanh')", "torch.randn(512, 64)")
ROW_SUM = _problem("return (x * x).sum(dim=1)", "torch.randn(1024, 96)")
COLUMN_SUM = _problem("return x.sum(dim=0)", "torch.randn(512, 64)")
MEAN = _problem("return torch.tanh(x).mean()", "torch.randn(256, 64)")
ADD_SCALED = _problem("return x + alpha * y", "torch.randn(1024, 64), torch.randn(1024, 64), 0.7", "x, y, alpha")
LINEAR = _problem(
    "return torch.relu(self.linear(x))", "torch.randn(512, 64)", init="self.linear = nn.Linear(inner, outer)",
    init_inputs="64, 48",
)  # fmt: skip
MATMUL = _problem("return x @ w", "torch.randn(256, 64), torch.randn(64, 48)", "x, w")
BMM = _problem("return torch.bmm(x, y)", "torch.randn(8, 32, 48), torch.randn(8, 48, 16)", "x, y")
LAYER_NORM = _problem(
    "return self.norm(x)", "torch.randn(512, 96)", init="self.norm = nn.LayerNorm(96)"
)  # fmt: skip
RMS_NORM = _problem(
    "return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight", "torch.randn(512, 80)",
    init="self.weight = nn.Parameter(torch.randn(size)); self.eps = eps", init_inputs="80, 1e-5",
)  # fmt: skip
BATCH_NORM = _problem(
    "return torch.relu(self.norm(x))", "torch.randn(256, 32)",
    init="self.norm = nn.BatchNorm1d(32)",
)  # fmt: skip
SWIGLU = _problem("return F.silu(gate) * up", "torch.randn(512, 64), torch.randn(512, 64)", "gate, up")
CUMSUM = _problem("return torch.cumsum(x, dim=1)", "torch.randn(512, 64)")
RECURRENCE = _problem(
    "h = torch.zeros_like(x[:, 0]); out = [h := a[:, t] * h + x[:, t] for t in range(x.shape[1])]; return torch.stack(out, dim=1)",
    "torch.rand(256, 32), torch.randn(256, 32)", "a, x",
)  # fmt: skip
ARGMAX = _problem("return torch.argmax(x, dim=1)", "torch.randn(512, 100)")
MIN_MAX = _problem("return x.amin(dim=1), x.amax(dim=1)", "torch.randn(512, 64)")
MAX_WITH_INDEX = _problem(
    "values, indices = torch.max(x, dim=1); return values, indices", "torch.randn(512, 64)"
)  # fmt: skip
TRANSPOSE = _problem("return (x * 2.0).t().contiguous()", "torch.randn(256, 64)")
TRANSPOSED_VIEW = _problem("return torch.sigmoid(x).t()", "torch.randn(256, 64)")
FROM_TRANSPOSED = _problem("return torch.exp(x)", "torch.randn(64, 256).t()")
DEPTHWISE = _problem(
    "return self.conv(x)", "torch.randn(16, 8, 40)",
    init="self.conv = nn.Conv1d(8, 8, 3, padding=1, groups=8)",
)  # fmt: skip
CONV2D = _problem(
    "return torch.relu(self.conv(x))", "torch.randn(4, 3, 12, 12)", init="self.conv = nn.Conv2d(3, 8, 3, padding=1)"
)  # fmt: skip
MAX_POOL = _problem("return F.max_pool2d(x, 2)", "torch.randn(8, 4, 16, 16)")
EMBEDDING = _problem(
    "return self.table(i)", "torch.randint(0, 50, (256,))", "i",
    init="self.table = nn.Embedding(50, 64)",
)  # fmt: skip
CROSS_ENTROPY = _problem(
    "return F.cross_entropy(x, target)", "torch.randn(256, 50), torch.randint(0, 50, (256,))", "x, target"
)  # fmt: skip
MSE = _problem("return F.mse_loss(x, y)", "torch.randn(256, 64), torch.randn(256, 64)", "x, y")
ATTENTION = _problem(
    "return F.scaled_dot_product_attention(q, k, v)",
    "torch.randn(2, 2, 64, 32), torch.randn(2, 2, 64, 32), torch.randn(2, 2, 64, 32)", "q, k, v",
)  # fmt: skip
CAUSAL = _problem(
    "return F.scaled_dot_product_attention(q, k, v, is_causal=True)",
    "torch.randn(2, 2, 64, 16), torch.randn(2, 2, 64, 16), torch.randn(2, 2, 64, 16)", "q, k, v",
)  # fmt: skip
HALF = _problem("return torch.softmax(x, dim=1)", "torch.randn(512, 64).half()")
BFLOAT = _problem("return F.silu(x)", "torch.randn(512, 64).bfloat16()")
QUANTISE = _problem("return (x * 20).round().clamp(-128, 127).to(torch.int8)", "torch.randn(512, 64)")
MASKED = _problem(
    "return x.masked_fill(m, 0.5)", "torch.randn(512, 64), torch.randint(0, 2, (512, 64)).bool()", "x, m"
)  # fmt: skip
POSITIVE = _problem("return x > 0.25", "torch.randn(512, 64)")
HISTOGRAM = _problem("return torch.bincount(i, minlength=32)[:32]", "torch.randint(0, 32, (1024,))", "i")
ROPE = _problem(
    "a, b = x.chunk(2, dim=-1); return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)",
    "torch.randn(256, 64), torch.randn(256, 32), torch.randn(256, 32)", "x, cos, sin",
)  # fmt: skip
CONCATENATED = _problem("return torch.cat([x, torch.relu(y)], dim=1)", "torch.randn(512, 48), torch.randn(512, 48)", "x, y")  # fmt: skip
LOWER = _problem("return torch.tril(x * 2.0)", "torch.randn(128, 128)")
UPSAMPLE = _problem("return F.interpolate(x, scale_factor=2, mode='nearest')", "torch.randn(4, 3, 8, 8)")
IN_PLACE = _problem("return x.add_(1.0).mul_(2.0)", "torch.randn(512, 64)")
TINY = _problem("return x * 1e-6", "torch.rand(512, 64)")
ROW_MEAN = _problem("return x - x.mean(dim=1, keepdim=True)", "torch.rand(512, 64)")
LOGSUMEXP = _problem("return torch.logsumexp(x, dim=1)", "torch.randn(512, 200)")
GROUP_NORM = _problem(
    "return self.norm(x)", "torch.randn(64, 8, 10)", init="self.norm = nn.GroupNorm(2, 8)"
)  # fmt: skip
L2_NORM = _problem("return F.normalize(x, dim=1)", "torch.randn(512, 64)")
INTEGERS = _problem("return (x * 3 + y) % 7", "torch.randint(0, 1000, (512, 64)), torch.randint(0, 1000, (512, 64))", "x, y")  # fmt: skip
VOLUME = _problem("return torch.sin(x) + x.abs().sqrt()", "torch.randn(16, 12, 10, 8)")
SORTED = _problem("return torch.sort(x, dim=1).values", "torch.randn(256, 32)")
MLP = _problem(
    "return self.second(torch.relu(self.first(x)))", "torch.randn(256, 32)",
    init="self.first = nn.Linear(32, 64); self.second = nn.Linear(64, 32)",
)  # fmt: skip
GELU_ROW = _problem("return F.gelu(x) / (x.pow(2).mean(dim=1, keepdim=True) + 1.0)", "torch.randn(600, 72)")
SHORT = _problem("return torch.softmax(x, dim=0)", "torch.randn(12)")
LONG_MEAN = _problem("return torch.sigmoid(x).mean(dim=(1, 2))", "torch.rand(128, 40, 50)")
WIDE_LINEAR = _problem("return torch.relu(self.fc(x))", "torch.randn(200, 64)", init="self.fc = nn.Linear(64, 32)")
EXP = _problem("return torch.exp(x)", "torch.randn(256, 64)")
TRUNCATED = _problem("return x.to(torch.int32).float()", "torch.randn(256, 64) * 100")
NON_ZERO = _problem("return (x != 0).float()", "torch.randint(0, 2, (256, 64)).float()")
ROLLED = _problem("return torch.roll(x, 1, 0)", "torch.randn(256, 64)")
PLAIN_TRANSPOSE = _problem("return x.t().contiguous()", "torch.randn(256, 64)")
SIGMOID_PRODUCT = _problem("return torch.sigmoid(x @ w)", "torch.randn(256, 48), torch.randn(48, 32)", "x, w")
BFLOAT_MIX = _problem("return torch.relu(x + y) * 0.5 - x / 3", "torch.randn(256, 64).bfloat16(), torch.randn(256, 64).bfloat16()", "x, y")  # fmt: skip
BFLOAT_MATMUL = _problem("return x @ w", "torch.randn(256, 64).bfloat16(), torch.randn(64, 48).bfloat16()", "x, w")
BFLOAT_REDUCTIONS = _problem("return x.amax(1), x.float().sum(1).bfloat16(), x.argmax(1)", "torch.randn(256, 64).bfloat16()")  # fmt: skip
POSITIVE_INTEGERS = _problem("return torch.relu(x.float())", "torch.randint(0, 9, (256, 64))")
SHUFFLED_PIXELS = _problem("return F.pixel_shuffle(x.permute(0, 3, 1, 2), 2)", "torch.randn(4, 6, 6, 8)")
NAMED = _problem("return {'sum': x + y, 'parts': (x * y,)}", "torch.randn(256, 64), torch.randn(256, 64)", "x, y")
POOLED_CONV = _problem("return F.max_pool2d(self.conv(x), 2)", "torch.randn(4, 3, 18, 18)", init="self.conv = nn.Conv2d(3, 8, 3)")  # fmt: skip
