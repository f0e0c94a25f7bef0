"""Texts of convolution kernels: one implicit matrix product for each rank, with its host function.

One text serves every layer of its rank: stride, padding, dilation, groups, sizes and the bias, or that there is none,
are what the host function reads from the layer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

DIMENSIONS = {1: ("L",), 2: ("H", "W"), 3: ("D", "H", "W")}
"""Names of an input's spatial sizes in the kernels, by rank."""
_SETTINGS = ("stride", "padding", "dilation", "kernel_size")
"""A layer's settings in the order of the kernel's arguments."""
_PASSED = ", ".join(f"*layer.{name}" for name in _SETTINGS)
_LAYER = f"layer.{', layer.'.join(_SETTINGS)}"


@dataclass(frozen=True)
class Convolution:
    """A convolution kernel and its host function, `conv(x, layer)` or `conv_transpose(x, layer)`."""

    rank: int
    transposed: bool = False
    extra: tuple[str, ...] = ()
    """Further arguments of kernel and host function, before the sizes."""
    steps: tuple[str, ...] = ()
    """Statements on `x`, the tile of the output; `o` is its channels, a column, and `p` its positions, a row."""
    whole: bool = False
    """The steps need all channels in one tile, of one group."""
    reduces: bool = False
    """The steps leave one channel."""

    @property
    def host(self) -> str:
        """Name of the host function."""
        return "conv_transpose" if self.transposed else "conv"

    @property
    def text(self) -> str:
        """The kernel, without its decorator, and the host function."""
        return self._kernel() + self._host()

    def _kernel(self) -> str:
        dims = DIMENSIONS[self.rank]
        lines, inside, offset = coordinates(self.rank, "k", "(n * C + k // T)", transposed=self.transposed)
        arguments = ["x_ptr", "w_ptr", "b_ptr", "out_ptr", *self.extra, "G", "C", "OC", *dims]
        arguments += ["O" + dim for dim in dims]
        for letter in "SPDK":  # the loop is over the elements of K; that of a transposed convolution divides by S
            fixed = ": tl.constexpr" if letter == "K" or (self.transposed and letter == "S") else ""
            arguments += [letter + dim + fixed for dim in dims]
        weight = "c * R + j"
        if self.transposed:
            weight = "((n % G * C + j // T) * OC + o) * T + j % T"
        flat = product("O", dims)
        place = f"n * {enclosed(flat)}" if self.reduces else f"(n * OC + o) * {enclosed(flat)}"
        mask = f"p < {flat}" if self.reduces else f"(o < OC) & (p < {flat})"
        after = ["x = acc", *self.steps] if self.steps else []
        after.append(f"tl.store(out_ptr + {place} + p, {'x' if self.steps else 'acc'}, mask={mask})")
        return f"""def {self.host}_kernel({", ".join(arguments)}, ROWS: tl.constexpr):
    p = tl.program_id(0) * 64 + tl.arange(0, 64)[None, :]
    o = tl.program_id(1) * ROWS + tl.arange(0, ROWS)[:, None]
    n = tl.program_id(2)
    c = n % G * OC + o
    T = {product("K", dims)}
    R = C * T
    acc = tl.zeros((ROWS, 64), tl.float32)
    for start in range(0, R, 32):
        k = start + tl.arange(0, 32)[:, None]
        j = tl.trans(k)
{block(lines, 8)}        inside = {" & ".join(["(k < R)", *inside])}
        v = tl.load(x_ptr + {offset}, mask=inside, other=0.0)
        f = tl.load(w_ptr + {weight}, mask=(o < OC) & (j < R), other=0.0)
        acc = tl.dot(f, v, acc, input_precision="tf32x3")
    if b_ptr is not None:
        acc += tl.load(b_ptr + c, mask=o < OC, other=0.0)
{block(after, 4)}"""

    def _host(self) -> str:
        passed = "".join(f", {name.removesuffix('_ptr')}" for name in self.extra)
        if self.transposed:
            sizes = "C, OC = layer.weight.shape[0] // G, layer.weight.shape[1]"
            names, settings = "n, s, p, d, k, q", f"{_LAYER}, layer.output_padding"
            size = "(n - 1) * s - 2 * p + d * (k - 1) + q + 1"
        else:
            sizes = "OC, C = layer.weight.shape[0] // G, layer.weight.shape[1]"
            names, settings, size = "n, s, p, d, k", _LAYER, "(n + 2 * p - d * (k - 1) - 1) // s + 1"
        rows = "max(16, triton.next_power_of_2(OC))"
        return f"""

def {self.host}(x, layer{passed}):
    x = x.contiguous()
    G = layer.groups
    {sizes}
    size = [{size} for {names} in zip(x.shape[2:], {settings})]
    out = torch.empty((x.shape[0], {"1" if self.reduces else "OC * G"}, *size), device=x.device)
    ROWS = {rows if self.whole else f"min(64, {rows})"}
    grid = (triton.cdiv(out[0, 0].numel(), 64), triton.cdiv(OC, ROWS), x.shape[0] * G)
    {self.host}_kernel[grid](x, layer.weight, layer.bias, out{passed}, G, C, OC, *x.shape[2:], *size, {_PASSED}, ROWS)
    return out
"""


