"""Last steps of a chain that need a kernel of their own: reductions, softmax, normalisations and poolings.

A tail works on a matrix, by rows, or on a convolution's output of shape (batch, channels, *spatial).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tasks.problems.modules.convolution_texts import block
from tasks.problems.modules.draw import Draw
from tasks.problems.modules.pooling_texts import Kind, pooling_host, pooling_kernel
from tasks.problems.modules.text import Argument

REDUCTIONS = {
    "softmax": ("-inf", ("x = tl.exp(x - tl.max(x, 0{keep}))", "x = x / tl.sum(x, 0{keep})")),
    "log_softmax": ("-inf", ("x = x - tl.max(x, 0{keep})", "x = x - tl.log(tl.sum(tl.exp(x), 0{keep}))")),
    "logsumexp": ("-inf", ("m = tl.max(x, 0{keep})", "x = m + tl.log(tl.sum(tl.exp(x - m), 0{keep}))")),
    "sum": ("0.0", ("x = tl.sum(x, 0{keep})",)),
    "mean": ("0.0", ("x = tl.sum(x, 0{keep}) / {R}",)),
    "max": ("-inf", ("x = tl.max(x, 0{keep})",)),
    "min_reduction": ("inf", ("x = tl.min(x, 0{keep})",)),
}
"""Value of the masked lanes, and statements on `x`, whose first dimension is reduced."""
_FORMS = {
    "softmax": ("torch.softmax(x, dim=1)", "F.softmax(x, dim=1)"),
    "log_softmax": ("torch.log_softmax(x, dim=1)", "F.log_softmax(x, dim=1)"),
    "logsumexp": ("torch.logsumexp(x, dim=1, keepdim=True)",),
    "sum": ("torch.sum(x, dim=1, keepdim=True)", "x.sum(dim=1, keepdim=True)"),
    "mean": ("torch.mean(x, dim=1, keepdim=True)", "x.mean(dim=1, keepdim=True)"),
    "max": (
        "torch.max(x, dim=1, keepdim=True)[0]",
        "torch.max(x, dim=1, keepdim=True).values",
        "torch.amax(x, dim=1, keepdim=True)",
    ),
    "min_reduction": ("torch.min(x, dim=1, keepdim=True)[0]", "torch.amin(x, dim=1, keepdim=True)"),
}
ROW_TAILS = (*REDUCTIONS, "group_norm", "layer_norm", "batch_norm")
SAMPLE_TAILS = ("sample_sum", "sample_mean")
"""Sum and mean of all that a sample's output has."""
MAP_TAILS = (
    *("softmax", "logsumexp", "max", "min_reduction", "mean", "global_average_pool"),
    *("group_norm", "instance_norm", "batch_norm", "max_pool", "average_pool", *SAMPLE_TAILS),
)
_LEFT_OUT = 0.5
"""Share of the last reductions whose dimension the result has no longer."""
_SPATIAL = 0.3
"""Share of the last reductions of a convolution's output that are over a spatial dimension."""
_EXTRA, _VALUES, _STEPS = "<extra>", "<values>", "<steps>"
"""Places in a drawn tail for what `Tail.with_steps` adds."""
_NORM = ("mean = tl.sum(total, 0) / R", "scale = tl.rsqrt(tl.sum(squares, 0) / R - mean * mean + eps)")


@dataclass(frozen=True)
class Tail:
    """A chain's last step in the problem and in the kernel."""

    name: str
    title: str
    form: str
    kernel: str
    host: tuple[str, ...]
    """Statements of ModelNew's `forward` after `x = …`."""
    arguments: tuple[Argument, ...] = ()
    init: tuple[str, ...] = ()
    own_init: tuple[str, ...] = ()
    fused: tuple[str, ...] = ()
    """Statements on `x` in the convolution's own kernel, if they can stand there instead."""

    def with_steps(self, steps: Sequence[str] = (), extra: Sequence[tuple[str, str]] = ()) -> "Tail":
        """Return the tail with statements on its result in its kernel.

        `extra`: the kernel's further arguments, and their values in ModelNew.
        """
        kernel = self.kernel.replace(_EXTRA, "".join(f", {name}" for name, _ in extra))
        kernel = re.sub(f"( *){_STEPS}\n", lambda found: block(steps, len(found[1])), kernel)
        values = "".join(f", {value}" for _, value in extra)
        return replace(self, kernel=kernel, host=tuple(line.replace(_VALUES, values) for line in self.host))


