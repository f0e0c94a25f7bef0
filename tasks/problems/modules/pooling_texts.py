"""Texts of pooling kernels, and the statements that launch them.

One text serves every layer of its kind and rank: window, stride, padding and dilation are read from the layer.
"""

from typing import Literal

from tasks.problems.modules.convolution_texts import DIMENSIONS, block, enclosed, product

Kind = Literal["average", "max"]


def pooling_kernel(kind: Kind, rank: int, extra: str = "", steps: tuple[str, ...] = ()) -> str:
    """Return the kernel, a block of outputs a program; `steps`: statements on `x`, the outputs, with more arguments."""
    dims, is_max = DIMENSIONS[rank], kind == "max"
    lines, inside, offset = list[str](), list[str](), "p // " + enclosed(product("O", dims))
    for index, dim in enumerate(dims):
        name, later = dim.lower(), product("O", dims[index + 1 :])
        taps = " * ".join(["K"] * (rank - 1 - index))
        tap = f"k{f' // {enclosed(taps)}' if taps else ''}{' % K' if index else ''}"
        tap += " * E" if is_max else ""  # not D, which is a dimension
        lines.append(f"{name} = p{f' // {enclosed(later)}' if later else ''} % O{dim} * S - P + {tap}")
        inside.append(f"({name} >= 0) & ({name} < {dim})")
        offset = f"({offset}) * {dim} + {name}"
    other = '-float("inf")' if is_max else "0.0"
    load = f"tl.load(x_ptr + {offset}, mask=(p < n) & {' & '.join(inside)}, other={other})"
    taps = " * ".join(["K"] * rank)
    sizes = ", ".join([*dims, *("O" + dim for dim in dims), *("SPE" if is_max else "SP")])
    after = [*([] if is_max else [f"x = x / {enclosed(taps)}"]), *steps]
    return f"""def pool_kernel(x_ptr, out_ptr{extra}, n, {sizes}, K: tl.constexpr, BLOCK: tl.constexpr):
    p = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.full((BLOCK,), {other}, tl.float32)
    for k in range(0, {taps}):
{block(lines, 8)}        v = {load}
        x = {"tl.maximum(x, v)" if is_max else "x + v"}
{block(after, 4)}    tl.store(out_ptr + p, x, mask=p < n)"""


def pooling_host(kind: Kind, rank: int, layer: str, values: str = "") -> tuple[str, ...]:
    """Return the statements that pool `x` as the layer says, an expression; `values`: of the kernel's `extra`."""
    names, settings = ["K", "S", "P"], ["kernel_size", "stride", "padding"]
    if kind == "max":
        names, settings = [*names, "E"], [*settings, "dilation"]
    only = "[0]" if kind == "average" and rank == 1 else ""  # AvgPool1d alone has tuples
    reach = "E * (K - 1) - 1" if kind == "max" else "K"
    return (
        "x = x.contiguous()",
        f"{', '.join(names)} = {', '.join(f'{layer}.{setting}{only}' for setting in settings)}",
        f"size = [(n + 2 * P - {reach}) // S + 1 for n in x.shape[2:]]",
        "out = torch.empty((*x.shape[:2], *size), device=x.device)",
        "n = out.numel()",
        f"pool_kernel[(triton.cdiv(n, 512),)](x, out{values}, n, *x.shape[2:], *size, {', '.join(names[1:])}, K, "
        "BLOCK=512)",
        "return out",
    )


def pooling(kind: Kind, rank: int) -> str:
    """Return the kernel, and `max_pool(x, layer)` or `average_pool(x, layer)`."""
    body = block(pooling_host(kind, rank, "layer"), 4)
    return f"{pooling_kernel(kind, rank)}\n\n\ndef {kind}_pool(x, layer):\n{body}"
