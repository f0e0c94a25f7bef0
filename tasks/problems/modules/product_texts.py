"""Texts of kernels for matrix products, with their host functions: `matmul(a, b)`, `bmm(a, b)`, `linear(x, layer)`.

A product takes its operands' strides, so that a transposed operand is a view and the kernel stays the same.
"""

from dataclasses import dataclass
from typing import Literal

from tasks.problems.modules.convolution_texts import block

Part = Literal["", "upper", "lower"]
"""Triangle of the result that is kept; the rest is 0."""
_KEPT = {"upper": "rows <= cols", "lower": "rows >= cols"}
_REACHED = {
    "upper": "tl.program_id(0) * ROWS < tl.program_id(1) * COLS + COLS",
    "lower": "tl.program_id(0) * ROWS + ROWS > tl.program_id(1) * COLS",
}


@dataclass(frozen=True)
class Tile:
    """Sizes of a program's tile, and of a step of the inner dimension."""

    rows: int = 64
    cols: int = 64
    inner: int = 32


def tile_for(rows: int, cols: int, inner: int) -> Tile:
    """Return a tile with which the result gives enough programs for a GPU."""
    if min(rows, cols) <= 32:
        short = 16 if min(rows, cols) <= 16 else 32
        return Tile(short, 64) if rows <= cols else Tile(64, short)
    if rows * cols >= 2**19:
        return Tile(64, 64, 32)
    return Tile(32, 32, 64 if inner >= 256 else 32)


def matmul(tile: Tile, part: Part = "") -> str:
    """Return the kernel of a product of two matrices, and `matmul(a, b)`."""
    mask = "(rows < M) & (cols < N)"
    inner = f"tl.where({_REACHED[part]}, K, 0)" if part else "K"
    value = f"tl.where({_KEPT[part]}, acc, 0.0)" if part else "acc"
    return f"""def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, am, ak, bk, bn, \
ROWS: tl.constexpr, COLS: tl.constexpr, BLOCK_K: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)[None, :]
    acc = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(0, {inner}, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + rows * am + k[None, :] * ak, mask=(rows < M) & (k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + k[:, None] * bk + cols * bn, mask=(k[:, None] < K) & (cols < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="tf32x3")
    tl.store(c_ptr + rows * N + cols, {value}, mask={mask})


def matmul(a, b):
    M, K = a.shape
    N = b.shape[1]
    c = torch.empty((M, N), device=a.device)
    grid = (triton.cdiv(M, {tile.rows}), triton.cdiv(N, {tile.cols}))
    matmul_kernel[grid](a, b, c, M, N, K, *a.stride(), *b.stride(), \
ROWS={tile.rows}, COLS={tile.cols}, BLOCK_K={tile.inner})
    return c
"""


def bmm(tile: Tile) -> str:
    """Return the kernel of products of matrices in two batches, and `bmm(a, b)`."""
    return f"""def bmm_kernel(a_ptr, b_ptr, c_ptr, M, N, K, an, am, ak, bn, bk, bc, \
ROWS: tl.constexpr, COLS: tl.constexpr, BLOCK_K: tl.constexpr):
    n = tl.program_id(2)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)[None, :]
    acc = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + n * an + rows * am + k[None, :] * ak, mask=(rows < M) & (k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + n * bn + k[:, None] * bk + cols * bc, mask=(k[:, None] < K) & (cols < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="tf32x3")
    tl.store(c_ptr + n * M * N + rows * N + cols, acc, mask=(rows < M) & (cols < N))


def bmm(a, b):
    B, M, K = a.shape
    N = b.shape[2]
    c = torch.empty((B, M, N), device=a.device)
    grid = (triton.cdiv(M, {tile.rows}), triton.cdiv(N, {tile.cols}), B)
    bmm_kernel[grid](a, b, c, M, N, K, *a.stride(), *b.stride(), \
ROWS={tile.rows}, COLS={tile.cols}, BLOCK_K={tile.inner})
    return c
"""


def linear(tile: Tile, extra: tuple[str, ...] = (), steps: tuple[str, ...] = ()) -> str:
    """Return the kernel of a linear layer, and `linear(x, layer, *extra)` for a matrix `x`.

    `extra`: further arguments, `NAME_ptr` for a tensor. `steps`: statements on `x`, the tile of the output; `rows` and
    `cols` are its indices, and `mask` what lies in the output.
    """
    passed = "".join(f", {name.removesuffix('_ptr')}" for name in extra)
    return f"""def linear_kernel(x_ptr, w_ptr, b_ptr, out_ptr{"".join(f", {name}" for name in extra)}, M, N, K, \
ROWS: tl.constexpr, COLS: tl.constexpr, BLOCK_K: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)[None, :]
    mask = (rows < M) & (cols < N)
    acc = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        a = tl.load(x_ptr + rows * K + k[None, :], mask=(rows < M) & (k[None, :] < K), other=0.0)
        w = tl.load(w_ptr + cols * K + k[:, None], mask=(k[:, None] < K) & (cols < N), other=0.0)
        acc = tl.dot(a, w, acc, input_precision="tf32x3")
    x = acc
    if b_ptr is not None:
        x += tl.load(b_ptr + cols, mask=cols < N, other=0.0)
{block(steps, 4)}    tl.store(out_ptr + rows * N + cols, x, mask=mask)


def linear(x, layer{passed}):
    x = x.contiguous()
    M, K = x.shape
    N = layer.weight.shape[0]
    out = torch.empty((M, N), device=x.device)
    grid = (triton.cdiv(M, {tile.rows}), triton.cdiv(N, {tile.cols}))
    linear_kernel[grid](x, layer.weight, layer.bias, out{passed}, M, N, K, \
ROWS={tile.rows}, COLS={tile.cols}, BLOCK_K={tile.inner})
    return out
"""


MATRIX_VECTOR = """def matvec_kernel(a_ptr, x_ptr, out_ptr, K, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        a = tl.load(a_ptr + row * K + k, mask=k < K, other=0.0)
        acc += a * tl.load(x_ptr + k, mask=k < K, other=0.0)
    tl.store(out_ptr + row, tl.sum(acc, 0))"""


def by_element(name: str, expression: str) -> str:
    """Return the kernel of a matrix whose elements are an expression of `row`, `cols`, `mask` and two pointers."""
    return f"""def {name}(a_ptr, b_ptr, out_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < N
    out = {expression}
    tl.store(out_ptr + row * N + cols, out, mask=mask)"""