def row_tail(rng: Draw, name: str, features: int, out: str, *, is_last: bool = False) -> Tail:
    """Return a tail for a matrix of `features` columns, `out` in the constructor.

    Its kernel has places for further statements: see `Tail.with_steps`. The last one may leave out a dimension.
    """
    if name in REDUCTIONS:
        return _row_reduction(rng, name, kept=not (is_last and rng.chance(_LEFT_OUT)))
    if name == "batch_norm":
        return _row_batch_norm(rng, out)
    groups = rng.choice([g for g in (2, 4, 8, 16, 32) if features % g == 0 and features // g > 1] or [1])
    if name == "layer_norm":
        init, attribute, arguments = f"nn.LayerNorm({out})", "layer_norm", ()
        rows, groups_text = "M", "1"
    else:
        init, attribute = f"nn.GroupNorm(num_groups, {out})", rng.pick("group_norm", "gn")
        arguments = (Argument("num_groups", str(groups), meaning="Number of groups."),)
        rows, groups_text = "M * G", f"self.{attribute}.num_groups"
    norm = f"self.{attribute}"
    lines = (f"self.{attribute} = {init}",)
    kernel = f"""def {name}_kernel(x_ptr, w_ptr, b_ptr, out_ptr{_EXTRA}, G, R, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < R
    x = tl.load(x_ptr + row * R + cols, mask=mask, other=0.0)
    x = tl.where(mask, x - tl.sum(x, 0) / R, 0.0)
    x = x * tl.rsqrt(tl.sum(x * x, 0) / R + eps)
    c = row % G * R + cols
    x = x * tl.load(w_ptr + c, mask=mask, other=0.0) + tl.load(b_ptr + c, mask=mask, other=0.0)
    {_STEPS}
    tl.store(out_ptr + row * R + cols, x, mask=mask)"""
    host = (
        "M, N = x.shape",
        f"G = {groups_text}",
        "R = N // G",
        "out = torch.empty_like(x)",
        f"{name}_kernel[({rows},)](x, {norm}.weight, {norm}.bias, out{_VALUES}, G, R, {norm}.eps, "
        "BLOCK=triton.next_power_of_2(R))",
        "return out",
    )
    return Tail(name, name.replace("_", " "), f"{norm}(x)", kernel, host, arguments, lines, lines)


def map_tail(rng: Draw, name: str, rank: int, channels: int, *, is_last: bool = False) -> Tail:
    """Return a tail for a convolution's output of `rank` spatial dimensions and `channels` channels.

    The last one may leave out a dimension, or work on another one than that of the channels.
    """
    if name in REDUCTIONS and is_last and rng.chance(_SPATIAL):
        return _spatial_reduction(rng, name)
    if name in REDUCTIONS:
        return _channel_reduction(rng, name, kept=not (is_last and rng.chance(_LEFT_OUT)))
    if name == "global_average_pool":
        return _global_pool(rng, rank)
    if name in SAMPLE_TAILS:
        return _sample(rng, name, rank)
    if name.endswith("_pool"):
        return _window_pool(rng, name, rank)
    return _map_norm(rng, name, rank, channels)


def _filling(name: str) -> str:
    return {"0.0": "0.0", "inf": 'float("inf")', "-inf": '-float("inf")'}[REDUCTIONS[name][0]]


def _row_reduction(rng: Draw, name: str, *, kept: bool) -> Tail:
    whole = name in ("softmax", "log_softmax")
    lines = [line.format(keep="", R="N") for line in REDUCTIONS[name][1]]
    store = "row * N + cols, x, mask=mask" if whole else "row, x"
    kernel = f"""def {name}_kernel(x_ptr, out_ptr{_EXTRA}, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * N + cols, mask=mask, other={_filling(name)})
{block((*lines, _STEPS), 4)}    tl.store(out_ptr + {store})"""
    host = (
        "M, N = x.shape",
        "out = torch.empty_like(x)" if whole else f"out = torch.empty({'(M, 1)' if kept else 'M'}, device=x.device)",
        f"{name}_kernel[(M,)](x, out{_VALUES}, N, BLOCK=triton.next_power_of_2(N))",
        "return out",
    )
    return replace(_over_dim(rng, name, kept=kept), kernel=kernel, host=host)


def _over_dim(rng: Draw, name: str, dim: int = 1, *, kept: bool = True) -> Tail:
    """Return a reduction over a dimension without its kernel; the constructor takes the dimension, or nothing."""
    form = rng.choice(_FORMS[name]).replace("dim=1", f"dim={dim}")
    if not kept:
        form = form.replace(", keepdim=True", "")
    if not rng.chance(0.2):
        return Tail(name, _title(name, dim), form, "", ())
    argument = Argument("dim", str(dim), meaning="The dimension.")
    form = form.replace(f"dim={dim}", "dim=self.dim")
    return Tail(name, _title(name, dim), form, "", (), (argument,), ("self.dim = dim",))


def _title(name: str, dim: int) -> str:
    of = {"sum": "a sum", "mean": "a mean", "max": "a maximum", "min_reduction": "a minimum"}.get(name)
    return f"{of} over dimension {dim}" if of else name.replace("_", " ")


def _row_batch_norm(rng: Draw, out: str) -> Tail:
    attribute = rng.pick("bn", "batch_norm")
    options, arguments = _norm_options(rng)
    lines = (f"self.{attribute} = nn.BatchNorm1d({out}{options})",)
    kernel = f"""def batch_norm_kernel(x_ptr, w_ptr, b_ptr, out_ptr{_EXTRA}, M, N, eps, ROWS: tl.constexpr):
    cols = tl.program_id(0) * 16 + tl.arange(0, 16)[None, :]
    rows = tl.arange(0, ROWS)[:, None]
    mask = (rows < M) & (cols < N)
    x = tl.load(x_ptr + rows * N + cols, mask=mask, other=0.0)
    x = tl.where(mask, x - tl.sum(x, 0)[None, :] / M, 0.0)
    x = x * tl.rsqrt(tl.sum(x * x, 0)[None, :] / M + eps)
    x = x * tl.load(w_ptr + cols, mask=cols < N, other=0.0) + tl.load(b_ptr + cols, mask=cols < N, other=0.0)
    {_STEPS}
    tl.store(out_ptr + rows * N + cols, x, mask=mask)"""
    norm = f"self.{attribute}"
    host = (
        "M, N = x.shape",
        "out = torch.empty_like(x)",
        f"batch_norm_kernel[(triton.cdiv(N, 16),)](x, {norm}.weight, {norm}.bias, out{_VALUES}, M, N, {norm}.eps, "
        "ROWS=triton.next_power_of_2(M))",
        "return out",
    )
    return Tail("batch_norm", "batch normalization", f"{norm}(x)", kernel, host, arguments, lines, lines)


def _channel_reduction(rng: Draw, name: str, *, kept: bool) -> Tail:
    """Return a reduction over the channels; a convolution's tile that has all of them can apply it, too."""
    fused = [line.format(keep=", keep_dims=True", R="OC") for line in REDUCTIONS[name][1]]
    one = "(N, 1, *x.shape[2:])" if kept else "(N, *x.shape[2:])"
    host = _strided_host(name, "N, C, S = x.shape[0], x.shape[1], x[0, 0].numel()", one)
    return replace(
        _over_dim(rng, name, kept=kept),
        kernel=_strided_kernel(name),
        host=host,
        # A convolution's own host function gives its result the dimension of the channels.
        fused=(f"x = tl.where(o < OC, x, {_filling(name)})", *fused) if kept or name == "softmax" else (),
    )


def _spatial_reduction(rng: Draw, name: str) -> Tail:
    """Return a reduction over the first spatial dimension; of a later one the launch would have too many rows."""
    kept = not rng.chance(_LEFT_OUT)
    sizes = "N, C, S = x.shape[:2].numel(), x.shape[2], x.shape[3:].numel()"
    host = _strided_host(name, sizes, f"(*x.shape[:2], {'1, ' if kept else ''}*x.shape[3:])")
    return replace(_over_dim(rng, name, 2, kept=kept), kernel=_strided_kernel(name), host=host)


def _strided_kernel(name: str) -> str:
    """Return the kernel of a reduction over a dimension of C elements that are S elements apart."""
    whole = name == "softmax"
    lines = [line.format(keep=", keep_dims=True", R="C") for line in REDUCTIONS[name][1]]
    store = "(n * C + c) * S + s, x, mask=inside" if whole else "n * S + s, x, mask=s < S"
    return f"""def {name}_kernel(x_ptr, out_ptr{_EXTRA}, C, S, CHANNELS: tl.constexpr):
    n = tl.program_id(1)
    c = tl.arange(0, CHANNELS)[:, None]
    s = tl.program_id(0) * 64 + tl.arange(0, 64)[None, :]
    inside = (c < C) & (s < S)
    x = tl.load(x_ptr + (n * C + c) * S + s, mask=inside, other={_filling(name)})
{block((*lines, _STEPS), 4)}    tl.store(out_ptr + {store})"""


def _strided_host(name: str, sizes: str, one: str) -> tuple[str, ...]:
    """Return the statements that launch it. `sizes`: that of N, C and S; `one`: shape of a result for each column."""
    return (
        sizes,
        f"out = torch.empty{'_like(x)' if name == 'softmax' else f'({one}, device=x.device)'}",
        f"{name}_kernel[(triton.cdiv(S, 64), N)](x, out{_VALUES}, C, S, CHANNELS=triton.next_power_of_2(C))",
        "return out",
    )


def _norm_options(rng: Draw) -> tuple[str, tuple[Argument, ...]]:
    """Return a normalisation's further settings as its constructor has them, and the arguments for them."""
    if not rng.chance(0.25):
        return "", ()
    eps, momentum = rng.pick(("eps", "momentum"), ("bn_eps", "bn_momentum"))
    arguments = (Argument(eps, "1e-5", "float", "Added to the variance."),)
    arguments += (Argument(momentum, "0.1", "float", "Weight of a batch in the running statistics."),)
    return f", eps={eps}, momentum={momentum}", arguments


def _global_pool(rng: Draw, rank: int) -> Tail:
    dims = ", ".join(str(dim) for dim in range(2, 2 + rank))
    kept = rng.chance(0.7)
    form = rng.pick(
        f"torch.mean(x, dim=[{dims}]{', keepdim=True' if kept else ''})",
        f"x.mean(dim=({dims}){', keepdim=True' if kept else ''})",
    )
    init: tuple[str, ...] = ()
    if rng.chance(0.2):
        form = f"F.adaptive_avg_pool{rank}d(x, 1)" + ("" if kept else ".squeeze(-1)" * rank)
    elif kept and rng.chance(0.5):
        ones = ", ".join(["1"] * rank)
        form, init = "self.global_avg_pool(x)", (f"self.global_avg_pool = nn.AdaptiveAvgPool{rank}d(({ones}))",)
    ones = ", 1" * rank if kept else ""
    host = (
        "N, C, S = x.shape[0], x.shape[1], x[0, 0].numel()",
        f"out = torch.empty((N, C{ones}), device=x.device)",
        f"mean_kernel[(N * C,)](x, out{_VALUES}, S, BLOCK=1024)",
        "return out",
    )
    kernel = _whole_kernel("mean")
    return Tail("global_average_pool", "global average pooling", form, kernel, host, (), init, ())


def _sample(rng: Draw, name: str, rank: int) -> Tail:
    of = name.removeprefix("sample_")
    dims, kept = ", ".join(str(dim) for dim in range(1, 2 + rank)), rng.chance(0.3)
    shape = f"(N{', 1' * (rank + 1)})" if kept else "N"
    host = (
        "N, S = x.shape[0], x[0].numel()",
        f"out = torch.empty({shape}, device=x.device)",
        f"{of}_kernel[(N,)](x, out{_VALUES}, S, BLOCK=1024)",
        "return out",
    )
    keep = ", keepdim=True" if kept else ""
    form = rng.pick(f"torch.{of}(x, dim=[{dims}]{keep})", f"x.{of}(dim=[{dims}]{keep})", f"x.{of}(({dims}){keep})")
    return Tail(name, f"a {of} over all but the batch", form, _whole_kernel(of), host)


def _whole_kernel(of: str) -> str:
    """Return the kernel of a sum or mean of S neighbours in memory."""
    return f"""def {of}_kernel(x_ptr, out_ptr{_EXTRA}, S, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, S, BLOCK):
        s = start + tl.arange(0, BLOCK)
        acc += tl.load(x_ptr + row * S + s, mask=s < S, other=0.0)
    x = tl.sum(acc, 0){" / S" if of == "mean" else ""}
    {_STEPS}
    tl.store(out_ptr + row, x)"""


def _window_pool(rng: Draw, name: str, rank: int) -> Tail:
    kind: Kind = "max" if name == "max_pool" else "average"
    given, size = rng.chance(0.6), rng.pick(2, 2, 3)
    argument = rng.pick("pool_kernel_size", "pool_size")
    attribute = rng.pick("pool", "max_pool" if kind == "max" else "avg_pool")
    layer = f"{'Max' if kind == 'max' else 'Avg'}Pool{rank}d"
    init = (f"self.{attribute} = nn.{layer}({argument if given else size})",)
    arguments = (Argument(argument, str(size), meaning="Size of the pooling window."),) if given else ()
    kernel = pooling_kernel(kind, rank, _EXTRA, (_STEPS,))
    host = pooling_host(kind, rank, f"self.{attribute}", _VALUES)
    return Tail(name, name.replace("_", " ") + "ing", f"self.{attribute}(x)", kernel, host, arguments, init, init)


def _map_norm(rng: Draw, name: str, rank: int, channels: int) -> Tail:
    """Return group, instance or batch normalisation: sums in one pass, results in a second one."""
    attribute = name if rng.chance(0.6) else {"group_norm": "gn", "batch_norm": "bn", "instance_norm": "norm"}[name]
    norm = f"self.{attribute}"
    arguments: tuple[Argument, ...]
    if name == "group_norm":
        groups = rng.choice([g for g in (2, 4, 8, 16) if channels % g == 0 and channels >= g] or [1])
        arguments = (Argument("num_groups", str(groups), meaning="Number of groups."),)
        made = "nn.GroupNorm(num_groups, out_channels)"
    else:
        options, arguments = _norm_options(rng)
        made = f"nn.{'BatchNorm' if name == 'batch_norm' else 'InstanceNorm'}{rank}d(out_channels{options})"
    address = "i // S * C * S + g * S + i % S" if name == "batch_norm" else "g * R + i"
    affine = name != "instance_norm"
    channel = {"group_norm": "(g * R + i) // S % C", "batch_norm": "g", "instance_norm": ""}[name]
    pointers = "x_ptr, w_ptr, b_ptr, out_ptr" if affine else "x_ptr, out_ptr"
    sizes = "C, S, R, eps" if affine else "R, eps"
    masked = ", mask=i < R, other=0.0" if name == "group_norm" else ""
    scaled = f"x = x * tl.load(w_ptr + {channel}{masked}) + tl.load(b_ptr + {channel}{masked})"
    lines = [*([scaled] if affine else []), _STEPS]
    kernel = f"""def norm_kernel({pointers}{_EXTRA}, {sizes}, BLOCK: tl.constexpr):
    g = tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, R, BLOCK):
        i = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + {address}, mask=i < R, other=0.0)
        total += x
        squares += x * x
{block(_NORM, 4)}    for start in range(0, R, BLOCK):
        i = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + {address}, mask=i < R, other=0.0)
        x = (x - mean) * scale
{block(lines, 8)}        tl.store(out_ptr + {address}, x, mask=i < R)"""
    count, grid = {
        "group_norm": (f"C // {norm}.num_groups * S", f"N * {norm}.num_groups"),
        "batch_norm": ("N * S", "C"),
        "instance_norm": ("S", "N * C"),
    }[name]
    weights, given = (f"{norm}.weight, {norm}.bias, ", "C, S, ") if affine else ("", "")
    host = (
        "N, C, S = x.shape[0], x.shape[1], x[0, 0].numel()",
        "out = torch.empty_like(x)",
        f"norm_kernel[({grid},)](x, {weights}out{_VALUES}, {given}{count}, {norm}.eps, BLOCK=1024)",
        "return out",
    )
    init = (f"self.{attribute} = {made}",)
    title = name.replace("_norm", " normalization")
    return Tail(name, title, f"{norm}(x)", kernel, host, arguments, init, init)