def depthwise(rank: int) -> str:
    """Return the kernel of a convolution with one group for each channel, and `depthwise(x, layer)`."""
    dims = DIMENSIONS[rank]
    lines, inside, offset = coordinates(rank, "k", "n")
    arguments = ["x_ptr", "w_ptr", "b_ptr", "out_ptr", "C", *dims, *("O" + dim for dim in dims)]
    arguments += [letter + dim for letter in "SPD" for dim in dims] + [f"K{dim}: tl.constexpr" for dim in dims]
    flat = product("O", dims)
    return f"""def depthwise_kernel({", ".join(arguments)}):
    n = tl.program_id(0)
    p = tl.program_id(1) * 512 + tl.arange(0, 512)
    T = {product("K", dims)}
    acc = tl.zeros((512,), tl.float32)
    for k in range(0, T):
{block(lines, 8)}        v = tl.load(x_ptr + {offset}, mask={" & ".join(inside)}, other=0.0)
        acc += v * tl.load(w_ptr + n % C * T + k)
    if b_ptr is not None:
        acc += tl.load(b_ptr + n % C)
    tl.store(out_ptr + n * {enclosed(flat)} + p, acc, mask=p < {flat})


def depthwise(x, layer):
    x = x.contiguous()
    size = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, s, p, d, k in zip(x.shape[2:], {_LAYER})]
    out = torch.empty((*x.shape[:2], *size), device=x.device)
    grid = (x.shape[0] * x.shape[1], triton.cdiv(out[0, 0].numel(), 512))
    depthwise_kernel[grid](x, layer.weight, layer.bias, out, x.shape[1], *x.shape[2:], *size, {_PASSED})
    return out
"""


def coordinates(rank: int, tap: str, base: str, *, transposed: bool = False) -> tuple[list[str], list[str], str]:
    """Return statements, conditions and flat offset of the input's element at position `p` and kernel element `tap`.

    `base`: expression of the plane that the element is in.
    """
    dims = DIMENSIONS[rank]
    lines, inside, offset = list[str](), list[str](), base
    for index, dim in enumerate(dims):
        name, value = dim.lower(), dim.lower()
        at, of = _digit("p", "O", dims, index), _digit(tap, "K", dims, index)
        if index == 0:  # the outermost position is not bounded: what lies behind the last is not stored
            at = at.rsplit(" %", 1)[0]
        if transposed:
            lines.append(f"{name} = {at} + P{dim} - {of} * D{dim}")
            inside.append(f"({name} >= 0) & ({name} % S{dim} == 0) & ({name} // S{dim} < {dim})")
            value = f"{name} // S{dim}"
        else:
            lines.append(f"{name} = {at} * S{dim} - P{dim} + {of} * D{dim}")
            inside.append(f"({name} >= 0) & ({name} < {dim})")
        offset = f"{f'({offset})' if index else offset} * {dim} + {value}"
    return lines, inside, offset


def product(letter: str, dims: Sequence[str]) -> str:
    """Return the product of the names `letter` + dimension."""
    return " * ".join(letter + dim for dim in dims)


def enclosed(text: str) -> str:
    """Return the expression, in parentheses unless it is one name."""
    return f"({text})" if " " in text else text


def block(lines: Sequence[str], indent: int) -> str:
    """Return the lines, indented by `indent` spaces."""
    return "".join(f"{' ' * indent}{line}\n" for line in lines)


def _digit(flat: str, letter: str, dims: Sequence[str], index: int) -> str:
    """Return one coordinate of the flat index `flat` in the sizes `letter` + dimension."""
    later = product(letter, dims[index + 1 :])
    return f"{flat}{f' // {enclosed(later)}' if later else ''} % {letter}{dims[index]}"
