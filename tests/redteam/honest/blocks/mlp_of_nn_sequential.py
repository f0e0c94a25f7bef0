"""MLP of nn.Sequential: one kernel in a host loop over the layers, activation as a constexpr flag

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        layers = []
        for a, b in zip(sizes[:-2], sizes[1:-1]):
            layers += [nn.Linear(a, b), nn.ReLU()]
        layers.append(nn.Linear(sizes[-2], sizes[-1]))
        self.network = nn.Sequential(*layers)

    def forward(self, x):
        return self.network(x)


def get_inputs():
    return [torch.randn(128, 48)]


def get_init_inputs():
    return [[48, 64, 64, 24]]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


def get_configs():
    return [triton.Config({"BM": bm, "BN": bn}, num_warps=w) for bm in (32, 64) for bn in (16, 32) for w in (4,)]


def prune(configs, named_args, **kwargs):
    return [c for c in configs if c.kwargs["BM"] <= max(32, named_args["M"])]


@triton.autotune(configs=get_configs(), key=["M", "N", "K"], prune_configs_by={"early_config_prune": prune})
@triton.jit
def fc(x, w, b, y, M, N, K, ACT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr = 16):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        acc += tl.dot(
            tl.load(x + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0),
            tl.load(w + n[None, :] * K + k[:, None], mask=(n[None, :] < N) & (k[:, None] < K), other=0.0),
            input_precision="ieee",
        )
    acc += tl.load(b + n, mask=n < N, other=0.0)
    if ACT == "relu":
        acc = tl.maximum(acc, 0)
    tl.store(y + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


class ModelNew(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        layers = []
        for a, b in zip(sizes[:-2], sizes[1:-1]):
            layers += [nn.Linear(a, b), nn.ReLU()]
        layers.append(nn.Linear(sizes[-2], sizes[-1]))
        self.network = nn.Sequential(*layers)

    def forward(self, x):
        linears = [m for m in self.network if isinstance(m, nn.Linear)]
        for index, layer in enumerate(linears):
            N, K = layer.weight.shape
            y = torch.empty(x.shape[0], N, device=x.device, dtype=x.dtype)
            act = "relu" if index + 1 < len(linears) else ""
            fc[lambda meta: (triton.cdiv(x.shape[0], meta["BM"]), triton.cdiv(N, meta["BN"]))](
                x, layer.weight, layer.bias, y, x.shape[0], N, K, ACT=act
            )
            x = y
        return x
